"""The reducer says of every prefix of a log what the host says, and says it however often events come."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import START_MS, LogBuilder, session_id_of
from tests.scripted_host import events_of
from tests.stories import STORIES, cancelled_result, cancelling, fail
from zhin_host import events as ev
from zhin_host.client import TurnView, View, fold
from zhin_host.client.pieces import Pieces
from zhin_host.fold import apply
from zhin_host.projector import projected_resume
from zhin_host.state import new_state

LOGS = {name: events_of(story()) for name, story in STORIES.items()}


def view_of(events: list[ev.Event]) -> View:
    return reduce(fold, events, View())


def last_turn(log: LogBuilder) -> TurnView:
    turn = view_of(events_of(log)).turn
    assert turn is not None
    return turn


def resumed(log: LogBuilder, **more: Any) -> LogBuilder:
    """The failed last turn is tried again."""
    failed, log._turns = log.turn_id, log._turns + 1
    data = {"turnId": log.turn_id, "continuationToken": log._next_token(), "resumes": failed, **more}
    return log.put(
        (ev.TURN_STARTED, data), (ev.MESSAGE_RECEIVED, {"turnId": log.turn_id, "message": "Hello"})
    )


def driven_again(log: LogBuilder) -> LogBuilder:
    """The host crashed, and its next one drives the open turn."""
    owed = projected_resume(log.state)
    return log.put((owed.type, dict(owed.data)))


# -- against the host's own fold -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STORIES)
def test_every_prefix_of_a_story_is_seen_as_the_host_sees_it(name: str) -> None:
    state, view = new_state(session_id_of(1)), View()
    for event in LOGS[name]:
        apply(state, event.type, event.data, event.timestamp_ms)
        view = fold(view, event)
        assert view.cursor == state.next_index
        assert view.continuation_token == state.token
        assert (view.status, view.is_parked) == (state.status, state.is_parked)
        assert [request.request_id for request in view.open_requests] == list(state.pending)
        assert [row.turn_id for row in view.queue] == [row["turnId"] for row in state.queue]
        turn = view.turn
        assert (None if turn is None or not turn.is_open else turn.turn_id) == (
            None if state.turn is None else state.turn.turn_id
        )


@pytest.mark.parametrize("name", STORIES)
def test_a_completed_turn_says_what_its_deltas_said(name: str) -> None:
    for turn in view_of(LOGS[name]).turns:
        if turn.status == "completed":
            assert turn.text == turn.said.text


# -- idempotence -----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.sampled_from(sorted(LOGS)), st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=6))
def test_overlapping_and_repeated_deliveries_fold_to_the_same_view(
    name: str, connections: list[tuple[float, float]]
) -> None:
    events, view = LOGS[name], View()
    for back, far in [*connections, (0, 1)]:  # each begins at a cursor that may be old, and breaks somewhere
        start = int(view.cursor * (1 - back))
        view = reduce(fold, events[start : start + round(far * len(events))], view)
    assert reduce(fold, events[view.cursor :], view) == view_of(events)


@settings(deadline=None)
@given(st.sampled_from(sorted(LOGS)))
def test_an_event_folded_twice_changes_nothing_at_all(name: str) -> None:
    view = View()
    for event in LOGS[name]:
        view = fold(view, event)
        assert fold(view, event) is view


@settings(deadline=None)
@given(st.sampled_from(sorted(LOGS)), st.data())
def test_a_view_may_begin_in_the_middle(name: str, data: st.DataObject) -> None:
    events = LOGS[name]
    start = data.draw(st.integers(0, len(events)))
    view = reduce(fold, events[start:], View(cursor=start))
    assert view.cursor == len(events)


def test_folding_leaves_the_view_before_as_it_was() -> None:
    views = [View()]
    for event in LOGS["an_approval"]:
        views.append(fold(views[-1], event))
    assert views == [view_of(LOGS["an_approval"][:count]) for count in range(len(views))]


# -- what does not count ---------------------------------------------------------------------------------------------


def test_what_a_further_attempt_discards_is_gone() -> None:
    log = LogBuilder().start().say("kept ").ask_approval("call_1").answer("call_1").say("lost")
    log.put((ev.REASONING_APPENDED, {"reasoningDelta": "lost too"}), ("x.note", {"n": 1}))
    before = last_turn(log)
    assert (before.text, before.reasoning, len(before.own)) == ("kept lost", "lost too", 1)
    turn = last_turn(driven_again(log))
    assert (turn.text, turn.reasoning, turn.own, turn.attempt) == ("kept ", "", (), 2)
    assert [call.call_id for call in turn.calls] == ["call_1"]
    log.result("call_1").say("new").finish("kept new")
    assert last_turn(log).text == last_turn(log).said.text == "kept new"


def test_a_message_completed_that_is_discarded_is_not_the_text() -> None:
    turn = TurnView("turn_1", final=(7, "all of it"), said=Pieces().add(3, "kept").add(6, "lost"))
    data = {"stepId": "step_1", "turnId": "turn_1", "attempt": 2, "discardFrom": 5}
    event = ev.Event(8, ev.STEP_RESUMED, START_MS, data, b"")
    view = fold(View(turns=(turn,), cursor=8), event)
    assert view.turns[0].text == "kept"


def test_a_call_that_was_discarded_and_is_asked_for_again_is_there_once() -> None:
    log = driven_again(LogBuilder().start().call("call_1").say("lost"))
    assert last_turn(log).calls == ()
    log.call("call_1").result("call_1")
    assert [(call.call_id, call.status) for call in last_turn(log).calls] == [("call_1", "completed")]


def test_a_call_that_was_given_up_and_is_asked_for_again_begins_anew() -> None:
    log = LogBuilder().start().call("call_1").call("call_2").result("call_2")
    log.put(cancelled_result("call_1")).call("call_1")
    assert [(call.call_id, call.status) for call in last_turn(log).calls] == [
        ("call_2", "completed"),
        ("call_1", "running"),
    ]


def test_a_resumed_turn_begins_with_what_counts_of_the_failed_one() -> None:
    log = LogBuilder().start().say("kept ").call("call_1").result("call_1").say("lost").call("call_2")
    at = next(event.index for event in events_of(log) if event.data.get("messageDelta") == "lost")
    log.result("call_2", "failed")
    code, data = fail(log)
    log.put((code, {**data, "callId": "call_2"}))
    failed = log.turn_id
    resumed(log, discardFrom=at)
    log.say("again").finish("kept again")
    old, new = view_of(events_of(log)).turns
    assert (old.turn_id, old.status, old.resumed_by, old.text) == (failed, "failed", log.turn_id, "kept ")
    assert (new.resumes, new.message, new.status) == (failed, "Hello", "completed")
    assert new.text == new.said.text == "kept again"
    assert [(call.call_id, call.status) for call in new.calls] == [("call_1", "completed")]


def test_the_call_that_failed_the_turn_runs_again_when_it_is_resumed() -> None:
    log = LogBuilder().start().call("call_1").result("call_1", "failed")
    code, data = fail(log)
    log.put((code, {**data, "callId": "call_1"}))
    assert last_turn(log).calls[0].status == "failed"
    resumed(log)
    [call] = last_turn(log).calls
    assert (call.status, call.error) == ("running", None)


# -- what is shown ---------------------------------------------------------------------------------------------------


def test_a_failed_turn_says_code_and_reason_and_the_session_goes_on() -> None:
    log = LogBuilder().start().put(fail(LogBuilder().start()))
    log.follow_up().say("ok").finish("ok")
    failed, good = view_of(events_of(log)).turns
    assert (failed.status, failed.code, failed.reason, failed.is_recoverable) == (
        "failed", "AGENT_FAILED", "it broke", True,
    )  # fmt: skip
    assert (good.status, good.text) == ("completed", "ok")


def test_a_call_shows_its_tries_and_its_result() -> None:
    [first, second] = view_of(LOGS["actions"]).turns[0].calls
    assert (first.status, first.attempt, first.error["code"]) == ("failed", 2, "ACTION_FAILED")
    assert (second.status, second.input, second.output) == ("completed", {"url": "b"}, "done")


def test_requests_show_what_is_asked_and_how_it_ended() -> None:
    log = LogBuilder().start().ask_approval("call_1", page="home")
    [request] = view_of(events_of(log)).open_requests
    assert (request.prompt, request.kind, request.data["args"]) == (
        "Run publish?",
        "approval",
        {"page": "home"},
    )
    view = view_of(events_of(log.answer("call_1", "denied")))
    assert view.open_requests == ()
    assert view.turns[0].requests[0].outcome == "denied"
    side_by_side = view_of(LOGS["requests_side_by_side"]).turns[0].requests
    assert [request.outcome for request in side_by_side] == ["answered", "approved", "success"]
    given_up = view_of(LOGS["a_request_given_up"]).turns[0].requests
    assert [request.outcome for request in given_up] == ["cancelled", "cancelled"]


def test_a_cancelled_turn_is_cancelling_first() -> None:
    log = LogBuilder().start().say("half")
    log.put(cancelling(log))
    assert last_turn(log).status == "cancelling"
    [turn] = view_of(LOGS["a_cancelled_turn"]).turns
    assert (turn.status, turn.text) == ("cancelled", "half")


def test_a_text_that_fits_no_line_is_what_its_deltas_say() -> None:
    log = LogBuilder().start().say("a" * 10, "b" * 10)
    log.put((ev.MESSAGE_COMPLETED, {
        "message": "a" * 10, "finishReason": "stop", "truncated": True, "messageBytes": 20, "messageSha256": "",
    }))  # fmt: skip
    assert last_turn(log).text == "a" * 10 + "b" * 10


def test_types_that_are_not_known_yet_change_nothing_but_the_cursor() -> None:
    view = view_of(LOGS["a_plain_turn"][:5])
    after = fold(view, ev.Event(5, "weather.changed", START_MS, {}, b""))
    assert (after.cursor, after.turns) == (6, view.turns)


def test_an_ended_session_says_how() -> None:
    assert view_of(LOGS["a_session_that_ends_itself"]).status == "completed"
    failed = view_of(LOGS["a_session_failed_at_rest"])
    assert (failed.status, failed.failure) == ("failed", ("ENDED", "enough"))


# -- pieces ----------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.text(max_size=3), max_size=60), st.integers(0, 60))
def test_pieces_are_the_deltas_in_order_and_are_cut_at_any_index(deltas: list[str], at: int) -> None:
    pieces = Pieces()
    for index, delta in enumerate(deltas):
        pieces = pieces.add(index, delta)
    assert pieces.text == "".join(deltas)
    assert pieces.before(at).text == "".join(deltas[:at])
    assert pieces.before(at).add(99, "end").text == "".join(deltas[:at]) + "end"


def test_a_hundred_thousand_deltas_lie_in_few_blocks() -> None:
    pieces = Pieces()
    for index in range(100_000):
        pieces = pieces.add(index, "x")
    assert len(pieces.blocks) <= 17
    assert len(pieces.text) == 100_000
