"""The error tree: one class for each thing a caller can act on, with its wire code and HTTP status.

    ZhinError
    ├── RequestError              a command was refused; `code`, `status` and the sentence go to the client
    │   ├── BadRequest 400 · Unauthorized 401 · Forbidden 403 · MethodNotAllowed 405 · BodyTimeout 408
    │   ├── NotFound 404          ├── SessionNotFound · RequestNotFound · AuthorizationRequestNotFound
    │   │                         └── AgentNotFound · RouteNotFound
    │   ├── Conflict 409          ├── ContinuationTokenStale · SessionBusy · SessionTerminal
    │   │                         └── RequestAlreadyAnswered · IdempotencyConflict · NothingToResume
    │   ├── BodyTooLarge 413 · UnsupportedMediaType 415 · TooManySessions 429 · TooManyStreams 429
    │   ├── InternalError 500
    │   ├── AgentUnavailable 503 · ShuttingDown 503
    │   └── StorageUnavailable 503 ── StorageFull 507
    ├── StartupError              the host cannot start; its sentence says what to do
    │   └── DirectoryInUse · PortInUse
    ├── EventRefused              an event that cannot stand in the log
    │   ├── EventTooLarge · Unserializable · IllegalMove
    └── AgentError                what an agent may catch
        └── ActionFailed · ToolDenied · RequestExpired
    asyncio.CancelledError
    └── AttemptEnded              the attempt is over; not to be caught

Only `zhin_host.http` maps these to responses; everything below it raises them.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar


class ZhinError(Exception):
    """Root of everything zhin_host raises on purpose."""


class RequestError(ZhinError):
    """A command was refused and changed nothing; `str(error)` is one sentence that says what to do."""

    code: ClassVar[str] = "INTERNAL"
    status: ClassVar[int] = 500

    def extra(self) -> dict[str, object]:
        """Fields that stand beside error and message in the JSON body, camelCase."""
        return {}


class BadRequest(RequestError):
    """The request is malformed; the message says what is wrong and where."""

    code = "BAD_REQUEST"
    status = 400


class Unauthorized(RequestError):
    """No valid credentials came with the request."""

    code = "UNAUTHORIZED"
    status = 401


class Forbidden(RequestError):
    """The caller, its Host or its Origin may not do this."""

    code = "FORBIDDEN"
    status = 403


class NotFound(RequestError):
    """The named thing is not here, or is not the caller's."""

    code = "NOT_FOUND"
    status = 404


class RouteNotFound(NotFound):
    """No route has this path."""


class SessionNotFound(NotFound):
    """No session has this id, or it belongs to somebody else."""

    code = "SESSION_NOT_FOUND"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"There is no session {session_id!r:.80}; list yours with GET /zhin/v1/sessions.")


class RequestNotFound(NotFound):
    """No open request of this session has this id: never made, cancelled or expired."""

    code = "REQUEST_NOT_FOUND"

    def __init__(self, request_id: str) -> None:
        super().__init__(
            f"The session has no open request {request_id!r:.120}; "
            "GET the session and answer one of its pendingRequestIds."
        )


class AuthorizationRequestNotFound(NotFound):
    """No open authorization has this id."""

    code = "AUTHORIZATION_REQUEST_NOT_FOUND"

    def __init__(self, request_id: str) -> None:
        super().__init__(
            f"There is no open authorization {request_id!r:.120}; "
            "GET the session and complete one of its pendingRequestIds."
        )


class AgentNotFound(NotFound):
    """This host serves no agent of that name."""

    code = "AGENT_NOT_FOUND"


class MethodNotAllowed(RequestError):
    """The path exists and has other methods."""

    code = "METHOD_NOT_ALLOWED"
    status = 405


class BodyTimeout(RequestError):
    """The body did not arrive within its time."""

    code = "REQUEST_TIMEOUT"
    status = 408


class Conflict(RequestError):
    """The session's state does not allow the command."""

    status = 409


class ContinuationTokenStale(Conflict):
    """The token is not the one in force; the session has moved on."""

    code = "CONTINUATION_TOKEN_STALE"

    def __init__(self) -> None:
        super().__init__("The continuationToken is not the one in force; GET the session and use its token.")


class SessionBusy(Conflict):
    """A turn is open, or a bound of the session is reached.

    Attributes:
        pending_request_ids: The requests that wait for a person; answering them may free the session.
    """

    code = "SESSION_BUSY"

    def __init__(self, message: str, pending_request_ids: list[str] | None = None) -> None:
        super().__init__(message)
        self.pending_request_ids = pending_request_ids or []

    def extra(self) -> dict[str, object]:
        return {"pendingRequestIds": self.pending_request_ids}


class SessionTerminal(Conflict):
    """The session was completed or failed for good."""

    code = "SESSION_TERMINAL"

    def __init__(self, status: str) -> None:
        super().__init__(f"The session is {status} and takes nothing more; start a new one.")


class RequestAlreadyAnswered(Conflict):
    """Another answer was accepted before this one."""

    code = "REQUEST_ALREADY_ANSWERED"

    def __init__(self, request_id: str) -> None:
        super().__init__(f"Request {request_id} was answered otherwise before; that answer stands.")


class IdempotencyConflict(Conflict):
    """The Idempotency-Key came with another body before."""

    code = "IDEMPOTENCY_CONFLICT"


class NothingToResume(Conflict):
    """The last turn did not fail in a way that allows another try."""

    code = "NOTHING_TO_RESUME"


class BodyTooLarge(RequestError):
    """The body, or the event it would become, is over the limit."""

    code = "BODY_TOO_LARGE"
    status = 413


class UnsupportedMediaType(RequestError):
    """The body is not plain application/json."""

    code = "UNSUPPORTED_MEDIA_TYPE"
    status = 415


class TooManySessions(RequestError):
    """As many turns are open as the host holds at once."""

    code = "TOO_MANY_SESSIONS"
    status = 429


class TooManyStreams(RequestError):
    """As many streams (or audits) are open as the host serves at once."""

    code = "TOO_MANY_STREAMS"
    status = 429


class InternalError(RequestError):
    """Something the host did not foresee; its log has the traceback."""

    code = "INTERNAL"
    status = 500


class AgentUnavailable(RequestError):
    """The session's agent is not hosted here any more."""

    code = "AGENT_UNAVAILABLE"
    status = 503


class ShuttingDown(RequestError):
    """The host is stopping and takes no new work."""

    code = "SHUTTING_DOWN"
    status = 503

    def __init__(self) -> None:
        super().__init__("The host is stopping; try again when it is back.")


class StorageUnavailable(RequestError):
    """The data directory, or this session's log, cannot be read or written now; nothing was half written.

    Attributes:
        index: Index of the first event that cannot be read, when the log is broken there.
    """

    code = "STORAGE_UNAVAILABLE"
    status = 503

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index

    def extra(self) -> dict[str, object]:
        return {} if self.index is None else {"index": self.index}


class StorageFull(StorageUnavailable):
    """There is no space left for the data directory; reads go on."""

    code = "STORAGE_FULL"
    status = 507


class StartupError(ZhinError):
    """The host cannot start; the message is one sentence with the remedy."""


class DirectoryInUse(StartupError):
    """Another living host holds the data directory."""


class PortInUse(StartupError):
    """Somebody listens at the address already."""


class EventRefused(ZhinError):
    """An event that cannot stand in the log; nothing was written."""


class EventTooLarge(EventRefused):
    """The event's line would be over the line limit.

    Attributes:
        size_bytes: Length of the line, its newline counted.
    """

    def __init__(self, event_type: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"An event {event_type} of {size_bytes} bytes is over the limit of {limit_bytes} bytes a line; "
            "keep the large part elsewhere and record where it is."
        )
        self.size_bytes = size_bytes


class Unserializable(EventRefused):
    """A value has no JSON form; see `zhin_host.events.json_form` for the forms there are."""


class IllegalMove(EventRefused):
    """The order of events forbids this one here: a bug of the host, or a log that was tampered with."""


class AgentError(ZhinError):
    """What a call of a Turn may raise and an agent may catch.

    Attributes:
        call_id: The action or request concerned; turn.failed names it when the error is left uncaught.
    """

    def __init__(self, message: str, call_id: str | None = None) -> None:
        super().__init__(message)
        self.call_id = call_id


class ActionFailed(AgentError):
    """A recorded action failed; `__cause__` is the original error in the attempt that ran it.

    Attributes:
        error: The recorded error: code, message and, when it was an exception, its type.
    """

    def __init__(self, message: str, call_id: str, error: dict[str, object]) -> None:
        super().__init__(message, call_id)
        self.error = error


class ToolDenied(AgentError):
    """A person refused the tool call; the tool did not run."""


class RequestExpired(AgentError):
    """Nobody answered the request in its time; the tool did not run."""


class AttemptEnded(asyncio.CancelledError):
    """This attempt of the turn is over (stop, drop, cancel, end): the call wrote nothing and ran nothing.

    A kind of cancellation, so that no `except Exception` of an agent takes it for a failure and carries on.
    """
