"""HostedAgent: what a developer wrote, made into the one thing the runtime hosts."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, cast

from zhin_host.errors import StartupError
from zhin_host.steps import Stepped, SteppedAgent, close
from zhin_host.tools import Tool, tools_digest
from zhin_host.turn import Turn


class Agent(Protocol):
    """What the runtime hosts.

    Attributes:
        name: Said in session.started and GET /info.
        version: Said in turn.started; "" when it says none.
        is_resumable: Whether a turn may be driven again from its record.
        tools: The tools it says it calls, for GET /info.
        tools_digest: Names their names, schemas and policies; said in turn.started.
    """

    name: str
    version: str
    is_resumable: bool
    tools: tuple[Tool, ...]
    tools_digest: str

    async def run(self, turn: Turn) -> None:
        """One turn, from its top. May be cancelled at any await; whatever it raises ends the turn as failed."""

    async def aclose(self) -> None:
        """Let go of what it holds beside its turns, such as connections: the host stops. It may be used again."""


class HostedAgent:
    """A coroutine function or an async generator of strings, with what it says of itself.

    Its `version`, `resumable`, `tools` and `aclose` are attributes of those names, if it has them.
    """

    def __init__(self, function: Callable[[Turn], Any], name: str, tools: Iterable[Tool] = ()) -> None:
        self.name = name
        self.version = str(getattr(function, "version", ""))
        self.is_resumable = bool(getattr(function, "resumable", True))
        self.tools = tuple(tools) or tuple(getattr(function, "tools", ()))
        self.tools_digest = tools_digest(self.tools)
        self._function = function

    async def run(self, turn: Turn) -> None:
        produced = self._function(turn)
        if hasattr(produced, "__aiter__"):
            async for text in cast("AsyncIterator[str]", produced):
                await turn.say(text)
        else:
            await cast("Awaitable[object]", produced)

    async def aclose(self) -> None:
        await close(self._function)


def hosted_agents(agent: object, tools: Iterable[Tool] = ()) -> dict[str, Agent]:
    """One agent, or several by name, as the runtime hosts them; the first is the default.

    Args:
        agent: What `hosted` takes, or a mapping of names to such.
        tools: The tools of one agent, for those who look at GET /info.

    Raises:
        StartupError: One is none, or there is none at all.
    """
    if not isinstance(agent, Mapping):
        one = hosted(agent, str(getattr(agent, "name", None) or getattr(agent, "__name__", "agent")), tools)
        return {_encodable(one.name): one}
    if not agent:
        raise StartupError("There is no agent in the mapping; give at least one, by its name.")
    return {_encodable(name): hosted(one, name) for name, one in agent.items()}


def _encodable(name: str) -> str:
    """The name, which stands in the log and in answers.

    Raises:
        StartupError: It has no UTF-8 form.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        raise StartupError(
            f"The agent's name {name!r:.100} has a lone surrogate; name it otherwise."
        ) from None
    return name


def hosted(agent: object, name: str = "agent", tools: Iterable[Tool] = ()) -> Agent:
    """The agent as the runtime hosts it.

    Args:
        agent: A coroutine function or async generator function of one argument, the Turn; an object that is called
            like one; or an object with `step(state)` (see `zhin_host.steps`).
        name: What sessions record; it must stay the same for them to go on.
        tools: Its tools, for those who look at GET /info.

    Raises:
        StartupError: It is none of these.
    """
    if isinstance(agent, HostedAgent | SteppedAgent):
        return agent
    if callable(getattr(agent, "step", None)) and not isinstance(agent, type):
        return SteppedAgent(cast("Stepped", agent), name, tuple(tools) or tuple(getattr(agent, "tools", ())))
    called = agent if inspect.isroutine(agent) else getattr(type(agent), "__call__", None)  # noqa: B004 - which kind
    if not (inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)):
        raise StartupError(
            f"The agent {name!r} is a {type(agent).__name__}; give an async function (or async generator) of one "
            "argument, the Turn."
        )
    try:
        inspect.signature(cast("Callable[[Turn], Any]", agent)).bind(None)
    except TypeError:
        raise StartupError(
            f"The agent {name!r} does not take one argument, the Turn; write `async def {name}(turn)`."
        ) from None
    return HostedAgent(cast("Callable[[Turn], Any]", agent), name, tools)
