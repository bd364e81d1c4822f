"""SharedRun: work that many wait for and that one run of does for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class SharedRun:
    """Runs one piece of work at a time, in a task of its own, so that a cancelled caller stops nobody else's wait.

    Args:
        work: What is done; it is begun anew for those who came while it ran.
        name: What its task is called.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._work = work
        self._name = name
        self._running: asyncio.Task[None] | None = None

    async def __call__(self) -> None:
        """Wait until a run that began after this call has ended; raises what that run raised."""
        running = self._running
        if running is not None and not running.done():  # it began before, so it proves nothing to this caller
            await asyncio.wait((running,))
        if self._running is running:
            self._running = asyncio.get_running_loop().create_task(self._work(), name=self._name)
            self._running.add_done_callback(_seen)
        running = self._running
        if running is not None:
            await asyncio.shield(running)


def _seen(task: asyncio.Task[None]) -> None:
    """An error is its waiters' to handle; where all of them were cancelled, nobody is left to be told."""
    if not task.cancelled():
        task.exception()
