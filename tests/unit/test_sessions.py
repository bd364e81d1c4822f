"""sessions: which are in memory, how they come and how they leave."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.builders import LogBuilder, session_id_of
from tests.fakes import START_MS
from tests.hosting import NOBODY, Hosting, hosting, one, types
from tests.scripted_log import UnsteadyPersistence
from zhin_host import Turn
from zhin_host.clock import SessionId
from zhin_host.errors import Forbidden, SessionNotFound, ShuttingDown, StorageUnavailable
from zhin_host.ports import Principal
from zhin_host.snapshot import decode_snapshot
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.memory import MemorySessionPersistence

GONE = StorageUnavailable("the disk is gone")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


async def obedient(turn: Turn) -> None:
    match turn.message:
        case "ask":
            await turn.say(f"{await turn.ask('What?')}")
        case "wait":
            await asyncio.Event().wait()
        case _:
            await turn.say("ok")


async def stubborn(turn: Turn) -> None:
    await obedient(turn)


stubborn.resumable = False  # type: ignore[attr-defined]


async def resting(host: Hosting) -> str:
    accepted = await host.start()
    await host.idle(accepted.session_id)
    await host.settled(accepted.session_id)
    return accepted.session_id


async def asking(host: Hosting) -> tuple[str, str]:
    accepted = await host.start("ask")
    (request,) = await host.asked(accepted.session_id)
    return accepted.session_id, request.request_id


async def drop(host: Hosting, seconds: float = 0) -> None:
    """Let time pass and the host look who may leave memory."""
    host.clock.advance(seconds)
    host.host._sessions.sweep()
    await host.host._sessions.drop_idle()


def marks(host: Hosting) -> dict[str, str]:
    return {str(name): mark for name, mark in host.persistence.marks().items()}


# -- leaving and coming back -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_on_files", [False, True], ids=["memory", "files"])
async def test_a_session_at_rest_leaves_memory_after_a_while_and_comes_back_as_it_was(
    is_on_files: bool,  # noqa: FBT001 - a parameter of the test
    data_dir: Path,
) -> None:
    async with hosting(obedient, data_dir=data_dir if is_on_files else None, idle_s=60.0) as host:
        session_id = await resting(host)
        view, content = await host.store.view(NOBODY, session_id), await host.content(session_id)
        await drop(host, 59)
        assert host.is_in_memory(session_id)
        await drop(host, 1)
        assert not host.is_in_memory(session_id)
        snapshot = host.persistence.read_snapshot(SessionId(session_id))
        assert snapshot is not None
        assert decode_snapshot(snapshot, SessionId(session_id)).offset == len(content)
        assert await host.store.view(NOBODY, session_id) == view
        assert host.is_in_memory(session_id)
        await drop(host, 60)
        assert await host.content(session_id) == content
        await drop(host, 60)
        await host.follow_up(session_id)
        assert types(await host.idle(session_id)).count("turn.completed") == 2


async def test_who_was_asked_for_lately_stays_and_the_oldest_leave_first_when_there_are_too_many() -> None:
    async with hosting(obedient, idle_s=1e9, idle_sessions_max=2) as host:
        session_ids = [await resting(host) for _ in range(4)]
        await host.store.view(NOBODY, session_ids[0])
        await drop(host)
        assert [host.is_in_memory(session_id) for session_id in session_ids] == [True, False, False, True]


async def test_a_session_with_a_reader_or_a_turn_or_a_command_stays_in_memory() -> None:
    async with hosting(obedient, idle_s=0.0, parked_s=1e9) as host:
        read, running, held = await resting(host), (await host.start("wait")).session_id, await resting(host)
        parked, _ = await asking(host)
        reader = await host.store.subscribe(NOBODY, read, 0, "never")
        async with host.host._sessions.held(NOBODY, "write", SessionId(held)):
            await drop(host)
            assert all(host.is_in_memory(session_id) for session_id in (read, running, held, parked))
        await reader.aclose()
        await drop(host)
        assert not host.is_in_memory(read)
        assert not host.is_in_memory(held)
        for session_id in (running, parked):
            await host.cancel(session_id)
            await host.idle(session_id)


async def test_a_reader_that_comes_while_a_session_leaves_keeps_it() -> None:
    persistence = UnsteadyPersistence()
    async with hosting(obedient, persistence=persistence, idle_s=0.0) as host:
        session_id = await resting(host)
        host.host._sessions.sweep()
        persistence.hold_snapshots()
        leaving = asyncio.create_task(host.host._sessions.drop_idle())
        for _ in range(5):
            await asyncio.sleep(0)
        reader = await host.store.subscribe(NOBODY, session_id, 0, "never")
        persistence.let_snapshots_go()
        await leaving
        assert host.is_in_memory(session_id)
        await host.follow_up(session_id)
        await host.idle(session_id)
        await reader.aclose()


async def test_a_command_that_comes_while_a_session_leaves_finds_it_again() -> None:
    persistence = UnsteadyPersistence()
    async with hosting(obedient, persistence=persistence, idle_s=0.0) as host:
        session_id = await resting(host)
        host.host._sessions.sweep()
        persistence.hold_snapshots()
        leaving = asyncio.create_task(host.host._sessions.drop_idle())
        for _ in range(5):
            await asyncio.sleep(0)
        coming = asyncio.create_task(host.follow_up(session_id))
        for _ in range(5):
            await asyncio.sleep(0)
        persistence.let_snapshots_go()
        await leaving
        await coming
        assert types(await host.idle(session_id)).count("turn.completed") == 2


async def test_many_leave_at_once_so_that_no_more_come_than_leave() -> None:
    persistence = UnsteadyPersistence()
    async with hosting(obedient, persistence=persistence, idle_s=0.0) as host:
        session_ids = [await resting(host) for _ in range(20)]
        host.host._sessions.sweep()
        persistence.hold_snapshots()
        leaving = asyncio.create_task(host.host._sessions.drop_idle())
        for _ in range(5):
            await asyncio.sleep(0)
        live = host.host._sessions.live
        assert sum(one.lock.locked() for one in live) == 20
        persistence.let_snapshots_go()
        await leaving
        assert not any(host.is_in_memory(session_id) for session_id in session_ids)


async def test_a_session_deleted_while_others_leave_disturbs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zhin_host.sessions._DROPPED_AT_ONCE", 1)  # the second waits for the first
    persistence = UnsteadyPersistence()
    async with hosting(obedient, persistence=persistence, idle_s=0.0) as host:
        first, second, third = [await resting(host) for _ in range(3)]
        host.host._sessions.sweep()
        persistence.hold_snapshots()
        leaving = asyncio.create_task(host.host._sessions.drop_idle())
        for _ in range(5):
            await asyncio.sleep(0)
        await host.store.delete(NOBODY, second)
        persistence.let_snapshots_go()
        await leaving
        assert [str(name) for name in persistence.session_ids()] == sorted([first, third])
        assert not any(host.is_in_memory(session_id) for session_id in (first, second, third))


async def test_a_session_taken_up_while_others_leave_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zhin_host.sessions._DROPPED_AT_ONCE", 1)  # the second waits for the first
    persistence = UnsteadyPersistence()
    async with hosting(obedient, persistence=persistence, idle_s=0.0) as host:
        _, second = [await resting(host) for _ in range(2)]
        host.host._sessions.sweep()
        persistence.hold_snapshots()
        leaving = asyncio.create_task(host.host._sessions.drop_idle())
        for _ in range(5):
            await asyncio.sleep(0)
        follow_up = await host.follow_up(second, "wait")
        await host.seen(second, "message.received", start=follow_up.start_index)
        persistence.let_snapshots_go()
        await leaving
        assert host.is_in_memory(second)
        assert marks(host) == {second: "running"}
        await host.cancel(second)
        assert types(await host.idle(second))[-3:] == [
            "turn.cancelled",
            "step.interrupted",
            "session.waiting",
        ]


async def test_a_session_whose_snapshot_cannot_be_written_leaves_without_one() -> None:
    persistence = UnsteadyPersistence()
    async with hosting(obedient, persistence=persistence, idle_s=0.0) as host:
        session_id = await resting(host)
        persistence.snapshot_error = GONE
        await drop(host)
        assert not host.is_in_memory(session_id)
        assert types(await host.events(session_id))[-1] == "session.waiting"


@pytest.mark.damaged(reason="somebody removed a log under a running host")
async def test_a_session_whose_log_was_removed_leaves_and_keeps_no_other_in_memory(data_dir: Path) -> None:
    persistence = FileHttpSessionPersistence(data_dir)
    async with hosting(obedient, persistence=persistence, is_audited=False) as host:
        gone, other = await resting(host), await resting(host)
        (data_dir / f"{gone}.ndjson").unlink()
        await drop(host, host.host.config.idle_s)
        assert not host.is_in_memory(gone)
        assert not host.is_in_memory(other)


async def test_a_session_whose_sync_fails_stays_readable_and_writable_once_storage_is_back() -> None:
    persistence = UnsteadyPersistence()
    async with hosting(obedient, persistence=persistence, idle_s=0.0) as host:
        session_id = await resting(host)
        persistence.sync_error = GONE
        await drop(host)
        persistence.sync_error = None
        await host.follow_up(session_id)
        assert types(await host.idle(session_id)).count("turn.completed") == 2


async def test_a_snapshot_is_written_when_the_log_grew_by_more_than_it_costs() -> None:
    persistence = UnsteadyPersistence()

    async def agent(turn: Turn) -> None:
        await turn.say("x" * 1000)

    async with hosting(agent, persistence=persistence, snapshot_bytes_min=5_000) as host:
        session_id = await resting(host)
        for _ in range(9):
            await host.follow_up(session_id)
            await host.idle(session_id)
            await host.settled(session_id)
            await host.live(session_id).snapshot_written()
        written = persistence.snapshots
        size = len(persistence.read_snapshot(SessionId(session_id)) or b"")
        grown = len(host.log(session_id))
    assert 1 <= written <= grown // max(5_000, size)


async def test_a_session_is_read_back_once_however_many_ask_for_it_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    persistence = MemorySessionPersistence()
    async with hosting(obedient, persistence=persistence) as host:
        session_id = await resting(host)
    open_log = persistence.open_log

    def note(named: SessionId) -> Any:
        opened.append(named)
        return open_log(named)

    monkeypatch.setattr(persistence, "open_log", note)
    async with hosting(obedient, persistence=persistence) as host:
        views = await asyncio.gather(*(host.store.view(NOBODY, session_id) for _ in range(20)))
        assert len({view["cursor"] for view in views}) == 1
    assert opened == [session_id]


async def test_one_who_leaves_while_a_session_is_read_back_takes_nobody_along() -> None:
    persistence = MemorySessionPersistence()
    async with hosting(obedient, persistence=persistence) as host:
        session_id = await resting(host)
    async with hosting(obedient, persistence=persistence) as host:
        leaves = asyncio.create_task(host.store.view(NOBODY, session_id))
        stays = asyncio.create_task(host.store.view(NOBODY, session_id))
        await asyncio.sleep(0)
        leaves.cancel()
        assert (await stays)["status"] == "waiting"
        assert leaves.cancelled()


async def test_a_failed_reading_is_told_to_all_who_asked_and_tried_again_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    persistence = MemorySessionPersistence()
    async with hosting(obedient, persistence=persistence) as host:
        session_id = await resting(host)
    open_log = persistence.open_log

    def fail(_: SessionId) -> Any:
        raise GONE

    async with hosting(obedient, persistence=persistence) as host:
        monkeypatch.setattr(persistence, "open_log", fail)
        results = await asyncio.gather(
            *(host.store.view(NOBODY, session_id) for _ in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [StorageUnavailable] * 3
        monkeypatch.setattr(persistence, "open_log", open_log)
        assert (await host.store.view(NOBODY, session_id))["status"] == "waiting"


async def test_a_command_that_waited_for_a_session_that_is_deleted_finds_none() -> None:
    async with hosting(obedient) as host:
        session_id = await resting(host)
        token = (await host.store.view(NOBODY, session_id))["continuationToken"]
        async with host.host._sessions.held(NOBODY, "write", SessionId(session_id)) as live:
            waiting = asyncio.create_task(host.store.proceed(NOBODY, session_id, token, "again"))
            for _ in range(3):
                await asyncio.sleep(0)
            await host.host._sessions.delete(live)
        with pytest.raises(SessionNotFound):
            await waiting


# -- marks -----------------------------------------------------------------------------------------------------


async def test_a_mark_is_there_while_a_turn_is_open_and_leaves_some_time_after() -> None:
    async with hosting(obedient) as host:
        accepted = await host.start()
        assert marks(host) == {accepted.session_id: "running"}
        await host.idle(accepted.session_id)
        await host.settled(accepted.session_id)
        assert marks(host) == {accepted.session_id: "running"}
        host.host._sessions.sweep()
        assert marks(host) == {}
        await host.follow_up(accepted.session_id, "wait")
        assert marks(host) == {accepted.session_id: "running"}
        host.host._sessions.sweep()
        assert marks(host) == {accepted.session_id: "running"}
        await host.cancel(accepted.session_id)
        await host.idle(accepted.session_id)


async def test_a_turn_that_starts_before_the_sweep_keeps_its_mark() -> None:
    async with hosting(obedient) as host:
        session_id = await resting(host)
        await host.follow_up(session_id, "ask")
        host.host._sessions.sweep()
        assert marks(host) == {session_id: "running"}
        await host.asked(session_id)
        await host.cancel(session_id)
        await host.idle(session_id)


async def test_the_mark_of_an_open_turn_stays_even_if_it_was_to_be_removed() -> None:
    """A stale mark is harmless, a missing one is not: the sweep does not trust its own list."""
    async with hosting(obedient) as host:
        session_id = (await host.start("wait")).session_id
        host.host._sessions._to_unmark.add(SessionId(session_id))
        host.host._sessions.sweep()
        assert marks(host) == {session_id: "running"}
        await host.cancel(session_id)
        await host.idle(session_id)
        await host.settled(session_id)
        host.host._sessions.sweep()
        assert marks(host) == {}


async def test_a_new_session_takes_the_mark_of_one_that_came_to_rest() -> None:
    async with hosting(obedient) as host:
        first = await resting(host)
        second = (await host.start("wait")).session_id
        assert marks(host) == {second: "running"}
        await host.follow_up(first, "wait")
        assert marks(host) == {first: "running", second: "running"}
        third = (await host.start("wait")).session_id
        assert set(marks(host)) == {first, second, third}
        for session_id in (first, second, third):
            await host.cancel(session_id)
            await host.idle(session_id)


async def test_a_sweep_leaves_alone_whom_a_command_holds_and_takes_only_so_many_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zhin_host.sessions._UNMARK_AT_ONCE", 2)
    async with hosting(obedient) as host:
        session_ids = [
            (await host.start("wait")).session_id for _ in range(4)
        ]  # one at rest would lend its mark
        for session_id in session_ids:
            await host.cancel(session_id)
            await host.settled(session_id)
        async with host.host._sessions.held(NOBODY, "write", SessionId(session_ids[0])):
            for left in (2, 1, 1):
                host.host._sessions.sweep()
                assert len(marks(host)) == left
            assert list(marks(host)) == [session_ids[0]]
        host.host._sessions.sweep()
        assert marks(host) == {}


async def test_a_follow_up_whose_mark_cannot_be_written_starts_no_turn() -> None:
    persistence = UnsteadyPersistence()
    async with hosting(obedient, persistence=persistence) as host:
        session_id = await resting(host)
        host.host._sessions.sweep()
        persistence.mark_error = GONE
        before = host.log(session_id)
        with pytest.raises(StorageUnavailable):
            await host.follow_up(session_id)
        assert host.log(session_id) == before
        persistence.mark_error = None
        await host.follow_up(session_id)
        await host.idle(session_id)


async def test_a_clean_stop_says_of_each_session_how_it_was_left() -> None:
    persistence = MemorySessionPersistence()
    async with hosting({"a": obedient, "b": stubborn}, persistence=persistence, stop_grace_s=0.0) as host:
        await resting(host)
        running = (await host.start("wait")).session_id
        parked, _ = await asking(host)
        given_up = (await host.start("ask", "b")).session_id
        await host.asked(given_up)
    left = {running: "stopped", parked: "parked 0", given_up: "stopped"}
    assert persistence.marks() == dict(sorted(left.items()))


async def test_a_clean_stop_says_when_the_first_request_of_a_parked_session_expires() -> None:
    persistence = MemorySessionPersistence()
    async with hosting(obedient, persistence=persistence, request_expires_s=60.0) as host:
        session_id, _ = await asking(host)
    assert persistence.marks() == {session_id: f"parked {START_MS + 60_000}"}


async def test_a_stop_that_cannot_write_leaves_the_mark_and_ends() -> None:
    persistence = UnsteadyPersistence()
    async with hosting(obedient, persistence=persistence) as host:
        session_id, _ = await asking(host)
        persistence.mark_error = GONE
        await host.host.stop()
    assert persistence.marks() == {SessionId(session_id): "running"}


async def test_marks_of_sessions_that_are_not_there_are_swept() -> None:
    persistence = MemorySessionPersistence()
    persistence._marks[session_id_of(7)] = "running"
    async with hosting(obedient, persistence=persistence) as host:
        await host.store.check_ready()
        host.host._sessions.sweep()
        assert marks(host) == {}


# -- parked turns out of memory --------------------------------------------------------------------------------


async def test_a_parked_turn_leaves_memory_after_a_while_and_goes_on_when_it_is_answered() -> None:
    async with hosting(obedient, idle_s=1.0, parked_s=300.0) as host:
        session_id, request_id = await asking(host)
        await drop(host, 299)
        assert host.is_in_memory(session_id)
        await drop(host, 1)
        assert not host.is_in_memory(session_id)
        assert marks(host) == {session_id: "parked 0"}
        assert (await host.store.view(NOBODY, session_id))["pendingRequestIds"] == [request_id]
        await drop(host, 300)
        await host.respond(session_id, request_id, "tea")
        assert marks(host) == {session_id: "running"}
        events = await host.idle(session_id)
        assert one(events, "message.completed")["message"] == "tea"
        assert one(events, "step.resumed")["attempt"] == 2


async def test_a_parked_turn_out_of_memory_can_be_cancelled() -> None:
    async with hosting(obedient, parked_s=0.0) as host:
        session_id, _ = await asking(host)
        await drop(host)
        assert not host.is_in_memory(session_id)
        assert await host.cancel(session_id) == "accepted"
        events = await host.idle(session_id)
        assert types(events)[-5:] == [
            "turn.cancelling",
            "input.completed",
            "turn.cancelled",
            "step.interrupted",
            "session.waiting",
        ]
        host.host._sessions.sweep()
        assert marks(host) == {}


@pytest.mark.parametrize("is_restarted", [False, True], ids=["same host", "next host"])
async def test_a_request_out_of_memory_expires_in_its_time(
    is_restarted: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    persistence = MemorySessionPersistence()
    async with hosting(obedient, persistence=persistence, parked_s=0.0, request_expires_s=60.0) as host:
        session_id, _ = await asking(host)
        await drop(host)
        assert not host.is_in_memory(session_id)
        clock = host.clock
        if not is_restarted:
            await _expires(host, session_id)
    if is_restarted:
        async with hosting(obedient, persistence=persistence, clock=clock) as host:
            assert not host.is_in_memory(session_id)
            await _expires(host, session_id)


async def _expires(host: Hosting, session_id: str) -> None:
    host.clock.advance(59)
    await host.store.expire()
    assert not host.is_in_memory(session_id)
    host.clock.advance(1)
    await host.store.expire()
    events = await host.idle(session_id)
    assert one(events, "input.completed")["outcome"] == "expired"
    assert one(events, "turn.failed")["code"] == "REQUEST_EXPIRED"


async def test_the_time_of_a_request_whose_session_is_gone_passes_unnoticed() -> None:
    async with hosting(obedient, parked_s=0.0, request_expires_s=60.0) as host:
        session_id, request_id = await asking(host)
        await drop(host)
        assert not host.is_in_memory(session_id)
        await host.respond(session_id, request_id, "tea")
        await host.idle(session_id)
        await host.settled(session_id)
        await host.store.delete(NOBODY, session_id)
        host.clock.advance(60)
        await host.store.expire()
        assert host.persistence.session_ids() == []


async def test_a_parked_turn_that_cannot_be_driven_again_stays_in_memory() -> None:
    async with hosting(stubborn, parked_s=0.0) as host:
        session_id, request_id = await asking(host)
        await drop(host)
        assert host.is_in_memory(session_id)
        await host.respond(session_id, request_id, "tea")
        assert one(await host.idle(session_id), "message.completed")["message"] == "tea"


async def test_a_parked_turn_with_an_action_running_stays_in_memory() -> None:
    may_go = asyncio.Event()

    async def agent(turn: Turn) -> None:
        await asyncio.gather(turn.ask("?"), turn.run("slow", may_go.wait))

    async with hosting(agent, parked_s=0.0) as host:
        accepted = await host.start()
        await host.asked(accepted.session_id)
        await host.seen(accepted.session_id, "actions.requested")
        await drop(host)
        assert host.is_in_memory(accepted.session_id)
        may_go.set()
        await host.seen(accepted.session_id, "action.result")
        await drop(host)
        assert not host.is_in_memory(accepted.session_id)
        await host.cancel(accepted.session_id)
        await host.idle(accepted.session_id)


async def test_a_parked_turn_whose_mark_cannot_be_written_stays_answerable() -> None:
    persistence = UnsteadyPersistence()
    async with hosting(obedient, persistence=persistence, parked_s=0.0) as host:
        session_id, request_id = await asking(host)
        host.host._sessions.sweep()
        persistence.mark_error = GONE
        await drop(host)
        persistence.mark_error = None
        await host.respond(session_id, request_id, "tea")
        assert one(await host.idle(session_id), "message.completed")["message"] == "tea"


# -- start-up --------------------------------------------------------------------------------------------------


async def test_start_up_reads_only_what_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    persistence = MemorySessionPersistence()
    async with hosting(obedient, persistence=persistence, stop_grace_s=0.0) as host:
        await resting(host)
        await asking(host)
        running = (await host.start("wait")).session_id
        await host.seen(running, "message.received")
    opened: list[str] = []
    open_log = persistence.open_log

    def note(named: SessionId) -> Any:
        opened.append(named)
        return open_log(named)

    monkeypatch.setattr(persistence, "open_log", note)
    async with hosting(obedient, persistence=persistence, stop_grace_s=0.0) as host:
        await host.seen(running, "step.resumed")
        assert opened == [running]
        await host.cancel(running)
        await host.idle(running)


async def test_one_bad_session_keeps_none_of_the_others_from_being_sorted(data_dir: Path) -> None:
    """Scenario C3."""
    good, bad, torn, gone = (
        LogBuilder(session_id_of(number)).start("Hello", agent="agent") for number in range(1, 5)
    )
    write(data_dir, good)
    write(data_dir, bad, bad.content.replace(b"Hello", b"Hallo"))
    write(data_dir, torn, torn.content[:40])
    write(data_dir, gone, b"")

    async def agent(turn: Turn) -> None:
        await turn.say("ok")

    async with hosting(agent, data_dir=data_dir, is_audited=False) as host:
        await host.idle(good.session_id)
        async with asyncio.timeout(10):
            while host.host._sessions.unsorted:  # noqa: ASYNC110 - threads read the logs
                await asyncio.sleep(0.001)
        await host.store.check_ready()
        with pytest.raises(StorageUnavailable) as caught:
            await host.follow_up(bad.session_id)
        assert caught.value.index == 3
        assert len(await host.events(bad.session_id)) == 3
        for missing in (torn, gone):
            with pytest.raises(SessionNotFound):
                await host.store.view(NOBODY, missing.session_id)
        await host.store.delete(NOBODY, bad.session_id)
        page = await host.store.page(NOBODY, None, 10, None)
        assert [row["sessionId"] for row in page.sessions] == [good.session_id]


def write(directory: Path, builder: LogBuilder, content: bytes | None = None) -> None:
    """Put a log into a data directory, as a host that crashed would have left it."""
    directory.mkdir(mode=0o700, exist_ok=True)
    for suffix, text in ((".ndjson", builder.content if content is None else content), (".open", b"running")):
        path = directory / f"{builder.session_id}{suffix}"
        path.write_bytes(text)
        path.chmod(0o600)


async def test_a_session_whose_recovery_cannot_be_written_is_tried_again_and_delays_nobody() -> None:
    persistence = UnsteadyPersistence()
    async with hosting(obedient, persistence=persistence, stop_grace_s=0.0) as host:
        running = (await host.start("wait")).session_id
        await host.seen(running, "message.received")
    persistence.append_error = GONE
    async with hosting(obedient, persistence=persistence, stop_grace_s=0.0) as host:
        async with asyncio.timeout(10):
            while host.host._sessions.unsorted:  # noqa: ASYNC110 - threads read the logs
                await asyncio.sleep(0.001)
        await host.store.check_ready()
        persistence.append_error = None
        await host.host._sessions.recover_again()
        await host.seen(running, "step.resumed")
        await host.cancel(running)
        await host.idle(running)


async def test_a_host_that_stops_leaves_alone_what_could_not_be_recovered() -> None:
    persistence = UnsteadyPersistence()
    async with hosting(obedient, persistence=persistence, stop_grace_s=0.0) as host:
        running = (await host.start("wait")).session_id
        await host.seen(running, "message.received")
    persistence.append_error = GONE
    async with hosting(obedient, persistence=persistence) as host:
        sessions = host.host._sessions
        async with asyncio.timeout(10):
            while sessions.unsorted:  # noqa: ASYNC110 - threads read the logs
                await asyncio.sleep(0.001)
        persistence.append_error = None
        log, outcomes = host.log(running), sessions._services.meters.recoveries.copy()
        await host.store.stop()
        await sessions.recover_again()
        assert host.log(running) == log
        assert sessions._services.meters.recoveries == outcomes
    assert persistence.marks()[SessionId(running)] == "stopped"


async def test_a_session_that_a_stopped_host_has_left_is_not_read_back() -> None:
    async with hosting(obedient) as host:
        session_id = await resting(host)
        await host.host.stop()
        with pytest.raises(ShuttingDown):
            await host.store.view(NOBODY, session_id)


async def test_two_hosts_one_after_the_other_find_the_same_sessions(data_dir: Path) -> None:
    async with hosting(obedient, data_dir=data_dir) as host:
        session_ids = sorted([await resting(host) for _ in range(3)])
        await host.store.delete(NOBODY, session_ids.pop(1))
    async with hosting(obedient, persistence=FileHttpSessionPersistence(data_dir)) as host:
        assert host.host.sessions_found == 2
        assert [str(name) for name in host.persistence.session_ids()] == session_ids


# -- whose they are --------------------------------------------------------------------------------------------


async def test_another_callers_session_is_not_read_into_memory_to_be_refused() -> None:
    persistence = MemorySessionPersistence()
    async with hosting(obedient, persistence=persistence) as host:
        accepted = await host.store.start(Principal("ada"), "Hello")
        await host.settled(accepted.session_id)
    async with hosting(obedient, persistence=persistence) as host:
        sessions, session_id = host.host._sessions, SessionId(accepted.session_id)
        with pytest.raises(SessionNotFound):
            await sessions.find(Principal("bob"), "read", session_id)
        assert sessions.in_memory(session_id) is None
        with pytest.raises(
            SessionNotFound
        ):  # where nobody is told apart, one with an owner is nobody's either
            await sessions.find(NOBODY, "read", session_id)
        with pytest.raises(Forbidden):
            await sessions.find(Principal("ada", frozenset({"read"})), "write", session_id)
        live = await sessions.find(Principal("ada", frozenset({"read"})), "read", session_id)
        assert await sessions.find(Principal("ops", frozenset({"admin"})), "write", session_id) is live


async def test_a_host_that_stops_does_not_look_whose_a_session_is() -> None:
    async with hosting(obedient) as host:
        await host.store.stop()
        with pytest.raises(ShuttingDown):
            await host.host._sessions.find(Principal("ada"), "read", session_id_of(1))
