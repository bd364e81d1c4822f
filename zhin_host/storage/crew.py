"""SyncCrew: one or two threads that sync for all sessions, whatever waits as one batch.

Four threads were slower than two. Where the kernel syncs without a thread, kernel.py is faster (ADR 0006).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from zhin_host.errors import StorageUnavailable
from zhin_host.storage.fs import FileSystem

THREADS: Final = 2
_STOP_TIMEOUT_S: Final = (
    10.0  # a hung disk holds neither a stop nor, the threads being daemons, the process's exit
)


@dataclass(frozen=True, slots=True)
class _Wish:
    """One waiter.

    Attributes:
        job: Makes bytes or names durable, or raises.
        future: Resolved on `loop`, in one wake-up for the whole batch.
    """

    job: Callable[[], None]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]


class SyncCrew:
    """Runs jobs that sync in daemon threads, so that no sync can hold the process's exit.

    Threads start with the first wish. May be used from one event loop after another, or from several.

    Args:
        fs: The operating system.
        threads: How many there are at most.
    """

    def __init__(self, fs: FileSystem, threads: int = THREADS) -> None:
        self._fs = fs
        self._threads_max = threads
        self._threads: list[threading.Thread] = []
        self._wishes: list[_Wish] = []
        self._is_stopped = False
        self._changed = threading.Condition()

    async def datasync(self, fd: int) -> None:
        """Wait until the open file's bytes survive a power cut. Not to be cancelled: the number is in use meanwhile.

        Raises:
            OSError: They may not.
            StorageUnavailable: The crew has stopped.
        """
        await self.run(partial(self._fs.datasync, fd))

    async def fsync(self, fd: int) -> None:
        """As `datasync`, of a directory: its names."""
        await self.run(partial(self._fs.fsync, fd))

    async def run(self, job: Callable[[], None]) -> None:
        """Wait until `job` has ended; raises what it raised.

        Cancelling the wait leaves the job to run.
        """
        await asyncio.shield(self.submit(job))

    def submit(self, job: Callable[[], None]) -> asyncio.Future[None]:
        """As `run`, its future: done when no thread runs the job for it any more. Not to be cancelled.

        Raises:
            StorageUnavailable: The crew has stopped.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._changed:
            self.check_running()
            self._wishes.append(_Wish(job, loop, future))
            self._muster()
            self._changed.notify()
        return future

    def check_running(self) -> None:
        """Raise StorageUnavailable when the crew has stopped."""
        if self._is_stopped:
            raise StorageUnavailable("The data directory was let go; start the host again.")

    def stop(self) -> None:
        """Finish what waits, then let the threads end. A second call does nothing."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(_STOP_TIMEOUT_S)

    def _muster(self) -> None:
        if len(self._threads) < self._threads_max:
            number = len(self._threads) + 1
            thread = threading.Thread(target=self._serve, name=f"zhin-sync-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._wishes:
                    if self._is_stopped:
                        return
                    self._changed.wait()
                batch, self._wishes = self._wishes, []
            _answer(batch, [_end_of(wish.job) for wish in batch])


def _end_of(job: Callable[[], None]) -> BaseException | None:
    """Run a job; what it raised."""
    try:
        job()
    except BaseException as error:  # noqa: BLE001 - it is handed to its waiter, none is swallowed
        return error
    return None


def _answer(batch: list[_Wish], ends: list[BaseException | None]) -> None:
    """Wake each loop once, for all its waiters."""
    for loop in {wish.loop for wish in batch}:
        resolved = [(wish.future, end) for wish, end in zip(batch, ends, strict=True) if wish.loop is loop]
        try:
            loop.call_soon_threadsafe(_resolve, resolved)
        except RuntimeError:  # the loop has closed: nobody waits there any more
            continue


def _resolve(resolved: list[tuple[asyncio.Future[None], BaseException | None]]) -> None:
    for future, error in resolved:
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
            future.exception()  # seen, where the waiter was cancelled too
