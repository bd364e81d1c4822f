"""Bench: a host on counted files whose time stands still, an agent that says words, and a client of a stream.

Two timers are held by it: the journal's millisecond and the beat of the host's own two tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from starlette.types import ASGIApp, Message

from tests.budget.counting import CountingFileSystem, HeldTimers, held_timers
from tests.hosting import NOBODY, Hosting, hosting
from zhin_host import Turn
from zhin_host import journal as journal_module
from zhin_host.clock import SessionId
from zhin_host.config import Config
from zhin_host.intake import Accepted, Key
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.subscriptions import Subscription

GATHER_S: Final = journal_module._GATHER_S
BEAT_S: Final = 1.0  # AgentSessionHost._interval_s with the default settings
BATCH: Final = Config().batch_events_max
CHUNKS: Final = 20  # of a short turn

# A turn: the POST's batch (turn.started, step.started, message.received), then what was said and the turn's end; for
# each, is the file as long as it should be, and the bytes. Both are there before the POST's sync begins, so that one
# sync serves the POST and the turn.
SHORT_TURN: Final = {"fstat .ndjson": 2, "write .ndjson": 2, "datasync .ndjson": 1}


class Speaker:
    """Says so many words without a pause, or with one after each.

    Attributes:
        words: How many.
        go: What a held turn waits for before it speaks.
    """

    def __init__(self, words: int = CHUNKS, *, padding: str = "", yields: bool = False) -> None:
        self.words = words
        self.go = asyncio.Event()
        self._padding = padding
        self._yields = yields

    async def __call__(self, turn: Turn) -> None:
        if turn.message == "hold":
            await self.go.wait()
        for number in range(self.words):
            await turn.say(f"word {number} {self._padding}")
            if self._yields:
                await asyncio.sleep(0)


class StreamClient:
    """An ASGI client that opens a stream and stays until it ends or the client leaves.

    Attributes:
        sent: What it was sent.
    """

    def __init__(self, session_id: str, query: str, accept: bytes = b"*/*") -> None:
        self.sent: list[Message] = []
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": f"/zhin/v1/session/{session_id}/stream",
            "raw_path": b"",
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(b"host", b"localhost:8787"), (b"accept", accept)],
            "server": ("localhost", 8787),
            "client": ("127.0.0.1", 1),
        }
        self._leaves = asyncio.get_running_loop().create_future()

    async def stay(self, app: ASGIApp) -> None:
        await app(self.scope, self.receive, self.send)

    async def receive(self) -> Message:
        await self._leaves
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def leave(self) -> None:
        self._leaves.set_result(None)


@dataclass
class Bench:
    """A host on counted files, its time standing still.

    Attributes:
        at_start: The calls that its start has made.
    """

    hosting: Hosting
    fs: CountingFileSystem
    timers: HeldTimers
    at_start: dict[str, int]

    async def start(self, message: str = "Hello") -> str:
        """A new session; its first turn has ended, unless it was told to hold."""
        accepted = await self.hosting.start(message)
        if message != "hold":
            await self.ended(accepted.session_id)
        return accepted.session_id

    async def follow_up(self, session_id: str, message: str = "Go on", key: Key | None = None) -> Accepted:
        """A follow-up; its turn has ended, unless it was told to hold."""
        token = self.hosting.live(session_id).state.token
        store = self.hosting.store
        accepted = await store.proceed(NOBODY, session_id, token, message, key=key)
        if message != "hold":
            await self.ended(session_id)
        return accepted

    async def ended(self, session_id: str) -> None:
        """Wait until no turn of it is open, without a timer of our own."""
        runner = self.hosting.store._driver.runner(SessionId(session_id))
        if runner is not None:
            await runner.settled()


@asynccontextmanager
async def bench(agent: Any, data_dir: Path, **settings: Any) -> AsyncIterator[Bench]:
    """A host for the block; what its start has cost is put aside."""
    fs = CountingFileSystem()
    fsync = settings.get("fsync", "boundary")
    persistence = FileHttpSessionPersistence(data_dir, fsync=fsync, fs=fs)
    with held_timers(GATHER_S, BEAT_S) as timers:
        async with hosting(agent, persistence=persistence, **settings) as host:
            await turned(partial(has_beaten, timers, 2))  # the ticker and the housekeeping have begun
            yield Bench(host, fs, timers, fs.take())


async def leave_memory(host: Bench, session_id: str) -> None:
    """Let the session be dropped from memory, as one unused for a while."""
    await host.hosting.live(session_id).snapshot_written()
    host.hosting.host._sessions.sweep()
    host.hosting.clock.advance(host.hosting.host.config.idle_s)
    await host.hosting.host._sessions.drop_idle()
    assert not host.hosting.is_in_memory(session_id)


async def blocks_of(stream: Subscription) -> list[bytes]:
    try:
        return [block async for block in stream if block]
    finally:
        await stream.aclose()


async def turned(is_so: Callable[[], bool]) -> None:
    """Let the loop turn until something is so; a bound on its turns is the deadline."""
    for _ in range(10_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not become so")


def has_beaten(timers: HeldTimers, count: int) -> bool:
    return timers.made[BEAT_S] == count
