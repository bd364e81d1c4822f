"""Streaming: a session as NDJSON or SSE, the bytes of its log with heartbeats (contract 2, Streams)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import Final
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from zhin_host.errors import BadRequest, StorageUnavailable
from zhin_host.http.framing import NDJSON, SSE, Framing
from zhin_host.http.guard import abort
from zhin_host.http.parameters import LAST_EVENT_ID, LAST_EVENT_ID_HEADER, START_INDEX, UNTIL
from zhin_host.http.reply import IS_STARTED
from zhin_host.http.schema import Headers
from zhin_host.logline import tell
from zhin_host.subscriptions import Subscription, Until

_logger = logging.getLogger("zhin_host.http")

_WRITE_BYTES: Final = 64 * 1024


def framing_of(headers: Headers) -> Framing:
    """SSE for a client that accepts text/event-stream, else NDJSON."""
    return SSE if b"text/event-stream" in headers.get(b"accept", b"").lower() else NDJSON


def query_of(query: bytes) -> dict[str, str]:
    """The query's parameters; of a repeated one the last.

    Raises:
        BadRequest: It is no query.
    """
    if not query:
        return {}
    try:
        return dict(
            parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
        )
    except ValueError:
        raise BadRequest("The query is not name=value pairs joined by &, percent-encoded UTF-8.") from None


def start_index_of(headers: Headers, query: dict[str, str]) -> int:
    """Where to begin: after Last-Event-ID, else after lastEventId, else at startIndex, else at 0.

    Raises:
        BadRequest: One of them, whether it counts or not, is not a whole number of at most 15 digits.
    """
    start, last_seen = START_INDEX.of(query), LAST_EVENT_ID.of(query)
    if b"last-event-id" in headers:
        last_seen = LAST_EVENT_ID_HEADER.read(headers[b"last-event-id"].decode("latin-1"))
    return start if last_seen is None else last_seen + 1


def until_of(query: dict[str, str], framing: Framing) -> Until:
    """How long to follow; boundary for NDJSON and never for SSE when not said.

    Raises:
        BadRequest: It is none of the three.
    """
    return UNTIL.of(query) or ("never" if framing is SSE else "boundary")


class StreamReply:
    """A response that lasts as long as its subscription, which it closes in every case; it touches no turn.

    A stream that lasts beyond its first block has one task beside the request's own, which listens for the client's
    leaving; nothing is made for an event, and the subscription watches for a client that takes nothing.
    """

    def __init__(self, subscription: Subscription, framing: Framing) -> None:
        """Take the subscription over.

        Args:
            subscription: Open; closed when the response ends.
            framing: How its blocks are sent; this response's own.
        """
        self._subscription = subscription
        self._framing = framing
        self._watcher: asyncio.Task[None] | None = None
        self._has_left = False
        self._is_over = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the subscription ends or the client leaves."""
        task = asyncio.current_task()
        try:
            scope[IS_STARTED] = True
            await send({"type": "http.response.start", "status": 200, "headers": self._headers()})
            if scope["method"] != "HEAD":
                await self._send_blocks(receive, send)
            self._subscription.took()
            last = b"" if scope["method"] == "HEAD" else self._framing.last()
            if last is None:
                abort(scope)
                return
            await send({"type": "http.response.body", "body": last, "more_body": False})
        except asyncio.CancelledError:
            if not self._has_left and not self._subscription.is_dropped:
                raise
            if task is not None:
                task.uncancel()  # it was meant for this stream, and ends here
            if self._subscription.is_dropped:
                session_id = self._subscription.session_id
                tell(
                    _logger, logging.INFO, "reader.dropped", sessionId=session_id, lag=self._subscription.lag
                )
                abort(scope)
        except StorageUnavailable as error:
            _logger.warning("A stream of session %s broke off: %s", self._subscription.session_id, error)
            abort(scope)
        except Exception:  # around one subscriber: the others, and the turn, go on
            _logger.exception("A stream of session %s failed", self._subscription.session_id)
            abort(scope)
        finally:
            self._is_over = True
            await self._subscription.aclose()  # never waits, so that no cancellation can come between
            if self._watcher is not None:
                self._watcher.cancel()
                await asyncio.wait((self._watcher,))

    def _headers(self) -> list[tuple[bytes, bytes]]:
        return [
            *self._framing.headers,
            (b"cache-control", b"no-cache, no-transform"),
            (b"content-encoding", b"identity"),  # what keeps compressing middleware away from it
            (b"x-accel-buffering", b"no"),
            (b"x-content-type-options", b"nosniff"),
            (b"x-zhin-session-id", self._subscription.session_id.encode("ascii")),
            (b"x-zhin-stream-version", b"1"),
            (b"x-zhin-tail-index", b"%d" % self._subscription.tail_index),
        ]

    async def _send_blocks(self, receive: Receive, send: Send) -> None:
        framing = self._framing
        first = framing.first()
        async with aclosing(aiter(self._subscription)) as blocks:
            async for block in blocks:
                body = first + framing.frame(block)
                first = b""
                for start in range(
                    0, len(body), _WRITE_BYTES
                ):  # so that one who takes little does take something
                    part = body[start : start + _WRITE_BYTES]
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                    self._subscription.took()
                if framing.is_over:
                    return
                if self._watcher is None and not self._subscription.is_at_end:
                    watching = self._watch(receive, asyncio.current_task())
                    self._watcher = asyncio.create_task(watching, name="zhin-stream-watch")

    async def _watch(self, receive: Receive, task: asyncio.Task[object] | None) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if task is not None and not self._is_over:
            self._has_left = True
            task.cancel("the client left the stream")
