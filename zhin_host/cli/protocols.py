"""Protocols: what `serve --protocol` names: other ways to speak to the sessions, each imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Final

from zhin_host.errors import StartupError
from zhin_host.http import Dialect

PROTOCOLS: Final[Mapping[str, str]] = {
    "ag-ui": "zhin_host.protocols.ag_ui:AgUi",
    "ai-sdk": "zhin_host.protocols.ai_sdk:AiSdk",
}
"""The name of each, and its class; a name is also that of the extra, where it needs one."""


def dialects(names: Iterable[str]) -> list[Dialect]:
    """The protocols of these names, each once.

    Raises:
        StartupError: What one needs is not installed.
    """
    return [_made(name) for name in dict.fromkeys(names)]


def _made(name: str) -> Dialect:
    module_name, _, class_name = PROTOCOLS[name].partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise StartupError(
            f"--protocol {name} needs the package {error.name!r}; run pip install 'zhin-host[{name}]'."
        ) from None
    dialect: Dialect = getattr(module, class_name)()
    return dialect
