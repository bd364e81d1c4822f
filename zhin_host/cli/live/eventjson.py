"""An event as a JSON line for programs."""

from __future__ import annotations

from zhin_host.cli.terminal import json_text
from zhin_host.events import Event


def event_json(event: Event) -> str:
    """Its members in the order of the log's line, on one line, without a newline."""
    return json_text(
        {
            "index": event.index,
            "type": event.type,
            "timestamp": event.timestamp_ms,
            "data": event.data,
            "sum": event.sum.decode("ascii"),
        }
    )
