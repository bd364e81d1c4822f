"""Hosts for tests: an agent from a script, in memory or on files, driven directly or over HTTP, audited at its end."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import orjson

from tests.documented import check_event, check_response
from tests.fakes import FakeClock
from zhin_host import events as ev
from zhin_host.audit import audit_session
from zhin_host.clock import SessionId
from zhin_host.host import AgentSessionHost, create_agent_session_host
from zhin_host.intake import Accepted
from zhin_host.ports import Principal, SessionPersistence
from zhin_host.session import LiveSession
from zhin_host.state import PendingRequest
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.memory import MemorySessionPersistence
from zhin_host.store import HttpAgentSessionStore
from zhin_host.subscriptions import Until
from zhin_host.turns import HttpTurnRunner

NOBODY: Final = Principal()
DEADLINE_S: Final = 20.0
_seeds = itertools.count()  # no two hosts make the same ids


@dataclass
class Hosting:
    """A host that runs, and short words for what tests do with it."""

    host: AgentSessionHost
    persistence: SessionPersistence
    clock: FakeClock

    @property
    def store(self) -> HttpAgentSessionStore:
        return self.host.store

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """HTTP without a socket. A stream's body is there when it has ended."""
        transport = httpx.ASGITransport(app=self.host.app)
        base_url = "http://localhost:8787/zhin/v1"
        hooks = {"response": [check_response]}
        async with httpx.AsyncClient(transport=transport, base_url=base_url, event_hooks=hooks) as client:
            yield client

    # -- commands --------------------------------------------------------------------------------------------

    async def start(self, message: Any = "Hello", agent: str | None = None, **metadata: Any) -> Accepted:
        return await self.store.start(NOBODY, message, metadata or None, agent)

    async def follow_up(self, session_id: str, message: Any = "And then?") -> Accepted:
        """A follow-up with the token in force."""
        view = await self.store.view(NOBODY, session_id)
        return await self.store.proceed(NOBODY, session_id, view["continuationToken"], message)

    async def run(self, message: Any = "Hello", **metadata: Any) -> list[ev.Event]:
        """A whole new session up to where it rests first, each event of it as the OpenAPI document has it."""
        accepted = await self.start(message, **metadata)
        content = await self.content(accepted.session_id)
        for line in content.splitlines():
            check_event(orjson.loads(line))
        return decoded(accepted.session_id, content)

    async def approve(self, session_id: str, request_id: str, *, approved: bool = True) -> None:
        await self.store.answer(NOBODY, session_id, request_id, {"approved": approved}, None)

    async def respond(self, session_id: str, request_id: str, response: Any) -> None:
        await self.store.answer(NOBODY, session_id, request_id, {"response": response}, None)

    async def cancel(self, session_id: str) -> str:
        return await self.store.cancel(NOBODY, session_id, None)

    # -- looking ---------------------------------------------------------------------------------------------

    async def content(self, session_id: str, start: int = 0, until: Until = "boundary") -> bytes:
        """What a reader gets, heartbeats being empty."""
        reader = await self.store.subscribe(NOBODY, session_id, start, until)
        try:
            async with asyncio.timeout(DEADLINE_S):
                return b"".join([block async for block in reader])
        finally:
            await reader.aclose()

    async def events(self, session_id: str, start: int = 0, until: Until = "boundary") -> list[ev.Event]:
        """The events of the session from `start` up to where it rests."""
        return decoded(session_id, await self.content(session_id, start, until))

    async def idle(self, session_id: str, start: int = 0) -> list[ev.Event]:
        """Wait until no turn is open, parked or not; the events from `start` on."""
        reader = await self.store.subscribe(NOBODY, session_id, start, "never")
        content = b""
        try:
            async with asyncio.timeout(DEADLINE_S):
                async for block in reader:
                    content += block
                    state = self.live(session_id).state
                    if state.turn is None and not state.queue and reader._index == state.next_index:
                        break
        finally:
            await reader.aclose()
        return decoded(session_id, content)

    async def seen(self, session_id: str, kind: str, count: int = 1, start: int = 0) -> ev.Event:
        """Wait until the log from `start` on holds `count` events of this type; the last of them."""
        reader = await self.store.subscribe(NOBODY, session_id, start, "never")
        try:
            async with asyncio.timeout(DEADLINE_S):
                async for block in reader:
                    for event in decoded(session_id, block):
                        count -= event.type == kind
                        if not count:
                            return event
        finally:
            await reader.aclose()
        raise AssertionError(f"the session ended without {kind}")

    async def asked(self, session_id: str, count: int = 1) -> list[PendingRequest]:
        """Wait until so many requests were made; those that are open, oldest first."""
        return await self.asked_by(NOBODY, session_id, count)

    async def asked_by(self, who: Principal, session_id: str, count: int = 1) -> list[PendingRequest]:
        """The same for a session that somebody owns."""
        reader = await self.store.subscribe(who, session_id, 0, "never")
        try:
            async with asyncio.timeout(DEADLINE_S):
                async for block in reader:
                    count -= sum(event.type in ev.REQUESTS for event in decoded(session_id, block))
                    if count <= 0:
                        break
        finally:
            await reader.aclose()
        return list(self.live(session_id).state.pending.values())

    def live(self, session_id: str) -> LiveSession:
        """The session in memory."""
        live = self.host._sessions.in_memory(SessionId(session_id))
        assert live is not None
        return live

    def is_in_memory(self, session_id: str) -> bool:
        return self.host._sessions.in_memory(SessionId(session_id)) is not None

    def log(self, session_id: str) -> bytes:
        """The log as it is stored."""
        return stored(self.persistence, session_id)

    async def settled(self, session_id: str) -> None:
        """Wait until no turn of the session is open and its runner has left."""
        if self.store._driver.runner(SessionId(session_id)) is not None:
            async with asyncio.timeout(DEADLINE_S):
                await self.runner(session_id).settled()

    def runner(self, session_id: str) -> HttpTurnRunner:
        """Who runs the session's open turn."""
        runner = self.store._driver.runner(SessionId(session_id))
        assert runner is not None
        return runner


@asynccontextmanager
async def hosting(
    agent: Any,
    *,
    persistence: SessionPersistence | None = None,
    data_dir: Path | None = None,
    clock: FakeClock | None = None,
    is_audited: bool = True,
    leaves_tasks: bool = False,
    **settings: Any,
) -> AsyncIterator[Hosting]:
    """A host for the block; then it is stopped, its logs are judged, and no task of it may be left.

    Args:
        agent: As for create_agent_session_host.
        persistence: Where sessions live; else files in `data_dir`; else memory.
        data_dir: The fixture's, whose teardown audits it as files.
        clock: Stands still when not given; its ids are no other host's.
        is_audited: False where a log is broken on purpose.
        leaves_tasks: The agent leaves work of its own behind on purpose.
        settings: Those of Config, and what else create_agent_session_host takes.
    """
    before = asyncio.all_tasks()
    clock = clock or FakeClock(seed=next(_seeds))
    if persistence is None:
        fsync = settings.get("fsync", "boundary")
        persistence = (
            MemorySessionPersistence()
            if data_dir is None
            else FileHttpSessionPersistence(data_dir, fsync=fsync)
        )
    host = create_agent_session_host(agent, persistence=persistence, clock=clock, **settings)
    async with host:
        yield Hosting(host, persistence, clock)
    if is_audited:
        judge(persistence, settings.get("line_bytes_max", 1 << 20))
    left = {task for task in asyncio.all_tasks() - before if not task.done()}
    assert leaves_tasks or not left, f"tasks are left behind: {left}"


@asynccontextmanager
async def crashing(agent: Any, *, persistence: SessionPersistence, **settings: Any) -> AsyncIterator[Hosting]:
    """A host that is not stopped at the end of the block: its tasks end, and it writes nothing more."""
    before = asyncio.all_tasks()
    clock = settings.pop("clock", None) or FakeClock(seed=next(_seeds))
    host = create_agent_session_host(agent, persistence=persistence, clock=clock, **settings)
    await host.start()
    try:
        yield Hosting(host, persistence, clock)
    finally:
        await crash(host, before)
        persistence.stop()  # the kernel frees its lock


async def crash(host: AgentSessionHost, others: Collection[asyncio.Task[Any]] = ()) -> None:
    """End every task of the loop but this one and the `others`; the host writes nothing more."""
    host.store._driver._is_stopping = True  # nothing begins any more
    for live in host._sessions.live:
        live.log.close()
        runner = host.store._driver.runner(live.session_id)
        if runner is not None:  # what is killed does not wait for storage
            runner._is_stopped = runner._attempt.is_over = True
    left = asyncio.all_tasks() - {asyncio.current_task(), *others}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.05)


def decoded(session_id: str, content: bytes) -> list[ev.Event]:
    """The events of whole lines; the chain is checked when they begin with the first one."""
    events: list[ev.Event] = []
    link = ev.chain_start(session_id)
    for line in content.splitlines():
        parts = ev.split_line(line)
        assert parts is not None, line
        if events or parts.index == 0:
            events.append(ev.decode_line(line, link))
        else:
            data = orjson.loads(parts.data)
            events.append(ev.Event(parts.index, parts.type, parts.timestamp_ms, data, parts.sum))
        link = events[-1].sum
    return events


def types(events: list[ev.Event]) -> list[str]:
    """Their types."""
    return [event.type for event in events]


def one(events: list[ev.Event], kind: str, at: int = 0) -> dict[str, Any]:
    """The data of the n-th event of this type."""
    return [event.data for event in events if event.type == kind][at]


def last(events: list[ev.Event]) -> Mapping[str, Any]:
    """The data of the last event."""
    return events[-1].data


def stored(persistence: SessionPersistence, session_id: str) -> bytes:
    """A session's log as it lies there."""
    log = persistence.peek_log(SessionId(session_id))
    try:
        return log.read(0, log.size_bytes)
    finally:
        log.close()


def judge(persistence: SessionPersistence, line_bytes_max: int = 1 << 20) -> None:
    """Fail unless the audit, and the referee that ZHIN_REFEREE names, find nothing wrong with any session."""
    for session_id in persistence.session_ids():
        verdict = audit_session(persistence, session_id, line_bytes_max=line_bytes_max)
        assert verdict.ok, verdict.faults
        judged = referee(session_id, stored(persistence, session_id))
        assert judged == [], judged


def referee(session_id: str, content: bytes) -> list[str]:
    """What the independent check finds wrong with a log; [] where ZHIN_REFEREE names none."""
    program = os.environ.get("ZHIN_REFEREE")
    if program is None:
        return []
    session = _referee_of(program)(session_id)
    for line in content.splitlines():
        session.line(line)
    if session.awaits:
        session.fault(f"the log ends where {session.awaits} must follow")
    return list(session.faults)


_referees: dict[str, Callable[[str], Any]] = {}


def _referee_of(program: str) -> Callable[[str], Any]:
    """Its class that takes lines, loaded once: a process for each log would take a hundred times as long."""
    if program not in _referees:
        spec = importlib.util.spec_from_file_location("zhin_referee", program)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _referees[program] = module.Session
    return _referees[program]
