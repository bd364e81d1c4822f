"""Operations: what each route is for, takes and may answer: the document's tables beside ROUTES (ADR 0010)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from zhin_host import errors as e
from zhin_host.http.parameters import (
    BEFORE,
    IDEMPOTENCY_KEY,
    LAST_EVENT_ID,
    LAST_EVENT_ID_HEADER,
    LIMIT,
    START_INDEX,
    STATUS,
    UNTIL,
    Parameter,
)

Errors = tuple[type[e.RequestError], ...]

EVERYWHERE: Final[Errors] = (e.Forbidden, e.InternalError)
_BODY: Final[Errors] = (e.BadRequest, e.BodyTimeout, e.BodyTooLarge, e.UnsupportedMediaType)
_STORED: Final[Errors] = (e.ShuttingDown, e.StorageUnavailable, e.StorageFull)
_SESSION: Final[Errors] = (e.RouteNotFound, e.SessionNotFound, *_STORED)
_FOLLOWING: Final[Errors] = (
    *(*_BODY, *_SESSION, e.SessionTerminal, e.ContinuationTokenStale, e.SessionBusy),
    *(e.AgentUnavailable, e.TooManySessions),
)
_ANSWERING: Final[Errors] = (
    *(*_BODY, *_SESSION, e.RequestNotFound, e.RequestAlreadyAnswered, e.AgentUnavailable),
)


class Operation(NamedTuple):
    """What a route takes and answers, beside what ROUTES says of it.

    Attributes:
        told: What it is for: the first sentence is its summary.
        answer: The object of its 200; "stream", "document" and "metrics" are none.
        errors: What else it may answer, beside EVERYWHERE and what authentication adds.
        body: The object it takes.
        is_body_optional: Whether it may come without.
        error_status: The status of all its `errors`, where it is not their own.
    """

    told: str
    answer: str
    errors: Errors = ()
    body: str | None = None
    is_body_optional: bool = False
    parameters: tuple[Parameter, ...] = ()
    error_status: int | None = None


OPERATIONS: Final[Mapping[str, Operation]] = {
    "start": Operation(
        "Start a session with its first turn. The answer does not wait for the turn: read the stream.",
        "Accepted",
        (*_BODY, e.AgentNotFound, e.IdempotencyConflict, e.TooManySessions, *_STORED),
        body="Start",
        parameters=(IDEMPOTENCY_KEY,),
    ),
    "proceed": Operation(
        "Send a follow-up. Its turn begins now, or after the open one where onBusy says so.",
        "Accepted",
        (*_FOLLOWING, e.IdempotencyConflict),
        body="FollowUp",
        parameters=(IDEMPOTENCY_KEY,),
    ),
    "view": Operation(
        "Look at a session. Its state as of now, and where its log has got to.", "Session", _SESSION
    ),
    "delete": Operation(
        "Delete a session at rest. No byte of it is left.", "Deleted", (*_SESSION, e.SessionBusy)
    ),
    "stream": Operation(
        "Read a session's events, and follow them. Each line is an Event. Blank lines, in SSE comments and `ping`s, "
        "are heartbeats. 204: an SSE stream that would never say anything more.",
        "stream",
        (e.BadRequest, *_SESSION, e.TooManyStreams),
        parameters=(START_INDEX, UNTIL, LAST_EVENT_ID, LAST_EVENT_ID_HEADER),
    ),
    "answer": Operation(
        "Answer an open request. approved for an approval or a retry, response for a question.",
        "Answered",
        _ANSWERING,
        body="Answer",
    ),
    "cancel": Operation(
        "Cancel the open turn. With a turnId, only that one.",
        "Cancelled",
        (*_BODY, *_SESSION, e.AgentUnavailable),
        body="Cancel",
        is_body_optional=True,
    ),
    "audit": Operation(
        "Audit a session's log. One audit runs at a time.", "Audit", (*_SESSION, e.TooManyStreams)
    ),
    "end": Operation(
        "End a session at rest, for good. Nothing may follow.",
        "Ended",
        (*_BODY, *_SESSION, e.SessionTerminal, e.SessionBusy, e.AgentUnavailable),
        body="End",
    ),
    "resume": Operation(
        "Try the failed last turn again. What its record holds is not done twice.",
        "Accepted",
        (*_FOLLOWING, e.NothingToResume),
        body="Resume",
        is_body_optional=True,
    ),
    "page": Operation(
        "List sessions. Newest first; a page looks at a bounded number of them and may be short.",
        "Sessions",
        (e.BadRequest,),
        parameters=(STATUS, LIMIT, BEFORE),
    ),
    "authorize": Operation(
        "Say how an authorization ended. The session is found by the request.",
        "Answered",
        (
            *(*_BODY, e.RouteNotFound, e.SessionNotFound, e.AuthorizationRequestNotFound),
            *(e.RequestAlreadyAnswered, e.AgentUnavailable, *_STORED),
        ),
        body="Authorization",
    ),
    "answer_relayed": Operation(
        'Answer an open request by its traceId and promptId. "approve", "deny", true or false answers an approval.',
        "Answered",
        tuple(kind for kind in _ANSWERING if kind is not e.RouteNotFound),
        body="RelayedAnswer",
    ),
    "health": Operation("Whether the process answers.", "Healthy"),
    "ready": Operation(
        "Whether the host takes work. 200 once every interrupted turn is sorted and the data directory is writable.",
        "Ready",
        _STORED,
        error_status=503,
    ),
    "info": Operation("What is hosted here. Agents, their tools with approval policy, settings.", "Info"),
    "metrics": Operation("Numbers of the host, for a scraper.", "metrics"),
    "openapi": Operation("This document.", "document"),
}
"""By the name of the handler, as in ROUTES."""

EXTRAS: Final[Mapping[type[e.RequestError], str]] = {
    e.SessionBusy: "pendingRequestIds",
    e.StorageUnavailable: "index?",
    e.StorageFull: "index?",
}
"""Fields of an error beside error and message."""
