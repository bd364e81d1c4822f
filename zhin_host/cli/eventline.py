"""One line of text for an event, as a person reads it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import orjson

from zhin_host import events as ev
from zhin_host.cli.terminal import json_text, visible
from zhin_host.history import text_of

_CHARACTERS_MAX: Final = 500

_SHOWN: Final[dict[str, tuple[str, ...]]] = {  # the fields that tell; of other types all are shown
    ev.SESSION_STARTED: ("agent", "owner", "metadata"),
    ev.SESSION_WAITING: ("reason", "pendingRequestIds", "queued"),
    ev.SESSION_COMPLETED: ("message", "droppedTurnIds"),
    ev.SESSION_FAILED: ("code", "message", "droppedTurnIds"),
    ev.TURN_STARTED: ("turnId", "resumes"),
    ev.TURN_COMPLETED: ("usage",),
    ev.TURN_FAILED: ("code", "message"),
    ev.TURN_CANCELLING: ("reason", "by"),
    ev.TURN_CANCELLED: ("reason", "by"),
    ev.STEP_STARTED: (),
    ev.STEP_COMPLETED: (),
    ev.STEP_INTERRUPTED: ("interruptKind",),
    ev.STEP_RESUMED: ("attempt", "discardFrom"),
    ev.MESSAGE_QUEUED: ("message",),
    ev.MESSAGE_RECEIVED: ("message",),
    ev.MESSAGE_APPENDED: ("messageDelta",),
    ev.MESSAGE_COMPLETED: ("finishReason", "message"),
    ev.REASONING_APPENDED: ("reasoningDelta",),
    ev.REASONING_COMPLETED: ("reasoning",),
    ev.ACTIONS_REQUESTED: ("toolName", "input"),
    ev.ACTION_RETRYING: ("toolName", "attempt", "error", "delayMs"),
    ev.ACTION_RESULT: ("toolName", "status", "output", "error"),
    ev.INPUT_REQUESTED: ("prompt", "args", "options", "requestId"),
    ev.INPUT_COMPLETED: ("outcome", "response", "by", "comment"),
    ev.AUTHORIZATION_REQUIRED: ("connection", "authUrl", "scope", "requestId"),
    ev.AUTHORIZATION_COMPLETED: ("connection", "success", "error", "by"),
    ev.CHECKPOINT_SAVED: ("state",),
}


def event_text(line: bytes) -> str:
    """Index, time (UTC), type and what tells of the event, on one line.

    Args:
        line: A whole event line.
    """
    event: dict[str, Any] = orjson.loads(line)
    data, kind = event["data"], event["type"]
    time = datetime.fromtimestamp(event["timestamp"] / 1000, UTC).strftime("%H:%M:%S")
    fields = [
        (name, data[name]) for name in _SHOWN.get(kind, tuple(data)) if data.get(name) not in (None, [])
    ]
    told = "  ".join(_field_text(name, value) for name, value in fields)
    more = "…" if len(told) > _CHARACTERS_MAX else ""
    return f"{event['index']:>6}  {time}  {kind:<23} {told[:_CHARACTERS_MAX]}{more}".rstrip()


def _field_text(name: str, value: Any) -> str:
    if name == "message" and isinstance(value, list):
        value = text_of(value)
    return visible(value) if isinstance(value, str) else json_text(value)
