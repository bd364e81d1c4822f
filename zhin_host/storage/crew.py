"""SyncCrew: one or two threads that sync for all sessions, whatever waits as one batch.

Four threads were slower than two; one sync for each waiter is slower than one for each file.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from zhin_host.errors import StorageUnavailable

THREADS: Final = 2
_STOP_TIMEOUT_S: Final = (
    10.0  # a hung disk holds neither a stop nor, the threads being daemons, the process's exit
)


@dataclass(frozen=True, slots=True)
class _Wish:
    """One waiter.

    Attributes:
        job: Makes bytes or names durable, or raises; equal jobs of a batch run once.
        future: Resolved on `loop`, in one wake-up for the whole batch.
    """

    job: Callable[[], None]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]


class SyncCrew:
    """Runs jobs (bound methods that sync) in daemon threads, so that no sync can hold the process's exit.

    Threads start with the first wish. May be used from one event loop after another, or from several.
    """

    def __init__(self, threads: int = THREADS) -> None:
        self._threads_max = threads
        self._threads: list[threading.Thread] = []
        self._wishes: list[_Wish] = []
        self._is_stopped = False
        self._changed = threading.Condition()

    async def run(self, job: Callable[[], None]) -> None:
        """Wait until a run of `job` that began after this call has ended; raises what it raised.

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
            if self._is_stopped:
                raise StorageUnavailable("The data directory was let go; start the host again.")
            self._wishes.append(_Wish(job, loop, future))
            self._muster()
            self._changed.notify()
        return future

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
            _answer(batch, _run_each(wish.job for wish in batch))


def _run_each(jobs: Iterable[Callable[[], None]]) -> dict[Callable[[], None], BaseException | None]:
    """How each different job ended."""
    ends: dict[Callable[[], None], BaseException | None] = {}
    for job in jobs:
        if job not in ends:
            try:
                job()
                ends[job] = None
            except BaseException as error:  # noqa: BLE001 - it is handed to its own waiters, none is swallowed
                ends[job] = error
    return ends


def _answer(batch: list[_Wish], ends: dict[Callable[[], None], BaseException | None]) -> None:
    """Wake each loop once, for all its waiters."""
    for loop in {wish.loop for wish in batch}:
        resolved = [(wish.future, ends[wish.job]) for wish in batch if wish.loop is loop]
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
