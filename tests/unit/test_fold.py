"""fold: what a session's log says of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.builders import LogBuilder, session_id_of, token_of
from tests.stories import STORIES, answer, ask, authorized, cancelled, cancelling, fail, need
from zhin_host import events as ev
from zhin_host.fold import apply, response_digest
from zhin_host.state import REMEMBERED, UNLUCKY_MAX, Answer, SessionState, new_state


def folded(lines: list[bytes]) -> SessionState:
    """The state of lines read back, as hydration reads them."""
    state = new_state(session_id_of(1))
    for line in lines:
        event = ev.decode_line(line[:-1], state.sum)
        apply(state, event.type, event.data, event.timestamp_ms)
        state.offset += len(line)
        state.sum = event.sum
    return state


@pytest.mark.parametrize("story", STORIES)
def test_a_log_read_back_gives_the_state_that_wrote_it(story: str) -> None:
    builder = STORIES[story]()
    assert folded(builder.lines) == builder.state


def test_the_first_event_says_who_and_what_the_session_is() -> None:
    builder = LogBuilder()
    told: dict[str, Any] = {
        "sessionId": builder.session_id,
        "agent": "demo",
        "logVersion": 1,
        "continuationToken": token_of(7),
        "owner": "ann",
        "metadata": {"ticket": 3},
    }
    builder.state.owes = ()
    apply(builder.state, ev.SESSION_STARTED, told, 1234)
    state = builder.state
    assert (state.agent, state.owner, state.metadata, state.token) == (
        "demo",
        "ann",
        {"ticket": 3},
        token_of(7),
    )
    assert (state.created_at_ms, state.updated_at_ms, state.next_index) == (1234, 1234, 1)


def test_the_token_in_force_is_that_of_the_last_start_or_queued_message() -> None:
    builder = LogBuilder().start()
    assert builder.state.token == token_of(1)
    builder.finish("").follow_up()
    assert builder.state.token == token_of(2)
    builder.put((ev.MESSAGE_QUEUED, {"turnId": "turn_q", "message": "m", "continuationToken": token_of(9)}))
    assert builder.state.token == token_of(9)


def test_a_step_tells_of_its_turn_from_start_to_end() -> None:
    builder = LogBuilder().start()
    started = builder.state.steps[0]["startedAt"]
    assert builder.state.steps == (
        {
            "stepId": builder.turn_id.replace("turn_", "step_"),
            "turnId": builder.turn_id,
            "status": "running",
            "startedAt": started,
            "attempt": 1,
        },
    )
    builder.put(ask("r1"))
    assert builder.state.steps[0]["status"] == "interrupted"
    assert builder.state.steps[0]["interruptKind"] == "input"
    assert builder.state.steps[0]["requestId"] == "r1"
    builder.put(answer("r1"))
    assert builder.state.steps[0]["status"] == "running"
    assert "interruptKind" not in builder.state.steps[0]
    assert "requestId" not in builder.state.steps[0]
    builder.finish("")
    assert builder.state.steps[0]["status"] == "completed"
    assert builder.state.steps[0]["completedAt"] > started
    builder.follow_up()
    assert len(builder.state.steps) == 1
    assert builder.state.steps[0]["turnId"] == builder.turn_id


@pytest.mark.parametrize(
    ("kind", "interrupt"),
    [
        ("approval", "approval"),
        ("retry", "approval"),
        ("question", "input"),
        ("authorization", "authorization"),
    ],
)
def test_the_kind_of_an_interruption_follows_from_that_of_the_request(kind: str, interrupt: str) -> None:
    row = need("r1") if kind == "authorization" else ask("r1", kind)
    state = LogBuilder().start().put(row).state
    assert state.steps[0]["interruptKind"] == interrupt
    assert state.pending["r1"].kind == kind


def test_requests_stay_open_in_the_order_of_their_making_until_each_is_answered() -> None:
    builder = LogBuilder().start().put(ask("r2"), ask("r1"), need("r3"))
    assert list(builder.state.pending) == ["r2", "r1", "r3"]
    builder.put(answer("r1"))
    assert list(builder.state.pending) == ["r2", "r3"]
    assert builder.state.answers["r1"] == Answer("question", "answered", response_digest({"n": 1}))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (answer("r1", "approved", "approval", approved=True), Answer("approval", "approved")),
        (answer("r1", "denied", "approval", approved=False), Answer("approval", "denied")),
        (answer("r1", "expired", "approval"), Answer("approval", "expired")),
        (answer("r1", "cancelled", "approval"), Answer("approval", "cancelled")),
    ],
)
def test_each_outcome_of_a_request_is_remembered_as_what_it_was(row: Any, expected: Answer) -> None:
    assert LogBuilder().start().put(ask("r1", "approval")).put(row).state.answers["r1"] == expected


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        (authorized("r1"), "success"),
        (authorized("r1", success=False), "failure"),
        (authorized("r1", success=False, error="declined"), "failure"),
        (authorized("r1", success=False, error="cancelled"), "cancelled"),
    ],
)
def test_each_outcome_of_an_authorization_is_remembered_as_what_it_was(row: Any, outcome: str) -> None:
    state = LogBuilder().start().put(need("r1")).put(row).state
    assert state.answers["r1"] == Answer("authorization", outcome)


def test_the_same_response_is_known_whatever_the_order_of_its_keys() -> None:
    assert response_digest({"a": 1, "b": [2]}) == response_digest({"b": [2], "a": 1})
    assert response_digest({"a": 1}) != response_digest({"a": 2})
    assert response_digest("1") != response_digest(1)


def test_only_so_many_answers_are_remembered_and_the_oldest_go_first() -> None:
    builder = LogBuilder().start()
    for number in range(REMEMBERED + 3):
        builder.put(ask(f"r{number}")).put(answer(f"r{number}"))
    assert len(builder.state.answers) == REMEMBERED
    assert next(iter(builder.state.answers)) == "r3"


def tool_request(scope: str | None, kind: str = "approval") -> tuple[str, dict[str, Any]]:
    scoped = {} if scope is None else {"scope": scope}
    return ask("r1", kind, callId="call_1", toolName="publish", args={}, argsDigest="", **scoped)


@pytest.mark.parametrize(
    ("request_row", "answer_row", "grants"),
    [
        (tool_request("session"), answer("r1", "approved", "approval", approved=True), ("publish",)),
        (tool_request("session"), answer("r1", "denied", "approval", approved=False), ()),
        (tool_request("session"), answer("r1", "expired", "approval"), ()),
        (tool_request("session"), answer("r1", "cancelled", "approval"), ()),
        (tool_request("call"), answer("r1", "approved", "approval", approved=True), ()),
        (tool_request(None), answer("r1", "approved", "approval", approved=True), ()),
        (tool_request("session", "retry"), answer("r1", "approved", "retry", approved=True), ()),
    ],
)
def test_only_an_approved_request_of_scope_session_grants_its_tool(
    request_row: Any, answer_row: Any, grants: tuple[str, ...]
) -> None:
    builder = LogBuilder().start().call("call_1", "publish").put(request_row).put(answer_row)
    assert builder.state.grants == grants


def test_a_grant_is_kept_over_turns_and_named_once() -> None:
    builder = STORIES["a_grant"]()
    assert builder.state.grants == ("publish",)
    builder.call("call_2", "publish").put(
        ask("r2", "approval", callId="call_2", toolName="publish", args={}, argsDigest="", scope="session")
    )
    builder.put(answer("r2", "approved", "approval", approved=True))
    assert builder.state.grants == ("publish",)


def kept(builder: LogBuilder) -> tuple[Any, Any]:
    """What the open turn sees, and what the next one will."""
    return builder.state.turn_state, builder.state.agent_state


def test_a_checkpoint_counts_for_the_next_turn_only_when_its_turn_completes() -> None:
    builder = LogBuilder().start()
    assert kept(builder) == (None, None)
    builder.put((ev.CHECKPOINT_SAVED, {"turnId": builder.turn_id, "state": {"n": 1}}))
    assert kept(builder) == ({"n": 1}, None)
    builder.finish("").follow_up()
    assert kept(builder) == ({"n": 1}, {"n": 1})
    builder.put((ev.CHECKPOINT_SAVED, {"turnId": builder.turn_id, "state": {"n": 2}})).put(fail(builder))
    assert kept(builder)[1] == {"n": 1}
    builder.follow_up()
    assert kept(builder)[0] == {"n": 1}
    builder.put((ev.CHECKPOINT_SAVED, {"turnId": builder.turn_id, "state": {"n": 3}}))
    builder.put(cancelling(builder)).put(cancelled(builder)).follow_up()
    assert kept(builder)[0] == {"n": 1}


def test_calls_are_open_from_being_asked_for_to_their_result() -> None:
    builder = LogBuilder().start().call("call_1").call("call_2", "publish")
    turn = builder.state.turn
    assert turn is not None
    assert {name: call.tool_name for name, call in turn.calls.items()} == {
        "call_1": "fetch",
        "call_2": "publish",
    }
    builder.result("call_1")
    assert builder.state.turn is not None
    assert list(builder.state.turn.calls) == ["call_2"]


def test_only_so_many_calls_that_failed_are_remembered_and_the_oldest_go_first() -> None:
    builder = LogBuilder().start()
    for number in range(UNLUCKY_MAX + 2):
        builder.call(f"call_{number}").result(f"call_{number}", "failed")
    assert builder.state.turn is not None
    assert len(builder.state.turn.unlucky) == UNLUCKY_MAX
    assert next(iter(builder.state.turn.unlucky)) == "call_2"


def test_a_turns_end_closes_it_and_says_why_it_was_interrupted() -> None:
    builder = LogBuilder().start()
    builder.put(fail(builder))
    assert builder.state.turn is None
    assert builder.state.steps[0]["interruptKind"] == "failure"
    builder.follow_up().put(fail(builder, "HOST_RESTARTED"))
    assert builder.state.steps[0]["interruptKind"] == "restart"
    builder.follow_up().put(cancelling(builder)).put(cancelled(builder))
    assert builder.state.steps[0]["interruptKind"] == "cancelled"


def test_who_cancels_and_why_is_kept_with_the_turn() -> None:
    builder = LogBuilder().start()
    builder.put(cancelling(builder))
    assert builder.state.turn is not None
    assert builder.state.turn.cancelling == {"reason": "requested", "by": "ann"}


def test_queued_messages_wait_in_order_and_leave_when_their_turn_starts() -> None:
    builder = LogBuilder().start()
    for number in (1, 2):
        row = {"turnId": f"turn_q{number}", "message": "m", "continuationToken": token_of(70 + number)}
        builder.put((ev.MESSAGE_QUEUED, row))
    assert [row["turnId"] for row in builder.state.queue] == ["turn_q1", "turn_q2"]
    builder.finish("").put((ev.TURN_STARTED, {"turnId": "turn_q1", "continuationToken": token_of(72)}))
    assert [row["turnId"] for row in builder.state.queue] == ["turn_q2"]


def test_the_end_of_a_session_drops_what_was_queued() -> None:
    state = STORIES["dropped_messages"]().state
    assert (state.queue, state.terminal) == ((), "completed")


LOOSE = [
    (ev.MESSAGE_APPENDED, {"messageDelta": "a"}),
    (ev.REASONING_APPENDED, {"reasoningDelta": "a"}),
    (ev.REASONING_COMPLETED, {"reasoning": "a"}),
    (ev.ACTIONS_REQUESTED, {"callId": "call_7", "toolName": "fetch", "input": {}}),
    ("x.progress", {}),
]
FIRM = [
    (ev.ACTION_RETRYING, {"callId": "call_1", "toolName": "fetch", "attempt": 2, "error": "", "delayMs": 1}),
    ask("r1"),
]


def loose_index(builder: LogBuilder) -> int | None:
    assert builder.state.turn is not None
    return builder.state.turn.loose_index


@pytest.mark.parametrize("row", LOOSE, ids=lambda row: row[0])
def test_what_a_redrive_would_void_is_marked_from_its_first_event_on(row: Any) -> None:
    builder = LogBuilder().start()
    assert loose_index(builder) is None
    at = builder.state.next_index
    builder.put(row).say("more")
    assert loose_index(builder) == at


@pytest.mark.parametrize("row", FIRM, ids=lambda row: row[0])
def test_what_is_no_part_of_the_text_is_not_marked(row: Any) -> None:
    builder = LogBuilder().start().put(row)
    assert loose_index(builder) is None


def test_each_part_of_the_record_takes_what_came_before_it_in() -> None:
    builder = LogBuilder().start().call("call_1").say("a").result("call_1")
    assert loose_index(builder) is None
    builder.say("b").put(ask("r1")).put(answer("r1"))
    assert loose_index(builder) is None
    builder.say("c").put(need("r2")).put(authorized("r2"))
    assert loose_index(builder) is None
    builder.say("d").put((ev.CHECKPOINT_SAVED, {"turnId": builder.turn_id, "state": 1}))
    assert loose_index(builder) is None


def test_what_was_given_up_is_no_part_of_the_record() -> None:
    builder = LogBuilder().start()
    at = builder.state.next_index
    builder.say("a").call("call_1").put(ask("r1"), need("r2"))
    builder.put(answer("r1", "cancelled"))
    builder.put(authorized("r2", success=False, error="cancelled"))
    builder.result("call_1", "cancelled")
    assert loose_index(builder) == at


def test_a_live_answer_keeps_the_attempt_and_everything_that_was_said() -> None:
    builder = LogBuilder().start().say("a").call("call_1").put(ask("r1")).say("b").put(answer("r1"))
    turn = builder.state.turn
    assert turn is not None
    assert turn.attempt == builder.state.steps[0]["attempt"] == 1
    assert list(turn.calls) == ["call_1"]


def test_a_further_attempt_voids_what_came_after_the_record() -> None:
    builder = LogBuilder().start().call("call_1").result("call_1").call("call_2").put(ask("r1"))
    builder.call("call_3").put((ev.MESSAGE_COMPLETED, {"message": "", "finishReason": "stop"}))
    builder.put(answer("r1"), is_live=False)
    turn = builder.state.turn
    assert turn is not None
    assert turn.attempt == builder.state.steps[0]["attempt"] == 2
    assert list(turn.calls) == ["call_2", "call_3"]  # asked for before the record's last event
    assert turn.completions != ()
    assert turn.loose_index is None


def test_a_discard_takes_calls_and_completions_from_there_on() -> None:
    state = LogBuilder().start().call("call_1").state
    at = state.next_index
    apply(state, ev.ACTIONS_REQUESTED, {"callId": "call_2", "toolName": "fetch", "input": {}}, 1)
    apply(state, ev.MESSAGE_COMPLETED, {"message": "", "finishReason": "stop"}, 1)
    step = {"stepId": "s", "turnId": "t", "attempt": 2, "discardFrom": at}
    apply(state, ev.STEP_RESUMED, step, 1)
    assert state.turn is not None
    assert list(state.turn.calls) == ["call_1"]
    assert state.turn.completions == ()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (ev.TURN_CANCELLING, {"turnId": "t", "reason": ""}),
        (ev.TURN_FAILED, {"turnId": "t", "code": "AGENT_FAILED", "message": "", "recoverable": True}),
        (ev.STEP_RESUMED, {"stepId": "s", "turnId": "t", "attempt": 1}),
        (ev.MESSAGE_RECEIVED, {"turnId": "t", "message": ""}),
        (ev.MESSAGE_COMPLETED, {"message": "", "finishReason": "stop"}),
        (ev.ACTIONS_REQUESTED, {"callId": "c", "toolName": "t", "input": {}}),
        (ev.ACTION_RESULT, {"callId": "c", "toolName": "t", "status": "failed", "durationMs": 0}),
    ],
)
def test_the_fold_of_an_event_outside_a_turn_opens_none(kind: str, data: dict[str, Any]) -> None:
    """The table forbids it; the audit folds on after it has said so."""
    state = LogBuilder().start().finish("").state
    apply(state, kind, data, 1)
    assert state.turn is None


def test_a_failed_turn_with_its_session_over_in_the_same_batch_is_over() -> None:
    builder = LogBuilder().start()
    ended = (ev.SESSION_FAILED, {"sessionId": builder.session_id, "code": "ENDED", "message": ""})
    state = builder.put(fail(builder), ended).state
    assert (state.terminal, state.owes) == ("failed", ())


def test_every_event_counts_one_and_tells_the_time() -> None:
    state = LogBuilder().start().state
    before = copy.copy(state)
    apply(state, ev.MESSAGE_APPENDED, {"messageDelta": "a"}, before.updated_at_ms + 5)
    assert state.next_index == before.next_index + 1
    assert state.updated_at_ms == before.updated_at_ms + 5
