"""Framing: a turn as the server-sent events of a UI message stream, and a session as a JSON list of UI messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import orjson

from zhin_host import events as ev
from zhin_host.protocols.ai_sdk.parts import assistant_message, user_message
from zhin_host.protocols.ai_sdk.translation import Chunk, Translation
from zhin_host.protocols.counted import Counted, Line, line_of
from zhin_host.protocols.threads import RUN_ID

_KEEP_ALIVE: Final = b": keep-alive\n\n"
_DONE: Final = b"data: [DONE]\n\n"
_DROPPED: Final = "The session ended before this message had its turn."


class TurnFraming:
    """One turn, from its start or from a cursor, up to its end or to where only a person can bring it on.

    Args:
        session_id: The session.
        turn_id: The turn. Of other turns only the failed ones that it tries again are told, and what counts of them.
        cursor: What the client has.
        is_caught_up: Says whether all that is in the log has been framed.
    """

    headers: tuple[tuple[bytes, bytes], ...] = (
        (b"content-type", b"text/event-stream"),
        (b"x-vercel-ai-ui-message-stream", b"v1"),
    )

    def __init__(self, session_id: str, turn_id: str, cursor: int, is_caught_up: Callable[[], bool]) -> None:
        self._translation = Translation(session_id, cursor)
        self._turn_id = turn_id
        self._is_caught_up = is_caught_up
        self._before: Counted | None = Counted()  # until the turn starts
        self._is_silent = False
        self._was_dropped = False

    @property
    def is_over(self) -> bool:
        """Whether the turn has ended, or waits for a person while nothing else goes on.

        What runs beside the request is waited for: until it is done `ai` sends no answer. A call that a crash has cut
        off, though, runs no more before the answer comes; after a silence the stream ends in any case.
        """
        if self._was_dropped or self._translation.has_ended:
            return True
        if not self._is_caught_up():
            return False
        return self._translation.is_parked or (self._translation.waits_for_a_person and self._is_silent)

    def first(self) -> bytes:
        return b""

    def frame(self, block: bytes) -> bytes:
        self._is_silent = not block
        if not block:
            return _KEEP_ALIVE
        chunks: list[Chunk] = []
        for raw in block.splitlines():
            if self._translation.has_ended:
                break
            chunks += self._fed(line_of(raw))
        return _sse(chunks)

    def last(self) -> bytes | None:
        if self._was_dropped:
            return _sse([{"type": "error", "errorText": _DROPPED}]) + _DONE
        if (
            not self.is_over
        ):  # the host stops, or the session was deleted: no end that `ai` could take for one
            return None
        return _sse(self._translation.finish()) + _DONE

    def _fed(self, event: Line) -> list[Chunk]:
        if self._before is None:
            return self._translation.feed(event)
        if event.type in ev.SESSION_ENDS:
            self._was_dropped = True
        self._before.add(event)
        if self._before.turn_id != self._turn_id:
            return []
        before, self._before = self._before, None
        return _translated(self._translation, before)


class HistoryFraming:
    """A session read to its tail as a JSON list of UI messages; of a failed turn that was tried again, the last try."""

    headers: tuple[tuple[bytes, bytes], ...] = ((b"content-type", b"application/json"),)
    is_over = False

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._counted = Counted()
        self._message_id: str | None = None
        self._is_first = True

    def first(self) -> bytes:
        return b"["

    def frame(self, block: bytes) -> bytes:
        return b"".join(self._added(line_of(raw)) for raw in block.splitlines()) or b" "

    def last(self) -> bytes:
        return self._messages() + b"]"

    def _added(self, event: Line) -> bytes:
        told = b""
        if event.type == ev.SESSION_STARTED:
            self._message_id = (event.data.get("metadata") or {}).get(RUN_ID)
        elif event.type == ev.TURN_STARTED and event.data.get("resumes") is None:
            told = self._messages()
            if self._counted.turn_id:
                self._message_id = event.data.get("idempotencyKey")
        self._counted.add(event)
        return told

    def _messages(self) -> bytes:
        """What the user said in the turn that was read, and what the agent answered."""
        turn_id = self._counted.turn_id
        received = next((row for row in self._counted.events if row.type == ev.MESSAGE_RECEIVED), None)
        if received is None:
            return b""
        translation = Translation(self._session_id)
        chunks = _translated(translation, self._counted) + translation.finish()
        asked = user_message(self._message_id or f"user-{turn_id}", received.data["message"])
        told = b",".join(map(_json, (asked, assistant_message(chunks))))
        comma, self._is_first = b"" if self._is_first else b",", False
        return comma + told


def _translated(translation: Translation, turn: Counted) -> list[Chunk]:
    """The turn's events that count as chunks, its start first: what it took over from failed ones stands before it."""
    start = next(row for row in turn.events if row.type == ev.TURN_STARTED)
    chunks: list[Chunk] = []
    for event in (start, *(row for row in turn.events if row is not start)):
        chunks += translation.feed(event)
        if translation.has_ended:
            break
    return chunks


def _sse(chunks: Iterable[Chunk]) -> bytes:
    return b"".join(b"data: %b\n\n" % _json(chunk) for chunk in chunks)


def _json(value: Any) -> bytes:
    """The JSON of a chunk or a message, without what makes `ai` refuse a stream whole, now and at each replay."""
    raw = orjson.dumps(value)
    if b'"__proto__"' in raw or b'"constructor"' in raw:
        return orjson.dumps(_harmless(value))
    return raw


def _harmless(value: Any) -> Any:
    """Without the keys that would reach the prototype of an object: `ai` takes no JSON that has one."""
    if isinstance(value, list):
        return [_harmless(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: _harmless(item) for name, item in value.items() if not _reaches_prototype(name, item)}


def _reaches_prototype(name: str, item: Any) -> bool:
    return name == "__proto__" or (name == "constructor" and isinstance(item, dict) and "prototype" in item)
