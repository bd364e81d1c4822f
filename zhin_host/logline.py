"""LogLine: a line of the host's own log, an event with named fields; how it is shown is the handler's business."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:@/+-]+")


class LogLine:
    """The message of a log record: `event name=value name=value` for whoever shows text.

    Attributes:
        event: What happened, as the events of a session are named: `turn.started`.
        fields: Ids, codes, names and numbers, camelCase; never what an agent or a person said, never a token.
    """

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: Mapping[str, object]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.event, *[f"{name}={_shown(value)}" for name, value in self.fields.items()]])


def tell(logger: logging.Logger, level: int, event: str, /, **fields: object) -> None:
    """Log a line; fields that are None are left out."""
    if logger.isEnabledFor(level):
        logger.log(
            level, LogLine(event, {name: value for name, value in fields.items() if value is not None})
        )


def _shown(value: object) -> str:
    return value if isinstance(value, str) and _PLAIN.fullmatch(value) else json.dumps(value)
