"""Loading what a developer wrote by name, `module:attribute`: agents, an authenticator."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from types import ModuleType

from zhin_host.agent import Agent, hosted_agents
from zhin_host.errors import StartupError


def load_agents(references: Iterable[str]) -> dict[str, Agent]:
    """The agents that each `--agent` names, in their order; the first is the default.

    Raises:
        StartupError: As `add_agents`.
    """
    agents: dict[str, Agent] = {}
    for reference in references:
        add_agents(agents, reference)
    return agents


def add_agents(agents: dict[str, Agent], reference: str) -> list[str]:
    """Put what `[name=]module:attribute` names to the agents: one under that name, or without it all under theirs.

    Returns:
        Their names.

    Raises:
        StartupError: As `load`; it is no agent, is several and is given one name, or its name is taken.
    """
    name, is_named, place = reference.rpartition("=")
    loaded = load(place, "agent")
    if is_named and not name:
        raise StartupError(
            f"--agent {reference!r:.200} has no name before the =; write one, or leave the = out."
        )
    if is_named and isinstance(loaded, Mapping):
        raise StartupError(
            f"--agent {reference!r:.200} gives one name to several agents, which have their own; leave it out."
        )
    found = hosted_agents({name: loaded} if is_named else loaded)
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
    return StartupError(f"{subject} cannot be imported: {type(error).__name__}: {error!s:.500}{at}.")
