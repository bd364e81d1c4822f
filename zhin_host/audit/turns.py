"""TurnRules: what the contract promises of turns, steps, tokens and boundaries beyond the table of moves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from zhin_host import events as ev
from zhin_host.state import SessionState

_TOKEN: Final = re.compile(r"zhin:[A-Za-z0-9_-]{22,}")  # at least 128 bits
_REQUEST_STEP: Final = {
    "approval": "approval",
    "retry": "approval",
    "question": "input",
    "authorization": "authorization",
}
_STEP_STATUS: Final = {
    ev.STEP_STARTED: "running",
    ev.STEP_COMPLETED: "completed",
    ev.STEP_INTERRUPTED: "interrupted",
}
_RECORD: Final = frozenset(
    {
        ev.MESSAGE_RECEIVED,
        ev.ACTION_RESULT,
        ev.INPUT_COMPLETED,
        ev.AUTHORIZATION_COMPLETED,
        ev.CHECKPOINT_SAVED,
    }
)
_REASONS: Final = frozenset({"idle", "parked", "interrupted"})


class TurnRules:
    """Remembers what the fold forgets: every turn, step and token there was.

    Its memory grows with the number of turns, by their ids; not with what was said in them.
    """

    def __init__(self) -> None:
        self._turns: set[str] = set()
        self._steps: set[str] = set()
        self._tokens: set[str] = set()
        self._failed: tuple[str, int | None] | None = (
            None  # the last turn when it may be resumed, its discardFrom
        )
        self._last_failure: tuple[str, int | None] | None = None  # a failed action as the newest record event
        self._is_told = False  # whether the open turn's message stood in the log before it began
        self._last_type = ""

    def broken(self, state: SessionState, kind: str, data: Mapping[str, Any]) -> Iterator[str]:
        """Sentences for what this event breaks; `state` is the fold of everything before it."""
        rule = _RULES.get(kind)
        if rule is not None:
            yield from rule(self, state, data)
        if kind in _STEP_STATUS or kind == ev.STEP_RESUMED:
            yield from self._step(state, kind, data)
        self._remember_failure(state, kind, data)
        self._last_type = kind

    # -- tokens --------------------------------------------------------------------------------------------

    def _take_token(self, token: object) -> Iterator[str]:
        if not isinstance(token, str) or _TOKEN.fullmatch(token) is None:
            yield "continuationToken is not zhin: and at least 128 bits"
        else:
            self._tokens.add(token)

    def _session_started(self, _state: SessionState, data: Mapping[str, Any]) -> Iterator[str]:
        if data["logVersion"] != ev.LOG_VERSION:
            yield f"logVersion is {data['logVersion']!r}, this audit reads {ev.LOG_VERSION}"
        yield from self._take_token(data["continuationToken"])

    def _message_queued(self, state: SessionState, data: Mapping[str, Any]) -> Iterator[str]:
        turn_id = data["turnId"]
        if turn_id in self._turns or any(turn_id == queued["turnId"] for queued in state.queue):
            yield f"turn {turn_id} was there before"
        if data["continuationToken"] in self._tokens:
            yield "a follow-up was queued and the token did not rotate"
        yield from self._take_token(data["continuationToken"])

    # -- turns ---------------------------------------------------------------------------------------------

    def _turn_started(self, state: SessionState, data: Mapping[str, Any]) -> Iterator[str]:
        turn_id, token = data["turnId"], data["continuationToken"]
        if turn_id in self._turns:
            yield f"turn {turn_id} was there before"
        first = state.queue[0]["turnId"] if state.queue else None
        if first is not None and first != turn_id:
            yield f"turn {turn_id} starts before the queued {first}"
        if first == turn_id or not self._turns:
            if token != state.token:
                yield "the token of a first or queued turn is not the one in force"
        elif token in self._tokens:
            yield "a follow-up began and the token did not rotate"
        if "resumes" in data:
            yield from self._resumes(data)
        self._is_told = first == turn_id or "resumes" in data
        self._failed = self._last_failure = None
        self._turns.add(turn_id)
        yield from self._take_token(token)

    def _resumes(self, data: Mapping[str, Any]) -> Iterator[str]:
        if self._failed is None or data["resumes"] != self._failed[0]:
            yield f"resumes {data['resumes']}, which is not the last turn, failed and recoverable"
        elif data.get("discardFrom") != self._failed[1]:
            yield f"discardFrom is {data.get('discardFrom')} where {self._failed[1]} is meant"

    def _turn_failed(self, state: SessionState, data: Mapping[str, Any]) -> Iterator[str]:
        turn = state.turn
        if not isinstance(data["recoverable"], bool):
            yield "recoverable is neither true nor false"
        elif turn is not None and not turn.is_received and self._is_told:
            yield "a turn whose message is in the log ends without having received it"
        elif turn is not None and data["recoverable"]:
            loose, call_id = turn.loose_index, data.get("callId")
            # Contract section 2, resume: the failed action's result does not move discardFrom.
            if self._last_failure is not None and self._last_failure[0] == call_id:
                loose = self._last_failure[1] if self._last_failure[1] is not None else loose
            self._failed = (turn.turn_id, loose)

    def _remember_failure(self, state: SessionState, kind: str, data: Mapping[str, Any]) -> None:
        if kind == ev.ACTION_RESULT and data.get("status") == "failed":
            self._last_failure = (data["callId"], None if state.turn is None else state.turn.loose_index)
        elif kind in _RECORD:
            ended = (data.get("outcome"), data.get("status"), data.get("error"))
            self._last_failure = self._last_failure if "cancelled" in ended else None

    # -- steps ---------------------------------------------------------------------------------------------

    def _step(self, state: SessionState, kind: str, data: Mapping[str, Any]) -> Iterator[str]:
        status = _STEP_STATUS.get(kind)
        if status is not None and data["status"] != status:
            yield f"status is {data['status']!r} in {kind}"
        if kind == ev.STEP_STARTED:
            if data["stepId"] in self._steps:
                yield f"step {data['stepId']} was there before"
            self._steps.add(data["stepId"])
            if state.turn is not None and data["turnId"] != state.turn.turn_id:
                yield f"a step of turn {data['turnId']}, {state.turn.turn_id} is open"
            return
        last = state.steps[-1] if state.steps else {}
        if (data["stepId"], data["turnId"]) != (last.get("stepId"), last.get("turnId")):
            yield f"step {data['stepId']} of turn {data['turnId']} is not the open one"

    def _step_interrupted(self, state: SessionState, data: Mapping[str, Any]) -> Iterator[str]:
        kind, request_id = data["interruptKind"], data.get("requestId")
        if state.turn is not None:
            request = state.pending.get(request_id) if isinstance(request_id, str) else None
            if request is None:
                yield f"interrupted for request {request_id!r}, which is not open"
            elif kind != _REQUEST_STEP.get(request.kind):
                yield f"interruptKind is {kind!r} for a request of kind {request.kind!r}"
            return
        fitting = {ev.TURN_FAILED: ("failure", "restart"), ev.TURN_CANCELLED: ("cancelled",)}
        if kind not in fitting.get(self._last_type, ()):
            yield f"interruptKind is {kind!r} after {self._last_type}"

    def _step_resumed(self, state: SessionState, data: Mapping[str, Any]) -> Iterator[str]:
        turn = state.turn
        if turn is None:
            return
        attempt, at = data["attempt"], data.get("discardFrom")
        if attempt not in (turn.attempt, turn.attempt + 1) or (at is not None and attempt == turn.attempt):
            yield f"attempt {attempt!r} (discardFrom {at!r}) after attempt {turn.attempt}"
        elif attempt == turn.attempt + 1 and at != turn.loose_index:
            yield f"discardFrom is {at!r} where {turn.loose_index!r} is meant"
        if at is not None and not (isinstance(at, int) and turn.started_index < at < state.next_index):
            yield f"discardFrom is {at!r}, which is not inside this turn"

    # -- boundaries ----------------------------------------------------------------------------------------

    def _session_waiting(self, state: SessionState, data: Mapping[str, Any]) -> Iterator[str]:
        if data["sessionId"] != state.session_id:
            yield "sessionId is another's"
        if sorted(data["pendingRequestIds"]) != sorted(state.pending):
            yield f"pendingRequestIds is {data['pendingRequestIds']}, open are {sorted(state.pending)}"
        if data["reason"] not in _REASONS or data["parked"] != (data["reason"] == "parked"):
            yield f"parked is {data['parked']} and reason {data['reason']!r}"
        if data["parked"] != bool(state.pending):
            yield f"parked is {data['parked']} with {len(state.pending)} open requests"
        if data["continuationToken"] != state.token:
            yield "continuationToken is not the one in force"
        if (data.get("queued") or 0) != len(state.queue):
            yield f"queued is {data.get('queued')}, {len(state.queue)} messages wait"
        if not data["parked"] and state.turn is not None:
            yield "at rest with a turn open"
        said = {step.get("stepId"): step.get("status") for step in data["steps"]}
        for step in state.steps:
            if said.get(step["stepId"]) != step["status"]:
                yield f"steps say {step['stepId']} is {said.get(step['stepId'])}, the log {step['status']}"

    def _session_ended(self, state: SessionState, data: Mapping[str, Any]) -> Iterator[str]:
        if data["sessionId"] != state.session_id:
            yield "sessionId is another's"
        waiting = sorted(queued["turnId"] for queued in state.queue)
        if sorted(data.get("droppedTurnIds") or []) != waiting:
            yield f"droppedTurnIds is {data.get('droppedTurnIds')}, queued are {waiting}"


_Rule = Callable[[TurnRules, SessionState, Mapping[str, Any]], Iterator[str]]
_RULES: Final[dict[str, _Rule]] = {
    ev.SESSION_STARTED: TurnRules._session_started,  # noqa: SLF001 - the class's own table
    ev.SESSION_WAITING: TurnRules._session_waiting,  # noqa: SLF001
    ev.SESSION_COMPLETED: TurnRules._session_ended,  # noqa: SLF001
    ev.SESSION_FAILED: TurnRules._session_ended,  # noqa: SLF001
    ev.TURN_STARTED: TurnRules._turn_started,  # noqa: SLF001
    ev.TURN_FAILED: TurnRules._turn_failed,  # noqa: SLF001
    ev.STEP_INTERRUPTED: TurnRules._step_interrupted,  # noqa: SLF001
    ev.STEP_RESUMED: TurnRules._step_resumed,  # noqa: SLF001
    ev.MESSAGE_QUEUED: TurnRules._message_queued,  # noqa: SLF001
}
