"""turns: one turn from its start to its end: how it completes, fails, is cancelled, is left behind, is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.hosting import NOBODY, Hosting, hosting, one, types
from tests.scripted_log import UnsteadyPersistence
from zhin_host import AttemptEnded, Turn, current_action, tool
from zhin_host import events as ev
from zhin_host.errors import IllegalMove, SessionBusy, SessionTerminal, StorageUnavailable

GONE = StorageUnavailable("the disk is gone")
END = ["turn.completed", "step.completed", "session.waiting"]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


async def ran(work: Callable[[Turn], Awaitable[Any]], **settings: Any) -> list[ev.Event]:
    """The events of a session whose agent is `work`."""

    async def agent(turn: Turn) -> None:
        await work(turn)

    async with hosting(agent, **settings) as host:
        accepted = await host.start()
        return await host.idle(accepted.session_id)


async def broken() -> None:
    raise ValueError("no")


async def forever() -> None:
    await asyncio.Event().wait()


@tool(approval="always", name="publish")
async def publish(page: str = "home") -> str:
    return page


# -- failing ---------------------------------------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot be said")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no"), "ValueError: no"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt: KeyboardInterrupt"),
        (asyncio.CancelledError(), "CancelledError: CancelledError"),
        (Unprintable(), "Unprintable: Unprintable"),
        (ValueError("\ud800" + "x" * 5000), "ValueError: \ufffd" + "x" * 1999),
    ],
    ids=["error", "exit", "interrupt", "cancelled", "unprintable", "long"],
)
async def test_whatever_an_agent_raises_ends_its_turn_as_failed_and_the_session_goes_on(
    error: BaseException, message: str
) -> None:
    async def agent(turn: Turn) -> None:
        await turn.say("half")
        if turn.message == "Hello":
            raise error

    async with hosting(agent) as host:
        accepted = await host.start()
        events = await host.idle(accepted.session_id)
        assert types(events)[4:] == [
            "message.appended",
            "turn.failed",
            "step.interrupted",
            "session.waiting",
        ]
        assert one(events, "turn.failed") == {
            "turnId": accepted.turn_id,
            "code": "AGENT_FAILED",
            "message": message,
            "recoverable": True,
        }
        assert one(events, "step.interrupted")["interruptKind"] == "failure"
        assert one(events, "session.waiting")["reason"] == "idle"
        follow_up = await host.follow_up(accepted.session_id)
        assert "turn.completed" in types(await host.idle(accepted.session_id, follow_up.start_index))


async def test_an_action_that_failed_uncaught_ends_the_turn_with_its_code_and_its_call() -> None:
    async def work(turn: Turn) -> None:
        await turn.run("broken", broken)

    events = await ran(work)
    assert one(events, "turn.failed") == {
        "turnId": one(events, "turn.started")["turnId"],
        "code": "ACTION_FAILED",
        "message": "broken failed: no",
        "recoverable": True,
        "callId": one(events, "action.result")["callId"],
    }


async def test_an_action_that_failed_in_a_task_group_is_found_in_the_bundle_and_its_siblings_are_cancelled() -> (
    None
):
    async def work(turn: Turn) -> None:
        async with asyncio.TaskGroup() as outer:
            outer.create_task(turn.run("forever", forever))
            async with asyncio.TaskGroup() as inner:
                inner.create_task(turn.run("broken", broken))

    events = await ran(work)
    results = {event.data["toolName"]: event.data for event in events if event.type == "action.result"}
    assert {name: data["status"] for name, data in results.items()} == {
        "broken": "failed",
        "forever": "cancelled",
    }
    failed = one(events, "turn.failed")
    assert (failed["code"], failed["callId"]) == ("ACTION_FAILED", results["broken"]["callId"])


async def test_a_bundle_without_an_error_of_the_turn_is_the_agents_failure() -> None:
    async def work(turn: Turn) -> None:
        raise ExceptionGroup("two", [ValueError("a"), ExceptionGroup("one", [KeyError("b")])])

    failed = one(await ran(work), "turn.failed")
    assert failed["code"] == "AGENT_FAILED"
    assert failed["message"].startswith("ExceptionGroup: two")


async def test_an_answer_whose_end_no_line_can_hold_fails_the_turn_and_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mistake of ours: every text has a form that fits the shortest line that may be set."""
    too_large = ev.Draft(ev.MESSAGE_COMPLETED, {"message": "x" * 9000, "finishReason": "stop"})
    monkeypatch.setattr(Turn, "completed_message", lambda _: too_large)

    async def work(turn: Turn) -> None:
        await turn.say("Hello")

    events = await ran(work, line_bytes_max=8192)
    failed = one(events, "turn.failed")
    assert (failed["code"], failed["recoverable"]) == ("AGENT_FAILED", True)
    assert "over the limit of 8192 bytes" in failed["message"]
    assert types(events)[-1] == "session.waiting"


async def test_a_turn_that_fails_closes_its_requests_and_leaves_its_calls_as_they_are() -> None:
    async def work(turn: Turn) -> None:
        tasks = [
            asyncio.ensure_future(turn.call_tool(publish)),
            asyncio.ensure_future(turn.authorize("mail")),
        ]
        await asyncio.sleep(0)
        kept.extend(tasks)
        raise ValueError("no")

    kept: list[asyncio.Future[Any]] = []
    events = await ran(work)
    tail = types(events)[types(events).index("authorization.required") + 3 :]
    assert sorted(tail[:2]) == ["authorization.completed", "input.completed"]
    assert tail[2:] == ["turn.failed", "step.interrupted", "session.waiting"]
    assert one(events, "input.completed")["outcome"] == "cancelled"
    closed = one(events, "authorization.completed")
    assert (closed["success"], closed["error"]) == (False, "cancelled")
    await asyncio.wait(kept, timeout=5)
    assert all(task.cancelled() for task in kept)


# -- the agent's own cancelling --------------------------------------------------------------------------------


async def test_a_time_limit_around_an_action_cancels_it_and_the_turn_goes_on() -> None:
    async def work(turn: Turn) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await turn.run("forever", forever)
        await turn.say("without it")

    events = await ran(work)
    assert types(events)[4:] == [
        "actions.requested",
        "action.result",
        "message.appended",
        "message.completed",
        *END,
    ]
    assert one(events, "action.result")["status"] == "cancelled"


async def test_a_time_limit_around_a_plain_function_does_not_wait_for_its_thread() -> None:
    may_go, has_ended = threading.Event(), threading.Event()

    def slow() -> str:
        may_go.wait(20)
        has_ended.set()
        return "late"

    async def work(turn: Turn) -> None:
        task = asyncio.ensure_future(turn.run("slow", slow))
        await started.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await turn.say("without it")

    started = asyncio.Event()

    async def agent(turn: Turn) -> None:
        await work(turn)

    async with hosting(agent) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "actions.requested")
        started.set()
        events = await host.idle(accepted.session_id)
        assert one(events, "action.result")["status"] == "cancelled"
        may_go.set()
        await asyncio.to_thread(has_ended.wait, 20)
        await asyncio.sleep(0)
        assert await host.idle(accepted.session_id) == events


async def test_a_cancelled_action_asked_for_again_runs_under_another_name() -> None:
    names: list[str] = []

    async def note() -> None:
        names.append(current_action().call_id)
        if len(names) == 1:
            await forever()

    async def work(turn: Turn) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await turn.run("note", note)
        await turn.run("note", note)

    events = await ran(work)
    assert [event.data["status"] for event in events if event.type == "action.result"] == [
        "cancelled",
        "completed",
    ]
    assert len(set(names)) == 2


# -- what a turn leaves unfinished -----------------------------------------------------------------------------


UNFINISHED: dict[str, Callable[[Turn], Awaitable[Any]]] = {
    "run": lambda turn: turn.run("forever", forever),
    "call_tool": lambda turn: turn.call_tool(publish),
    "approve": lambda turn: turn.approve("?"),
    "ask": lambda turn: turn.ask("?"),
    "authorize": lambda turn: turn.authorize("mail"),
}


@pytest.mark.parametrize("what", UNFINISHED)
async def test_what_an_agent_leaves_unfinished_is_cancelled_when_its_turn_completes(what: str) -> None:
    left: list[asyncio.Future[Any]] = []

    async def agent(turn: Turn) -> None:
        left.append(asyncio.ensure_future(UNFINISHED[what](turn)))
        await asyncio.sleep(0)
        await turn.say("bye")

    async with hosting(agent, leaves_tasks=what == "run") as host:
        accepted = await host.start()
        events = await host.idle(accepted.session_id)
        ended = types(events)[types(events).index("message.appended") + 1 :]
        closed = {
            "run": ["action.result"],
            "call_tool": ["input.completed", "action.result"],
            "authorize": ["authorization.completed"],
        }.get(what, ["input.completed"])
        assert ended == [*closed, "message.completed", *END]
        assert "step.resumed" not in types(events)
        if what == "run":
            left[0].cancel()
        await asyncio.wait(left, timeout=5)
        assert left[0].cancelled()  # and waits for nothing that could never come
        assert await host.idle(accepted.session_id) == events


async def test_what_an_agent_leaves_running_ends_in_silence_after_its_turn() -> None:
    may_go = asyncio.Event()
    left: list[asyncio.Future[Any]] = []

    async def slow() -> str:
        await may_go.wait()
        return "late"

    async def agent(turn: Turn) -> None:
        left.append(asyncio.ensure_future(turn.run("slow", slow)))
        await asyncio.sleep(0)

    async with hosting(agent) as host:
        accepted = await host.start()
        events = await host.idle(accepted.session_id)
        may_go.set()
        await asyncio.wait(left)
        with pytest.raises(AttemptEnded):
            left[0].result()
        assert await host.idle(accepted.session_id) == events


# -- ending the session ----------------------------------------------------------------------------------------


async def test_an_agent_may_end_its_session_with_the_turn() -> None:
    async def agent(turn: Turn) -> None:
        await turn.say("bye")
        await turn.end_session()

    async with hosting(agent) as host:
        accepted = await host.start()
        events = await host.events(accepted.session_id)
        assert types(events)[5:] == [
            "message.completed",
            "turn.completed",
            "step.completed",
            "session.completed",
        ]
        with pytest.raises(SessionTerminal):
            await host.follow_up(accepted.session_id)
        assert (await host.store.view(NOBODY, accepted.session_id))["status"] == "completed"


async def test_a_turn_that_fails_does_not_end_its_session_whatever_it_said_before() -> None:
    async def work(turn: Turn) -> None:
        await turn.end_session()
        raise ValueError("no")

    assert types(await ran(work))[-1] == "session.waiting"


# -- cancelling ------------------------------------------------------------------------------------------------


async def cancelled(host: Hosting, session_id: str) -> list[ev.Event]:
    assert await host.cancel(session_id) == "accepted"
    return await host.idle(session_id)


async def test_a_running_turn_that_is_cancelled_ends_so_and_the_session_goes_on() -> None:
    async def agent(turn: Turn) -> None:
        await turn.say("half")
        if turn.message == "Hello":
            await forever()

    async with hosting(agent) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "message.appended")
        events = await cancelled(host, accepted.session_id)
        assert types(events)[4:] == [
            "message.appended",
            "turn.cancelling",
            "turn.cancelled",
            "step.interrupted",
            "session.waiting",
        ]
        told = {"turnId": accepted.turn_id, "reason": "requested"}
        assert one(events, "turn.cancelling") == one(events, "turn.cancelled") == told
        assert one(events, "step.interrupted")["interruptKind"] == "cancelled"
        assert one(events, "session.waiting")["reason"] == "idle"
        await host.follow_up(accepted.session_id)
        assert "turn.completed" in types(await host.idle(accepted.session_id))


async def test_a_turn_cancelled_before_its_agent_has_begun_ends_so() -> None:
    async def agent(turn: Turn) -> None:
        pytest.fail("it ran")

    async with hosting(agent, cancel_grace_s=3600.0) as host:
        accepted = await host.start()
        runner = host.runner(accepted.session_id)
        assert not runner._has_begun
        assert types(await cancelled(host, accepted.session_id))[4:6] == ["turn.cancelling", "turn.cancelled"]


async def test_what_is_open_when_a_turn_is_cancelled_is_closed_before_its_end() -> None:
    async def agent(turn: Turn) -> None:
        await asyncio.gather(turn.call_tool(publish), turn.ask("?"), turn.run("forever", forever))

    async with hosting(agent) as host:
        accepted = await host.start()
        await host.asked(accepted.session_id, 2)
        await host.seen(accepted.session_id, "actions.requested", 2)
        events = await cancelled(host, accepted.session_id)
    tail = types(events)[types(events).index("turn.cancelling") + 1 :]
    assert tail[-3:] == ["turn.cancelled", "step.interrupted", "session.waiting"]
    assert sorted(tail[:-3]) == ["action.result", "action.result", "input.completed", "input.completed"]
    assert {event.data["status"] for event in events if event.type == "action.result"} == {"cancelled"}


async def test_cancelling_twice_is_cancelling_once() -> None:
    async def agent(turn: Turn) -> None:
        await forever()

    async with hosting(agent) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "message.received")
        assert [await host.cancel(accepted.session_id), await host.cancel(accepted.session_id)] == [
            "accepted",
            "accepted",
        ]
        events = await host.idle(accepted.session_id)
        assert types(events).count("turn.cancelling") == 1
        assert await host.cancel(accepted.session_id) == "no_active_turn"


async def test_only_the_turn_that_is_named_is_cancelled() -> None:
    async def agent(turn: Turn) -> None:
        await turn.ask("?")

    async with hosting(agent) as host:
        accepted = await host.start()
        await host.asked(accepted.session_id)
        assert await host.store.cancel(NOBODY, accepted.session_id, "turn_other") == "no_active_turn"
        assert await host.store.cancel(NOBODY, accepted.session_id, accepted.turn_id) == "accepted"
        await host.idle(accepted.session_id)
        assert await host.store.cancel(NOBODY, accepted.session_id, accepted.turn_id) == "no_active_turn"


@pytest.mark.parametrize("ending", ["returns", "raises", "goes on"])
async def test_an_agent_that_swallows_its_cancelling_ends_as_cancelled_all_the_same(ending: str) -> None:
    async def agent(turn: Turn) -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            if ending == "raises":
                raise ValueError("no") from None
            if ending == "goes on":
                await turn.say("but I am not done")

    async with hosting(agent) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "message.received")
        await asyncio.sleep(0)
        events = await cancelled(host, accepted.session_id)
    assert types(events)[4:] == ["turn.cancelling", "turn.cancelled", "step.interrupted", "session.waiting"]


async def test_a_plain_function_under_way_is_waited_for_and_its_value_recorded() -> None:
    may_go = threading.Event()

    def slow() -> str:
        may_go.wait(20)
        return "done after all"

    async def agent(turn: Turn) -> None:
        await turn.run("slow", slow)
        await turn.say("never said")

    async with hosting(agent) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "actions.requested")
        await host.cancel(accepted.session_id)
        with pytest.raises(SessionBusy):
            await host.follow_up(accepted.session_id)
        may_go.set()
        events = await host.idle(accepted.session_id)
    assert types(events)[5:8] == ["turn.cancelling", "action.result", "turn.cancelled"]
    assert one(events, "action.result")["output"] == "done after all"


async def test_an_action_that_fails_of_its_cancelling_has_no_result_of_its_own() -> None:
    async def stubborn() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            raise RuntimeError("interrupted") from None

    async def agent(turn: Turn) -> None:
        await turn.run("stubborn", stubborn)

    async with hosting(agent) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "actions.requested")
        await asyncio.sleep(0)
        events = await cancelled(host, accepted.session_id)
    assert one(events, "action.result")["status"] == "cancelled"


async def test_work_that_does_not_stop_in_its_time_is_left_behind_and_changes_nothing_any_more() -> None:
    may_go = threading.Event()
    outcomes: list[str] = []

    def slow() -> str:
        may_go.wait(20)
        return "late"

    async def agent(turn: Turn) -> None:
        if turn.message != "Hello":
            return
        try:
            await turn.run("slow", slow)
        except AttemptEnded:
            outcomes.append("ended")
            with contextlib.suppress(AttemptEnded):
                await turn.say("late")
            raise

    async with hosting(agent, cancel_grace_s=0.0) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "actions.requested")
        runner = host.runner(accepted.session_id)
        events = await cancelled(host, accepted.session_id)
        assert one(events, "action.result")["status"] == "cancelled"
        assert types(events)[-3:] == ["turn.cancelled", "step.interrupted", "session.waiting"]
        follow_up = await host.follow_up(accepted.session_id)
        events = await host.idle(accepted.session_id)
        assert outcomes == []
        may_go.set()
        await runner.settled()
        assert outcomes == ["ended"]
        assert await host.idle(accepted.session_id) == events
        assert one(events, "turn.completed")["turnId"] == follow_up.turn_id


async def test_work_left_behind_that_ends_at_last_wakes_nobody_who_waits_in_the_next_turn() -> None:
    may_go = asyncio.Event()

    async def agent(turn: Turn) -> None:
        if turn.message == "Hello":
            while not may_go.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await may_go.wait()
        else:
            await turn.say(str(await turn.ask("?")))

    async with hosting(agent, cancel_grace_s=0.0) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "message.received")
        await asyncio.sleep(0)
        runner = host.runner(accepted.session_id)
        await cancelled(host, accepted.session_id)
        await host.follow_up(accepted.session_id)
        (request,) = await host.asked(accepted.session_id)
        may_go.set()
        await runner.settled()
        await host.respond(accepted.session_id, request.request_id, "tea")
        assert one(await host.idle(accepted.session_id), "message.completed")["message"] == "tea"


async def test_a_turn_that_stops_just_in_time_is_not_ended_twice() -> None:
    async def agent(turn: Turn) -> None:
        await forever()

    async with hosting(agent, cancel_grace_s=3600.0) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "message.received")
        runner = host.runner(accepted.session_id)
        events = await cancelled(host, accepted.session_id)
        runner._leave_behind()
        await asyncio.sleep(0)
        assert await host.idle(accepted.session_id) == events


async def test_a_cancel_in_the_moment_the_turn_completes_finds_it_over_or_ends_it() -> None:
    for turns in range(8):

        async def agent(turn: Turn, turns: int = turns) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        async with hosting(agent) as host:
            accepted = await host.start()
            await asyncio.sleep(0)
            answer = await host.cancel(accepted.session_id)
            events = await host.idle(accepted.session_id)
        assert ("turn.cancelled" in types(events)) == (answer == "accepted")
        assert len({"turn.cancelled", "turn.completed"} & set(types(events))) == 1


async def test_a_queued_turn_cancelled_before_it_has_a_runner_does_not_run() -> None:
    """Its start stands in the batch of the end before, whose sync may take its time."""
    persistence = UnsteadyPersistence()
    may_end = asyncio.Event()

    async def agent(turn: Turn) -> None:
        assert turn.message == "Hello"
        await may_end.wait()

    async with hosting(agent, persistence=persistence) as host:
        accepted = await host.start()
        queued = await host.store.proceed(NOBODY, accepted.session_id, accepted.token, "next", "queue")
        persistence.hold_syncs()
        may_end.set()
        await host.seen(accepted.session_id, "turn.started", 2)
        cancelling = asyncio.create_task(host.cancel(accepted.session_id))
        await host.seen(accepted.session_id, "turn.cancelling")
        persistence.let_syncs_go()
        assert await cancelling == "accepted"
        events = await host.idle(accepted.session_id)
    assert one(events, "turn.cancelled")["turnId"] == queued.turn_id
    assert types(events)[-4:] == ["turn.cancelling", "turn.cancelled", "step.interrupted", "session.waiting"]


# -- storage that fails ----------------------------------------------------------------------------------------


async def test_a_turn_waits_for_storage_and_then_goes_on_as_if_nothing_had_been() -> None:
    persistence = UnsteadyPersistence()

    async def agent(turn: Turn) -> None:
        await turn.say("before ")
        await asyncio.sleep(0)
        persistence.append_error = GONE
        asyncio.get_running_loop().call_later(0.06, heal)
        await turn.run("fetch", lambda: 1)
        await turn.say("after")

    def heal() -> None:
        persistence.append_error = None

    async with hosting(agent, persistence=persistence) as host:
        events = await host.run()
    assert one(events, "message.completed")["message"] == "before after"


async def test_a_turn_that_ended_while_storage_was_away_is_cancelled_by_who_comes_first_when_it_is_back() -> (
    None
):
    """The end waits for its next try when the cancel is written: it must still be written."""
    persistence = UnsteadyPersistence()
    ended = asyncio.Event()

    async def agent(turn: Turn) -> None:
        persistence.append_error = GONE
        ended.set()

    async with hosting(agent, persistence=persistence) as host:
        accepted = await host.start()
        await ended.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        with pytest.raises(StorageUnavailable):
            await host.cancel(accepted.session_id)
        persistence.append_error = None
        assert await host.cancel(accepted.session_id) == "accepted"
        events = await host.idle(accepted.session_id)
    assert types(events)[4:] == ["turn.cancelling", "turn.cancelled", "step.interrupted", "session.waiting"]


async def test_a_turn_whose_sync_fails_waits_for_it_and_commands_are_refused_meanwhile() -> None:
    persistence = UnsteadyPersistence()

    async def agent(turn: Turn) -> None:
        persistence.sync_error = GONE
        await turn.checkpoint(1)
        await turn.say("saved")

    async with hosting(agent, persistence=persistence) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "checkpoint.saved")
        await asyncio.sleep(0)
        with pytest.raises(StorageUnavailable):
            await host.cancel(accepted.session_id)
        persistence.sync_error = None
        events = await host.idle(accepted.session_id)
    assert one(events, "message.completed")["message"] == "saved"


# -- stopping --------------------------------------------------------------------------------------------------


async def test_a_stop_lets_running_actions_end_and_leaves_the_turn_open() -> None:
    may_go, has_ended = asyncio.Event(), asyncio.Event()
    after: list[str] = []

    async def slow(name: str) -> str:
        await may_go.wait()
        if name == "slower":  # it ends when the agent's own task has
            await has_ended.wait()
            for _ in range(100):
                await asyncio.sleep(0)
        return name

    async def agent(turn: Turn) -> None:
        if turn.attempt > 1:
            return
        try:
            await asyncio.gather(turn.run("slow", slow, "slow"), turn.run("slower", slow, "slower"))
            after.append("went on")
        except asyncio.CancelledError:
            after.append("ended")
            has_ended.set()
            raise

    async with hosting(agent) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "actions.requested", 2)
        stopping = asyncio.create_task(host.host.stop())
        await asyncio.sleep(0)
        may_go.set()
        await stopping
        log = host.log(accepted.session_id)
    assert after == ["ended"]
    assert log.count(b'"status":"completed"') == 2
    assert b"turn.completed" not in log


async def test_a_stop_waits_no_longer_for_an_action_than_its_grace_time() -> None:
    async def agent(turn: Turn) -> None:
        await turn.run("forever", forever)

    async with hosting(agent, stop_grace_s=0.0) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "actions.requested")
        await host.host.stop()
        assert b"action.result" not in host.log(accepted.session_id)


async def test_a_stop_does_not_wait_for_an_agent_that_does_not_listen() -> None:
    may_go = asyncio.Event()

    async def agent(turn: Turn) -> None:
        while not may_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await may_go.wait()

    async with hosting(agent, stop_grace_s=0.0) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "message.received")
        await asyncio.sleep(0)
        runner = host.runner(accepted.session_id)
        await host.host.stop()
        log = host.log(accepted.session_id)
        may_go.set()
        await runner.settled()
        assert host.log(accepted.session_id) == log


async def test_a_stop_wakes_what_waits_for_people_and_leaves_their_requests_open() -> None:
    waiting: list[asyncio.Future[Any]] = []

    async def agent(turn: Turn) -> None:
        waiting.append(asyncio.ensure_future(turn.ask("?")))
        await turn.approve("?")

    async with hosting(agent) as host:
        accepted = await host.start()
        await host.asked(accepted.session_id, 2)
        await host.host.stop()
        assert b"input.completed" not in host.log(accepted.session_id)
        await asyncio.wait(waiting, timeout=5)
        assert waiting[0].cancelled()


async def test_a_stop_while_a_turns_end_waits_for_storage_leaves_the_turn_open_and_ends() -> None:
    persistence = UnsteadyPersistence()
    ended = asyncio.Event()

    async def agent(turn: Turn) -> None:
        persistence.append_error = GONE
        ended.set()

    async with hosting(agent, persistence=persistence) as host:
        accepted = await host.start()
        await ended.wait()
        await asyncio.sleep(0)
        await host.host.stop()
        assert b"turn.completed" not in host.log(accepted.session_id)


async def test_a_stop_while_a_turn_left_behind_waits_for_storage_ends_that_waiting_too() -> None:
    persistence = UnsteadyPersistence()
    may_go = asyncio.Event()

    async def agent(turn: Turn) -> None:
        while not may_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await may_go.wait()

    async with hosting(agent, persistence=persistence, cancel_grace_s=0.0, stop_grace_s=0.0) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "message.received")
        await asyncio.sleep(0)
        await host.cancel(accepted.session_id)
        persistence.append_error = GONE
        runner = host.runner(accepted.session_id)
        while runner._left is None:  # noqa: ASYNC110 - a timer of the loop sets it
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        await host.host.stop()
        may_go.set()
        await asyncio.sleep(0)


async def test_a_session_without_an_open_turn_cannot_be_run() -> None:
    async with hosting(obedient_words) as host:
        session_id = (await host.start()).session_id
        await host.idle(session_id)
        await host.settled(session_id)
        with pytest.raises(IllegalMove, match="no turn is open"):
            host.store._driver.begin(host.live(session_id))


async def obedient_words(turn: Turn) -> None:
    await turn.say("ok")


def test_an_agent_that_never_went_ends_with_the_loop_and_is_not_told_as_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR, "zhin_host")
    met: list[BaseException] = []

    async def agent(turn: Turn) -> None:
        while not met:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue
            except BaseException as error:
                met.append(error)
                raise

    async def leave() -> bytes:
        async with hosting(agent, stop_grace_s=0.0, leaves_tasks=True) as host:
            session_id = (await host.start()).session_id
            await host.seen(session_id, "message.received")
            await asyncio.sleep(0)
        return host.log(session_id)

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it says that a task was destroyed while it was pending
    log = loop.run_until_complete(leave())
    loop.close()
    gc.collect()
    assert [type(error) for error in met] == [GeneratorExit]
    assert b"turn.failed" not in log
    assert [record for record in caplog.records if record.name == "zhin_host.turns"] == []
