"""HostedAgent: what a developer wrote, made into the one thing the runtime hosts."""

from __future__ import annotations

import copy
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from types import BuiltinFunctionType
from typing import Any, Protocol, cast

from zhin_host.errors import StartupError
from zhin_host.steps import Stepped, SteppedAgent, close
from zhin_host.sync import run_in_thread
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
    """A function or a generator of strings, async or plain, with what it says of itself.

    What it yields is said, and so is a string that it returns. Its `version`, `resumable`, `tools` and `aclose` are
    attributes of those names, if it has them.
    """

    def __init__(self, function: Callable[[Any], Any], name: str, tools: Iterable[Tool] = ()) -> None:
        self.name = name
        self.version = str(getattr(function, "version", ""))
        self.is_resumable = bool(getattr(function, "resumable", True))
        self.tools = tuple(tools) or tuple(getattr(function, "tools", ()))
        self.tools_digest = tools_digest(self.tools)
        self._function = function
        self._is_plain = not _is_async(function)

    async def run(self, turn: Turn) -> None:
        await _say_returned(turn, await self._returned(turn))

    async def _returned(self, turn: Turn) -> object:
        """What the function returned; what a generator yielded has been said."""
        if self._is_plain:
            return await run_in_thread(self._function, turn)
        produced = self._function(turn)
        if not hasattr(produced, "__aiter__"):
            return await cast("Awaitable[object]", produced)
        async with aclosing(cast("AsyncGenerator[str]", produced)) as texts:
            async for text in texts:
                await turn.say(text)
        return None

    async def aclose(self) -> None:
        await close(self._function)


async def _say_returned(turn: Turn, returned: object) -> None:
    """Say a string that the agent returned.

    Raises:
        TypeError: It is neither that nor None, and would be lost.
    """
    if isinstance(returned, str):
        await turn.say(returned)
    elif inspect.iscoroutine(returned):
        returned.close()  # made with a SyncTurn, which nothing can await
        raise TypeError(
            "the agent is a plain function, perhaps around an async one, and returned a coroutine; make it async"
        )
    elif returned is not None:
        raise TypeError(
            f"the agent returned a {type(returned).__qualname__}; a string is said, and anything else goes through "
            "the turn's methods"
        )


def hosted_agents(agent: object, tools: Iterable[Tool] = ()) -> dict[str, Agent]:
    """One agent, or several by name, as the runtime hosts them; the first is the default.

    Args:
        agent: What `hosted` takes, or a mapping of names to such; there the key is the name.
        tools: The tools of one agent, for those who look at GET /info.

    Raises:
        StartupError: One is none, or there is none at all.
    """
    if not isinstance(agent, Mapping):
        one = hosted(agent, str(getattr(agent, "name", None) or getattr(agent, "__name__", "agent")), tools)
        return {_encodable(one.name): one}
    if not agent:
        raise StartupError("There is no agent in the mapping; give at least one, by its name.")
    return {_encodable(name): _named(hosted(one, name), name) for name, one in agent.items()}


def _named(agent: HostedAgent | SteppedAgent, name: str) -> HostedAgent | SteppedAgent:
    """The agent under this name: it is looked up by the name that sessions record."""
    if agent.name == name:
        return agent
    renamed = copy.copy(agent)
    renamed.name = name
    return renamed


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


def hosted(agent: object, name: str = "agent", tools: Iterable[Tool] = ()) -> HostedAgent | SteppedAgent:
    """The agent as the runtime hosts it.

    Args:
        agent: A function or generator function of one argument, async or plain; an object that is called like one; or
            an object with `step(state)` (see `zhin_host.steps`). The argument is the Turn, for a plain one the
            SyncTurn.
        name: What sessions record; it must stay the same for them to go on.
        tools: Its tools, for those who look at GET /info.

    Raises:
        StartupError: It is none of these.
    """
    if isinstance(agent, HostedAgent | SteppedAgent):
        return agent
    if callable(getattr(agent, "step", None)) and not isinstance(agent, type):
        return SteppedAgent(cast("Stepped", agent), name, tuple(tools) or tuple(getattr(agent, "tools", ())))
    if not callable(agent) or isinstance(agent, type | Tool | BuiltinFunctionType):
        kind = "class, and no object of one" if isinstance(agent, type) else type(agent).__name__
        raise StartupError(
            f"The agent {name!r} is a {kind}; give a function (or generator) of one argument, the Turn, best an async "
            "one."
        )
    try:
        inspect.signature(agent).bind(None)
    except TypeError:
        raise StartupError(
            f"The agent {name!r} does not take one argument, the Turn; write `async def {name}(turn)`."
        ) from None
    return HostedAgent(agent, name, tools)


def _is_async(function: object) -> bool:
    """Whether it is a coroutine function or an async generator function, or is called like one."""
    called = function if inspect.isroutine(function) else getattr(type(function), "__call__", None)  # noqa: B004
    return any(
        inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in (function, called)
    )
