"""state: which event may follow which, in every phase, and what a trigger owes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

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
from zhin_host.clock import base32
from zhin_host.errors import IllegalMove
from zhin_host.fold import apply
from zhin_host.moves import MOVES, OWED, check
from zhin_host.state import Phase, SessionState, new_state

SESSION = session_id_of(1)
TURN = f"turn_{base32(1, 26)}"
STEP = f"step_{base32(1, 26)}"
OWN: Final = "x.progress"
EVERY_TYPE: Final = (*ev.VOCABULARY, OWN)

# One event of each type that nothing but the phase can forbid.
DATA: Final[dict[str, dict[str, Any]]] = {
    ev.SESSION_STARTED: {
        "sessionId": SESSION,
        "agent": "demo",
        "logVersion": 1,
        "continuationToken": token_of(1),
    },
    ev.SESSION_WAITING: {"sessionId": SESSION, "continuationToken": token_of(1), "parked": False},
    ev.SESSION_COMPLETED: {"sessionId": SESSION},
    ev.SESSION_FAILED: {"sessionId": SESSION, "code": "ENDED", "message": ""},
    ev.TURN_STARTED: {"turnId": f"turn_{base32(2, 26)}", "continuationToken": token_of(2)},
    ev.TURN_COMPLETED: {"turnId": TURN},
    ev.TURN_FAILED: {"turnId": TURN, "code": "AGENT_FAILED", "message": "", "recoverable": True},
    ev.TURN_CANCELLING: {"turnId": TURN, "reason": "requested"},
    ev.TURN_CANCELLED: {"turnId": TURN, "reason": "requested"},
    ev.STEP_STARTED: {"stepId": STEP, "turnId": TURN, "status": "running"},
    ev.STEP_COMPLETED: {"stepId": STEP, "turnId": TURN, "status": "completed"},
    ev.STEP_INTERRUPTED: {"stepId": STEP, "turnId": TURN, "status": "interrupted", "interruptKind": "input"},
    ev.STEP_RESUMED: {"stepId": STEP, "turnId": TURN, "attempt": 1},
    ev.MESSAGE_QUEUED: {"turnId": f"turn_{base32(3, 26)}", "message": "", "continuationToken": token_of(3)},
    ev.MESSAGE_RECEIVED: {"turnId": TURN, "message": "Hello"},
    ev.MESSAGE_APPENDED: {"messageDelta": "a"},
    ev.MESSAGE_COMPLETED: {"message": "", "finishReason": "stop"},
    ev.REASONING_APPENDED: {"reasoningDelta": "a"},
    ev.REASONING_COMPLETED: {"reasoning": "a"},
    ev.ACTIONS_REQUESTED: {"callId": "call_9", "toolName": "fetch", "input": {}},
    ev.ACTION_RETRYING: {"callId": "call_1", "toolName": "fetch", "attempt": 2, "error": "", "delayMs": 1},
    ev.ACTION_RESULT: {"callId": "call_1", "toolName": "fetch", "status": "completed", "durationMs": 1},
    ev.INPUT_REQUESTED: ask("r9")[1],
    ev.INPUT_COMPLETED: answer("r1")[1],
    ev.AUTHORIZATION_REQUIRED: need("r8")[1],
    ev.AUTHORIZATION_COMPLETED: authorized("r2")[1],
    ev.CHECKPOINT_SAVED: {"turnId": TURN, "state": None},
    OWN: {},
}


def unreceived() -> SessionState:
    """A turn that is open and has not received its message."""
    builder = LogBuilder()
    builder.put(
        (ev.SESSION_STARTED, DATA[ev.SESSION_STARTED]),
        (ev.TURN_STARTED, {"turnId": TURN, "continuationToken": token_of(1)}),
    )
    builder.put((ev.ACTIONS_REQUESTED, {**DATA[ev.ACTIONS_REQUESTED], "callId": "call_1"}))
    return builder.state


def ready_to_complete() -> SessionState:
    return LogBuilder().start().put((ev.MESSAGE_COMPLETED, DATA[ev.MESSAGE_COMPLETED])).state


def parked() -> SessionState:
    return LogBuilder().start().call("call_1").put(ask("r1"), need("r2")).state


def being_cancelled() -> SessionState:
    builder = LogBuilder().start().call("call_1")
    return builder.put(cancelling(builder)).state


def being_cancelled_while_parked() -> SessionState:
    builder = LogBuilder().start().call("call_1").put(ask("r1"), need("r2"))
    return builder.put(cancelling(builder)).state


def resting() -> SessionState:
    return LogBuilder().start().finish("").state


def over() -> SessionState:
    return STORIES["a_session_failed_at_rest"]().state


WORK: Final = {
    ev.TURN_CANCELLING,
    ev.MESSAGE_QUEUED,
    ev.MESSAGE_APPENDED,
    ev.MESSAGE_COMPLETED,
    ev.REASONING_APPENDED,
    ev.REASONING_COMPLETED,
    ev.ACTIONS_REQUESTED,
    ev.ACTION_RETRYING,
    ev.INPUT_REQUESTED,
    ev.AUTHORIZATION_REQUIRED,
    ev.CHECKPOINT_SAVED,
    OWN,
}
SETTLING: Final = {ev.MESSAGE_QUEUED, ev.REASONING_COMPLETED, ev.ACTION_RESULT}
ANSWERED: Final = {ev.INPUT_COMPLETED, ev.AUTHORIZATION_COMPLETED}

# Where nothing is owed: the phase, a state in it, and every event that may come next (contract section 1).
ALLOWED: Final[dict[str, tuple[Phase, Callable[[], SessionState], set[str]]]] = {
    "new": (Phase.NEW, lambda: new_state(SESSION), {ev.SESSION_STARTED}),
    "rest": (Phase.REST, resting, {ev.TURN_STARTED, ev.SESSION_COMPLETED, ev.SESSION_FAILED}),
    "running, no message yet": (
        Phase.RUNNING,
        unreceived,
        WORK | {ev.MESSAGE_RECEIVED, ev.ACTION_RESULT, ev.TURN_FAILED},
    ),
    "running, all said": (Phase.RUNNING, ready_to_complete, WORK | {ev.TURN_COMPLETED, ev.TURN_FAILED}),
    "parked": (Phase.PARKED, parked, WORK | ANSWERED | {ev.ACTION_RESULT}),
    "cancelling": (Phase.CANCELLING, being_cancelled, SETTLING | {ev.TURN_CANCELLED}),
    "cancelling, requests open": (Phase.CANCELLING, being_cancelled_while_parked, SETTLING | ANSWERED),
    "over": (Phase.OVER, over, set()),
}


def test_every_event_type_of_the_vocabulary_has_its_row_in_the_table_of_moves() -> None:
    assert set(MOVES) == set(ev.VOCABULARY)
    assert set(DATA) == set(EVERY_TYPE)


@pytest.mark.parametrize("kind", EVERY_TYPE)
@pytest.mark.parametrize("where", ALLOWED)
def test_an_event_is_legal_exactly_in_the_phases_that_the_contract_says(where: str, kind: str) -> None:
    phase, make, allowed = ALLOWED[where]
    state = make()
    assert state.phase is phase
    if kind in allowed:
        check(state, kind, DATA[kind])
        apply(state, kind, DATA[kind], 1)  # what is allowed can be folded
    else:
        with pytest.raises(IllegalMove):
            check(state, kind, DATA[kind])


# A batch, without what follows of itself: its last event, and what alone may come after it.
TriggerCase = tuple[Callable[[LogBuilder], list[tuple[str, dict[str, Any]]]], set[str]]
OVER = {ev.SESSION_WAITING, ev.SESSION_COMPLETED, ev.SESSION_FAILED}
GIVEN_UP = {
    ev.STEP_RESUMED,
    ev.ACTION_RESULT,
    ev.REASONING_COMPLETED,
    ev.MESSAGE_COMPLETED,
    ev.TURN_COMPLETED,
    ev.TURN_FAILED,
    ev.TURN_CANCELLING,
    ev.TURN_CANCELLED,
}
TRIGGERS: Final[dict[str, TriggerCase]] = {
    "a request": (lambda _: [ask("r1")], {ev.STEP_INTERRUPTED}),
    "an authorization": (lambda _: [need("r2")], {ev.STEP_INTERRUPTED}),
    "a turn that completed": (completed, {ev.STEP_COMPLETED}),
    "a turn that failed": (lambda b: [fail(b)], {ev.STEP_INTERRUPTED}),
    "a turn that was cancelled": (lambda b: [cancelling(b), cancelled(b)], {ev.STEP_INTERRUPTED}),
}


def put_raw(state: SessionState, kind: str, data: dict[str, Any]) -> None:
    check(state, kind, data)
    apply(state, kind, data, 1)


@pytest.mark.parametrize("kind", EVERY_TYPE)
@pytest.mark.parametrize("trigger", TRIGGERS)
def test_nothing_comes_between_a_trigger_and_its_step_event(trigger: str, kind: str) -> None:
    batch, allowed = TRIGGERS[trigger]
    builder = LogBuilder().start()
    for row in batch(builder):
        put_raw(builder.state, *row)
    if kind in allowed:
        check(builder.state, kind, DATA[kind])
    else:
        with pytest.raises(IllegalMove):
            check(builder.state, kind, DATA[kind])


def after(*rows: tuple[str, dict[str, Any]], builder: LogBuilder | None = None) -> SessionState:
    state = (builder or LogBuilder()).state
    for row in rows:
        put_raw(state, *row)
    return state


def owing_first_turn() -> SessionState:
    return after((ev.SESSION_STARTED, DATA[ev.SESSION_STARTED]))


def owing_step() -> SessionState:
    turn = {"turnId": TURN, "continuationToken": token_of(1)}
    return after((ev.SESSION_STARTED, DATA[ev.SESSION_STARTED]), (ev.TURN_STARTED, turn))


def owing_waiting_in_a_turn() -> SessionState:
    interrupted = {**DATA[ev.STEP_INTERRUPTED], "requestId": "r1"}
    return after(ask("r1"), (ev.STEP_INTERRUPTED, interrupted), builder=LogBuilder().start())


def owing_end_after_failure() -> SessionState:
    builder = LogBuilder().start()
    interrupted = {**DATA[ev.STEP_INTERRUPTED], "interruptKind": "failure"}
    return after(fail(builder), (ev.STEP_INTERRUPTED, interrupted), builder=builder)


def owing_end_after_completion() -> SessionState:
    builder = LogBuilder().start()
    return after(*completed(builder), (ev.STEP_COMPLETED, DATA[ev.STEP_COMPLETED]), builder=builder)


def owing_resumption() -> SessionState:
    return after(answer("r1"), builder=LogBuilder().start().put(ask("r1")))


def owing_after_a_refused_authorization() -> SessionState:
    row = authorized("r2", success=False, error="declined")
    return after(row, builder=LogBuilder().start().put(need("r2")))


def one_given_up() -> SessionState:
    return after(answer("r1", "cancelled"), builder=LogBuilder().start().call("call_1").put(ask("r1")))


def an_authorization_given_up() -> SessionState:
    row = authorized("r2", success=False, error="cancelled")
    return after(row, builder=LogBuilder().start().call("call_1").put(need("r2")))


OWING: Final[dict[str, tuple[Callable[[], SessionState], set[str]]]] = {
    "session.started": (owing_first_turn, {ev.TURN_STARTED}),
    "turn.started": (owing_step, {ev.STEP_STARTED}),
    "step.interrupted by a request": (owing_waiting_in_a_turn, {ev.SESSION_WAITING}),
    "step.interrupted by a failure": (owing_end_after_failure, OVER),
    "step.completed": (owing_end_after_completion, OVER),
    "the last answer": (owing_resumption, {ev.STEP_RESUMED}),
    "a refused authorization": (owing_after_a_refused_authorization, {ev.STEP_RESUMED}),
    "the last request given up": (one_given_up, GIVEN_UP),
    "the last authorization given up": (an_authorization_given_up, GIVEN_UP),
}


@pytest.mark.parametrize("owing", OWING)
def test_what_an_event_owes_is_exactly_what_may_follow_it(owing: str) -> None:
    make, allowed = OWING[owing]
    assert set(make().owes) == allowed
    for kind in EVERY_TYPE:
        if kind not in allowed:
            with pytest.raises(IllegalMove):
                check(make(), kind, DATA[kind])


@pytest.mark.parametrize("kind", sorted(GIVEN_UP - {ev.TURN_COMPLETED, ev.TURN_CANCELLED}))
def test_after_a_request_given_up_the_turn_goes_on_or_ends(kind: str) -> None:
    check(one_given_up(), kind, DATA[kind])


def test_an_answer_while_another_request_is_open_owes_nothing() -> None:
    state = after(answer("r1"), builder=LogBuilder().start().put(ask("r1"), need("r2")))
    assert state.owes == ()
    assert state.phase is Phase.PARKED


def test_steps_and_boundaries_come_only_when_something_calls_for_them() -> None:
    state = LogBuilder().start().state
    for kind in (ev.SESSION_WAITING, ev.STEP_STARTED, ev.STEP_INTERRUPTED, ev.STEP_RESUMED):
        with pytest.raises(IllegalMove):
            check(state, kind, DATA[kind])


@pytest.mark.parametrize("kind", ["", "x.", "x. ", "x." + "a" * 65, "message.deleted", "X.a", "x.é", "x.a\n"])
def test_a_type_that_nobody_knows_is_refused(kind: str) -> None:
    with pytest.raises(IllegalMove, match="unknown type"):
        check(LogBuilder().start().state, kind, {})


@pytest.mark.parametrize("kind", ["x.a", "x.A-z_9.b", "x." + "a" * 64])
def test_an_agents_own_type_is_legal_while_its_turn_works(kind: str) -> None:
    check(LogBuilder().start().state, kind, {})
    check(parked(), kind, {})
    for state in (resting(), over(), being_cancelled(), new_state(SESSION)):
        with pytest.raises(IllegalMove):
            check(state, kind, {})


Case = tuple[Callable[[], SessionState], str, dict[str, Any]]
GUARDED: Final[dict[str, Case]] = {
    "a session.started of another session": (
        lambda: new_state(session_id_of(2)),
        ev.SESSION_STARTED,
        DATA[ev.SESSION_STARTED],
    ),
    "the end of another turn": (
        lambda: LogBuilder().start().state,
        ev.TURN_FAILED,
        {**DATA[ev.TURN_FAILED], "turnId": "turn_other"},
    ),
    "the cancelling of another turn": (
        lambda: LogBuilder().start().state,
        ev.TURN_CANCELLING,
        {"turnId": "turn_other", "reason": ""},
    ),
    "the checkpoint of another turn": (
        lambda: LogBuilder().start().state,
        ev.CHECKPOINT_SAVED,
        {"turnId": "turn_other", "state": 1},
    ),
    "the message of another turn": (
        unreceived,
        ev.MESSAGE_RECEIVED,
        {"turnId": "turn_other", "message": ""},
    ),
    "a second message in a turn": (
        lambda: LogBuilder().start().state,
        ev.MESSAGE_RECEIVED,
        DATA[ev.MESSAGE_RECEIVED],
    ),
    "a completion with a call open": (
        lambda: (
            LogBuilder().start().call("call_1").put((ev.MESSAGE_COMPLETED, DATA[ev.MESSAGE_COMPLETED])).state
        ),
        ev.TURN_COMPLETED,
        {"turnId": TURN},
    ),
    "a completion without a message.completed": (
        lambda: LogBuilder().start().state,
        ev.TURN_COMPLETED,
        {"turnId": TURN},
    ),
    "a completion with two of them": (
        lambda: LogBuilder().start().put(*[(ev.MESSAGE_COMPLETED, DATA[ev.MESSAGE_COMPLETED])] * 2).state,
        ev.TURN_COMPLETED,
        {"turnId": TURN},
    ),
    "a completion of what was never received": (
        lambda: after(
            ("action.result", DATA[ev.ACTION_RESULT]),
            (ev.MESSAGE_COMPLETED, DATA[ev.MESSAGE_COMPLETED]),
            builder=_holding(unreceived()),
        ),
        ev.TURN_COMPLETED,
        {"turnId": TURN},
    ),
    "a request made twice": (parked, *ask("r1")),
    "a request made again after its answer": (
        lambda: LogBuilder().start().put(ask("r1")).put(answer("r1")).state,
        *ask("r1"),
    ),
    "an authorization asked for twice": (parked, *need("r2")),
    "a tool's request without its call": (
        lambda: LogBuilder().start().state,
        *ask("r1", "approval", toolName="publish", args={}, argsDigest=""),
    ),
    "an answer to nothing": (parked, *answer("r7")),
    "a second answer": (
        lambda: LogBuilder().start().put(ask("r1"), ask("r2")).put(answer("r1")).state,
        *answer("r1"),
    ),
    "an authorization of nothing": (parked, *authorized("r7")),
    "a result of a call that nobody asked for": (
        lambda: LogBuilder().start().state,
        ev.ACTION_RESULT,
        DATA[ev.ACTION_RESULT],
    ),
    "a second result": (
        lambda: LogBuilder().start().call("call_1").result("call_1").state,
        *cancelled_result("call_1"),
    ),
}


def _holding(state: SessionState) -> LogBuilder:
    builder = LogBuilder()
    builder.state = state
    return builder


@pytest.mark.parametrize("what", GUARDED)
def test_what_the_phase_does_not_say_is_refused_all_the_same(what: str) -> None:
    make, kind, data = GUARDED[what]
    with pytest.raises(IllegalMove):
        check(make(), kind, data)


def test_a_refused_move_leaves_the_state_as_it_was() -> None:
    for make, kind, data in GUARDED.values():
        state = make()
        before = copy.deepcopy(state)
        with pytest.raises(IllegalMove):
            check(state, kind, data)
        assert state == before


def test_an_event_of_a_turn_with_no_turn_open_names_that() -> None:
    state = new_state(SESSION)
    state.next_index = 3  # a state that only a damaged snapshot could give
    for kind in (ev.MESSAGE_RECEIVED, ev.ACTION_RESULT):
        with pytest.raises(IllegalMove):
            check(state, kind, DATA[kind])


def test_at_rest_is_no_open_turn_and_no_queue_or_an_open_request() -> None:
    queued = {"turnId": "turn_next", "message": "", "continuationToken": token_of(9)}
    working = LogBuilder().start().state
    assert (working.is_at_rest, working.status) == (False, "running")
    assert (resting().is_at_rest, resting().status) == (True, "waiting")
    assert (parked().is_at_rest, parked().status, parked().is_parked) == (True, "waiting", True)
    waiting = resting()
    waiting.queue = (queued,)
    assert (waiting.is_at_rest, waiting.status) == (False, "running")
    both = parked()
    both.queue = (queued,)
    assert both.is_at_rest


def test_the_status_of_a_session_that_is_over_is_how_it_ended() -> None:
    assert over().status == "failed"
    assert STORIES["a_session_that_ends_itself"]().state.status == "completed"


def test_what_is_owed_by_table_is_what_the_projector_can_make() -> None:
    for kind, owed in OWED.items():
        assert kind in ev.VOCABULARY
        assert all(name in ev.VOCABULARY for name in owed)


@pytest.mark.parametrize("story", STORIES)
def test_no_container_of_a_state_is_changed_in_place(story: str) -> None:
    """The journal folds a shallow copy, and keeps the old state when the write fails."""
    builder = STORIES[story]()
    state = new_state(builder.session_id)
    for line in builder.lines:
        event = ev.decode_line(line[:-1], state.sum)
        shallow, deep = copy.copy(state), copy.deepcopy(state)
        apply(state, event.type, event.data, event.timestamp_ms)
        state.sum = event.sum
        assert shallow == deep
