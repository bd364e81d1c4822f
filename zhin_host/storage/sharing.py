"""SharedRun: work that many wait for and that one run of does for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

Waiter = asyncio.Future[None]
Work = Callable[[], Coroutine[Any, Any, None]]


class SharedRun:
    """Runs one piece of work at a time, in a task of its own, so that a cancelled caller stops nobody else's wait.

    It does not keep the work: a log that kept its own run would be freed only when cycles are collected.

    Args:
        name: What its task is called.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._waiting: list[Waiter] = []  # for the run after this one, which began before they came

    async def __call__(self, work: Work) -> None:
        """Wait until a run that began after this call has ended; raises what that run raised.

        Args:
            work: What is done, the same for every caller; it is begun anew for those who came while it ran.
        """
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        if self._task is None or self._task.done():
            self._begin(work)
        await waiter

    def _begin(self, work: Work) -> None:
        waiters, self._waiting = self._waiting, []
        try:
            run = work()
        except Exception as error:  # noqa: BLE001 - it is its waiters' to handle
            _tell(waiters, error)
            return
        self._task = asyncio.get_running_loop().create_task(run, name=self._name)
        self._task.add_done_callback(partial(self._ended, waiters, work))

    def _ended(self, waiters: list[Waiter], work: Work, task: asyncio.Task[None]) -> None:
        _tell(waiters, asyncio.CancelledError() if task.cancelled() else task.exception())
        if self._waiting:
            self._begin(work)


def _tell(waiters: list[Waiter], error: BaseException | None) -> None:
    for waiter in waiters:
        if waiter.done():  # its caller was cancelled
            continue
        if error is None:
            waiter.set_result(None)
        elif isinstance(error, asyncio.CancelledError):
            waiter.cancel()
        else:
            waiter.set_exception(error)
