"""History: the conversation that the next turn begins with, in as many whole exchanges as fit."""

from __future__ import annotations

import json
from typing import Any, Final

from zhin_host.agents.exchanges import exchanges_of, newest_exchanges

HISTORY_BYTES: Final = 256 * 1024  # of JSON; each turn writes it once, so it bounds what a turn costs


def exchanges_within(limit_bytes: int, items: list[Any]) -> list[Any]:
    """The newest whole exchanges whose JSON is no longer than that, oldest first.

    An exchange begins with a person's message: cut in between, it would hold a tool's output without the call. Of a
    last exchange that is too long by itself only the message and the answer are kept; nothing when they are too long.
    """
    kept = newest_exchanges(items, limit_bytes, _size_bytes)
    if not kept and items:
        last = exchanges_of(items)[-1]
        short = [item for item in last if item.get("role") == "user"][:1]
        short += [item for item in last if item.get("role") == "assistant"][-1:]
        kept = short if sum(map(_size_bytes, short)) <= limit_bytes else []
    return kept


def _size_bytes(item: Any) -> int:
    return len(json.dumps(item, default=str))
