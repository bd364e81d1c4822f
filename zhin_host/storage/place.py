"""Place: a data directory taken by one host: made ready, checked, locked, swept (contract.md section 3)."""

from __future__ import annotations

import datetime as dt
import logging
import os
import secrets
import socket
import stat
from collections.abc import Callable
from typing import Final

import orjson

from zhin_host.errors import DirectoryInUse, StartupError, StorageFull, StorageUnavailable
from zhin_host.storage.fs import TEMPORARY_PREFIX, FileSystem, storage_error
from zhin_host.storage.names import is_ours

_logger = logging.getLogger("zhin_host.storage")
LOCK_NAME: Final = ".lock"
HOLDER_NAME: Final = ".holder"
_LOCK_TIMEOUT_S: Final = 1.0  # a host that is just stopping gets this long; a dead one's lock is free at once
_HOLDER_BYTES_MAX: Final = 4096
_PROBE: Final = b"\0" * 4096


class Place:
    """A directory and, between `take` and `let_go`, its lock."""

    def __init__(self, directory: str, fs: FileSystem) -> None:
        self.directory = directory
        self._fs = fs
        self._unlock: Callable[[], None] | None = None

    def take(self) -> list[str]:
        """Make the directory, check it, lock it, say who holds it, sweep temporary files.

        Returns:
            The names in it.

        Raises:
            StartupError: It cannot be used; the sentence names path, user and remedy.
            DirectoryInUse: Another host holds it, or this process does already.
        """
        try:
            self._make()
        except OSError as error:
            raise StartupError(self._refusal(error)) from error
        mode = self.check()
        self._lock()
        try:
            if mode & 0o077:
                self._fs.chmod(self.directory, 0o700)
                _logger.warning("%s had mode %03o and has 700 now", self.directory, mode)
            self._fs.replace(self.directory, HOLDER_NAME, _holder(), is_synced=False)
            self.check_writable()
            return self._sweep()
        except (OSError, StorageUnavailable) as error:
            self.let_go()
            raise StartupError(self._refusal(error)) from error
        except BaseException:
            self.let_go()
            raise

    def check(self) -> int:
        """See whether it may be taken, and change nothing. A wider mode than 0700 may where all in it is ours.

        Returns:
            Its mode.

        Raises:
            StartupError: As `take`.
        """
        try:
            facts = self._fs.lstat(self.directory)
            if not stat.S_ISDIR(facts.st_mode):
                raise StartupError(f"{self.directory} is no directory; name another with --data-dir.")
            user = os.geteuid()
            if user not in (0, facts.st_uid):
                raise StartupError(
                    f"{self.directory} belongs to uid {facts.st_uid} and this host runs as uid {user}; "
                    f"run it as that user, `chown {user}` the directory, or name a new one with --data-dir."
                )
            mode = stat.S_IMODE(facts.st_mode)
            names = self._fs.names(self.directory) if mode & 0o077 else []
        except OSError as error:
            raise StartupError(self._refusal(error)) from error
        if strangers := [name for name in names if not is_ours(name)]:
            raise StartupError(
                f"{self.directory} is open to other users (mode {mode:03o}) and holds other files, such as "
                f"{min(strangers)!r:.80}; name a directory of its own with --data-dir, or `chmod 700` it."
            )
        return mode

    def let_go(self) -> None:
        """Free the lock. A second call does nothing."""
        if self._unlock is None:
            return
        unlock, self._unlock = self._unlock, None
        self._fs.unlink_quietly(self.path(HOLDER_NAME))
        unlock()

    def path(self, name: str) -> str:
        """The path of a name in the directory."""
        return os.path.join(self.directory, name)

    def check_writable(self) -> None:
        """Write a small file and remove it.

        Raises:
            StorageFull: There is no space.
            StorageUnavailable: It cannot be written, with the reason.
        """
        probe = self.path(f"{TEMPORARY_PREFIX}probe-{secrets.token_hex(4)}")
        try:
            fd = self._fs.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                self._fs.write_all(fd, _PROBE)
            finally:
                self._fs.close_quietly(fd)
                self._fs.unlink(probe)
            free_bytes = self._fs.free_bytes(self.directory)
        except OSError as error:
            raise storage_error(error, "write to the data directory") from error
        if free_bytes < len(_PROBE):  # some file systems take a write and find no room for it later
            raise StorageFull(
                "The disk of the data directory is full; free some space and it goes on by itself."
            )

    # -- taking it -----------------------------------------------------------------------------------------

    def _make(self) -> None:
        missing = []
        path = self.directory
        while not self._exists(path):
            missing.append(path)
            path = os.path.dirname(path)
        for path in reversed(missing):
            try:
                self._fs.mkdir(path)
            except FileExistsError:  # a second host that starts at the same moment
                continue
            self._fs.sync_directory(os.path.dirname(path))

    def _exists(self, path: str) -> bool:
        try:
            self._fs.lstat(path)
        except FileNotFoundError:
            return False
        return True

    def _lock(self) -> None:
        try:
            self._unlock = self._fs.lock(self.path(LOCK_NAME), _LOCK_TIMEOUT_S)
        except TimeoutError:
            raise in_use(self.directory, self._fs) from None
        except OSError as error:
            raise StartupError(self._refusal(error)) from error

    def _sweep(self) -> list[str]:
        """Remove what an interrupted write left: nobody writes it any more, we hold the lock. All names there were."""
        names = self._fs.names(self.directory)
        for name in names:
            if name.startswith(TEMPORARY_PREFIX):
                self._fs.unlink_quietly(self.path(name))
                _logger.info("removed the stale temporary file %s", name)
        return names

    def _refusal(self, error: Exception) -> str:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        return (
            f"The data directory {self.directory} cannot be used by uid {os.geteuid()}: "
            f"{reason.rstrip('.')}; make it a directory that this user owns and may write to, "
            "or name another with --data-dir."
        )


def in_use(directory: str, fs: FileSystem) -> DirectoryInUse:
    """The refusal of a directory that another host holds, naming it."""
    holder = read_holder(directory, fs)
    named = f" ({holder})" if holder else ""
    return DirectoryInUse(
        f"{directory} is held by another host{named}; stop that one, or name another directory with --data-dir."
    )


def read_holder(directory: str, fs: FileSystem) -> str:
    """Who wrote the holder file, `pid … on … since …`; "" when it cannot be read. It outlives a killed host."""
    try:
        holder = orjson.loads(fs.read_file(os.path.join(directory, HOLDER_NAME), _HOLDER_BYTES_MAX))
        return f"pid {int(holder['pid'])} on {holder['host']!s:.80} since {holder['since']!s:.40}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def is_held(directory: str, fs: FileSystem) -> bool:
    """Whether a host holds the directory now.

    Raises:
        OSError: It cannot be found out.
    """
    return fs.is_locked(os.path.join(directory, LOCK_NAME))


def _holder() -> bytes:
    since = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    return orjson.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since})
