"""Translation: lines of a log in, events of AG-UI out; nothing but the lines decides what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import orjson

from zhin_host import events as ev
from zhin_host.protocols.ag_ui.transcript import Call, Text, Transcript

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

Event = dict[str, Any]
"""An event as the protocol writes it. With the library's models each delta would cost three times as much."""


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
        self.ending: Event | None = None
        self.waits: dict[str, Event] = {}
        self._thread_id = thread_id
        self._given_run_id = run_id
        self._run_id = run_id or thread_id
        self._transcript = transcript
        self._turn_id = ""
        self._open: Text | None = None
        self._calls: dict[str, int] = {}  # those without a result: callId -> index
        self._waiting_calls: dict[str, str] = {}  # requestId -> callId
        self._is_cancelling = False
        self._state: orjson.Fragment | None = None
        self._folds: Mapping[str, Callable[[int, Mapping[str, Any]], Iterator[Event]]] = {
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

    def event(self, index: int, kind: str, data: Mapping[str, Any]) -> Iterator[Event]:
        """What one event of the log becomes; it must be read to its end, whether it is told or not."""
        fold = self._folds.get(kind)
        if fold is not None:
            yield from fold(index, data)
        elif kind.startswith("x."):
            yield {"type": "CUSTOM", "name": kind, "value": data}

    def restated(self) -> Iterator[Event]:
        """What tells a client where the thread is, whatever it holds: the run's begin, then snapshots."""
        yield self._started()
        if self._state is not None:
            yield {"type": "STATE_SNAPSHOT", "snapshot": self._state}
        yield self._snapshot()
        if self._open is not None:  # its text goes on
            yield from self._begun(self._open)

    def interrupted(self) -> Iterator[Event]:
        """The end of a run that waits for a person; the turn stays open."""
        yield from self._close()
        yield self._finished({"type": "interrupt", "interrupts": list(self.waits.values())})

    # -- turns -----------------------------------------------------------------------------------------------------

    def _on_turn_started(self, _index: int, data: Mapping[str, Any]) -> Iterator[Event]:
        self._turn_id, self.ending = data["turnId"], None
        self._run_id = self._given_run_id or self._turn_id
        self._calls.clear()
        self._waiting_calls.clear()
        self.waits.clear()
        self._is_cancelling = False
        if (index := data.get("discardFrom")) is not None:
            self._transcript.discard(index)
        yield self._started()

    def _on_message_received(self, _index: int, data: Mapping[str, Any]) -> Iterator[Event]:
        self._transcript.ask(self._turn_id, data["message"])
        yield from ()

    def _on_turn_completed(self, _index: int, data: Mapping[str, Any]) -> Iterator[Event]:
        usage = _usage_of(data.get("usage"))
        yield from self._end(self._finished({"type": "success"}, **({"usage": [usage]} if usage else {})))

    def _on_turn_cancelling(self, _index: int, _data: Mapping[str, Any]) -> Iterator[Event]:
        self._is_cancelling = True
        yield from ()

    def _on_turn_cancelled(self, _index: int, _data: Mapping[str, Any]) -> Iterator[Event]:
        yield from self._end(self._finished({"type": "cancelled"}))

    def _on_turn_failed(self, _index: int, data: Mapping[str, Any]) -> Iterator[Event]:
        yield from self._end({"type": "RUN_ERROR", "message": data["message"], "code": data["code"]})

    def _end(self, ending: Event) -> Iterator[Event]:
        yield from self._close()
        self.ending = ending
        yield ending

    def _started(self) -> Event:
        return {
            "type": "RUN_STARTED",
            "threadId": self._thread_id,
            "runId": self._run_id,
            "protocolVersion": PROTOCOL_VERSION,
        }

    def _finished(self, outcome: Event, **more: Any) -> Event:
        run = {"threadId": self._thread_id, "runId": self._run_id}
        return {"type": "RUN_FINISHED", **run, "outcome": outcome, **more}

    # -- text ------------------------------------------------------------------------------------------------------

    def _on_message_appended(self, index: int, data: Mapping[str, Any]) -> Iterator[Event]:
        text, begun = self._text(index, "assistant")
        yield from begun
        text.pieces.append((index, data["messageDelta"]))
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": text.id, "delta": data["messageDelta"]}

    def _on_reasoning_appended(self, index: int, data: Mapping[str, Any]) -> Iterator[Event]:
        text, begun = self._text(index, "reasoning")
        yield from begun
        text.pieces.append((index, data["reasoningDelta"]))
        yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": text.id, "delta": data["reasoningDelta"]}

    def _on_reasoning_completed(self, _index: int, _data: Mapping[str, Any]) -> Iterator[Event]:
        if self._open is not None and self._open.role == "reasoning":
            yield from self._close()

    def _text(self, index: int, role: Literal["assistant", "reasoning"]) -> tuple[Text, list[Event]]:
        """The open text of this kind, and what opens it where none was."""
        if self._open is not None and self._open.role == role:
            return self._open, []
        events = list(self._close())
        self._open = text = Text(self._id(index), role)
        self._transcript.begin(text)
        return text, [*events, *self._begun(text)]

    def _begun(self, text: Text) -> Iterator[Event]:
        if text.role == "assistant":
            yield {"type": "TEXT_MESSAGE_START", "messageId": text.id}
        else:
            yield {"type": "REASONING_START", "messageId": text.id}
            yield {"type": "REASONING_MESSAGE_START", "messageId": text.id, "role": "reasoning"}

    def _close(self) -> Iterator[Event]:
        text, self._open = self._open, None
        if text is None:
            return
        if text.role == "assistant":
            yield {"type": "TEXT_MESSAGE_END", "messageId": text.id}
        else:
            yield {"type": "REASONING_MESSAGE_END", "messageId": text.id}
            yield {"type": "REASONING_END", "messageId": text.id}

    def _on_step_resumed(self, _index: int, data: Mapping[str, Any]) -> Iterator[Event]:
        if (index := data.get("discardFrom")) is None:
            return
        yield from self._close()
        self._transcript.discard(index)
        self._calls = {call_id: at for call_id, at in self._calls.items() if at < index}
        yield self._snapshot()

    def _snapshot(self) -> Event:
        return {"type": "MESSAGES_SNAPSHOT", "messages": self._transcript.messages()}

    def _id(self, index: int) -> str:
        return f"{self._turn_id}-{index}"

    # -- calls -----------------------------------------------------------------------------------------------------

    def _on_actions_requested(self, index: int, data: Mapping[str, Any]) -> Iterator[Event]:
        yield from self._close()
        message_id, call_id, name = self._id(index), data["callId"], data["toolName"]
        arguments = orjson.dumps(data["input"]).decode()
        self._calls[call_id] = index
        self._transcript.call(Call(message_id, index, call_id, name, arguments))
        call = {"toolCallId": call_id}
        yield {"type": "TOOL_CALL_START", **call, "toolCallName": name, "parentMessageId": message_id}
        yield {"type": "TOOL_CALL_ARGS", **call, "delta": arguments}
        yield {"type": "TOOL_CALL_END", **call}

    def _on_action_retrying(self, _index: int, data: Mapping[str, Any]) -> Iterator[Event]:
        yield {"type": "CUSTOM", "name": ev.ACTION_RETRYING, "value": data}

    def _on_action_result(self, index: int, data: Mapping[str, Any]) -> Iterator[Event]:
        call_id, status = data["callId"], data["status"]
        self._calls.pop(call_id, None)
        more: Event = {}
        if status == "completed":
            output = data.get("output")
            content = output if isinstance(output, str) else orjson.dumps(output).decode()
        else:
            error = data.get("error") or {}
            content = str(error.get("message", status))
            more = {"metadata": {"zhin": {"status": status, **error}}}
        result = {"toolCallId": call_id, "content": content, **more}
        message_id = self._id(index)
        if self._transcript.answer(call_id, {"id": message_id, "role": "tool", **result}):
            yield {"type": "TOOL_CALL_RESULT", "messageId": message_id, **result}
        else:
            yield self._snapshot()

    def _on_checkpoint_saved(self, _index: int, data: Mapping[str, Any]) -> Iterator[Event]:
        state = orjson.dumps(data["state"])
        if len(state) <= STATE_BYTES_MAX:
            self._state = orjson.Fragment(state)
            yield {"type": "STATE_SNAPSHOT", "snapshot": self._state}

    # -- requests --------------------------------------------------------------------------------------------------

    def _on_requested(self, _index: int, data: Mapping[str, Any]) -> Iterator[Event]:
        yield from self._close()
        self.waits[data["requestId"]] = interrupt_of(data)
        self._waiting_calls[data["requestId"]] = data["callId"]

    def _on_answered(self, _index: int, data: Mapping[str, Any]) -> Iterator[Event]:
        self.waits.pop(data["requestId"], None)
        self._waiting_calls.pop(data["requestId"], None)
        yield from ()


def interrupt_of(data: Mapping[str, Any]) -> Event:
    """An open request as AG-UI asks it; `data` is that of input.requested or authorization.required."""
    kind = data.get("kind", "authorization")
    shown = {name: value for name, value in data.items() if name not in _ELSEWHERE}
    interrupt: Event = {
        "id": data["requestId"],
        "reason": _REASONS[kind],
        "message": data["prompt"]
        if "prompt" in data
        else f"{data['connection']} waits for an authorization.",
        "responseSchema": _schema_of(kind, data),
        "metadata": {"zhin": {**shown, "kind": kind}},
    }
    if "toolName" in data:
        interrupt["toolCallId"] = data["callId"]
        if kind == "approval":
            interrupt["reason"] = "tool_call"
    if (expires_ms := data.get("expiresAt")) is not None:
        interrupt["expiresAt"] = datetime.fromtimestamp(expires_ms / 1000, UTC).isoformat()
    return interrupt


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


def _usage_of(usage: object) -> Event | None:
    """Token counts where the agent told them under the protocol's names, camelCase or snake_case."""
    if not isinstance(usage, Mapping):
        return None
    counts: Event = {}
    for name, snake in _COUNTS.items():
        count = usage.get(name, usage.get(snake))
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= _COUNT_MAX:
            counts[name] = count
    labels = {name: usage[name] for name in ("provider", "model") if isinstance(usage.get(name), str)}
    return {**labels, **counts} if counts else None
