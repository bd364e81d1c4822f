"""Translation: lines of a log in, events of AG-UI out; nothing but the lines decides what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import orjson
from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    Interrupt,
    MessagesSnapshotEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
)

from zhin_host import events as ev
from zhin_host.protocols.ag_ui.transcript import Call, Text, Transcript, call_of

PROTOCOL_VERSION: Final = "1.0"
STATE_BYTES_MAX: Final = 64 * 1024
"""A client sends its state back with each message: a larger one would fill its requests, and stays in the log."""

_COUNT_MAX: Final = 2**53 - 1
_COUNTS: Final = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "totalTokens": "total_tokens",
    "reasoningTokens": "reasoning_tokens",
    "cachedInputTokens": "cached_input_tokens",
    "cacheWriteInputTokens": "cache_write_input_tokens",
}
_DECISION: Final = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "comment": {"type": "string"}},
    "required": ["approved"],
}
_AUTHORIZED: Final = {
    "type": "object",
    "properties": {"success": {"type": "boolean"}, "error": {"type": "string"}},
    "required": ["success"],
}

Ending = RunFinishedEvent | RunErrorEvent


class Translation:
    """What a reader of one thread is told, line by line.

    It is given the lines of a session in order, from its first one or from the first of a turn. What each becomes
    depends on those before it alone, so two readers who begin at the same line are told the same.

    Args:
        thread_id: What the client calls the session.
        run_id: What the client calls the run; None: it asked for none, and a run is named after its turn.
        transcript: What the client should hold; kept up to date here.

    Attributes:
        ending: How the last turn ended; None while one is open, and before the first.
        waits: The open requests as interrupts, by requestId, oldest first.
    """

    def __init__(self, thread_id: str, run_id: str | None, transcript: Transcript) -> None:
        self.ending: Ending | None = None
        self.waits: dict[str, Interrupt] = {}
        self._thread_id = thread_id
        self._given_run_id = run_id
        self._run_id = run_id or thread_id
        self._transcript = transcript
        self._turn_id = ""
        self._open: Text | None = None
        self._calls: dict[str, int] = {}  # those without a result: callId -> index
        self._waiting_calls: dict[str, str] = {}  # requestId -> callId
        self._is_cancelling = False
        self._state: bytes | None = None
        self._folds: Mapping[str, Callable[[int, Mapping[str, Any]], Iterator[BaseEvent]]] = {
            ev.TURN_STARTED: self._on_turn_started,
            ev.TURN_COMPLETED: self._on_turn_completed,
            ev.TURN_FAILED: self._on_turn_failed,
            ev.TURN_CANCELLING: self._on_turn_cancelling,
            ev.TURN_CANCELLED: self._on_turn_cancelled,
            ev.STEP_RESUMED: self._on_step_resumed,
            ev.MESSAGE_RECEIVED: self._on_message_received,
            ev.MESSAGE_APPENDED: self._on_message_appended,
            ev.REASONING_APPENDED: self._on_reasoning_appended,
            ev.REASONING_COMPLETED: self._on_reasoning_completed,
            ev.ACTIONS_REQUESTED: self._on_actions_requested,
            ev.ACTION_RETRYING: self._on_action_retrying,
            ev.ACTION_RESULT: self._on_action_result,
            ev.INPUT_REQUESTED: self._on_requested,
            ev.AUTHORIZATION_REQUIRED: self._on_requested,
            ev.INPUT_COMPLETED: self._on_answered,
            ev.AUTHORIZATION_COMPLETED: self._on_answered,
            ev.CHECKPOINT_SAVED: self._on_checkpoint_saved,
        }

    @property
    def is_stuck(self) -> bool:
        """Whether the turn waits for a person and for nothing else that is known."""
        busy = self._calls.keys() - self._waiting_calls.values()
        return bool(self.waits) and not busy and not self._is_cancelling

    def event(self, index: int, kind: str, data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        """What one event of the log becomes; it must be read to its end, whether it is told or not."""
        fold = self._folds.get(kind)
        if fold is not None:
            yield from fold(index, data)
        elif kind.startswith("x."):
            yield CustomEvent(name=kind, value=data)

    def restated(self) -> Iterator[BaseEvent]:
        """What tells a client where the thread is, whatever it holds: the run's begin, then snapshots."""
        yield self._started()
        if self._state is not None:
            yield StateSnapshotEvent(snapshot=orjson.loads(self._state))
        yield self._snapshot()
        if self._open is not None:  # its text goes on
            yield from self._begun(self._open)

    def interrupted(self) -> Iterator[BaseEvent]:
        """The end of a run that waits for a person; the turn stays open."""
        yield from self._close()
        outcome = RunFinishedInterruptOutcome(interrupts=list(self.waits.values()))
        yield RunFinishedEvent(thread_id=self._thread_id, run_id=self._run_id, outcome=outcome)

    # -- turns -----------------------------------------------------------------------------------------------------

    def _on_turn_started(self, _index: int, data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        self._turn_id, self.ending = data["turnId"], None
        self._run_id = self._given_run_id or self._turn_id
        self._calls.clear()
        self._waiting_calls.clear()
        self.waits.clear()
        self._is_cancelling = False
        if (index := data.get("discardFrom")) is not None:
            self._transcript.discard(index)
        yield self._started()

    def _on_message_received(self, _index: int, data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        self._transcript.ask(self._turn_id, data["message"])
        yield from ()

    def _on_turn_completed(self, _index: int, data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        outcome = RunFinishedSuccessOutcome()
        yield from self._end(
            RunFinishedEvent(
                thread_id=self._thread_id,
                run_id=self._run_id,
                outcome=outcome,
                usage=_usage_of(data.get("usage")),
            )
        )

    def _on_turn_cancelling(self, _index: int, _data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        self._is_cancelling = True
        yield from ()

    def _on_turn_cancelled(self, _index: int, _data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        outcome = RunFinishedCancelledOutcome()
        yield from self._end(
            RunFinishedEvent(thread_id=self._thread_id, run_id=self._run_id, outcome=outcome)
        )

    def _on_turn_failed(self, _index: int, data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        yield from self._end(RunErrorEvent(message=data["message"], code=data["code"]))

    def _end(self, ending: Ending) -> Iterator[BaseEvent]:
        yield from self._close()
        self.ending = ending
        yield ending

    def _started(self) -> RunStartedEvent:
        return RunStartedEvent(
            thread_id=self._thread_id, run_id=self._run_id, protocol_version=PROTOCOL_VERSION
        )

    # -- text ------------------------------------------------------------------------------------------------------

    def _on_message_appended(self, index: int, data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        text, begun = self._text(index, "assistant")
        yield from begun
        text.pieces.append((index, data["messageDelta"]))
        yield TextMessageContentEvent(message_id=text.id, delta=data["messageDelta"])

    def _on_reasoning_appended(self, index: int, data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        text, begun = self._text(index, "reasoning")
        yield from begun
        text.pieces.append((index, data["reasoningDelta"]))
        yield ReasoningMessageContentEvent(message_id=text.id, delta=data["reasoningDelta"])

    def _on_reasoning_completed(self, _index: int, _data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        if self._open is not None and self._open.role == "reasoning":
            yield from self._close()

    def _text(self, index: int, role: Literal["assistant", "reasoning"]) -> tuple[Text, list[BaseEvent]]:
        """The open text of this kind, and what opens it where none was."""
        if self._open is not None and self._open.role == role:
            return self._open, []
        events = list(self._close())
        self._open = text = Text(self._id(index), role)
        self._transcript.begin(text)
        return text, [*events, *self._begun(text)]

    def _begun(self, text: Text) -> Iterator[BaseEvent]:
        if text.role == "assistant":
            yield TextMessageStartEvent(message_id=text.id)
        else:
            yield ReasoningStartEvent(message_id=text.id)
            yield ReasoningMessageStartEvent(message_id=text.id)

    def _close(self) -> Iterator[BaseEvent]:
        text, self._open = self._open, None
        if text is None:
            return
        if text.role == "assistant":
            yield TextMessageEndEvent(message_id=text.id)
        else:
            yield ReasoningMessageEndEvent(message_id=text.id)
            yield ReasoningEndEvent(message_id=text.id)

    def _on_step_resumed(self, _index: int, data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        if (index := data.get("discardFrom")) is None:
            return
        yield from self._close()
        self._transcript.discard(index)
        self._calls = {call_id: at for call_id, at in self._calls.items() if at < index}
        yield self._snapshot()

    def _snapshot(self) -> MessagesSnapshotEvent:
        return MessagesSnapshotEvent(messages=self._transcript.messages())

    def _id(self, index: int) -> str:
        return f"{self._turn_id}-{index}"

    # -- calls -----------------------------------------------------------------------------------------------------

    def _on_actions_requested(self, index: int, data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        yield from self._close()
        call = call_of(data["callId"], data["toolName"], data["input"])
        self._calls[call.id] = index
        self._transcript.call(Call(self._id(index), index, call))
        name, arguments = call.function.name, call.function.arguments
        yield ToolCallStartEvent(tool_call_id=call.id, tool_call_name=name, parent_message_id=self._id(index))
        yield ToolCallArgsEvent(tool_call_id=call.id, delta=arguments)
        yield ToolCallEndEvent(tool_call_id=call.id)

    def _on_action_retrying(self, _index: int, data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        yield CustomEvent(name=ev.ACTION_RETRYING, value=data)

    def _on_action_result(self, index: int, data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        call_id, status = data["callId"], data["status"]
        self._calls.pop(call_id, None)
        if status == "completed":
            output, metadata = data.get("output"), None
            content = output if isinstance(output, str) else orjson.dumps(output).decode()
        else:
            error = data.get("error") or {}
            content = str(error.get("message", status))
            metadata = {"zhin": {"status": status, **error}}
        result = ToolMessage(id=self._id(index), tool_call_id=call_id, content=content, metadata=metadata)
        if self._transcript.answer(call_id, result):
            yield ToolCallResultEvent(
                message_id=result.id, tool_call_id=call_id, content=content, metadata=metadata
            )
        else:
            yield self._snapshot()

    def _on_checkpoint_saved(self, _index: int, data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        state = orjson.dumps(data["state"])
        if len(state) <= STATE_BYTES_MAX:
            self._state = state
            yield StateSnapshotEvent(snapshot=data["state"])

    # -- requests --------------------------------------------------------------------------------------------------

    def _on_requested(self, _index: int, data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        yield from self._close()
        self.waits[data["requestId"]] = interrupt_of(data)
        self._waiting_calls[data["requestId"]] = data["callId"]

    def _on_answered(self, _index: int, data: Mapping[str, Any]) -> Iterator[BaseEvent]:
        self.waits.pop(data["requestId"], None)
        self._waiting_calls.pop(data["requestId"], None)
        yield from ()


def interrupt_of(data: Mapping[str, Any]) -> Interrupt:
    """An open request as AG-UI asks it; `data` is that of input.requested or authorization.required."""
    kind = data.get("kind", "authorization")
    is_of_call = "toolName" in data
    shown = {name: value for name, value in data.items() if name not in _ELSEWHERE}
    expires = data.get("expiresAt")
    return Interrupt(
        id=data["requestId"],
        reason="tool_call" if is_of_call and kind == "approval" else _REASONS[kind],
        message=data["prompt"] if "prompt" in data else f"{data['connection']} waits for an authorization.",
        tool_call_id=data["callId"] if is_of_call else None,
        response_schema=_schema_of(kind, data),
        expires_at=None if expires is None else datetime.fromtimestamp(expires / 1000, UTC).isoformat(),
        metadata={"zhin": {**shown, "kind": kind}},
    )


_ELSEWHERE: Final = ("requestId", "callId", "prompt", "expiresAt")
_REASONS: Final = {
    "approval": "confirmation",
    "question": "input_required",
    "retry": "zhin:retry",
    "authorization": "zhin:authorization",
}


def _schema_of(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "authorization":
        return dict(_AUTHORIZED)
    if kind != "question":
        return dict(_DECISION)
    options = data.get("options")
    return {"enum": options} if isinstance(options, list) and options else {}


def _usage_of(usage: object) -> list[TokenUsage] | None:
    """Token counts where the agent told them under the protocol's names, camelCase or snake_case."""
    if not isinstance(usage, Mapping):
        return None
    counts: dict[str, Any] = {}
    for name, field in _COUNTS.items():
        count = usage.get(name, usage.get(field))
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= _COUNT_MAX:
            counts[field] = count
    for name in ("provider", "model"):
        if isinstance(usage.get(name), str):
            counts[name] = usage[name]
    return [TokenUsage(**counts)] if any(field in counts for field in _COUNTS.values()) else None
