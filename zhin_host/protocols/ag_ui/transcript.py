"""Transcript: the messages that a client should hold, so that a snapshot can set right what it holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson
from ag_ui.core import (
    AssistantMessage,
    FunctionCall,
    Message,
    ReasoningMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

from zhin_host.clock import ULID_PATTERN
from zhin_host.intake import Message as Said

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

    def message(self) -> Message:
        content = "".join(piece for _, piece in self.pieces)
        if self.role == "reasoning":
            return ReasoningMessage(id=self.id, content=content)
        return AssistantMessage(id=self.id, content=content)


@dataclass(slots=True)
class Call:
    """One call, and its result once there is one.

    Attributes:
        index: Of the event that asked for it.
        result: The message that tells how it ended.
    """

    id: str
    index: int
    call: ToolCall
    result: ToolMessage | None = None


@dataclass(slots=True)
class Asked:
    """What a person said, to begin a turn."""

    id: str
    said: Said
    is_held: bool = False

    def message(self) -> Message:
        if isinstance(self.said, str):
            return UserMessage(id=self.id, content=self.said)
        return UserMessage(id=self.id, content=[TextPart(text=part["text"]) for part in self.said])


class Transcript:
    """Messages as they follow from the log, under the ids that the client has for them.

    The log does not know what a client calls a person's messages. Those that it holds already keep their ids: they
    are paired by their text, the newest first.

    Args:
        held: What the client holds, as its request said.
        keeps: Whether what it holds stands before what is read of the log, and stays; else the log is read from its
            start, and only ids are taken.
    """

    def __init__(self, held: Sequence[Message], *, keeps: bool) -> None:
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
        self._calls[call.call.id] = call

    def answer(self, call_id: str, result: ToolMessage) -> bool:
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
                    del self._calls[row.call.id]
                    continue
                case _:
                    pass
            kept.append(row)
        self._rows = kept

    def messages(self) -> list[Message]:
        """All of them, oldest first; the oldest are left out where a snapshot would be too large."""
        self._pair()
        rows = [row for row in self._rows if not (isinstance(row, Text) and not row.pieces)]
        if not any(isinstance(row, Text) and row.role == "reasoning" for row in rows):
            rows = (
                self._rows
            )  # a client keeps its reasoning where a snapshot has none: the empty ones replace it
        messages: list[Message] = []
        if self._keeps:
            made = tuple(f"{turn_id}-" for turn_id in self._turn_ids)
            messages += [row for row in self._held if row.role == "user" or not row.id.startswith(made)]
        for row in rows:
            match row:
                case Call():
                    messages.append(AssistantMessage(id=row.id, tool_calls=[row.call]))
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
            if isinstance(row, UserMessage):
                places.setdefault(held_text_of(row), []).append(at)
        end = len(self._held)
        for asked in reversed([row for row in self._rows if isinstance(row, Asked)]):
            free = places.get(text_of(asked.said), [])
            while free and free[-1] >= end:
                free.pop()
            if free:
                end = free.pop()
                asked.id, asked.is_held = self._held[end].id, True


def call_of(call_id: str, name: str, arguments: Any) -> ToolCall:
    """A call as a message holds it; its arguments as JSON."""
    return ToolCall(id=call_id, function=FunctionCall(name=name, arguments=orjson.dumps(arguments).decode()))


def is_told(message: Message) -> bool:
    """Whether its id is one that the host gave it: it comes from the log."""
    return _TOLD.match(message.id) is not None


def text_of(said: Said) -> str:
    """What a person said, its parts joined."""
    return said if isinstance(said, str) else "".join(part["text"] for part in said)


def held_text_of(message: UserMessage) -> str:
    """The text of a client's message, its text parts joined."""
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text for part in message.content if isinstance(part, TextPart))


def _newest(messages: list[Message]) -> list[Message]:
    size = 0
    for at in reversed(range(len(messages))):
        size += len(messages[at].model_dump_json(by_alias=True))
        if size > SNAPSHOT_BYTES_MAX:
            return messages[at + 1 :]
    return messages
