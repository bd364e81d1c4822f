"""LiveSessions: which sessions are in memory, how they come and how they leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from zhin_host.attempt import Services
from zhin_host.changes import report_recovery
from zhin_host.clock import SessionId
from zhin_host.deadlines import Deadlines
from zhin_host.driver import TurnDriver
from zhin_host.errors import EventRefused, RequestError, SessionNotFound, ShuttingDown, StorageUnavailable
from zhin_host.index import SessionIndex
from zhin_host.ports import (
    MARK_PARKED,
    MARK_RUNNING,
    MARK_STOPPED,
    Principal,
    Right,
    SessionLog,
    SessionPersistence,
    parked_until,
)
from zhin_host.recovery import hydrate, read_owner
from zhin_host.session import LiveSession

_log = logging.getLogger("zhin_host.sessions")

_UNMARK_AT_ONCE = 256
_RECOVERED_AT_ONCE = 16
_DROPPED_AT_ONCE = 64
_HIDDEN_S = 0.02  # after which every refusal of a session is told: longer than looking whose it is takes


class LiveSessions:
    """The sessions of one host that are in memory, and the index of all.

    Args:
        persistence: Where they live.
        services: Clock and settings.
        driver: Who runs their turns.

    Attributes:
        index: The ids of every session there is.
        deadlines: When requests of those out of memory expire.
        parked_away: Those that are parked and out of memory, and when the last event of each came, ms.
    """

    def __init__(self, persistence: SessionPersistence, services: Services, driver: TurnDriver) -> None:
        self.persistence = persistence
        self.index = SessionIndex()
        self._services = services
        self._driver = driver
        self._live: dict[SessionId, LiveSession] = {}  # least recently used first
        self._loading: dict[SessionId, asyncio.Task[LiveSession]] = {}
        self._users: dict[SessionId, int] = {}  # commands that hold or wait for a session
        self._marks: dict[SessionId, str] = {}  # what the last host left, until the session is read back
        self._unsorted: set[SessionId] = set()  # interrupted, and not yet recovered
        self._bad: set[SessionId] = set()  # could not be recovered; tried again now and then
        self.deadlines = Deadlines()
        self.parked_away: dict[SessionId, int] = {}
        self._to_unmark: set[SessionId] = set()
        self._is_stopping = False

    @property
    def live(self) -> tuple[LiveSession, ...]:
        return tuple(self._live.values())

    @property
    def unsorted(self) -> int:
        """How many interrupted sessions recovery has still to look at."""
        return len(self._unsorted)

    def in_memory(self, session_id: SessionId) -> LiveSession | None:
        return self._live.get(session_id)

    # -- coming ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read the directory's names; what a crash interrupted is sorted by `recover`, what is parked stays on disk."""
        self.index.fill(self.persistence.session_ids())
        self._marks = self.persistence.marks()
        for session_id, mark in self._marks.items():
            until_ms = parked_until(mark)
            if session_id not in self.index:
                self._to_unmark.add(session_id)
            elif until_ms is None:
                self._unsorted.add(session_id)
            else:
                self.deadlines.add(session_id, until_ms)
                self.parked_away[session_id] = self.persistence.last_written_ms(session_id)

    async def recover(self) -> None:
        """Sort every session that a crash or a stop interrupted. A bad one is logged and keeps nobody waiting."""
        places = asyncio.Semaphore(_RECOVERED_AT_ONCE)  # together they share their syncs

        async def sort(session_id: SessionId) -> None:
            async with places:
                await self._sort(session_id)

        await asyncio.gather(*(sort(session_id) for session_id in sorted(self._unsorted)))

    async def recover_again(self) -> None:
        """Try those again that could not be read or written; the host calls this now and then."""
        for session_id in sorted(self._bad):
            self._bad.discard(session_id)
            await self._sort(session_id)

    async def _sort(self, session_id: SessionId) -> None:
        try:
            await self._get(session_id)
        except SessionNotFound:
            self._to_unmark.add(session_id)
        except ShuttingDown:
            return
        except StorageUnavailable as error:
            _log.error("session %s could not be recovered; it is tried again later: %s", session_id, error)
            self._bad.add(session_id)
        except Exception:  # noqa: BLE001 - a mistake of ours, which must not keep the others from going on
            _log.exception("session %s could not be recovered; it is tried again later", session_id)
            self._bad.add(session_id)
        self._unsorted.discard(session_id)

    def add(self, live: LiveSession) -> None:
        """Take a new session in, its log begun and marked."""
        live.is_marked = True
        self._live[live.session_id] = live
        self.index.add(live.session_id)

    async def find(self, who: Principal, right: Right, session_id: SessionId) -> LiveSession:
        """The session, read back from its files if need be.

        Another's session is refused as one that is not there, after the same time; its log is not read for that.

        Raises:
            Forbidden: The caller may do this nowhere.
            SessionNotFound: There is none in which the caller may do this.
            StorageUnavailable: Its files cannot be read.
        """
        who.check(right)
        if who.name is None or who.reaches_all(right):  # there is nobody from whom to hide what
            live = await self._get(session_id)
            if not who.reaches(right, live.state.owner):
                raise SessionNotFound(session_id)
            return live
        loop = asyncio.get_running_loop()
        told_at_s = loop.time() + _HIDDEN_S
        try:
            return await self._get_own(who, right, session_id)
        except SessionNotFound:
            await asyncio.sleep(told_at_s - loop.time())
            raise

    async def _get_own(self, who: Principal, right: Right, session_id: SessionId) -> LiveSession:
        live = self._live.get(session_id)
        owner = await self._owner(session_id) if live is None else live.state.owner
        if not who.reaches(right, owner):
            raise SessionNotFound(session_id)
        return await self._get(session_id)

    async def _owner(self, session_id: SessionId) -> str | None:
        if self._is_stopping:  # what has been left is not looked at any more
            raise ShuttingDown
        return await asyncio.to_thread(read_owner, self.persistence, session_id)

    @asynccontextmanager
    async def held(
        self, who: Principal | None, right: Right, session_id: SessionId
    ) -> AsyncIterator[LiveSession]:
        """The session, its lock held: nothing but its own turn changes it meanwhile, and it stays in memory.

        Args:
            who: Who asks; None: the host itself.
            right: What the caller must be allowed in it.
            session_id: The session.

        Raises:
            Forbidden, SessionNotFound, StorageUnavailable: As `find`.
        """
        self._users[session_id] = self._users.get(session_id, 0) + 1
        try:
            while True:
                live = await (self._get(session_id) if who is None else self.find(who, right, session_id))
                async with live.lock:
                    if self._live.get(session_id) is live:
                        yield live
                        return
                # It was deleted, or has left memory, while this command waited: look again.
        finally:
            self._users[session_id] -= 1
            if not self._users[session_id]:
                del self._users[session_id]

    async def mark_running(self, live: LiveSession) -> None:
        """Have the .open file say so, durably, before a turn starts or is taken up. The session's lock is held.

        Raises:
            StorageUnavailable: It could not be written.
        """
        self._to_unmark.discard(live.session_id)
        if not live.is_marked:
            await self.persistence.mark(live.session_id, MARK_RUNNING)
            live.is_marked = True

    async def _get(self, session_id: SessionId) -> LiveSession:
        while (live := self._live.pop(session_id, None)) is None:
            if self._is_stopping:  # what has been left stays as it was left, for the next host
                raise ShuttingDown
            loading = self._loading.get(session_id)
            if loading is None:
                name = f"hydrate {session_id}"
                loading = asyncio.get_running_loop().create_task(self._load(session_id), name=name)
                self._loading[session_id] = loading
                loading.add_done_callback(lambda _: self._loading.pop(session_id, None))
            await asyncio.shield(loading)  # it may have left again before this task runs: look once more
        self._live[session_id] = live  # most recently used last
        live.used_at_s = self._services.clock.monotonic_s()
        return live

    async def _load(self, session_id: SessionId) -> LiveSession:
        found = await asyncio.to_thread(hydrate, self.persistence, session_id)
        live = LiveSession(found.state, found.log, self._services, self.at_rest, found.fault)
        live.loaded_snapshot(found.snapshot_bytes, found.snapshot_offset)
        mark = self._marks.get(session_id, MARK_RUNNING)
        live.is_marked = was_interrupted = session_id in self._marks and parked_until(mark) is None
        try:
            await self._mark_interrupted(live)
            outcome = await self._driver.recover(live, was_crash=mark != MARK_STOPPED)
        except EventRefused as error:  # a setting was lowered: what recovery must write does not fit a line
            live.log.close()
            raise StorageUnavailable(f"Session {session_id} cannot go on: {error}") from error
        except StorageUnavailable:
            live.log.close()
            self._marks[session_id] = MARK_STOPPED  # it may be tried again: no host has crashed meanwhile
            raise
        if was_interrupted:
            report_recovery(session_id, outcome, live.state.turn, self._services.meters)
        self._marks.pop(session_id, None)
        self.parked_away.pop(session_id, None)
        self._unsorted.discard(session_id)
        self._live[session_id] = live
        if live.fault is None:
            self.at_rest(live)
        return live

    async def _mark_interrupted(self, live: LiveSession) -> None:
        """What is about to be driven has a mark that says so: a parked one, or none, would hide it from a start-up."""
        state, driver = live.state, self._driver
        stays = live.fault is not None or state.agent not in driver.agents or driver.stays_parked(live)
        if not stays and not live.is_marked and not live.is_done:
            await self.persistence.mark(live.session_id, MARK_RUNNING)
            live.is_marked = True

    # -- leaving ---------------------------------------------------------------------------------------------------

    def at_rest(self, live: LiveSession) -> None:
        """A turn of it has ended: its .open file goes with the next sweep, a snapshot is written if it is worth it."""
        if live.is_marked and live.is_done:
            self._to_unmark.add(live.session_id)
        if live.is_snapshot_due:
            live.save_snapshot_soon(self.persistence)

    def sweep(self) -> None:
        """Remove .open files of sessions at rest, in the same step as the check that they are."""
        ready = self._take_marks(_UNMARK_AT_ONCE)
        if ready:
            self.persistence.unmark(ready)

    async def create_log(self, session_id: SessionId) -> SessionLog:
        """A new session's log. The mark of one that has come to rest becomes its own, where there is one."""
        ready = self._take_marks(1)
        return await self.persistence.create_log(session_id, ready[0] if ready else None)

    def _take_marks(self, most: int) -> list[SessionId]:
        """Sessions whose mark may go now; it does in this step."""
        ready: list[SessionId] = []
        for session_id in self._to_unmark:
            live = self._live.get(session_id)
            if live is not None and not live.is_done:
                continue
            if session_id not in self._users and session_id not in self._loading:
                ready.append(session_id)
                if live is not None:
                    live.is_marked = False
            if len(ready) >= most:
                break
        self._to_unmark.difference_update(ready)
        return ready

    async def drop_idle(self) -> None:
        """Let sessions at rest leave memory: those unused for a while, and the oldest when there are too many."""
        config, now_s = self._services.config, self._services.clock.monotonic_s()
        idle = [live for live in self._live.values() if self._may_leave(live)]
        over = max(0, len(idle) - config.idle_sessions_max)
        leaving = [
            live
            for at, live in enumerate(idle)
            if at < over or now_s - live.used_at_s >= (config.idle_s if live.is_done else config.parked_s)
        ]
        for first in range(0, len(leaving), _DROPPED_AT_ONCE):  # one by one, more might come than leave
            await asyncio.gather(*map(self._drop, leaving[first : first + _DROPPED_AT_ONCE]))

    def _may_leave(self, live: LiveSession) -> bool:
        if not live.is_unused or live.session_id in self._users or live.session_id in self._to_unmark:
            return False
        if live.is_done:
            return True
        runner = self._driver.runner(live.session_id)
        is_parked = bool(live.state.pending) and (runner is None or runner.is_parked)
        return is_parked and live.fault is None and self._driver.is_resumable(live)

    async def _drop(self, live: LiveSession) -> None:
        """Let one leave; a command that comes meanwhile waits for the lock and then reads it back."""
        if self._live.get(live.session_id) is not live or not self._may_leave(live):
            return  # it was used while another one was leaving
        async with live.lock:  # it is free, so nothing comes in between
            try:
                if not live.is_done:
                    await self._let_go(live)
                await live.save_snapshot(self.persistence)
            except (StorageUnavailable, SessionNotFound) as error:
                _log.warning("session %s stays in memory: %s", live.session_id, error)
                return
            if live.journal.feed.has_readers:
                return
            del self._live[live.session_id]  # no await since the last look
            if live.state.pending:
                self.parked_away[live.session_id] = live.state.updated_at_ms
            live.log.close()

    async def _let_go(self, live: LiveSession) -> None:
        """End the attempt of a parked turn, and say on disk that start-up need not open it."""
        await self._driver.abandon(live)
        until_ms = live.earliest_expiry_ms
        await self.persistence.mark(live.session_id, f"{MARK_PARKED} {until_ms}")
        live.is_marked = False  # it does not say running any more
        self._marks[live.session_id] = f"{MARK_PARKED} {until_ms}"
        self.deadlines.add(live.session_id, until_ms)

    def due(self, now_ms: int) -> list[SessionId]:
        """Sessions, in memory or not, that have a request whose time is over."""
        due = [live.session_id for live in self._live.values() if live.state.pending and live.expired(now_ms)]
        return due + [one for one in self.deadlines.take_due(now_ms) if one not in self._live]

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
        self._marks.pop(live.session_id, None)
        self.parked_away.pop(live.session_id, None)
        self.index.discard(live.session_id)

    def begin_stop(self) -> None:
        """Read no session back any more: it would be driven again by a host that is going."""
        self._is_stopping = True

    async def stop(self) -> None:
        """Leave every session so that the next host finds it: all synced, snapshots written, marks true."""
        self.begin_stop()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)
        for live in self.live:
            try:
                if live.fault is None:
                    live.journal.write(())
                    await live.journal.sync()
                    await live.save_snapshot(self.persistence)
                await self._leave_mark(live)
            # Its files may be gone, too: the others are left whole.
            except (RequestError, EventRefused) as error:
                _log.error("session %s was not left whole: %s", live.session_id, error)
            live.log.close()
        self._live.clear()
        before = 0
        while before != (before := len(self._to_unmark)):  # as long as some go
            self.sweep()

    async def _leave_mark(self, live: LiveSession) -> None:
        if not live.is_marked:
            return
        if live.is_done:
            self._to_unmark.add(live.session_id)
        elif live.fault is None and live.state.pending and self._driver.is_resumable(live):
            await self.persistence.mark(live.session_id, f"{MARK_PARKED} {live.earliest_expiry_ms}")
        else:
            await self.persistence.mark(live.session_id, MARK_STOPPED)
