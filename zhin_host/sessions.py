"""LiveSessions: which sessions are in memory, how they come and how they leave."""

from __future__ import annotations

import asyncio
import bisect
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from zhin_host.attempt import Services
from zhin_host.clock import SessionId
from zhin_host.errors import EventRefused, SessionNotFound, StorageUnavailable
from zhin_host.ports import MARK_RUNNING, MARK_STOPPED, Principal, SessionPersistence
from zhin_host.recovery import ending_after_restart, hydrate
from zhin_host.session import LiveSession

_log = logging.getLogger("zhin_host.sessions")

_UNMARK_AT_ONCE = 256


class LiveSessions:
    """The sessions of one host: an index of all ids, and those that are in memory.

    Args:
        persistence: Where they live.
        services: Clock and settings.
        is_hosted: Whether an agent of that name runs here.
    """

    def __init__(
        self, persistence: SessionPersistence, services: Services, is_hosted: Callable[[str], bool]
    ) -> None:
        self.persistence = persistence
        self._services = services
        self._is_hosted = is_hosted
        self._ids: list[SessionId] = []  # every session there is, oldest first
        self._live: dict[SessionId, LiveSession] = {}  # least recently used first
        self._loading: dict[SessionId, asyncio.Task[LiveSession]] = {}
        self._users: dict[SessionId, int] = {}  # commands that hold or wait for a session
        self._unsorted: set[SessionId] = set()  # marked at start-up and not yet recovered
        self._to_unmark: set[SessionId] = set()

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def live(self) -> tuple[LiveSession, ...]:
        return tuple(self._live.values())

    @property
    def unsorted(self) -> int:
        """How many interrupted sessions recovery has still to look at."""
        return len(self._unsorted)

    # -- coming ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read the directory's names; what a crash interrupted is sorted by `recover`."""
        self._ids = self.persistence.session_ids()
        known = set(self._ids)
        for session_id, mark in self.persistence.marks().items():
            if session_id in known:
                _log.info("session %s was left %s", session_id, mark)
                self._unsorted.add(session_id)
            else:
                self._to_unmark.add(session_id)

    async def recover(self) -> None:
        """Sort every session that a crash or a stop interrupted. A bad one is logged and keeps nobody waiting."""
        for session_id in sorted(self._unsorted):
            try:
                await self._get(session_id)
            except SessionNotFound:
                self._unsorted.discard(session_id)
                self._to_unmark.add(session_id)
            except StorageUnavailable as error:
                _log.error("session %s could not be recovered: %s", session_id, error)

    def add(self, live: LiveSession) -> None:
        """Take a new session in, its log begun and marked."""
        live.is_marked = True
        self._live[live.session_id] = live
        bisect.insort(self._ids, live.session_id)

    async def find(self, who: Principal, session_id: SessionId) -> LiveSession:
        """The session, read back from its files if need be.

        Raises:
            SessionNotFound: There is none, or it is not the caller's.
            StorageUnavailable: Its files cannot be read.
        """
        live = await self._get(session_id)
        if live.state.owner != who.name:
            raise SessionNotFound(session_id)
        return live

    @asynccontextmanager
    async def held(self, who: Principal, session_id: SessionId) -> AsyncIterator[LiveSession]:
        """The session, its lock held: nothing but its own turn changes it meanwhile, and it stays in memory.

        Raises:
            SessionNotFound: There is none, or it is not the caller's.
            StorageUnavailable: Its files cannot be read.
        """
        self._users[session_id] = self._users.get(session_id, 0) + 1
        try:
            live = await self.find(who, session_id)
            async with live.lock:
                if self._live.get(session_id) is not live:  # deleted while this command waited
                    raise SessionNotFound(session_id)
                yield live
        finally:
            self._users[session_id] -= 1
            if not self._users[session_id]:
                del self._users[session_id]

    async def mark_running(self, live: LiveSession) -> None:
        """Have the .open file there, durably, before a turn starts. The session's lock is held."""
        self._to_unmark.discard(live.session_id)
        if not live.is_marked:
            await self.persistence.mark(live.session_id, MARK_RUNNING)
            live.is_marked = True

    async def _get(self, session_id: SessionId) -> LiveSession:
        live = self._live.pop(session_id, None)
        if live is None:
            loading = self._loading.get(session_id)
            if loading is None:
                name = f"hydrate {session_id}"
                loading = asyncio.get_running_loop().create_task(self._load(session_id), name=name)
                self._loading[session_id] = loading
                loading.add_done_callback(lambda _: self._loading.pop(session_id, None))
            return await asyncio.shield(loading)
        self._live[session_id] = live  # most recently used last
        live.used_at_s = self._services.clock.monotonic_s()
        return live

    async def _load(self, session_id: SessionId) -> LiveSession:
        found = await asyncio.to_thread(hydrate, self.persistence, session_id)
        live = LiveSession(found.state, found.log, self._services, found.fault)
        live.loaded_snapshot(found.snapshot_bytes, found.snapshot_offset)
        live.is_marked = session_id in self._unsorted
        try:
            await self._recover(live)
        except StorageUnavailable:
            live.log.close()
            raise
        self._live[session_id] = live
        return live

    async def _recover(self, live: LiveSession) -> None:
        """Pay what a cut batch owes and end what the last host left open (until turns outlive the process)."""
        if live.fault is None and (live.state.turn is None or self._is_hosted(live.state.agent)):
            live.journal.write(ending_after_restart)
            await live.journal.sync()
            self.at_rest(live)
        self._unsorted.discard(live.session_id)

    # -- leaving ---------------------------------------------------------------------------------------------------

    def at_rest(self, live: LiveSession) -> None:
        """A turn of it has ended: its .open file goes with the next sweep, a snapshot is written if it is worth it."""
        if live.is_marked and live.state.turn is None and not live.state.queue:
            self._to_unmark.add(live.session_id)
        if live.is_snapshot_due:
            live.save_snapshot_soon(self.persistence)

    def sweep(self) -> None:
        """Remove .open files of sessions at rest, in the same step as the check that they are."""
        ready: list[SessionId] = []
        for session_id in self._to_unmark:
            live = self._live.get(session_id)
            if live is not None and (live.state.turn is not None or live.state.queue):
                continue
            if session_id not in self._users and session_id not in self._loading:
                ready.append(session_id)
                if live is not None:
                    live.is_marked = False
            if len(ready) >= _UNMARK_AT_ONCE:
                break
        self._to_unmark.difference_update(ready)
        if ready:
            self.persistence.unmark(ready)

    async def drop_idle(self) -> None:
        """Let sessions at rest leave memory: those unused for a while, and the oldest when there are too many."""
        config, now_s = self._services.config, self._services.clock.monotonic_s()
        idle = [live for live in self._live.values() if self._may_leave(live)]
        over = max(0, len(idle) - config.idle_sessions_max)
        for at, live in enumerate(idle):
            if at < over or now_s - live.used_at_s >= config.idle_s:
                await self._drop(live)

    def _may_leave(self, live: LiveSession) -> bool:
        return live.is_idle and live.session_id not in self._users and live.session_id not in self._to_unmark

    async def _drop(self, live: LiveSession) -> None:
        before = live.state.next_index
        await live.save_snapshot(self.persistence)
        if live.state.next_index == before and self._may_leave(live):  # no await from here on
            del self._live[live.session_id]
            live.log.close()

    async def delete(self, live: LiveSession) -> None:
        """Remove every byte of a session and end its streams. Its lock is held.

        Raises:
            StorageUnavailable: Something could not be removed; the session is still known.
        """
        await live.snapshot_written()
        await self.persistence.delete(live.session_id)
        live.log.close()
        live.journal.feed.close()
        self._live.pop(live.session_id, None)
        self._to_unmark.discard(live.session_id)
        at = bisect.bisect_left(self._ids, live.session_id)
        if at < len(self._ids) and self._ids[at] == live.session_id:
            del self._ids[at]

    async def stop(self) -> None:
        """Leave every session so that the next host finds it: all synced, snapshots written, marks true."""
        for live in self.live:
            try:
                if live.fault is None:
                    live.journal.write(())
                    await live.journal.sync()
                    await live.save_snapshot(self.persistence)
                if live.is_marked and live.state.turn is None:
                    self._to_unmark.add(live.session_id)
                elif live.is_marked:
                    await self.persistence.mark(live.session_id, MARK_STOPPED)
            except (StorageUnavailable, EventRefused) as error:
                _log.error("session %s was not left whole: %s", live.session_id, error)
            live.log.close()
        self._live.clear()
        while self._to_unmark:
            before = len(self._to_unmark)
            self.sweep()
            if len(self._to_unmark) == before:
                break

    # -- looking ---------------------------------------------------------------------------------------------------

    def before(self, session_id: str | None) -> list[SessionId]:
        """Every id that sorts before this one (all when None), newest first, lazily cut by the caller."""
        end = len(self._ids) if session_id is None else bisect.bisect_left(self._ids, session_id)
        return self._ids[max(0, end - _LOOKED_AT_MAX) : end][::-1]

    def in_memory(self, session_id: SessionId) -> LiveSession | None:
        return self._live.get(session_id)


_LOOKED_AT_MAX = 1_000
"""Sessions that one page of a list looks at, at the most; it may then be short (contract section 2)."""
