"""storage.files, storage.place and storage.names: the directory, its lock, its names and what survives in it."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.builders import LogBuilder, session_id_of
from tests.fakes import FaultyFileSystem, ForgetfulFileSystem
from zhin_host.clock import SessionId
from zhin_host.errors import DirectoryInUse, SessionNotFound, StartupError, StorageFull, StorageUnavailable
from zhin_host.ports import MARK_RUNNING, MARK_STOPPED, SessionLog
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.fs import FileSystem

SESSION = session_id_of(1)


@pytest.fixture
def persistence(data_dir: Path) -> Iterator[FileHttpSessionPersistence]:
    persistence = FileHttpSessionPersistence(data_dir)
    persistence.start()
    yield persistence
    persistence.stop()


async def kept(
    persistence: FileHttpSessionPersistence, builder: LogBuilder, instead_of: SessionId | None = None
) -> SessionLog:
    log = await persistence.create_log(builder.session_id, instead_of)
    for batch in builder.batches:
        log.append(batch, expected_bytes=log.size_bytes)
    return log


def modes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o7777 for path in directory.iterdir()}


# -- the directory ---------------------------------------------------------------------------------------------------


def test_the_directory_is_made_with_its_parents_for_this_user_only(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    before = os.umask(0)
    try:
        persistence = FileHttpSessionPersistence(directory)
        persistence.start()
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o7777 for path in (directory, directory.parent)] == [0o700, 0o700]
    assert set(modes(directory).values()) == {0o600}
    persistence.stop()


async def test_every_file_is_for_this_user_only(
    data_dir: Path, persistence: FileHttpSessionPersistence
) -> None:
    before = os.umask(0)
    try:
        builder = LogBuilder(SESSION).start().finish("")
        log = await kept(persistence, builder)
        await persistence.mark(SESSION, "parked 0")
        await persistence.write_snapshot(SESSION, builder.snapshot)
        log.close()
        (data_dir / f"{SESSION}.ndjson").write_bytes(builder.content + b"torn")
        persistence.open_log(SESSION).close()
    finally:
        os.umask(before)
    assert set(modes(data_dir)) >= {f"{SESSION}{suffix}" for suffix in (".ndjson", ".json", ".open", ".torn")}
    assert set(modes(data_dir).values()) == {0o600}


def test_a_directory_of_our_own_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    directory = tmp_path / "sessions"
    directory.mkdir()
    directory.chmod(0o755)
    (directory / f"{SESSION}.torn").touch(0o600)
    persistence = FileHttpSessionPersistence(directory)
    persistence.start()
    persistence.stop()
    assert directory.stat().st_mode & 0o7777 == 0o700


def test_a_directory_that_holds_other_files_is_not_closed_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(StartupError, match=r"thesis\.txt.*chmod 700"):
        FileHttpSessionPersistence(tmp_path).start()
    assert modes(tmp_path).keys() == {"thesis.txt"}
    assert tmp_path.stat().st_mode & 0o7777 == 0o755
    tmp_path.chmod(0o700)
    persistence = FileHttpSessionPersistence(tmp_path)
    persistence.start()
    persistence.stop()


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartupError, match=r"is no directory.*--data-dir"):
        FileHttpSessionPersistence(tmp_path / "file").start()
    with pytest.raises(StartupError, match=r"file/below.*uid"):
        FileHttpSessionPersistence(tmp_path / "file" / "below").start()


def test_somebody_else_s_directory_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1234)
    with pytest.raises(StartupError, match=rf"{tmp_path} belongs to uid {owner}.*uid {owner + 1234}.*chown"):
        FileHttpSessionPersistence(tmp_path).start()


@pytest.mark.parametrize(
    "call", ["mkdir", "lstat", "lock", "open", "write", "rename", "names", "free_bytes", "fsync"]
)
def test_a_directory_that_cannot_be_used_is_a_startup_error_and_left_free(data_dir: Path, call: str) -> None:
    fs = FaultyFileSystem(fail_at=0, fail_error=errno.EACCES, fail_names=frozenset({call}))
    with pytest.raises(StartupError, match=rf"{data_dir} cannot be used by uid {os.geteuid()}: .*--data-dir"):
        FileHttpSessionPersistence(data_dir, fs=fs).start()
    persistence = FileHttpSessionPersistence(data_dir)
    persistence.start()
    persistence.stop()


def test_two_hosts_may_make_the_directory_at_the_same_moment(data_dir: Path) -> None:
    class Racing(FileSystem):
        """The other host is a moment faster."""

        def mkdir(self, path: str) -> None:
            super().mkdir(path)
            super().mkdir(path)

    persistence = FileHttpSessionPersistence(data_dir, fs=Racing())
    persistence.start()
    persistence.stop()


def test_stale_temporary_files_and_snapshots_of_nothing_are_swept(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o700)
    for name in (".tmp-0011223344556677", f"{SESSION}.json", f"{SESSION}.torn"):
        (data_dir / name).touch(0o600)
    persistence = FileHttpSessionPersistence(data_dir)
    persistence.start()
    persistence.stop()
    assert {path.name for path in data_dir.iterdir()} == {f"{SESSION}.torn", ".lock"}


def test_foreign_names_are_never_sessions(data_dir: Path, persistence: FileHttpSessionPersistence) -> None:
    for name in ("notes.txt", "ses_1.ndjson", f"{SESSION}.ndjson.bak", f"{SESSION.upper()}.ndjson", "x.open"):
        (data_dir / name).touch(0o600)
    (data_dir / f"{SESSION}.json").mkdir()
    assert (persistence.session_ids(), persistence.marks()) == ([], {})
    for path in data_dir.glob("*.ndjson"):
        path.unlink()


def test_names_with_a_path_in_them_never_reach_the_disk(data_dir: Path) -> None:
    fs = FaultyFileSystem()
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    for name in ("../x", f"{SESSION}/../{SESSION}", "CON", "a\0b", "x" * 300, "..%2f", SESSION + "\0"):
        with pytest.raises(SessionNotFound):
            persistence.open_log(SessionId(name))
        with pytest.raises(SessionNotFound):
            persistence.peek_log(SessionId(name))
    assert fs.calls == []


async def test_files_are_read_without_a_host(data_dir: Path, persistence: FileHttpSessionPersistence) -> None:
    builder = LogBuilder(SESSION).start().finish("")
    await kept(persistence, builder)
    await persistence.write_snapshot(SESSION, builder.snapshot)
    reader = FileHttpSessionPersistence(data_dir)
    assert reader.session_ids() == [SESSION]
    assert reader.marks() == {SESSION: MARK_RUNNING}
    assert reader.read_snapshot(SESSION) == builder.snapshot
    assert reader.peek_log(SESSION).read(0, 1 << 20) == builder.content


def test_a_directory_that_is_not_there_cannot_be_listed(data_dir: Path) -> None:
    with pytest.raises(StorageUnavailable, match="No such file"):
        FileHttpSessionPersistence(data_dir).session_ids()


# -- the lock --------------------------------------------------------------------------------------------------------


class Impatient(FileSystem):
    """Does not wait for a lock."""

    def lock(self, path: str, timeout_s: float) -> object:  # type: ignore[override]
        assert timeout_s <= 1.0
        return super().lock(path, 0.0)


def test_a_second_host_is_refused_and_told_who_holds_it(
    data_dir: Path, persistence: FileHttpSessionPersistence
) -> None:
    holder = orjson.loads((data_dir / ".holder").read_bytes())
    assert (holder["pid"], holder["host"]) == (os.getpid(), socket.gethostname())
    with pytest.raises(DirectoryInUse) as refused:
        FileHttpSessionPersistence(data_dir, fs=Impatient()).start()
    for part in (str(data_dir), str(os.getpid()), socket.gethostname(), holder["since"], "--data-dir"):
        assert part in str(refused.value)
    persistence.check_writable()


@pytest.mark.parametrize("holder", [None, b"", b"{", b"[]", b'{"pid":"x"}', b'{"pid":1,"host":2}'])
def test_a_holder_that_cannot_be_read_is_refused_without_a_name(
    data_dir: Path, persistence: FileHttpSessionPersistence, holder: bytes | None
) -> None:
    if holder is None:
        (data_dir / ".holder").unlink()
    else:
        (data_dir / ".holder").write_bytes(holder)
    with pytest.raises(DirectoryInUse, match="held by another host; stop that one"):
        FileHttpSessionPersistence(data_dir, fs=Impatient()).start()


def test_a_stopped_host_leaves_the_directory_free(data_dir: Path) -> None:
    for _ in range(3):
        persistence = FileHttpSessionPersistence(data_dir, fs=Impatient())
        persistence.start()
        persistence.stop()
        persistence.stop()
    assert not (data_dir / ".holder").exists()


def test_a_killed_host_s_directory_is_free_at_once(data_dir: Path) -> None:
    program = f"""
import os, signal
from zhin_host.storage.files import FileHttpSessionPersistence
FileHttpSessionPersistence({str(data_dir)!r}).start()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=30, check=False)
    assert done.returncode == -9
    assert (data_dir / ".holder").exists()
    persistence = FileHttpSessionPersistence(data_dir, fs=Impatient())
    persistence.start()
    assert orjson.loads((data_dir / ".holder").read_bytes())["pid"] == os.getpid()
    persistence.stop()


def test_the_lock_may_be_let_go_from_another_thread(data_dir: Path) -> None:
    persistence = FileHttpSessionPersistence(data_dir, fs=Impatient())
    persistence.start()
    stopping = threading.Thread(target=persistence.stop)
    stopping.start()
    stopping.join()
    again = FileHttpSessionPersistence(data_dir, fs=Impatient())
    again.start()
    again.stop()


def test_what_stands_in_the_lock_file_is_left_there(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o700)
    (data_dir / ".lock").write_bytes(b"kept")
    (data_dir / ".lock").chmod(0o600)
    persistence = FileHttpSessionPersistence(data_dir)
    persistence.start()
    persistence.stop()
    assert (data_dir / ".lock").read_bytes() == b"kept"


def test_whether_the_lock_is_held_is_asked_without_taking_it(data_dir: Path) -> None:
    fs = FaultyFileSystem()
    lock = str(data_dir / ".lock")
    assert not fs.is_locked(lock)
    assert not data_dir.exists()
    persistence = FileHttpSessionPersistence(data_dir)
    persistence.start()
    assert fs.is_locked(lock)
    persistence.stop()
    assert not fs.is_locked(lock)
    unlock = fs.lock(lock, 0.0)
    unlock()
    fs.fail_next(errno.EACCES, "open")
    with pytest.raises(PermissionError):
        fs.is_locked(lock)


# -- writing ---------------------------------------------------------------------------------------------------------


async def test_a_new_session_costs_one_directory_sync_and_many_share_it(data_dir: Path) -> None:
    class Held(FaultyFileSystem):
        """Its first directory sync waits to be let go."""

        started = threading.Event()
        go = threading.Event()

        def fsync(self, fd: int) -> None:
            self.started.set()
            self.go.wait(30)
            super().fsync(fd)

    fs = Held()
    fs.go.set()
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    fs.go.clear()
    fs.started.clear()
    fs.calls.clear()
    making = [asyncio.ensure_future(persistence.create_log(session_id_of(0)))]
    await asyncio.to_thread(fs.started.wait, 30)
    making += [
        asyncio.ensure_future(persistence.create_log(session_id_of(number))) for number in range(1, 40)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    fs.go.set()
    logs = await asyncio.gather(*making)
    assert fs.calls.count("fsync") <= 3
    for log in logs:
        persistence.discard_log(log)
    persistence.stop()


@pytest.mark.parametrize("call", ["open", "write", "fsync"])
async def test_a_session_that_cannot_be_made_leaves_nothing(data_dir: Path, call: str) -> None:
    fs = FaultyFileSystem()
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    fs.fail_next(errno.ENOSPC, call)
    with pytest.raises(StorageFull):
        await persistence.create_log(SESSION)
    assert (persistence.session_ids(), persistence.marks()) == ([], {})
    log = await persistence.create_log(SESSION)
    persistence.discard_log(log)
    persistence.stop()


async def test_a_stale_mark_does_not_stop_a_new_session(
    data_dir: Path, persistence: FileHttpSessionPersistence
) -> None:
    (data_dir / f"{SESSION}.open").write_bytes(b"parked 0")
    (data_dir / f"{SESSION}.open").chmod(0o600)
    await kept(persistence, LogBuilder(SESSION).start().finish(""))
    assert persistence.marks() == {SESSION: MARK_RUNNING}


async def test_a_mark_without_a_log_goes_when_the_session_is_opened(
    data_dir: Path, persistence: FileHttpSessionPersistence
) -> None:
    (data_dir / f"{SESSION}.open").touch(mode=0o600)
    with pytest.raises(SessionNotFound):
        persistence.open_log(SESSION)
    assert persistence.marks() == {}


async def test_with_the_directory_gone_no_session_is_called_unknown(
    data_dir: Path, persistence: FileHttpSessionPersistence
) -> None:
    await kept(persistence, LogBuilder(SESSION).start().finish(""))
    away = data_dir.with_name("away")
    await asyncio.to_thread(data_dir.rename, away)
    for opened in (persistence.open_log, persistence.peek_log):
        with pytest.raises(StorageUnavailable, match="bring the data directory back"):
            opened(SESSION)
    await asyncio.to_thread(away.rename, data_dir)


async def test_a_session_made_twice_keeps_its_mark(
    data_dir: Path, persistence: FileHttpSessionPersistence
) -> None:
    await kept(persistence, LogBuilder(SESSION).start())
    with pytest.raises(StorageUnavailable):
        await persistence.create_log(SESSION)
    assert persistence.marks() == {SESSION: MARK_RUNNING}


async def test_a_running_mark_that_is_durable_is_not_written_again(data_dir: Path) -> None:
    fs = FaultyFileSystem()
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    await kept(persistence, LogBuilder(SESSION).start().finish(""))
    fs.calls.clear()
    await persistence.mark(SESSION, MARK_RUNNING)
    assert fs.calls == []
    persistence.unmark([SESSION])
    await persistence.mark(SESSION, MARK_RUNNING)
    assert "fsync" in fs.calls
    persistence.stop()


async def test_a_mark_that_has_to_go_is_renamed_for_a_new_session_and_no_file_is_made(data_dir: Path) -> None:
    fs = FaultyFileSystem()
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    for number in range(1, 4):
        fs.calls.clear()
        instead_of = session_id_of(number - 1) if number > 1 else None
        await kept(persistence, LogBuilder(session_id_of(number)).start().finish(""), instead_of)
    made = fs.calls[: fs.calls.index("write")]
    assert made == ["rename", "open", "open", "fsync", "close", "fstat"]  # the mark, the log, the directory
    assert persistence.marks() == {session_id_of(3): MARK_RUNNING}
    persistence.stop()


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_mark_that_says_something_else_or_is_not_there_is_not_taken(
    data_dir: Path, *, is_there: bool
) -> None:
    persistence = FileHttpSessionPersistence(data_dir)
    persistence.start()
    await kept(persistence, LogBuilder(SESSION).start().finish(""))
    if is_there:
        await persistence.mark(SESSION, MARK_STOPPED)
    else:
        (data_dir / f"{SESSION}.open").unlink()
    await kept(persistence, LogBuilder(session_id_of(2)).start().finish(""), SESSION)
    assert persistence.marks() == {
        **({SESSION: MARK_STOPPED} if is_there else {}),
        session_id_of(2): MARK_RUNNING,
    }
    persistence.stop()


async def test_a_mark_whose_sync_failed_is_written_again(data_dir: Path) -> None:
    fs = FaultyFileSystem()
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    await kept(persistence, LogBuilder(SESSION).start().finish(""))
    persistence.unmark([SESSION])
    fs.fail_next(errno.EIO, "fsync")
    with pytest.raises(StorageUnavailable):
        await persistence.mark(SESSION, MARK_RUNNING)
    fs.calls.clear()
    await persistence.mark(SESSION, MARK_RUNNING)
    assert "fsync" in fs.calls
    persistence.stop()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"runn", b"x" * 500])
def test_a_mark_that_says_nothing_known_is_still_a_mark(
    data_dir: Path, persistence: FileHttpSessionPersistence, content: bytes
) -> None:
    (data_dir / f"{SESSION}.open").write_bytes(content)
    (mark,) = persistence.marks().values()
    assert mark not in ("stopped", "parked 0")


async def test_marks_that_cannot_be_removed_raise_nothing(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fs = FaultyFileSystem()
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    await kept(persistence, LogBuilder(SESSION).start().finish(""))
    fs.fail_next(errno.EROFS, "unlink")
    persistence.unmark([SESSION])
    assert persistence.marks() == {SESSION: MARK_RUNNING}
    assert "Read-only" in caplog.text
    persistence.stop()


async def test_a_snapshot_that_cannot_be_written_leaves_the_old_one(data_dir: Path) -> None:
    fs = FaultyFileSystem()
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    builder = LogBuilder(SESSION).start()
    log = await kept(persistence, builder)
    await persistence.write_snapshot(SESSION, builder.snapshot)
    old = builder.snapshot
    builder.finish("")
    log.append(builder.batches[-1], expected_bytes=log.size_bytes)
    for call in ("lstat", "open", "write", "rename"):
        fs.fail_next(errno.ENOSPC, call)
        with pytest.raises(StorageFull):
            await persistence.write_snapshot(SESSION, builder.snapshot)
        assert persistence.read_snapshot(SESSION) == old
    assert not [name for name in modes(data_dir) if name.startswith(".tmp")]
    await persistence.write_snapshot(SESSION, builder.snapshot)
    persistence.stop()


async def test_a_snapshot_that_cannot_be_read_is_none(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fs = FaultyFileSystem()
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    builder = LogBuilder(SESSION).start().finish("")
    await kept(persistence, builder)
    await persistence.write_snapshot(SESSION, builder.snapshot)
    fs.fail_next(errno.EIO, "pread")
    assert persistence.read_snapshot(SESSION) is None
    assert SESSION in caplog.text
    persistence.stop()


async def test_after_the_stop_nothing_is_written(
    data_dir: Path, persistence: FileHttpSessionPersistence
) -> None:
    builder = LogBuilder(SESSION).start().finish("")
    log = await kept(persistence, builder)
    persistence.stop()
    with pytest.raises(StorageUnavailable):
        await persistence.write_snapshot(SESSION, builder.snapshot)
    with pytest.raises(StorageUnavailable):
        await log.sync()


@pytest.mark.parametrize(
    ("error", "kind"),
    [(errno.ENOSPC, StorageFull), (errno.EDQUOT, StorageFull), (errno.EROFS, StorageUnavailable)],
)
async def test_whether_a_write_would_fail_is_found_by_writing(
    data_dir: Path, error: int, kind: type[StorageUnavailable]
) -> None:
    fs = FaultyFileSystem()
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    for call in ("open", "write"):
        fs.fail_next(error, call)
        with pytest.raises(StorageUnavailable) as refused:
            persistence.check_writable()
        assert type(refused.value) is kind
    persistence.check_writable()
    assert set(modes(data_dir)) == {".lock", ".holder"}
    persistence.stop()


def test_a_disk_without_a_free_block_is_full(data_dir: Path) -> None:
    class Full(FileSystem):
        is_full = False

        def free_bytes(self, directory: str) -> int:
            return 0 if self.is_full else super().free_bytes(directory)

    fs = Full()
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    fs.is_full = True
    with pytest.raises(StorageFull):
        persistence.check_writable()
    persistence.stop()


# -- the end of a session --------------------------------------------------------------------------------------------


async def test_no_byte_of_a_deleted_session_is_left(
    data_dir: Path, persistence: FileHttpSessionPersistence
) -> None:
    builder = LogBuilder(SESSION).start().finish("")
    log = await kept(persistence, builder)
    await persistence.write_snapshot(SESSION, builder.snapshot)
    log.close()
    (data_dir / f"{SESSION}.ndjson").write_bytes(builder.content + b"torn")
    persistence.open_log(SESSION).close()
    await persistence.delete(SESSION)
    assert set(modes(data_dir)) == {".lock", ".holder"}


async def test_a_session_that_cannot_be_deleted_is_said_to_stay(data_dir: Path) -> None:
    fs = FaultyFileSystem()
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    builder = LogBuilder(SESSION).start().finish("")
    await kept(persistence, builder)
    fs.fail_next(errno.EROFS, "unlink", count=None)
    with pytest.raises(StorageUnavailable):
        await persistence.delete(SESSION)
    fs.heal()
    assert persistence.open_log(SESSION).read(0, 1 << 20) == builder.content
    fs.fail_next(errno.EIO, "unlink")
    fs.fail_at = 1  # the log goes, what follows does not
    with pytest.raises(StorageUnavailable):
        await persistence.delete(SESSION)
    await persistence.delete(SESSION)
    assert set(modes(data_dir)) == {".lock", ".holder"}
    persistence.stop()


async def test_a_discarded_log_s_bytes_stay_in_the_torn_file(
    data_dir: Path, persistence: FileHttpSessionPersistence
) -> None:
    builder = LogBuilder(SESSION).start()
    log = await kept(persistence, builder)
    persistence.discard_log(log)
    assert (data_dir / f"{SESSION}.torn").read_bytes() == builder.content


async def test_a_log_that_cannot_be_discarded_stays(data_dir: Path) -> None:
    fs = FaultyFileSystem()
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    builder = LogBuilder(SESSION).start().finish("")
    log = await kept(persistence, builder)
    for call in ("open", "write", "datasync", "fsync", "unlink"):
        fs.fail_next(errno.EIO, call)
        with pytest.raises(StorageUnavailable):
            persistence.discard_log(log)
        assert log.read(0, 1 << 20) == builder.content
    persistence.stop()


# -- a power cut -----------------------------------------------------------------------------------------------------


async def test_what_was_promised_survives_a_power_cut(data_dir: Path) -> None:
    fs = ForgetfulFileSystem(data_dir)
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    builder = LogBuilder(SESSION).start().say("Hello")
    log = await kept(persistence, builder)
    await log.sync()
    synced = builder.content
    builder.finish("Hello")
    log.append(builder.batches[-1], expected_bytes=log.size_bytes)
    persistence.stop()
    fs.cut_power()
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    assert list(persistence.marks()) == [SESSION]
    log = persistence.open_log(SESSION)
    assert log.read(0, 1 << 20) == synced
    log.append(builder.batches[-1], expected_bytes=log.size_bytes)
    persistence.stop()


@pytest.mark.parametrize("before", ["running", "stopped", "parked 0", None])
@pytest.mark.parametrize("after", ["running", "stopped", "parked 1764428400123"])
async def test_a_mark_is_never_lost_or_empty_of_meaning_by_a_power_cut(
    data_dir: Path, before: str | None, after: str
) -> None:
    fs = ForgetfulFileSystem(data_dir)
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    log = await kept(persistence, LogBuilder(SESSION).start().finish(""))
    await log.sync()
    if before is None:
        persistence.unmark([SESSION])
    else:
        await persistence.mark(SESSION, before)
    await persistence.mark(SESSION, after)
    persistence.stop()
    fs.cut_power()
    (left,) = FileHttpSessionPersistence(data_dir).marks().values()
    assert left == after or (after == "running" and left == "")  # whatever is unknown counts as running


async def test_torn_bytes_are_safe_before_they_leave_the_log(data_dir: Path) -> None:
    fs = ForgetfulFileSystem(data_dir)
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    builder = LogBuilder(SESSION).start().finish("")
    log = await kept(persistence, builder)
    await log.sync()
    log.close()
    with (data_dir / f"{SESSION}.ndjson").open("ab") as file:
        file.write(b"torn")
    persistence.open_log(SESSION).close()
    persistence.stop()
    fs.cut_power()
    assert (data_dir / f"{SESSION}.torn").read_bytes() == b"torn"
    assert (data_dir / f"{SESSION}.ndjson").read_bytes() == builder.content


async def test_a_deletion_survives_a_power_cut(data_dir: Path) -> None:
    fs = ForgetfulFileSystem(data_dir)
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    builder = LogBuilder(SESSION).start().finish("")
    log = await kept(persistence, builder)
    await log.sync()
    log.close()
    await persistence.delete(SESSION)
    persistence.stop()
    fs.cut_power()
    assert FileHttpSessionPersistence(data_dir).session_ids() == []
