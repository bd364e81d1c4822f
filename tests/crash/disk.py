"""Disks for hosts in processes of their own: one that ends the process at a call, one that loses power there."""

from __future__ import annotations

import contextlib
import os
import random
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.fakes import FaultyFileSystem, Killed

STOPPED: Final = 86
"""Exit code of a host that its disk has stopped."""


class StoppingFileSystem(FaultyFileSystem):
    """Ends the process, with no clean-up at all, at the n-th call; where that is a write, maybe half-way."""

    def __init__(self, **wrong: Any) -> None:
        super().__init__(**wrong)
        self._one_at_a_time = threading.RLock()

    def _step(self, name: str) -> None:
        with self._one_at_a_time:
            try:
                super()._step(name)
            except Killed:
                self.end()

    def end(self) -> None:
        """Do what the end of this machine does."""
        os._exit(STOPPED)


@dataclass
class _File:
    """What is known of a file's bytes.

    Attributes:
        synced: Those that survive.
        later: What was done since: (offset, bytes), or (length, None) for a cut.
    """

    synced: bytes = b""
    later: list[tuple[int, bytes | None]] = field(default_factory=list)

    def left(self, chance: random.Random, mood: str) -> bytes:
        """What a power cut leaves: the synced bytes and any subset of what was done since."""
        content = bytearray(self.synced)
        for at, (offset, data) in enumerate(self.later):
            if mood == "nothing" or (mood == "prefix" and at >= len(self.later) // 2):
                break
            if mood == "any" and chance.random() < 0.4:
                continue
            if data is None:
                del content[offset:]
                continue
            kept = (
                data[: chance.randrange(len(data) + 1)] if mood == "any" and chance.random() < 0.2 else data
            )
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(kept)] = kept
        return bytes(content)


class PowerlessFileSystem(StoppingFileSystem):
    """Loses power at the n-th call: any subset of unsynced writes and of unsynced names of its directory is gone.

    Every call is atomic beside the others, so that what is remembered is what was done.
    """

    def __init__(self, directory: Path, *, seed: int, **wrong: Any) -> None:
        super().__init__(**wrong)
        self._directory = directory
        self._chance = random.Random(seed)
        self._files: dict[int, _File] = {}  # by inode, while the file has that inode
        self._names: dict[str, _File] = {}
        self._synced_names: dict[str, _File] = {}
        if directory.exists():  # what an earlier host left has long been synced
            self._names = {path.name: self._known(path) for path in directory.iterdir()}
            self._synced_names = dict(self._names)

    def _known(self, path: Path) -> _File:
        return self._files.setdefault(path.stat().st_ino, _File(path.read_bytes()))

    def end(self) -> None:
        mood = self._chance.choice(["nothing", "prefix", "any", "any", "all"])
        left: dict[str, bytes] = {}
        for name in sorted(self._names.keys() | self._synced_names.keys()):
            before, now = self._synced_names.get(name), self._names.get(name)
            is_new = {"nothing": 0.0, "all": 1.0}.get(mood, 0.5) > self._chance.random()
            file = now if is_new else before
            if file is not None:
                left[name] = file.left(self._chance, mood)
        for path in self._directory.iterdir() if self._directory.exists() else ():
            path.unlink()
        for name, content in left.items():
            path = self._directory / name
            path.touch(mode=0o600)
            path.write_bytes(content)
        super().end()

    # -- what is done and remembered -----------------------------------------------------------------------

    def open(self, path: str, flags: int) -> int:
        with self._one_at_a_time:
            fd = super().open(path, flags)
            name = self._name(path)
            if flags & os.O_CREAT and name is not None and name not in self._names:
                self._names[name] = self._files[os.fstat(fd).st_ino] = _File()
            return fd

    def write(self, fd: int, data: bytes | memoryview) -> int:
        with self._one_at_a_time:
            offset = os.fstat(fd).st_size  # all are opened to append, or new
            count = super().write(fd, data)
            self._file(fd).later.append((offset, bytes(data[:count])))
            return count

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        with self._one_at_a_time:
            count = super().pwrite(fd, data, offset)
            self._file(fd).later.append((offset, bytes(data[:count])))
            return count

    def truncate(self, fd: int, size_bytes: int) -> None:
        with self._one_at_a_time:
            super().truncate(fd, size_bytes)
            self._file(fd).later.append((size_bytes, None))

    def datasync(self, fd: int) -> None:
        with self._one_at_a_time:
            super().datasync(fd)
            self._sync(fd)

    def fsync(self, fd: int) -> None:
        with self._one_at_a_time:
            super().fsync(fd)
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                self._synced_names = dict(self._names)
            else:
                self._sync(fd)

    def rename(self, source: str, target: str) -> None:
        with self._one_at_a_time:
            super().rename(source, target)
            old, new = self._name(source), self._name(target)
            if old is not None and new is not None:
                self._names[new] = self._names.pop(old)

    def unlink(self, path: str) -> None:
        with self._one_at_a_time:
            super().unlink(path)
            name = self._name(path)
            if name is not None:
                self._names.pop(name, None)

    def lock(self, path: str, timeout_s: float) -> Callable[[], None]:
        unlock = super().lock(path, timeout_s)
        with self._one_at_a_time, contextlib.suppress(FileNotFoundError):
            locked = self._directory / Path(path).name
            self._names.setdefault(locked.name, self._known(locked))
        return unlock

    def _sync(self, fd: int) -> None:
        file = self._file(fd)
        size_bytes = os.fstat(fd).st_size
        file.synced, file.later = _applied(file, size_bytes), []

    def _file(self, fd: int) -> _File:
        return self._files.setdefault(os.fstat(fd).st_ino, _File())

    def _name(self, path: str) -> str | None:
        found = Path(path)
        return found.name if found.parent == self._directory else None


def _applied(file: _File, size_bytes: int) -> bytes:
    """All that was done, done."""
    content = bytearray(file.synced)
    for offset, data in file.later:
        if data is None:
            del content[offset:]
        else:
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(data)] = data
    assert len(content) == size_bytes, "the file has another length than what was written to it"
    return bytes(content)
