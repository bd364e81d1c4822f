"""Translation: the events of one turn as chunks of a UI message stream. Pure: no I/O, no clock, no randomness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from zhin_host import events as ev
from zhin_host.protocols.counted import Line

Chunk = dict[str, Any]
"""One chunk, as uiMessageChunkSchema of the package `ai` has it."""

_FINISH_REASONS: Final = frozenset(
    {"stop", "length", "content-filter", "tool-calls", "error", "interrupted", "other"}
)
_UNANSWERED: Final = {"expired": "Nobody answered in time.", "cancelled": "The request was given up."}
_UNFINISHED: Final = "Not finished yet: the turn waits for an answer."
_APPROVE: Final = "approve"
_ASK: Final = "ask"
_ON_THE_HOST: Final = {"providerExecuted": True}  # else `ai` waits for the page to run it


class _Request(NamedTuple):
    """Something that waits for a person: `part` is the toolCallId of its tool part."""

    part: str
    kind: str
    data: Mapping[str, Any]
    is_call: bool


class Translation:
    """Turns the events of one turn, given in order from its turn.started on, into chunks.

    A step of the message (what lies between two `start-step`) begins behind each event of the turn's record. So what a
    re-drive voids (`discardFrom`) is the step that is under way, and `reset-step` takes it back. While a request is
    open no step begins: `ai` looks for answers in the last step only. When an agent itself gives up such a request,
    and a crash follows, `reset-step` takes back more than it should until the message is read again.

    Args:
        session_id: The session, told in the message's metadata.
        cursor: The client has what events before it became; they are read and not told.

    Attributes:
        has_ended: Whether the turn has ended.
        next_index: The cursor behind all that was read.
    """

    def __init__(self, session_id: str, cursor: int = 0) -> None:
        self.has_ended = False
        self.next_index = 0
        self._session_id = session_id
        self._cursor = cursor
        self._turn_id = ""
        self._has_begun = False
        self._out: list[Chunk] = []
        self._text: str | None = None
        self._reasoning: str | None = None
        self._has_step = False
        self._is_step_due = True
        self._has_question = False
        self._unfinished: dict[str, int] = {}  # toolCallId -> where its part began
        self._refused: set[str] = set()
        self._approved: set[str] = set()
        self._requests: dict[str, _Request] = {}
        self._ending: list[Chunk] = []  # what is told last, once it is known how the turn ended
        self._finish_reason = "stop"
        self._usage: Any = None

    @property
    def waits_for_a_person(self) -> bool:
        """Whether a request is open."""
        return bool(self._requests)

    @property
    def is_parked(self) -> bool:
        """Whether a request is open and no call runs beside it."""
        waiting = {request.part for request in self._requests.values()}
        return self.waits_for_a_person and self._unfinished.keys() <= waiting

    def feed(self, event: Line) -> list[Chunk]:
        """What the next event becomes; often nothing."""
        if event.type == ev.TURN_STARTED:
            self._turn_id = event.data["turnId"]
        if not self._has_begun and event.index >= self._cursor:
            self._begin()
        translate = self._OF_EVENT.get(event.type)
        if translate is not None:
            translate(self, event)
        elif ev.is_own_type(event.type):
            self._own(event)
        self.next_index = max(self.next_index, event.index + 1)
        return self._taken()

    def finish(self) -> list[Chunk]:
        """The end of a stream whose turn has ended, or waits for a person."""
        if not self._has_begun:
            self._begin()
        self._close_text()
        metadata: dict[str, Any] = {"cursor": self.next_index}
        if not self.has_ended:
            self._set_aside_calls()
            self._end_step()
            self._put(type="finish", finishReason="tool-calls", messageMetadata=metadata)
            return self._taken()
        self._close_calls()
        self._end_step()
        if self._usage is not None:
            metadata["usage"] = self._usage
        for chunk in self._ending:
            self._put(**chunk)
        self._put(type="finish", finishReason=self._finish_reason, messageMetadata=metadata)
        return self._taken()

    # -- how chunks are told ---------------------------------------------------------------------------------------

    def _put(self, **chunk: Any) -> None:
        if self._has_begun:
            self._out.append(chunk)

    def _taken(self) -> list[Chunk]:
        taken, self._out = self._out, []
        return taken

    def _begin(self) -> None:
        """What the client has not got begins: its open parts were closed at the end of the stream before."""
        self._has_begun = True
        self._text = self._reasoning = None
        metadata = {"sessionId": self._session_id, "turnId": self._turn_id}
        self._put(type="start", messageId=self._turn_id, messageMetadata=metadata)

    def _new_part(self) -> None:
        if self._is_step_due:
            self._end_step()
            self._put(type="start-step")
            self._has_step, self._is_step_due, self._has_question = True, False, False

    def _end_step(self) -> None:
        if self._has_step:
            self._put(type="finish-step")

    def _close_text(self) -> None:
        if self._text is not None:
            self._put(type="text-end", id=self._text)
        if self._reasoning is not None:
            self._put(type="reasoning-end", id=self._reasoning)
        self._text = self._reasoning = None

    def _set_aside_calls(self) -> None:
        """A call that goes on beside a request, or was cut off and waits for it, keeps `ai` from sending the answer.

        Its part says so, as an error for want of another word, until its result takes the place of that.
        """
        if self.waits_for_a_person:
            waiting = {request.part for request in self._requests.values()} | self._approved
            for part in self._unfinished:
                if part not in waiting:
                    self._put(type="tool-output-error", toolCallId=part, errorText=_UNFINISHED)

    def _close_calls(self) -> None:
        """No part is left that waits, or `ai` would send the message again."""
        for part in list(self._unfinished):
            self._end_part(part, "The turn ended before this was done.")
        if self._has_question and self._is_step_due:
            self._new_part()

    def _end_part(self, part: str, error: str) -> None:
        self._unfinished.pop(part, None)
        if part in self._refused:
            self._put(type="tool-output-denied", toolCallId=part)
        else:
            self._put(type="tool-output-error", toolCallId=part, errorText=error)

    def _recorded(self, event: Line) -> None:  # noqa: ARG002 - one signature for all
        """The event is one of the record: nothing before it is ever taken back."""
        if not self._requests:
            self._close_text()
            self._is_step_due = True

    # -- what events become ----------------------------------------------------------------------------------------

    def _said(self, event: Line) -> None:
        if self._text is None:
            self._close_text()
            self._new_part()
            self._text = f"text-{event.index}"
            self._put(type="text-start", id=self._text)
        self._put(type="text-delta", id=self._text, delta=event.data["messageDelta"])

    def _thought(self, event: Line) -> None:
        if self._reasoning is None:
            self._close_text()
            self._new_part()
            self._reasoning = f"reasoning-{event.index}"
            self._put(type="reasoning-start", id=self._reasoning)
        self._put(type="reasoning-delta", id=self._reasoning, delta=event.data["reasoningDelta"])

    def _silent(self, event: Line) -> None:  # noqa: ARG002 - one signature for all
        self._close_text()

    def _message_completed(self, event: Line) -> None:
        self._close_text()
        reason = event.data["finishReason"]
        self._finish_reason = reason if reason in _FINISH_REASONS else "other"
        self._usage = event.data.get("usage", self._usage)

    def _own(self, event: Line) -> None:
        """An event of the agent's own: a data part, in place of the one of the same id."""
        self._new_part()
        named = event.data.get("id")
        part = named if isinstance(named, str) else f"event-{event.index}"
        self._put(type=f"data-{event.type.removeprefix('x.')}", id=part, data=event.data)

    def _called(self, event: Line) -> None:
        data = event.data
        self._tool_part(event, data["callId"], data["toolName"], data["input"], **_ON_THE_HOST)

    def _tool_part(self, event: Line, part: str, name: str, given: Any, **more: Any) -> None:
        self._close_text()
        self._new_part()
        self._unfinished[part] = event.index
        self._refused.discard(part)
        self._approved.discard(part)
        self._put(type="tool-input-available", toolCallId=part, toolName=name, input=given, **more)

    def _retrying(self, event: Line) -> None:
        self._put(type="data-action-retrying", data=event.data, transient=True)

    def _result(self, event: Line) -> None:
        data = event.data
        part, status = data["callId"], data["status"]
        if status == "completed":
            self._unfinished.pop(part, None)
            output = data.get("output")
            self._put(type="tool-output-available", toolCallId=part, output=output, **_ON_THE_HOST)
        else:
            self._end_part(part, (data.get("error") or {}).get("message", f"The call was {status}."))
        if status != "cancelled":
            self._recorded(event)

    def _asked(self, event: Line) -> None:
        data = event.data
        request_id, kind = data["requestId"], data["kind"]
        is_call = data["callId"] in self._unfinished
        part = data["callId"] if is_call else request_id
        self._requests[request_id] = _Request(part, kind, data, is_call)
        if kind == "question":
            self._tool_part(event, part, _ASK, _fields(data, "prompt", "options"))
            self._has_question = True
        else:
            if not is_call:
                given = _fields(data, "prompt", "args")
                self._tool_part(event, part, _APPROVE, given, **_ON_THE_HOST)
            self._put(
                type="tool-approval-request",
                approvalId=request_id,
                toolCallId=part,
                reason=data["prompt"],
                approvalDescriptor=_fields(data, "kind", "scope", "expiresAt", "argsDigest"),
            )
        self._tell_cursor(event)

    def _tell_cursor(self, event: Line) -> None:
        """Where the client's answer goes on: it comes back in the message's metadata."""
        self._put(type="message-metadata", messageMetadata={"cursor": event.index + 1})

    def _answered(self, event: Line) -> None:
        data = event.data
        request = self._requests.pop(data["requestId"])
        if request.kind == "question":
            self._question_answered(request.part, data)
        else:
            self._approval_answered(request, data)
        if data["outcome"] != "cancelled":
            self._recorded(event)

    def _question_answered(self, part: str, data: Mapping[str, Any]) -> None:
        if data["outcome"] == "answered":
            self._unfinished.pop(part, None)
            self._put(type="tool-output-available", toolCallId=part, output=data["response"])
        else:
            self._end_part(part, _UNANSWERED[data["outcome"]])

    def _approval_answered(self, request: _Request, data: Mapping[str, Any]) -> None:
        is_approved = data["outcome"] == "approved"
        reason = data.get("comment", _UNANSWERED.get(data["outcome"]))
        told = {} if reason is None else {"reason": reason}
        self._put(type="tool-approval-response", approvalId=data["requestId"], approved=is_approved, **told)
        (self._approved if is_approved else self._refused).add(request.part)
        if request.is_call:  # its end comes with action.result
            return
        if is_approved:
            self._unfinished.pop(request.part, None)
            output = {"approved": True}
            self._put(type="tool-output-available", toolCallId=request.part, output=output, **_ON_THE_HOST)
        else:
            self._end_part(request.part, "")

    def _authorization(self, event: Line) -> None:
        data = event.data
        self._requests[data["requestId"]] = _Request(data["requestId"], "authorization", data, is_call=False)
        self._new_part()
        self._put(type="data-authorization", id=data["requestId"], data={**data, "status": "required"})
        self._tell_cursor(event)

    def _authorized(self, event: Line) -> None:
        data = event.data
        asked = self._requests.pop(data["requestId"]).data
        told = {**asked, **data, "status": "success" if data["success"] else "failure"}
        self._put(type="data-authorization", id=data["requestId"], data=told)
        if data.get("error") != "cancelled":
            self._recorded(event)

    def _resumed(self, event: Line) -> None:
        at = event.data.get("discardFrom")
        if at is None or self._is_step_due:  # nothing stands that does not count
            return
        self._put(type="reset-step")
        self._text = self._reasoning = None  # the client has forgotten them
        self._unfinished = {part: begun for part, begun in self._unfinished.items() if begun < at}
        self._has_question = False

    # -- how a turn ends -------------------------------------------------------------------------------------------

    def _completed(self, event: Line) -> None:
        self.has_ended = True
        self._usage = event.data.get("usage", self._usage)

    def _failed(self, event: Line) -> None:
        self.has_ended = True
        data = event.data
        failure = _fields(data, "code", "recoverable")
        self._finish_reason = "error"
        self._ending = [
            {"type": "message-metadata", "messageMetadata": {"failure": failure}},
            {"type": "error", "errorText": data["message"]},
        ]

    def _cancelled(self, event: Line) -> None:
        self.has_ended = True
        self._finish_reason = "interrupted"  # so that `ai` sends nothing by itself
        self._ending = [{"type": "abort", "reason": event.data["reason"]}]

    _OF_EVENT: ClassVar[Mapping[str, Callable[[Translation, Line], None]]] = {
        ev.MESSAGE_APPENDED: _said,
        ev.MESSAGE_COMPLETED: _message_completed,
        ev.REASONING_APPENDED: _thought,
        ev.REASONING_COMPLETED: _silent,
        ev.ACTIONS_REQUESTED: _called,
        ev.ACTION_RETRYING: _retrying,
        ev.ACTION_RESULT: _result,
        ev.INPUT_REQUESTED: _asked,
        ev.INPUT_COMPLETED: _answered,
        ev.AUTHORIZATION_REQUIRED: _authorization,
        ev.AUTHORIZATION_COMPLETED: _authorized,
        ev.CHECKPOINT_SAVED: _recorded,
        ev.STEP_RESUMED: _resumed,
        ev.TURN_COMPLETED: _completed,
        ev.TURN_FAILED: _failed,
        ev.TURN_CANCELLED: _cancelled,
    }


def _fields(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Those of the fields that are there."""
    return {name: data[name] for name in names if name in data}
