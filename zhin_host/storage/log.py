"""SessionEventLog: one session's log in a file, whole lines, appended and never changed."""

from __future__ import annotations

import logging
import os
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, NamedTuple

from zhin_host.clock import SessionId
from zhin_host.errors import SessionNotFound, StorageUnavailable
from zhin_host.events import chain, chain_start, payload_of
from zhin_host.storage.crew import SyncCrew
from zhin_host.storage.fs import Descriptor, FileSystem, storage_error
from zhin_host.storage.lines import BrokenLine, Tail, find_line, is_whole, last_sum, newline_before, tail_of
from zhin_host.storage.sharing import SharedRun

_logger = logging.getLogger("zhin_host.storage")
_BLOCK_BYTES: Final = 1 << 20


class Mark(NamedTuple):
    """A place in a log: so many bytes, and the chain's link there."""

    size_bytes: int
    sum: bytes


class SessionEventLog:
    """An open log: one descriptor, the size it should have, and how much of it is known to be on the disk.

    `append`, `read` and `offset_of` are plain calls; `sync` goes through the crew. Everything but `read` is
    called from one thread.
    """

    def __init__(
        self, session_id: SessionId, path: str, fd: int, end: Mark, *, fs: FileSystem, crew: SyncCrew | None
    ) -> None:
        """Use `create`, `open_mended` or `peek`.

        Args:
            session_id: Whose log it is.
            path: The file, for a second descriptor.
            fd: Its descriptor, which is the log's from now on.
            end: The last whole line's end.
            fs: The operating system.
            crew: None: sync() returns at once (--fsync never, or a log that is only read).
        """
        self.session_id = session_id
        self.path = path
        self._file = Descriptor(fs, fd)
        self._fs = fs
        self._crew = crew
        self._end = end
        self._is_dirty = False  # whether bytes after _end may be in the file that no caller was told of
        # What an earlier process synced is not known: after a failed sync, begin at the first byte.
        self._synced = Mark(0, chain_start(session_id))
        self._is_sync_broken = False
        self._shared_sync = SharedRun(f"sync {session_id}")

    @classmethod
    def create(
        cls, session_id: SessionId, path: str, *, fs: FileSystem, crew: SyncCrew | None
    ) -> SessionEventLog:
        """A new, empty log; its name is durable after its directory's sync.

        Raises:
            StorageUnavailable: It cannot be made, or is there already.
        """
        try:
            fd = fs.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            raise StorageUnavailable(
                f"Session {session_id} is there already; make it under a new id."
            ) from None
        except OSError as error:
            raise storage_error(error, f"make the log of {session_id}") from error
        return cls(session_id, path, fd, Mark(0, chain_start(session_id)), fs=fs, crew=crew)

    @property
    def size_bytes(self) -> int:
        return self._end.size_bytes

    @property
    def last_sum(self) -> bytes:
        """The chain's link at the end, as the file says it."""
        return self._end.sum

    # -- append --------------------------------------------------------------------------------------------

    def append(self, lines: bytes, *, expected_bytes: int) -> None:
        end = self._end
        if expected_bytes != end.size_bytes:
            raise StorageUnavailable(
                f"The log of {self.session_id} has {end.size_bytes} bytes and not {expected_bytes}; "
                "read the session again."
            )
        self._check_open()
        if self._is_dirty:
            self._cut_back()
        self._check_alone()
        self._is_dirty = True
        try:
            self._fs.write_all(self._file.fd, lines)
        except OSError as error:
            self._try_to_cut_back()
            raise storage_error(error, f"append to the log of {self.session_id}") from error
        self._end = Mark(end.size_bytes + len(lines), last_sum(lines))
        self._is_dirty = False

    def _check_open(self) -> None:
        if self._file.is_closed:
            raise StorageUnavailable(f"The log of {self.session_id} was put away meanwhile; ask again.")

    def _check_alone(self) -> None:
        """Two hosts would tell two stories: the one that finds the file changed stops (scenario E4)."""
        try:
            facts = self._fs.fstat(self._file.fd)
        except OSError as error:
            raise storage_error(error, f"append to the log of {self.session_id}") from error
        if facts.st_nlink == 0:
            raise StorageUnavailable(
                f"The log of {self.session_id} was removed; restart with the data directory back."
            )
        if facts.st_size != self._end.size_bytes:
            raise StorageUnavailable(
                f"The log of {self.session_id} has {facts.st_size} bytes and not {self._end.size_bytes}: "
                "stop what else writes to the data directory and restart."
            )

    def _cut_back(self) -> None:
        """Cut what a failed append left. Until that has succeeded, nothing is appended."""
        try:
            self._fs.truncate(self._file.fd, self._end.size_bytes)
        except OSError as error:
            raise storage_error(error, f"cut a half-written line off the log of {self.session_id}") from error
        self._is_dirty = False

    def _try_to_cut_back(self) -> None:
        try:
            self._cut_back()
        except StorageUnavailable as error:
            _logger.warning("%s; the next append cuts first", error)

    # -- read ----------------------------------------------------------------------------------------------

    def read(self, offset: int, limit_bytes: int) -> bytes:
        try:
            return self._pread(offset, limit_bytes)
        except OSError as error:
            raise storage_error(error, f"read the log of {self.session_id}") from error

    def offset_of(self, index: int) -> int:
        try:
            return find_line(self._pread, self.size_bytes, index)
        except OSError as error:
            raise storage_error(error, f"read the log of {self.session_id}") from error
        except BrokenLine as error:
            raise StorageUnavailable(
                f"The log of {self.session_id} is broken: {error}; audit the session to see where."
            ) from error

    def _pread(self, offset: int, size_bytes: int) -> bytes:
        """Bytes of whole lines only: what a failed append left behind the end is nobody's to read."""
        left = min(size_bytes, self._end.size_bytes - offset)
        if left <= 0:
            return b""
        fd = self._file.enter()
        try:
            return self._fs.pread_all(fd, left, offset)
        finally:
            self._file.leave()

    # -- sync ----------------------------------------------------------------------------------------------

    async def sync(self) -> None:
        if self._crew is None or self._synced.size_bytes == self._end.size_bytes:
            return
        self._check_open()
        self._file.enter()  # for as long as this caller waits: the log may be closed before its run begins
        try:
            await self._shared_sync(self._begin_sync)
        finally:
            self._file.leave()

    def _begin_sync(self) -> Coroutine[Any, Any, None]:
        """The run holds the descriptor for itself: all its callers may be cancelled."""
        return self._sync_now(self._file.share())

    async def _sync_now(self, fd: int) -> None:
        """One at a time: after a failed sync the next one's success proves nothing, so the bytes are written again."""
        end, crew = self._end, self._crew
        try:
            if crew is None or self._synced.size_bytes == end.size_bytes:  # the run before has done it
                return
            if self._is_sync_broken:
                await crew.run(partial(self._write_again, end))
            else:
                self._is_sync_broken = True  # until it has ended well
                await crew.datasync(fd)
        except OSError as error:
            raise storage_error(error, f"sync the log of {self.session_id}") from error
        finally:
            self._file.leave()
        self._is_sync_broken = False
        self._synced = end

    def _write_again(self, end: Mark) -> None:
        """In a thread of the crew: write what came since the last good sync once more, where it stands, and sync that.

        The failed sync may have dropped the pages, so each line's chain is checked before it is written.
        """
        fd = self._fs.open_plain(self.path, os.O_WRONLY)
        try:
            if not os.path.samestat(self._fs.fstat(fd), self._fs.fstat(self._file.fd)):
                raise StorageUnavailable(
                    f"The log of {self.session_id} is another file now; restart the host."
                )
            at = self._synced
            while at.size_bytes < end.size_bytes:
                block = self._whole_lines(at.size_bytes, end.size_bytes)
                link = self._checked(block, at.sum)
                self._fs.pwrite_all(fd, block, at.size_bytes)
                at = Mark(at.size_bytes + len(block), link)
            if at != end:
                raise StorageUnavailable(self._lost())
            self._fs.datasync(fd)
        finally:
            self._fs.close_quietly(fd)

    def _whole_lines(self, start: int, end: int) -> bytes:
        """A MiB of whole lines, or one longer line."""
        size_bytes = _BLOCK_BYTES
        while True:
            block = self._fs.pread_all(self._file.fd, min(size_bytes, end - start), start)
            whole = block.rfind(b"\n") + 1
            if whole:
                return block[:whole]
            if size_bytes >= end - start:
                raise StorageUnavailable(self._lost())
            size_bytes *= 2

    def _checked(self, block: bytes, link: bytes) -> bytes:
        for line in block[:-1].split(b"\n"):
            link = chain(link, payload_of(line))
            if not line.endswith(b',"sum":"%b"}' % link):
                raise StorageUnavailable(self._lost())
        return link

    def _lost(self) -> str:
        return (
            f"A failed sync lost bytes of the log of {self.session_id} that were written after byte "
            f"{self._synced.size_bytes}; see to the disk, then restart the host and audit the session."
        )

    # -- end -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._file.close()


def open_mended(
    session_id: SessionId, path: str, torn_path: str, *, fs: FileSystem, crew: SyncCrew | None
) -> SessionEventLog | None:
    """The log with its tail mended (contract section 4); None: it had no whole first line and is removed.

    A last line whole but for its newline gets it; anything less goes to the .torn file. Complete lines are
    not looked at: the fold finds a broken one.

    Raises:
        SessionNotFound: There is no such file.
        StorageUnavailable: It cannot be opened or mended; nothing was cut.
    """
    fd = _open(session_id, path, os.O_RDWR | os.O_APPEND, fs)
    try:
        size_bytes = fs.fstat(fd).st_size
        tail = tail_of(lambda offset, count: fs.pread_all(fd, count, offset), size_bytes, session_id)
        end = _mend(session_id, fd, tail, fs) if is_whole(tail.rest, tail.sum) else Mark(tail.end, tail.sum)
        if end.size_bytes < size_bytes:
            move_to_torn(session_id, torn_path, tail.rest, fs)
            fs.truncate(fd, end.size_bytes)
        if end.size_bytes == 0:
            fs.unlink(path)
            fs.close_quietly(fd)
            return None
    except OSError as error:
        fs.close_quietly(fd)
        raise storage_error(error, f"mend the log of {session_id}") from error
    return SessionEventLog(session_id, path, fd, end, fs=fs, crew=crew)


def peek(session_id: SessionId, path: str, *, fs: FileSystem) -> SessionEventLog:
    """The log as it lies there, for reading: up to its last newline, nothing mended, nothing written.

    Raises:
        SessionNotFound: There is no such file.
        StorageUnavailable: It cannot be opened or read.
    """
    fd = _open(session_id, path, os.O_RDONLY, fs)
    try:
        end = newline_before(lambda offset, count: fs.pread_all(fd, count, offset), fs.fstat(fd).st_size)
    except OSError as error:
        fs.close_quietly(fd)
        raise storage_error(error, f"read the log of {session_id}") from error
    return SessionEventLog(session_id, path, fd, Mark(end, b""), fs=fs, crew=None)


def move_to_torn(session_id: SessionId, torn_path: str, cut: bytes, fs: FileSystem) -> None:
    """Append bytes to the .torn file; they and its name survive a power cut on return, so the log may be cut.

    Raises:
        OSError: They may not be there; the log must stay as it is.
    """
    fd = fs.open_plain(torn_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        fs.write_all(fd, cut)
        fs.datasync(fd)
    finally:
        fs.close_quietly(fd)
    fs.sync_directory(os.path.dirname(torn_path))
    _logger.warning("session %s: %d bytes of a torn last line moved to %s", session_id, len(cut), torn_path)


def _open(session_id: SessionId, path: str, flags: int, fs: FileSystem) -> int:
    try:
        return fs.open_plain(path, flags)
    except FileNotFoundError as error:
        try:
            fs.lstat(os.path.dirname(path))
        except OSError:  # with the whole directory gone nobody may be told that there is no such session
            raise storage_error(error, f"open the log of {session_id}") from error
        raise SessionNotFound(session_id) from None
    except OSError as error:
        raise storage_error(error, f"open the log of {session_id}") from error


def _mend(session_id: SessionId, fd: int, tail: Tail, fs: FileSystem) -> Mark:
    fs.write_all(fd, b"\n")
    _logger.warning("session %s: its last line lacked its newline, 1 byte added", session_id)
    return Mark(tail.end + len(tail.rest) + 1, last_sum(tail.rest + b"\n"))
