"""Wire: the objects that bodies, answers and events are, and what each field holds, as the document has it (ADR 0010).

An object is written as its fields' names: `?` marks one that may be missing, and `name:field` one whose values are
those of another row of FIELDS. Texts may name the host's settings, as in {limit.body_bytes_max}.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from zhin_host import events as ev
from zhin_host.clock import SESSION_ID_PATTERN, ULID_PATTERN
from zhin_host.http.parameters import Status as SessionStatus
from zhin_host.intake import OnBusy

Schema = Mapping[str, Any]

_ULID: Final = "01jdq3v2k0e8h4x7c5m9r2t6wy"
_RANDOM: Final = "7c5m9r2t6wy01jdq3v2k0e8h4x"


def _text(told: str = "", example: str | None = None, **more: Any) -> Schema:
    return _told({"type": "string", **more}, told, example)


def _told(schema: Schema, told: str, example: object = None) -> Schema:
    described = {"description": told} if told else {}
    return {**schema, **described, **({} if example is None else {"examples": [example]})}


def _words(*words: str, told: str = "") -> Schema:
    return _told({"type": "string", "enum": list(words)}, told)


def _list(item: Schema, told: str = "") -> Schema:
    return _told({"type": "array", "items": item}, told)


def ref(name: str) -> Schema:
    """A reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


_ANY: Final[Schema] = {}
_BOOL: Final[Schema] = {"type": "boolean"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_INDEX: Final = _told(_COUNT, "The absolute position of an event; the cursor.")
_TIME: Final = _told(_COUNT, "Milliseconds since the epoch.", 1764428400123)
_OBJECT: Final[Schema] = {"type": "object"}
_SESSION_ID: Final = _text("", "ses_" + _ULID, pattern=f"^{SESSION_ID_PATTERN}$")
_REQUEST_ID: Final = _text("", f"req_{_ULID}_{_RANDOM}", pattern=f"^req_{ULID_PATTERN}_{ULID_PATTERN}$")
_TURN_ID: Final = _text("", "turn_" + _ULID)
_NOT_BLANK: Final = r"[^\s\x1c-\x1f\x85]"  # Python's whitespace, of which ECMA's lacks some

FIELDS: Final[Mapping[str, Schema]] = {
    "ok": {"const": True},
    "isWhole": _told(_BOOL, "Whether the audit found nothing wrong."),
    "service": {"const": "zhin-agent-session"},
    # ids and versions
    "sessionId": _SESSION_ID,
    "nextBefore": _told(_SESSION_ID, "The before of the next page; absent at the end."),
    "anySessionId": _text("A sessionId; another text names no session.", "ses_" + _ULID),
    "turnId": _TURN_ID,
    "resumes": _told(_TURN_ID, "The failed turn that this one tries again."),
    "stepId": _text("", "step_" + _ULID),
    "callId": _text(),
    "requestId": _REQUEST_ID,
    "anyRequestId": _text("A requestId; another text names no request.", f"req_{_ULID}_{_RANDOM}"),
    "promptId": _text("The requestId.", f"req_{_ULID}_{_RANDOM}"),
    "pendingRequestIds": _list(_REQUEST_ID, "The requests that wait for a person, oldest first."),
    "droppedTurnIds": _list(_TURN_ID, "The turns of messages that were queued and never began."),
    "continuationToken": _text(
        "Which state of the session a writer has seen; an accepted message makes a new one. A version, no permission.",
        "zhin:" + _RANDOM,
    ),
    "idempotencyKey": _text(),
    "requestDigest": _text("Of the body's bytes.", pattern="^sha256:[0-9a-f]{64}$"),
    "argsDigest": _text("Of the bytes of args as they stand in this line.", pattern="^sha256:[0-9a-f]{64}$"),
    "messageSha256": _text("Of the whole text."),
    "reasoningSha256": _text("Of the whole text."),
    "toolsDigest": _text("", pattern="^sha256:[0-9a-f]{64}$"),
    "agentVersion": _told({"type": ["string", "null"]}, ""),
    "logVersion": {"const": ev.LOG_VERSION},
    # positions, amounts, times
    "index": _INDEX,
    "startIndex": _told(_INDEX, "Where the turn, or its message.queued, begins: read the stream from there."),
    "cursor": _told(_INDEX, "The index that the next event will have."),
    "discardFrom": _told(_INDEX, "The text of the events from here to this one does not count."),
    "brokenAt": _told(_INDEX, "The first event of the log that cannot be read."),
    "createdAt": _TIME,
    "updatedAt": _TIME,
    "startedAt": _TIME,
    "completedAt": _TIME,
    "expiresAt": _told(_TIME, "When an unanswered request expires; absent: never."),
    "durationMs": _COUNT,
    "delayMs": _COUNT,
    "attempt": {"type": "integer", "minimum": 1},
    "crashes": _COUNT,
    "bytes": _COUNT,
    "byte": _COUNT,
    "events": _COUNT,
    "messageBytes": _COUNT,
    "reasoningBytes": _COUNT,
    # what clients, agents and tools say
    "message": _text(),
    "messageIn": {
        "description": "What the agent is asked, in at most {limit.line_bytes_max} bytes: a text, or its parts.",
        "anyOf": [
            _text(pattern=_NOT_BLANK, example="write a note shopping: milk, eggs"),
            {
                "type": "array",
                "items": ref("Part"),
                "contains": {"type": "object", "properties": {"text": {"pattern": _NOT_BLANK}}},
            },
        ],
    },
    "received": {"anyOf": [{"type": "string"}, _list(ref("Part"))]},
    "metadata": _told(
        {"type": ["object", "null"]},
        "Kept with the session, shown in lists; at most {limit.metadata_bytes_max} bytes of JSON.",
    ),
    "agent": _text("The agent's name; the host's first one when not said."),
    "onBusy": _words(
        *get_args(OnBusy),
        told="While a turn is open: refuse (409), queue the message, or cancel the turn and then begin.",
    ),
    "messageDelta": _text("The next piece of the text."),
    "reasoning": _text(),
    "reasoningDelta": _text(),
    "truncated": {"const": True},
    "finishReason": _text(),
    "usage": _ANY,
    "state": _ANY,
    "name": _text(),
    "text": _text(),
    "textType": {"const": "text"},
    "description": _text(),
    "version": {"type": ["string", "null"]},
    # actions and requests
    "toolName": _text(),
    "input": _ANY,
    "output": _ANY,
    "error": ref("ActionError"),
    "kind": _words("approval", "question", "retry", "authorization"),
    "inputKind": _words("approval", "question", "retry"),
    "prompt": _text("What the person is asked."),
    "args": _told(_ANY, "The arguments that an approval is of."),
    "options": _ANY,
    "scope": _text(
        "Of an approval: call, or session (no further one in this session); else the connection's."
    ),
    "connection": _text(),
    "authUrl": _text("Where the person grants the authorization."),
    "approved": _BOOL,
    "response": _told(_ANY, "The answer to a question; any JSON."),
    "comment": _text(),
    "alreadyAnswered": _told(_BOOL, "Whether this answer was given before; it then did nothing."),
    "outcome": _words("approved", "denied", "answered", "expired", "cancelled"),
    "success": _BOOL,
    "errorType": _text("The exception's type; absent where it is one of the host's own."),
    "errorText": _text("Why it failed."),
    "by": _text("Who, from the authentication."),
    "owner": _text("Who started the session, from the authentication."),
    # states
    "status": _words(*get_args(SessionStatus)),
    "stepStatus": _words("running", "interrupted", "completed"),
    "actionStatus": _words("completed", "failed", "denied", "cancelled"),
    "cancelStatus": _words("accepted", "no_active_turn"),
    "endStatus": _words("completed", "failed"),
    "interruptKind": _words("approval", "input", "authorization", "failure", "cancelled", "restart"),
    "parked": _told(_BOOL, "Whether a request waits for a person."),
    "queued": _told({"const": True}, "The message waits for its turn."),
    "queuedCount": {"type": "integer", "minimum": 1},
    "cancelling": {"const": True},
    "reason": _text(),
    "waitReason": _words("idle", "parked", "interrupted"),
    "code": _text(),
    "recoverable": _told(_BOOL, "Whether POST …/resume may try the turn again."),
    "grants": _list(_text(), "Tools that a person allowed for the rest of the session."),
    "lastSum": _text(
        "The chain's last link: keep it elsewhere to prove later that nothing before it was changed."
    ),
    "steps": _list(ref("Step"), "The steps of the last turn."),
    "turn": _told({"anyOf": [ref("OpenTurn"), {"type": "null"}]}, "The open turn."),
    "pendingRequests": _list(ref("PendingRequest")),
    "sessions": _list(ref("SessionRow"), "Newest first."),
    "faults": _list(ref("Fault")),
    "agents": _list(ref("Agent")),
    "tools": _list(ref("Tool")),
    "limits": _told(_OBJECT, "The host's settings by name."),
    "resumable": _told(_BOOL, "Whether a turn of it goes on after a crash."),
    "repeatable": _told(_BOOL, "Whether it may run again when a crash cut it short."),
    "approval": _words("never", "once", "always", "on-risk", "function"),
    "inputSchema": _told(_OBJECT, "The JSON Schema of its arguments."),
}

OBJECTS: Final[Mapping[str, str]] = {
    "Accepted": "ok sessionId continuationToken turnId startIndex queued?",
    "Answered": "ok sessionId requestId alreadyAnswered approved? response? success?",
    "Cancelled": "ok sessionId status:cancelStatus",
    "Ended": "ok sessionId status:endStatus",
    "Deleted": "ok sessionId",
    "Healthy": "ok service",
    "Ready": "ok",
    "Info": "ok agents limits",
    "Agent": "name version resumable tools",
    "Tool": "name description approval repeatable inputSchema",
    "Sessions": "ok sessions nextBefore?",
    "SessionRow": (
        "sessionId agent status parked pendingRequestIds createdAt updatedAt metadata owner? brokenAt?"
    ),
    "Session": (
        "ok sessionId agent continuationToken status parked pendingRequestIds pendingRequests turn steps grants "
        "metadata createdAt updatedAt cursor owner? brokenAt?"
    ),
    "PendingRequest": (
        "kind requestId callId index prompt? toolName? args? argsDigest? scope? options? expiresAt? "
        "connection? authUrl?"
    ),
    "OpenTurn": "turnId startIndex attempt cancelling?",
    "Step": "stepId turnId status:stepStatus startedAt attempt completedAt? interruptKind? requestId?",
    "Audit": "ok:isWhole sessionId events bytes lastSum faults",
    "Fault": "index byte message",
    "ActionError": "code type:errorType? message",
    "Part": "type:textType text",
}
"""What the host answers with, and the parts of it."""

BODIES: Final[Mapping[str, str]] = {
    "Start": "message:messageIn metadata? agent?",
    "FollowUp": "continuationToken message:messageIn onBusy?",
    "Answer": "requestId:anyRequestId approved? response? comment?",
    "RelayedAnswer": "traceId:anySessionId promptId response",
    "Authorization": "success error:errorText? sessionId:anySessionId?",
    "Cancel": "turnId?",
    "Resume": "continuationToken?",
    "End": "outcome:endStatus message?",
}
"""What the host is sent: a field that may be missing may be null as well."""

NEVER_NULL: Final = frozenset({"approved", "response"})
"""Optional fields of bodies that count when they are null: exactly one of the two stands in an answer."""

EVENT_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    ev.SESSION_WAITING: {"reason": "waitReason", "queued": "queuedCount"},
    ev.STEP_STARTED: {"status": "stepStatus"},
    ev.STEP_COMPLETED: {"status": "stepStatus"},
    ev.STEP_INTERRUPTED: {"status": "stepStatus"},
    ev.MESSAGE_QUEUED: {"message": "received"},
    ev.MESSAGE_RECEIVED: {"message": "received"},
    ev.ACTION_RESULT: {"status": "actionStatus"},
    ev.INPUT_REQUESTED: {"kind": "inputKind"},
    ev.INPUT_COMPLETED: {"kind": "inputKind"},
    ev.AUTHORIZATION_COMPLETED: {"error": "errorText"},
}
"""Fields of events whose values are those of another row of FIELDS."""

PATH_PARAMETERS: Final[Mapping[str, Schema]] = {"session_id": _SESSION_ID, "request_id": _REQUEST_ID}
"""What stands in a path; anything else there is 404."""
