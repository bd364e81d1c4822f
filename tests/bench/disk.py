"""Disk: what the file system of the data directory gives without a host. Linux."""

from __future__ import annotations

import ctypes
import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

BLOCK = b"." * 4095 + b"\n"
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_names = itertools.count()


@contextmanager
def _file(folder: Path) -> Iterator[int]:
    """A new file to append to; it stays."""
    fd = os.open(folder / f"disk-{next(_names)}", _APPENDING, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def _timed(seconds: float, work: Callable[[], object]) -> list[float]:
    """Repeat work for so long; how long each took, in seconds."""
    took_s: list[float] = []
    end_s = time.perf_counter() + seconds
    while not took_s or time.perf_counter() < end_s:
        began_s = time.perf_counter()
        work()
        took_s.append(time.perf_counter() - began_s)
    return took_s


def appends(folder: Path, seconds: float) -> float:
    """Writes of 4 KiB with O_APPEND, a second."""
    with _file(folder) as fd:
        return 1 / statistics.mean(_timed(seconds, lambda: os.write(fd, BLOCK)))


def syncs(folder: Path, seconds: float) -> list[float]:
    """How long each fdatasync after an append of 4 KiB took, ms."""
    took_ms: list[float] = []
    with _file(folder) as fd:
        end_s = time.perf_counter() + seconds
        while not took_ms or time.perf_counter() < end_s:
            os.write(fd, BLOCK)
            began_s = time.perf_counter()
            os.fdatasync(fd)
            took_ms.append(1000 * (time.perf_counter() - began_s))
    return took_ms


def threaded_syncs(folder: Path, seconds: float, threads: int) -> float:
    """fdatasyncs a second of so many threads together, each with a file of its own."""
    counts: list[int] = []

    def work() -> None:
        counts.append(len(syncs(folder, seconds)))

    crew = [threading.Thread(target=work) for _ in range(threads)]
    began_s = time.perf_counter()
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    return sum(counts) / (time.perf_counter() - began_s)


def whole_syncs(folder: Path, seconds: float) -> float:
    """How long a syncfs after an append of 4 KiB takes, ms: the median."""
    libc = ctypes.CDLL(None, use_errno=True)
    took_s: list[float] = []
    with _file(folder) as fd:
        end_s = time.perf_counter() + seconds
        while not took_s or time.perf_counter() < end_s:
            os.write(fd, BLOCK)
            began_s = time.perf_counter()
            if libc.syncfs(fd) != 0:
                raise OSError(ctypes.get_errno(), "syncfs failed")
            took_s.append(time.perf_counter() - began_s)
    return 1000 * statistics.median(took_s)


def creations(folder: Path, count: int) -> float:
    """How long the creation of an empty file takes, µs: the median. The files stay.

    On ext4, creating files just after many unlinks can cost fifty times more for minutes: this shows it.
    """
    return 1e6 * statistics.median(_made_in_s(folder)[1] for _ in range(count))


def removals(folder: Path, count: int) -> float:
    """How long the unlinking of an empty file takes, µs: the median. Few should be, see `creations`."""
    paths = [_made_in_s(folder)[0] for _ in range(count)]
    return 1e6 * statistics.median(_timed(0, path.unlink)[0] for path in paths)


def _made_in_s(folder: Path) -> tuple[Path, float]:
    path = folder / f"made-{next(_names)}"
    took_s = _timed(0, lambda: os.close(os.open(path, _APPENDING | os.O_EXCL, 0o600)))[0]
    return path, took_s
