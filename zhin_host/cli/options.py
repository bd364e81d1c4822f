"""Options of agents: what `serve` was given for an agent that is made from it, such as the chat agent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from zhin_host.errors import StartupError

Command = Callable[..., Any]

# Name -> what click makes of its option; each is None or empty when it was not given.
_TABLE: Final[Mapping[str, Mapping[str, Any]]] = {
    "model": {
        "envvar": "ZHIN_MODEL",
        "metavar": "NAME",
        "show_envvar": True,
        "help": "The model that zhin_host.agents.chat:agent asks.",
    },
    "base_url": {
        "envvar": "ZHIN_BASE_URL",
        "metavar": "URL",
        "show_envvar": True,
        "help": "Its endpoint, which speaks OpenAI's chat completions; the key is OPENAI_API_KEY.",
    },
    "tools": {
        "multiple": True,
        "metavar": "MODULE",
        "help": "A module of @tools that the model may call; the working directory is searched first.",
    },
    "mcp": {
        "metavar": "FILE",
        "help": "MCP servers whose tools the model may call, as docs/mcp.md tells.",
    },
    "instructions": {
        "metavar": "FILE",
        "help": "What the model is told before everything else.",
    },
}
NAMES: Final = tuple(_TABLE)


def options(command: Command) -> Command:
    """The options themselves."""
    for name, given in reversed(list(_TABLE.items())):
        command = click.option(_flag(name), name, **given)(command)
    return command


def prepared(agent: object, reference: str, given: dict[str, Any]) -> object:
    """The agent, made from its options if it is one that takes them.

    Args:
        agent: What was loaded; `with_options(**given)` makes an agent of it where it has that.
        reference: Its name.
        given: Option to value, as NAMES has them; those that say nothing are left out.

    Raises:
        StartupError: It does not take what was given, or cannot be made of it.
    """
    given = {name: value for name, value in given.items() if value}
    make = getattr(agent, "with_options", None)
    if make is None:
        if given:
            raise _not_taken(next(iter(given)), reference)
        return agent
    for name in given:
        if name not in _taken(agent):
            raise _not_taken(name, reference)
    try:
        made: object = make(**given)
    except ValueError as error:
        raise StartupError(str(error)) from error
    return made


def prepare_each(loaded: Sequence[tuple[object, str]], given: Mapping[str, Any]) -> list[object]:
    """Each agent, made from those of the options that it takes.

    Args:
        loaded: What was loaded, and its name.
        given: As `prepared`.

    Raises:
        StartupError: As `prepared`; or of several none takes what was given.
    """
    given = {name: value for name, value in given.items() if value}
    if len(loaded) > 1:
        for name in given:
            if not any(name in _taken(agent) for agent, _ in loaded):
                raise StartupError(
                    f"None of the agents takes {_flag(name)}; zhin_host.agents.chat:agent does."
                )
        return [
            prepared(agent, reference, {name: given[name] for name in given.keys() & _taken(agent)})
            for agent, reference in loaded
        ]
    return [prepared(agent, reference, dict(given)) for agent, reference in loaded]


def _taken(agent: object) -> set[str]:
    """The names of the options that an agent takes."""
    make = getattr(agent, "with_options", None)
    return set() if make is None else set(inspect.signature(make).parameters)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _not_taken(name: str, reference: str) -> StartupError:
    return StartupError(
        f"The agent {reference!r:.200} takes no {_flag(name)}; zhin_host.agents.chat:agent does."
    )
