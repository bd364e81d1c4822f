"""Transcript: the messages that a client should hold, so that a snapshot can set right what it holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

from zhin_host.clock import ULID_PATTERN
from zhin_host.intake import Message as Said

Row = Mapping[str, Any]
"""A message as the protocol writes it."""

SNAPSHOT_BYTES_MAX: Final = 8 << 20
"""A snapshot is one event, and the JavaScript client gives up at an event of 10 MiB."""

_TOLD = re.compile(f"turn_{ULID_PATTERN}-")


@dataclass(slots=True)
class Text:
    """What the agent said or thought in one go.

    Attributes:
        pieces: (index of the event, its delta), in order.
    """

    id: str
    role: Literal["assistant", "reasoning"]
    pieces: list[tuple[int, str]] = field(default_factory=list)

    def message(self) -> Row:
        return {"id": self.id, "role": self.role, "content": "".join(piece for _, piece in self.pieces)}


@dataclass(slots=True)
class Call:
    """One call, and its result once there is one.

    Attributes:
        index: Of the event that asked for it.
        arguments: As JSON.
        result: The message that tells how it ended.
    """

    id: str
    index: int
    call_id: str
    name: str
    arguments: str
    result: Row | None = None

    def message(self) -> Row:
        function = {"name": self.name, "arguments": self.arguments}
        call = {"id": self.call_id, "type": "function", "function": function}
        return {"id": self.id, "role": "assistant", "toolCalls": [call]}


@dataclass(slots=True)
class Asked:
    """What a person said, to begin a turn."""

    id: str
    said: Said
    is_held: bool = False

    def message(self) -> Row:
        return {"id": self.id, "role": "user", "content": self.said}


class Transcript:
    """Messages as they follow from the log, under the ids that the client has for them.

    The log does not know what a client calls a person's messages. Those that it holds already keep their ids: they
    are paired by their text, the newest first.

    Args:
        held: What the client holds, as its request said.
        keeps: Whether what it holds stands before what is read of the log, and stays; else the log is read from its
            start, and only ids are taken.
    """

    def __init__(self, held: Sequence[Row], *, keeps: bool) -> None:
        self._held = held
        self._keeps = keeps
        self._is_paired = False
        self._rows: list[Text | Call | Asked] = []
        self._calls: dict[str, Call] = {}
        self._turn_ids: list[str] = []

    def ask(self, turn_id: str, said: Said) -> None:
        """A turn received what a person said."""
        self._turn_ids.append(turn_id)
        self._rows.append(Asked(f"{turn_id}-message", said))

    def begin(self, text: Text) -> None:
        self._rows.append(text)

    def call(self, call: Call) -> None:
        self._rows.append(call)
        self._calls[call.call_id] = call

    def answer(self, call_id: str, result: Row) -> bool:
        """A call ended; False where it had ended before, otherwise: it was tried again."""
        call = self._calls.get(call_id)
        if call is None:
            return True
        is_first = call.result is None
        call.result = result
        return is_first

    def discard(self, index: int) -> None:
        """Take back what came from this event on: it does not count."""
        kept: list[Text | Call | Asked] = []
        for row in self._rows:
            match row:
                case Text():
                    row.pieces = [piece for piece in row.pieces if piece[0] < index]
                    if not row.pieces and row.role == "assistant":
                        continue
                case Call() if row.index >= index:
                    del self._calls[row.call_id]
                    continue
                case _:
                    pass
            kept.append(row)
        self._rows = kept

    def messages(self) -> list[Row]:
        """All of them, oldest first; the oldest are left out where a snapshot would be too large."""
        self._pair()
        rows = [row for row in self._rows if not (isinstance(row, Text) and not row.pieces)]
        if not any(isinstance(row, Text) and row.role == "reasoning" for row in rows):
            rows = (
                self._rows
            )  # a client keeps its reasoning where a snapshot has none: the empty ones replace it
        messages: list[Row] = []
        if self._keeps:
            made = tuple(f"{turn_id}-" for turn_id in self._turn_ids)
            messages += [row for row in self._held if row["role"] == "user" or not row["id"].startswith(made)]
        for row in rows:
            match row:
                case Call():
                    messages.append(row.message())
                    if row.result is not None:
                        messages.append(row.result)
                case Asked() if row.is_held and self._keeps:
                    pass
                case Asked() | Text():
                    messages.append(row.message())
        return _newest(messages)

    def _pair(self) -> None:
        """Give a person's messages the ids of the client's copies of them."""
        if self._is_paired:
            return
        self._is_paired = True
        places: dict[str, list[int]] = {}
        for at, row in enumerate(self._held):
            if row["role"] == "user":
                places.setdefault(held_text_of(row), []).append(at)
        end = len(self._held)
        for asked in reversed([row for row in self._rows if isinstance(row, Asked)]):
            free = places.get(text_of(asked.said), [])
            while free and free[-1] >= end:
                free.pop()
            if free:
                end = free.pop()
                asked.id, asked.is_held = self._held[end]["id"], True


def is_told(message: Row) -> bool:
    """Whether its id is one that the host gave it: it comes from the log."""
    return _TOLD.match(message["id"]) is not None


def text_of(said: Said) -> str:
    """What a person said, its parts joined."""
    return said if isinstance(said, str) else "".join(part["text"] for part in said)


def held_text_of(message: Row) -> str:
    """The text of a client's message of a person, its text parts joined."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


def _newest(messages: list[Row]) -> list[Row]:
    size = 0
    for at in reversed(range(len(messages))):
        size += len(orjson.dumps(messages[at]))
        if size > SNAPSHOT_BYTES_MAX:
            return messages[at + 1 :]
    return messages
