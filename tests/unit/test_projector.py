"""projector: what follows of itself, live and after a cut, and the order of events of contract section 1."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.builders import LogBuilder, session_id_of, token_of
from tests.stories import (
    STORIES,
    answer,
    ask,
    authorized,
    cancelled,
    cancelled_result,
    cancelling,
    completed,
    fail,
    need,
)
from zhin_host import events as ev
from zhin_host.fold import apply
from zhin_host.moves import check
from zhin_host.projector import HttpStepProjector, step_id_of
from zhin_host.state import new_state

PROJECT = HttpStepProjector()


def told(builder: LogBuilder) -> list[tuple[str, dict[str, Any]]]:
    """Type and data of every event."""
    link = ev.chain_start(builder.session_id)
    rows: list[tuple[str, dict[str, Any]]] = []
    for line in builder.lines:
        event = ev.decode_line(line[:-1], link)
        link = event.sum
        rows.append((event.type, event.data))
    return rows


def short(builder: LogBuilder) -> list[str]:
    """Types, with what tells two of a kind apart."""
    return [
        kind if kind != ev.SESSION_WAITING else f"{kind}({data['reason']})" for kind, data in told(builder)
    ]


def test_a_turn_is_told_in_the_order_of_the_contract() -> None:
    assert short(STORIES["a_plain_turn"]()) == [
        "session.started",
        "turn.started",
        "step.started",
        "message.received",
        "message.appended",
        "message.appended",
        "message.completed",
        "turn.completed",
        "step.completed",
        "session.waiting(idle)",
    ]


def test_an_approval_is_told_in_the_order_of_the_contract() -> None:
    assert short(STORIES["an_approval"]())[4:] == [
        "actions.requested",
        "input.requested",
        "step.interrupted",
        "session.waiting(parked)",
        "input.completed",
        "step.resumed",
        "action.result",
        "message.completed",
        "turn.completed",
        "step.completed",
        "session.waiting(idle)",
    ]


def test_each_of_several_requests_interrupts_and_the_last_answer_resumes() -> None:
    assert short(STORIES["requests_side_by_side"]())[4:18] == [
        *["input.requested", "step.interrupted", "session.waiting(parked)"] * 2,
        "authorization.required",
        "step.interrupted",
        "session.waiting(parked)",
        "input.completed",
        "message.appended",
        "input.completed",
        "authorization.completed",
        "step.resumed",
    ]


def test_a_failure_is_told_in_the_order_of_the_contract_and_the_session_goes_on() -> None:
    builder = LogBuilder().start()
    assert short(builder.put(fail(builder)))[4:] == [
        "turn.failed",
        "step.interrupted",
        "session.waiting(idle)",
    ]
    assert builder.state.terminal is None
    builder.follow_up()


def test_a_turn_that_fails_closes_its_requests_first_and_resumes_nothing() -> None:
    assert short(STORIES["a_failure_with_work_open"]())[-4:] == [
        "input.completed",
        "turn.failed",
        "step.interrupted",
        "session.waiting(idle)",
    ]


def test_a_cancel_is_told_in_the_order_of_the_contract() -> None:
    assert short(STORIES["cancelled_while_parked"]())[-6:] == [
        "turn.cancelling",
        "input.completed",
        "input.completed",
        "turn.cancelled",
        "step.interrupted",
        "session.waiting(idle)",
    ]


def test_a_session_that_ends_itself_waits_for_nobody() -> None:
    assert short(STORIES["a_session_that_ends_itself"]())[-4:] == [
        "message.completed",
        "turn.completed",
        "step.completed",
        "session.completed",
    ]


def test_a_restart_leaves_the_session_interrupted() -> None:
    builder = LogBuilder().start()
    assert short(builder.put(fail(builder, "HOST_RESTARTED")))[4:] == [
        "turn.failed",
        "step.interrupted",
        "session.waiting(interrupted)",
    ]
    assert told(builder)[-2][1]["interruptKind"] == "restart"
    assert told(builder)[-1][1]["continuationToken"] == builder.state.token


def test_a_request_given_up_resumes_the_step_when_the_turn_goes_on() -> None:
    builder = LogBuilder().start().put(ask("r1"), need("r2"))
    builder.put(answer("r1", "cancelled"))
    assert short(builder)[-1] == "input.completed"  # another is still open
    builder.put(authorized("r2", success=False, error="cancelled"))
    assert short(builder)[-2:] == ["authorization.completed", "step.resumed"]


def test_a_request_given_up_by_the_turns_end_resumes_nothing() -> None:
    assert short(STORIES["given_up_at_the_end"]())[-6:] == [
        "input.completed",
        "action.result",
        "message.completed",
        "turn.completed",
        "step.completed",
        "session.waiting(idle)",
    ]


def test_an_answer_that_is_no_giving_up_resumes_even_before_the_turns_end() -> None:
    builder = LogBuilder().start().put(ask("r1"))
    builder.put(answer("r1", "expired"), fail(builder, "REQUEST_EXPIRED"))
    assert short(builder)[-5:-2] == ["input.completed", "step.resumed", "turn.failed"]


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (ask("r1", "approval"), "approval"),
        (ask("r1", "retry"), "approval"),
        (ask("r1"), "input"),
        (need("r1"), "authorization"),
    ],
)
def test_an_interruption_names_its_request_and_its_kind(row: Any, kind: str) -> None:
    builder = LogBuilder().start().put(row)
    interrupted = told(builder)[-2][1]
    assert interrupted == {
        "stepId": step_id_of(builder.turn_id),
        "turnId": builder.turn_id,
        "status": "interrupted",
        "interruptKind": kind,
        "requestId": "r1",
    }


def test_a_boundary_says_why_with_which_token_and_for_whom() -> None:
    builder = LogBuilder().start().put(ask("r1"), ask("r2"))
    assert told(builder)[-1][1] == {
        "sessionId": session_id_of(1),
        "continuationToken": token_of(1),
        "parked": True,
        "reason": "parked",
        "pendingRequestIds": ["r1", "r2"],
        "steps": list(builder.state.steps),
    }


def test_a_boundary_with_messages_queued_says_how_many() -> None:
    builder = LogBuilder().start()
    row = {"turnId": "turn_q", "message": "m", "continuationToken": token_of(9)}
    builder.put((ev.MESSAGE_QUEUED, row)).finish("")
    assert told(builder)[-1][1]["queued"] == 1
    assert told(builder)[-1][1]["reason"] == "idle"


def test_a_live_answer_keeps_the_attempt_and_discards_nothing() -> None:
    builder = LogBuilder().start().put(ask("r1")).say("a").put(answer("r1"))
    step = step_id_of(builder.turn_id)
    assert told(builder)[-1] == (ev.STEP_RESUMED, {"stepId": step, "turnId": builder.turn_id, "attempt": 1})


def test_a_redrive_counts_on_and_says_from_where_on_nothing_counts() -> None:
    builder = LogBuilder().start().put(ask("r1"), ask("r2")).put(answer("r1"))
    at = builder.state.next_index
    builder.say("lost").put(answer("r2", "cancelled"), is_live=False)
    assert told(builder)[-1][1]["attempt"] == 2
    assert told(builder)[-1][1]["discardFrom"] == at


def test_a_redrive_with_nothing_to_discard_says_nothing_of_it() -> None:
    builder = LogBuilder().start().put(ask("r1")).put(answer("r1"), is_live=False)
    assert told(builder)[-1][1]["attempt"] == 2
    assert "discardFrom" not in told(builder)[-1][1]


@pytest.mark.parametrize("story", STORIES)
def test_the_projector_changes_nothing_and_says_the_same_twice(story: str) -> None:
    state = STORIES[story]().state
    before = copy.deepcopy(state)
    assert PROJECT(state) == PROJECT(state) is None
    assert state == before


@pytest.mark.parametrize("story", STORIES)
def test_what_a_cut_batch_owes_is_what_the_whole_batch_went_on_with(story: str) -> None:
    """Cut after any event, the projector makes the very step or boundary that the host had made."""
    builder = STORIES[story]()
    state = new_state(builder.session_id)
    rows = told(builder)
    for at, (kind, data) in enumerate(rows):
        check(state, kind, data)
        apply(state, kind, data, 1_764_428_400_000 + at)
        owed = PROJECT(state)
        if owed is None or at + 1 == len(rows):
            continue
        following = rows[at + 1]
        if owed.type == following[0] and following[1].get("attempt", 1) == 1:
            assert dict(owed.data) == following[1]
        else:  # it was not owed alone: the batch ended the turn or the session instead
            assert following[0] in state.owes


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_nothing_follows_a_request_given_up_when_the_turns_end_is_coming(end: str) -> None:
    builder = LogBuilder().start().call("call_1").put(ask("r1"))
    coming = {
        "completed": [cancelled_result("call_1"), *completed(builder)],
        "failed": [fail(builder)],
        "cancelled": [cancelled_result("call_1"), cancelled(builder)],
    }[end]
    if end == "cancelled":
        builder.put(cancelling(builder))
    builder.put(answer("r1", "cancelled"), *coming)
    assert ev.STEP_RESUMED not in [kind for kind, _ in told(builder)]


def test_nothing_resumes_in_a_turn_that_is_being_cancelled() -> None:
    """Its closing may have been cut off behind the last request; what is owed then is its end."""
    builder = LogBuilder().start().put(ask("r1"))
    builder.put(cancelling(builder))
    given_up = answer("r1", "cancelled")
    check(builder.state, *given_up)
    apply(builder.state, *given_up, 1)
    assert PROJECT(builder.state) is None
    builder.put(cancelled(builder))


def test_the_first_turn_of_a_session_is_the_stores_to_write() -> None:
    state = new_state(session_id_of(1))
    started = {"sessionId": session_id_of(1), "agent": "a", "logVersion": 1, "continuationToken": token_of(1)}
    apply(state, ev.SESSION_STARTED, started, 1)
    assert state.owes == (ev.TURN_STARTED,)
    assert PROJECT(state) is None
