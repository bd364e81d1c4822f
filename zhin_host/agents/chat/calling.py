"""Calling: the tools of a turn as the model sees them, and what it gets for each call."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from zhin_host import ActionFailed, RequestExpired, Tool, ToolDenied, Turn
from zhin_host.agents.chat.model import ToolCall

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what endpoints take


def check_names(tools: Iterable[Tool]) -> None:
    """See to it that a model can tell the tools apart.

    Raises:
        ValueError: Two have one name, or one has a name that endpoints refuse.
    """
    names: set[str] = set()
    for tool in tools:
        if _NAME.fullmatch(tool.name) is None:
            raise ValueError(
                f"The tool {tool.name!r} has a name that models are not given: use 1 to 64 of A-Z a-z 0-9 _ and the "
                "hyphen, with @tool(name=…)."
            )
        if tool.name in names:
            raise ValueError(
                f"Two tools have the name {tool.name!r}; name one of them otherwise, with @tool(name=…)."
            )
        names.add(tool.name)


def described(tool: Tool) -> dict[str, Any]:
    """A tool as the endpoint takes it."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


class ToolSource(Protocol):
    """Tools that come from elsewhere and may change: those of MCP servers, say."""

    async def tools(self) -> Sequence[Tool]:
        """The tools there are now; asked for once a turn, before its first call of the model."""

    def tool(self, name: str) -> Tool:
        """The tool of this name, although it is not there now: a call finds out, or the record has its result.

        Raises:
            KeyError: The source has no tools of such names.
        """

    async def aclose(self) -> None:
        """Let go of the connections; the next call opens them again."""


class Toolbox:
    """The tools of one turn.

    Args:
        tools: Those there were when it began.
        sources: Where some of them came from.
    """

    def __init__(self, tools: Iterable[Tool], sources: Iterable[ToolSource]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._sources = tuple(sources)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    async def result_of(self, turn: Turn, call: ToolCall) -> str:
        """Make one call that the model asked for, and say how it went: whatever went wrong is told to the model.

        A call of a tool that is not there, or with arguments that are no JSON object, is a failed action in the log.
        """
        tool, arguments = self._find(call.name), _arguments_of(call)
        if tool is None:
            tool = _failing(call.name or "unnamed", f"There is no tool {call.name!r}.")
            arguments = {} if arguments is None else arguments
        elif arguments is None:
            tool = _failing(call.name, "The arguments are not a JSON object.")
            arguments = {"arguments": call.arguments}
        try:
            value = await turn.call_tool(tool, **arguments)
        except ToolDenied:
            return "A person refused this call; it was not made."
        except RequestExpired:
            return "Nobody allowed this call in time; it was not made."
        except ActionFailed as failure:
            return f"This call failed: {failure.error['message']}"
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def _find(self, name: str) -> Tool | None:
        """The tool of this name; one that went away since the turn began is still its source's."""
        if name in self._tools:
            return self._tools[name]
        for source in self._sources:
            with suppress(KeyError):
                return source.tool(name)
        return None


def _arguments_of(call: ToolCall) -> dict[str, Any] | None:
    """The arguments, None when they are no JSON object. Models write nothing where there are none."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None


def _failing(name: str, sentence: str) -> Tool:
    def fail(**_: Any) -> None:
        raise LookupError(sentence)

    printable = "".join(character for character in name if character.isprintable())
    return Tool.from_schema(printable[:64] or "unnamed", "", {"type": "object"}, fail)
