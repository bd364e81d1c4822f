"""workers: daemon threads for plain functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from zhin_host import workers
from zhin_host.workers import Workers


@contextmanager
def blocking(value: Any = "value") -> Iterator[tuple[Callable[[], Any], threading.Event, asyncio.Event]]:
    """A function that blocks its thread, what lets it go, and what says that it has begun."""
    may_go = threading.Event()
    has_begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def function() -> Any:
        loop.call_soon_threadsafe(has_begun.set)
        may_go.wait(20)
        return value

    try:
        yield function, may_go, has_begun
    finally:
        may_go.set()


async def test_a_call_gives_the_functions_value_and_takes_its_arguments() -> None:
    assert await Workers(1).run(lambda: True, divmod, 7, 3) == (2, 1)
    assert await Workers(1).run(lambda: True, dict, a=1) == {"a": 1}


async def test_a_cancelled_call_that_gives_up_ends_at_once_and_frees_its_place_when_the_thread_ends() -> None:
    workers = Workers(1)
    with blocking() as (function, may_go, has_begun):
        call = asyncio.create_task(workers.run(lambda: True, function))
        await has_begun.wait()
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        next_call = asyncio.create_task(workers.run(lambda: True, str, 1))
        await asyncio.sleep(0)
        assert not next_call.done()
        may_go.set()
        assert await next_call == "1"


async def test_a_cancelled_call_that_does_not_give_up_waits_for_the_value() -> None:
    with blocking() as (function, may_go, has_begun):
        call = asyncio.create_task(Workers(1).run(lambda: False, function))
        await has_begun.wait()
        call.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not call.done()
        may_go.set()
        assert await call == "value"


async def test_a_value_that_was_there_before_the_cancelling_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An action that has run must not run again because the host stopped in that moment."""
    with blocking() as (function, may_go, has_begun):
        call = asyncio.create_task(Workers(1).run(lambda: False, function))
        await has_begun.wait()
        settled = asyncio.Event()
        settle = workers._settle

        def settle_and_cancel(*args: Any) -> None:
            settle(*args)
            call.cancel()  # after the value is there, before the call has woken up
            settled.set()

        monkeypatch.setattr(workers, "_settle", settle_and_cancel)
        may_go.set()
        await settled.wait()
        assert await call == "value"


async def test_a_call_cancelled_before_it_has_a_thread_runs_nothing() -> None:
    workers = Workers(1)
    ran: list[int] = []
    with blocking() as (function, may_go, has_begun):
        first = asyncio.create_task(workers.run(lambda: True, function))
        await has_begun.wait()
        second = asyncio.create_task(workers.run(lambda: False, ran.append, 1))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        may_go.set()
        await first
    assert second.cancelled()
    assert ran == []
    await workers.run(lambda: True, str)


def test_a_thread_that_outlives_its_loop_ends_in_silence(capsys: pytest.CaptureFixture[str]) -> None:
    may_go = threading.Event()
    threads: list[threading.Thread] = []

    def function() -> None:
        threads.append(threading.current_thread())
        may_go.wait(20)

    async def leave() -> None:
        call = asyncio.create_task(Workers(1).run(lambda: True, function))
        while not threads:  # noqa: ASYNC110 - a thread says it, not the loop
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])

    asyncio.run(leave())
    may_go.set()
    threads[0].join(20)
    assert not threads[0].is_alive()
    assert capsys.readouterr().err == ""


async def test_what_nobody_waits_for_any_more_may_fail() -> None:
    with blocking() as (function, may_go, has_begun):

        def fail() -> None:
            function()
            raise ValueError("too late")

        workers = Workers(1)
        call = asyncio.create_task(workers.run(lambda: True, fail))
        await has_begun.wait()
        call.cancel()
        await asyncio.wait([call])
        may_go.set()
        await workers.run(lambda: True, str)  # the place is free again: the failure was looked at
