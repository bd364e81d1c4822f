"""The audit of one session, or of each in a directory: log, snapshot, marker and modes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from zhin_host.audit.story import Story
from zhin_host.audit.verdict import Verdict
from zhin_host.clock import SessionId
from zhin_host.errors import StorageUnavailable
from zhin_host.ports import SessionLog, SessionPersistence
from zhin_host.snapshot import SnapshotError, cursor_of, decode_snapshot
from zhin_host.storage import names
from zhin_host.storage.files import FileHttpSessionPersistence

LINE_BYTES_MAX: Final = 1 << 20
_BLOCK_BYTES: Final = 1 << 20
_LINE_BYTES_HOPELESS: Final = 64 << 20  # where no newline comes for so long, none is waited for
_TRIES: Final = 3  # a log that a host appends to meanwhile may be caught between two writes


def audit_directory(
    directory: str | os.PathLike[str], *, line_bytes_max: int = LINE_BYTES_MAX
) -> list[Verdict]:
    """The verdict of each session in a data directory, oldest first. No lock is taken, nothing is written.

    Raises:
        StorageUnavailable: The directory cannot be listed.
    """
    persistence = FileHttpSessionPersistence(directory)
    return [
        audit_session(persistence, session_id, line_bytes_max=line_bytes_max)
        for session_id in persistence.session_ids()
    ]


def audit_session(
    place: SessionPersistence | str | os.PathLike[str],
    session_id: SessionId,
    *,
    limit_bytes: int | None = None,
    line_bytes_max: int = LINE_BYTES_MAX,
) -> Verdict:
    """The verdict of one session. Reads its files in blocks; may be called in any thread and beside its host.

    Args:
        place: The persistence, or the data directory.
        session_id: Which session.
        limit_bytes: Judge only so much of the log, which the caller knows to end with a whole batch.
        line_bytes_max: The setting under which the log was written.

    Raises:
        SessionNotFound: There is no such session.
        StorageUnavailable: Its log cannot be opened or read.
    """
    persistence = FileHttpSessionPersistence(place) if isinstance(place, str | os.PathLike) else place
    verdict, size_bytes = _audit(persistence, session_id, limit_bytes, line_bytes_max)
    for _ in range(_TRIES - 1):
        if verdict.ok or limit_bytes is not None or _size_of(persistence, session_id) == size_bytes:
            break
        verdict, size_bytes = _audit(persistence, session_id, limit_bytes, line_bytes_max)
    return verdict


def _audit(
    persistence: SessionPersistence, session_id: SessionId, limit_bytes: int | None, line_bytes_max: int
) -> tuple[Verdict, int]:
    """The verdict, and the size of the log it is of. What the host writes before the log is read first."""
    snapshot = persistence.read_snapshot(session_id)
    is_marked = _is_marked(persistence, session_id)
    log = persistence.peek_log(session_id)
    try:
        cursor = None if snapshot is None else cursor_of(snapshot)
        story = Story(session_id, line_bytes_max=line_bytes_max, stop_at=cursor and cursor["nextIndex"])
        whole_bytes = log.size_bytes
        for line in _lines(log, whole_bytes if limit_bytes is None else min(limit_bytes, whole_bytes)):
            story.take(line)
            if not story.is_readable:
                break
    finally:
        log.close()
    is_marked = is_marked or _is_marked(persistence, session_id)
    story.end(is_being_made=is_marked and whole_bytes == 0)
    state = story.state
    if (state.turn or state.queue) and not is_marked:
        story.fault("a turn is open or a message is queued and there is no .open file")
    if snapshot is not None and story.is_readable:
        _judge_snapshot(story, snapshot, whole_bytes)
    if isinstance(persistence, FileHttpSessionPersistence):
        _judge_files(story, persistence.directory, whole_bytes if limit_bytes is None else None)
    verdict = Verdict(
        session_id, state.next_index, state.offset, state.sum.decode("ascii"), tuple(story.faults)
    )
    return verdict, whole_bytes


def _lines(log: SessionLog, size_bytes: int) -> Iterator[bytes]:
    """The lines of the first `size_bytes` bytes, without newline; of a hopelessly long one its beginning."""
    offset, rest = 0, b""
    while offset < size_bytes:
        block = log.read(offset, min(_BLOCK_BYTES, size_bytes - offset))
        if not block:
            raise StorageUnavailable(f"The log of {log.session_id} ends at byte {offset}; audit it again.")
        offset += len(block)
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
        if len(rest) > _LINE_BYTES_HOPELESS:
            break
    if rest:
        yield rest


def _judge_snapshot(story: Story, snapshot: bytes, whole_bytes: int) -> None:
    state, cursor = story.state, cursor_of(snapshot)
    try:
        held = decode_snapshot(snapshot, state.session_id)
    except SnapshotError as error:
        story.fault(f"the snapshot cannot be used: {error}")
        if cursor is None:
            return
    else:
        if held.next_index > state.next_index and state.offset < held.offset <= whole_bytes:
            return  # it was written after the part of the log that is judged
    if cursor is not None and cursor["nextIndex"] > state.next_index:
        story.fault(
            f"the snapshot is of {cursor['nextIndex']} events and the log has {state.next_index}: "
            "this proves lost events"
        )
    elif story.wanted is not None:
        differing = _differences(snapshot, story.wanted)
        if differing:
            story.fault(f"the snapshot differs from the log in {', '.join(differing)}")


def _differences(snapshot: bytes, wanted: bytes) -> list[str]:
    """Names of the members in which two snapshots differ, the digest left out: it says nothing by itself."""
    held, folded = orjson.loads(snapshot), orjson.loads(wanted)  # its cursor was read, so it is JSON
    missing = object()
    return [
        name
        for name in dict.fromkeys((*folded, *held))
        if name != "digest" and held.get(name, missing) != folded.get(name, missing)
    ]


def _judge_files(story: Story, directory: str, whole_bytes: int | None) -> None:
    """Kinds and modes of the files, and, unless `whole_bytes` is None, what stands behind the last line."""
    session_id = story.state.session_id
    for name in (
        "",
        *(session_id + suffix for suffix in (names.LOG, names.SNAPSHOT, names.MARK, names.TORN)),
    ):
        try:
            facts = Path(directory, name).lstat()
        except OSError:
            continue
        mode = stat.S_IMODE(facts.st_mode)
        if mode & 0o077:
            promised = "0600" if name else "0700"
            story.fault(f"{name or 'the directory'} has mode {mode:04o}, {promised} is promised")
        if name and (not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1):
            story.fault(f"{name} is no regular file with one link")
        if name.endswith(names.LOG) and whole_bytes is not None and facts.st_size > whole_bytes:
            story.fault(f"a torn last line of {facts.st_size - whole_bytes} bytes")


def _is_marked(persistence: SessionPersistence, session_id: SessionId) -> bool:
    """Whether the session has its .open file; a directory is not read through for it."""
    if isinstance(persistence, FileHttpSessionPersistence):
        return os.path.lexists(Path(persistence.directory, session_id + names.MARK))
    return session_id in persistence.marks()


def _size_of(persistence: SessionPersistence, session_id: SessionId) -> int:
    log = persistence.peek_log(session_id)
    try:
        return log.size_bytes
    finally:
        log.close()
