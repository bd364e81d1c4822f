"""Logs and persistence in memory whose appends and syncs fail or wait when the test says so."""

from __future__ import annotations

import asyncio

from tests.builders import session_id_of
from zhin_host.clock import SessionId
from zhin_host.errors import StorageUnavailable
from zhin_host.ports import SessionLog
from zhin_host.storage.memory import MemoryLog, MemorySessionPersistence


class ScriptedLog(MemoryLog):
    """Implements ports.SessionLog.

    Attributes:
        batches: What each append that succeeded was given.
        tried: How many appends there were, failed ones included.
        append_error: What every append raises, until it is None again.
        sync_error: What every sync raises at its end, until it is None again.
        syncs: How many syncs have ended.
        synced_bytes: How much of the log the last good sync has made safe.
    """

    def __init__(self, session_id: SessionId | None = None) -> None:
        super().__init__(session_id or session_id_of(1), bytearray())
        self.batches: list[bytes] = []
        self.tried = 0
        self.append_error: StorageUnavailable | None = None
        self.sync_error: StorageUnavailable | None = None
        self.syncs = 0
        self.synced_bytes = 0
        self._held: list[asyncio.Future[None]] = []
        self._is_holding = False

    def append(self, lines: bytes, *, expected_bytes: int) -> None:
        self.tried += 1
        if self.append_error is not None:
            raise self.append_error
        super().append(lines, expected_bytes=expected_bytes)
        self.batches.append(lines)

    async def sync(self) -> None:
        size_bytes = self.size_bytes
        if self._is_holding:
            held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._held.append(held)
            await held
        self.syncs += 1
        if self.sync_error is not None:
            raise self.sync_error
        self.synced_bytes = size_bytes

    # -- what the test does ----------------------------------------------------------------------------------

    def hold_syncs(self) -> None:
        """Let no sync end until it is let go."""
        self._is_holding = True

    @property
    def syncs_waiting(self) -> int:
        return sum(not held.done() for held in self._held)

    def let_go(self, at: int = 0, error: StorageUnavailable | None = None) -> None:
        """Let one of the waiting syncs end, the oldest by default."""
        held = [held for held in self._held if not held.done()][at]
        if error is None:
            held.set_result(None)
        else:
            held.set_exception(error)

    def let_all_go(self) -> None:
        """Hold nothing any more."""
        self._is_holding = False
        for held in self._held:
            if not held.done():
                held.set_result(None)


class UnsteadyPersistence(MemorySessionPersistence):
    """Sessions in memory whose storage fails while the test says so.

    Attributes:
        append_error: What every append raises, until it is None again.
        sync_error: What every sync raises, until it is None again.
        mark_error: What every mark raises, until it is None again.
        snapshot_error: What every writing of a snapshot raises, until it is None again.
        delete_error: What every deletion raises, until it is None again.
        snapshots: How many snapshots were written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.append_error: StorageUnavailable | None = None
        self.sync_error: StorageUnavailable | None = None
        self.mark_error: StorageUnavailable | None = None
        self.snapshot_error: StorageUnavailable | None = None
        self.delete_error: StorageUnavailable | None = None
        self.snapshots = 0
        self.may_sync = asyncio.Event()
        self.may_sync.set()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._may_create = asyncio.Event()
        self._may_create.set()

    def hold_syncs(self) -> None:
        """Let no sync end until they are let go."""
        self.may_sync.clear()

    def let_syncs_go(self) -> None:
        self.may_sync.set()

    def hold_snapshots(self) -> None:
        """Let no snapshot be written until they are let go."""
        self._may_write.clear()

    def let_snapshots_go(self) -> None:
        self._may_write.set()

    def hold_creation(self) -> None:
        """Let no log be made until they are let go."""
        self._may_create.clear()

    def let_creation_go(self) -> None:
        self._may_create.set()

    async def create_log(self, session_id: SessionId, instead_of: SessionId | None = None) -> SessionLog:
        await self._may_create.wait()
        await super().create_log(session_id, instead_of)
        return _UnsteadyLog(self, session_id, self._content(session_id))

    def open_log(self, session_id: SessionId) -> SessionLog:
        super().open_log(session_id)
        return _UnsteadyLog(self, session_id, self._content(session_id))

    async def mark(self, session_id: SessionId, text: str) -> None:
        if self.mark_error is not None:
            raise self.mark_error
        await super().mark(session_id, text)

    async def delete(self, session_id: SessionId) -> None:
        if self.delete_error is not None:
            raise self.delete_error
        await super().delete(session_id)

    async def write_snapshot(self, session_id: SessionId, snapshot: bytes) -> None:
        await self._may_write.wait()
        if self.snapshot_error is not None:
            raise self.snapshot_error
        await super().write_snapshot(session_id, snapshot)
        self.snapshots += 1


class _UnsteadyLog(MemoryLog):
    def __init__(self, owner: UnsteadyPersistence, session_id: SessionId, content: bytearray) -> None:
        super().__init__(session_id, content)
        self._owner = owner

    def append(self, lines: bytes, *, expected_bytes: int) -> None:
        if self._owner.append_error is not None:
            raise self._owner.append_error
        super().append(lines, expected_bytes=expected_bytes)

    async def sync(self) -> None:
        await super().sync()
        await self._owner.may_sync.wait()
        if self._owner.sync_error is not None:
            raise self._owner.sync_error
