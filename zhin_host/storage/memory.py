"""MemorySessionPersistence: the persistence contract in memory: the default without a data directory."""

from __future__ import annotations

from collections.abc import Iterable

from zhin_host.clock import SessionId
from zhin_host.errors import SessionNotFound, StorageUnavailable
from zhin_host.ports import MARK_RUNNING, SessionLog
from zhin_host.storage import names
from zhin_host.storage.lines import BrokenLine, find_line


class MemoryLog:
    """One session's lines. Opened again, it is the same bytes; closed, it only refuses to be used."""

    def __init__(self, session_id: SessionId, content: bytearray, *, is_writable: bool = True) -> None:
        self.session_id = session_id
        self._content = content
        self._size_bytes = None if is_writable else len(content)
        self._is_closed = False

    @property
    def size_bytes(self) -> int:
        return len(self._content) if self._size_bytes is None else self._size_bytes

    def append(self, lines: bytes, *, expected_bytes: int) -> None:
        self._check_open()
        if self._size_bytes is not None:
            raise StorageUnavailable(
                f"The log of {self.session_id} is open for reading only; open it to append."
            )
        if expected_bytes != len(self._content):
            raise StorageUnavailable(
                f"The log of {self.session_id} has {len(self._content)} bytes and not {expected_bytes} as "
                "expected; read the session again."
            )
        self._content += lines

    def read(self, offset: int, limit_bytes: int) -> bytes:
        self._check_open()
        return bytes(self._content[offset : min(offset + limit_bytes, self.size_bytes)])

    def offset_of(self, index: int) -> int:
        try:
            return find_line(self.read, self.size_bytes, index)
        except BrokenLine as error:
            raise StorageUnavailable(
                f"The log of {self.session_id} is broken: {error}; audit the session to see where."
            ) from error

    async def sync(self) -> None:
        self._check_open()

    def close(self) -> None:
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageUnavailable(f"The log of {self.session_id} was put away meanwhile; ask again.")


class MemorySessionPersistence:
    """Sessions that last as long as this object; implements ports.SessionPersistence.

    `stop` forgets nothing, so a test may start another host on the same sessions.
    """

    def __init__(self) -> None:
        self._logs: dict[SessionId, bytearray] = {}
        self._snapshots: dict[SessionId, bytes] = {}
        self._marks: dict[SessionId, str] = {}

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def check_writable(self) -> None:
        pass

    def session_ids(self) -> list[SessionId]:
        return sorted(self._logs)

    def marks(self) -> dict[SessionId, str]:
        return dict(sorted(self._marks.items()))

    def last_written_ms(self, session_id: SessionId) -> int:  # noqa: ARG002 - nobody wrote down when
        return 0

    async def create_log(self, session_id: SessionId, instead_of: SessionId | None = None) -> SessionLog:
        names.checked(session_id)
        if session_id in self._logs:
            raise StorageUnavailable(f"Session {session_id} is there already; make it under a new id.")
        content = self._logs[session_id] = bytearray()
        self._marks[session_id] = MARK_RUNNING
        if instead_of is not None:
            self._marks.pop(instead_of, None)
        return MemoryLog(session_id, content)

    def open_log(self, session_id: SessionId) -> SessionLog:
        content = self._content(session_id)
        if not content:  # no whole first line, as in a file
            self._forget(session_id)
            raise SessionNotFound(session_id)
        return MemoryLog(session_id, content)

    def peek_log(self, session_id: SessionId) -> SessionLog:
        return MemoryLog(session_id, self._content(session_id), is_writable=False)

    def discard_log(self, log: SessionLog) -> None:
        log.close()
        self._forget(log.session_id)

    def read_snapshot(self, session_id: SessionId) -> bytes | None:
        return self._snapshots.get(session_id)

    async def write_snapshot(self, session_id: SessionId, snapshot: bytes) -> None:
        self._content(session_id)
        self._snapshots[session_id] = snapshot

    async def mark(self, session_id: SessionId, text: str) -> None:
        names.checked(session_id)
        self._marks[session_id] = text

    def unmark(self, session_ids: Iterable[SessionId]) -> None:
        for session_id in session_ids:
            self._marks.pop(session_id, None)

    async def delete(self, session_id: SessionId) -> None:
        names.checked(session_id)
        self._forget(session_id)

    def _content(self, session_id: SessionId) -> bytearray:
        try:
            return self._logs[session_id]
        except KeyError:
            raise SessionNotFound(session_id) from None

    def _forget(self, session_id: SessionId) -> None:
        self._logs.pop(session_id, None)
        self._snapshots.pop(session_id, None)
        self._marks.pop(session_id, None)
