"""Busy sessions: messages that wait for their turn or interrupt it, and what a cancel reaches."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.hosting import NOBODY, Hosting, decoded, hosting, last, one, stored, types
from zhin_host import Turn
from zhin_host import events as ev
from zhin_host.clock import SessionId
from zhin_host.errors import ContinuationTokenStale, SessionBusy
from zhin_host.intake import Accepted
from zhin_host.storage.memory import MemorySessionPersistence


class Scripted:
    """An agent whose message says what it does; `go` lets what waits go on."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun = asyncio.Event()

    async def wait(self) -> str:
        self.begun.set()
        await self.go.wait()
        return "waited"

    async def __call__(self, turn: Turn) -> None:
        await turn.say(f"{turn.message}: ")
        match turn.message:
            case "wait":
                await turn.say(await turn.run("wait", self.wait))
            case "park":
                await turn.say(str(await turn.approve("Sure?")))
            case "fail":
                raise RuntimeError("no idea")
            case "end":
                await turn.say(await turn.run("wait", self.wait))
                await turn.end_session()
            case _:
                pass


async def _post(host: Hosting, session_id: str, message: str, on_busy: Any = "queue") -> Accepted:
    """A follow-up with the token in force."""
    token = host.live(session_id).state.token
    return await host.store.proceed(NOBODY, session_id, token, message, on_busy)


def _log(host: Hosting, session_id: str) -> list[ev.Event]:
    return decoded(session_id, host.log(session_id))


def _received(events: list[ev.Event]) -> list[str]:
    return [row.data["message"] for row in events if row.type == ev.MESSAGE_RECEIVED]


# -- the queue -----------------------------------------------------------------------------------------------------


async def test_queued_messages_have_their_turns_in_order_with_the_tokens_they_were_given(
    data_dir: Path,
) -> None:
    agent = Scripted()
    async with hosting(agent, data_dir=data_dir) as host:
        first = await host.start("wait")
        await agent.begun.wait()
        queued = [await _post(host, first.session_id, f"m{number}") for number in range(5)]
        assert all(row.is_queued for row in queued)
        assert len({first.token, *(row.token for row in queued)}) == 6
        waiting = _log(host, first.session_id)
        for row in queued:
            assert waiting[row.start_index].type == ev.MESSAGE_QUEUED
            assert waiting[row.start_index].data["turnId"] == row.turn_id
            assert waiting[row.start_index].data["continuationToken"] == row.token
        agent.go.set()
        events = await host.events(first.session_id)
        assert _received(events) == ["wait", "m0", "m1", "m2", "m3", "m4"]
        turns = [row.data for row in events if row.type == ev.TURN_STARTED]
        assert [row["turnId"] for row in turns[1:]] == [row.turn_id for row in queued]
        assert {row["continuationToken"] for row in turns[1:]} == {queued[-1].token}
        assert last(events)["continuationToken"] == queued[-1].token
        assert [row.data.get("queued") for row in events if row.type == ev.SESSION_WAITING] == [
            5,
            4,
            3,
            2,
            1,
            None,
        ]


async def test_a_waiting_before_a_queued_turn_is_no_boundary_and_a_parked_one_is() -> None:
    agent = Scripted()
    async with hosting(agent) as host:
        first = await host.start("wait")
        await agent.begun.wait()
        await _post(host, first.session_id, "park")
        await _post(host, first.session_id, "last")
        reading = asyncio.create_task(host.events(first.session_id))
        await asyncio.sleep(0)
        agent.go.set()
        events = await reading
        assert (last(events)["reason"], last(events)["queued"]) == ("parked", 1)
        assert _received(events) == ["wait", "park"]
        (request,) = await host.asked(first.session_id)
        view = await host.store.view(NOBODY, first.session_id)
        assert (view["status"], view["parked"]) == ("waiting", True)
        await host.approve(first.session_id, request.request_id)
        events = await host.events(first.session_id, events[-1].index + 1)
        assert (last(events)["reason"], last(events).get("queued")) == ("idle", None)
        assert _received(events) == ["last"]


async def test_a_queue_is_bounded() -> None:
    agent = Scripted()
    async with hosting(agent) as host:
        first = await host.start("wait")
        await agent.begun.wait()
        for number in range(16):
            await _post(host, first.session_id, f"m{number}")
        for on_busy in ("queue", "interrupt"):
            with pytest.raises(SessionBusy):
                await _post(host, first.session_id, "one more", on_busy)
        assert ev.TURN_CANCELLING not in types(_log(host, first.session_id))
        agent.go.set()
        events = await host.events(first.session_id)
        assert len(_received(events)) == 17


async def test_queueing_rotates_the_token() -> None:
    agent = Scripted()
    async with hosting(agent) as host:
        first = await host.start("wait")
        await agent.begun.wait()
        await host.store.proceed(NOBODY, first.session_id, first.token, "m", "queue")
        with pytest.raises(ContinuationTokenStale):
            await host.store.proceed(NOBODY, first.session_id, first.token, "m", "queue")
        agent.go.set()
        await host.events(first.session_id)
        await host.settled(first.session_id)


@pytest.mark.parametrize("on_busy", ["reject", "queue", "interrupt"])
async def test_a_session_at_rest_is_not_busy(on_busy: str) -> None:
    async with hosting(Scripted()) as host:
        first = await host.start("one")
        await host.settled(first.session_id)
        second = await _post(host, first.session_id, "two", on_busy)
        assert not second.is_queued
        await host.settled(first.session_id)
        assert ev.MESSAGE_QUEUED not in types(_log(host, first.session_id))


@pytest.mark.parametrize("ending", ["fail", "cancel"])
async def test_a_queued_turn_begins_however_the_one_before_ends(ending: str) -> None:
    agent = Scripted()
    async with hosting(agent) as host:
        first = await host.start("wait")
        await agent.begun.wait()
        await _post(host, first.session_id, "fail")
        await _post(host, first.session_id, "park")
        await _post(host, first.session_id, "last")
        if ending == "cancel":
            await host.cancel(first.session_id)
        agent.go.set()
        (request,) = await host.asked(first.session_id)
        await host.cancel(first.session_id)
        done = await host.seen(first.session_id, ev.MESSAGE_RECEIVED, 1, request.index)
        assert done.data["message"] == "last"
        await host.events(first.session_id, done.index)
        everything = _log(host, first.session_id)
        ends = [
            row.type
            for row in everything
            if row.type in (ev.TURN_COMPLETED, ev.TURN_FAILED, ev.TURN_CANCELLED)
        ]
        first_end = ev.TURN_CANCELLED if ending == "cancel" else ev.TURN_COMPLETED
        assert ends == [first_end, ev.TURN_FAILED, ev.TURN_CANCELLED, ev.TURN_COMPLETED]


async def test_a_failed_turn_before_a_queued_one_is_not_resumed() -> None:
    agent = Scripted()
    async with hosting(agent) as host:
        first = await host.start("wait")
        await agent.begun.wait()
        await _post(host, first.session_id, "fail")
        await _post(host, first.session_id, "park")
        agent.go.set()
        (request,) = await host.asked(first.session_id)
        with pytest.raises(SessionBusy):
            await host.store.resume(NOBODY, first.session_id)
        await host.approve(first.session_id, request.request_id)
        await host.seen(first.session_id, ev.TURN_COMPLETED, 2)


async def test_ending_the_session_drops_the_queue_and_says_which_turns() -> None:
    agent = Scripted()
    async with hosting(agent) as host:
        first = await host.start("end")
        await agent.begun.wait()
        queued = [await _post(host, first.session_id, f"m{number}") for number in range(2)]
        agent.go.set()
        events = await host.events(first.session_id)
        assert types(events)[-1] == ev.SESSION_COMPLETED
        assert last(events)["droppedTurnIds"] == [row.turn_id for row in queued]
        assert _received(events) == ["end"]


@pytest.mark.parametrize("is_left_behind", [False, True])
async def test_a_turn_that_is_cancelled_after_it_ended_its_session_has_not_and_the_queue_goes_on(
    *, is_left_behind: bool
) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def agent(turn: Turn) -> None:
        if turn.message != "end":
            return
        await turn.end_session()
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # it does not mind
            if is_left_behind:
                await release.wait()

    async with hosting(agent, cancel_grace_s=0) as host:
        first = await host.start("end")
        await begun.wait()
        await _post(host, first.session_id, "next")
        await host.cancel(first.session_id)
        await host.seen(first.session_id, ev.TURN_COMPLETED)
        release.set()
        events = await host.events(first.session_id)
        assert types(events).count(ev.TURN_CANCELLED) == 1
        assert _received(events) == ["end", "next"]


async def test_a_session_with_a_queued_message_is_not_deleted() -> None:
    agent = Scripted()
    async with hosting(agent) as host:
        first = await host.start("wait")
        await agent.begun.wait()
        await _post(host, first.session_id, "next")
        with pytest.raises(SessionBusy):
            await host.store.delete(NOBODY, first.session_id)
        agent.go.set()
        await host.events(first.session_id)
        await host.settled(first.session_id)
        await host.store.delete(NOBODY, first.session_id)


# -- interrupt -----------------------------------------------------------------------------------------------------


async def test_an_interrupting_message_cancels_and_is_queued_in_one_batch_behind_those_already_there() -> (
    None
):
    agent = Scripted()
    async with hosting(agent) as host:
        first = await host.start("wait")
        await agent.begun.wait()
        await _post(host, first.session_id, "queued before")
        second = await _post(host, first.session_id, "interrupting", "interrupt")
        events = await host.events(first.session_id)
        at = types(events).index(ev.TURN_CANCELLING)
        assert events[at].data == {"turnId": first.turn_id, "reason": "interrupted"}
        assert events[at + 1].type == ev.MESSAGE_QUEUED
        assert second.start_index == at + 1
        assert second.is_queued
        assert one(events, ev.TURN_CANCELLED)["reason"] == "interrupted"
        assert _received(events) == ["wait", "queued before", "interrupting"]


async def test_a_second_interruption_cancels_nothing_twice() -> None:
    stuck = asyncio.Event()

    async def agent(turn: Turn) -> None:
        if turn.message != "stuck":
            return
        try:
            await asyncio.Event().wait()
        finally:
            await stuck.wait()

    async with hosting(agent) as host:
        first = await host.start("stuck")
        await host.seen(first.session_id, ev.MESSAGE_RECEIVED)
        await _post(host, first.session_id, "one", "interrupt")
        await _post(host, first.session_id, "two", "interrupt")
        assert await host.cancel(first.session_id) == "accepted"
        assert (await host.store.view(NOBODY, first.session_id))["status"] == "running"
        with pytest.raises(SessionBusy):
            await _post(host, first.session_id, "three", "reject")
        stuck.set()
        events = await host.events(first.session_id)
        assert types(events).count(ev.TURN_CANCELLING) == 1
        assert _received(events) == ["stuck", "one", "two"]


async def test_what_an_agent_says_while_it_is_interrupted_stands_before_the_interruption() -> None:
    async def agent(turn: Turn) -> None:
        while turn.message == "chatter":
            await turn.say("x")
            await asyncio.sleep(0)

    async with hosting(agent) as host:
        first = await host.start("chatter")
        await host.seen(first.session_id, ev.MESSAGE_APPENDED, 3)
        second = await _post(host, first.session_id, "enough", "interrupt")
        events = await host.events(first.session_id)
        assert events[second.start_index].type == ev.MESSAGE_QUEUED
        assert events[second.start_index - 1].type == ev.TURN_CANCELLING


# -- cancel --------------------------------------------------------------------------------------------------------


async def test_a_cancel_reaches_the_running_action_and_leaves_the_queue() -> None:
    agent = Scripted()
    reached: list[str] = []

    async def work() -> None:
        agent.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            reached.append("work")
            raise

    async def working(turn: Turn) -> None:
        if turn.message == "work":
            await turn.run("work", work)

    async with hosting(working) as host:
        first = await host.start("work")
        await agent.begun.wait()
        second = await _post(host, first.session_id, "next")
        assert await host.store.cancel(NOBODY, first.session_id, second.turn_id) == "no_active_turn"
        assert await host.store.cancel(NOBODY, first.session_id, first.turn_id) == "accepted"
        events = await host.events(first.session_id)
        assert reached == ["work"]
        assert one(events, ev.ACTION_RESULT)["status"] == "cancelled"
        assert _received(events) == ["work", "next"]
        assert await host.cancel(first.session_id) == "no_active_turn"


async def test_a_late_result_opens_nothing() -> None:
    begun, release, returned = threading.Event(), threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        release.wait(10)
        returned.set()
        return "late"

    async def agent(turn: Turn) -> None:
        if turn.message == "work":
            await turn.say(await turn.run("work", work))

    async with hosting(agent, cancel_grace_s=0, leaves_tasks=True) as host:
        first = await host.start("work")
        await asyncio.to_thread(begun.wait, 10)
        await _post(host, first.session_id, "next")
        await host.cancel(first.session_id)
        events = await host.events(first.session_id)
        assert types(events).count(ev.TURN_CANCELLED) == 1
        before = host.log(first.session_id)
        release.set()
        await asyncio.to_thread(returned.wait, 10)
        for _ in range(20):
            await asyncio.sleep(0)
        assert host.log(first.session_id) == before
        assert one(events, ev.ACTION_RESULT)["status"] == "cancelled"


async def test_a_session_is_busy_until_the_cancelled_turn_has_settled() -> None:
    stuck, begun = asyncio.Event(), asyncio.Event()

    async def agent(turn: Turn) -> None:
        if turn.message != "stuck":
            return
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await stuck.wait()

    async with hosting(agent) as host:
        first = await host.start("stuck")
        await begun.wait()
        await host.cancel(first.session_id)
        assert (await host.store.view(NOBODY, first.session_id))["turn"]["cancelling"] is True
        for refused in (
            _post(host, first.session_id, "x", "reject"),
            host.store.resume(NOBODY, first.session_id),
        ):
            with pytest.raises(SessionBusy):
                await refused
        with pytest.raises(SessionBusy):
            await host.store.delete(NOBODY, first.session_id)
        with pytest.raises(SessionBusy):
            await host.store.end(NOBODY, first.session_id, "failed", None)
        stuck.set()
        assert last(await host.events(first.session_id))["reason"] == "idle"
        await host.settled(first.session_id)
        assert not (await _post(host, first.session_id, "x", "reject")).is_queued
        await host.settled(first.session_id)


# -- over restarts -------------------------------------------------------------------------------------------------


async def _scripted(host: Hosting, agent: Scripted) -> str:
    """A session that queues, parks, interrupts, fails and is cancelled; its id."""
    session_id = (await host.start("wait")).session_id
    await agent.begun.wait()
    for message in ("park", "fail", "park"):
        await _post(host, session_id, message)
    agent.go.set()
    (request,) = await host.asked(session_id)
    await _post(host, session_id, "after")
    await host.approve(session_id, request.request_id)
    await host.asked(session_id, 2)
    await _post(host, session_id, "interrupting", "interrupt")
    await host.seen(session_id, ev.TURN_COMPLETED, 4)
    await host.settled(session_id)
    return session_id


@pytest.mark.timeout(120)
async def test_a_session_with_a_queue_cut_down_anywhere_has_every_turn_in_order() -> None:
    agent = Scripted()
    async with hosting(agent) as host:
        session_id = await _scripted(host, agent)
        whole = host.log(session_id)
    lines = whole.splitlines(keepends=True)
    events = decoded(session_id, whole)
    for count in range(4, len(lines) + 1):
        before = events[:count]
        persistence = MemorySessionPersistence()
        persistence._logs[SessionId(session_id)] = bytearray(b"".join(lines[:count]))
        persistence._marks[SessionId(session_id)] = "running"
        async with hosting(agent, persistence=persistence) as host:
            await _answered_until_rest(host, session_id)
        after = decoded(session_id, stored(persistence, session_id))
        accepted = ["wait", *(row.data["message"] for row in before if row.type == ev.MESSAGE_QUEUED)]
        assert _received(after) == accepted, count
        is_cancelled = any(row.type == ev.TURN_CANCELLING for row in before)
        assert types(after).count(ev.TURN_CANCELLED) == is_cancelled, count
        ends = [row for row in after if row.type in ev.TURN_ENDS]
        assert len(ends) == len(accepted), count
        assert last(after)["reason"] == "idle"


async def _answered_until_rest(host: Hosting, session_id: str) -> None:
    async with asyncio.timeout(20):
        while True:
            view = await host.store.view(NOBODY, session_id)
            for request_id in view["pendingRequestIds"]:
                await host.approve(session_id, request_id)
            if view["status"] == "waiting" and not view["parked"]:
                return
            await host.content(session_id, view["cursor"])
