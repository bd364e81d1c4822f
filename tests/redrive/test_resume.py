"""POST /session/{id}/resume: a failed turn is tried again from its record."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.hosting import NOBODY, Hosting, crashing, hosting, one, types
from zhin_host import ActionFailed, Turn, current_action, tool
from zhin_host import events as ev
from zhin_host.errors import ContinuationTokenStale, NothingToResume, SessionBusy, SessionTerminal
from zhin_host.storage.memory import MemorySessionPersistence


class Trial:
    """Work that fails until told otherwise, and what was run under which keys."""

    def __init__(self) -> None:
        self.is_broken = True
        self.ran: list[tuple[str, str, str]] = []  # name, callId, idempotency key

    def note(self, name: str) -> None:
        action = current_action()
        self.ran.append((name, action.call_id, action.idempotency_key))

    async def work(self, name: str) -> str:
        self.note(name)
        if self.is_broken:
            raise ConnectionError(f"{name} is down")
        return name

    async def sure(self, name: str) -> str:
        self.note(name)
        return name

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.ran]


async def _failed(host: Hosting, message: str = "go") -> tuple[str, dict[str, Any]]:
    """Start a session whose turn fails; its id and the data of turn.failed."""
    events = await host.run(message)
    return one(events, ev.SESSION_STARTED)["sessionId"], one(events, ev.TURN_FAILED)


async def _resumed(host: Hosting, session_id: str) -> list[ev.Event]:
    """Resume, and the events from there to where the session rests."""
    accepted = await host.store.resume(NOBODY, session_id)
    return await host.events(session_id, accepted.start_index)


def _text(events: list[ev.Event]) -> str:
    message: str = one(events, ev.MESSAGE_COMPLETED)["message"]
    return message


async def test_a_failed_action_is_tried_again_and_those_before_it_are_not(data_dir: Path) -> None:
    trial = Trial()

    async def agent(turn: Turn) -> None:
        await turn.say("One. ")
        await turn.say(await turn.run("before", trial.sure, "before"))
        await turn.say(" Two. ")
        await turn.say(await turn.run("work", trial.work, "work"))

    async with hosting(agent, data_dir=data_dir) as host:
        session_id, failed = await _failed(host)
        assert (failed["code"], failed["recoverable"]) == ("ACTION_FAILED", True)
        trial.is_broken = False
        first = await host.events(session_id)
        second = await _resumed(host, session_id)
        assert trial.names == ["before", "work", "work"]
        assert trial.ran[1] == trial.ran[2], "the callId and the idempotency key are the old turn's"
        started = one(second, ev.TURN_STARTED)
        two = next(row.index for row in first if row.data.get("messageDelta") == "before")
        assert started["resumes"] == one(first, ev.TURN_STARTED)["turnId"]
        assert started["discardFrom"] == two, (
            "the first event behind the record, the failed action's result apart"
        )
        assert one(second, ev.MESSAGE_RECEIVED)["message"] == "go"
        assert _text(second) == "One. before Two. work"
        assert [row.data["toolName"] for row in second if row.type == ev.ACTIONS_REQUESTED] == ["work"]


async def test_what_an_agent_raises_itself_is_resumed_from_behind_its_last_record(data_dir: Path) -> None:
    trial = Trial()

    async def agent(turn: Turn) -> None:
        await turn.say("One. ")
        await turn.say(await turn.run("before", trial.sure, "before"))
        if trial.is_broken:
            raise RuntimeError("no idea")
        await turn.say("!")

    async with hosting(agent, data_dir=data_dir) as host:
        session_id, failed = await _failed(host)
        assert failed["code"] == "AGENT_FAILED"
        assert "callId" not in failed
        trial.is_broken = False
        second = await _resumed(host, session_id)
        assert _text(second) == "One. before!"
        assert trial.names == ["before"]


async def test_a_call_that_still_counts_is_not_asked_for_again_in_the_log() -> None:
    """Its actions.requested stands before an approval, which is part of the record."""
    trial = Trial()

    @tool(approval="always")
    async def publish(page: str) -> str:
        return await trial.work(page)

    async def agent(turn: Turn) -> None:
        await turn.say("Push? ")
        await turn.say(await turn.call_tool(publish, page="a"))

    async with hosting(agent) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        await host.approve(accepted.session_id, request.request_id)
        await host.seen(accepted.session_id, ev.TURN_FAILED)
        trial.is_broken = False
        second = await _resumed(host, accepted.session_id)
        assert ev.ACTIONS_REQUESTED not in types(second)
        assert ev.INPUT_REQUESTED not in types(second), "an approval given for it stands"
        assert "discardFrom" not in one(second, ev.TURN_STARTED)
        assert _text(second) == "Push? a"


async def test_a_refused_tool_is_asked_about_again() -> None:
    trial = Trial()

    @tool(approval="always")
    async def publish(page: str) -> str:
        return await trial.sure(page)

    async def agent(turn: Turn) -> None:
        await turn.say("May I? ")
        await turn.say(await turn.call_tool(publish, page="a"))

    async with hosting(agent) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        await host.approve(accepted.session_id, request.request_id, approved=False)
        failed = await host.seen(accepted.session_id, ev.TURN_FAILED)
        assert (failed.data["code"], failed.data["callId"]) == ("TOOL_DENIED", request.data["callId"])
        resumed = await host.store.resume(NOBODY, accepted.session_id)
        (again,) = await host.asked(accepted.session_id, 2)
        assert again.request_id != request.request_id
        assert again.data["callId"] == request.data["callId"]
        await host.approve(accepted.session_id, again.request_id)
        await host.seen(accepted.session_id, ev.TURN_COMPLETED)
        events = await host.events(accepted.session_id, resumed.start_index, "tail")
        assert _text(events) == "May I? a"
        assert trial.names == ["a"]


async def test_an_expired_question_is_asked_again() -> None:
    async def agent(turn: Turn) -> None:
        await turn.say("Well? ")
        await turn.say(await turn.ask("Which?"))

    async with hosting(agent, request_expires_s=60) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        host.clock.advance(61)
        await host.store.expire()
        failed = await host.seen(accepted.session_id, ev.TURN_FAILED)
        assert (failed.data["code"], failed.data["callId"]) == ("REQUEST_EXPIRED", request.data["callId"])
        await host.store.resume(NOBODY, accepted.session_id)
        (again,) = await host.asked(accepted.session_id, 2)
        assert again.request_id != request.request_id
        await host.respond(accepted.session_id, again.request_id, "red")
        done = await host.seen(accepted.session_id, ev.MESSAGE_COMPLETED)
        assert done.data["message"] == "Well? red"


@pytest.mark.parametrize("is_gated", [False, True])
async def test_a_tool_that_is_not_repeatable_and_failed_runs_again_when_its_turn_is_resumed(
    *, is_gated: bool
) -> None:
    """Whoever resumes has decided that; the host did not stop, so nobody is asked whether to try again."""
    trial = Trial()

    @tool(approval="always" if is_gated else "never", repeatable=False)
    async def pay(amount: int) -> str:
        return await trial.work(str(amount))

    async def agent(turn: Turn) -> None:
        await turn.say(await turn.call_tool(pay, amount=3))

    async with hosting(agent) as host:
        accepted = await host.start()
        if is_gated:
            (request,) = await host.asked(accepted.session_id)
            await host.approve(accepted.session_id, request.request_id)
        await host.seen(accepted.session_id, ev.TURN_FAILED)
        trial.is_broken = False
        second = await _resumed(host, accepted.session_id)
        assert ev.INPUT_REQUESTED not in types(second)
        assert _text(second) == "3"


@pytest.mark.parametrize("is_gated", [False, True])
async def test_a_tool_cut_down_in_a_resumed_turn_is_asked_about(*, is_gated: bool) -> None:
    """It failed, was resumed, and the host stopped while it may have been running."""
    trial = Trial()
    begun = asyncio.Event()
    hangs = False

    @tool(approval="always" if is_gated else "never", repeatable=False)
    async def pay(amount: int) -> str:
        if hangs:
            trial.note("hangs")
            begun.set()
            await asyncio.Event().wait()
        return await trial.work(str(amount))

    async def agent(turn: Turn) -> None:
        await turn.say(await turn.call_tool(pay, amount=3))

    persistence = MemorySessionPersistence()
    async with crashing(agent, persistence=persistence) as host:
        accepted = await host.start()
        session_id = accepted.session_id
        if is_gated:
            (request,) = await host.asked(session_id)
            await host.approve(session_id, request.request_id)
        await host.seen(session_id, ev.TURN_FAILED)
        hangs = True
        await host.store.resume(NOBODY, session_id)
        await begun.wait()
    hangs, trial.is_broken = False, False
    async with hosting(agent, persistence=persistence) as host:
        asked = await host.seen(session_id, ev.INPUT_REQUESTED, 2 if is_gated else 1)
        assert asked.data["kind"] == "retry"
        await host.approve(session_id, asked.data["requestId"])
        done = await host.seen(session_id, ev.MESSAGE_COMPLETED)
        assert done.data["message"] == "3"


@pytest.mark.parametrize("is_gated", [False, True])
async def test_a_second_try_that_a_person_refused_is_asked_about_again_when_resumed(
    *, is_gated: bool
) -> None:
    """Nobody ever said that it may run again."""
    trial = Trial()
    begun = asyncio.Event()
    hangs = True

    @tool(approval="always" if is_gated else "never", repeatable=False)
    async def pay(amount: int) -> str:
        trial.note(str(amount))
        if hangs:
            begun.set()
            await asyncio.Event().wait()
        return str(amount)

    async def agent(turn: Turn) -> None:
        await turn.say(await turn.call_tool(pay, amount=3))

    persistence = MemorySessionPersistence()
    async with crashing(agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        if is_gated:
            (request,) = await host.asked(session_id)
            await host.approve(session_id, request.request_id)
        await begun.wait()
    hangs = False
    async with hosting(agent, persistence=persistence) as host:
        asked = await host.seen(session_id, ev.INPUT_REQUESTED, 2 if is_gated else 1)
        assert asked.data["kind"] == "retry"
        await host.approve(session_id, asked.data["requestId"], approved=False)
        failed = await host.seen(session_id, ev.TURN_FAILED)
        assert failed.data["code"] == "TOOL_DENIED"
        resumed = await host.store.resume(NOBODY, session_id)
        again = await host.seen(session_id, ev.INPUT_REQUESTED, 1, resumed.start_index)
        assert again.data["kind"] == "retry", "an approval given for it stands, and the refusal does not"
        assert trial.names == ["3"]
        await host.approve(session_id, again.data["requestId"])
        await host.seen(session_id, ev.TURN_COMPLETED)
        assert trial.names == ["3", "3"]


async def test_a_resumed_turn_that_fails_again_is_resumed_again(data_dir: Path) -> None:
    trial = Trial()

    async def agent(turn: Turn) -> None:
        await turn.say("One. ")
        await turn.say(await turn.run("before", trial.sure, "before"))
        await turn.say(await turn.run("work", trial.work, "work"))

    async with hosting(agent, data_dir=data_dir) as host:
        session_id, _ = await _failed(host)
        for _ in range(3):
            assert one(await _resumed(host, session_id), ev.TURN_FAILED)["code"] == "ACTION_FAILED"
        trial.is_broken = False
        last = await _resumed(host, session_id)
        assert _text(last) == "One. beforework"
        assert len(set(trial.ran)) == 2, "the same names in every turn of the chain"
        assert trial.names == ["before", *["work"] * 5]


async def test_the_attempts_of_each_turn_of_a_chain_are_told_apart() -> None:
    """The first turn was driven three times; the second is cut down once: its first attempt must not count twice."""
    begun = asyncio.Event()
    step = {"hangs": True, "fails": True}

    async def wait(page: str) -> str:
        if step["hangs"]:
            begun.set()
            await asyncio.Event().wait()
        if step["fails"]:
            raise ConnectionError(page)
        return page

    async def agent(turn: Turn) -> None:
        await turn.say("Hello. ")
        await turn.say(await turn.run("first", wait, "a"))
        await turn.say(" Here. ")
        await turn.say(await turn.run("second", wait, "b"))

    persistence = MemorySessionPersistence()
    session_id = ""
    for _ in range(3):
        async with crashing(agent, persistence=persistence) as host:
            session_id = session_id or (await host.start()).session_id
            await begun.wait()
            begun.clear()
    step["hangs"] = False
    async with crashing(agent, persistence=persistence) as host:
        await host.seen(session_id, ev.TURN_FAILED)
        step.update(hangs=True, fails=False)
        await host.store.resume(NOBODY, session_id)
        await begun.wait()
    step["hangs"] = False
    async with hosting(agent, persistence=persistence) as host:
        done = await host.seen(session_id, ev.MESSAGE_COMPLETED)
        assert done.data["message"] == "Hello. a Here. b"


async def test_side_by_side_actions_beside_a_failed_one_keep_their_results() -> None:
    trial = Trial()

    async def agent(turn: Turn) -> None:
        await turn.say("Go. ")
        done = await asyncio.gather(
            turn.run("a", trial.sure, "a"),
            turn.run("b", trial.work, "b"),
            turn.run("c", trial.sure, "c"),
            return_exceptions=True,
        )
        for found in done:
            if isinstance(found, ActionFailed):
                raise found
        await turn.say(", ".join(str(found) for found in done))

    async with hosting(agent) as host:
        session_id, failed = await _failed(host)
        assert failed["code"] == "ACTION_FAILED"
        trial.is_broken = False
        second = await _resumed(host, session_id)
        assert _text(second).endswith("a, b, c")
        assert sorted(trial.names) == ["a", "b", "b", "c"]


async def test_history_ends_before_the_turn_that_is_resumed_and_tells_its_message_once_afterwards(
    data_dir: Path,
) -> None:
    trial = Trial()
    told: list[list[dict[str, str]]] = []

    async def agent(turn: Turn) -> None:
        told.append(await turn.history())
        await turn.say("Said. ")
        if turn.message == "two":
            await turn.say(await turn.run("work", trial.work, "work"))

    async with hosting(agent, data_dir=data_dir) as host:
        session_id = (await host.start("one")).session_id
        await host.events(session_id)
        await host.settled(session_id)
        await host.follow_up(session_id, "two")
        await host.seen(session_id, ev.TURN_FAILED)
        trial.is_broken = False
        await _resumed(host, session_id)
        await host.settled(session_id)
        await host.follow_up(session_id, "three")
        await host.seen(session_id, ev.TURN_COMPLETED, 3)
        one_and_its_answer = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "Said. "}]
        assert told[1] == told[2] == one_and_its_answer
        assert told[3] == [
            *one_and_its_answer,
            {"role": "user", "content": "two"},
            {"role": "assistant", "content": "Said. work"},
        ]


async def test_the_state_of_a_resumed_turn_is_its_own_last_checkpoint(data_dir: Path) -> None:
    trial = Trial()
    seen: list[Any] = []

    async def agent(turn: Turn) -> None:
        seen.append(turn.state)
        if turn.state is None or turn.state.get("over"):
            await turn.run("before", trial.sure, "before")
            await turn.checkpoint({"at": 1})
        await turn.say(await turn.run("work", trial.work, "work"))
        await turn.checkpoint({"over": True})

    async with hosting(agent, data_dir=data_dir) as host:
        session_id, _ = await _failed(host)
        trial.is_broken = False
        await _resumed(host, session_id)
        await host.settled(session_id)
        assert seen == [None, {"at": 1}]
        assert trial.names == ["before", "work", "work"]
        await host.follow_up(session_id)
        await host.seen(session_id, ev.TURN_COMPLETED, 2)
        assert seen[2] == {"over": True}


async def test_a_turn_that_ended_otherwise_than_by_a_recoverable_failure_is_not_resumed() -> None:
    async def agent(turn: Turn) -> None:
        if turn.message == "park":
            await turn.approve("Sure?")

    async with hosting(agent) as host:
        session_id = (await host.start("done")).session_id
        await host.events(session_id)
        await host.settled(session_id)
        with pytest.raises(NothingToResume):
            await host.store.resume(NOBODY, session_id)
        await host.follow_up(session_id, "park")
        await host.asked(session_id)
        with pytest.raises(SessionBusy) as busy:
            await host.store.resume(NOBODY, session_id)
        assert busy.value.pending_request_ids
        await host.cancel(session_id)
        await host.settled(session_id)
        with pytest.raises(NothingToResume):
            await host.store.resume(NOBODY, session_id)
        await host.store.end(NOBODY, session_id, "completed", None)
        with pytest.raises(SessionTerminal):
            await host.store.resume(NOBODY, session_id)


async def test_only_the_last_turn_is_resumed() -> None:
    trial = Trial()

    async def agent(turn: Turn) -> None:
        if turn.message == "go":
            await turn.run("work", trial.work, "work")

    async with hosting(agent) as host:
        session_id, _ = await _failed(host)
        await host.follow_up(session_id, "fine")
        await host.seen(session_id, ev.TURN_COMPLETED)
        with pytest.raises(NothingToResume):
            await host.store.resume(NOBODY, session_id)


async def test_a_token_is_checked_when_it_is_given_and_rotates() -> None:
    trial = Trial()

    async def agent(turn: Turn) -> None:
        await turn.run("work", trial.work, "work")

    async with hosting(agent) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, ev.TURN_FAILED)
        with pytest.raises(ContinuationTokenStale):
            await host.store.resume(NOBODY, accepted.session_id, "zhin:other")
        again = await host.store.resume(NOBODY, accepted.session_id, accepted.token)
        assert again.token != accepted.token
        await host.settled(accepted.session_id)
        with pytest.raises(ContinuationTokenStale):
            await host.store.resume(NOBODY, accepted.session_id, accepted.token)
        third = await host.store.resume(NOBODY, accepted.session_id)
        assert third.token not in (accepted.token, again.token)
        await host.settled(accepted.session_id)


async def test_twins_that_resume_one_turn_make_one_turn_of_it() -> None:
    trial = Trial()

    async def agent(turn: Turn) -> None:
        await turn.run("work", trial.work, "work")
        await turn.approve("Stay?")

    async with hosting(agent) as host:
        session_id, _ = await _failed(host)
        trial.is_broken = False
        twins = await asyncio.gather(
            *(host.store.resume(NOBODY, session_id) for _ in range(20)), return_exceptions=True
        )
        assert sum(not isinstance(row, BaseException) for row in twins) == 1
        assert all(isinstance(row, SessionBusy) for row in twins if isinstance(row, BaseException))
