"""The host against a model: sessions, follow-ups, answers, cancels, readers, crashes and restarts, in any order."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.conftest import check_directory
from tests.fakes import FakeClock
from tests.hosting import NOBODY, Hosting, crash, decoded, judge
from zhin_host import Turn, tool
from zhin_host import events as ev
from zhin_host.clock import SessionId
from zhin_host.errors import (
    ContinuationTokenStale,
    NothingToResume,
    RequestNotFound,
    SessionBusy,
    SessionNotFound,
    SessionTerminal,
)
from zhin_host.host import AgentSessionHost, create_agent_session_host
from zhin_host.ports import SessionPersistence
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.memory import MemorySessionPersistence
from zhin_host.subscriptions import Subscription

T = TypeVar("T")
MESSAGES: Final = ("say", "act", "ask", "both", "publish", "fail", "wait", "end")
DEADLINE_S: Final = 20.0
_LOG: Final = logging.getLogger("zhin_host")


@tool(approval="always")
async def publish(page: str) -> str:
    return f"published {page}"


def length(text: str) -> int:
    return len(text)


async def obedient(turn: Turn) -> None:
    """Does what its message says, the same in every attempt."""
    if turn.state == turn.turn_id:  # an earlier attempt had come so far
        return
    await turn.say("Well: ")
    match turn.message:
        case "act":
            assert await turn.history() is not None
            await turn.say(str(await turn.run("length", length, "four")))
            await turn.checkpoint(turn.turn_id)
        case "ask":
            await turn.say(str(await turn.ask("What?")))
        case "both":
            first, second = await asyncio.gather(turn.ask("First?"), turn.ask("Second?"))
            await turn.say(f"{first} and {second}")
        case "publish":
            await turn.say(await turn.call_tool(publish, page="home"))
        case "fail":
            raise ValueError("as told")
        case "wait":
            await turn.checkpoint(turn.attempt)  # an attempt that adds to the record is not fruitless
            await turn.emit("x.waiting", {"attempt": turn.attempt})
            await asyncio.Event().wait()
        case "end":
            await turn.end_session()
        case _:
            await turn.think("hm")
            await turn.say("ok")


SAID: Final = {"say": "Well: ok", "act": "Well: 4", "end": "Well: "}


@dataclass
class Model:
    """What a session must be like once it has settled.

    Attributes:
        token: In force.
        ends: How each turn ended, oldest first.
        said: What each completed turn said.
        state: "rest", "parked", "waiting" (a turn runs on) or "over".
        message: Of the open turn, or the last.
        questions: How many requests are open.
        queue: Messages that wait for their turn.
        seen: The log when it was looked at last.
    """

    token: str
    ends: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    state: str = "rest"
    message: str = ""
    questions: int = 0
    queue: list[str] = field(default_factory=list)
    seen: bytes = b""

    def begin(self, token: str, message: str) -> None:
        self.token, self.message = token, message
        self.questions = {"ask": 1, "both": 2, "publish": 1}.get(message, 0)
        if self.questions:
            self.state = "parked"
        elif message == "wait":
            self.state = "waiting"
        elif message == "fail":
            self.end("turn.failed")
        else:
            self.end("turn.completed", SAID[message])

    def end(self, kind: str, *said: str) -> None:
        self.ends.append(kind)
        self.said += said
        self.state, self.questions = "rest", 0
        if kind == "turn.completed" and self.message == "end":
            self.state = "over"
        elif self.queue:
            self.begin(self.token, self.queue.pop(0))


class Reader:
    """Follows a session over reconnects; what it has read must be a part of the log."""

    def __init__(self, session_id: str, start: int) -> None:
        self.session_id = session_id
        self.start = start
        self.content = b""
        self._subscription: Subscription | None = None
        self._task: asyncio.Task[None] | None = None

    async def connect(self, host: Hosting) -> None:
        cursor = self.start + self.content.count(b"\n")
        self._subscription = await host.store.subscribe(NOBODY, self.session_id, cursor, "never")
        self._task = asyncio.create_task(self._read(self._subscription), name="reader")

    async def _read(self, subscription: Subscription) -> None:
        async for block in subscription:
            self.content += block

    async def leave(self) -> None:
        if self._task is not None and self._subscription is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            await self._subscription.aclose()


class HostMachine(RuleBasedStateMachine):
    """Sessions in memory. A crash drops the host as it stands: nothing more of it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.log_level = _LOG.level
        _LOG.setLevel(logging.CRITICAL)  # crashes are many here, and each would be told of
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.models: dict[str, Model] = {}
        self.deleted: list[str] = []
        self.readers: list[Reader] = []
        self.persistence = self.new_persistence()
        self.host: Hosting

    def new_persistence(self) -> SessionPersistence:
        return MemorySessionPersistence()

    def do(self, work: Awaitable[T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(DEADLINE_S):
                return await work

        return self.loop.run_until_complete(bounded())

    # -- the host's life -------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.do(self._start())

    async def _start(self) -> None:
        host: AgentSessionHost = create_agent_session_host(
            obedient,
            persistence=self.persistence,
            clock=self.clock,
            idle_s=10.0,
            parked_s=20.0,
            stop_grace_s=0.0,
        )
        await host.start()
        self.host = Hosting(host, self.persistence, self.clock)

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:  # noqa: FBT001 - drawn by its name
        async def again() -> None:
            for reader in self.readers:
                await reader.leave()
            if is_clean:
                await self.host.host.stop()
            else:
                await crash(self.host.host)
            self._after_end(is_clean=is_clean)
            await self._start()
            for reader in self.readers:
                await reader.connect(self.host)

        self.do(again())
        self._settle()

    def _after_end(self, *, is_clean: bool) -> None:
        """What the end of a process needs beside: files are let go."""

    @rule(seconds=st.sampled_from([1, 10, 20]))
    def time_passes(self, seconds: int) -> None:
        async def tick() -> None:
            self.clock.advance(seconds)
            self.host.host._sessions.sweep()
            await self.host.host._sessions.drop_idle()

        self.do(tick())

    # -- commands --------------------------------------------------------------------------------------------

    @rule(message=st.sampled_from(MESSAGES), haste=st.integers(0, 8))
    def start(self, message: str, haste: int) -> None:
        accepted = self.do(self.host.start(message))
        model = self.models[accepted.session_id] = Model(accepted.token)
        model.begin(accepted.token, message)
        self._maybe_crash(haste)

    @precondition(lambda self: self.models)
    @rule(data=st.data(), message=st.sampled_from(MESSAGES), haste=st.integers(0, 8))
    def follow_up(self, data: st.DataObject, message: str, haste: int) -> None:
        session_id, model = self._pick(data)
        proceed = self.host.store.proceed(NOBODY, session_id, model.token, message)
        if model.state == "over":
            self._refused(SessionTerminal, proceed)
        elif model.state != "rest":
            self._refused(SessionBusy, proceed)
        else:
            accepted = self.do(proceed)
            assert accepted.token != model.token
            model.begin(accepted.token, message)
            self._maybe_crash(haste)

    @precondition(lambda self: any(model.state in ("parked", "waiting") for model in self.models.values()))
    @rule(
        data=st.data(),
        message=st.sampled_from(MESSAGES),
        on_busy=st.sampled_from(["queue", "interrupt"]),
        haste=st.integers(0, 8),
    )
    def follow_up_though_busy(
        self, data: st.DataObject, message: str, on_busy: Literal["queue", "interrupt"], haste: int
    ) -> None:
        state = data.draw(st.sampled_from(["parked", "waiting"]), label="state")
        if not any(model.state == state for model in self.models.values()):
            return
        session_id, model = self._pick(data, state)
        accepted = self.do(self.host.store.proceed(NOBODY, session_id, model.token, message, on_busy))
        assert accepted.is_queued
        model.token = accepted.token
        model.queue.append(message)
        if on_busy == "interrupt":
            model.end("turn.cancelled")
        self._maybe_crash(haste)

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def stale_follow_up(self, data: st.DataObject) -> None:
        session_id, model = self._pick(data)
        error = SessionTerminal if model.state == "over" else ContinuationTokenStale
        self._refused(error, self.host.store.proceed(NOBODY, session_id, "zhin:old", "say"))

    @precondition(lambda self: any(model.state == "parked" for model in self.models.values()))
    @rule(data=st.data(), is_yes=st.booleans(), haste=st.integers(0, 8))
    def answer(self, data: st.DataObject, is_yes: bool, haste: int) -> None:  # noqa: FBT001 - as above
        session_id, model = self._pick(data, "parked")
        view = self.do(self.host.store.view(NOBODY, session_id))
        assert len(view["pendingRequests"]) == model.questions
        request = data.draw(st.sampled_from(view["pendingRequests"]), label="request")
        if request["kind"] == "approval":
            self.do(self.host.approve(session_id, request["requestId"], approved=is_yes))
            if is_yes:
                model.end("turn.completed", "Well: published home")
            else:
                model.end("turn.failed")
        else:
            self.do(self.host.respond(session_id, request["requestId"], request["prompt"][:-1]))
            model.questions -= 1
            if not model.questions:
                said = "What" if model.message == "ask" else "First and Second"
                model.end("turn.completed", f"Well: {said}")
        self._maybe_crash(haste)

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def wrong_answer(self, data: st.DataObject) -> None:
        session_id, _ = self._pick(data)
        unknown = f"req_{session_id[4:]}_{'0' * 26}"
        command = self.host.store.answer(NOBODY, session_id, unknown, {"approved": True}, None)
        self._refused(RequestNotFound, command)

    @precondition(lambda self: self.models)
    @rule(data=st.data(), haste=st.integers(0, 8))
    def cancel(self, data: st.DataObject, haste: int) -> None:
        session_id, model = self._pick(data)
        status = self.do(self.host.cancel(session_id))
        if model.state in ("parked", "waiting"):
            assert status == "accepted"
            model.end("turn.cancelled")
            self._maybe_crash(haste)
        else:
            assert status == "no_active_turn"

    @precondition(lambda self: self.models)
    @rule(data=st.data(), haste=st.integers(0, 8))
    def resume(self, data: st.DataObject, haste: int) -> None:
        session_id, model = self._pick(data)
        resume = self.host.store.resume(NOBODY, session_id)
        if model.state == "over":
            self._refused(SessionTerminal, resume)
        elif model.state != "rest":
            self._refused(SessionBusy, resume)
        elif model.ends[-1] != "turn.failed":
            self._refused(NothingToResume, resume)
        else:
            accepted = self.do(resume)
            model.begin(accepted.token, model.message)
            self._maybe_crash(haste)

    @precondition(lambda self: self.models)
    @rule(data=st.data(), outcome=st.sampled_from(["completed", "failed"]))
    def end(self, data: st.DataObject, outcome: str) -> None:
        session_id, model = self._pick(data)
        command = self.host.store.end(NOBODY, session_id, outcome, None)
        if model.state == "over":
            self._refused(SessionTerminal, command)
        elif model.state != "rest":
            self._refused(SessionBusy, command)
        else:
            self.do(command)
            model.state = "over"

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        session_id, model = self._pick(data)
        command = self.host.store.delete(NOBODY, session_id)
        if model.state in ("parked", "waiting"):
            self._refused(SessionBusy, command)
            return
        self.do(command)
        del self.models[session_id]
        self.deleted.append(session_id)
        for reader in [reader for reader in self.readers if reader.session_id == session_id]:
            self.do(reader.leave())
            self.readers.remove(reader)

    # -- readers ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self.models and len(self.readers) < 4)
    @rule(data=st.data(), start=st.integers(0, 12))
    def follow(self, data: st.DataObject, start: int) -> None:
        session_id, _ = self._pick(data)
        reader = Reader(session_id, start)
        self.readers.append(reader)
        self.do(reader.connect(self.host))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def reconnect(self, data: st.DataObject) -> None:
        reader = data.draw(st.sampled_from(self.readers), label="reader")
        self.do(reader.leave())
        self.do(reader.connect(self.host))

    # -- what holds ------------------------------------------------------------------------------------------

    @invariant()
    def sessions_are_what_the_model_says(self) -> None:
        for session_id, model in self.models.items():
            log = self.host.log(session_id)
            assert log.startswith(model.seen), "what was in the log is not any more"
            model.seen = log
            events = decoded(session_id, log)
            assert [event.index for event in events] == list(range(len(events)))
            view = self.do(self.host.store.view(NOBODY, session_id))
            assert view["continuationToken"] == model.token
            expected = {"rest": "waiting", "parked": "waiting", "waiting": "running"}.get(model.state)
            assert view["status"] == (expected or events[-1].type.removeprefix("session."))
            assert view["cursor"] == len(events)
            assert len(view["pendingRequestIds"]) == model.questions
            assert [event.type for event in events if event.type in ev.TURN_ENDS] == model.ends
            assert _answers(events) == model.said

    @invariant()
    def readers_have_read_the_log_and_nothing_else(self) -> None:
        for reader in self.readers:
            lines = self.host.log(reader.session_id).splitlines(keepends=True)
            assert b"".join(lines[reader.start :]).startswith(reader.content)

    @invariant()
    def every_log_is_legal(self) -> None:
        judge(self.persistence)

    @invariant()
    def the_list_is_the_models(self) -> None:
        page = self.do(self.host.store.page(NOBODY, None, 200, None))
        assert {row["sessionId"] for row in page.sessions} == set(self.models)
        for session_id in self.deleted[-2:]:
            with pytest.raises(SessionNotFound):
                self.do(self.host.store.view(NOBODY, session_id))

    def teardown(self) -> None:
        try:
            if hasattr(self, "host"):
                self.do(self._stop())
                judge(self.persistence)
        finally:
            _LOG.setLevel(self.log_level)
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    async def _stop(self) -> None:
        for reader in self.readers:
            await reader.leave()
        await self.host.host.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    # -- inside ----------------------------------------------------------------------------------------------

    def _pick(self, data: st.DataObject, state: str | None = None) -> tuple[str, Model]:
        names = [name for name, model in self.models.items() if state in (None, model.state)]
        session_id = data.draw(st.sampled_from(names), label="session")
        return session_id, self.models[session_id]

    def _refused(self, error: type[Exception], command: Awaitable[Any]) -> None:
        with pytest.raises(error):
            self.do(command)

    def _maybe_crash(self, haste: int) -> None:
        """Crash after a few steps of the loop when in haste, else let the turn come to rest."""

        async def steps() -> None:
            for _ in range(haste):
                await asyncio.sleep(0)

        if haste:
            self.do(steps())
            self.restart(is_clean=False)
        else:
            self._settle()

    def _settle(self) -> None:
        for session_id, model in self.models.items():
            self.do(self._settled(session_id, model))

    async def _settled(self, session_id: str, model: Model) -> None:
        """Wait until a session is as the model says, or has come to another rest."""
        live = await self.host.host._sessions.find(NOBODY, "read", SessionId(session_id))
        if model.state == "waiting":
            attempt = 1 if live.state.turn is None else live.state.turn.attempt
            turn_started = 0 if live.state.turn is None else live.state.turn.started_index
            await self._waits(session_id, attempt, turn_started)
            return
        while True:
            live = await self.host.host._sessions.find(NOBODY, "read", SessionId(session_id))
            if live.state.is_at_rest and len(live.state.pending) == model.questions:
                await self.host.settled(session_id) if live.state.turn is None else None
                return
            await self._next_event(session_id, live.state.next_index)

    async def _waits(self, session_id: str, attempt: int, start: int) -> None:
        reader = await self.host.store.subscribe(NOBODY, session_id, start, "never")
        try:
            async for block in reader:
                if any(
                    event.type == "x.waiting" and event.data["attempt"] == attempt
                    for event in decoded(session_id, block)
                ):
                    return
        finally:
            await reader.aclose()

    async def _next_event(self, session_id: str, index: int) -> None:
        reader = await self.host.store.subscribe(NOBODY, session_id, index, "never")
        try:
            async for block in reader:
                if block:
                    return
        finally:
            await reader.aclose()


def _answers(events: list[ev.Event]) -> list[str]:
    """What each completed turn said: the message.completed before each turn.completed."""
    said, last = [], ""
    for event in events:
        if event.type == ev.MESSAGE_COMPLETED:
            last = event.data["message"]
        elif event.type == ev.TURN_COMPLETED:
            said.append(last)
    return said


class HostOnFilesMachine(HostMachine):
    """The same on files: a crash lets go of the directory and of nothing that was written."""

    def new_persistence(self) -> SessionPersistence:
        self.directory = Path(tempfile.mkdtemp()) / "sessions"
        return FileHttpSessionPersistence(self.directory)

    def _after_end(self, *, is_clean: bool) -> None:
        if not is_clean:
            self.persistence.stop()
        self.persistence = FileHttpSessionPersistence(self.directory)

    def teardown(self) -> None:
        super().teardown()
        check_directory(self.directory)
        shutil.rmtree(self.directory.parent)


SETTINGS = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestHost = HostMachine.TestCase
TestHost.settings = SETTINGS
TestHostOnFiles = HostOnFilesMachine.TestCase
TestHostOnFiles.settings = settings(SETTINGS, max_examples=12)
TestHost = pytest.mark.timeout(300)(TestHost)
TestHostOnFiles = pytest.mark.timeout(300)(TestHostOnFiles)
