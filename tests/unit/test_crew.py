"""storage.crew: batches, errors, loops, the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from zhin_host.errors import StorageUnavailable
from zhin_host.storage.crew import SyncCrew
from zhin_host.storage.fs import FileSystem


class Job:
    """Counts its runs; the first waits to be let go."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.runs = 0
        self.error = error
        self.started = threading.Event()
        self.go = threading.Event()
        self.go.set()

    def run(self) -> None:
        self.runs += 1
        self.started.set()
        self.go.wait(30)
        if self.error is not None:
            raise self.error


@pytest.fixture
def crew() -> Iterator[SyncCrew]:
    crew = SyncCrew(FileSystem(), threads=1)
    yield crew
    crew.stop()


async def held(crew: SyncCrew) -> tuple[Job, asyncio.Future[None]]:
    """A job that keeps the one thread busy."""
    holder = Job()
    holder.go.clear()
    waiting = crew.submit(holder.run)
    await asyncio.to_thread(holder.started.wait, 30)
    return holder, waiting


async def test_an_error_reaches_its_own_waiters_only(crew: SyncCrew) -> None:
    holder, first = await held(crew)
    bad, good = Job(OSError("no")), Job()
    failing = [crew.submit(bad.run) for _ in range(2)]
    fine = crew.submit(good.run)
    holder.go.set()
    await asyncio.gather(first, fine)
    for waiting in failing:
        with pytest.raises(OSError, match="no"):
            await waiting
    await crew.run(good.run)


async def test_a_batch_wakes_the_loop_once(crew: SyncCrew, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, first = await held(crew)
    waiting = [crew.submit(Job().run) for _ in range(20)]
    wakes = 0
    loop = asyncio.get_running_loop()
    wake = loop.call_soon_threadsafe

    def counted(*args: object, **more: object) -> object:
        nonlocal wakes
        wakes += 1
        return wake(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    holder.go.set()
    await asyncio.gather(first, *waiting)
    assert wakes == 2


def test_one_loop_after_another_may_use_it() -> None:
    crew = SyncCrew(FileSystem())
    job = Job()
    for _ in range(3):
        asyncio.run(crew.run(job.run))
    assert job.runs == 3
    crew.stop()


def test_a_loop_that_closed_before_its_answer_holds_nobody_up() -> None:
    crew = SyncCrew(FileSystem(), threads=1)
    slow, job = Job(), Job()
    slow.go.clear()

    async def leave() -> None:
        _ = crew.submit(slow.run)
        await asyncio.to_thread(slow.started.wait, 30)

    asyncio.run(leave())
    slow.go.set()
    asyncio.run(crew.run(job.run))
    assert job.runs == 1
    crew.stop()


async def test_a_cancelled_wait_leaves_the_job_to_run(crew: SyncCrew) -> None:
    holder, first = await held(crew)
    job = Job()
    given_up = asyncio.ensure_future(crew.run(job.run))
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    holder.go.set()
    await first
    await crew.run(Job().run)
    assert job.runs == 1


async def test_a_stopped_crew_finishes_what_waits_and_takes_nothing_more() -> None:
    crew = SyncCrew(FileSystem(), threads=2)
    jobs = [Job() for _ in range(10)]
    waiting = [crew.submit(job.run) for job in jobs]
    await asyncio.to_thread(crew.stop)
    await asyncio.gather(*waiting)
    assert [job.runs for job in jobs] == [1] * 10
    crew.stop()
    with pytest.raises(StorageUnavailable):
        await crew.run(jobs[0].run)


def test_a_crew_that_was_never_used_stops_at_once() -> None:
    SyncCrew(FileSystem()).stop()


def test_a_sync_that_never_ends_does_not_hold_the_process() -> None:
    program = """
import asyncio, threading
from zhin_host.storage.crew import SyncCrew
from zhin_host.storage.fs import FileSystem

async def main():
    started = threading.Event()
    SyncCrew(FileSystem()).submit(lambda: (started.set(), threading.Event().wait()))
    await asyncio.to_thread(started.wait)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=30, check=False)
    assert done.returncode == 0
