"""Guard: the outermost layer. Host and Origin are judged first, and what is raised becomes a JSON error."""

from __future__ import annotations

import functools
import logging
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zhin_host.errors import Forbidden, InternalError, RequestError, StartupError
from zhin_host.http.reply import ABORT, IS_STARTED, ErrorReply, error_reply, framework_error_reply

_logger = logging.getLogger("zhin_host.http")

_LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_][a-z0-9._-]{0,252})(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"null|[a-z][a-z0-9+.-]*://[^/?#*\s]+")
_HOSTS_REMEMBERED: Final = 64
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_EXPOSED: Final = b"x-zhin-session-id, x-zhin-stream-version, x-zhin-tail-index, retry-after"


class Guard:
    """Lets through requests whose Host and Origin may call (contract section 2, Who may call).

    A web page that a browser shows may not reach the host, whatever name it gave to the address:
    DNS rebinding is stopped by Host, requests across origins by Origin.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        allowed_hosts: Iterable[str],
        allowed_origins: Iterable[str],
        any_host: bool,
        refusals: Counter[str] | None = None,
    ) -> None:
        """Take the app behind the guard.

        Args:
            app: What is called when the request may pass.
            allowed_hosts: Hosts beside the loopback ones; one without a port stands for every port.
            allowed_origins: Origins beside the host's own, as a browser writes them: scheme://host[:port].
            any_host: Let any Host pass, since tokens guard an address that is not loopback.
            refusals: Code of an error -> how often it was the answer; counted here.

        Raises:
            StartupError: An allowed origin is none, a pattern perhaps: origins are compared as a whole.
        """
        self._app = app
        self._hosts = frozenset(host.lower() for host in (*_LOOPBACK_HOSTS, *allowed_hosts))
        self._origins = frozenset(map(_exact, allowed_origins))
        self._any_host = any_host
        self._refusals: Counter[str] = Counter() if refusals is None else refusals
        self._is_known = functools.lru_cache(_HOSTS_REMEMBERED)(self._is_listed)  # clients say the same few

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Judge one request, and answer it when the app behind raises."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        reply: ErrorReply
        try:
            origin = self._check(scope)
            if origin in self._origins:
                if scope["method"] == "OPTIONS":
                    await send({"type": "http.response.start", "status": 204, "headers": _preflight(origin)})
                    await send({"type": "http.response.body"})
                    return
                send = _shared_with(origin, send)
            await self._app(scope, receive, send)
            return
        except RequestError as error:
            reply = error_reply(error, scope)
        except HTTPException as error:
            reply = framework_error_reply(error)
        except Exception:  # the net of the edge: a bug becomes a 500, and its trace goes to the log only
            _logger.exception("%s %r failed", scope["method"], scope["path"])
            reply = error_reply(InternalError("The host failed at this; its log says why."), scope)
        self._refusals[reply.code] += 1
        if IS_STARTED in scope:
            abort(scope)
        else:
            await reply(scope, receive, send)

    def _check(self, scope: Scope) -> bytes:
        """The request's Origin, b"" without one; Forbidden when it or the Host may not call."""
        host: bytes | None = None
        origin: bytes | None = None
        for name, value in scope["headers"]:
            if name == b"host":
                if host is not None:
                    raise Forbidden("The request has more than one Host header; send one.")
                host = value
            elif name == b"origin":
                if origin is not None:
                    raise Forbidden("The request has more than one Origin header; send one.")
                origin = value
        host_text = b"" if host is None else host.lower()
        if not self._any_host and not self._is_known(host_text.decode("latin-1")):
            raise Forbidden(
                f"The Host {host_text.decode('latin-1')!r:.80} may not call; name it with --allowed-host, or in code "
                "with allowed_hosts."
            )
        if origin is None:
            return b""
        origin = origin.lower()
        if origin not in self._origins and not _is_own(
            origin.decode("latin-1"), scope, host_text.decode("latin-1")
        ):
            raise Forbidden(
                f"The Origin {origin.decode('latin-1')!r:.80} may not call; name it with --allowed-origin, or in code "
                "with allowed_origins."
            )
        return origin

    def _is_listed(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        return match is not None and (match[1] in self._hosts or host in self._hosts)


def _exact(origin: str) -> bytes:
    """An allowed origin as a browser writes it."""
    written = origin.lower().rstrip("/")
    if _ORIGIN.fullmatch(written) is None or not written.isascii():
        raise StartupError(
            f"The allowed origin {origin!r:.80} is none; write it as a browser does, scheme://host[:port], "
            "one for each: there is no wildcard."
        )
    return written.encode("ascii")


def _is_own(origin: str, scope: Scope, host: str) -> bool:
    scheme = scope["scheme"]
    return bool(host) and origin == f"{scheme}://{host.removesuffix(_DEFAULT_PORTS.get(scheme, ''))}"


def _preflight(origin: bytes) -> list[tuple[bytes, bytes]]:
    """What a browser asks before it lets a page of an --allowed-origin send JSON and a token."""
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-allow-headers", b"authorization, content-type, idempotency-key, last-event-id"),
        (b"access-control-max-age", b"600"),
        (b"vary", b"Origin"),
    ]


def _shared_with(origin: bytes, send: Send) -> Send:
    """`send`, with the headers that let a page of an --allowed-origin read the response."""

    async def send_shared(message: Message) -> None:
        if message["type"] == "http.response.start":
            shared = [
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", _EXPOSED),
                (b"vary", b"Origin"),
            ]
            message["headers"] = [*message["headers"], *shared]
        await send(message)

    return send_shared


def abort(scope: Scope) -> None:
    """Break the connection off without flushing, where the server can; else it closes it when we return."""
    break_off = scope.get("extensions", {}).get(ABORT)
    if break_off is not None:
        break_off()
