"""Log: what a session's file holds, read without the host, whatever state it was left in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson


def whole_events(log: Path) -> list[dict[str, Any]]:
    """The events of the log's whole lines, up to the first that is none."""
    events = []
    for line in log.read_bytes().split(b"\n")[:-1]:
        try:
            events.append(orjson.loads(line))
        except orjson.JSONDecodeError:
            break
    return events


def open_turn(events: list[dict[str, Any]]) -> tuple[bool, bool]:
    """Whether a turn is open, and whether a request of it waits for a person."""
    is_open, pending = False, set[str]()
    for event in events:
        match event["type"]:
            case "turn.started":
                is_open = True
            case "turn.completed" | "turn.failed" | "turn.cancelled":
                is_open = False
                pending.clear()
            case "input.requested" | "authorization.required":
                pending.add(event["data"]["requestId"])
            case "input.completed" | "authorization.completed":
                pending.discard(event["data"]["requestId"])
            case _:
                pass
    return is_open, bool(pending)
