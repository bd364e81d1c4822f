"""Mending: what a session's files need so that they keep their promises again, as far as the contract allows it.

That is (contract sections 3 and 4): a last line whole but for its newline gets it; anything less goes to .torn; a
snapshot that the log does not bear out is removed, since it is a cache; modes are set right; a mark that an open turn
lacks is made, one without a log goes. A line that is broken in the middle is never cut or skipped. What a crash left
unsaid at the end of a log is appended by the host when it starts, and by nobody else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from zhin_host.audit import audit_session
from zhin_host.clock import SessionId
from zhin_host.errors import SessionNotFound
from zhin_host.ports import MARK_RUNNING
from zhin_host.storage import names
from zhin_host.storage.fs import FileSystem, storage_error
from zhin_host.storage.lines import is_whole, tail_of
from zhin_host.storage.log import open_mended

_SUFFIXES: Final = (names.LOG, names.SNAPSHOT, names.MARK, names.TORN)
_BLOCK_BYTES: Final = 1 << 20
_MENDABLE: Final = ("torn last line", "has mode", "the snapshot", "no .open file", "no whole first line")
_BROKEN: Final = ("no whole event line", "the chain is broken", "its index is")
COPY_SUFFIX: Final = ".before"
"""Of a copy, so that nothing takes it for a session's file."""


def stays(fault: str) -> bool:
    """Whether what the audit says is nothing that is mended here."""
    return not any(words in fault for words in _MENDABLE)


def is_broken(fault: str) -> bool:
    """Whether the log itself is broken before its end."""
    return any(words in fault for words in _BROKEN)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to be mended: what is done, as a person reads it, and the doing of it."""

    told: str
    carry_out: Callable[[], None]


class Mender:
    """Looks at the sessions of a directory and mends them. To mend, the caller holds the directory.

    Args:
        directory: The data directory.
        line_bytes_max: The setting under which the logs were written.
    """

    def __init__(self, directory: str, *, line_bytes_max: int) -> None:
        self._directory = directory
        self._line_bytes_max = line_bytes_max
        self._fs = FileSystem()

    def session_ids(self) -> list[SessionId]:
        """Every session of which there is a file that is more than what a recovery kept aside."""
        try:
            kinds = names.sessions_of(self._fs.names(self._directory), names.LOG, names.SNAPSHOT, names.MARK)
        except OSError as error:
            raise storage_error(error, "list the data directory") from error
        return sorted(set().union(*kinds))

    def faults(self, session_id: SessionId) -> list[str]:
        """What the audit says of it; nothing of a session that is not there any more.

        Raises:
            StorageUnavailable: It cannot be read.
        """
        try:
            verdict = audit_session(self._directory, session_id, line_bytes_max=self._line_bytes_max)
        except SessionNotFound:
            return []
        return [f"event {row.index}, byte {row.byte}: {row.message}" for row in verdict.faults]

    def steps(self, session_id: SessionId) -> Iterator[Step]:
        """What can be mended of it, in the order in which it must be; each is found when those before it are done.

        Raises:
            StorageUnavailable: Its files cannot be read.
        """
        yield from self._modes(session_id)
        if os.path.lexists(self._path(session_id, names.LOG)):
            yield from self._tail(session_id)
        if not os.path.lexists(self._path(session_id, names.LOG)):
            yield from self._orphans(session_id)
            return
        faults = self.faults(session_id)
        if any(map(is_broken, faults)):
            return  # what such a log says is not known: a snapshot from before may be the better witness
        yield from self._snapshot(session_id, faults)
        yield from self._mark(session_id, faults)

    def copy(self, session_id: SessionId, into: Path) -> None:
        """Copy the session's files; they survive a power cut on return.

        Raises:
            StorageUnavailable: One cannot be copied; nothing was mended yet.
        """
        try:
            if not into.exists():
                self._fs.mkdir(str(into))
                self._fs.sync_directory(self._directory)
            for suffix in _SUFFIXES:
                self._copy_file(self._path(session_id, suffix), into / f"{session_id}{suffix}{COPY_SUFFIX}")
            self._fs.sync_directory(str(into))
        except OSError as error:
            raise storage_error(error, f"copy the files of {session_id} to {into}") from error

    def _path(self, session_id: SessionId, suffix: str) -> Path:
        return Path(self._directory, names.checked(session_id) + suffix)

    # -- what may be wrong -------------------------------------------------------------------------------------------

    def _modes(self, session_id: SessionId) -> Iterator[Step]:
        for suffix in _SUFFIXES:
            path = self._path(session_id, suffix)
            try:
                facts = path.lstat()
            except FileNotFoundError:
                continue
            mode = stat.S_IMODE(facts.st_mode)
            if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1 and mode & 0o077:
                yield Step(f"{path.name} gets mode 0600 in place of {mode:04o}", partial(self._tighten, path))

    def _orphans(self, session_id: SessionId) -> Iterator[Step]:
        for suffix, what in ((names.SNAPSHOT, "snapshot"), (names.MARK, "mark")):
            path = self._path(session_id, suffix)
            if os.path.lexists(path):
                yield Step(f"the {what} without a log is removed", partial(self._remove, path))

    def _tail(self, session_id: SessionId) -> Iterator[Step]:
        path = self._path(session_id, names.LOG)
        try:
            fd = self._fs.open_plain(str(path), os.O_RDONLY)
            try:
                tail = tail_of(
                    lambda offset, count: self._fs.pread_all(fd, count, offset),
                    self._fs.fstat(fd).st_size,
                    session_id,
                )
            finally:
                self._fs.close_quietly(fd)
        except OSError as error:
            raise storage_error(error, f"read the log of {session_id}") from error
        if is_whole(tail.rest, tail.sum):
            told = "the last line, whole but for its newline, gets it"
        elif tail.end == 0:
            told = f"its {len(tail.rest)} bytes, no whole first line, go to .torn: no session was begun"
        elif tail.rest:
            told = f"{len(tail.rest)} bytes of a torn last line go to .torn"
        else:
            return
        yield Step(told, partial(self._mend, session_id))

    def _snapshot(self, session_id: SessionId, faults: list[str]) -> Iterator[Step]:
        path = self._path(session_id, names.SNAPSHOT)
        if path.is_file() and any("the snapshot" in fault for fault in faults):
            yield Step(
                "the snapshot, which the log does not bear out, is removed", partial(self._remove, path)
            )

    def _mark(self, session_id: SessionId, faults: list[str]) -> Iterator[Step]:
        if any("there is no .open file" in fault for fault in faults):
            yield Step(
                "the mark is made by which a host finds its open turn", partial(self._make_mark, session_id)
            )

    # -- mending it --------------------------------------------------------------------------------------------------

    def _mend(self, session_id: SessionId) -> None:
        """As the host's own recovery does it."""
        log, torn = self._path(session_id, names.LOG), self._path(session_id, names.TORN)
        mended = open_mended(session_id, str(log), str(torn), fs=self._fs, crew=None)
        if mended is not None:
            mended.close()
            self._sync(log)

    def _make_mark(self, session_id: SessionId) -> None:
        name = self._path(session_id, names.MARK).name
        self._fs.replace(self._directory, name, MARK_RUNNING.encode("ascii"), is_synced=True)
        self._fs.sync_directory(self._directory)

    def _tighten(self, path: Path) -> None:
        self._fs.chmod(str(path), 0o600)

    def _remove(self, path: Path) -> None:
        self._fs.unlink(str(path))
        self._fs.sync_directory(self._directory)

    def _sync(self, path: Path) -> None:
        fd = self._fs.open_plain(str(path), os.O_RDONLY)
        try:
            self._fs.fsync(fd)
        finally:
            self._fs.close_quietly(fd)

    def _copy_file(self, source: Path, target: Path) -> None:
        """A plain file, byte for byte; what is none is not followed and not mended either."""
        try:
            fd = self._fs.open_plain(str(source), os.O_RDONLY)
        except OSError:
            return
        try:
            copied = self._fs.open(str(target), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                offset = 0
                while block := self._fs.pread_all(fd, _BLOCK_BYTES, offset):
                    self._fs.write_all(copied, block)
                    offset += len(block)
                self._fs.datasync(copied)
            finally:
                self._fs.close_quietly(copied)
        finally:
            self._fs.close_quietly(fd)
