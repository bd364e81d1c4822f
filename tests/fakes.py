"""Fakes: a clock that stands still and file systems that fail, stop or forget, through the product's own seams."""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from zhin_host.storage.fs import FileSystem

START_MS: Final = 1_764_428_400_000


class FakeClock:
    """Time that moves only when told to; randomness from a seed."""

    def __init__(self, now_ms: int = START_MS, seed: int = 0) -> None:
        self.at_ms = now_ms
        self._random = random.Random(seed)

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_s(self) -> float:
        return self.at_ms / 1000

    def random_bits(self, count: int) -> int:
        return self._random.getrandbits(count)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.at_ms += round(seconds * 1000)


class Killed(BaseException):
    """The process ended here: nothing after it ran, as after kill -9."""


class FaultyFileSystem(FileSystem):
    """The real file system, counted, and wrong where told to be.

    Attributes:
        calls: Names of the calls so far.
        fail_at: The number of the call that fails, from 0; None: none does.
        fail_error: With which errno.
        fail_count: How many calls fail from there on; None: all.
        fail_names: Which calls are counted; None: all.
        kill_at: The number of the call before which the process is killed: it and all later ones raise Killed.
        write_bytes_max: Every write takes at most so many bytes; None: all of them.
        kill_bytes: The call at which the process is killed, where a write, takes so many bytes first.
    """

    def __init__(
        self,
        *,
        fail_at: int | None = None,
        fail_error: int = errno.EIO,
        fail_count: int | None = 1,
        fail_names: frozenset[str] | None = None,
        kill_at: int | None = None,
        kill_bytes: int = 0,
        write_bytes_max: int | None = None,
    ) -> None:
        self.calls: list[str] = []
        self.fail_at = fail_at
        self.fail_error = fail_error
        self.fail_count = fail_count
        self.fail_names = fail_names
        self.kill_at = kill_at
        self.kill_bytes = kill_bytes
        self.write_bytes_max = write_bytes_max
        self._counted = 0
        self._descriptors: set[int] = set()
        self._unlocks: list[Callable[[], None]] = []

    def bury(self) -> None:
        """Do what the kernel does for a killed process: close its descriptors, free its locks."""
        while self._descriptors:
            os.close(self._descriptors.pop())
        while self._unlocks:
            self._unlocks.pop()()

    def heal(self) -> None:
        """Nothing fails from now on."""
        self.fail_at = self.kill_at = self.write_bytes_max = None

    def fail_next(self, error: int, *names: str, count: int | None = 1) -> None:
        """The next call, of these names where some are given, fails, and `count - 1` after it."""
        self.fail_names = frozenset(names) or None
        self._counted = 0
        self.fail_at, self.fail_error, self.fail_count = 0, error, count

    def _step(self, name: str) -> None:
        number = len(self.calls)
        self.calls.append(name)
        if self.kill_at is not None and number >= self.kill_at:
            raise Killed(f"at call {number}, {name}")
        if self.fail_names is not None and name not in self.fail_names:
            return
        counted = self._counted
        self._counted += 1
        if self.fail_at is None:
            return
        last = None if self.fail_count is None else self.fail_at + self.fail_count
        if counted >= self.fail_at and (last is None or counted < last):
            raise OSError(self.fail_error, os.strerror(self.fail_error))

    def open(self, path: str, flags: int) -> int:
        self._step("open")
        fd = super().open(path, flags)
        self._descriptors.add(fd)
        return fd

    def fstat(self, fd: int) -> os.stat_result:
        self._step("fstat")
        return super().fstat(fd)

    def lstat(self, path: str) -> os.stat_result:
        self._step("lstat")
        return super().lstat(path)

    def close(self, fd: int) -> None:
        try:
            self._step("close")
        finally:  # a failed close has closed
            if fd in self._descriptors:
                self._descriptors.remove(fd)
                super().close(fd)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self.kill_at == len(self.calls) and self.kill_bytes:
            super().write(fd, data[: self.kill_bytes])
        self._step("write")
        return super().write(fd, data[: self.write_bytes_max])

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        self._step("pwrite")
        return super().pwrite(fd, data[: self.write_bytes_max], offset)

    def pread(self, fd: int, size_bytes: int, offset: int) -> bytes:
        self._step("pread")
        return super().pread(fd, size_bytes, offset)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._step("truncate")
        super().truncate(fd, size_bytes)

    def datasync(self, fd: int) -> None:
        self._step("datasync")
        super().datasync(fd)

    def fsync(self, fd: int) -> None:
        self._step("fsync")
        super().fsync(fd)

    def rename(self, source: str, target: str) -> None:
        self._step("rename")
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._step("unlink")
        super().unlink(path)

    def names(self, directory: str) -> list[str]:
        self._step("names")
        return super().names(directory)

    def mkdir(self, path: str) -> None:
        self._step("mkdir")
        super().mkdir(path)

    def chmod(self, path: str, mode: int) -> None:
        self._step("chmod")
        super().chmod(path, mode)

    def free_bytes(self, directory: str) -> int:
        self._step("free_bytes")
        return super().free_bytes(directory)

    def lock(self, path: str, timeout_s: float) -> Callable[[], None]:
        self._step("lock")
        unlock = super().lock(path, 0.0)  # what a test waits for does not come
        self._unlocks.append(unlock)
        return unlock


class ForgetfulFileSystem(FaultyFileSystem):
    """The real file system, and what of one directory would be left after a power cut.

    The worst that the promises of `FileSystem` allow: bytes since a file's last sync and names since the directory's
    last sync are lost. Files are known by their inode.
    """

    def __init__(self, directory: Path, *, kill_at: int | None = None) -> None:
        super().__init__(kill_at=kill_at)
        self._directory = directory
        self._bytes: dict[int, bytes] = {}
        self._names: dict[str, int] = {}

    def datasync(self, fd: int) -> None:
        super().datasync(fd)
        facts = os.fstat(fd)
        synced = next(path for path in self._directory.iterdir() if path.lstat().st_ino == facts.st_ino)
        self._bytes[facts.st_ino] = synced.read_bytes()

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            self._names = {path.name: path.lstat().st_ino for path in self._directory.iterdir()}

    def cut_power(self) -> None:
        """Leave in the directory what survives. Descriptors opened before lead to files that are gone."""
        for path in self._directory.iterdir():
            path.unlink()
        for name, inode in self._names.items():
            path = self._directory / name
            path.touch(mode=0o600)
            path.write_bytes(self._bytes.get(inode, b""))
