"""KernelCrew: the system's own asynchronous syncs behave as the threads' do."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from zhin_host.errors import StorageUnavailable
from zhin_host.storage import kernel
from zhin_host.storage.crew import SyncCrew
from zhin_host.storage.fs import FileSystem
from zhin_host.storage.kernel import KernelCrew, best_crew

needs_kernel = pytest.mark.skipif(
    not isinstance(best_crew(FileSystem()), KernelCrew),
    reason="this system has no asynchronous syncs of its own",
)


@pytest.fixture
def fds(tmp_path: Path) -> Iterator[list[int]]:
    fds = [os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT) for number in range(20)]
    yield fds
    for fd in fds:
        os.close(fd)


@needs_kernel
async def test_files_and_directories_are_synced_without_a_thread(fds: list[int], tmp_path: Path) -> None:
    crew = KernelCrew(FileSystem())
    threads = threading.active_count()
    for fd in fds:
        os.write(fd, b"x" * 10_000)
    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    await asyncio.gather(crew.fsync(directory), *(crew.datasync(fd) for fd in fds for _ in range(20)))
    assert threading.active_count() == threads
    os.close(directory)
    crew.stop()


@needs_kernel
async def test_a_sync_that_fails_says_why_by_its_number() -> None:
    crew = KernelCrew(FileSystem())
    reading, writing = os.pipe()
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is what is looked at
        await crew.datasync(writing)
    assert caught.value.errno == errno.EINVAL
    os.close(reading)
    os.close(writing)
    with pytest.raises(OSError):  # noqa: PT011 - closed
        await crew.datasync(writing)
    crew.stop()


@needs_kernel
def test_one_loop_after_another_may_use_it(fds: list[int]) -> None:
    crew = KernelCrew(FileSystem())
    for fd in fds[:3]:
        asyncio.run(crew.datasync(fd))
    crew.stop()


@needs_kernel
async def test_once_stopped_it_takes_nothing_more(fds: list[int]) -> None:
    crew = KernelCrew(FileSystem())
    await crew.datasync(fds[0])
    crew.stop()
    with pytest.raises(StorageUnavailable):
        await crew.datasync(fds[0])


def test_without_the_kernel_s_help_threads_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_kernel", None)
    assert type(best_crew(FileSystem())) is SyncCrew


@needs_kernel
async def test_a_signal_in_between_loses_no_answer(fds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    interruptions = 3
    take = kernel._kernel.AsyncioContext._on_read_event

    def interrupted(context: object) -> None:
        nonlocal interruptions
        if interruptions:
            interruptions -= 1
            raise SystemError(errno.EINTR, os.strerror(errno.EINTR))
        take(context)

    monkeypatch.setattr(kernel._kernel.AsyncioContext, "_on_read_event", interrupted)
    crew = KernelCrew(FileSystem())
    await asyncio.wait_for(crew.datasync(fds[0]), 10)
    assert interruptions == 0
    crew.stop()


@needs_kernel
@pytest.mark.parametrize(
    ("said", "number"), [(os.strerror(errno.ENOSPC), errno.ENOSPC), ("something else", errno.EIO)]
)
async def test_an_error_of_a_sync_that_the_kernel_took_is_told_by_its_number(
    fds: list[int], monkeypatch: pytest.MonkeyPatch, said: str, number: int
) -> None:
    """The library has the text of it and nothing more; no thread syncs once more, which would prove nothing."""
    by_threads: list[int] = []

    async def fails(_context: object, _fd: int) -> None:
        raise SystemError(said)

    monkeypatch.setattr(kernel._kernel.AsyncioContext, "fdsync", fails)
    monkeypatch.setattr(FileSystem, "datasync", lambda _, fd: by_threads.append(fd))
    crew = KernelCrew(FileSystem())
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is what is looked at
        await crew.datasync(fds[0])
    assert caught.value.errno == number
    assert by_threads == []
    crew.stop()


@needs_kernel
async def test_what_the_kernel_does_not_take_is_synced_by_a_thread(
    fds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_threads: list[int] = []

    async def refuses(_context: object, _fd: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(kernel._kernel.AsyncioContext, "fsync", refuses)
    monkeypatch.setattr(kernel._kernel.AsyncioContext, "fdsync", refuses)
    monkeypatch.setattr(FileSystem, "fsync", lambda _, fd: by_threads.append(fd))
    monkeypatch.setattr(FileSystem, "datasync", lambda _, fd: by_threads.append(fd))
    crew = KernelCrew(FileSystem())
    await crew.fsync(fds[0])
    await crew.datasync(fds[1])
    assert by_threads == fds[:2]
    crew.stop()
