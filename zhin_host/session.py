"""LiveSession: one session while it is in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from zhin_host import events as ev
from zhin_host.approval import HttpApprovalWaiter
from zhin_host.attempt import Services
from zhin_host.clock import SessionId
from zhin_host.errors import SessionNotFound, StorageUnavailable
from zhin_host.journal import SessionJournal
from zhin_host.ports import SessionLog, SessionPersistence
from zhin_host.snapshot import encode_snapshot
from zhin_host.state import SessionState

_log = logging.getLogger("zhin_host.session")


@dataclass(frozen=True, slots=True)
class Fault:
    """Where a log cannot be read any further; it is readable up to there and takes nothing more.

    Attributes:
        index: Index of the first event that is broken.
        offset: The byte it begins at.
        reason: What is wrong with it.
    """

    index: int
    offset: int
    reason: str


class LiveSession:
    """A session in memory: its journal, its bells, its lock, and what its snapshot holds.

    Attributes:
        lock: Held by every command that changes the session, so that no two of them interleave.
        fault: Where its log is broken, None when it is whole.
        is_marked: Whether its .open file is there.
        used_at_s: When it was last asked for, by the monotonic clock.
    """

    def __init__(
        self,
        state: SessionState,
        log: SessionLog,
        services: Services,
        on_rest: Callable[[LiveSession], None],
        fault: Fault | None = None,
    ) -> None:
        self.session_id: SessionId = state.session_id
        self.log = log
        self.journal = SessionJournal(state, log, services.clock, services.config, services.meters)
        self.waiter = HttpApprovalWaiter()
        self.lock = asyncio.Lock()
        self.fault = fault
        self._on_rest = on_rest
        self.journal.feed.is_closed = fault is not None  # its streams end where it is broken
        self.is_marked = False
        self.used_at_s = services.clock.monotonic_s()
        self._snapshot_bytes_min = services.config.snapshot_bytes_min
        self._snapshot_offset = 0  # how far of the log the last snapshot holds
        self._snapshot_bytes = 0
        self._writing: asyncio.Task[None] | None = None

    @property
    def state(self) -> SessionState:
        return self.journal.state

    @property
    def is_done(self) -> bool:
        """Whether no turn is open and none waits."""
        return self.state.turn is None and not self.state.queue

    @property
    def is_unused(self) -> bool:
        """Whether nobody needs it in memory now: no command, no reader, no snapshot under way."""
        return not self.lock.locked() and not self.journal.feed.has_readers and self._writing is None

    def known_fault(self) -> Fault | None:
        """Where the log is broken, what a reader has met meanwhile included; None while nobody knows of it."""
        if self.journal.feed.broken_at is not None:
            self.found_broken(*self.journal.feed.broken_at)
        return self.fault

    def found_broken(self, index: int, offset: int) -> None:
        """An audit or a reader met a broken line, behind which nothing can be trusted: nothing more is written."""
        if self.fault is None:
            self.fault = Fault(index, offset, "not a whole event line, or its chain is broken")
            self.journal.feed.close()

    async def check_writable(self) -> None:
        """Make sure that a command may write.

        Raises:
            StorageUnavailable: The log is broken, or storage fails.
        """
        fault = self.known_fault()
        if fault is not None:
            raise StorageUnavailable(
                f"The log of session {self.session_id} is broken at event {fault.index} (byte {fault.offset}: "
                f"{fault.reason}); it is readable up to there. Audit it, then delete it or restore it from a copy.",
                fault.index,
            )
        await self.journal.usable()
        self.journal.write(())  # what a turn has queued comes before what a command decides

    def at_rest(self) -> None:
        """Tell whoever keeps the sessions that a turn of it has ended."""
        self._on_rest(self)

    def close_request(self, request_id: str, answer: ev.Draft, *, is_live: bool = True) -> None:
        """Append an answer and ring whoever waits for it.

        Args:
            request_id: The open request.
            answer: input.completed or authorization.completed.
            is_live: Whether an attempt waits for it; if none does, the next one is counted with the last answer.

        Raises:
            StorageUnavailable: It was not written.
        """
        self.journal.write([answer], is_live=is_live)
        self.waiter.ring(request_id, answer.data)

    def expired(self, now_ms: int) -> list[str]:
        """Open requests whose time is over, by the clock and not by the last event's timestamp.

        None while the turn is being cancelled: its end closes them.
        """
        if self.state.turn is not None and self.state.turn.is_cancelling:
            return []
        return [
            request_id
            for request_id, request in self.state.pending.items()
            if request.expires_at_ms is not None and request.expires_at_ms <= now_ms
        ]

    @property
    def earliest_expiry_ms(self) -> int:
        """When the first of its open requests expires, milliseconds since the epoch; 0: none does."""
        times = [
            request.expires_at_ms
            for request in self.state.pending.values()
            if request.expires_at_ms is not None
        ]
        return min(times, default=0)

    # -- the snapshot ----------------------------------------------------------------------------------------------

    def loaded_snapshot(self, size_bytes: int, offset: int) -> None:
        """Say what the snapshot on disk holds, so that the next is written only when it is worth it."""
        self._snapshot_bytes, self._snapshot_offset = size_bytes, offset

    @property
    def is_snapshot_due(self) -> bool:
        """Whether the log grew by more than the snapshot costs, so that all snapshots together stay linear."""
        grown = self.state.offset - self._snapshot_offset
        return self._writing is None and grown > max(self._snapshot_bytes_min, self._snapshot_bytes)

    def save_snapshot_soon(self, persistence: SessionPersistence) -> None:
        """Write a snapshot in the background, of the state as it is now; none is being written."""
        name = f"snapshot {self.session_id}"
        self._writing = asyncio.get_running_loop().create_task(self._save(persistence), name=name)

    async def save_snapshot(self, persistence: SessionPersistence) -> None:
        """Write a snapshot of the state as it is now, unless the one on disk is of it already."""
        await self.snapshot_written()
        if self.fault is None and self._snapshot_offset != self.state.offset:
            self.save_snapshot_soon(persistence)
            await self.snapshot_written()

    async def snapshot_written(self) -> None:
        """Wait for the snapshot that is being written, if one is."""
        while self._writing is not None:
            await asyncio.shield(self._writing)

    async def _save(self, persistence: SessionPersistence) -> None:
        offset, raw = self.state.offset, encode_snapshot(self.state)  # encoded on the loop, of one moment
        try:
            await self.journal.sync()  # only of what is synced (contract section 3)
            await persistence.write_snapshot(self.session_id, raw)
        except (StorageUnavailable, SessionNotFound) as error:  # the second: somebody removed its log
            _log.warning("no snapshot of session %s: %s; its log has everything", self.session_id, error)
        else:
            self._snapshot_offset, self._snapshot_bytes = offset, len(raw)
        finally:
            self._writing = None
