"""HostedRun: one run of the SDK inside a turn, found by models and tools wherever they are called from it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Awaitable, Collection, Iterator
from typing import Any, Final

from zhin_host import ActionFailed, Retry, Tool, Turn
from zhin_host.agents.openai_agents.approvals import Approvals, Function

SAY_CHARACTERS: Final = 100_000  # a line of the log holds that many, whatever they are

_current: contextvars.ContextVar[HostedRun | None] = contextvars.ContextVar(
    "zhin_host_openai_run", default=None
)
_within: contextvars.ContextVar[str] = contextvars.ContextVar("zhin_host_openai_within", default="")


def current_run() -> HostedRun | None:
    """The run that whoever calls belongs to; None outside of turns and inside an action."""
    return _current.get()


class HostedRun:
    """What models and tools need of the turn that they work for.

    Attributes:
        turn: The turn.
        retry: When a request to a model is sent again.
        approvals: What people were asked to allow.
    """

    def __init__(self, turn: Turn, retry: Retry | None, unrepeatable: Collection[str]) -> None:
        self.turn = turn
        self.retry = retry
        self.approvals = Approvals(turn, unrepeatable)
        self._unrepeatable = unrepeatable
        self._failures: list[tuple[BaseException, ActionFailed]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._has_spoken = False

    # -- speaking --------------------------------------------------------------------------------------------------

    @property
    def within(self) -> str:
        """The calls of agents as tools that lead here, "" in the run itself, whose words are the answer."""
        return _within.get()

    async def say(self, text: str, *, begins: bool = True) -> None:
        """Say a piece of the answer; one that begins a message stands apart from the message before it."""
        if not text:
            return
        if begins and self._has_spoken:
            await self.turn.say("\n\n")
        self._has_spoken = True
        for at in range(0, len(text), SAY_CHARACTERS):
            await self.turn.say(text[at : at + SAY_CHARACTERS])

    async def think(self, text: str) -> None:
        """Say a piece of the reasoning."""
        for at in range(0, len(text), SAY_CHARACTERS):
            await self.turn.think(text[at : at + SAY_CHARACTERS])

    def has_said(self, text: str) -> None:
        """A recorded answer holds this text: it was said in the attempt that asked for it."""
        self._has_spoken = self._has_spoken or bool(text)

    # -- acting ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def inside(self, call: str) -> Iterator[None]:
        """What is done in the block belongs to this call of an agent as a tool."""
        token = _within.set(f"{self.within} {call}".strip())
        try:
            yield
        finally:
            _within.reset(token)

    async def act(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        """Call a tool as an action; its output in the JSON form.

        Raises:
            Exception: What the tool raised, or `RecordedFailure` where only the record knows of it.
        """
        return await self.finish(self.turn.call_tool(tool, **arguments))

    async def finish(self, call: Awaitable[Any]) -> Any:
        """Wait for a call of a tool that goes on already; otherwise as `act`."""
        self.works()
        try:
            return await call
        except ActionFailed as failure:
            failed = failure
        cause = failed.__cause__
        error = cause if isinstance(cause, Exception) else RecordedFailure(failed)
        self._failures.append((error, failed))
        # Here and not where it was caught: the error and its failure would each be behind the other, and whoever goes
        # through a chain of errors to its end, as the SDK does, would never come to it.
        raise error

    def is_repeatable(self, name: str) -> bool:
        """Whether a tool of this name may run again when a crash cut it off."""
        return name not in self._unrepeatable

    def works(self) -> None:
        """The task that calls belongs to the run: it has ended when the turn does."""
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)

    def failure_behind(self, error: BaseException) -> ActionFailed | None:
        """The failed action that this error comes from, if one does."""
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ActionFailed):
                return cause
            for known, failure in self._failures:
                if known is cause:
                    return failure
            cause = cause.__cause__
        return None

    async def settle(self) -> None:
        """End what the run still does; the SDK leaves tools that it cancels to themselves."""
        await self.approvals.close()
        left = {task for task in self._tasks if not task.done()} - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


class RecordedFailure(Exception):
    """A tool failed in an earlier attempt of the turn; its words are the recorded ones.

    Attributes:
        kind: The name of the error's class.
    """

    def __init__(self, failure: ActionFailed) -> None:
        super().__init__(str(failure.error["message"]))
        self.kind = str(failure.error.get("type", failure.error["code"]))


@contextlib.asynccontextmanager
async def hosting(run: HostedRun) -> AsyncIterator[HostedRun]:
    """Make it the current run for the block; behind the block no task of it is left."""
    token = _current.set(run)
    try:
        yield run
    finally:
        _current.reset(token)
        await run.settle()


def detached(function: Function) -> Function:
    """The function of an action: what it calls is part of that action, and no action of its own."""

    async def alone(shown: dict[str, Any]) -> Any:
        token = _current.set(None)
        try:
            return await function(shown)
        finally:
            _current.reset(token)

    return alone
