"""FileHttpSessionPersistence: the log, the snapshot and the marker of each session in one directory."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from zhin_host.clock import SessionId
from zhin_host.config import Fsync
from zhin_host.errors import SessionNotFound, StorageUnavailable
from zhin_host.ports import MARK_RUNNING, SessionLog
from zhin_host.storage import names
from zhin_host.storage.crew import SyncCrew
from zhin_host.storage.fs import FileSystem, storage_error
from zhin_host.storage.kernel import best_crew
from zhin_host.storage.log import SessionEventLog, move_to_torn, open_mended, peek
from zhin_host.storage.place import Place
from zhin_host.storage.sharing import SharedRun

_logger = logging.getLogger("zhin_host.storage")
_MARK_BYTES_MAX: Final = 64


class FileHttpSessionPersistence:
    """Sessions as plain files, as contract.md section 3 lists them; implements ports.SessionPersistence.

    Without `start` it may be read from (session_ids, marks, peek_log, read_snapshot): the files need no host.

    Args:
        directory: Made with its parents when it is missing. A link to a directory is followed once, here.
        fsync: never: nothing is synced, and what is promised to survive a power cut does not.
        fs: The operating system.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, fsync: Fsync = "boundary", fs: FileSystem | None = None
    ) -> None:
        self.directory = os.path.realpath(directory)
        self._fs = fs if fs is not None else FileSystem()
        self._place = Place(self.directory, self._fs)
        self._is_syncing = fsync != "never"
        self._crew = best_crew(self._fs) if fs is None else SyncCrew(fs)
        self._shared_name_sync = SharedRun("sync of names")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="zhin-snapshot")
        self._writing: dict[SessionId, Future[None]] = {}
        self._running: set[SessionId] = (
            set()
        )  # marks that are "running" and synced: setting them again is free

    def start(self) -> None:
        self._sweep_orphans(self._place.take())

    def stop(self) -> None:
        self._writer.shutdown()
        self._crew.stop()
        self._place.let_go()

    def check_writable(self) -> None:
        self._place.check_writable()

    # -- which there are -----------------------------------------------------------------------------------

    def session_ids(self) -> list[SessionId]:
        return sorted(self._sessions_with(names.LOG))

    def marks(self) -> dict[SessionId, str]:
        return {
            session_id: self._mark_of(session_id) for session_id in sorted(self._sessions_with(names.MARK))
        }

    def last_written_ms(self, session_id: SessionId) -> int:
        try:
            return self._fs.lstat(self._path(session_id, names.LOG)).st_mtime_ns // 1_000_000
        except OSError:
            return 0

    def _sessions_with(self, suffix: str) -> set[SessionId]:
        try:
            (found,) = names.sessions_of(self._fs.names(self.directory), suffix)
        except OSError as error:
            raise storage_error(error, "list the data directory") from error
        return found

    def _mark_of(self, session_id: SessionId) -> str:
        """What the mark says; one that cannot be read counts as running."""
        try:
            return self._fs.read_file(self._path(session_id, names.MARK), _MARK_BYTES_MAX).decode("ascii")
        except (OSError, UnicodeDecodeError):
            return MARK_RUNNING

    def _sweep_orphans(self, found: list[str]) -> None:
        """A snapshot without its log is a cache of nothing, left by a deletion that was cut short."""
        with_snapshot, with_log = names.sessions_of(found, names.SNAPSHOT, names.LOG)
        for session_id in with_snapshot - with_log:
            self._fs.unlink_quietly(self._path(session_id, names.SNAPSHOT))
            _logger.warning("session %s: it has a snapshot and no log; the snapshot was removed", session_id)

    # -- logs ----------------------------------------------------------------------------------------------

    async def create_log(self, session_id: SessionId, instead_of: SessionId | None = None) -> SessionLog:
        # The mark first: killed in between, a mark without a log is swept, a log without a mark would lie there.
        try:
            self._make_mark(session_id, instead_of)
            log = SessionEventLog.create(
                session_id, self._path(session_id, names.LOG), fs=self._fs, crew=self._log_crew
            )
        except StorageUnavailable:
            if not self._has_log(session_id):
                self._remove(session_id, names.MARK)
            raise
        try:
            await self._sync_names()
        except BaseException:  # cancelled too: nobody was told of this session
            log.close()
            self._remove(session_id, names.LOG, names.MARK)
            raise
        self._running.add(session_id)
        return log

    def open_log(self, session_id: SessionId) -> SessionLog:
        try:
            log = open_mended(
                session_id,
                self._path(session_id, names.LOG),
                self._path(session_id, names.TORN),
                fs=self._fs,
                crew=self._log_crew,
            )
        except SessionNotFound:
            self.unmark([session_id])
            raise
        if log is None:
            self._remove(session_id, names.MARK)
            raise SessionNotFound(session_id)
        return log

    def peek_log(self, session_id: SessionId) -> SessionLog:
        return peek(session_id, self._path(session_id, names.LOG), fs=self._fs)

    def discard_log(self, log: SessionLog) -> None:
        session_id = log.session_id
        whole = log.read(0, log.size_bytes)
        try:
            move_to_torn(session_id, self._path(session_id, names.TORN), whole, self._fs)
            self._fs.unlink(self._path(session_id, names.LOG))
        except OSError as error:
            raise storage_error(error, f"discard the log of {session_id}") from error
        log.close()
        self._remove(session_id, names.MARK, names.SNAPSHOT)

    def _has_log(self, session_id: SessionId) -> bool:
        try:
            self._fs.lstat(self._path(session_id, names.LOG))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise storage_error(error, f"find the log of {session_id}") from error
        return True

    @property
    def _log_crew(self) -> SyncCrew | None:
        return self._crew if self._is_syncing else None

    # -- snapshots -----------------------------------------------------------------------------------------

    def read_snapshot(self, session_id: SessionId) -> bytes | None:
        try:
            return self._fs.read_file(self._path(session_id, names.SNAPSHOT))
        except (FileNotFoundError, SessionNotFound):
            return None
        except OSError as error:
            _logger.warning("session %s: its snapshot cannot be read: %s", session_id, error)
            return None

    async def write_snapshot(self, session_id: SessionId, snapshot: bytes) -> None:
        if not self._has_log(session_id):
            raise SessionNotFound(session_id)  # deleted meanwhile: no byte of it may come back
        try:
            under_way = self._writer.submit(self._replace_snapshot, session_id, snapshot)
        except RuntimeError:
            raise StorageUnavailable("The data directory was let go; start the host again.") from None
        self._writing[session_id] = under_way
        written = asyncio.wrap_future(under_way)
        written.add_done_callback(lambda _: self._forget_writing(session_id, under_way))
        await asyncio.shield(written)

    def _replace_snapshot(self, session_id: SessionId, snapshot: bytes) -> None:
        try:
            self._fs.replace(self.directory, session_id + names.SNAPSHOT, snapshot, is_synced=False)
        except OSError as error:
            raise storage_error(error, f"write the snapshot of {session_id}") from error

    def _forget_writing(self, session_id: SessionId, under_way: Future[None]) -> None:
        if self._writing.get(session_id) is under_way:
            del self._writing[session_id]

    async def _snapshots_written(self, session_id: SessionId) -> None:
        """Wait for the snapshots that the thread has yet to write, however they end.

        There is one thread, so when the last one is written, all are. Its own waiter hears how it ended.
        """
        while (under_way := self._writing.get(session_id)) is not None:
            written = asyncio.wrap_future(under_way)
            await asyncio.wait([written])
            written.exception()
            self._forget_writing(session_id, under_way)

    # -- marks ---------------------------------------------------------------------------------------------

    async def mark(self, session_id: SessionId, text: str) -> None:
        if text == MARK_RUNNING and session_id in self._running:
            return
        self._running.discard(session_id)
        self._write_mark(session_id, text)
        await self._sync_names()
        if text == MARK_RUNNING:
            self._running.add(session_id)

    def _make_mark(self, session_id: SessionId, instead_of: SessionId | None) -> None:
        """The mark of a new session: one that has to go and says running, or else a new file.

        A rename costs less than a file made and one removed: ext4 looks long for a free inode after removals.
        """
        try:
            if instead_of is not None and self._has_taken(instead_of, session_id):
                return
            # In its place, since until the text is there, empty counts as running.
            fd = self._fs.open(self._path(session_id, names.MARK), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                self._fs.write_all(fd, MARK_RUNNING.encode("ascii"))
            finally:
                self._fs.close_quietly(fd)
        except FileExistsError:
            self._write_mark(session_id, MARK_RUNNING)
        except OSError as error:
            raise storage_error(error, f"mark {session_id} as {MARK_RUNNING}") from error

    def _has_taken(self, other: SessionId, session_id: SessionId) -> bool:
        """Whether the other session's mark is this one's now."""
        if other not in self._running:
            return False
        self._running.discard(other)
        try:
            self._fs.rename(self._path(other, names.MARK), self._path(session_id, names.MARK))
        except FileNotFoundError:  # somebody tidied up
            return False
        return True

    def _write_mark(self, session_id: SessionId, text: str) -> None:
        """Replace the mark as a whole: at no moment is it missing.

        Only what is not `running` is synced before it takes the name: an empty mark counts as running, and
        no other text may be read in part.
        """
        path = self._path(session_id, names.MARK)
        try:
            self._fs.replace(
                self.directory,
                os.path.basename(path),
                text.encode("ascii"),
                is_synced=self._is_syncing and text != MARK_RUNNING,
            )
        except OSError as error:
            raise storage_error(error, f"mark {session_id} as {text}") from error

    def unmark(self, session_ids: Iterable[SessionId]) -> None:
        for session_id in session_ids:
            with contextlib.suppress(SessionNotFound):
                self._remove(session_id, names.MARK)

    # -- end -----------------------------------------------------------------------------------------------

    async def delete(self, session_id: SessionId) -> None:
        log_path = self._path(session_id, names.LOG)
        await self._snapshots_written(session_id)
        # No await from here to the last name: nothing may be written in between.
        try:
            self._fs.unlink(log_path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise storage_error(error, f"delete session {session_id}") from error
        self._remove(session_id, names.SNAPSHOT, names.MARK, names.TORN, is_strict=True)
        await self._sync_names()

    def _remove(self, session_id: SessionId, *suffixes: str, is_strict: bool = False) -> None:
        """Remove files in this order; none behind one that stays, so that a mark named last still finds it."""
        self._running.discard(session_id)
        for suffix in suffixes:
            try:
                self._fs.unlink(self._path(session_id, suffix))
            except FileNotFoundError:
                continue
            except OSError as error:
                if is_strict:
                    raise storage_error(error, f"remove {session_id}{suffix}") from error
                _logger.warning("cannot remove %s%s: %s", session_id, suffix, error)
                return

    async def _sync_names(self) -> None:
        if self._is_syncing:
            await self._shared_name_sync(self._sync_directory)

    async def _sync_directory(self) -> None:
        try:
            fd = self._fs.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                await self._crew.fsync(fd)
            finally:
                self._fs.close_quietly(fd)
        except OSError as error:
            raise storage_error(error, "sync the data directory") from error

    def _path(self, session_id: SessionId, suffix: str) -> str:
        return os.path.join(self.directory, names.checked(session_id) + suffix)
