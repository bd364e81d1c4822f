"""Pruning: which sessions of a data directory may go and shall go, and their removal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from zhin_host.clock import SessionId
from zhin_host.errors import SessionNotFound, StorageUnavailable
from zhin_host.recovery import peek
from zhin_host.storage import names
from zhin_host.storage.files import FileHttpSessionPersistence


@dataclass(frozen=True, slots=True)
class Found:
    """A session as its files say it.

    Attributes:
        size_bytes: Of all its files.
        updated_at_ms: Time of its last event.
        held: Why it may not be removed; "" when it may.
    """

    session_id: SessionId
    size_bytes: int
    updated_at_ms: int
    held: str


@dataclass(frozen=True, slots=True)
class Rules:
    """What shall go: each rule that is given takes sessions, the one with the oldest last event first.

    Attributes:
        older_than_ms: Those whose last event is older.
        keep: All but so many of the newest.
        size_bytes_max: As many as it takes until the rest is no larger.
    """

    older_than_ms: int | None = None
    keep: int | None = None
    size_bytes_max: int | None = None


def find(persistence: FileHttpSessionPersistence, session_ids: Iterable[SessionId]) -> Iterator[Found]:
    """Look at sessions. What counts is the fold of the log: a mark may be stale, or missing."""
    for session_id in session_ids:
        try:
            hydrated = peek(persistence, session_id)
        except SessionNotFound:
            continue
        except StorageUnavailable as error:
            yield Found(session_id, _size_of(persistence, session_id), 0, f"it cannot be read: {error}")
            continue
        state = hydrated.state
        if hydrated.fault is not None:
            held = f"its log is broken at event {hydrated.fault.index}, and what follows cannot be judged"
        elif state.turn is not None:
            held = "a turn is open" if not state.pending else "it waits for a person"
        elif state.queue:
            held = "a message is queued"
        elif state.owes or state.next_index == 0 or _is_torn(persistence, session_id, state.offset):
            held = "a crash cut its end off; start a host, or use `zhin-host repair`"
        else:
            held = ""
        yield Found(session_id, _size_of(persistence, session_id), state.updated_at_ms, held)


def chosen(found: Iterable[Found], rules: Rules, now_ms: int) -> list[Found]:
    """What the rules take, oldest last event first; what is held is among it and says why it stays."""
    by_age = sorted(found, key=lambda one: (one.updated_at_ms, one.session_id))
    taken: set[SessionId] = set()
    if rules.older_than_ms is not None:
        taken |= {one.session_id for one in by_age if now_ms - one.updated_at_ms > rules.older_than_ms}
    if rules.keep is not None:
        taken |= {one.session_id for one in by_age[: max(0, len(by_age) - rules.keep)]}
    if rules.size_bytes_max is not None:
        left = sum(one.size_bytes for one in by_age if one.held or one.session_id not in taken)
        for one in by_age:
            if left <= rules.size_bytes_max:
                break
            if not one.held and one.session_id not in taken:
                taken.add(one.session_id)
                left -= one.size_bytes
    return [one for one in by_age if one.session_id in taken]


async def remove(persistence: FileHttpSessionPersistence, found: Iterable[Found]) -> None:
    """Remove some sessions, not too many at once; they share one sync. The caller holds the directory.

    Of each the log goes first: killed in between, no session is left, and what is left of its files is no part of one.

    Raises:
        StorageUnavailable: One cannot be removed; others were.
    """
    await asyncio.gather(*(persistence.delete(one.session_id) for one in found))


def _size_of(persistence: FileHttpSessionPersistence, session_id: SessionId) -> int:
    return sum(
        _file_size(Path(persistence.directory, session_id + suffix))
        for suffix in (names.LOG, names.SNAPSHOT, names.MARK, names.TORN)
    )


def _file_size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _is_torn(persistence: FileHttpSessionPersistence, session_id: SessionId, offset: int) -> bool:
    return _file_size(Path(persistence.directory, session_id + names.LOG)) != offset
