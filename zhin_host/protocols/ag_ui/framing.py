"""Framing: one run of a thread as server-sent events, from where it begins or from where the client is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import orjson

from zhin_host.protocols.ag_ui.translation import Event, Translation

_HEARTBEAT: Final = b": heartbeat\n\n"


class RunFraming:
    """One run. It is over when the turn ends or waits for a person, although the log may go on.

    A run that waits ends with the first silence: a turn may ask several people at once, one event after another, and
    a client learns of what stands in the last event only.

    Args:
        translation: This run's own.
        restate_at: Index of the last event that the client may have been told of: up to it nothing is sent, then
            snapshots, then what comes. -1: everything is sent.
        answered: Requests that are being answered: the run does not end because they were open there.
        settle: Called when the turn waits for nothing but a person: a silence should come soon.
    """

    headers = ((b"content-type", b"text/event-stream; charset=utf-8"),)

    def __init__(
        self,
        translation: Translation,
        *,
        settle: Callable[[], object],
        restate_at: int = -1,
        answered: Collection[str] = (),
    ) -> None:
        self.is_over = False
        self._translation = translation
        self._settle = settle
        self._restate_at = restate_at
        self._answered = frozenset(answered)
        self._is_told = restate_at < 0

    def first(self) -> bytes:
        return b""

    def frame(self, block: bytes) -> bytes:
        if not block:
            return self._silence()
        parts: list[bytes] = []
        for line in block.splitlines():
            event = orjson.loads(line)
            told = self._event(event["index"], event["type"], event["data"])
            parts += [_encoded(row, event["timestamp"]) for row in told]
            if self.is_over:
                break
        else:
            if self._is_told and self._translation.is_stuck:
                self._settle()
        return b"".join(parts)

    def last(self) -> bytes:
        return b""  # a stream that is cut off is no end of the run: a client reads on with connect

    def _event(self, index: int, kind: str, data: dict[str, Any]) -> Iterable[Event]:
        told = list(self._translation.event(index, kind, data))
        if not self._is_told:
            if index < self._restate_at:
                return ()
            self._is_told = True
            return self._restated()
        self.is_over = self._translation.ending is not None
        return told

    def _restated(self) -> Iterable[Event]:
        translation = self._translation
        yield from translation.restated()
        if translation.ending is not None:
            self.is_over = True
            yield translation.ending
        elif translation.waits and self._answered.isdisjoint(translation.waits):
            self.is_over = True
            yield from translation.interrupted()

    def _silence(self) -> bytes:
        """Nothing has come for a while; a run that waits for a person waits no longer for what runs beside."""
        if not (self._is_told and self._translation.waits):
            return _HEARTBEAT
        self.is_over = True
        return b"".join(_encoded(event, None) for event in self._translation.interrupted())


def _encoded(event: Event, at_ms: int | None) -> bytes:
    """One server-sent event; each says when its line was written."""
    return b"data: %b\n\n" % orjson.dumps(event if at_ms is None else {**event, "timestamp": at_ms})
