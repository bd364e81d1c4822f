"""SharedRun: one run of the work at a time, and each caller's wait ends with a run that began after its call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial

import pytest

from zhin_host.storage.sharing import SharedRun


class Work:
    """Counts its runs; each waits until it is let go."""

    def __init__(self) -> None:
        self.runs = 0
        self.go = asyncio.Event()
        self.errors: list[Exception | None] = []

    async def __call__(self) -> None:
        self.runs += 1
        await self.go.wait()
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error


async def turn_over(times: int = 5) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_callers_who_come_together_share_one_run() -> None:
    work = Work()
    shared = partial(SharedRun("work"), work)
    calls = [asyncio.ensure_future(shared()) for _ in range(5)]
    await turn_over()
    assert work.runs == 1
    work.go.set()
    await asyncio.gather(*calls)
    assert work.runs == 2  # the first began the run before the others had asked; they share the second


async def test_who_comes_during_a_run_waits_for_the_next() -> None:
    work = Work()
    shared = partial(SharedRun("work"), work)
    first = asyncio.ensure_future(shared())
    await turn_over()
    later = asyncio.ensure_future(shared())
    await turn_over()
    assert (work.runs, later.done()) == (1, False)
    work.go.set()
    await asyncio.gather(first, later)
    assert work.runs == 2


async def test_an_error_is_told_to_those_who_shared_the_run() -> None:
    work = Work()
    work.errors = [None, OSError("no")]
    shared = partial(SharedRun("work"), work)
    first = asyncio.ensure_future(shared())
    await turn_over()
    sharing = [asyncio.ensure_future(shared()) for _ in range(2)]
    await turn_over()
    work.go.set()
    await first
    for call in sharing:
        with pytest.raises(OSError, match="no"):
            await call
    await shared()
    assert work.runs == 3


async def test_a_cancelled_caller_leaves_the_run_to_the_others() -> None:
    work = Work()
    shared = partial(SharedRun("work"), work)
    given_up = asyncio.ensure_future(shared())
    await turn_over()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    other = asyncio.ensure_future(shared())
    await turn_over()
    work.go.set()
    await other
    assert work.runs == 2


async def test_work_that_cannot_begin_is_an_error_of_its_callers() -> None:
    def refuse() -> Coroutine[object, object, None]:
        raise OSError("closed")

    shared = partial(SharedRun("work"), refuse)
    for _ in range(2):
        with pytest.raises(OSError, match="closed"):
            await shared()


async def test_who_waits_for_a_run_that_is_cancelled_is_cancelled() -> None:
    work = Work()
    shared = SharedRun("work")
    waiting = asyncio.ensure_future(shared(work))
    await turn_over()
    assert shared._task is not None
    shared._task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_an_error_that_nobody_waits_for_any_more_is_no_complaint_of_the_loop() -> None:
    work = Work()
    work.errors = [OSError("no")]
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    shared = partial(SharedRun("work"), work)
    given_up = asyncio.ensure_future(shared())
    await turn_over()
    given_up.cancel()
    work.go.set()
    await turn_over()
    del shared, work
    await turn_over()
    assert complaints == []


def test_one_loop_after_another_may_use_it() -> None:
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1

    shared = partial(SharedRun("work"), work)
    for _ in range(3):
        asyncio.run(shared())
    assert runs == 3
