"""The client's error tree: a class for each thing a caller can act on.

    ZhinError
    └── ClientError
        ├── Refused                   the host said no and changed nothing: code, status, message, details
        │   ├── BadRequest · Unauthorized · Forbidden · TooLarge
        │   ├── NotFound              ── SessionNotFound · RequestNotFound · AgentNotFound
        │   ├── Conflict              ── ContinuationTokenStale · SessionBusy · SessionTerminal
        │   │                            RequestAlreadyAnswered · IdempotencyConflict · NothingToResume
        │   └── Unavailable           ── TooMany · StorageUnavailable (408, 429, 5xx)
        ├── ConnectionLost            the host was not reached, or the connection broke: tried again
        ├── BadResponse               what answered is no zhin host, or no healthy one
        ├── GaveUp                    tried for as long as patience lasts; keeps id, cursor and key
        ├── HistoryChanged            the log is not the one that was read before
        └── TurnDropped               the session ended before this turn could

Codes and statuses are those of `zhin_host.errors`; a code that is not known here becomes the class of its status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zhin_host import errors as wire
from zhin_host.errors import ZhinError


class ClientError(ZhinError):
    """Root of everything the client raises on purpose."""


class Refused(ClientError):
    """The host answered with an error; `str(error)` is its sentence, which says what to do.

    Attributes:
        code: The wire code, such as "SESSION_BUSY".
        status: The HTTP status.
        details: What else the body holds, camelCase.
        retry_after_s: What the host asked to wait before another try, None when it did not say.
    """

    def __init__(
        self,
        code: str,
        status: int,
        message: str,
        details: Mapping[str, Any] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.message = message
        self.details = dict(details or {})
        self.retry_after_s = retry_after_s

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed a little later without anybody's doing."""
        return False


class BadRequest(Refused):
    """The request was malformed: a bug of the caller, or a host of another version."""


class Unauthorized(Refused):
    """No valid credentials: give the client `bearer`."""


class Forbidden(Refused):
    """The host does not let this Host or Origin call."""


class TooLarge(Refused):
    """What was sent is over a limit of the host."""


class NotFound(Refused):
    """The named thing is not here, or is not the caller's."""


class SessionNotFound(NotFound):
    """There is no such session: it was deleted, or is somebody else's. No other one was begun."""


class RequestNotFound(NotFound):
    """The request is not open: cancelled, expired or never made."""


class AgentNotFound(NotFound):
    """The host serves no agent of that name."""


class Conflict(Refused):
    """The session's state does not allow this."""


class ContinuationTokenStale(Conflict):
    """Somebody else went on with the session; `await session.refresh()`, look at it, and decide."""


class SessionBusy(Conflict):
    """A turn is open."""

    @property
    def pending_request_ids(self) -> list[str]:
        """The requests that wait for a person; answering them may free the session."""
        return list(self.details.get("pendingRequestIds", ()))


class SessionTerminal(Conflict):
    """The session is over and takes nothing more."""


class RequestAlreadyAnswered(Conflict):
    """Another answer was accepted before this one; that one stands."""


class IdempotencyConflict(Conflict):
    """The key came with another body before."""


class NothingToResume(Conflict):
    """The last turn did not fail in a way that allows another try."""


class Unavailable(Refused):
    """The host cannot do it now."""

    @property
    def is_transient(self) -> bool:
        return self.status in _TRANSIENT


class TooMany(Unavailable):
    """The host serves as many turns or streams as it can."""


class StorageUnavailable(Unavailable):
    """The host cannot read or write its files now; a log that is broken stays so until somebody mends it."""

    @property
    def broken_at(self) -> int | None:
        """Index of the first event of the session's log that cannot be read, None when that is not why."""
        index: int | None = self.details.get("index")
        return index

    @property
    def is_transient(self) -> bool:
        return super().is_transient and self.broken_at is None


class ConnectionLost(ClientError):
    """The host was not reached, or the connection broke or fell silent.

    Attributes:
        is_unsent: Whether the request surely did not reach the host.
        retry_after_s: What a proxy in between asked to wait, None when it did not say.
    """

    def __init__(self, message: str, *, is_unsent: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.is_unsent = is_unsent
        self.retry_after_s = retry_after_s


class BadResponse(ClientError):
    """What answered does not speak as a zhin host does; `str(error)` says what it said instead."""


class GaveUp(ClientError):
    """Patience is at its end; `__cause__` is why the last try failed. The session, if any, goes on at the host.

    Attributes:
        session_id: The session; None when it was being started.
        cursor: Index of the next event to read.
        key: The Idempotency-Key of the message being sent, None when none was: sent again with `key=` it gets
            the answer that was lost, if there was one, and begins no second turn.
        tries: How many there were since the last success.
    """

    def __init__(self, session_id: str | None, cursor: int, tries: int, *, key: str | None = None) -> None:
        what = "a new session" if session_id is None else f"session {session_id} at event {cursor}"
        super().__init__(f"Gave up on {what} after {tries} tries; nothing was lost, go on from there later.")
        self.session_id = session_id
        self.cursor = cursor
        self.tries = tries
        self.key = key


class HistoryChanged(ClientError):
    """The host's log is not the one read before: events were lost (a power cut, an old backup) or changed.

    What was read up to `cursor` may not be true any more: begin a new View, and read from 0.

    Attributes:
        session_id: The session.
        cursor: Index of the first event that does not follow on what was read.
    """

    def __init__(self, session_id: str, cursor: int) -> None:
        super().__init__(
            f"The log of session {session_id} does not go on at event {cursor} as it was read before; "
            "read it again from 0."
        )
        self.session_id = session_id
        self.cursor = cursor


class TurnDropped(ClientError):
    """The session ended before this turn had begun, or without telling its end.

    Attributes:
        session_id: The session.
        turn_id: The turn.
    """

    def __init__(self, session_id: str, turn_id: str) -> None:
        super().__init__(
            f"Session {session_id} ended without turn {turn_id}; start a new one for its message."
        )
        self.session_id = session_id
        self.turn_id = turn_id


_TRANSIENT: Final = frozenset({408, 429, 502, 503, 504})
_BY_CODE: Final[dict[str, type[Refused]]] = {
    wire.SessionNotFound.code: SessionNotFound,
    wire.RequestNotFound.code: RequestNotFound,
    wire.AuthorizationRequestNotFound.code: RequestNotFound,
    wire.AgentNotFound.code: AgentNotFound,
    wire.ContinuationTokenStale.code: ContinuationTokenStale,
    wire.SessionBusy.code: SessionBusy,
    wire.SessionTerminal.code: SessionTerminal,
    wire.RequestAlreadyAnswered.code: RequestAlreadyAnswered,
    wire.IdempotencyConflict.code: IdempotencyConflict,
    wire.NothingToResume.code: NothingToResume,
    wire.StorageUnavailable.code: StorageUnavailable,
    wire.StorageFull.code: StorageUnavailable,
}
_BY_STATUS: Final[dict[int, type[Refused]]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    413: TooLarge,
    429: TooMany,
}


def refusal(
    code: str, status: int, message: str, details: Mapping[str, Any], retry_after_s: float | None
) -> Refused:
    """The error that an answer of the host is."""
    family = _BY_STATUS.get(status, Unavailable if status >= 500 else BadRequest)  # noqa: PLR2004
    return _BY_CODE.get(code, family)(code, status, message, details, retry_after_s)
