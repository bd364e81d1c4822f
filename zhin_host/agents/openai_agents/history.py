"""History: the conversation that the next turn begins with, in as many whole exchanges as fit."""

from __future__ import annotations

import json
from typing import Any, Final

HISTORY_BYTES: Final = 256 * 1024  # of JSON; each turn writes it once, so it bounds what a turn costs


def exchanges_within(limit_bytes: int, items: list[Any]) -> list[Any]:
    """The newest whole exchanges whose JSON is no longer than that, oldest first.

    An exchange begins with a person's message: cut in between, it would hold a tool's output without the call. Of a
    last exchange that is too long by itself only the message and the answer are kept; nothing when they are too long.
    """
    kept: list[Any] = []
    size_bytes = 0
    exchanges = _exchanges(items)
    for exchange in reversed(exchanges):
        size_bytes += _size_bytes(exchange)
        if size_bytes > limit_bytes:
            break
        kept = [*exchange, *kept]
    if not kept and exchanges:
        short = [item for item in exchanges[-1] if item.get("role") == "user"][:1]
        short += [item for item in exchanges[-1] if item.get("role") == "assistant"][-1:]
        kept = short if _size_bytes(short) <= limit_bytes else []
    return kept


def _exchanges(items: list[Any]) -> list[list[Any]]:
    exchanges: list[list[Any]] = []
    for item in items:
        if item.get("role") == "user" or not exchanges:
            exchanges.append([])
        exchanges[-1].append(item)
    return exchanges


def _size_bytes(items: list[Any]) -> int:
    return sum(len(json.dumps(item, default=str)) for item in items)
