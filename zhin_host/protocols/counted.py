"""Counted: of a turn, and of the failed ones that it tries again, the events that count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from zhin_host import events as ev

_OF_THE_TURN_ALONE: Final = frozenset(
    {ev.TURN_STARTED, ev.TURN_FAILED, ev.SESSION_WAITING, ev.STEP_INTERRUPTED}
)


@dataclass(frozen=True, slots=True)
class Line:
    """One event as its line has it, the chain left to those who judge it."""

    index: int
    type: str
    timestamp_ms: int
    data: dict[str, Any]


def line_of(raw: bytes) -> Line:
    """The event of a whole line."""
    event = orjson.loads(raw)
    return Line(event["index"], event["type"], event["timestamp"], event["data"])


class Counted:
    """Takes the events of turns in order and keeps those of the last one that count (contract section 1).

    Attributes:
        turn_id: The last turn; "" before the first.
        events: Its events that count; of the failed turns that it tries again, what counts in it stands before them.
    """

    def __init__(self) -> None:
        self.turn_id = ""
        self.events: list[Line] = []

    def add(self, event: Line) -> None:
        """The next event. One before the first turn.started is passed over."""
        if event.type == ev.TURN_STARTED:
            self._begin(event)
        elif not self.turn_id:
            return
        elif event.type == ev.STEP_RESUMED:
            self._discard_from(event.data.get("discardFrom"))
            return
        self.events.append(event)

    def _begin(self, event: Line) -> None:
        if event.data.get("resumes") != self.turn_id:
            self.events = []
        else:
            self._discard_from(event.data.get("discardFrom"))
            failed = next((row.data for row in self.events if row.type == ev.TURN_FAILED), {})
            kept = _without_failure(self.events, failed.get("callId"))
            self.events = [row for row in kept if row.type not in _OF_THE_TURN_ALONE]
        self.turn_id = event.data["turnId"]

    def _discard_from(self, index: int | None) -> None:
        if index is not None:
            self.events = [row for row in self.events if row.index < index or row.type == ev.TURN_FAILED]


def _without_failure(events: Iterable[Line], call_id: str | None) -> list[Line]:
    """Without what is tried again: the result of the call that failed, and its request unless it was approved."""
    events = list(events)
    if call_id is None:
        return events
    asked = {
        row.data["requestId"] for row in events if row.type in ev.REQUESTS and row.data["callId"] == call_id
    }
    granted = {
        row.data["requestId"]
        for row in events
        if row.type == ev.INPUT_COMPLETED and row.data["outcome"] == "approved"
    }
    undone = asked - granted
    return [
        row
        for row in events
        if not (row.type == ev.ACTION_RESULT and row.data["callId"] == call_id)
        and row.data.get("requestId") not in undone
    ]
