"""Moves: which event may come next, as data, and what each calls for (contract.md section 1, order)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from zhin_host import events as ev
from zhin_host.errors import IllegalMove
from zhin_host.state import Phase, SessionState

_WORKING = frozenset({Phase.RUNNING, Phase.PARKED})
_ENDING = frozenset({Phase.RUNNING, Phase.PARKED, Phase.CANCELLING})

MOVES: Final[dict[str, frozenset[Phase]]] = {  # event -> the phases in which it is legal
    ev.SESSION_STARTED: frozenset({Phase.NEW}),
    ev.SESSION_WAITING: frozenset({Phase.REST, Phase.PARKED}),
    ev.SESSION_COMPLETED: frozenset({Phase.REST}),
    ev.SESSION_FAILED: frozenset({Phase.REST}),
    ev.TURN_STARTED: frozenset({Phase.REST}),
    ev.TURN_COMPLETED: frozenset({Phase.RUNNING}),
    ev.TURN_FAILED: frozenset({Phase.RUNNING}),
    ev.TURN_CANCELLING: _WORKING,
    ev.TURN_CANCELLED: frozenset({Phase.CANCELLING}),
    ev.STEP_STARTED: frozenset({Phase.RUNNING}),
    ev.STEP_COMPLETED: frozenset({Phase.REST}),
    ev.STEP_INTERRUPTED: frozenset({Phase.REST, Phase.PARKED}),
    ev.STEP_RESUMED: frozenset({Phase.RUNNING}),
    ev.MESSAGE_QUEUED: _ENDING,
    ev.MESSAGE_RECEIVED: frozenset({Phase.RUNNING}),
    ev.MESSAGE_APPENDED: _WORKING,
    ev.MESSAGE_COMPLETED: _WORKING,
    ev.REASONING_APPENDED: _WORKING,
    ev.REASONING_COMPLETED: _ENDING,
    ev.ACTIONS_REQUESTED: _WORKING,
    ev.ACTION_RETRYING: _WORKING,
    ev.ACTION_RESULT: _ENDING,
    ev.INPUT_REQUESTED: _WORKING,
    ev.INPUT_COMPLETED: frozenset({Phase.PARKED, Phase.CANCELLING}),
    ev.AUTHORIZATION_REQUIRED: _WORKING,
    ev.AUTHORIZATION_COMPLETED: frozenset({Phase.PARKED, Phase.CANCELLING}),
    ev.CHECKPOINT_SAVED: _WORKING,
}
TURN_OVER: Final = (ev.SESSION_WAITING, ev.SESSION_COMPLETED, ev.SESSION_FAILED)
AFTER_GIVING_UP: Final = (
    ev.STEP_RESUMED,
    ev.ACTION_RESULT,
    ev.REASONING_COMPLETED,
    ev.MESSAGE_COMPLETED,
    ev.TURN_COMPLETED,
    ev.TURN_FAILED,
    ev.TURN_CANCELLING,
    ev.TURN_CANCELLED,
)
OWED: Final[
    dict[str, tuple[str, ...]]
] = {  # event -> one of these must come next; the projector makes the first
    ev.SESSION_STARTED: (ev.TURN_STARTED,),  # the store pays this one, in the same batch
    ev.TURN_STARTED: (ev.STEP_STARTED,),
    ev.INPUT_REQUESTED: (ev.STEP_INTERRUPTED,),
    ev.AUTHORIZATION_REQUIRED: (ev.STEP_INTERRUPTED,),
    ev.STEP_INTERRUPTED: (ev.SESSION_WAITING,),  # and, when it ended a turn, what may end the session
    ev.TURN_COMPLETED: (ev.STEP_COMPLETED,),
    ev.TURN_FAILED: (ev.STEP_INTERRUPTED,),
    ev.TURN_CANCELLED: (ev.STEP_INTERRUPTED,),
    ev.STEP_COMPLETED: TURN_OVER,
}
# The answer that leaves no request open owes step.resumed; one that was given up (cancelled) owes it unless the
# turn's end follows. Both depend on the state, so fold.py says it.


def check(state: SessionState, kind: str, data: Mapping[str, Any]) -> None:
    """Raise IllegalMove where an event of this kind must not follow what the log says so far."""
    if state.owes and kind not in state.owes:
        raise IllegalMove(f"{kind} where {' or '.join(state.owes)} must follow")
    legal = MOVES.get(kind)
    if legal is None:
        if not ev.is_own_type(kind):
            raise IllegalMove(f"unknown type {kind!r:.80}")
        legal = _WORKING
    phase = state.phase
    if phase not in legal:
        raise IllegalMove(f"{kind} while the session is {phase.value}")
    if not state.owes and kind in _CALLED_FOR and not _is_redrive(state, kind, data):
        raise IllegalMove(f"{kind} that nothing calls for")
    guard = _GUARDS.get(kind)
    if guard is not None:
        guard(state, data)


# -- guards: what the phase does not say ---------------------------------------------------------------------------


def _is_redrive(state: SessionState, kind: str, data: Mapping[str, Any]) -> bool:
    """step.resumed of a further attempt needs no answer before it: the host was restarted."""
    return kind == ev.STEP_RESUMED and state.turn is not None and data["attempt"] == state.turn.attempt + 1


def _guard_turn_started(state: SessionState, data: Mapping[str, Any]) -> None:
    if state.queue and data["turnId"] != state.queue[0]["turnId"]:
        raise IllegalMove(f"turn {data['turnId']} starts before the queued {state.queue[0]['turnId']}")
    resumes = data.get("resumes")
    if resumes is not None and (state.failed is None or state.failed.turn_id != resumes):
        raise IllegalMove(f"turn {data['turnId']} resumes {resumes}: not the last turn, or not recoverable")


def _guard_step_resumed(state: SessionState, data: Mapping[str, Any]) -> None:
    turn = state.open_turn
    if data["attempt"] not in (turn.attempt, turn.attempt + 1):
        raise IllegalMove(f"attempt {data['attempt']} after attempt {turn.attempt}")


def _guard_own_turn(state: SessionState, data: Mapping[str, Any]) -> None:
    turn = state.open_turn
    if data["turnId"] != turn.turn_id:
        raise IllegalMove(f"an event of turn {data['turnId']}, {turn.turn_id} is open")


def _guard_turn_end(state: SessionState, data: Mapping[str, Any]) -> None:
    _guard_own_turn(state, data)
    if state.pending:
        raise IllegalMove(f"the turn ends with open requests {sorted(state.pending)}")


def _guard_turn_completed(state: SessionState, data: Mapping[str, Any]) -> None:
    _guard_turn_end(state, data)
    turn = state.open_turn
    if turn.calls:
        raise IllegalMove(f"the turn completes with unfinished calls {sorted(turn.calls)}")
    if not turn.is_received or len(turn.completions) != 1:
        raise IllegalMove(f"the turn completes with {len(turn.completions)} message.completed that count")


def _guard_received(state: SessionState, data: Mapping[str, Any]) -> None:
    _guard_own_turn(state, data)
    if state.open_turn.is_received:
        raise IllegalMove("a second message.received in a turn")


def _guard_request(state: SessionState, data: Mapping[str, Any]) -> None:
    request_id = data["requestId"]
    if request_id in state.pending or request_id in state.answers:
        raise IllegalMove(f"request {request_id} was made before")
    if data.get("toolName") and data["callId"] not in state.open_turn.calls:
        raise IllegalMove(f"a request for call {data['callId']}, which is not asked for")


def _guard_answer(state: SessionState, data: Mapping[str, Any]) -> None:
    if data["requestId"] not in state.pending:
        raise IllegalMove(f"request {data['requestId']} is answered and not open")


def _guard_result(state: SessionState, data: Mapping[str, Any]) -> None:
    if data["callId"] not in state.open_turn.calls:
        raise IllegalMove(f"call {data['callId']} has a result and is not open")


def _guard_started(state: SessionState, data: Mapping[str, Any]) -> None:
    if data["sessionId"] != state.session_id:
        raise IllegalMove("session.started names another session")


_CALLED_FOR: Final = frozenset(
    {ev.SESSION_WAITING, ev.STEP_STARTED, ev.STEP_COMPLETED, ev.STEP_INTERRUPTED, ev.STEP_RESUMED}
)
_GUARDS: Final[dict[str, Callable[[SessionState, Mapping[str, Any]], None]]] = {
    ev.SESSION_STARTED: _guard_started,
    ev.TURN_STARTED: _guard_turn_started,
    ev.STEP_RESUMED: _guard_step_resumed,
    ev.TURN_COMPLETED: _guard_turn_completed,
    ev.TURN_FAILED: _guard_turn_end,
    ev.TURN_CANCELLED: _guard_turn_end,
    ev.TURN_CANCELLING: _guard_own_turn,
    ev.MESSAGE_RECEIVED: _guard_received,
    ev.CHECKPOINT_SAVED: _guard_own_turn,
    ev.INPUT_REQUESTED: _guard_request,
    ev.AUTHORIZATION_REQUIRED: _guard_request,
    ev.INPUT_COMPLETED: _guard_answer,
    ev.AUTHORIZATION_COMPLETED: _guard_answer,
    ev.ACTION_RESULT: _guard_result,
}
