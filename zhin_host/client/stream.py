"""Stream: a session's events from a cursor on, over as many connections as it takes (contract section 2, Streams)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal

import httpx
import orjson

from zhin_host import events as ev
from zhin_host.client.errors import ConnectionLost, GaveUp, HistoryChanged, Refused, StorageUnavailable
from zhin_host.client.lines import Lines, LineTooLong
from zhin_host.client.patience import Tries
from zhin_host.client.wire import Wire, session_path

Until = Literal["boundary", "tail", "never"]


class EventStream:
    """One reading of a session. Every event comes once, whole and in order, whatever happens to connections.

    A connection that breaks, ends early, falls silent or says what is no event costs nothing but a new one from the
    cursor; a line that was not whole is thrown away. The chain of sums is checked on the way.

    Args:
        wire: To the host.
        session_id: The session.
        start: Index of the first event wanted; negative counts from the tail.
        until: As the host takes it: when the reading ends.
        link: Sum of the event before `start`, when that one was read.

    Attributes:
        cursor: Index of the next event.
        link: Sum of the event before it, None while none was read.
    """

    def __init__(
        self, wire: Wire, session_id: str, start: int, until: Until, link: bytes | None = None
    ) -> None:
        self.cursor = start
        self.link = ev.chain_start(session_id) if start == 0 else link
        self._wire = wire
        self._session_id = session_id
        self._until = until
        self._tries = Tries(wire.patience)
        self._has_read = link is not None
        self._tail: int | None = None
        self._is_boundary = False

    async def events(self) -> AsyncGenerator[ev.Event, None]:
        """The events from the cursor on, until the session is where `until` says. Close it to leave.

        Called again it goes on.

        Raises:
            Refused: The host said no: SessionNotFound once the session is deleted.
            BadResponse: Something else than a host answered.
            GaveUp: It was tried for as long as patience lasts, without a sign of life.
            HistoryChanged: The log does not follow on what was read.
        """
        self._tries = Tries(self._wire.patience)
        while True:
            self._tail = None
            try:
                async with aclosing(self._connection()) as events:
                    async for event in events:
                        yield event
                        if event.type in ev.SESSION_ENDS:
                            return
                if await self._is_at_end():
                    return
                cause: ConnectionLost | Refused = ConnectionLost("The stream ended before its end.")
            except ConnectionLost as error:
                if self._has_ended():
                    return
                cause = error
            except Refused as error:
                if not error.is_transient:
                    raise
                cause = error
            if not await self._tries.pause(cause.retry_after_s):
                raise GaveUp(self._session_id, max(self.cursor, 0), self._tries.count) from cause

    async def _connection(self) -> AsyncGenerator[ev.Event, None]:
        """What one connection brings; it returns where the body ends well, and raises where it breaks."""
        parameters: dict[str, str | int] = {"startIndex": self.cursor, "until": self._until}
        now_s, heartbeat_s = self._wire.patience.now_s, await self._wire.heartbeat_s()
        path, silence_s = session_path(self._session_id, "/stream"), self._wire.silence_s(heartbeat_s)
        async with self._wire.stream(path, parameters, silence_s) as response:
            self._open(response)
            opened_s, lines = now_s(), Lines()
            async for part in response.aiter_raw():
                if now_s() - opened_s >= heartbeat_s:  # it lives: more than the first byte came
                    self._tries.succeeded()
                for line in _whole(lines, part):
                    event = self._event_of(line) if line else None
                    if event is not None:
                        self._tries.succeeded()
                        yield event
            if lines.has_part:
                raise ConnectionLost("The stream ended within a line.")

    def _open(self, response: httpx.Response) -> None:
        told = response.headers.get("x-zhin-tail-index", "")
        self._tail = int(told) if told.removeprefix("-").isdecimal() else None
        if self._tail is None:
            return
        if self.cursor < 0:
            self.cursor = max(0, self._tail + 1 + self.cursor)
            self.link = ev.chain_start(self._session_id) if self.cursor == 0 else None
        if self._has_read and self.cursor > self._tail + 1:
            raise HistoryChanged(self._session_id, self._tail + 1)

    def _event_of(self, line: bytes) -> ev.Event | None:
        """The event of a line, None when it was there before.

        Raises:
            ConnectionLost: It is none, or not the next one.
            HistoryChanged: It is the next one of another story.
        """
        parts = ev.split_line(line)
        if parts is None:
            raise ConnectionLost("A line came that is no event.")
        if 0 <= parts.index < self.cursor:
            return None
        if parts.index > self.cursor >= 0:
            raise ConnectionLost(f"Event {parts.index} came where {self.cursor} was due.")
        if self.link is not None and ev.chain(self.link, ev.payload_of(line)) != parts.sum:
            raise HistoryChanged(self._session_id, parts.index)
        try:
            data = orjson.loads(parts.data)
        except orjson.JSONDecodeError as error:
            raise ConnectionLost(f"The data of event {parts.index} is not JSON.") from error
        event = ev.Event(parts.index, parts.type, parts.timestamp_ms, data, parts.sum)
        self.cursor, self.link, self._has_read = event.index + 1, event.sum, True
        self._is_boundary = is_boundary(event)
        return event

    def _has_ended(self) -> bool:
        """Whether what came reaches to where `until` says, however the connection ended."""
        if self._tail is None or self.cursor <= self._tail:
            return False
        return self._until == "tail" or (self._until == "boundary" and self._is_boundary)

    async def _is_at_end(self) -> bool:
        """Whether a body that ended well ended where `until` says: a host that stops ends its streams well too."""
        if self._has_ended():
            return True
        view = await self._wire.call(
            "GET", session_path(self._session_id), session_id=self._session_id, cursor=max(self.cursor, 0)
        )
        if view.get("brokenAt") == self.cursor:
            message = f"Event {self.cursor} of session {self._session_id} cannot be read; somebody must mend its log."
            raise StorageUnavailable("STORAGE_UNAVAILABLE", 503, message, {"index": self.cursor})
        is_over = view["status"] in ("completed", "failed")
        is_enough = self._until == "tail" or (self._until == "boundary" and view["status"] == "waiting")
        return (is_over or is_enough) and self.cursor >= view["cursor"]


def is_boundary(event: ev.Event) -> bool:
    """Whether a session is at rest behind this event: nothing is queued, or a person is waited for, or it is over."""
    if event.type == ev.SESSION_WAITING:
        return bool(event.data["parked"]) or not event.data.get("queued")
    return event.type in ev.SESSION_ENDS


def _whole(lines: Lines, part: bytes) -> list[bytes]:
    try:
        return lines.feed(part)
    except LineTooLong as error:
        raise ConnectionLost(f"The stream is no stream of events: {error}.") from error
