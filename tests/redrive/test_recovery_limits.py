"""What recovery may do and how often: attempts on disk, exhaustion, agents that cannot be driven, bad sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hosting import NOBODY, Hosting, crashing, decoded, hosting, last, one, stored, types
from zhin_host import ToolDenied, Turn, tool
from zhin_host import events as ev
from zhin_host.clock import SessionId
from zhin_host.errors import AgentUnavailable, SessionBusy, StorageUnavailable
from zhin_host.intake import Key
from zhin_host.ports import SessionLog
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.memory import MemoryLog, MemorySessionPersistence


class Hanging:
    """An agent whose action never ends until told otherwise, and how often it was begun."""

    def __init__(self) -> None:
        self.hangs = True
        self.begun = asyncio.Event()
        self.count = 0

    async def work(self, name: str) -> str:
        self.count += 1
        if self.hangs:
            self.begun.set()
            await asyncio.Event().wait()
        return name

    async def agent(self, turn: Turn) -> None:
        await turn.say("Working. ")
        await turn.say(await turn.run("work", self.work, "done"))

    async def until_begun(self) -> None:
        await self.begun.wait()
        self.begun.clear()


def cut(persistence: MemorySessionPersistence, session_id: str, count: int) -> MemorySessionPersistence:
    """Another place that holds the first events of a session's log only."""
    lines = stored(persistence, session_id).splitlines(keepends=True)
    other = MemorySessionPersistence()
    other._logs[SessionId(session_id)] = bytearray(b"".join(lines[:count]))
    other._marks[SessionId(session_id)] = "running"
    return other


def logged(persistence: MemorySessionPersistence, session_id: str) -> list[ev.Event]:
    return decoded(session_id, stored(persistence, session_id))


def resumed(events: list[ev.Event]) -> list[tuple[int, int]]:
    """Attempt and crashes of each step.resumed."""
    return [
        (row.data["attempt"], row.data.get("crashes", 0)) for row in events if row.type == ev.STEP_RESUMED
    ]


# -- attempts ------------------------------------------------------------------------------------------------------


async def test_an_attempt_is_on_disk_before_the_agent_runs() -> None:
    persistence = MemorySessionPersistence()
    seen: list[tuple[int, list[tuple[int, int]]]] = []
    hanging = Hanging()

    async def agent(turn: Turn) -> None:
        seen.append((turn.attempt, resumed(logged(persistence, turn.session_id))))
        await hanging.agent(turn)

    async with crashing(agent, persistence=persistence) as host:
        await host.start()
        await hanging.until_begun()
    hanging.hangs = False
    async with hosting(agent, persistence=persistence) as host:
        await host.seen(persistence.session_ids()[0], ev.TURN_COMPLETED)
    assert seen == [(1, []), (2, [(2, 0)])]


async def _crash(hanging: Hanging, persistence: MemorySessionPersistence, times: int) -> None:
    for _ in range(times):
        async with crashing(hanging.agent, persistence=persistence):
            await hanging.until_begun()


async def test_after_three_fruitless_crashed_attempts_the_turn_fails_and_can_be_resumed() -> None:
    persistence, hanging = MemorySessionPersistence(), Hanging()
    async with crashing(hanging.agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        await hanging.until_begun()
    await _crash(hanging, persistence, 3)
    assert resumed(logged(persistence, session_id)) == [(2, 0), (3, 1), (4, 2)]
    async with hosting(hanging.agent, persistence=persistence) as host:
        failed = (await host.seen(session_id, ev.TURN_FAILED)).data
        assert (failed["code"], failed["recoverable"]) == ("RECOVERY_EXHAUSTED", True)
        assert hanging.count == 4
        assert (await host.store.view(NOBODY, session_id))["status"] == "waiting"
        hanging.hangs = False
        resumed_turn = await host.store.resume(NOBODY, session_id)
        events = await host.events(session_id, resumed_turn.start_index)
        assert one(events, ev.MESSAGE_COMPLETED)["message"] == "Working. done"


async def test_an_attempt_that_ended_with_a_clean_stop_is_not_counted() -> None:
    persistence, hanging = MemorySessionPersistence(), Hanging()
    async with crashing(hanging.agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        await hanging.until_begun()
    for _ in range(5):
        async with hosting(hanging.agent, persistence=persistence, is_audited=False, stop_grace_s=0):
            await hanging.until_begun()
        assert persistence.marks() == {session_id: "stopped"}
    hanging.hangs = False
    async with hosting(hanging.agent, persistence=persistence) as host:
        await host.seen(session_id, ev.TURN_COMPLETED)
    assert {crashes for _, crashes in resumed(logged(persistence, session_id))} == {0}


async def test_an_addition_to_the_record_begins_the_count_anew() -> None:
    persistence = MemorySessionPersistence()
    begun = asyncio.Event()
    hangs_at = [2]

    async def work(number: int) -> int:
        if number == hangs_at[0]:
            begun.set()
            await asyncio.Event().wait()
        return number

    async def agent(turn: Turn) -> None:
        for number in range(5):
            await turn.run("work", work, number)

    async with crashing(agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        await begun.wait()
    for hangs_at[0] in (2, 2, 3, 3, 3):
        begun.clear()
        async with crashing(agent, persistence=persistence):
            await begun.wait()
    assert resumed(logged(persistence, session_id)) == [(2, 0), (3, 1), (4, 2), (5, 0), (6, 1)]
    hangs_at[0] = -1
    async with hosting(agent, persistence=persistence) as host:
        await host.seen(session_id, ev.TURN_COMPLETED)


async def test_a_queued_turn_begins_when_the_one_before_is_exhausted() -> None:
    persistence, hanging = MemorySessionPersistence(), Hanging()
    async with crashing(hanging.agent, persistence=persistence) as host:
        accepted = await host.start()
        await hanging.until_begun()
        await host.store.proceed(NOBODY, accepted.session_id, accepted.token, "next", "queue")
    await _crash(hanging, persistence, 3)
    hanging.hangs = False
    async with hosting(hanging.agent, persistence=persistence) as host:
        await host.seen(accepted.session_id, ev.TURN_COMPLETED)
        events = logged(persistence, accepted.session_id)
        assert one(events, ev.TURN_FAILED)["code"] == "RECOVERY_EXHAUSTED"
        assert one(events, ev.MESSAGE_RECEIVED, 1)["message"] == "next"


# -- agents that cannot be driven ----------------------------------------------------------------------------------


async def _asking(turn: Turn) -> None:
    await turn.say("Well? ")
    await asyncio.gather(turn.approve("One?"), turn.authorize("mail"))
    await turn.say("Yes.")


async def test_a_turn_of_an_agent_that_is_not_resumable_is_closed_after_a_restart() -> None:
    persistence = MemorySessionPersistence()

    class Once:
        resumable = False

        async def __call__(self, turn: Turn) -> None:
            await _asking(turn)

    async with crashing(Once(), persistence=persistence) as host:
        accepted = await host.start()
        await host.asked(accepted.session_id, 2)
    async with hosting(Once(), persistence=persistence) as host:
        await host.seen(accepted.session_id, ev.TURN_FAILED)
        events = logged(persistence, accepted.session_id)
        assert types(events)[-6:] == [
            ev.SESSION_WAITING, ev.INPUT_COMPLETED, ev.AUTHORIZATION_COMPLETED, ev.TURN_FAILED, ev.STEP_INTERRUPTED,
            ev.SESSION_WAITING,
        ]  # fmt: skip
        assert one(events, ev.INPUT_COMPLETED)["outcome"] == "cancelled"
        closed = one(events, ev.AUTHORIZATION_COMPLETED)
        assert (closed["success"], closed["error"]) == (False, "cancelled")
        failed = one(events, ev.TURN_FAILED)
        assert (failed["code"], failed["recoverable"]) == ("HOST_RESTARTED", False)
        assert events[-2].data["interruptKind"] == "restart"
        assert (last(events)["reason"], last(events)["parked"]) == ("interrupted", False)
        again = await host.store.proceed(
            NOBODY, accepted.session_id, last(events)["continuationToken"], "again"
        )
        await host.asked(accepted.session_id, 4)
        assert again.turn_id != accepted.turn_id


async def test_a_turn_whose_agent_is_not_hosted_stays_open_until_it_is_back() -> None:
    persistence, hanging = MemorySessionPersistence(), Hanging()
    async with crashing({"worker": hanging.agent}, persistence=persistence) as host:
        accepted = await host.start()
        await hanging.until_begun()
        await host.store.proceed(NOBODY, accepted.session_id, accepted.token, "next", "queue")
    before = stored(persistence, accepted.session_id)
    async with hosting({"other": _asking}, persistence=persistence, is_audited=False) as host:
        async with asyncio.timeout(20):
            await _until_ready(host)
        token = (await host.store.view(NOBODY, accepted.session_id))["continuationToken"]
        for on_busy in ("reject", "queue", "interrupt"):
            with pytest.raises(AgentUnavailable):
                await host.store.proceed(NOBODY, accepted.session_id, token, "again", on_busy)
        with pytest.raises(AgentUnavailable):
            await host.store.resume(NOBODY, accepted.session_id)
        with pytest.raises(AgentUnavailable):
            await host.cancel(accepted.session_id)
        with pytest.raises(SessionBusy):
            await host.store.delete(NOBODY, accepted.session_id)
    assert stored(persistence, accepted.session_id) == before
    hanging.hangs = False
    async with hosting({"worker": hanging.agent}, persistence=persistence) as host:
        await host.seen(accepted.session_id, ev.TURN_COMPLETED, 2)


async def test_a_request_of_an_agent_that_is_not_hosted_is_answered_when_it_is_back() -> None:
    persistence = MemorySessionPersistence()
    async with crashing({"worker": _asking}, persistence=persistence) as host:
        accepted = await host.start()
        approval, authorization = await host.asked(accepted.session_id, 2)
    async with hosting({"other": _asking}, persistence=persistence) as host:
        await _until_ready(host)
        with pytest.raises(AgentUnavailable):
            await host.approve(accepted.session_id, approval.request_id)
        with pytest.raises(AgentUnavailable):
            await host.store.authorize(NOBODY, authorization.request_id, True, None, None)
    async with hosting({"worker": _asking}, persistence=persistence) as host:
        await host.approve(accepted.session_id, approval.request_id)
        await host.store.authorize(NOBODY, authorization.request_id, True, None, None)
        await host.seen(accepted.session_id, ev.TURN_COMPLETED)


async def _until_ready(host: Hosting) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await host.store.check_ready()
            except StorageUnavailable:
                await asyncio.sleep(0)
            else:
                return


# -- bad sessions --------------------------------------------------------------------------------------------------


class Unreadable(MemorySessionPersistence):
    """A place in which one session cannot be read, or never comes back."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.bad: str | None = None
        self.error = error

    def open_log(self, session_id: SessionId) -> SessionLog:
        if session_id == self.bad:
            raise self.error
        return super().open_log(session_id)


@pytest.mark.parametrize(
    "error", [StorageUnavailable("It cannot be read."), RuntimeError("a mistake of ours")]
)
async def test_a_session_that_cannot_be_read_delays_nobody_and_goes_on_when_it_can(error: Exception) -> None:
    persistence, hanging = Unreadable(error), Hanging()
    async with crashing(hanging.agent, persistence=persistence) as host:
        bad = (await host.start()).session_id
        await hanging.until_begun()
        host.clock.advance(1)
        good = (await host.start()).session_id
        await hanging.until_begun()
    hanging.hangs, persistence.bad = False, bad
    async with hosting(hanging.agent, persistence=persistence) as host:
        await host.seen(good, ev.TURN_COMPLETED)
        await _until_ready(host)
        await host.run("a new one")
        with pytest.raises(type(error)):
            await host.store.view(NOBODY, bad)
        persistence.bad = None
        await host.host._sessions.recover_again()
        await host.seen(bad, ev.TURN_COMPLETED)


async def test_a_broken_log_delays_nobody_and_takes_nothing_more() -> None:
    persistence, hanging = MemorySessionPersistence(), Hanging()
    async with crashing(hanging.agent, persistence=persistence) as host:
        bad = (await host.start()).session_id
        await hanging.until_begun()
        host.clock.advance(1)
        good = (await host.start()).session_id
        await hanging.until_begun()
    at = persistence._logs[SessionId(bad)].index(b"Working")
    persistence._logs[SessionId(bad)][at : at + 7] = b"Zorking"
    hanging.hangs = False
    async with hosting(hanging.agent, persistence=persistence, is_audited=False) as host:
        await host.seen(good, ev.TURN_COMPLETED)
        await _until_ready(host)
        with pytest.raises(StorageUnavailable) as refused:
            await host.cancel(bad)
        assert refused.value.index is not None
        assert hanging.count == 3, "it is not driven"


async def test_a_session_whose_recovery_cannot_be_written_delays_nobody() -> None:
    """The message that it would receive does not fit a line any more: the setting was lowered."""
    persistence, hanging = MemorySessionPersistence(), Hanging()
    async with crashing(hanging.agent, persistence=persistence) as host:
        accepted = await host.start()
        await hanging.until_begun()
        queued = await host.store.proceed(NOBODY, accepted.session_id, accepted.token, "x" * 6000, "queue")
        await host.cancel(accepted.session_id)
        await host.seen(accepted.session_id, ev.MESSAGE_RECEIVED, 2)
        await hanging.until_begun()
        host.clock.advance(1)
        good = (await host.start()).session_id
        await hanging.until_begun()
    events = logged(persistence, accepted.session_id)
    at = next(
        row.index
        for row in events
        if row.data.get("turnId") == queued.turn_id and row.type == ev.TURN_STARTED
    )
    content = stored(persistence, accepted.session_id).splitlines(keepends=True)
    persistence._logs[SessionId(accepted.session_id)] = bytearray(b"".join(content[: at + 1]))
    hanging.hangs = False
    async with hosting(hanging.agent, persistence=persistence, is_audited=False, line_bytes_max=8192) as host:
        await host.seen(good, ev.TURN_COMPLETED)
        await _until_ready(host)


# -- a turn without its message ------------------------------------------------------------------------------------


async def test_a_new_turn_without_its_message_fails_and_its_key_is_free_again() -> None:
    async def agent(turn: Turn) -> None:
        await turn.say(turn.message)

    async with hosting(agent) as host:
        accepted = await host.start("one")
        await host.settled(accepted.session_id)
        key = Key("k", ev.digest(b"two"))
        again = await host.store.proceed(NOBODY, accepted.session_id, accepted.token, "two", "reject", key)
        await host.settled(accepted.session_id)
        whole = host.persistence
    assert isinstance(whole, MemorySessionPersistence)
    for count in (again.start_index + 1, again.start_index + 2):  # turn.started, step.started
        persistence = cut(whole, accepted.session_id, count)
        async with hosting(agent, persistence=persistence) as host:
            failed = await host.seen(accepted.session_id, ev.TURN_FAILED)
            assert (failed.data["code"], failed.data["recoverable"]) == ("HOST_RESTARTED", False)
            waiting = last(logged(persistence, accepted.session_id))
            assert waiting["reason"] == "interrupted"
            third = await host.store.proceed(
                NOBODY, accepted.session_id, waiting["continuationToken"], "two", "reject", key
            )
            assert third.turn_id != again.turn_id
            await host.seen(accepted.session_id, ev.TURN_COMPLETED, 2)


async def test_a_session_made_with_a_key_and_cut_before_its_message_is_made_anew_under_that_key() -> None:
    async def agent(turn: Turn) -> None:
        await turn.say(turn.message)

    key = Key("k", ev.digest(b"one"))
    async with hosting(agent) as host:
        accepted = await host.store.start(NOBODY, "one", key=key)
        await host.settled(accepted.session_id)
        whole = host.persistence
    assert isinstance(whole, MemorySessionPersistence)
    for count in (2, 3):
        persistence = cut(whole, accepted.session_id, count)
        async with hosting(agent, persistence=persistence) as host:
            host.clock.advance(5)
            again = await host.store.start(NOBODY, "one", key=key)
            assert again.session_id != accepted.session_id
            assert again.session_id[-16:] == accepted.session_id[-16:]
            assert await host.store.start(NOBODY, "one", key=key) == again
            await host.settled(again.session_id)


async def test_a_queued_turn_without_its_message_receives_it_and_runs() -> None:
    async def agent(turn: Turn) -> None:
        if turn.message == "one":
            await turn.approve("Sure?")
        await turn.say(f"{turn.message} {turn.attempt}")

    async with hosting(agent) as host:
        accepted = await host.start("one")
        (request,) = await host.asked(accepted.session_id)
        queued = await host.store.proceed(NOBODY, accepted.session_id, accepted.token, "two", "queue")
        await host.approve(accepted.session_id, request.request_id)
        await host.seen(accepted.session_id, ev.TURN_COMPLETED, 2)
        whole = host.persistence
    assert isinstance(whole, MemorySessionPersistence)
    events = logged(whole, accepted.session_id)
    at = next(
        row.index for row in events if row.type == ev.TURN_STARTED and row.data["turnId"] == queued.turn_id
    )
    for count in (at, at + 1, at + 2, at + 3):
        persistence = cut(whole, accepted.session_id, count)
        async with hosting(agent, persistence=persistence) as host:
            done = await host.seen(accepted.session_id, ev.MESSAGE_COMPLETED, 2)
            assert done.data["message"] == ("two 2" if count == at + 3 else "two 1")
            assert one(logged(persistence, accepted.session_id), ev.MESSAGE_RECEIVED, 1)["message"] == "two"
            await host.settled(accepted.session_id)


async def test_a_resumed_turn_without_its_message_receives_the_old_one_and_runs() -> None:
    is_broken = True

    async def work() -> str:
        if is_broken:
            raise ConnectionError("down")
        return "up"

    async def agent(turn: Turn) -> None:
        await turn.say("It is ")
        await turn.say(await turn.run("work", work))

    async with hosting(agent) as host:
        accepted = await host.start("how is it?")
        await host.seen(accepted.session_id, ev.TURN_FAILED)
        is_broken = False
        again = await host.store.resume(NOBODY, accepted.session_id)
        await host.seen(accepted.session_id, ev.TURN_COMPLETED)
        whole = host.persistence
    assert isinstance(whole, MemorySessionPersistence)
    for count in (again.start_index + 1, again.start_index + 2, again.start_index + 3):
        persistence = cut(whole, accepted.session_id, count)
        async with hosting(agent, persistence=persistence) as host:
            done = await host.seen(accepted.session_id, ev.MESSAGE_COMPLETED)
            assert done.data["message"] == "It is up"
            events = logged(persistence, accepted.session_id)
            assert one(events, ev.MESSAGE_RECEIVED, 1)["message"] == "how is it?"
            await host.settled(accepted.session_id)


# -- another path --------------------------------------------------------------------------------------------------


Path_ = Callable[[Turn], Awaitable[None]]


async def _echo(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


async def _two(turn: Turn) -> None:
    await turn.run("one", _echo, 1)
    await turn.run("two", _echo, 2)


async def _renamed(turn: Turn) -> None:
    await turn.run("uno", _echo, 1)


async def _with_other_arguments(turn: Turn) -> None:
    await turn.run("one", _echo, 2)


async def _without_the_first(turn: Turn) -> None:
    await turn.run("two", _echo, 2)


async def _with_one_more(turn: Turn) -> None:
    await turn.run("one", _echo, 1)
    await turn.run("one and a half", _echo, 1.5)
    await turn.run("two", _echo, 2)


async def _shorter(turn: Turn) -> None:
    await turn.run("one", _echo, 1)


async def _with_a_question(turn: Turn) -> None:
    await turn.ask("Which?")


@pytest.mark.parametrize(
    ("other", "recorded", "taken"),
    [
        (_renamed, "one", "uno"),
        (_with_other_arguments, "one", "one"),
        (_without_the_first, "one", "two"),
        (_with_one_more, "two", "one and a half"),
        (_shorter, "two", "ended"),
        (_with_a_question, "one", "ask"),
    ],
)
async def test_an_agent_that_takes_another_path_than_its_record_is_told_both(
    other: Path_, recorded: str, taken: str
) -> None:
    persistence = MemorySessionPersistence()
    begun = asyncio.Event()

    async def agent(turn: Turn) -> None:
        if begun.is_set():
            await other(turn)
            return
        await _two(turn)
        begun.set()
        await asyncio.Event().wait()

    async with crashing(agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        await begun.wait()
    async with hosting(agent, persistence=persistence) as host:
        failed = (await host.seen(session_id, ev.TURN_FAILED)).data
        assert (failed["code"], failed["recoverable"]) == ("TURN_DIVERGED", False)
        calls = [row for row in logged(persistence, session_id) if row.type == ev.ACTIONS_REQUESTED]
        call_id = next(row.data["callId"] for row in calls if row.data["toolName"] == recorded)
        assert f"{recorded} ({call_id})" in failed["message"]
        assert taken in failed["message"]
        assert (await host.store.view(NOBODY, session_id))["status"] == "waiting"


async def test_calls_side_by_side_may_come_in_another_order_and_are_judged_at_the_end() -> None:
    persistence = MemorySessionPersistence()
    begun = asyncio.Event()
    numbers = [1, 2, 3]

    async def agent(turn: Turn) -> None:
        await asyncio.gather(*(turn.run("echo", _echo, number) for number in numbers))
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        await turn.say("Done.")

    async with crashing(agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        await begun.wait()
    content = stored(persistence, session_id)
    numbers = [3, 1, 2]
    async with hosting(agent, persistence=persistence) as host:
        await host.seen(session_id, ev.TURN_COMPLETED)
    persistence._logs[SessionId(session_id)] = bytearray(content)
    persistence._snapshots.clear()
    persistence._marks[SessionId(session_id)] = "running"
    numbers = [3, 1]
    async with hosting(agent, persistence=persistence) as host:
        failed = (await host.seen(session_id, ev.TURN_FAILED)).data
        assert failed["code"] == "TURN_DIVERGED"
        assert "echo (call_" in failed["message"]


# -- tools that are not repeatable ---------------------------------------------------------------------------------


class Paying:
    """An agent with one tool that is not repeatable, which hangs until told otherwise."""

    def __init__(self, *, approval: Any = "never") -> None:
        self.hangs = True
        self.begun = asyncio.Event()
        self.count = 0

        @tool(approval=approval, repeatable=False)
        async def pay(amount: int) -> str:
            self.count += 1
            if self.hangs:
                self.begun.set()
                await asyncio.Event().wait()
            return f"paid {amount}"

        self.pay = pay

    async def agent(self, turn: Turn) -> None:
        try:
            await turn.say(await turn.call_tool(self.pay, amount=3))
        except ToolDenied:
            await turn.say("not paid")

    async def until_begun(self) -> None:
        await self.begun.wait()
        self.begun.clear()


async def _asked(host: Hosting, session_id: str, count: int) -> ev.Event:
    """The n-th request of the session."""
    return await host.seen(session_id, ev.INPUT_REQUESTED, count)


async def _said(host: Hosting, session_id: str) -> str:
    done = await host.seen(session_id, ev.MESSAGE_COMPLETED)
    await host.settled(session_id)
    return str(done.data["message"])


async def test_a_tool_that_needed_no_approval_is_asked_about_when_it_may_have_begun() -> None:
    persistence, paying = MemorySessionPersistence(), Paying()
    async with crashing(paying.agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        await paying.until_begun()
    async with hosting(paying.agent, persistence=persistence) as host:
        asked = await _asked(host, session_id, 1)
        assert (asked.data["kind"], asked.data["toolName"], asked.data["args"]) == (
            "retry",
            "pay",
            {"amount": 3},
        )
        assert paying.count == 1
        paying.hangs = False
        await host.approve(session_id, asked.data["requestId"])
        assert await _said(host, session_id) == "paid 3"
        assert paying.count == 2


async def test_a_tool_approved_while_an_attempt_waited_is_asked_about_after_the_crash() -> None:
    persistence, paying = MemorySessionPersistence(), Paying(approval="always")
    async with crashing(paying.agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        approval = await _asked(host, session_id, 1)
        await host.approve(session_id, approval.data["requestId"])
        await paying.until_begun()
    async with hosting(paying.agent, persistence=persistence) as host:
        asked = await _asked(host, session_id, 2)
        assert asked.data["kind"] == "retry"
        paying.hangs = False
        await host.approve(session_id, asked.data["requestId"])
        assert await _said(host, session_id) == "paid 3"


async def test_a_tool_approved_after_a_restart_runs_unasked_and_is_asked_about_after_the_next_one() -> None:
    persistence, paying = MemorySessionPersistence(), Paying(approval="always")
    async with crashing(paying.agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        approval = await _asked(host, session_id, 1)
    async with crashing(paying.agent, persistence=persistence) as host:
        await host.approve(session_id, approval.data["requestId"])
        await paying.until_begun()
        kinds = [
            row.data["kind"] for row in logged(persistence, session_id) if row.type == ev.INPUT_REQUESTED
        ]
        assert kinds == ["approval"]
    async with hosting(paying.agent, persistence=persistence) as host:
        asked = await _asked(host, session_id, 2)
        assert asked.data["kind"] == "retry"
        paying.hangs = False
        await host.approve(session_id, asked.data["requestId"])
        assert await _said(host, session_id) == "paid 3"


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_second_try_that_was_allowed_and_crashed_again_is_asked_about_again(
    *, is_restarted: bool
) -> None:
    persistence, paying = MemorySessionPersistence(), Paying()
    async with crashing(paying.agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        await paying.until_begun()
    if is_restarted:
        async with crashing(paying.agent, persistence=persistence) as host:
            first = await _asked(host, session_id, 1)
    async with crashing(paying.agent, persistence=persistence) as host:
        first = await _asked(host, session_id, 1)
        await host.approve(session_id, first.data["requestId"])
        await paying.until_begun()
        assert paying.count == 2
    async with hosting(paying.agent, persistence=persistence) as host:
        second = await _asked(host, session_id, 2)
        assert second.data["kind"] == "retry"
        assert second.data["requestId"] != first.data["requestId"]
        assert paying.count == 2
        paying.hangs = False
        await host.approve(session_id, second.data["requestId"])
        assert await _said(host, session_id) == "paid 3"


async def test_a_second_try_that_is_refused_is_a_refusal() -> None:
    persistence, paying = MemorySessionPersistence(), Paying()
    async with crashing(paying.agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        await paying.until_begun()
    async with hosting(paying.agent, persistence=persistence) as host:
        asked = await _asked(host, session_id, 1)
        await host.approve(session_id, asked.data["requestId"], approved=False)
        assert await _said(host, session_id) == "not paid"
        assert paying.count == 1
        result = one(logged(persistence, session_id), ev.ACTION_RESULT)
        assert (result["status"], result["error"]["code"]) == ("denied", "TOOL_DENIED")


async def test_an_unanswered_approval_is_no_reason_to_ask_about_a_second_try() -> None:
    persistence, paying = MemorySessionPersistence(), Paying(approval="always")
    async with crashing(paying.agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        await _asked(host, session_id, 1)
        whole = stored(persistence, session_id)
    lines = whole.splitlines(keepends=True)
    at = next(row.index for row in decoded(session_id, whole) if row.type == ev.INPUT_REQUESTED)
    persistence._logs[SessionId(session_id)] = bytearray(b"".join(lines[:at]))  # asked for, nobody asked
    paying.hangs = False
    async with hosting(paying.agent, persistence=persistence) as host:
        asked = await _asked(host, session_id, 1)
        assert asked.data["kind"] == "approval"
        await host.approve(session_id, asked.data["requestId"])
        assert await _said(host, session_id) == "paid 3"
        assert paying.count == 1


async def test_an_allowed_second_try_never_stands_for_an_approval() -> None:
    """The policy asks now; what was allowed before is a second try of a call that needed none."""
    asks = False
    persistence, paying = MemorySessionPersistence(), Paying(approval=lambda amount: asks)
    async with crashing(paying.agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        await paying.until_begun()
    async with crashing(paying.agent, persistence=persistence) as host:
        retry = await _asked(host, session_id, 1)
        assert retry.data["kind"] == "retry"
    asks, paying.hangs = True, False
    async with hosting(paying.agent, persistence=persistence) as host:
        await host.approve(session_id, retry.data["requestId"])
        approval = await _asked(host, session_id, 2)
        assert approval.data["kind"] == "approval"
        assert paying.count == 1
        await host.approve(session_id, approval.data["requestId"])
        assert await _said(host, session_id) == "paid 3"
        assert paying.count == 2


async def test_a_policy_that_asks_only_now_does_not_stand_for_the_question_about_a_second_try() -> None:
    asks = False
    persistence, paying = MemorySessionPersistence(), Paying(approval=lambda amount: asks)
    async with crashing(paying.agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        await paying.until_begun()
    asks, paying.hangs = True, False
    async with hosting(paying.agent, persistence=persistence) as host:
        approval = await _asked(host, session_id, 1)
        assert approval.data["kind"] == "approval"
        await host.approve(session_id, approval.data["requestId"])
        retry = await _asked(host, session_id, 2)
        assert retry.data["kind"] == "retry"
        assert paying.count == 1
        await host.approve(session_id, retry.data["requestId"])
        assert await _said(host, session_id) == "paid 3"


class Syncing(MemorySessionPersistence):
    """Knows how much of a log would survive a power cut: what was written when a sync that has ended began."""

    def __init__(self) -> None:
        super().__init__()
        self.synced = 0

    def _log(self, session_id: SessionId) -> SessionLog:
        place = self

        class Log(MemoryLog):
            async def sync(self) -> None:
                size = self.size_bytes
                for _ in range(5):
                    await asyncio.sleep(0)
                place.synced = max(place.synced, size)

        return Log(session_id, self._content(session_id))

    async def create_log(self, session_id: SessionId, instead_of: SessionId | None = None) -> SessionLog:
        await super().create_log(session_id, instead_of)
        return self._log(session_id)

    def open_log(self, session_id: SessionId) -> SessionLog:
        return self._log(session_id)

    def surviving(self, session_id: str) -> list[str]:
        """Types of the events that a power cut would leave."""
        return types(decoded(session_id, bytes(self._content(SessionId(session_id))[: self.synced])))


async def test_an_answer_that_takes_a_turn_up_is_synced_before_the_agent_runs() -> None:
    """The attempt is counted on disk before it begins."""
    persistence, seen = Syncing(), list[list[str]]()

    async def agent(turn: Turn) -> None:
        seen.append(persistence.surviving(turn.session_id))
        await turn.approve("Sure?")

    async with crashing(agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        (request,) = await host.asked(session_id)
    async with hosting(agent, persistence=persistence) as host:
        await host.approve(session_id, request.request_id)
        await host.seen(session_id, ev.TURN_COMPLETED)
        assert seen[1][-2:] == [ev.INPUT_COMPLETED, ev.STEP_RESUMED]


@pytest.mark.parametrize("approval", ["never", "always"])
async def test_what_says_that_a_tool_may_have_begun_survives_a_power_cut_if_it_is_not_repeatable(
    approval: Any,
) -> None:
    persistence, seen = Syncing(), list[str]()

    @tool(approval=approval, repeatable=False)
    async def pay(session_id: str) -> None:
        seen.extend(persistence.surviving(session_id))

    async def agent(turn: Turn) -> None:
        await turn.call_tool(pay, session_id=turn.session_id)

    async with hosting(agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        if approval == "always":
            (request,) = await host.asked(session_id)
            await host.approve(session_id, request.request_id)
        await host.seen(session_id, ev.TURN_COMPLETED)
        await host.settled(session_id)
    assert seen[-1] == (ev.ACTIONS_REQUESTED if approval == "never" else ev.STEP_RESUMED)


async def test_a_repeatable_tool_runs_again_unasked(data_dir: Path) -> None:
    hanging = Hanging()

    @tool(approval="always")
    async def work(name: str) -> str:
        return await hanging.work(name)

    async def agent(turn: Turn) -> None:
        await turn.say(await turn.call_tool(work, name="a"))

    async with crashing(agent, persistence=FileHttpSessionPersistence(data_dir)) as host:
        session_id = (await host.start()).session_id
        (request,) = await host.asked(session_id)
        await host.approve(session_id, request.request_id)
        await hanging.until_begun()
    hanging.hangs = False
    async with hosting(agent, data_dir=data_dir) as host:
        assert await _said(host, session_id) == "a"
        assert hanging.count == 2


async def test_history_tells_an_answer_too_long_for_a_line_without_what_a_restart_voided() -> None:
    told: list[list[dict[str, str]]] = []
    begun = asyncio.Event()

    async def agent(turn: Turn) -> None:
        told.append(await turn.history())
        await turn.say("Half. ")
        if turn.attempt == 1 and turn.message == "Hello":
            begun.set()
            await asyncio.Event().wait()
        await turn.say("x" * 5000)
        await turn.say("y" * 5000)

    persistence = MemorySessionPersistence()
    async with crashing(agent, persistence=persistence, line_bytes_max=8192) as host:
        session_id = (await host.start()).session_id
        await begun.wait()
        await host.live(session_id).journal.flush()
    async with hosting(agent, persistence=persistence, line_bytes_max=8192) as host:
        await host.seen(session_id, ev.TURN_COMPLETED)
        await host.settled(session_id)
        await host.follow_up(session_id)
        await host.seen(session_id, ev.TURN_COMPLETED, 2)
        await host.settled(session_id)
    assert told[-1] == [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Half. " + "x" * 5000 + "y" * 5000},
    ]


async def test_a_message_for_which_the_line_limit_is_now_too_low_keeps_its_session_until_the_limit_is_back() -> (
    None
):
    persistence = MemorySessionPersistence()

    class Once:
        resumable = False

        async def __call__(self, turn: Turn) -> None:
            if turn.message == "Hello":
                await asyncio.Event().wait()
            await turn.say(f"{len(turn.message)} characters")

    async with crashing(Once(), persistence=persistence) as host:
        accepted = await host.start()
        token = (await host.store.view(NOBODY, accepted.session_id))["continuationToken"]
        await host.store.proceed(NOBODY, accepted.session_id, token, "x" * 9000, "queue")
    async with hosting(Once(), persistence=persistence, line_bytes_max=8192, is_audited=False) as host:
        with pytest.raises(StorageUnavailable, match="cannot go on"):
            await host.store.view(NOBODY, accepted.session_id)
        other = await host.start("short")
        await host.seen(other.session_id, ev.TURN_COMPLETED)
        await host.settled(other.session_id)
        assert accepted.session_id in persistence.marks()
    async with hosting(Once(), persistence=persistence) as host:
        done = await host.seen(accepted.session_id, ev.MESSAGE_COMPLETED)
        assert done.data["message"] == "9000 characters"
        await host.settled(accepted.session_id)
