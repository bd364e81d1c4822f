"""What tests of the HTTP edge share: a store that remembers, streams over made-up lines, an ASGI client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp, Message, Scope

from zhin_host.answers import Answered
from zhin_host.clock import SessionId
from zhin_host.config import Config
from zhin_host.gauges import Gauges
from zhin_host.http import AllowAll, create_app
from zhin_host.intake import Accepted, Key, OnBusy
from zhin_host.meters import Meters
from zhin_host.ports import Authenticator, Principal
from zhin_host.store import HttpAgentSessionStore, Page
from zhin_host.subscriptions import Feed, Subscription, Subscriptions, Until

SESSION = "ses_01jdq3v2k0000000000000000a"
OTHER_SESSION = "ses_01jdq3v2k0000000000000000b"
REQUEST = "req_01jdq3v2k0000000000000000a_0123456789abcdefghjkmnpqrs"
TOKEN = "zhin:0123456789abcdefghjkmnpqrs"


def line(index: int, event_type: str = "message.appended", data: str = '{"messageDelta":"word "}') -> bytes:
    """An event's line with everything but a true sum."""
    head = f'{{"index":{index},"type":"{event_type}","timestamp":1764428400123,"data":{data}'
    return f'{head},"sum":"{"A" * 43}"}}\n'.encode()


class StillClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return 1764428400123 + int(self.seconds * 1000)

    def monotonic_s(self) -> float:
        return self.seconds

    def random_bits(self, count: int) -> int:
        return 0


class LogInMemory:
    """The bytes of a log, readable as far as `error` lets."""

    def __init__(self) -> None:
        self.session_id = SessionId(SESSION)
        self.content = b""
        self.error: Exception | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    def append(self, lines: bytes, *, expected_bytes: int) -> None:
        self.content += lines

    def read(self, offset: int, limit_bytes: int) -> bytes:
        if self.error is not None:
            raise self.error
        return self.content[offset : offset + limit_bytes]

    def offset_of(self, index: int) -> int:
        at = self.content.find(b'{"index":%d,' % index)
        return len(self.content) if at < 0 else at

    async def sync(self) -> None:
        return

    def close(self) -> None:
        return


class Stage:
    """One session whose events the test writes, and the real streams over them."""

    def __init__(
        self, events: int = 0, *, is_at_rest: bool = False, is_over: bool = False, streams_max: int = 10
    ) -> None:
        self.clock = StillClock()
        self.hub = Subscriptions(self.clock, streams_max=streams_max, heartbeat_s=15, write_timeout_s=30)
        self.log = LogInMemory()
        self.feed = Feed(
            self.log, offset=0, next_index=0, is_at_rest=False, is_over=False, tail_bytes_max=1 << 16
        )
        if events:
            self.write(events, is_at_rest=is_at_rest, is_over=is_over)

    def write(
        self, events: int = 1, *, is_at_rest: bool = False, is_over: bool = False, data: str = "{}"
    ) -> None:
        first = self.feed.next_index
        lines = b"".join(line(first + at, data=data) for at in range(events))
        self.log.content += lines
        rest_offset = len(self.log.content) if is_at_rest or is_over else None
        self.feed.publish(lines, first + events, rest_offset, is_at_rest=is_at_rest, is_over=is_over)

    def subscribe(self, start: int = 0, until: Until = "boundary") -> Subscription:
        if start < 0:
            start = max(0, self.feed.next_index + start)
        index = min(start, self.feed.next_index)
        reader = self.hub.open(SessionId(SESSION), self.feed, (self.log.offset_of(index), index), until)
        reader.start_at(start)
        return reader

    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.hub.tick()


class FakeStore(HttpAgentSessionStore):
    """Remembers each command, then raises `error` or gives what routes need; streams are those of `stage`."""

    def __init__(self, stage: Stage | None = None) -> None:  # none of the real one's parts
        self.stage = stage or Stage()
        self.calls: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.value: Any = True
        self.next_before: str | None = None

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error

    async def start(
        self,
        who: Principal,
        message: str | list[dict[str, str]],
        metadata: Mapping[str, Any] | None = None,
        agent: str | None = None,
        key: Key | None = None,
    ) -> Accepted:
        self._note(
            "start", who.name, message, metadata, agent, *([] if key is None else [key.key, key.digest])
        )
        return Accepted(SESSION, TOKEN, "turn_1", 0)

    async def proceed(  # noqa: PLR0917 - as the store has it
        self,
        who: Principal,
        session_id: str,
        token: str,
        message: str | list[dict[str, str]],
        on_busy: OnBusy = "reject",
        key: Key | None = None,
    ) -> Accepted:
        told = [on_busy] if on_busy != "reject" else []
        self._note(
            "proceed", who.name, session_id, token, message, *told, *([] if key is None else [key.key])
        )
        return Accepted(session_id, TOKEN, "turn_2", 9, is_queued=on_busy != "reject")

    async def resume(self, who: Principal, session_id: str, token: str | None = None) -> Accepted:
        self._note("resume", who.name, session_id, token)
        return Accepted(session_id, TOKEN, "turn_3", 12)

    async def answer(
        self, who: Principal, session_id: str, request_id: str, answer: Mapping[str, Any], comment: str | None
    ) -> Answered:
        self._note("answer", who.name, session_id, request_id, dict(answer), comment)
        return Answered(session_id, request_id, next(iter(answer.values())), already=False)

    async def answer_relayed(
        self, who: Principal, session_id: str, request_id: str, response: Any
    ) -> Answered:
        self._note("answer_relayed", who.name, session_id, request_id, response)
        return Answered(session_id, request_id, self.value, already=True)

    async def authorize(
        self,
        who: Principal,
        request_id: str,
        success: bool,  # noqa: FBT001 - the store's signature
        error: str | None,
        session_id: str | None,
    ) -> Answered:
        self._note("authorize", who.name, request_id, success, error, session_id)
        return Answered(SESSION, request_id, success, already=False)

    async def cancel(self, who: Principal, session_id: str, turn_id: str | None) -> str:
        self._note("cancel", who.name, session_id, turn_id)
        return "accepted"

    async def end(self, who: Principal, session_id: str, outcome: str, message: str | None) -> None:
        self._note("end", who.name, session_id, outcome, message)

    async def delete(self, who: Principal, session_id: str) -> None:
        self._note("delete", who.name, session_id)

    async def view(self, who: Principal, session_id: str) -> dict[str, Any]:
        self._note("view", who.name, session_id)
        return {"sessionId": session_id, "status": "waiting", "cursor": 9}

    async def page(self, who: Principal, status: str | None, limit: int, before: str | None) -> Page:
        self._note("page", who.name, status, limit, before)
        return Page([{"sessionId": SESSION}], self.next_before)

    async def audit(self, who: Principal, session_id: str) -> dict[str, Any]:
        self._note("audit", who.name, session_id)
        return {"ok": False, "faults": []}

    async def subscribe(
        self, who: Principal, session_id: str, start_index: int, until: Until
    ) -> Subscription:
        self._note("subscribe", who.name, session_id, start_index, until)
        return self.stage.subscribe(start_index, until)

    async def check_ready(self) -> None:
        if self.error is not None:
            raise self.error


def app_of(
    store: FakeStore,
    *,
    authenticator: Authenticator | None = None,
    meters: Meters | None = None,
    **settings: Any,
) -> ASGIApp:
    """The app over a fake store; settings are those of Config."""
    return create_app(
        store,
        authenticator=authenticator or AllowAll(),
        config=Config(**settings),
        info=lambda: {"agents": [{"name": "scripted"}]},
        meters=meters or Meters(),
        gauges=lambda: Gauges(0, 0, 0, 0, 0, 0.0, 0, 0, 0, 0),
        begin=_begin,
    )


async def _begin() -> None:
    """A host that has started."""


class Exchange:
    """One request as a server sees it: what the client sends is put in, what the app sends is kept.

    Attributes:
        sent: The messages that the client has taken.
        is_refused: Set when the app sends something that the client does not take.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.sent: list[Message] = []
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self._incoming.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        self._changed = asyncio.Condition()
        self._may_take = asyncio.Event()
        self._may_take.set()
        self.is_refused = asyncio.Event()

    def take_nothing(self) -> None:
        self._may_take.clear()

    def leave(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def receive(self) -> Message:
        return await self._incoming.get()

    async def send(self, message: Message) -> None:
        if not self._may_take.is_set():
            self.is_refused.set()
            await self._may_take.wait()
        async with self._changed:
            self.sent.append(message)
            self._changed.notify_all()

    async def until_body(self, wanted: bytes) -> None:
        """Wait until the body so far holds `wanted`."""
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: wanted in self.body)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def is_complete(self) -> bool:
        return len(self.sent) > 1 and not self.sent[-1].get("more_body", False)


def http_scope(
    method: str = "GET", path: str = "/", headers: Mapping[str, str] | None = None, query: str = ""
) -> Scope:
    """The scope of a request from this machine."""
    wanted = {"host": "localhost:8787", **(headers or {})}
    return {
        "type": "http",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in wanted.items()],
        "extensions": {},
    }


@asynccontextmanager
async def running(app: ASGIApp, exchange: Exchange) -> AsyncIterator[asyncio.Task[None]]:
    """The app answering the exchange beside the test; ended with the block."""

    async def answer() -> None:
        await app(exchange.scope, exchange.receive, exchange.send)

    task = asyncio.create_task(answer(), name="exchange")
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))
