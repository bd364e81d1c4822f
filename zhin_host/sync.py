"""SyncTurn: a Turn for agents that are plain functions; each has a thread of its own, and the loop does the work."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent import futures
from contextlib import closing
from functools import partial
from typing import Any, ParamSpec, TypeVar

from zhin_host.actions import Retry
from zhin_host.errors import AttemptEnded
from zhin_host.tools import Tool
from zhin_host.turn import Turn
from zhin_host.workers import in_thread

P = ParamSpec("P")
T = TypeVar("T")


class SyncTurn:
    """A `zhin_host.Turn` for a plain function; what is said there holds here, and every method waits for its end.

    Several threads may use it side by side. It is not for functions that run in the event loop: those would wait for
    themselves.

    Attributes:
        session_id: As Turn has it, like all that follow.
        turn_id: The turn.
        message: The message as text.
        parts: The message in its parts.
        metadata: What the session was started with.
        attempt: 1, then one more with every time the turn is driven again.
    """

    def __init__(self, turn: Turn) -> None:
        """Take the turn; in its loop."""
        self.session_id = turn.session_id
        self.turn_id = turn.turn_id
        self.message = turn.message
        self.parts = turn.parts
        self.metadata = turn.metadata
        self.attempt = turn.attempt
        self._turn = turn
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._calls: set[asyncio.Task[Any]] = set()

    @property
    def state(self) -> Any:
        """The state last given to `checkpoint`, by this turn or by the last one that completed; None before."""
        return self._turn.state

    def say(self, text: str) -> None:
        self._wait_for(self._turn.say, text)

    def think(self, text: str) -> None:
        self._wait_for(self._turn.think, text)

    def finish(self, reason: str = "stop", usage: Mapping[str, Any] | None = None) -> None:
        self._wait_for(self._turn.finish, reason, usage)

    def end_session(self) -> None:
        self._wait_for(self._turn.end_session)

    def emit(self, kind: str, data: Mapping[str, Any]) -> None:
        self._wait_for(self._turn.emit, kind, data)

    def checkpoint(self, state: Any) -> None:
        self._wait_for(self._turn.checkpoint, state)

    def history(self) -> list[dict[str, str]]:
        return self._wait_for(self._turn.history)

    def run(
        self, name: str, fn: Callable[..., Any], /, *args: Any, retry: Retry | None = None, **kwargs: Any
    ) -> Any:
        return self._wait_for(self._turn.run, name, fn, *args, retry=retry, **kwargs)

    def call_tool(self, tool: Tool, /, **args: Any) -> Any:
        return self._wait_for(self._turn.call_tool, tool, **args)

    def approve(self, prompt: str, **detail: Any) -> bool:
        return self._wait_for(self._turn.approve, prompt, **detail)

    def ask(self, prompt: str, options: list[Any] | None = None) -> Any:
        return self._wait_for(self._turn.ask, prompt, options)

    def authorize(self, connection: str, auth_url: str | None = None, scope: str | None = None) -> bool:
        return self._wait_for(self._turn.authorize, connection, auth_url, scope)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _wait_for(self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the turn's method gives, called in the loop, in this thread's context.

        Raises:
            AttemptEnded: The attempt is over, or the loop is gone with the host.
            RuntimeError: This is the loop's own thread.
        """
        if threading.get_ident() == self._loop_thread:
            raise RuntimeError(
                "this turn belongs to a plain function's thread; a function that runs in the event loop cannot use it"
            )
        done: futures.Future[T] = futures.Future()
        try:
            self._loop.call_soon_threadsafe(self._begin, done, partial(method, *args, **kwargs))
        except RuntimeError:  # the loop is closed
            raise AttemptEnded("the host has stopped") from None
        return done.result()

    def _begin(self, done: futures.Future[T], call: Callable[[], Coroutine[Any, Any, T]]) -> None:
        task = self._loop.create_task(call(), name=f"call of turn {self.turn_id}")
        self._calls.add(task)
        task.add_done_callback(partial(self._end, done))

    def _end(self, done: futures.Future[T], task: asyncio.Task[T]) -> None:
        self._calls.discard(task)
        if task.cancelled():  # an AttemptEnded comes as this: to a task it is a cancellation
            is_over = self._turn.attempt_of.is_over
            ended = AttemptEnded("this attempt of the turn is over")
            done.set_exception(ended if is_over else asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            done.set_exception(error)
        else:
            done.set_result(task.result())

    def cancel_calls(self) -> None:
        """End what the thread waits for, in the loop."""
        for task in self._calls:
            task.cancel()


async def run_in_thread(function: Callable[[SyncTurn], object], turn: Turn) -> object:
    """What a plain agent returns, or the generator that it returned did; what that yielded has been said.

    Cancelled since the attempt is over, it waits for the thread, whose next use of the turn raises AttemptEnded; who
    has no more patience cancels it again, and the thread is left behind.

    Args:
        function: The agent.
        turn: Its turn.

    Raises:
        BaseException: Whatever it raised.
    """
    facade = SyncTurn(turn)
    done = in_thread(f"agent in turn {turn.turn_id}", _work, function, facade)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        facade.cancel_calls()
        if turn.attempt_of.is_over:
            await asyncio.wait((done,))
        raise


def _work(function: Callable[[SyncTurn], object], turn: SyncTurn) -> object:
    made = function(turn)
    if not inspect.isgenerator(made):
        return made
    with closing(made) as texts:
        return _say_all(texts, turn)


def _say_all(texts: Iterator[Any], turn: SyncTurn) -> object:
    """Say each text; what the generator returned."""
    while True:
        try:
            text = next(texts)
        except StopIteration as end:
            return end.value
        turn.say(text)
