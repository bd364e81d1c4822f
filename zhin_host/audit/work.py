"""WorkRules: what the contract promises of a turn's text, calls and requests beyond the table of moves."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from zhin_host import events as ev
from zhin_host.audit.members import member_bytes
from zhin_host.state import SessionState

TRUNCATED_CHARACTERS: Final = 1_000  # of a text whose line would pass the limit (contract section 1)
_OUTCOMES: Final = {
    "question": frozenset({"answered", "expired", "cancelled"}),
    "approval": frozenset({"approved", "denied", "expired", "cancelled"}),
    "retry": frozenset({"approved", "denied", "expired", "cancelled"}),
}
_STATUSES: Final = frozenset({"completed", "failed", "denied", "cancelled"})
_RAN: Final = frozenset({"completed", "failed"})


@dataclass(frozen=True, slots=True)
class _Failed:
    """A turn that failed and may be resumed: what of it still counts then."""

    turn_id: str
    text: tuple[tuple[int, str], ...]
    call_id: str | None


class WorkRules:
    """Remembers a turn's text and a session's calls; of finished calls only their ids."""

    def __init__(self) -> None:
        self._text: list[tuple[int, str]] = []  # index and delta, as far as they count
        self._failed: _Failed | None = None
        self._inputs: dict[str, Any] = {}  # of the calls of the open turn
        self._finished: set[str] = set()
        self._gates: dict[
            tuple[str, str], str
        ] = {}  # call and kind -> its request, open or refused: it may not run
        self._gate_of: dict[str, tuple[str, str]] = {}

    def broken(self, state: SessionState, kind: str, data: Mapping[str, Any], raw: bytes) -> Iterator[str]:
        """Sentences for what this event breaks; `state` is the fold of everything before it.

        Args:
            state: Not changed.
            kind: The event's type.
            data: Its data.
            raw: The bytes of `data` as they stand in the line.
        """
        if kind == ev.MESSAGE_APPENDED:
            self._text.append((state.next_index, data["messageDelta"]))
        elif kind == ev.INPUT_REQUESTED:
            yield from self._input_requested(state, data, raw)
        else:
            rule = _RULES.get(kind)
            if rule is not None:
                yield from rule(self, state, data)

    # -- text ----------------------------------------------------------------------------------------------

    def _turn_started(self, state: SessionState, data: Mapping[str, Any]) -> Iterator[str]:
        failed, self._failed = self._failed, None
        self._text = []
        if failed is not None and data.get("resumes") == failed.turn_id:
            at = data.get("discardFrom", state.next_index)
            self._text = [row for row in failed.text if row[0] < at]
            if failed.call_id is not None:  # it is tried again
                self._finished.discard(failed.call_id)
        else:
            self._inputs = {}
        yield from ()

    def _turn_failed(self, state: SessionState, data: Mapping[str, Any]) -> Iterator[str]:
        if state.turn is not None and data["recoverable"] is True:
            self._failed = _Failed(state.turn.turn_id, tuple(self._text), data.get("callId"))
        yield from ()

    def _step_resumed(self, state: SessionState, data: Mapping[str, Any]) -> Iterator[str]:
        at = data.get("discardFrom", state.next_index)
        self._text = [row for row in self._text if row[0] < at]
        yield from ()

    def _message_completed(self, _state: SessionState, data: Mapping[str, Any]) -> Iterator[str]:
        text = "".join(delta for _, delta in self._text)
        if not data.get("truncated"):
            if data["message"] != text:
                yield "message is not the deltas that count"
            return
        whole = text.encode()
        said = (data["message"], data.get("messageBytes"), data.get("messageSha256"))
        if said != (text[:TRUNCATED_CHARACTERS], len(whole), hashlib.sha256(whole).hexdigest()):
            yield "message is truncated, and its start, size or hash is not that of the deltas that count"

    # -- calls ---------------------------------------------------------------------------------------------

    def _actions_requested(self, _state: SessionState, data: Mapping[str, Any]) -> Iterator[str]:
        call_id = data["callId"]
        if call_id in self._finished:
            yield f"call {call_id} is asked for again though it has a result"
        self._inputs[call_id] = data["input"]

    def _action_result(self, _state: SessionState, data: Mapping[str, Any]) -> Iterator[str]:
        call_id, status = data["callId"], data["status"]
        if status not in _STATUSES:
            yield f"status is {status!r}"
        if call_id in self._finished:
            yield f"call {call_id} has a second result"
        shut = [self._gates[call_id, kind] for kind in _OUTCOMES if (call_id, kind) in self._gates]
        if shut and status in _RAN:
            yield f"call {call_id} ran and its request {shut[0]} was not approved"
        if status != "cancelled":
            self._finished.add(call_id)

    # -- requests ------------------------------------------------------------------------------------------

    def _input_requested(self, _state: SessionState, data: Mapping[str, Any], raw: bytes) -> Iterator[str]:
        kind, call_id, request_id = data["kind"], data["callId"], data["requestId"]
        if kind not in _OUTCOMES:
            yield f"a request of kind {kind!r}"
        if not data.get("toolName"):
            return
        shown = member_bytes(raw, b"args")
        if data.get("argsDigest") != ev.digest(shown):
            yield "argsDigest is not that of the arguments shown"
        if call_id in self._inputs and data.get("args") != self._inputs[call_id]:
            yield f"the request shows other arguments than call {call_id} has"
        self._gates[call_id, kind] = request_id
        self._gate_of[request_id] = (call_id, kind)

    def _input_completed(self, state: SessionState, data: Mapping[str, Any]) -> Iterator[str]:
        kind, outcome, request_id = data["kind"], data["outcome"], data["requestId"]
        asked = state.pending.get(request_id)
        if asked is not None and kind != asked.kind:
            yield f"a request of kind {asked.kind!r} is answered as {kind!r}"
        if outcome not in _OUTCOMES.get(kind, ()):
            yield f"outcome is {outcome!r} of a request of kind {kind!r}"
        if "approved" in data and data["approved"] != (outcome == "approved"):
            yield f"outcome is {outcome!r} and approved {data['approved']!r}"
        gate = self._gate_of.pop(request_id, None)
        if gate is not None and outcome == "approved":
            self._gates.pop(gate, None)


_Rule = Callable[[WorkRules, SessionState, Mapping[str, Any]], Iterator[str]]
_RULES: Final[dict[str, _Rule]] = {
    ev.TURN_STARTED: WorkRules._turn_started,  # noqa: SLF001 - the class's own table
    ev.TURN_FAILED: WorkRules._turn_failed,  # noqa: SLF001
    ev.STEP_RESUMED: WorkRules._step_resumed,  # noqa: SLF001
    ev.MESSAGE_COMPLETED: WorkRules._message_completed,  # noqa: SLF001
    ev.ACTIONS_REQUESTED: WorkRules._actions_requested,  # noqa: SLF001
    ev.ACTION_RESULT: WorkRules._action_result,  # noqa: SLF001
    ev.INPUT_COMPLETED: WorkRules._input_completed,  # noqa: SLF001
}
