"""Reducer: folds events to what is shown. Pure, and idempotent: an event that was folded before changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from zhin_host import events as ev
from zhin_host.client.view import Call, Queued, Request, TurnView, View


def fold(view: View, event: ev.Event) -> View:
    """The view after this event. Events come in the order of their indexes; types unknown here change nothing."""
    if event.index < view.cursor:
        return view
    turns = view.turns
    if event.type in _OF_SESSION:
        view = _OF_SESSION[event.type](view, event)
        turns = view.turns
    elif turns and turns[-1].is_open:
        turns = (*turns[:-1], _turn_after(turns[-1], event))
    return replace(view, turns=turns, cursor=event.index + 1, updated_at_ms=event.timestamp_ms)


def _turn_after(turn: TurnView, event: ev.Event) -> TurnView:
    if ev.is_own_type(event.type):
        return replace(turn, own=(*turn.own, event))
    of_turn = _OF_TURN.get(event.type)
    return turn if of_turn is None else of_turn(turn, event)


# -- the session ---------------------------------------------------------------------------------------------------


def _session_started(view: View, event: ev.Event) -> View:
    data = event.data
    return replace(
        view,
        session_id=data["sessionId"],
        agent=data["agent"],
        metadata=data.get("metadata"),
        continuation_token=data["continuationToken"],
    )


def _session_waiting(view: View, event: ev.Event) -> View:
    data = event.data
    return replace(view, session_id=data["sessionId"], continuation_token=data["continuationToken"])


def _session_completed(view: View, event: ev.Event) -> View:  # noqa: ARG001 - one signature for all
    return replace(view, outcome="completed", queue=())


def _session_failed(view: View, event: ev.Event) -> View:
    failure = (event.data["code"], event.data["message"])
    return replace(view, outcome="failed", queue=(), failure=failure)


def _message_queued(view: View, event: ev.Event) -> View:
    queued = Queued(event.data["turnId"], event.data["message"])
    return replace(view, queue=(*view.queue, queued), continuation_token=event.data["continuationToken"])


def _turn_started(view: View, event: ev.Event) -> View:
    data = event.data
    turn = TurnView(data["turnId"], resumes=data.get("resumes"))
    turns = view.turns
    if turn.resumes is not None:
        turns = tuple(_superseded(old, turn.turn_id, event) for old in turns)
        for old in view.turns:
            if old.turn_id == turn.resumes:
                turn = _taken_over(old, turn, event)
    return replace(
        view,
        turns=(*turns, turn),
        queue=tuple(row for row in view.queue if row.turn_id != turn.turn_id),
        continuation_token=data["continuationToken"],
    )


def _superseded(old: TurnView, turn_id: str, event: ev.Event) -> TurnView:
    """A turn when another begins that resumes one: the resumed one, and those it resumed, lose what does not count."""
    if old.turn_id == event.data["resumes"]:
        old = replace(old, resumed_by=turn_id)
    return old if old.resumed_by is None else _cut(old, event.data.get("discardFrom"))


def _taken_over(old: TurnView, turn: TurnView, event: ev.Event) -> TurnView:
    """A turn that begins with what counts of the one it resumes; the call that had failed is tried again."""
    kept = _cut(old, event.data.get("discardFrom"))
    calls = tuple(_again(call) if call.call_id == old.failed_call_id else call for call in kept.calls)
    return replace(
        turn,
        message=old.message,
        said=kept.said,
        thought=kept.thought,
        calls=calls,
        requests=kept.requests,
        own=kept.own,
    )


def _again(call: Call) -> Call:
    return Call(call.call_id, call.tool_name, call.input, call.index)


# -- the open turn -------------------------------------------------------------------------------------------------


def _cut(turn: TurnView, at: int | None) -> TurnView:
    """The turn without what stands at `at` or behind it and does not count; all of it when `at` is None."""
    if at is None:
        return turn
    is_final = turn.final is not None and turn.final[0] < at
    return replace(
        turn,
        said=turn.said.before(at),
        thought=turn.thought.before(at),
        final=turn.final if is_final else None,
        calls=tuple(call for call in turn.calls if call.index < at),
        own=tuple(event for event in turn.own if event.index < at),
    )


def _step_resumed(turn: TurnView, event: ev.Event) -> TurnView:
    turn = _cut(turn, event.data.get("discardFrom"))
    return replace(turn, attempt=event.data["attempt"])


def _message_received(turn: TurnView, event: ev.Event) -> TurnView:
    return replace(turn, message=event.data["message"])


def _message_appended(turn: TurnView, event: ev.Event) -> TurnView:
    return replace(turn, said=turn.said.add(event.index, event.data["messageDelta"]))


def _message_completed(turn: TurnView, event: ev.Event) -> TurnView:
    """Where a line could not hold the text, the deltas do."""
    data = event.data
    final = None if data.get("truncated") else (event.index, data["message"])
    return replace(turn, final=final, usage=data.get("usage", turn.usage))


def _reasoning_appended(turn: TurnView, event: ev.Event) -> TurnView:
    return replace(turn, thought=turn.thought.add(event.index, event.data["reasoningDelta"]))


def _actions_requested(turn: TurnView, event: ev.Event) -> TurnView:
    """A call that was given up and is asked for again begins anew, in its new place."""
    data = event.data
    others = tuple(call for call in turn.calls if call.call_id != data["callId"])
    return replace(turn, calls=(*others, Call(data["callId"], data["toolName"], data["input"], event.index)))


def _action_retrying(turn: TurnView, event: ev.Event) -> TurnView:
    return _with_call(turn, event, error=event.data["error"], attempt=event.data["attempt"])


def _action_result(turn: TurnView, event: ev.Event) -> TurnView:
    data = event.data
    return _with_call(
        turn,
        event,
        status=data["status"],
        output=data.get("output"),
        error=data.get("error"),
        duration_ms=data["durationMs"],
    )


def _with_call(turn: TurnView, event: ev.Event, **changes: Any) -> TurnView:
    call_id = event.data["callId"]
    calls = tuple(replace(call, **changes) if call.call_id == call_id else call for call in turn.calls)
    return replace(turn, calls=calls)


def _requested(turn: TurnView, event: ev.Event) -> TurnView:
    data = event.data
    kind = data.get("kind", "authorization")
    request = Request(data["requestId"], kind, data["callId"], event.index, data)
    return replace(turn, requests=(*turn.requests, request))


def _answered(turn: TurnView, event: ev.Event) -> TurnView:
    request_id, outcome = event.data["requestId"], _outcome(event.data)
    requests = tuple(
        replace(request, outcome=outcome, answer=event.data) if request.request_id == request_id else request
        for request in turn.requests
    )
    return replace(turn, requests=requests)


def _outcome(data: Mapping[str, Any]) -> str:
    if "outcome" in data:
        return str(data["outcome"])
    if data.get("error") == "cancelled":
        return "cancelled"
    return "success" if data["success"] else "failure"


def _turn_completed(turn: TurnView, event: ev.Event) -> TurnView:
    return replace(turn, status="completed", usage=event.data.get("usage", turn.usage))


def _turn_failed(turn: TurnView, event: ev.Event) -> TurnView:
    data = event.data
    return replace(
        turn,
        status="failed",
        code=data["code"],
        reason=data["message"],
        is_recoverable=data["recoverable"],
        failed_call_id=data.get("callId"),
    )


def _turn_cancelling(turn: TurnView, event: ev.Event) -> TurnView:
    return replace(turn, status="cancelling", reason=event.data["reason"])


def _turn_cancelled(turn: TurnView, event: ev.Event) -> TurnView:
    return replace(turn, status="cancelled", reason=event.data["reason"])


_OF_SESSION: Final[Mapping[str, Callable[[View, ev.Event], View]]] = {
    ev.SESSION_STARTED: _session_started,
    ev.SESSION_WAITING: _session_waiting,
    ev.SESSION_COMPLETED: _session_completed,
    ev.SESSION_FAILED: _session_failed,
    ev.MESSAGE_QUEUED: _message_queued,
    ev.TURN_STARTED: _turn_started,
}
_OF_TURN: Final[Mapping[str, Callable[[TurnView, ev.Event], TurnView]]] = {
    ev.STEP_RESUMED: _step_resumed,
    ev.MESSAGE_RECEIVED: _message_received,
    ev.MESSAGE_APPENDED: _message_appended,
    ev.MESSAGE_COMPLETED: _message_completed,
    ev.REASONING_APPENDED: _reasoning_appended,
    ev.ACTIONS_REQUESTED: _actions_requested,
    ev.ACTION_RETRYING: _action_retrying,
    ev.ACTION_RESULT: _action_result,
    ev.INPUT_REQUESTED: _requested,
    ev.INPUT_COMPLETED: _answered,
    ev.AUTHORIZATION_REQUIRED: _requested,
    ev.AUTHORIZATION_COMPLETED: _answered,
    ev.TURN_COMPLETED: _turn_completed,
    ev.TURN_FAILED: _turn_failed,
    ev.TURN_CANCELLING: _turn_cancelling,
    ev.TURN_CANCELLED: _turn_cancelled,
}
