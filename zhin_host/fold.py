"""The fold: apply(state, event), which reads a session's state off its log, one event at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from zhin_host import events as ev
from zhin_host.moves import AFTER_GIVING_UP, OWED, TURN_OVER
from zhin_host.state import (
    REMEMBERED,
    UNLUCKY_MAX,
    Answer,
    FailedTurn,
    KeyedTurn,
    OpenCall,
    OpenTurn,
    PendingRequest,
    SessionState,
)

_RECORD: Final = frozenset(
    {
        ev.MESSAGE_RECEIVED,
        ev.ACTION_RESULT,
        ev.INPUT_COMPLETED,
        ev.AUTHORIZATION_COMPLETED,
        ev.CHECKPOINT_SAVED,
    }
)
_LOOSE: Final = frozenset(  # and x. events: what a re-drive voids
    {
        ev.MESSAGE_APPENDED,
        ev.MESSAGE_COMPLETED,
        ev.REASONING_APPENDED,
        ev.REASONING_COMPLETED,
        ev.ACTIONS_REQUESTED,
    }
)
_FIRST_TURN: Final = 1  # index of a session's first turn.started
_INTERRUPT_KIND: Final = {"approval": "approval", "retry": "approval", "question": "input"}


def apply(state: SessionState, kind: str, data: Mapping[str, Any], timestamp_ms: int) -> None:
    """Fold one event, already checked, into a state that only the caller holds.

    `offset` and `sum` are left to the caller, who has the line's bytes.
    """
    turn = state.turn
    if turn is not None:
        if kind in _RECORD:
            if not _is_given_up(data):
                state.turn = _recorded(turn, data)
        elif turn.loose_index is None and (kind in _LOOSE or kind.startswith("x.")):
            state.turn = turn._replace(loose_index=state.next_index)
    if kind != ev.MESSAGE_APPENDED:  # the hot one changes nothing else
        state.owes = OWED.get(kind, ())
        fold = _FOLDS.get(kind)
        if fold is not None:
            fold(state, data, timestamp_ms)
    state.next_index += 1
    state.updated_at_ms = timestamp_ms


def response_digest(response: object) -> str:
    """Names a response, so that the same one given twice is known; the order of an object's keys does not matter."""
    return hashlib.sha256(orjson.dumps(response, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _is_given_up(data: Mapping[str, Any]) -> bool:
    """What is cancelled is not part of the record (contract section 1, order)."""
    return "cancelled" in (data.get("outcome"), data.get("status"), data.get("error"))


def _recorded(turn: OpenTurn, data: Mapping[str, Any]) -> OpenTurn:
    """The turn with one more event in its record: nothing before it is loose, the attempt was not fruitless."""
    failure = (data["callId"], turn.loose_index) if data.get("status") == "failed" else None
    return turn._replace(loose_index=None, failure=failure, is_fruitless=False, crashes=0)


def _session_started(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    state.agent = data["agent"]
    state.owner = data.get("owner")
    state.metadata = data.get("metadata")
    state.token = data["continuationToken"]
    state.created_at_ms = timestamp_ms


def _session_over(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    state.terminal = "failed" if "code" in data else "completed"
    state.queue = ()


def _turn_started(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    state.token = data["continuationToken"]
    turn_id, index, failed = data["turnId"], state.next_index, state.failed
    turn = OpenTurn(
        turn_id,
        index,
        turn_id,
        index,
        agent_version=data.get("agentVersion"),
        tools_digest=data.get("toolsDigest"),
        key=_key_of(data),
    )
    if "resumes" in data and failed is not None:
        at = data.get("discardFrom", index)
        calls = {call_id: call for call_id, call in failed.calls.items() if call.index < at}
        turn = turn._replace(
            root_turn_id=failed.root_turn_id,
            root_index=failed.root_index,
            calls=calls,
            message=failed.message,
        )
    else:
        state.turn_state = state.agent_state
    if state.queue and state.queue[0]["turnId"] == turn_id:
        turn = turn._replace(message=state.queue[0]["message"], key=_key_of(state.queue[0]))
        state.queue = state.queue[1:]
    elif turn.key is not None:
        _remember(state, data, index, is_queued=False)
    state.turn, state.failed, state.steps = turn, None, ()


def _remember(state: SessionState, data: Mapping[str, Any], index: int, *, is_queued: bool) -> None:
    """Keep what a POST with an Idempotency-Key was answered."""
    is_first = index == _FIRST_TURN  # it is answered with startIndex 0
    start_index = 0 if is_first else index
    row = KeyedTurn(data["requestDigest"], data["turnId"], data["continuationToken"], start_index, is_queued)
    if is_first:
        state.made = (data["idempotencyKey"], row)
        return
    keys = {**state.keys, keyed_as(data["idempotencyKey"], data.get("by")): row}
    while len(keys) > REMEMBERED:
        del keys[next(iter(keys))]
    state.keys = keys


def keyed_as(key: str, by: str | None) -> str:
    """What a key is remembered as: each caller has keys of its own. `by` is None of the session's owner.

    A key has no space, so that no key of the owner's is another's.
    """
    return key if by is None else f"{key} {by}"


def _key_of(data: Mapping[str, Any]) -> str | None:
    """What the key that a turn came with is remembered as."""
    key = data.get("idempotencyKey")
    return None if key is None else keyed_as(key, data.get("by"))


def _turn_completed(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    state.turn = None
    state.agent_state = state.turn_state


def _turn_failed(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    turn, state.turn = state.turn, None
    state.interrupt = ("restart" if data["code"] == "HOST_RESTARTED" else "failure", None)
    if turn is None:
        return
    if not turn.is_received and turn.key is not None:  # nothing came of it: the same key may be used again
        if turn.started_index == _FIRST_TURN:
            state.made = None
        else:
            state.keys = {key: row for key, row in state.keys.items() if key != turn.key}
    if data["recoverable"]:
        call_id, discard_from = data.get("callId"), turn.loose_index
        if turn.failure is not None and turn.failure[0] == call_id and turn.failure[1] is not None:
            discard_from = turn.failure[1]
        again = {name: call for name, call in turn.unlucky.items() if name == call_id}
        state.failed = FailedTurn(
            turn.turn_id,
            turn.root_turn_id,
            turn.root_index,
            discard_from,
            call_id,
            {**turn.calls, **again},
            turn.message,
        )


def _turn_cancelling(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    if state.turn is not None:
        state.turn = state.turn._replace(
            cancelling={name: data[name] for name in ("reason", "by") if name in data}
        )


def _turn_cancelled(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    state.turn = None
    state.interrupt = ("cancelled", None)


def _step_started(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    step = {
        "stepId": data["stepId"],
        "turnId": data["turnId"],
        "status": "running",
        "startedAt": timestamp_ms,
    }
    state.steps = ({**step, "attempt": 1},)


def _step_completed(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    _change_step(state, status="completed", completedAt=timestamp_ms)


def _step_interrupted(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    reason = {name: data[name] for name in ("interruptKind", "requestId") if name in data}
    _change_step(state, status="interrupted", **reason)
    state.interrupt = None
    if state.turn is None:
        state.owes = TURN_OVER


def _step_resumed(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    _change_step(state, status="running", attempt=data["attempt"])
    turn = state.turn
    if turn is None:
        return
    if data["attempt"] > turn.attempt:
        turn = turn._replace(loose_index=None, crashes=data.get("crashes", 0), is_fruitless=True)
    at = data.get("discardFrom", state.next_index)
    state.turn = turn._replace(
        attempt=data["attempt"],
        completions=tuple(index for index in turn.completions if index < at),
        calls={call_id: call for call_id, call in turn.calls.items() if call.index < at},
    )


def _change_step(state: SessionState, **changed: Any) -> None:
    *earlier, last = state.steps
    kept = {name: value for name, value in last.items() if name not in ("interruptKind", "requestId")}
    state.steps = (*earlier, {**kept, **changed})


def _message_queued(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    state.token = data["continuationToken"]
    state.queue = (*state.queue, data)
    if "idempotencyKey" in data:
        _remember(state, data, state.next_index, is_queued=True)


def _message_received(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    if state.turn is not None:
        state.turn = state.turn._replace(is_received=True, message=data["message"])


def _message_completed(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    if state.turn is not None:
        state.turn = state.turn._replace(completions=(*state.turn.completions, state.next_index))


def _actions_requested(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    if state.turn is not None:
        call = OpenCall(data["toolName"], state.next_index)
        state.turn = state.turn._replace(calls={**state.turn.calls, data["callId"]: call})


def _action_result(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    if state.turn is not None:
        calls = dict(state.turn.calls)
        ended, unlucky = calls.pop(data["callId"]), state.turn.unlucky
        if data["status"] in ("failed", "denied"):
            unlucky = {**unlucky, data["callId"]: ended}
            while len(unlucky) > UNLUCKY_MAX:
                del unlucky[next(iter(unlucky))]
        state.turn = state.turn._replace(calls=calls, unlucky=unlucky)


def _requested(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    kind = data.get("kind", "authorization")
    request = PendingRequest(data["requestId"], kind, state.next_index, data)
    state.pending = {**state.pending, request.request_id: request}
    state.interrupt = (_INTERRUPT_KIND.get(kind, kind), request.request_id)


def _input_completed(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    outcome = data["outcome"]
    asked = state.pending[data["requestId"]]
    if outcome == "approved" and asked.kind == "approval" and asked.data.get("scope") == "session":
        state.grants = tuple(dict.fromkeys((*state.grants, asked.data["toolName"])))
    named = response_digest(data["response"]) if outcome == "answered" else ""
    _answered(state, data["requestId"], Answer(data["kind"], outcome, named))


def _authorization_completed(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    outcome = "success" if data["success"] else "failure"
    if data.get("error") == "cancelled":
        outcome = "cancelled"
    _answered(state, data["requestId"], Answer("authorization", outcome))


def _answered(state: SessionState, request_id: str, answer: Answer) -> None:
    state.pending = {name: request for name, request in state.pending.items() if name != request_id}
    answers = {**state.answers, request_id: answer}
    while len(answers) > REMEMBERED:
        del answers[next(iter(answers))]
    state.answers = answers
    if not state.pending:
        state.owes = AFTER_GIVING_UP if answer.outcome == "cancelled" else (ev.STEP_RESUMED,)


def _checkpoint_saved(state: SessionState, data: Mapping[str, Any], timestamp_ms: int) -> None:
    state.turn_state = data["state"]


_FOLDS: Final[dict[str, Callable[[SessionState, Mapping[str, Any], int], None]]] = {
    ev.SESSION_STARTED: _session_started,
    ev.SESSION_COMPLETED: _session_over,
    ev.SESSION_FAILED: _session_over,
    ev.TURN_STARTED: _turn_started,
    ev.TURN_COMPLETED: _turn_completed,
    ev.TURN_FAILED: _turn_failed,
    ev.TURN_CANCELLING: _turn_cancelling,
    ev.TURN_CANCELLED: _turn_cancelled,
    ev.STEP_STARTED: _step_started,
    ev.STEP_COMPLETED: _step_completed,
    ev.STEP_INTERRUPTED: _step_interrupted,
    ev.STEP_RESUMED: _step_resumed,
    ev.MESSAGE_QUEUED: _message_queued,
    ev.MESSAGE_RECEIVED: _message_received,
    ev.MESSAGE_COMPLETED: _message_completed,
    ev.ACTIONS_REQUESTED: _actions_requested,
    ev.ACTION_RESULT: _action_result,
    ev.INPUT_REQUESTED: _requested,
    ev.INPUT_COMPLETED: _input_completed,
    ev.AUTHORIZATION_REQUIRED: _requested,
    ev.AUTHORIZATION_COMPLETED: _authorization_completed,
    ev.CHECKPOINT_SAVED: _checkpoint_saved,
}
