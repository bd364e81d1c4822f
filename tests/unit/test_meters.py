"""What a host counts: each batch, sync, end and refusal once, and what it holds read off what is in memory."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.fakes import FakeClock, FaultyFileSystem
from tests.hosting import NOBODY, crashing, hosting
from tests.integration.live import Script
from zhin_host.clock import SessionId
from zhin_host.errors import StorageUnavailable
from zhin_host.meters import OTHER, Histogram, Meters
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.memory import MemorySessionPersistence
from zhin_host.subscriptions import Subscription


def test_a_duration_counts_in_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram((0.1, 1.0))
    for duration_s in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(duration_s)
    assert histogram.cumulated == [2, 3, 4]
    assert histogram.total_s == pytest.approx(7.65)


def test_a_turn_of_an_agent_that_is_not_hosted_gets_no_label_of_its_own() -> None:
    meters = Meters(["writer"])
    meters.turn_ended("writer", "failed")
    meters.turn_ended("one of before", "cancelled")
    meters.turn_ended("another of before", "cancelled")
    assert +meters.turns == {("writer", "failed"): 1, (OTHER, "cancelled"): 2}


async def test_turns_are_counted_by_agent_and_end() -> None:
    async with hosting({"first": Script(), "second": Script()}) as bench:
        await bench.run("hello")
        await bench.run("fail now", agent=None)
        await bench.idle((await bench.start("hello", "second")).session_id)
        held = await bench.start("hold")
        await bench.cancel(held.session_id)
        await bench.idle(held.session_id)
        assert bench.host.meters.turns == {
            ("first", "completed"): 1,
            ("first", "failed"): 1,
            ("first", "cancelled"): 1,
            ("second", "completed"): 1,
            ("second", "failed"): 0,
            ("second", "cancelled"): 0,
        }


async def test_a_batch_is_one_observation_whatever_is_in_it() -> None:
    async with hosting(Script()) as bench:
        await bench.run("many 100")
        appends = bench.host.meters.appends.cumulated[-1]
        await bench.run("many 1")
        assert bench.host.meters.appends.cumulated[-1] == 2 * appends


async def test_what_the_host_holds_is_read_off_it() -> None:
    clock = FakeClock()
    async with hosting(Script(), clock=clock, idle_s=1e6) as bench:
        held, parked = await bench.start("hold"), await bench.start("approve")
        await bench.events(parked.session_id)
        clock.advance(5)
        late = await bench.start("approve")
        await bench.events(late.session_id)
        clock.advance(2)
        reader = await bench.store.subscribe(NOBODY, held.session_id, 0, "never")
        now = bench.host.gauges()
        assert (now.sessions_known, now.sessions_in_memory, now.sessions_recovering) == (3, 3, 0)
        assert (now.turns_running, now.turns_parked, now.parked_oldest_s) == (1, 2, 7.0)
        assert (now.readers, now.readers_behind) == (1, 1)
        assert now.lag_events_max == bench.live(held.session_id).state.next_index
        blocks = aiter(reader)
        await anext(blocks)
        assert bench.host.gauges().lag_events_max == 0
        await blocks.aclose()
        await reader.aclose()
        for accepted in (parked, late):
            [request] = bench.live(accepted.session_id).state.pending
            await bench.approve(accepted.session_id, request)
            await bench.idle(accepted.session_id)
        assert (bench.host.gauges().turns_parked, bench.host.gauges().parked_oldest_s) == (0, 0.0)


async def test_a_reader_that_will_get_no_more_is_not_behind() -> None:
    async with hosting(Script()) as bench:
        accepted = await bench.start("say this")
        await bench.idle(accepted.session_id)
        reader = await bench.store.subscribe(NOBODY, accepted.session_id, 0, "tail")
        assert bench.host.gauges().lag_events_max == bench.live(accepted.session_id).state.next_index
        blocks = aiter(reader)
        await anext(blocks)
        await bench.follow_up(accepted.session_id, "say more")
        await bench.idle(accepted.session_id)
        assert (bench.host.gauges().readers, bench.host.gauges().readers_behind) == (1, 0)
        await blocks.aclose()
        await reader.aclose()


async def test_a_turn_whose_log_is_broken_does_not_count_as_running() -> None:
    async with hosting(Script(), is_audited=False) as bench:
        held = await bench.start("hold")
        assert bench.host.gauges().turns_running == 1
        bench.live(held.session_id).found_broken(1, 1)
        now = bench.host.gauges()
        assert (now.turns_running, now.sessions_in_memory) == (0, 1)


async def test_a_parked_turn_counts_out_of_memory_and_after_a_restart(data_dir: Path) -> None:
    clock = FakeClock()
    async with hosting(Script(), data_dir=data_dir, clock=clock, parked_s=1) as bench:
        parked = await bench.start("approve")
        await bench.events(parked.session_id)
        clock.advance(60)
        while bench.is_in_memory(parked.session_id):
            await bench.host._sessions.drop_idle()
        assert (bench.host.gauges().turns_parked, bench.host.gauges().parked_oldest_s) == (1, 60.0)
    written_ms = (data_dir / f"{parked.session_id}.ndjson").stat().st_mtime_ns // 1_000_000
    later = FakeClock(written_ms + 90_000, seed=1)
    async with hosting(Script(), data_dir=data_dir, clock=later) as bench:
        now = bench.host.gauges()
        assert (now.sessions_in_memory, now.turns_parked, now.parked_oldest_s) == (0, 1, 90.0)
        view = await bench.store.view(NOBODY, parked.session_id)
        assert bench.host.gauges().turns_parked == 1  # in memory again, and counted once
        await bench.approve(parked.session_id, view["pendingRequestIds"][0])
        await bench.idle(parked.session_id)
        assert bench.host.gauges().turns_parked == 0


async def test_a_parked_session_that_a_reader_joins_while_it_leaves_counts_once() -> None:
    readers: list[Subscription] = []

    class Joined(MemorySessionPersistence):
        async def write_snapshot(self, session_id: SessionId, snapshot: bytes) -> None:
            await super().write_snapshot(session_id, snapshot)
            readers.append(await bench.store.subscribe(NOBODY, session_id, 0, "never"))

    async with hosting(Script(), persistence=Joined(), parked_s=0) as bench:
        parked = await bench.start("approve")
        await bench.events(parked.session_id)
        while not readers:
            await bench.host._sessions.drop_idle()
        assert bench.is_in_memory(parked.session_id)
        assert bench.host.gauges().turns_parked == 1
        for reader in readers:
            await reader.aclose()


async def test_what_recovery_did_is_counted_by_outcome() -> None:
    persistence = MemorySessionPersistence()
    agent = Script()
    async with crashing(agent, persistence=persistence) as bench:
        held = await bench.start("hold")
        await bench.events((await bench.start("approve")).session_id)
    agent.go.set()
    async with hosting(agent, persistence=persistence) as bench:
        await bench.idle(held.session_id)
        assert +bench.host.meters.recoveries == {"redriven": 1, "parked": 1}


async def test_a_session_that_was_merely_out_of_memory_is_no_recovery(data_dir: Path) -> None:
    async with hosting(Script(), data_dir=data_dir, idle_s=0) as bench:
        accepted = await bench.start("hello")
        await bench.idle(accepted.session_id)
        await bench.settled(accepted.session_id)
        bench.host._sessions.sweep()
        await bench.host._sessions.drop_idle()
        assert not bench.is_in_memory(accepted.session_id)
        await bench.store.view(NOBODY, accepted.session_id)
        assert +bench.host.meters.recoveries == {}


async def test_a_write_that_fails_and_a_sync_that_fails_are_counted(data_dir: Path) -> None:
    fs, agent = FaultyFileSystem(), Script()
    async with hosting(agent, persistence=FileHttpSessionPersistence(data_dir, fs=fs)) as bench:
        held = await bench.start("hold")
        await bench.content(held.session_id, until="tail")
        fs.fail_next(errno.ENOSPC, "write")
        agent.go.set()
        await bench.idle(held.session_id)
        await bench.settled(held.session_id)
        assert bench.host.meters.storage_errors == {"append": 1, "sync": 0}
        fs.fail_next(errno.EIO, "datasync")
        with pytest.raises(StorageUnavailable):
            await bench.start("approve")
        assert bench.host.meters.storage_errors == {"append": 1, "sync": 1}
        [other] = set(bench.host._sessions.index.before(None)) - {held.session_id}
        assert (await bench.events(other))[-1].data["parked"]
        await bench.live(other).journal.sync_when_possible()
