"""Parked means free: a parked turn leaves memory, is a line in a log, and goes on when it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.hosting import NOBODY, Hosting, crashing, decoded, hosting, last, one, stored, types
from zhin_host import Turn, tool
from zhin_host import events as ev
from zhin_host.clock import SessionId
from zhin_host.errors import RequestNotFound, SessionBusy, SessionNotFound, StorageUnavailable
from zhin_host.ports import SessionLog
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.memory import MemoryLog, MemorySessionPersistence

PARKED_S = 300.0


class Watched(MemorySessionPersistence):
    """Remembers which logs were opened, and behind which event each mark was set."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.marked: list[tuple[str, str]] = []

    def open_log(self, session_id: SessionId) -> SessionLog:
        self.opened.append(session_id)
        return super().open_log(session_id)

    async def mark(self, session_id: SessionId, text: str) -> None:
        await asyncio.sleep(0)
        behind = orjson.loads(self._logs[session_id].splitlines()[-1])["type"]
        self.marked.append((text, behind))
        await super().mark(session_id, text)


async def _agent(turn: Turn) -> None:
    await turn.say("Sure? ")
    await turn.say(str(await turn.approve("Sure?")))


async def _let_leave(host: Hosting, session_id: str) -> None:
    """Let the time pass after which a parked turn leaves memory."""
    host.clock.advance(PARKED_S + 1)
    await host.host._sessions.drop_idle()
    assert not host.is_in_memory(session_id)


async def _parked(host: Hosting, message: str = "go") -> tuple[str, str]:
    """A session whose turn is parked and out of memory, and the id of its request."""
    accepted = await host.start(message)
    (request,) = await host.asked(accepted.session_id)
    await _let_leave(host, accepted.session_id)
    return accepted.session_id, request.request_id


def _log(persistence: Any, session_id: str) -> list[ev.Event]:
    return decoded(session_id, stored(persistence, session_id))


# -- leaving and coming back ---------------------------------------------------------------------------------------


async def test_a_parked_turn_leaves_memory_after_a_while_and_holds_no_task(data_dir: Path) -> None:
    async with hosting(_agent, data_dir=data_dir) as host:
        before = asyncio.all_tasks()
        session_id, request_id = await _parked(host)
        assert asyncio.all_tasks() <= before
        assert (data_dir / f"{session_id}.open").read_text() == "parked 0"
        await host.approve(session_id, request_id)
        done = await host.seen(session_id, ev.MESSAGE_COMPLETED)
        assert done.data["message"] == "Sure? True"


async def test_a_turn_that_is_parked_for_a_short_while_stays() -> None:
    async with hosting(_agent) as host:
        session_id = (await host.start()).session_id
        await host.asked(session_id)
        host.clock.advance(PARKED_S - 1)
        await host.host._sessions.drop_idle()
        assert host.is_in_memory(session_id)
        await host.cancel(session_id)
        await host.settled(session_id)


async def test_a_turn_whose_action_runs_beside_a_request_stays() -> None:
    go = asyncio.Event()

    async def agent(turn: Turn) -> None:
        await asyncio.gather(turn.approve("Sure?"), turn.run("wait", go.wait))

    async with hosting(agent) as host:
        session_id = (await host.start()).session_id
        (request,) = await host.asked(session_id)
        await host.seen(session_id, ev.ACTIONS_REQUESTED)
        host.clock.advance(PARKED_S + 1)
        await host.host._sessions.drop_idle()
        assert host.is_in_memory(session_id)
        go.set()
        await host.seen(session_id, ev.ACTION_RESULT)
        await _let_leave(host, session_id)
        await host.approve(session_id, request.request_id)
        await host.seen(session_id, ev.TURN_COMPLETED)


async def test_a_parked_turn_of_an_agent_that_is_not_resumable_stays() -> None:
    class Once:
        resumable = False

        async def __call__(self, turn: Turn) -> None:
            await _agent(turn)

    async with hosting(Once()) as host:
        session_id = (await host.start()).session_id
        (request,) = await host.asked(session_id)
        host.clock.advance(PARKED_S + 1)
        await host.host._sessions.drop_idle()
        assert host.is_in_memory(session_id)
        await host.approve(session_id, request.request_id)
        await host.seen(session_id, ev.TURN_COMPLETED)


async def test_start_up_does_not_open_what_is_parked() -> None:
    persistence = Watched()
    async with hosting(_agent, persistence=persistence) as host:
        parked = [await _parked(host) for _ in range(10)]
        in_memory = (await host.start()).session_id
        await host.asked(in_memory)
    assert set(persistence.marks().values()) == {"parked 0"}
    persistence.opened.clear()
    async with hosting(_agent, persistence=persistence) as host:
        await host.store.check_ready()
        await host.run("another")
        assert persistence.opened == []
        session_id, request_id = parked[3]
        await host.approve(session_id, request_id)
        await host.seen(session_id, ev.TURN_COMPLETED)
        assert persistence.opened == [session_id]
    assert sum(mark == "parked 0" for mark in persistence.marks().values()) == 11


@pytest.mark.parametrize("command", ["answer", "cancel", "expiry"])
async def test_the_mark_says_running_before_what_takes_a_parked_turn_up(command: str) -> None:
    persistence = Watched()
    async with hosting(_agent, persistence=persistence, request_expires_s=1000) as host:
        session_id, request_id = await _parked(host)
        view = await host.store.view(NOBODY, session_id)
        assert persistence.marked == [
            (f"parked {view['pendingRequests'][0]['expiresAt']}", ev.SESSION_WAITING)
        ]
        persistence.marked.clear()
        match command:
            case "answer":
                await host.approve(session_id, request_id)
            case "cancel":
                await host.cancel(session_id)
            case _:
                host.clock.advance(1000)
                await host.store.expire()
        assert persistence.marked == [("running", ev.SESSION_WAITING)]
        await host.settled(session_id)


async def test_looking_at_a_parked_session_out_of_memory_changes_nothing() -> None:
    persistence = Watched()
    async with hosting(_agent, persistence=persistence) as host:
        session_id, request_id = await _parked(host)
        before = stored(persistence, session_id)
        persistence.marked.clear()
        view = await host.store.view(NOBODY, session_id)
        assert (view["status"], view["parked"], view["pendingRequestIds"]) == ("waiting", True, [request_id])
        assert view["pendingRequests"][0]["prompt"] == "Sure?"
        assert await host.content(session_id) == before
        assert (await host.store.audit(NOBODY, session_id))["ok"]
        page = await host.store.page(NOBODY, "waiting", 10, None)
        assert [row["sessionId"] for row in page.sessions] == [session_id]
        with pytest.raises(SessionBusy):
            await host.follow_up(session_id)
        with pytest.raises(SessionBusy):
            await host.store.delete(NOBODY, session_id)
        assert stored(persistence, session_id) == before
        assert persistence.marked == []
        assert persistence.marks()[SessionId(session_id)] == "parked 0"


async def test_a_stream_of_a_parked_session_out_of_memory_sees_what_comes() -> None:
    async with hosting(_agent) as host:
        session_id, request_id = await _parked(host)
        cursor = (await host.store.view(NOBODY, session_id))["cursor"]
        await _let_leave(host, session_id)
        watching = asyncio.create_task(host.seen(session_id, ev.TURN_COMPLETED, 1, cursor))
        await asyncio.sleep(0)
        await host.approve(session_id, request_id)
        await watching


async def test_a_session_with_a_reader_stays_in_memory() -> None:
    async with hosting(_agent) as host:
        session_id = (await host.start()).session_id
        await host.asked(session_id)
        reader = await host.store.subscribe(NOBODY, session_id, 0, "never")
        host.clock.advance(PARKED_S + 1)
        await host.host._sessions.drop_idle()
        assert host.is_in_memory(session_id)
        await reader.aclose()
        await _let_leave(host, session_id)


async def test_a_parked_turn_out_of_memory_is_cancelled() -> None:
    async with hosting(_agent) as host:
        session_id, request_id = await _parked(host)
        assert await host.cancel(session_id) == "accepted"
        events = await host.events(session_id, until="tail")
        assert types(events)[-5:] == [
            ev.TURN_CANCELLING, ev.INPUT_COMPLETED, ev.TURN_CANCELLED, ev.STEP_INTERRUPTED, ev.SESSION_WAITING,
        ]  # fmt: skip
        with pytest.raises(RequestNotFound):
            await host.approve(session_id, request_id)
        await host.store.delete(NOBODY, session_id)
        assert host.persistence.session_ids() == []
        assert host.persistence.marks() == {}


async def test_a_message_queued_behind_a_parked_turn_out_of_memory_has_its_turn() -> None:
    async with hosting(_agent) as host:
        session_id, request_id = await _parked(host)
        token = (await host.store.view(NOBODY, session_id))["continuationToken"]
        queued = await host.store.proceed(NOBODY, session_id, token, "next", "queue")
        assert queued.is_queued
        await _let_leave(host, session_id)
        await host.approve(session_id, request_id)
        (second,) = await host.asked(session_id, 2)
        events = await host.events(session_id)
        assert one(events, ev.TURN_COMPLETED)["turnId"] != queued.turn_id
        await host.approve(session_id, second.request_id)
        await host.seen(session_id, ev.TURN_COMPLETED, 2)


async def test_a_message_interrupts_a_parked_turn_out_of_memory() -> None:
    async with hosting(_agent) as host:
        session_id, _ = await _parked(host)
        token = (await host.store.view(NOBODY, session_id))["continuationToken"]
        queued = await host.store.proceed(NOBODY, session_id, token, "next", "interrupt")
        events = await host.events(session_id, until="tail")
        assert events[queued.start_index].type == ev.MESSAGE_QUEUED
        assert events[queued.start_index - 1].type == ev.TURN_CANCELLING
        (second,) = await host.asked(session_id, 2)
        await host.approve(session_id, second.request_id)
        done = await host.seen(session_id, ev.TURN_COMPLETED)
        assert done.data["turnId"] == queued.turn_id


async def test_several_requests_are_answered_one_by_one_after_a_restart_and_the_last_one_goes_on() -> None:
    ran: list[str] = []

    @tool(approval="always")
    async def publish(page: str) -> str:
        ran.append(page)
        return page

    async def agent(turn: Turn) -> None:
        found = await asyncio.gather(
            turn.call_tool(publish, page="a"),
            turn.ask("Which?"),
            turn.authorize("mail"),
            turn.approve("Sure?"),
        )
        await turn.say(str(found))

    persistence = MemorySessionPersistence()
    async with crashing(agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        publishing, which, mail, sure = await host.asked(session_id, 4)
    answers: list[Callable[[Hosting], Any]] = [
        lambda host: host.respond(session_id, which.request_id, {"colour": "red"}),
        lambda host: host.approve(session_id, publishing.request_id),
        lambda host: host.store.authorize(NOBODY, mail.request_id, False, "no", None),
        lambda host: host.approve(session_id, sure.request_id, approved=False),
    ]
    for at, answer in enumerate(answers):  # each in a host of its own
        async with hosting(agent, persistence=persistence) as host:
            await answer(host)
            assert ran == [] or at == 3
            assert (await host.store.view(NOBODY, session_id))["parked"] is (at < 3)
            if at == 3:
                done = await host.seen(session_id, ev.MESSAGE_COMPLETED)
                assert done.data["message"] == "['a', {'colour': 'red'}, False, False]"
    assert ran == ["a"]
    resumed = [row for row in _log(persistence, session_id) if row.type == ev.STEP_RESUMED]
    assert [row.data["attempt"] for row in resumed] == [2]


# -- expiry --------------------------------------------------------------------------------------------------------


async def test_a_request_out_of_memory_expires_at_its_time() -> None:
    async with hosting(_agent, request_expires_s=1000) as host:
        session_id, request_id = await _parked(host)
        host.clock.advance(1000 - PARKED_S - 2)
        await host.store.expire()
        assert not host.is_in_memory(session_id)
        host.clock.advance(2)
        await host.store.expire()
        failed = await host.seen(session_id, ev.TURN_FAILED)
        assert failed.data["code"] == "REQUEST_EXPIRED"
        with pytest.raises(RequestNotFound):
            await host.approve(session_id, request_id)


async def test_a_request_expires_at_its_time_whatever_restarts_lie_between(data_dir: Path) -> None:
    async with hosting(_agent, data_dir=data_dir, request_expires_s=1000) as host:
        session_id = (await host.start()).session_id
        (request,) = await host.asked(session_id)
    assert (data_dir / f"{session_id}.open").read_text() == f"parked {request.data['expiresAt']}"
    async with hosting(_agent, data_dir=data_dir) as host:  # the setting is another now
        await host.store.expire()
        assert not host.is_in_memory(session_id)
        host.clock.advance(1001)
        with pytest.raises(RequestNotFound):
            await host.approve(session_id, request.request_id)
        failed = await host.seen(session_id, ev.TURN_FAILED)
        assert failed.data["code"] == "REQUEST_EXPIRED"


async def test_an_expiry_that_storage_does_not_take_is_tried_again() -> None:
    persistence = Sometimes()
    async with hosting(_agent, persistence=persistence, request_expires_s=1000) as host:
        session_id, _ = await _parked(host)
        host.clock.advance(1000)
        persistence.is_gone = True
        await host.store.expire()
        persistence.is_gone = False
        host.clock.advance(60)
        await host.store.expire()
        assert one(_log(persistence, session_id), ev.INPUT_COMPLETED)["outcome"] == "expired"
        await host.seen(session_id, ev.TURN_FAILED)


class Sometimes(MemorySessionPersistence):
    """A place that is sometimes not there."""

    is_gone = False

    def open_log(self, session_id: SessionId) -> SessionLog:
        if self.is_gone:
            raise StorageUnavailable("The disk is gone.")
        return super().open_log(session_id)


# -- races ---------------------------------------------------------------------------------------------------------


class Slow(MemorySessionPersistence):
    """A place in which a mark and a snapshot take until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.go.set()
        self.reached = asyncio.Event()

    async def _wait(self) -> None:
        self.reached.set()
        await self.go.wait()

    async def mark(self, session_id: SessionId, text: str) -> None:
        await self._wait()
        await super().mark(session_id, text)

    async def write_snapshot(self, session_id: SessionId, snapshot: bytes) -> None:
        await self._wait()
        await super().write_snapshot(session_id, snapshot)


@pytest.mark.parametrize("command", ["answer", "cancel", "view", "stream", "queue"])
async def test_a_command_that_races_the_leaving_finds_the_session(command: str) -> None:
    persistence = Slow()
    async with hosting(_agent, persistence=persistence) as host:
        accepted = await host.start()
        session_id = accepted.session_id
        (request,) = await host.asked(session_id)
        host.clock.advance(PARKED_S + 1)
        persistence.go.clear()
        persistence.reached.clear()
        leaving = asyncio.create_task(host.host._sessions.drop_idle())
        await persistence.reached.wait()
        match command:
            case "answer":
                racing: Any = asyncio.create_task(host.approve(session_id, request.request_id))
            case "cancel":
                racing = asyncio.create_task(host.cancel(session_id))
            case "view":
                racing = asyncio.create_task(host.store.view(NOBODY, session_id))
            case "queue":
                racing = asyncio.create_task(
                    host.store.proceed(NOBODY, session_id, accepted.token, "next", "queue")
                )
            case _:
                racing = asyncio.create_task(host.content(session_id))
        await asyncio.sleep(0)
        persistence.go.set()
        await leaving
        await racing
        if command != "cancel":
            if command != "answer":
                await host.approve(session_id, request.request_id)
            await host.seen(session_id, ev.TURN_COMPLETED)
        if command == "queue":
            (second,) = await host.asked(session_id, 2)
            await host.approve(session_id, second.request_id)
            await host.seen(session_id, ev.TURN_COMPLETED, 2)
        await host.settled(session_id)


async def test_a_turn_that_went_on_while_another_session_was_leaving_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both were parked when the host looked; writing the first one's mark took a while."""
    monkeypatch.setattr("zhin_host.sessions._DROPPED_AT_ONCE", 1)  # the second waits for the first
    persistence = Slow()
    go = asyncio.Event()

    async def agent(turn: Turn) -> None:
        await turn.approve("Sure?")
        await turn.run("wait", go.wait)

    async with hosting(agent, persistence=persistence, idle_sessions_max=0) as host:
        first = (await host.start()).session_id
        await host.asked(first)
        second = (await host.start()).session_id
        (request,) = await host.asked(second)
        host.clock.advance(PARKED_S + 1)
        persistence.go.clear()
        persistence.reached.clear()
        leaving = asyncio.create_task(host.host._sessions.drop_idle())
        await persistence.reached.wait()
        await host.approve(second, request.request_id)
        await host.seen(second, ev.ACTIONS_REQUESTED)
        persistence.go.set()
        await leaving
        assert persistence.marks()[SessionId(second)] == "running"
        go.set()
        await host.seen(second, ev.TURN_COMPLETED)
        await host.settled(second)


async def test_a_session_that_leaves_as_soon_as_it_is_read_back_is_streamed_all_the_same() -> None:
    async with hosting(_agent, idle_sessions_max=0, parked_s=0) as host:
        session_id = (await host.start()).session_id
        (request,) = await host.asked(session_id)
        await host.host._sessions.drop_idle()

        async def leave() -> None:
            for _ in range(200):
                await host.host._sessions.drop_idle()
                await asyncio.sleep(0)

        leaving = asyncio.create_task(leave())
        for _ in range(20):
            assert len(await host.events(session_id)) == 8
            await host.store.view(NOBODY, session_id)
        await leaving
        watching = asyncio.create_task(host.seen(session_id, ev.TURN_COMPLETED))
        leaving = asyncio.create_task(leave())
        await host.approve(session_id, request.request_id)
        await watching
        await leaving


async def test_commands_at_once_upon_a_session_out_of_memory_read_it_back_once() -> None:
    persistence = Watched()
    async with hosting(_agent, persistence=persistence) as host:
        session_id, request_id = await _parked(host)
        persistence.opened.clear()
        await asyncio.gather(
            *(host.store.view(NOBODY, session_id) for _ in range(10)),
            *(host.approve(session_id, request_id) for _ in range(10)),
        )
        assert persistence.opened == [session_id]
        await host.seen(session_id, ev.TURN_COMPLETED)
        answers = [row for row in _log(persistence, session_id) if row.type == ev.INPUT_COMPLETED]
        assert len(answers) == 1


# -- a changed agent -----------------------------------------------------------------------------------------------


class Versioned:
    """An agent of some version that publishes with approval."""

    def __init__(self, version: str, ran: list[str]) -> None:
        self.version = version

        @tool(approval="always")
        async def publish(page: str) -> str:
            ran.append(f"{page} by {version}")
            return page

        self.tools = (publish,)

    async def __call__(self, turn: Turn) -> None:
        await turn.say("May I? ")
        await turn.say(await turn.call_tool(self.tools[0], page="a"))


async def _asked_by_one(persistence: MemorySessionPersistence, ran: list[str]) -> tuple[str, str]:
    async with crashing({"agent": Versioned("1", ran)}, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        (request,) = await host.asked(session_id)
    return session_id, request.request_id


async def test_an_approval_given_to_a_changed_agent_is_asked_again_by_default() -> None:
    persistence, ran = MemorySessionPersistence(), list[str]()
    session_id, request_id = await _asked_by_one(persistence, ran)
    async with hosting({"agent": Versioned("2", ran)}, persistence=persistence) as host:
        await host.approve(session_id, request_id)
        (again,) = await host.asked(session_id, 2)
        assert again.data["kind"] == "approval"
        assert ran == []
        await _let_leave(host, session_id)
        await host.approve(session_id, again.request_id)
        done = await host.seen(session_id, ev.MESSAGE_COMPLETED)
        assert done.data["message"] == "May I? a"
        assert ran == ["a by 2"], "what the changed agent itself asked is not asked again"


async def test_a_changed_agent_goes_on_where_that_is_the_policy() -> None:
    persistence, ran = MemorySessionPersistence(), list[str]()
    session_id, request_id = await _asked_by_one(persistence, ran)
    changed = {"agent": Versioned("2", ran)}
    async with hosting(changed, persistence=persistence, on_agent_change="continue") as host:
        await host.approve(session_id, request_id)
        await host.seen(session_id, ev.TURN_COMPLETED)
        assert ran == ["a by 2"]


async def test_a_turn_of_a_changed_agent_fails_where_that_is_the_policy() -> None:
    persistence, ran = MemorySessionPersistence(), list[str]()
    session_id, request_id = await _asked_by_one(persistence, ran)
    changed = {"agent": Versioned("2", ran)}
    async with hosting(changed, persistence=persistence, on_agent_change="fail") as host:
        await host.approve(session_id, request_id)
        failed = await host.seen(session_id, ev.TURN_FAILED)
        assert (failed.data["code"], failed.data["recoverable"]) == ("TURN_DIVERGED", False)
        assert "changed" in failed.data["message"]
        assert ran == []
        await host.settled(session_id)


async def test_an_approval_that_stands_for_a_resumed_turn_is_asked_again_by_a_changed_agent() -> None:
    ran: list[str] = []
    is_broken = True

    class Pushing:
        def __init__(self, version: str) -> None:
            self.version = version

            @tool(approval="always")
            async def push(page: str) -> str:
                if is_broken:
                    raise ConnectionError("down")
                ran.append(version)
                return page

            self.tools = (push,)

        async def __call__(self, turn: Turn) -> None:
            await turn.say(await turn.call_tool(self.tools[0], page="a"))

    persistence = MemorySessionPersistence()
    async with hosting({"agent": Pushing("1")}, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        (request,) = await host.asked(session_id)
        await host.approve(session_id, request.request_id)
        await host.seen(session_id, ev.TURN_FAILED)
        await host.settled(session_id)
    is_broken = False
    async with hosting({"agent": Pushing("2")}, persistence=persistence) as host:
        await host.store.resume(NOBODY, session_id)
        (again,) = await host.asked(session_id, 2)
        assert ran == []
        await host.approve(session_id, again.request_id)
        await host.seen(session_id, ev.TURN_COMPLETED)
        assert ran == ["2"]


async def test_a_result_that_is_recorded_is_no_reason_to_ask_a_changed_agent() -> None:
    ran: list[str] = []
    persistence = MemorySessionPersistence()
    async with crashing({"agent": Versioned("1", ran)}, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        (request,) = await host.asked(session_id)
        await host.approve(session_id, request.request_id)
        await host.seen(session_id, ev.TURN_COMPLETED)
        content = stored(persistence, session_id)
    at = next(row.index for row in decoded(session_id, content) if row.type == ev.ACTION_RESULT)
    lines = content.splitlines(keepends=True)[: at + 1]
    persistence._logs[SessionId(session_id)] = bytearray(b"".join(lines))
    async with hosting({"agent": Versioned("2", ran)}, persistence=persistence) as host:
        done = await host.seen(session_id, ev.MESSAGE_COMPLETED)
        assert done.data["message"] == "May I? a"
        assert ran == ["a by 1"]
        await host.settled(session_id)


async def test_an_approval_that_an_agent_acted_on_is_not_asked_again_by_a_changed_one() -> None:
    begun = asyncio.Event()

    class Approving:
        def __init__(self, version: str) -> None:
            self.version = version

        async def __call__(self, turn: Turn) -> None:
            await turn.say(f"{await turn.approve('Sure?')} ")
            await turn.say(f"{await turn.run('act', _act)} ")
            if self.version == "1":
                begun.set()
                await asyncio.Event().wait()

    async def _act() -> str:
        return "acted"

    persistence = MemorySessionPersistence()
    async with crashing({"agent": Approving("1")}, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        (request,) = await host.asked(session_id)
        await host.approve(session_id, request.request_id)
        await begun.wait()
    async with hosting({"agent": Approving("2")}, persistence=persistence) as host:
        done = await host.seen(session_id, ev.MESSAGE_COMPLETED)
        assert done.data["message"] == "True acted "
        await host.settled(session_id)


async def test_a_queued_turn_behind_a_parked_one_that_cannot_go_on_is_marked_before_it_runs() -> None:
    """The mark said parked: a start-up after the next crash would not have looked at it."""
    begun = asyncio.Event()

    class Working:
        resumable = False

        async def __call__(self, turn: Turn) -> None:
            begun.set()
            await asyncio.Event().wait()

    persistence = Watched()
    async with hosting({"agent": _agent}, persistence=persistence) as host:
        session_id, _ = await _parked(host)
        token = (await host.store.view(NOBODY, session_id))["continuationToken"]
        await host.store.proceed(NOBODY, session_id, token, "next", "queue")
        await _let_leave(host, session_id)
    assert persistence.marks() == {session_id: "parked 0"}
    async with crashing({"agent": Working()}, persistence=persistence) as host:
        await host.store.view(NOBODY, session_id)
        await begun.wait()
        assert persistence.marks() == {session_id: "running"}
        assert one(_log(persistence, session_id), ev.TURN_FAILED)["code"] == "HOST_RESTARTED"


class Counting(MemorySessionPersistence):
    """Counts the writes to logs that were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def open_log(self, session_id: SessionId) -> SessionLog:
        counting = self

        class CountingLog(MemoryLog):
            def append(self, lines: bytes, *, expected_bytes: int) -> None:
                counting.writes += 1
                super().append(lines, expected_bytes=expected_bytes)

        return CountingLog(session_id, self._content(session_id))


@pytest.mark.parametrize("is_interrupted", [False, True])
async def test_a_parked_turn_out_of_memory_is_cancelled_in_one_write(*, is_interrupted: bool) -> None:
    """Were there two and the second one failed, nobody would end the turn."""
    persistence = Counting()
    async with hosting(_agent, persistence=persistence) as host:
        session_id, _ = await _parked(host)
        token = (await host.store.view(NOBODY, session_id))["continuationToken"]
        persistence.writes = 0
        if is_interrupted:
            await host.store.proceed(NOBODY, session_id, token, "next", "interrupt")
        else:
            await host.cancel(session_id)
        assert one(_log(persistence, session_id), ev.TURN_CANCELLED)
        assert persistence.writes == 1
        if is_interrupted:
            (request,) = await host.asked(session_id, 2)
            await host.approve(session_id, request.request_id)
            await host.seen(session_id, ev.TURN_COMPLETED)


async def test_a_session_that_was_never_there_is_not_found() -> None:
    async with hosting(_agent) as host:
        with pytest.raises(SessionNotFound):
            await host.store.view(NOBODY, "ses_" + "0" * 26)


async def test_many_parked_sessions_on_files_survive_a_kill(data_dir: Path) -> None:
    async with crashing(_agent, persistence=FileHttpSessionPersistence(data_dir)) as host:
        parked = [await _parked(host) for _ in range(5)]
    async with hosting(_agent, data_dir=data_dir) as host:
        for session_id, request_id in parked:
            assert not host.is_in_memory(session_id)
            await host.approve(session_id, request_id)
        for session_id, _ in parked:
            await host.seen(session_id, ev.TURN_COMPLETED)
            assert last(await host.events(session_id))["reason"] == "idle"
