"""Reply: an answer with a JSON body, and the JSON form of every error."""

from __future__ import annotations

from typing import Any, Final

import orjson
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from zhin_host.errors import (
    BodyTimeout,
    BodyTooLarge,
    Forbidden,
    InternalError,
    RequestError,
    SessionNotFound,
    Unauthorized,
)

SESSION_ID: Final = "zhin.session_id"
"""Key of the scope: the well-formed sessionId in the path, for the errors' x-zhin-session-id."""

IS_STARTED: Final = "zhin.is_started"
"""Key of the scope: the response has begun, so that an error can no longer become one."""

ABORT: Final = "zhin.abort"
"""Key of scope["extensions"]: a function that breaks the connection off, flushing nothing (zhin_host.server)."""

_COMMON_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
_RETRY_AFTER_S: Final = b"2"
_CODES: Final = {
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    413: "BODY_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
}


class Reply:
    """A whole response: status, extra headers and bytes, of JSON mostly. Sent by calling it as an ASGI app."""

    __slots__ = ("_body", "_content_type", "_headers", "_status")

    def __init__(
        self,
        status: int,
        body: bytes,
        headers: list[tuple[bytes, bytes]] | None = None,
        content_type: bytes = b"application/json",
    ) -> None:
        self._content_type = content_type
        self._status = status
        self._body = body
        self._headers = headers or []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        """Send it; without its body to HEAD."""
        body = self._body
        headers = self._headers
        if self._status != 204:  # noqa: PLR2004 - which has no content, nor a length of it (RFC 9110, 8.6)
            kind, size = (b"content-type", self._content_type), (b"content-length", b"%d" % len(body))
            headers = [kind, *_COMMON_HEADERS, size, *headers]
        scope[IS_STARTED] = True
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


class ErrorReply(Reply):
    """The answer that an error is.

    Attributes:
        code: What stands in it as `error`.
    """

    __slots__ = ("code",)

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        extra: dict[str, object],
        headers: list[tuple[bytes, bytes]],
    ) -> None:
        super().__init__(status, error_body(code, message, extra), headers)
        self.code = code


def ok(fields: dict[str, Any], session_id: str | None = None) -> Reply:
    """200 with the fields, of the session when one is named."""
    headers = None if session_id is None else [(b"x-zhin-session-id", session_id.encode("ascii"))]
    return Reply(200, orjson.dumps(fields), headers)


def error_reply(error: RequestError, scope: Scope, *, status: int | None = None) -> ErrorReply:
    """The answer that an error is, `status` in place of its own when given."""
    status = error.status if status is None else status
    headers: list[tuple[bytes, bytes]] = []
    session_id = scope.get(SESSION_ID)
    if session_id is not None and not isinstance(error, SessionNotFound | Unauthorized | Forbidden):
        headers.append((b"x-zhin-session-id", session_id.encode("ascii")))
    if status == 503:  # noqa: PLR2004
        headers.append((b"retry-after", _RETRY_AFTER_S))
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, BodyTimeout) or (isinstance(error, BodyTooLarge) and _is_endless(scope)):
        headers.append((b"connection", b"close"))  # the rest of the body may never come, or never end
    return ErrorReply(status, error.code, str(error), error.extra(), headers)


def framework_error_reply(error: HTTPException) -> ErrorReply:
    """The answer for an error that Starlette raised."""
    code = _CODES.get(error.status_code, InternalError.code if error.status_code >= 500 else "BAD_REQUEST")  # noqa: PLR2004
    headers = [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
    return ErrorReply(error.status_code, code, error.detail, {}, headers)


def error_body(code: str, message: str, extra: dict[str, object]) -> bytes:
    """The JSON of an error; a lone surrogate in the message becomes a question mark."""
    text = message.encode("utf-8", "replace").decode()
    return orjson.dumps({"ok": False, "error": code, "message": text, **extra})


def _is_endless(scope: Scope) -> bool:
    return not any(name == b"content-length" for name, _ in scope["headers"])
