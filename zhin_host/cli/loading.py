"""Loading what a developer wrote by name, `module:attribute`: an agent, an authenticator."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from types import ModuleType
from typing import Final

from zhin_host.errors import StartupError

EXTRAS: Final[Mapping[str, str]] = {
    "ag_ui": "ag-ui",
    "agents": "openai-agents",
    "langchain_core": "langgraph",
    "langgraph": "langgraph",
    "mcp": "mcp",
    "openai": "chat",
    "pydantic_ai": "pydantic-ai",
}
"""Package that an adapter imports -> the extra that brings it."""


def load(reference: str, what: str) -> object:
    """What `module:attribute` names; the working directory is searched first.

    Args:
        reference: The name.
        what: What it is meant to be, and the flag it came with: "agent" or "authenticator".

    Raises:
        StartupError: It cannot be imported, or there is no such attribute; the sentence says why.
    """
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise StartupError(
            f"--{what} {reference!r:.200} is not of the form module:attribute, such as my_{what}:{what}."
        )
    here = os.getcwd()  # noqa: PTH109 - as a string, for sys.path
    if here not in sys.path[:1]:
        sys.path.insert(0, here)
    found: object = _imported(module_name, f"The {what} {reference!r:.200}", here)
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise StartupError(
                f"The {what} {reference!r:.200} cannot be imported: {module_name} has no attribute {name!r:.80}."
            )
        found = getattr(found, name)
    return found


def _imported(module_name: str, subject: str, here: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise StartupError(
                f"{subject} cannot be imported: there is no module {error.name!r:.80} in {here} "
                "or among the installed packages."
            ) from None
        raise _failed(subject, error) from error
    except (Exception, SystemExit) as error:  # anything may go wrong in somebody's module
        raise _failed(subject, error) from error


def _failed(subject: str, error: BaseException) -> StartupError:
    """The sentence for an error of the module's own, with the last place in it that is not the import system's."""
    places = [row for row in traceback.extract_tb(error.__traceback__) if "importlib" not in row.filename]
    at = f" ({places[-1].filename}, line {places[-1].lineno})" if len(places) > 1 else ""
    if isinstance(error, SyntaxError) and error.filename:
        at = f" ({error.filename}, line {error.lineno})"
    extra = (
        EXTRAS.get((error.name or "").partition(".")[0]) if isinstance(error, ModuleNotFoundError) else None
    )
    remedy = "" if extra is None else f" Run pip install 'zhin-host[{extra}]'."
    return StartupError(f"{subject} cannot be imported: {type(error).__name__}: {error!s:.500}{at}.{remedy}")
