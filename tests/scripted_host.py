"""A host made of a log and a script: what each connection and each request meets is what the test says."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import orjson

from tests.builders import LogBuilder
from zhin_host import events as ev
from zhin_host.client import Client, Patience, Session
from zhin_host.client.state import new_saved_state

Body = Callable[[bytes], AsyncIterator[bytes]]


async def whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


def broken_at(size_bytes: int) -> Body:
    """The connection is lost after so many bytes."""

    async def body(content: bytes) -> AsyncIterator[bytes]:
        yield content[:size_bytes]
        raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")

    return body


def ended_at(size_bytes: int) -> Body:
    """The body ends well after so many bytes, as a proxy of HTTP/1.0 or a host that stops lets it."""

    async def body(content: bytes) -> AsyncIterator[bytes]:
        yield content[:size_bytes]

    return body


def in_parts(size_bytes: int) -> Body:
    async def body(content: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(content), size_bytes):
            yield content[start : start + size_bytes]

    return body


def instead(content: bytes) -> Body:
    """Other bytes than the log's."""

    async def body(_: bytes) -> AsyncIterator[bytes]:
        yield content

    return body


async def silent(body: bytes) -> AsyncIterator[bytes]:
    """As the socket's time limit shows it."""
    yield b"\n"
    raise httpx.ReadTimeout("")


class _Stream(httpx.AsyncByteStream):
    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._parts


class FakeClock:
    """Time that passes only while somebody sleeps.

    Attributes:
        slept: Every pause.
    """

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.slept: list[float] = []

    async def sleep(self, pause_s: float) -> None:
        self.slept.append(pause_s)
        self.now_s += pause_s
        await asyncio.sleep(0)

    def patience(self, **bounds: Any) -> Patience:
        return Patience(sleep=self.sleep, draw=lambda _, most: most, now_s=lambda: self.now_s, **bounds)


class ScriptedHost(httpx.AsyncBaseTransport):
    """Serves one log.

    Attributes:
        log: What the session's log is; a test may change it meanwhile.
        bodies: What the next streams are; then they are whole.
        replies: What the next other requests get: a response, or an error of the network.
        requests: All that came.
        heads: More or other headers of streams.
    """

    def __init__(self, log: LogBuilder | None = None) -> None:
        self.log = log or LogBuilder().start().say("Hi").finish("Hi")
        self.bodies: deque[Body | httpx.Response | Exception] = deque()
        self.replies: deque[httpx.Response | Exception] = deque()
        self.requests: list[httpx.Request] = []
        self.heads: dict[str, str] = {}
        self.clock = FakeClock()

    @property
    def session_id(self) -> str:
        return self.log.session_id

    @property
    def events(self) -> list[ev.Event]:
        return events_of(self.log)

    @property
    def posts(self) -> list[httpx.Request]:
        return [request for request in self.requests if request.method == "POST"]

    @property
    def starts(self) -> list[int]:
        """The startIndex of each stream."""
        return [
            int(request.url.params["startIndex"])
            for request in self.requests
            if request.url.path.endswith("/stream")
        ]

    def client(self, **settings: Any) -> Client:
        bounds = settings.pop("bounds", {})
        settings.setdefault("heartbeat_s", 15.0)
        patience = self.clock.patience(**bounds)
        return Client("http://localhost:8787", patience=patience, transport=self, **settings)

    def session(self, client: Client) -> Session:
        """The session with the token in force; nothing was read."""
        state = new_saved_state(self.session_id, self.log.state.token, self.log.state.next_index - 1)
        return client.restore(state)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.requests.append(request)
        if request.url.path.endswith("/stream"):
            return self._stream(request)
        if self.replies:
            reply = self.replies.popleft()
            if isinstance(reply, Exception):
                raise reply
            return reply
        if request.method == "GET":
            return ok(**self.view())
        raise AssertionError(f"nothing is scripted for {request.method} {request.url}")

    def view(self) -> dict[str, Any]:
        state = self.log.state
        return {
            "sessionId": state.session_id,
            "continuationToken": state.token,
            "status": state.status,
            "cursor": state.next_index,
            "turn": None if state.turn is None else {"turnId": state.turn.turn_id},
        }

    def accepted(self, **more: Any) -> httpx.Response:
        """What a POST that began the log's last turn is answered."""
        index = [event.index for event in self.events if event.type == ev.TURN_STARTED][-1]
        return ok(
            sessionId=self.session_id,
            continuationToken=self.log.state.token,
            turnId=self.log.turn_id,
            startIndex=0 if index == 1 else index,
            **more,
        )

    def _stream(self, request: httpx.Request) -> httpx.Response:
        body = self.bodies.popleft() if self.bodies else whole
        if isinstance(body, Exception):
            raise body
        if isinstance(body, httpx.Response):
            return body
        lines = self.log.lines
        start = int(request.url.params["startIndex"])
        content = b"".join(lines[max(0, len(lines) + start) if start < 0 else start :]) or b"\n"
        headers = {
            "content-type": "application/x-ndjson; charset=utf-8",
            "x-zhin-tail-index": str(len(lines) - 1),
            **self.heads,
        }
        return httpx.Response(200, headers=headers, stream=_Stream(body(content)))


def ok(**fields: Any) -> httpx.Response:
    return httpx.Response(200, json={"ok": True, **fields})


def refused(status: int, code: str, *, retry_after: int | None = None, **more: Any) -> httpx.Response:
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    body = {"ok": False, "error": code, "message": f"It is {code}.", **more}
    return httpx.Response(status, json=body, headers=headers)


def sent(request: httpx.Request) -> dict[str, Any]:
    """The JSON of its body."""
    return dict(json.loads(request.content))


def events_of(log: LogBuilder) -> list[ev.Event]:
    found = []
    for line in log.lines:
        parts = ev.split_line(line[:-1])
        assert parts is not None
        data = orjson.loads(parts.data)
        found.append(ev.Event(parts.index, parts.type, parts.timestamp_ms, data, parts.sum))
    return found


async def take(events: AsyncIterator[ev.Event], got: list[ev.Event]) -> None:
    """All of them, those before an error too."""
    async for event in events:
        got.append(event)  # noqa: PERF401 - an error would lose them
