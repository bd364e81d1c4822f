"""Exchanges: a conversation of messages with roles, parted where a person speaks: what a history is shortened by.

Cut elsewhere, it would hold a tool's result without the call that asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def exchanges_of(messages: Sequence[Any]) -> list[list[Any]]:
    """The messages in their order, a list for each exchange; each but perhaps the first begins with a user's."""
    exchanges: list[list[Any]] = []
    for message in messages:
        if message.get("role") == "user" or not exchanges:
            exchanges.append([])
        exchanges[-1].append(message)
    return exchanges


def newest_exchanges(messages: Sequence[Any], bytes_max: int, size_of: Callable[[Any], int]) -> list[Any]:
    """The messages of the newest whole exchanges that fit, oldest first.

    Args:
        messages: In their order.
        bytes_max: How long they may be together.
        size_of: How long one is.
    """
    room = bytes_max
    kept: list[Any] = []
    for exchange in reversed(exchanges_of(messages)):
        room -= sum(map(size_of, exchange))
        if room < 0:
            break
        kept[:0] = exchange
    return kept
