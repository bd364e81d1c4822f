"""SaidText: what a turn has said so far, as its message.completed will tell it (contract.md section 1)."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from zhin_host.events import json_bytes

_HEAD_CHARACTERS: Final = 1_000
TRUNCATED_BYTES_MAX: Final = 6 * _HEAD_CHARACTERS + 512
"""What the truncated form of a text takes at most: a control character is six bytes in JSON."""
_JOIN_AFTER: Final = 256
_LINE_OVERHEAD_BYTES: Final = 512  # index, type, timestamp, sum and the other fields of the event


class SaidText:
    """The concatenation of deltas, kept whole while one line can hold it, then only its start, size and hash.

    Args:
        name: The field that holds the text, "message" or "reasoning".
        line_bytes_max: The line limit.
    """

    def __init__(self, name: str, line_bytes_max: int) -> None:
        self._name = name
        self._limit_bytes = line_bytes_max - _LINE_OVERHEAD_BYTES
        self._parts: list[str] = []
        self._size_bytes = 0
        self._hash = hashlib.sha256()
        self._head = ""

    def __bool__(self) -> bool:
        return bool(self._parts) or self._size_bytes > 0

    def add(self, delta: str) -> None:
        self._parts.append(delta)
        if len(self._parts) >= _JOIN_AFTER:
            self._join()

    def fields(self, *, beside_bytes: int = 0) -> dict[str, Any]:
        """The event's fields: the text, or its first 1,000 characters, truncated, its size and SHA-256.

        Args:
            beside_bytes: What the event's other fields take.
        """
        self._join()
        if self._is_whole():
            text = self._parts[0] if self._parts else ""
            room = self._limit_bytes - beside_bytes
            if len(text) * 6 <= room or len(json_bytes(text)) <= room:
                return {self._name: text}
        return {
            self._name: self._head,
            "truncated": True,
            f"{self._name}Bytes": self._size_bytes,
            f"{self._name}Sha256": self._hash.hexdigest(),
        }

    def _is_whole(self) -> bool:
        return self._size_bytes <= self._limit_bytes

    def _join(self) -> None:
        """Make one part of all; when no line can hold the text any more, forget all but what `fields` needs."""
        was_whole = self._is_whole()
        kept = self._parts[:1] if was_whole and self._size_bytes else []
        new = "".join(self._parts[len(kept) :])
        raw = new.encode()
        self._size_bytes += len(raw)
        self._hash.update(raw)
        if len(self._head) < _HEAD_CHARACTERS:
            self._head = (self._head + new)[:_HEAD_CHARACTERS]
        self._parts = ["".join([*kept, new])] if self._size_bytes and self._is_whole() else []
