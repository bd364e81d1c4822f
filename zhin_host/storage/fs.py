"""FileSystem: the one seam to the operating system, and what is durable after each call.

Every call of storage to the system is one method here, so that a test can fail, stop or count any of them.
The methods raise OSError; the rest of storage turns it into `StorageUnavailable` or `StorageFull` with
`storage_error` before it passes a port.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
import threading
from collections.abc import Callable
from typing import Final

from filelock import FileLock

from zhin_host.errors import StorageFull, StorageUnavailable

if sys.platform != "win32":
    import fcntl

TEMPORARY_PREFIX: Final = ".tmp-"
"""Names of files that are not yet what they will be; swept at start-up, never a session's."""

_ALWAYS: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # O_NONBLOCK: no FIFO in its place holds us
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_REMEDIES: Final = {
    errno.ENOSPC: "free some and it goes on by itself",
    errno.EDQUOT: "raise the quota or free some and it goes on by itself",
    errno.EROFS: "make the file system writable again and it goes on by itself",
    errno.EACCES: "give this user the right to it",
    errno.EPERM: "give this user the right to it",
    errno.EMFILE: "raise the limit of open files (ulimit -n) or host fewer sessions at once",
    errno.ENFILE: "raise the machine's limit of open files",
    errno.ENOENT: "bring the data directory back and it goes on by itself",
    errno.EBADF: "the session was put away meanwhile; ask again",
    errno.ELOOP: "put a regular file in the place of the link",
    errno.EMLINK: "a regular file with one link and no other kind is used; put one in its place",
}


def storage_error(error: OSError, what: str) -> StorageUnavailable:
    """What passes the port instead of an OSError: one sentence that says what failed and what to do.

    Args:
        error: What the system said.
        what: What was tried, as it reads after "Cannot ".
    """
    reason = os.strerror(error.errno) if error.errno else str(error)
    remedy = _REMEDIES.get(error.errno or 0, "see to the disk of the data directory")
    kind = StorageFull if error.errno in _FULL else StorageUnavailable
    return kind(f"Cannot {what}: {reason}; {remedy}.")


class FileSystem:
    """The machine's file system. Paths are absolute or relative to the working directory; all files are 0600.

    Threads: every method may be called from any thread.
    """

    # -- one system call each ------------------------------------------------------------------------------

    def open(self, path: str, flags: int) -> int:
        """A descriptor; no link is followed. A name that it makes is durable after its directory's sync."""
        return os.open(path, flags | _ALWAYS, 0o600)

    def fstat(self, fd: int) -> os.stat_result:
        """What the descriptor is of. Changes nothing."""
        return os.fstat(fd)

    def lstat(self, path: str) -> os.stat_result:
        """What the name is of, links not followed. Changes nothing."""
        return os.lstat(path)

    def close(self, fd: int) -> None:
        """Give the descriptor back. Makes nothing durable."""
        os.close(fd)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """One write, at the end where O_APPEND was given; how many bytes the system took, maybe not all.

        kill -9 keeps them; they survive a power cut after the next `datasync`.
        """
        return os.write(fd, data)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """One write at `offset`, the descriptor without O_APPEND (Linux would append). Durable as `write`."""
        return os.pwrite(fd, data, offset)

    def pread(self, fd: int, size_bytes: int, offset: int) -> bytes:
        """Up to `size_bytes` bytes from `offset`; b"" at the end. Changes nothing."""
        return os.pread(fd, size_bytes, offset)

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Cut the file. Whether the cut survives a power cut is open until the next `datasync`."""
        os.ftruncate(fd, size_bytes)

    def datasync(self, fd: int) -> None:
        """The file's bytes and size, not its name, survive a power cut on return."""
        _flush(fd)

    def fsync(self, fd: int) -> None:
        """As `datasync`; on a directory's descriptor: its names survive a power cut on return."""
        os.fsync(fd)

    def rename(self, source: str, target: str) -> None:
        """`target` is at once and whole what `source` was; durable after its directory's sync."""
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        """The name is gone; for good after its directory's sync."""
        os.unlink(path)

    def names(self, directory: str) -> list[str]:
        """The names in a directory, in no order."""
        return os.listdir(directory)

    def mkdir(self, path: str) -> None:
        """A directory, 0700; its name is durable after its parent's sync."""
        os.mkdir(path, 0o700)

    def chmod(self, path: str, mode: int) -> None:
        """Set the mode of what the name leads to."""
        os.chmod(path, mode)

    def free_bytes(self, directory: str) -> int:
        """Bytes that this user may still write there, as far as the file system says."""
        numbers = os.statvfs(directory)
        return (numbers.f_bfree if os.geteuid() == 0 else numbers.f_bavail) * numbers.f_frsize

    def lock(self, path: str, timeout_s: float) -> Callable[[], None]:
        """Take a file's kernel lock and return what lets it go; the kernel does when the process dies.

        filelock neither truncates nor removes the file, and a forked child does not keep the lock.

        Raises:
            TimeoutError: Another descriptor, of this process or another, still held it after `timeout_s`.
        """
        lock = FileLock(
            path,
            mode=0o600,
            thread_local=False,  # taken on the loop, may be let go elsewhere
            fallback_to_soft=False,  # a marker file outlives its dead holder
            preserve_lock_file=True,
        )
        lock.acquire(timeout=timeout_s)
        return lock.release

    def is_locked(self, path: str) -> bool:
        """Whether somebody holds a file's kernel lock. Asks with a shared one, let go in the same moment.

        Who takes the lock in that very moment tries again within its time.

        Raises:
            OSError: It cannot be found out.
        """
        try:
            fd = self.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            self.close_quietly(fd)
        return False

    # -- made of them --------------------------------------------------------------------------------------

    def open_plain(self, path: str, flags: int) -> int:
        """A descriptor of a regular file with one link. Durable as `open`.

        Raises:
            OSError: EMLINK when it is anything else; it was not read or written.
        """
        fd = self.open(path, flags)
        try:
            facts = self.fstat(fd)
            if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
                raise OSError(errno.EMLINK, "not a regular file with one link", path)
        except OSError:
            self.close_quietly(fd)
            raise
        return fd

    def close_quietly(self, fd: int) -> None:
        """Close where nothing depends on how it ends: what matters was synced, or has failed already."""
        with contextlib.suppress(OSError):
            self.close(fd)

    def write_all(self, fd: int, data: bytes) -> None:
        """Every byte, by more writes where one comes short; after an error any part may be there."""
        done = self.write(fd, data)
        while done < len(data):
            count = self.write(fd, memoryview(data)[done:])
            if count == 0:
                raise OSError(errno.EIO, "the system takes no more bytes")
            done += count

    def pwrite_all(self, fd: int, data: bytes, offset: int) -> None:
        """Every byte at `offset` and after. As `write_all`."""
        done = 0
        while done < len(data):
            count = self.pwrite(fd, memoryview(data)[done:], offset + done)
            if count == 0:
                raise OSError(errno.EIO, "the system takes no more bytes")
            done += count

    def pread_all(self, fd: int, size_bytes: int, offset: int) -> bytes:
        """`size_bytes` bytes from `offset`, fewer only where the file ends."""
        first = self.pread(fd, size_bytes, offset)
        if len(first) == size_bytes or not first:
            return first
        parts, done = [first], len(first)
        while done < size_bytes:
            part = self.pread(fd, size_bytes - done, offset + done)
            if not part:
                break
            parts.append(part)
            done += len(part)
        return b"".join(parts)

    def sync_directory(self, directory: str) -> None:
        """The names in it, made, replaced or removed, survive a power cut on return."""
        fd = self.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.fsync(fd)
        finally:
            self.close_quietly(fd)

    def replace(self, directory: str, name: str, data: bytes, *, is_synced: bool) -> None:
        """The file holds `data`, at once and whole; after an error what it held before.

        Durable after its directory's sync; with `is_synced` no power cut leaves the name without its bytes.
        """
        temporary = os.path.join(directory, TEMPORARY_PREFIX + secrets.token_hex(8))
        fd = self.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                self.write_all(fd, data)
                if is_synced:
                    self.datasync(fd)
            finally:
                self.close_quietly(fd)
            self.rename(temporary, os.path.join(directory, name))
        except OSError:
            self.unlink_quietly(temporary)
            raise

    def unlink_quietly(self, path: str) -> None:
        """Remove a name where one left over does no harm: the sweep at start-up takes it."""
        with contextlib.suppress(OSError):
            self.unlink(path)

    def read_file(self, path: str, limit_bytes: int | None = None) -> bytes:
        """A plain file's bytes, the first `limit_bytes` of them."""
        fd = self.open_plain(path, os.O_RDONLY)
        try:
            size_bytes = self.fstat(fd).st_size
            return self.pread_all(fd, size_bytes if limit_bytes is None else min(size_bytes, limit_bytes), 0)
        finally:
            self.close_quietly(fd)


class Descriptor:
    """A file's descriptor that several threads use, closed when the last one has left.

    A number given back too early may be another file's the moment after.
    """

    def __init__(self, fs: FileSystem, fd: int) -> None:
        self.fd = fd
        self._fs = fs
        self._users = 0
        self.is_closed = False
        self._change = threading.Lock()

    def enter(self) -> int:
        """The number, good until `leave`.

        Raises:
            OSError: EBADF, closed before.
        """
        with self._change:
            if self.is_closed:
                raise OSError(errno.EBADF, "closed")
            self._users += 1
        return self.fd

    def share(self) -> int:
        """As `enter`, for somebody whom a present user lets in: good even if it was closed meanwhile."""
        with self._change:
            if not self._users:
                raise OSError(errno.EBADF, "closed")
            self._users += 1
        return self.fd

    def leave(self) -> None:
        """One user less."""
        with self._change:
            self._users -= 1
            is_last = self.is_closed and self._users == 0
        if is_last:
            self._fs.close_quietly(self.fd)

    def close(self) -> None:
        """No new users; the descriptor goes when the last one leaves. A second call does nothing."""
        with self._change:
            is_last = not self.is_closed and self._users == 0
            self.is_closed = True
        if is_last:
            self._fs.close_quietly(self.fd)


# Where there is no fdatasync (macOS), fsync hands the bytes to a drive that may still hold them in its cache.
_flush: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)
