"""Workers: daemon threads for plain functions."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any


class Workers:
    """Daemon threads for plain functions: as many at once as the setting says, none of which can hold the stop."""

    def __init__(self, threads_max: int) -> None:
        self._free = asyncio.Semaphore(threads_max)

    async def run(
        self, gives_up: Callable[[], bool], function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """The function's value.

        A thread cannot be stopped. When the call is cancelled and `gives_up()`, the thread runs on and its value is
        dropped; else the call waits for it all the same, and returns the value (whoever cancelled leaves it behind).
        """
        await self._free.acquire()
        try:
            done = in_thread(f"action {getattr(function, '__name__', 'function')}", function, *args, **kwargs)
        except RuntimeError:  # the system gives no further thread
            self._free.release()
            raise
        done.add_done_callback(self._ended)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if gives_up():
                raise
        return await asyncio.shield(done)

    def _ended(self, _: asyncio.Future[Any]) -> None:
        self._free.release()


def in_thread(name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
    """Run a plain function in a daemon thread of its own, in this context; the future has what becomes of it.

    The thread cannot be stopped, so nobody is to cancel the future: who gives up shields it.

    Args:
        name: The thread's.
        function: What it runs.
        args: Its arguments.
        kwargs: Its arguments by name.

    Raises:
        RuntimeError: The system gives no further thread.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    done.add_done_callback(_look)
    context = contextvars.copy_context()

    def work() -> None:
        error: BaseException | None = None
        value = None
        try:
            value = context.run(function, *args, **kwargs)
        except BaseException as raised:  # noqa: BLE001 - it belongs to whoever awaits the future
            error = raised
        try:
            loop.call_soon_threadsafe(_settle, done, value, error)
        except RuntimeError:  # the loop is closed: the host stopped and nobody waits for this any more
            return

    threading.Thread(target=work, name=name, daemon=True).start()
    return done


def _settle(done: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if error is None:
        done.set_result(value)
    elif isinstance(error, StopIteration):  # a future refuses to hold one
        done.set_exception(RuntimeError(f"the function raised StopIteration: {error}"))
    else:
        done.set_exception(error)


def _look(done: asyncio.Future[Any]) -> None:
    """An error that nobody waits for any more is no "exception was never retrieved". Shielded, it is not cancelled."""
    done.exception()
