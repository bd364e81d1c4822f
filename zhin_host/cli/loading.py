"""Loading what a developer wrote by name, `module:attribute`: agents, an authenticator."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from zhin_host.agent import Agent, hosted_agents
from zhin_host.cli.options import prepare_each
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


def load_agents(references: Sequence[str], given: Mapping[str, Any]) -> dict[str, Agent]:
    """The agents that each `--agent` names, in their order; the first is the default.

    Args:
        references: `[name=]module:attribute`.
        given: The options of agents, for those of them that take them.

    Raises:
        StartupError: As `load`, `prepare_each` and `add_agents`.
    """
    named = [named_place(reference) for reference in references]
    made = prepare_each([(load(place, "agent"), place) for _, place in named], given)
    agents: dict[str, Agent] = {}
    for (name, _), agent in zip(named, made, strict=True):
        add_agents(agents, name, agent)
    return agents


def named_place(reference: str) -> tuple[str | None, str]:
    """Name, if it has one, and module:attribute of `[name=]module:attribute`.

    Raises:
        StartupError: There is nothing before the =.
    """
    name, is_named, place = reference.rpartition("=")
    if is_named and not name:
        raise StartupError(
            f"--agent {reference!r:.200} has no name before the =; write one, or leave the = out."
        )
    return name or None, place


def add_agents(agents: dict[str, Agent], name: str | None, loaded: object) -> list[str]:
    """Put what was loaded to the agents: one under the name, or without it all of them under theirs.

    Returns:
        Their names.

    Raises:
        StartupError: It is no agent, is several and is given one name, or its name is taken.
    """
    if name is not None and isinstance(loaded, Mapping):
        raise StartupError(
            f"--agent {name!r:.80}=… gives one name to several agents, which have their own; leave it out."
        )
    found = hosted_agents(loaded if name is None else {name: loaded})
    for taken in found.keys() & agents.keys():
        raise StartupError(
            f"Two agents are named {taken!r:.80}; name one of them otherwise: --agent NAME=MODULE:ATTRIBUTE."
        )
    agents.update(found)
    return list(found)


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
