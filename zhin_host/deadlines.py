"""Deadlines: when requests of sessions that are not in memory expire."""

from __future__ import annotations

import heapq

from zhin_host.clock import SessionId


class Deadlines:
    """Sessions by the time at which somebody has to look at them; one may be there more than once."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, SessionId]] = []  # the earliest first

    def add(self, session_id: SessionId, at_ms: int) -> None:
        """Have `take_due` name the session from that time on, milliseconds since the epoch; 0: never."""
        if at_ms:
            heapq.heappush(self._heap, (at_ms, session_id))

    def take_due(self, now_ms: int) -> list[SessionId]:
        """The sessions whose time has come, the earliest first; they are forgotten here."""
        due: list[SessionId] = []
        while self._heap and self._heap[0][0] <= now_ms:
            due.append(heapq.heappop(self._heap)[1])
        return due
