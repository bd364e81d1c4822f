"""What the length of a session and the number of sessions cost, counted: nothing."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

import pytest

from tests.budget.bench import GATHER_S, SHORT_TURN, Bench, Speaker, bench, leave_memory
from tests.budget.counting import Calls, open_descriptors, waiting_timers
from tests.hosting import NOBODY, types
from zhin_host import Turn
from zhin_host import events as ev
from zhin_host.fold import apply
from zhin_host.intake import Key


@pytest.mark.parametrize("is_keyed", [False, True], ids=["plain", "keyed"])
async def test_the_last_of_2000_follow_ups_costs_what_the_first_did(
    data_dir: Path,
    encodes: Calls,
    folds: tuple[Calls, Calls],
    is_keyed: bool,  # noqa: FBT001 - pytest's
) -> None:
    folded, checked = folds
    works: list[dict[str, int]] = []
    async with bench(Speaker(3), data_dir) as host:
        session_id = await host.start()
        live, snapshots = host.hosting.live(session_id), 0
        start = live.state.offset
        host.fs.take(), encodes.take(), folded.take(), checked.take()
        host.fs.written.clear()
        for number in range(2_000):
            key = Key(f"key {number}", "sha256:" + "0" * 64) if is_keyed else None
            await host.follow_up(session_id, key=key)
            work = {"encodes": encodes.take(), "folds": folded.take(), "checks": checked.take()}
            await live.snapshot_written()
            work |= host.fs.take()
            snapshots += work.get("rename .json", 0)
            works.append({name: work[name] for name in sorted(work) if not name.endswith((".json", ".tmp"))})
        # turn.started step.started message.received …3 deltas… message.completed turn.completed step.completed
        # session.waiting: ten lines, the deltas folded as one; what is encoded beside lines: see test_budget.py.
        usual = {"checks": 8, "encodes": 2, "folds": 8, **SHORT_TURN}
        with_snapshot = usual | {"lstat .ndjson": 1}  # is the log still there
        assert [work for work in works if work not in (usual, with_snapshot)] == []
        assert sum(work == with_snapshot for work in works) == snapshots
        log_bytes = live.state.offset - start
        assert 0 < host.fs.written[".tmp"] < log_bytes
        # One for each 64 KiB or for as much as the last one took, whichever is more, and the turn that passed it.
        least_bytes = host.hosting.host.config.snapshot_bytes_min
        most_bytes = max(least_bytes, live._snapshot_bytes) + log_bytes // 1_000
        assert log_bytes // most_bytes <= snapshots <= log_bytes // least_bytes


async def test_reading_a_session_back_costs_the_same_however_long_it_is(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded = Calls(apply)
    monkeypatch.setattr("zhin_host.recovery.apply", folded)
    costs = []
    async with bench(Speaker(3), data_dir) as host:
        session_id = await host.start()
        for follow_ups in (10, 300):
            for _ in range(follow_ups):
                await host.follow_up(session_id)
            await leave_memory(host, session_id)
            host.fs.take(), folded.take()
            host.fs.read.clear()
            await host.hosting.store.view(NOBODY, session_id)
            assert folded.take() == 0  # the snapshot was written as it left
            # A block at the end, in which its last newline lies, and two times the last line's sum.
            assert host.fs.read[".ndjson"] < 64 * 1024 + 128
            costs.append(host.fs.take())
    assert costs[0] == costs[1]


async def test_a_start_costs_the_same_however_many_sessions_are_at_rest(data_dir: Path) -> None:
    starts = []
    for sessions in (0, 5, 50):
        async with bench(Speaker(), data_dir) as host:
            starts.append(host.at_start)
            for _ in range(sessions):
                await host.start()
    async with bench(Speaker(), data_dir) as host:
        assert host.hosting.host.sessions_found == 55
        assert starts[1] == starts[2] == host.at_start  # the first had the directory to make
        assert not [name for name in host.at_start if name.endswith((".ndjson", ".json", ".open"))]


async def test_parked_sessions_out_of_memory_hold_no_task_no_timer_and_no_descriptor(data_dir: Path) -> None:
    count = 300

    async def agent(turn: Turn) -> None:
        await turn.say(f"approved {await turn.approve('May I?')}")

    async with bench(agent, data_dir) as host:
        host_of = host.hosting
        first = await host_of.start()  # whatever is made once is made now
        await host_of.asked(first.session_id)
        await _park(host, 1)
        tasks, timers, descriptors = asyncio.all_tasks(), waiting_timers(), open_descriptors()
        parked = [(await host_of.start()).session_id for _ in range(count)]
        requests = [(await host_of.asked(session_id))[0].request_id for session_id in parked]
        # In memory: the turn's task, and the log.
        turns = [task for task in asyncio.all_tasks() - tasks if task.get_name().startswith("turn ")]
        assert len(turns) == count
        assert open_descriptors() == descriptors + count
        await _park(host, count)
        assert asyncio.all_tasks() == tasks
        assert waiting_timers() <= timers
        assert open_descriptors() == descriptors
        assert host_of.store._driver._runners == {}
        await host_of.approve(parked[-1], requests[-1])  # it goes on from its line in the log
        assert types(await host_of.idle(parked[-1]))[-1] == ev.SESSION_WAITING


async def test_a_session_that_leaves_memory_is_freed_without_a_collection_of_cycles(data_dir: Path) -> None:
    async with bench(Speaker(3), data_dir) as host:
        session_id = await host.start()
        await host.follow_up(session_id)
        live = host.hosting.live(session_id)
        kept = [weakref.ref(part) for part in (live, live.log, live.journal, live.journal.feed)]
        del live
        host.timers.fire(
            GATHER_S
        )  # the turn's last words went with its end; what was planned for them passes
        gc.collect()
        gc.disable()
        try:
            await leave_memory(host, session_id)
            assert [part() for part in kept if part() is not None] == []
        finally:
            gc.enable()


async def _park(host: Bench, count: int) -> None:
    """Let parked turns leave memory, as after five minutes."""
    assert len(host.hosting.host._sessions.live) == count
    host.hosting.clock.advance(host.hosting.host.config.parked_s)
    await host.hosting.host._sessions.drop_idle()
    assert host.hosting.host._sessions.live == ()
