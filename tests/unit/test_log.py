"""storage.log and storage.lines: mending, syncing again, closing; what the contract tests do not see."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.builders import LogBuilder, session_id_of
from tests.fakes import FaultyFileSystem
from zhin_host import events as ev
from zhin_host.errors import SessionNotFound, StorageFull, StorageUnavailable
from zhin_host.storage.crew import SyncCrew
from zhin_host.storage.fs import FileSystem
from zhin_host.storage.lines import BrokenLine, Read, find_line
from zhin_host.storage.log import SessionEventLog, open_mended, peek

SESSION = session_id_of(1)

CrewOf = Callable[[FileSystem], SyncCrew]


@pytest.fixture
def crew_of() -> Iterator[CrewOf]:
    """Makes the crew that syncs on a file system."""
    crews: list[SyncCrew] = []

    def make(fs: FileSystem) -> SyncCrew:
        crews.append(SyncCrew(fs))
        return crews[-1]

    yield make
    for crew in crews:
        crew.stop()


@pytest.fixture
def builder() -> LogBuilder:
    return LogBuilder(SESSION).start().say("Hel", "lo").finish("Hello")


def path_of(directory: Path, content: bytes | None = None) -> str:
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / f"{SESSION}.ndjson"
    if content is not None:
        path.touch(mode=0o600)
        path.write_bytes(content)
    return str(path)


def bytes_of(log: SessionEventLog) -> bytes:
    return Path(log.path).read_bytes()


def overwrite(log: SessionEventLog, content: bytes) -> None:
    """The same file with other bytes, as a page cache that gave dirty pages up shows it."""
    Path(log.path).write_bytes(content)


def replaced(log: SessionEventLog, content: bytes) -> None:
    """Another file under the log's name."""
    path = Path(log.path)
    path.rename(path.with_suffix(".torn"))
    path.touch(mode=0o600)
    path.write_bytes(content)


def torn_of(directory: Path) -> Path:
    return directory / f"{SESSION}.torn"


def opened(
    directory: Path, fs: FileSystem | None = None, crew: SyncCrew | None = None
) -> SessionEventLog | None:
    return open_mended(
        SESSION,
        str(directory / f"{SESSION}.ndjson"),
        str(torn_of(directory)),
        fs=fs if fs is not None else FileSystem(),
        crew=crew,
    )


def mended(directory: Path, fs: FileSystem | None = None, crew: SyncCrew | None = None) -> SessionEventLog:
    log = opened(directory, fs, crew)
    assert log is not None
    return log


# -- mending ---------------------------------------------------------------------------------------------------------


def test_a_whole_log_is_opened_as_it_is(data_dir: Path, builder: LogBuilder) -> None:
    path_of(data_dir, builder.content)
    log = mended(data_dir)
    assert (log.size_bytes, log.last_sum) == (len(builder.content), builder.state.sum)
    assert not torn_of(data_dir).exists()


def test_a_last_line_that_lacks_only_its_newline_gets_it(
    data_dir: Path, builder: LogBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    path = path_of(data_dir, builder.content[:-1])
    log = mended(data_dir)
    assert Path(path).read_bytes() == builder.content
    assert (log.size_bytes, log.last_sum) == (len(builder.content), builder.state.sum)
    assert SESSION in caplog.text
    assert "1 byte" in caplog.text


def test_a_single_line_that_lacks_only_its_newline_gets_it_too(data_dir: Path) -> None:
    builder = LogBuilder(SESSION).start().finish("")
    path = path_of(data_dir, builder.lines[0][:-1])
    log = mended(data_dir)
    assert Path(path).read_bytes() == builder.lines[0]
    log.append(builder.content[len(builder.lines[0]) :], expected_bytes=log.size_bytes)


def test_anything_less_is_moved_to_the_torn_file(
    data_dir: Path, builder: LogBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    path = path_of(data_dir, builder.content + b'{"index":9,"ty')
    log = mended(data_dir)
    assert Path(path).read_bytes() == builder.content
    assert torn_of(data_dir).read_bytes() == b'{"index":9,"ty'
    assert log.size_bytes == len(builder.content)
    assert SESSION in caplog.text
    assert "14 bytes" in caplog.text


def test_torn_bytes_are_added_to_those_of_earlier_tears(data_dir: Path, builder: LogBuilder) -> None:
    for torn in (b"one", b"\0two"):
        path_of(data_dir, builder.content + torn)
        mended(data_dir).close()
    assert torn_of(data_dir).read_bytes() == b"one\0two"


def test_zeros_at_the_end_are_torn(data_dir: Path, builder: LogBuilder) -> None:
    path = path_of(data_dir, builder.content[:-1] + b"\0" * 5000)
    log = mended(data_dir)
    assert Path(path).read_bytes() == b"".join(builder.lines[:-1])
    assert torn_of(data_dir).read_bytes() == builder.lines[-1][:-1] + b"\0" * 5000
    log.append(builder.lines[-1], expected_bytes=log.size_bytes)


def test_a_whole_line_of_another_chain_is_torn(data_dir: Path, builder: LogBuilder) -> None:
    foreign = LogBuilder(session_id_of(2)).start().lines[0][:-1]
    path = path_of(data_dir, builder.content + foreign)
    mended(data_dir)
    assert Path(path).read_bytes() == builder.content
    assert torn_of(data_dir).read_bytes() == foreign


def test_a_torn_line_of_a_mebibyte_is_moved_whole(data_dir: Path, builder: LogBuilder) -> None:
    torn = b'{"index":9,"type":"x' + b"a" * (1 << 20)
    path = path_of(data_dir, builder.content + torn)
    mended(data_dir)
    assert Path(path).read_bytes() == builder.content
    assert torn_of(data_dir).read_bytes() == torn


@pytest.mark.parametrize("content", [b"", b'{"index":0,"type":"sess', b"\0" * 100])
def test_a_log_without_a_whole_first_line_is_removed_and_its_bytes_stay(
    data_dir: Path, content: bytes
) -> None:
    path = path_of(data_dir, content)
    assert opened(data_dir) is None
    assert not Path(path).exists()
    assert (torn_of(data_dir).read_bytes() if content else b"") == content


@pytest.mark.damaged(reason="a line in the middle is broken")
def test_a_broken_line_with_its_newline_is_not_touched(data_dir: Path, builder: LogBuilder) -> None:
    content = b"".join(builder.lines[:2]) + b"no event\n" + b"".join(builder.lines[2:])
    path = path_of(data_dir, content)
    assert mended(data_dir).size_bytes == len(content)
    path_of(data_dir, content + b"no event\n")
    assert mended(data_dir).size_bytes == len(content) + 9
    assert Path(path).read_bytes() == content + b"no event\n"
    assert not torn_of(data_dir).exists()


def test_mending_reads_only_the_end_of_the_file(data_dir: Path) -> None:
    builder = LogBuilder(SESSION).start()
    for _ in range(30):
        builder.say("x" * 100_000)
    builder.put((ev.TURN_CANCELLING, {"turnId": builder.turn_id, "reason": "enough"}))
    builder.put((ev.TURN_CANCELLED, {"turnId": builder.turn_id, "reason": "enough"}))
    path_of(data_dir, builder.content + b"torn")

    class Counting(FileSystem):
        read_bytes = 0

        def pread(self, fd: int, size_bytes: int, offset: int) -> bytes:
            self.read_bytes += size_bytes
            return super().pread(fd, size_bytes, offset)

    fs = Counting()
    mended(data_dir, fs)
    assert fs.read_bytes < 200_000 < len(builder.content)


@pytest.mark.parametrize("place", ["link", "directory", "second name", "pipe"])
@pytest.mark.damaged(reason="the log is no regular file with one link")
def test_what_is_no_plain_file_is_refused(
    data_dir: Path, tmp_path: Path, builder: LogBuilder, place: str
) -> None:
    path = Path(path_of(data_dir))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(builder.content)
    match place:
        case "link":
            path.symlink_to(elsewhere)
        case "directory":
            path.mkdir()
        case "second name":
            path.hardlink_to(elsewhere)
        case _:
            os.mkfifo(path)
    with pytest.raises(StorageUnavailable):
        opened(data_dir)
    with pytest.raises(StorageUnavailable):
        peek(SESSION, str(path), fs=FileSystem())
    assert elsewhere.read_bytes() == builder.content


def test_a_log_that_is_not_there_is_not_found(data_dir: Path) -> None:
    path = path_of(data_dir)
    with pytest.raises(SessionNotFound):
        opened(data_dir)
    with pytest.raises(SessionNotFound):
        peek(SESSION, path, fs=FileSystem())


def test_peeking_shows_whole_lines_only_and_mends_nothing(data_dir: Path, builder: LogBuilder) -> None:
    path = path_of(data_dir, builder.content[:-1])
    log = peek(SESSION, path, fs=FileSystem())
    assert log.read(0, 1 << 20) == b"".join(builder.lines[:-1])
    assert Path(path).read_bytes() == builder.content[:-1]
    log.close()
    mended(data_dir)


# -- appending -------------------------------------------------------------------------------------------------------


def test_a_batch_is_one_write(data_dir: Path, builder: LogBuilder) -> None:
    fs = FaultyFileSystem()
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=fs, crew=None)
    for batch in builder.batches:
        log.append(batch, expected_bytes=log.size_bytes)
    assert fs.calls.count("write") == len(builder.batches)


def test_short_writes_are_continued(data_dir: Path, builder: LogBuilder) -> None:
    fs = FaultyFileSystem(write_bytes_max=7)
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=fs, crew=None)
    for batch in builder.batches:
        log.append(batch, expected_bytes=log.size_bytes)
    assert log.read(0, 1 << 20) == builder.content


def test_a_system_that_takes_no_more_bytes_is_an_error_and_no_endless_loop(
    data_dir: Path, builder: LogBuilder
) -> None:
    class Full(FileSystem):
        def write(self, fd: int, data: bytes | memoryview) -> int:
            return 0 if isinstance(data, memoryview) else super().write(fd, data[:5])

    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=Full(), crew=None)
    with pytest.raises(StorageUnavailable):
        log.append(builder.content, expected_bytes=0)
    assert (log.size_bytes, os.path.getsize(log.path)) == (0, 0)  # noqa: PTH202
    Path(log.path).write_bytes(builder.content)


def test_a_failed_append_is_cut_back_before_the_next(data_dir: Path, builder: LogBuilder) -> None:
    fs = FaultyFileSystem()
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=fs, crew=None)
    log.append(builder.batches[0], expected_bytes=0)
    fs.write_bytes_max = 9
    fs.fail_next(errno.ENOSPC, "write")
    fs.fail_at = 1  # the first takes nine bytes, the second fails
    with pytest.raises(StorageFull, match="No space"):
        log.append(builder.batches[1], expected_bytes=log.size_bytes)
    assert bytes_of(log) == builder.batches[0]
    fs.heal()
    for batch in builder.batches[1:]:
        log.append(batch, expected_bytes=log.size_bytes)
    assert bytes_of(log) == builder.content


def test_a_log_that_cannot_be_cut_back_refuses_until_it_can(data_dir: Path, builder: LogBuilder) -> None:
    fs = FaultyFileSystem()
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=fs, crew=None)
    log.append(builder.batches[0], expected_bytes=0)
    fs.write_bytes_max = 9
    fs.fail_next(errno.EIO, "write", "truncate", count=None)
    fs.fail_at = 1
    with pytest.raises(StorageUnavailable):
        log.append(builder.batches[1], expected_bytes=log.size_bytes)
    assert len(bytes_of(log)) == len(builder.batches[0]) + 9
    assert log.read(0, 1 << 20) == builder.batches[0]
    writes = fs.calls.count("write")
    with pytest.raises(StorageUnavailable, match="half-written"):
        log.append(builder.batches[1], expected_bytes=log.size_bytes)
    assert fs.calls.count("write") == writes
    fs.heal()
    for batch in builder.batches[1:]:
        log.append(batch, expected_bytes=log.size_bytes)
    assert bytes_of(log) == builder.content


def test_a_log_that_somebody_else_appended_to_takes_nothing_more(data_dir: Path, builder: LogBuilder) -> None:
    first = SessionEventLog.create(SESSION, path_of(data_dir), fs=FileSystem(), crew=None)
    first.append(builder.batches[0], expected_bytes=0)
    second = mended(data_dir)
    for batch in builder.batches[1:]:
        second.append(batch, expected_bytes=second.size_bytes)
    with pytest.raises(StorageUnavailable, match="stop what else writes"):
        first.append(builder.batches[1], expected_bytes=first.size_bytes)
    assert Path(first.path).read_bytes() == builder.content


def test_a_log_that_was_removed_takes_nothing_more(data_dir: Path, builder: LogBuilder) -> None:
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=FileSystem(), crew=None)
    log.append(builder.batches[0], expected_bytes=0)
    Path(log.path).unlink()
    with pytest.raises(StorageUnavailable, match="was removed"):
        log.append(builder.batches[1], expected_bytes=log.size_bytes)


# -- syncing ---------------------------------------------------------------------------------------------------------


async def test_a_failed_sync_is_an_error_until_the_bytes_were_written_again(
    data_dir: Path, builder: LogBuilder, crew_of: CrewOf
) -> None:
    fs = FaultyFileSystem()
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=fs, crew=crew_of(fs))
    log.append(builder.batches[0], expected_bytes=0)
    await log.sync()
    for batch in builder.batches[1:]:
        log.append(batch, expected_bytes=log.size_bytes)
    fs.fail_next(errno.EIO, "datasync", count=2)
    for _ in range(2):
        with pytest.raises(StorageUnavailable):
            await log.sync()
    fs.heal()
    fs.calls.clear()
    await log.sync()
    assert fs.calls.count("pwrite") == 1
    assert fs.calls.index("pwrite") < fs.calls.index("datasync")
    assert bytes_of(log) == builder.content
    fs.calls.clear()
    await log.sync()
    assert fs.calls == []


async def test_bytes_that_a_failed_sync_lost_are_never_called_synced(
    data_dir: Path, builder: LogBuilder, crew_of: CrewOf
) -> None:
    fs = FaultyFileSystem()
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=fs, crew=crew_of(fs))
    for batch in builder.batches:
        log.append(batch, expected_bytes=log.size_bytes)
    fs.fail_next(errno.EIO, "datasync")
    with pytest.raises(StorageUnavailable):
        await log.sync()
    for lost in (
        b"\0" * len(builder.content),
        builder.content[:-5] + b"xxxx\n",
        builder.content[:50],
        LogBuilder(SESSION).start("Hallo").say("Hel", "lo").finish("Hello").content,  # a chain of its own
    ):
        overwrite(log, lost)
        with pytest.raises(StorageUnavailable, match="lost bytes"):
            await log.sync()
        assert bytes_of(log) == lost
    overwrite(log, builder.content)
    await log.sync()


async def test_a_line_longer_than_a_block_is_written_again_whole(data_dir: Path, crew_of: CrewOf) -> None:
    builder = LogBuilder(SESSION).start()
    for size in (10, (1 << 20) - 400, (1 << 20) - 400, 7):
        builder.say("x" * size)
    builder.put((ev.TURN_CANCELLING, {"turnId": builder.turn_id, "reason": "enough"}))
    builder.put((ev.TURN_CANCELLED, {"turnId": builder.turn_id, "reason": "enough"}))
    fs = FaultyFileSystem(fail_at=0, fail_names=frozenset({"datasync"}))
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=fs, crew=crew_of(fs))
    for batch in builder.batches:
        log.append(batch, expected_bytes=log.size_bytes)
    with pytest.raises(StorageUnavailable):
        await log.sync()
    await log.sync()
    assert bytes_of(log) == builder.content


async def test_a_log_whose_name_leads_elsewhere_is_not_written_again(
    data_dir: Path, builder: LogBuilder, crew_of: CrewOf
) -> None:
    fs = FaultyFileSystem(fail_at=0, fail_names=frozenset({"datasync"}))
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=fs, crew=crew_of(fs))
    for batch in builder.batches:
        log.append(batch, expected_bytes=log.size_bytes)
    with pytest.raises(StorageUnavailable):
        await log.sync()
    replaced(log, builder.content)
    with pytest.raises(StorageUnavailable, match="another file"):
        await log.sync()


async def test_what_is_appended_during_a_sync_is_synced_by_the_next(
    data_dir: Path, builder: LogBuilder, crew_of: CrewOf
) -> None:
    class Slow(FaultyFileSystem):
        """Its first sync waits to be let go."""

        started = threading.Event()
        go = threading.Event()

        def datasync(self, fd: int) -> None:
            self.started.set()
            self.go.wait(30)
            super().datasync(fd)

    fs = Slow()
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=fs, crew=crew_of(fs))
    log.append(builder.batches[0], expected_bytes=0)
    first = asyncio.ensure_future(log.sync())
    await asyncio.to_thread(fs.started.wait, 30)
    for batch in builder.batches[1:]:
        log.append(batch, expected_bytes=log.size_bytes)
    fs.go.set()
    await first
    assert fs.calls.count("datasync") == 1
    await log.sync()
    assert fs.calls.count("datasync") == 2
    await log.sync()
    assert fs.calls.count("datasync") == 2


async def test_a_log_closed_during_a_sync_keeps_its_descriptor_until_the_end(
    data_dir: Path, builder: LogBuilder, crew_of: CrewOf
) -> None:
    class Slow(FaultyFileSystem):
        go = threading.Event()

        def datasync(self, fd: int) -> None:
            self.go.wait(30)
            super().datasync(fd)

    fs = Slow()
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=fs, crew=crew_of(fs))
    for batch in builder.batches:
        log.append(batch, expected_bytes=log.size_bytes)
    syncing = asyncio.ensure_future(log.sync())
    await asyncio.sleep(0)
    log.close()
    assert "close" not in fs.calls
    with pytest.raises(StorageUnavailable):
        log.append(b"{}\n", expected_bytes=log.size_bytes)
    fs.go.set()
    await syncing
    await asyncio.sleep(0)
    assert fs.calls.count("close") == 1
    with pytest.raises(StorageUnavailable):
        log.read(0, 1)


async def test_who_waits_for_the_next_sync_gets_it_though_the_log_is_closed_meanwhile(
    data_dir: Path, builder: LogBuilder, crew_of: CrewOf
) -> None:
    class Slow(FaultyFileSystem):
        started = threading.Event()
        go = threading.Event()

        def datasync(self, fd: int) -> None:
            self.started.set()
            self.go.wait(30)
            super().datasync(fd)

    fs = Slow()
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=fs, crew=crew_of(fs))
    log.append(builder.batches[0], expected_bytes=0)
    first = asyncio.ensure_future(log.sync())
    await asyncio.to_thread(fs.started.wait, 30)
    for batch in builder.batches[1:]:
        log.append(batch, expected_bytes=log.size_bytes)
    second = asyncio.ensure_future(log.sync())
    await asyncio.sleep(0)
    log.close()  # as a session is, that is deleted while its turn's end is on the way to the disk
    fs.go.set()
    await asyncio.gather(first, second)
    assert fs.calls.count("datasync") == 2
    assert fs.calls[-1] == "close"


async def test_a_cancelled_wait_leaves_the_sync_to_others(
    data_dir: Path, builder: LogBuilder, crew_of: CrewOf
) -> None:
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=FileSystem(), crew=crew_of(FileSystem()))
    for batch in builder.batches:
        log.append(batch, expected_bytes=log.size_bytes)
    given_up = asyncio.ensure_future(log.sync())
    other = asyncio.ensure_future(log.sync())
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    await other


async def test_a_log_that_never_syncs_says_so_at_once(data_dir: Path, builder: LogBuilder) -> None:
    fs = FaultyFileSystem()
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=fs, crew=None)
    log.append(builder.content, expected_bytes=0)
    await log.sync()
    assert "datasync" not in fs.calls


async def test_what_a_log_held_when_it_was_opened_is_synced_too(
    data_dir: Path, builder: LogBuilder, crew_of: CrewOf
) -> None:
    path_of(data_dir, builder.content)
    fs = FaultyFileSystem()
    log = mended(data_dir, fs, crew_of(fs))
    await log.sync()
    assert fs.calls.count("datasync") == 1


async def test_a_line_over_a_block_is_written_again_whole_where_the_limit_is_higher(
    data_dir: Path, crew_of: CrewOf
) -> None:
    line, _ = ev.encode_line(0, "x.big", 1, {"text": "x" * (3 << 20)}, ev.chain_start(SESSION), 8 << 20)
    fs = FaultyFileSystem(fail_at=0, fail_names=frozenset({"datasync"}))
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=fs, crew=crew_of(fs))
    log.append(line, expected_bytes=0)
    with pytest.raises(StorageUnavailable):
        await log.sync()
    await log.sync()
    assert bytes_of(log) == line
    overwrite(log, LogBuilder(SESSION).start().finish("").content)


async def test_a_disk_that_takes_no_bytes_again_is_an_error_and_no_endless_loop(
    data_dir: Path, builder: LogBuilder, crew_of: CrewOf
) -> None:
    class Full(FaultyFileSystem):
        def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
            return 0 if self.calls.count("datasync") == 1 else super().pwrite(fd, data, offset)

    fs = Full(fail_at=0, fail_names=frozenset({"datasync"}))
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=fs, crew=crew_of(fs))
    log.append(builder.content, expected_bytes=0)
    for _ in range(2):
        with pytest.raises(StorageUnavailable):
            await log.sync()
    fs.calls.clear()
    await log.sync()


# -- finding ---------------------------------------------------------------------------------------------------------


def reader(content: bytes) -> Read:
    return lambda offset, size_bytes: content[offset : offset + size_bytes]


def test_an_event_is_found_with_some_twenty_short_reads() -> None:
    content = b"".join(
        b'{"index":%d,"type":"x.a","timestamp":1,"data":{}}\n' % index for index in range(500_000)
    )
    reads: list[int] = []

    def read(offset: int, size_bytes: int) -> bytes:
        reads.append(size_bytes)
        return content[offset : offset + size_bytes]

    for index in (0, 1, 77_777, 250_000, 499_999):
        reads.clear()
        offset = find_line(read, len(content), index)
        assert content.startswith(b'{"index":%d,' % index, offset)
        assert len(reads) < 40
        assert sum(reads) < 64 * 1024


@pytest.mark.damaged(reason="the log is no log")
@pytest.mark.parametrize("content", [b"no event\n" * 9000, b"\0" * 100_000, b'{"index":01,'])
def test_a_search_over_what_are_no_event_lines_says_so(data_dir: Path, content: bytes) -> None:
    path_of(data_dir, content + b"\n")
    log = mended(data_dir)
    with pytest.raises(StorageUnavailable, match="broken"):
        log.offset_of(3)


@pytest.mark.damaged(reason="an index is missing")
@pytest.mark.parametrize("count", [5, 5000])
def test_an_index_that_is_missing_in_the_middle_is_an_error(data_dir: Path, count: int) -> None:
    lines = [b'{"index":%d,"type":"x.a","timestamp":1,"data":{}}\n' % index for index in range(count)]
    del lines[count // 2]
    path_of(data_dir, b"".join(lines))
    log = mended(data_dir)
    with pytest.raises(StorageUnavailable, match="broken"):
        log.offset_of(count // 2)


def test_wherever_an_index_is_missing_its_search_is_an_error() -> None:
    lines = [b'{"index":%d,"type":"x.a","timestamp":1,"data":{}}\n' % index for index in range(1500)]
    for missing in range(1499):
        content = b"".join(lines[:missing] + lines[missing + 1 :])
        with pytest.raises(BrokenLine):
            find_line(reader(content), len(content), missing)


def test_errors_of_reading_pass_as_storage_errors(data_dir: Path, builder: LogBuilder) -> None:
    path_of(data_dir, builder.content)
    fs = FaultyFileSystem()
    log = mended(data_dir, fs)
    fs.fail_next(errno.EIO, "pread", count=None)
    with pytest.raises(StorageUnavailable):
        log.read(0, 10)
    with pytest.raises(StorageUnavailable):
        log.offset_of(3)


def test_reads_that_come_short_are_continued(data_dir: Path, builder: LogBuilder) -> None:
    class Short(FileSystem):
        def pread(self, fd: int, size_bytes: int, offset: int) -> bytes:
            return super().pread(fd, min(size_bytes, 7), offset)

    path_of(data_dir, builder.content + b"torn")
    log = mended(data_dir, Short())
    assert log.read(0, 1 << 20) == builder.content
    assert log.offset_of(2) == len(b"".join(builder.lines[:2]))


def test_a_file_that_shrinks_under_a_search_ends_it() -> None:
    line = b'{"index":0,"type":"x.a","timestamp":1,"data":{}}\n'
    assert find_line(reader(line), 1 << 20, 5) == 1 << 20


@pytest.mark.parametrize("call", ["open", "fstat", "pread", "write", "truncate", "fsync", "datasync"])
def test_a_log_that_cannot_be_mended_now_is_left_as_it_is(
    data_dir: Path, builder: LogBuilder, call: str
) -> None:
    torn = builder.content + b"torn"
    path = path_of(data_dir, torn)
    fs = FaultyFileSystem()
    fs.fail_next(errno.EIO, call)
    with pytest.raises(StorageUnavailable):
        opened(data_dir, fs)
    assert Path(path).read_bytes() == torn
    mended(data_dir, fs)
    assert Path(path).read_bytes() == builder.content


@pytest.mark.parametrize("call", ["open", "fstat", "pread"])
def test_a_log_that_cannot_be_peeked_at_says_so(data_dir: Path, builder: LogBuilder, call: str) -> None:
    path = path_of(data_dir, builder.content)
    fs = FaultyFileSystem()
    fs.fail_next(errno.EIO, call)
    with pytest.raises(StorageUnavailable):
        peek(SESSION, path, fs=fs)


def test_errors_of_the_look_before_an_append_change_nothing(data_dir: Path, builder: LogBuilder) -> None:
    fs = FaultyFileSystem()
    log = SessionEventLog.create(SESSION, path_of(data_dir), fs=fs, crew=None)
    fs.fail_next(errno.EIO, "fstat")
    with pytest.raises(StorageUnavailable):
        log.append(builder.content, expected_bytes=0)
    log.append(builder.content, expected_bytes=0)


def test_a_log_that_cannot_be_made_says_why(data_dir: Path) -> None:
    with pytest.raises(StorageUnavailable, match="bring the data directory back"):
        SessionEventLog.create(SESSION, str(data_dir / "gone" / "x.ndjson"), fs=FileSystem(), crew=None)
