"""The earlier messages of a session, read off its log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from zhin_host import events as ev
from zhin_host.ports import SessionLog

_BLOCK_BYTES: Final = 1 << 20
_WANTED: Final = frozenset(
    {
        ev.TURN_STARTED,
        ev.TURN_COMPLETED,
        ev.STEP_RESUMED,
        ev.MESSAGE_RECEIVED,
        ev.MESSAGE_APPENDED,
        ev.MESSAGE_COMPLETED,
    }
)


def read_history(log: SessionLog, before_index: int) -> list[dict[str, str]]:
    """Role ("user" or "assistant") and content of every message before the event `before_index`, oldest first.

    A turn that did not complete gives its message and no answer. Runs in a thread: it reads the whole log.
    """
    messages: list[dict[str, str]] = []
    said: list[tuple[int, str]] = []
    answer = ""
    for index, kind, data in _events(log, log.offset_of(before_index)):
        match kind:
            case ev.TURN_STARTED if (
                "resumes" in data
            ):  # the same message once more, and what was said of its answer
                messages.pop()
                said = [row for row in said if row[0] < data.get("discardFrom", index)]
            case ev.TURN_STARTED:
                said, answer = [], ""
            case ev.MESSAGE_RECEIVED:
                messages.append({"role": "user", "content": text_of(data["message"])})
            case ev.MESSAGE_APPENDED:
                said.append((index, data["messageDelta"]))
            case ev.MESSAGE_COMPLETED:
                answer = "".join(delta for _, delta in said) if data.get("truncated") else data["message"]
            case ev.STEP_RESUMED if "discardFrom" in data:
                said = [row for row in said if row[0] < data["discardFrom"]]
            case ev.TURN_COMPLETED:
                messages.append({"role": "assistant", "content": answer})
            case _:
                pass
    return messages


def text_of(message: str | list[dict[str, str]]) -> str:
    """A message as text: its parts, a newline between them."""
    return message if isinstance(message, str) else "\n".join(part["text"] for part in message)


def _events(log: SessionLog, end: int) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Index, type and data of the wanted events before byte `end`."""
    offset, rest, index = 0, b"", 0
    while offset < end:
        block = log.read(offset, min(_BLOCK_BYTES, end - offset))
        if not block:
            return
        offset += len(block)
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            kind = line[line.index(b'"type":"') + 8 :].split(b'"', 1)[0].decode("ascii")
            if kind in _WANTED:
                yield index, kind, orjson.loads(line)["data"]
            index += 1
