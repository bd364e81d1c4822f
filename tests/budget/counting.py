"""Counting: every call of the system, every timer, task and encode, as a list that a test compares with its budget."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zhin_host.storage.fs import FileSystem


class CountingFileSystem(FileSystem):
    """The real file system, but for syncs, which are noted and not made; each call is noted with the kind of its file.

    A note is the call's name and the suffix of the file (`write .ndjson`, `fsync /` of the directory itself). May be
    called from any thread, since adding to a list is one step.

    Attributes:
        notes: The calls, oldest first.
        written: Bytes that write and pwrite took, by the suffix of the file.
        read: Bytes that pread gave, likewise.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.written: Counter[str] = Counter()
        self.read: Counter[str] = Counter()
        self._kinds: dict[int, str] = {}

    def take(self) -> dict[str, int]:
        """How often each was made since the last time."""
        taken, self.notes = self.notes, []
        return dict(Counter(taken))

    def _note(self, name: str, kind: str) -> None:
        self.notes.append(f"{name} {kind}")

    def _of(self, name: str, fd: int) -> None:
        self._note(name, self._kinds.get(fd, "?"))

    def open(self, path: str, flags: int) -> int:
        kind = _kind(path) if not flags & os.O_DIRECTORY else "/"
        self._note("open", kind)
        fd = super().open(path, flags)
        self._kinds[fd] = kind
        return fd

    def fstat(self, fd: int) -> os.stat_result:
        self._of("fstat", fd)
        return super().fstat(fd)

    def lstat(self, path: str) -> os.stat_result:
        self._note("lstat", _kind(path))
        return super().lstat(path)

    def close(self, fd: int) -> None:
        self._of("close", fd)
        super().close(fd)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self._of("write", fd)
        count = super().write(fd, data)
        self.written[self._kinds.get(fd, "?")] += count
        return count

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        self._of("pwrite", fd)
        count = super().pwrite(fd, data, offset)
        self.written[self._kinds.get(fd, "?")] += count
        return count

    def pread(self, fd: int, size_bytes: int, offset: int) -> bytes:
        self._of("pread", fd)
        block = super().pread(fd, size_bytes, offset)
        self.read[self._kinds.get(fd, "?")] += len(block)
        return block

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._of("truncate", fd)
        super().truncate(fd, size_bytes)

    def datasync(self, fd: int) -> None:
        self._of("datasync", fd)  # a count waits for no disk

    def fsync(self, fd: int) -> None:
        self._of("fsync", fd)

    def rename(self, source: str, target: str) -> None:
        self._note("rename", _kind(target))
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._note("unlink", _kind(path))
        super().unlink(path)

    def names(self, directory: str) -> list[str]:
        self._note("names", "/")
        return super().names(directory)

    def mkdir(self, path: str) -> None:
        self._note("mkdir", "/")
        super().mkdir(path)

    def chmod(self, path: str, mode: int) -> None:
        self._note("chmod", _kind(path))
        super().chmod(path, mode)

    def free_bytes(self, directory: str) -> int:
        self._note("free_bytes", "/")
        return super().free_bytes(directory)

    def lock(self, path: str, timeout_s: float) -> Callable[[], None]:
        self._note("lock", _kind(path))
        return super().lock(path, timeout_s)


def _kind(path: str) -> str:
    name = Path(path).name
    return ".tmp" if name.startswith(".tmp-") else Path(name).suffix or name


class LoopCounts:
    """What the running loop is asked for while it is watched.

    Attributes:
        tasks: The names of the tasks made.
        timers: What each timer made calls, by its name, and how far ahead in seconds.
        jobs: What was handed to a thread of the loop's pool.
    """

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []
        self.timers: list[tuple[str, float]] = []
        self.jobs: list[str] = []

    @property
    def tasks(self) -> list[str]:
        return [task.get_name() for task in self._tasks]

    def made(self, loop: asyncio.AbstractEventLoop, coro: Any, **given: Any) -> asyncio.Task[Any]:
        """A task factory, as asyncio has it."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **given)
        self._tasks.append(task)
        return task


@contextmanager
def watched_loop() -> Iterator[LoopCounts]:
    """Count what the running loop is asked for until the block ends. call_later is a call_at."""
    loop, counts = asyncio.get_running_loop(), LoopCounts()
    plain_at, plain_job = loop.call_at, loop.run_in_executor

    def call_at(when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        counts.timers.append((getattr(callback, "__qualname__", repr(callback)), when - loop.time()))
        return plain_at(when, callback, *args, context=context)

    def run_in_executor(executor: Any, job: Callable[..., Any], *args: Any) -> Any:
        counts.jobs.append(getattr(job, "__qualname__", repr(job)))
        return plain_job(executor, job, *args)

    before = loop.get_task_factory()
    loop.set_task_factory(counts.made)
    loop.call_at = call_at  # type: ignore[method-assign, assignment]
    loop.run_in_executor = run_in_executor  # type: ignore[method-assign, assignment]
    try:
        yield counts
    finally:
        del loop.call_at, loop.run_in_executor
        loop.set_task_factory(before)


class HeldTimers:
    """Timers that fire when the test says so: time that passes without a clock.

    Attributes:
        made: How many of each length were asked for.
    """

    def __init__(self) -> None:
        self.made: Counter[float] = Counter()
        self._waiting: list[tuple[float, asyncio.TimerHandle]] = []

    def hold(self, length_s: float, handle: asyncio.TimerHandle) -> asyncio.TimerHandle:
        self.made[length_s] += 1
        self._waiting.append((length_s, handle))
        return handle

    def fire(self, length_s: float) -> None:
        """Let the time of those of this length have come."""
        due = [handle for length, handle in self._waiting if length == length_s]
        self._waiting = [row for row in self._waiting if row[0] != length_s]
        for handle in due:
            if not handle.cancelled():
                handle._run()


@contextmanager
def held_timers(*lengths_s: float) -> Iterator[HeldTimers]:
    """Hold every timer of exactly these lengths that the running loop is asked for."""
    loop, held = asyncio.get_running_loop(), HeldTimers()
    plain = loop.call_later

    def call_later(delay: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        if delay not in lengths_s:
            return plain(delay, callback, *args, context=context)
        return held.hold(delay, asyncio.TimerHandle(loop.time() + delay, callback, args, loop, context))

    loop.call_later = call_later  # type: ignore[method-assign, assignment]
    try:
        yield held
    finally:
        del loop.call_later


class Calls:
    """Stands in the place of a function and counts its calls.

    Attributes:
        count: How often it was called.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.count = 0
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return self._function(*args, **kwargs)

    def take(self) -> int:
        """How often since the last time."""
        taken, self.count = self.count, 0
        return taken


def open_descriptors() -> int:
    """How many this process has, but for the one that looks; what nobody holds any more is closed first."""
    gc.collect()
    return len(list(Path("/dev/fd").iterdir())) - 1


def waiting_timers() -> int:
    """How many timers the running loop waits for."""
    scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return sum(not handle.cancelled() for handle in scheduled)
