"""SessionIndex: the ids of every session there is, in memory and in order; nothing else of them."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable
from typing import Final

import orjson

from zhin_host.clock import Clock, SessionId, base32, new_session_id

LOOKED_AT_MAX: Final = 1_000
"""Sessions that one page of a list looks at, at the most; it may then be short (contract section 2)."""

_NAMED: Final = 16  # characters of a sessionId that a key decides: 80 bits


class SessionIndex:
    """Finds sessions by age and by the Idempotency-Key they were made with: both stand in the id."""

    def __init__(self) -> None:
        self._ids: list[SessionId] = []  # oldest first
        self._named: dict[str, SessionId] = {}  # the last 16 characters -> the newest id that has them

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, session_id: SessionId) -> bool:
        at = bisect.bisect_left(self._ids, session_id)
        return at < len(self._ids) and self._ids[at] == session_id

    def fill(self, session_ids: Iterable[SessionId]) -> None:
        """Take every session that the directory names, oldest first."""
        self._ids = list(session_ids)
        self._named = {session_id[-_NAMED:]: session_id for session_id in self._ids}

    def add(self, session_id: SessionId) -> None:
        bisect.insort(self._ids, session_id)
        self._named[session_id[-_NAMED:]] = session_id

    def discard(self, session_id: SessionId) -> None:
        if session_id in self:
            del self._ids[bisect.bisect_left(self._ids, session_id)]
            if self._named.get(session_id[-_NAMED:]) == session_id:
                del self._named[session_id[-_NAMED:]]

    def before(self, session_id: str | None) -> list[SessionId]:
        """The ids that sort before this one (all when None), newest first, at most LOOKED_AT_MAX."""
        end = len(self._ids) if session_id is None else bisect.bisect_left(self._ids, session_id)
        return self._ids[max(0, end - LOOKED_AT_MAX) : end][::-1]

    def keyed(self, name: str) -> SessionId | None:
        """The session whose id ends with what `name_of_key` made."""
        return self._named.get(name)


def name_of_key(caller: str | None, route: str, key: str) -> str:
    """The last 16 characters of a sessionId made with a key: 80 bits of SHA-256 of [caller, route, key]."""
    named = hashlib.sha256(orjson.dumps([caller, route, key])).digest()
    return base32(int.from_bytes(named[:10], "big"), _NAMED)


def keyed_session_id(clock: Clock, name: str) -> SessionId:
    """A new sessionId of now that ends with `name`."""
    return SessionId(new_session_id(clock)[:-_NAMED] + name)
