"""What the host's own log looks like on stderr: text or JSON, a line each, nothing in it that a terminal would obey."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Final, Literal, get_args

from zhin_host.cli.terminal import json_text, visible
from zhin_host.logline import LogLine

LogFormat = Literal["text", "json"]
FORMATS: Final[tuple[LogFormat, ...]] = get_args(LogFormat)


class _UtcFormatter(logging.Formatter):
    """Times in ISO 8601, UTC, to the millisecond."""

    converter: Callable[[float | None], time.struct_time] = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format: str | None = "%s.%03dZ"


class LineFormatter(_UtcFormatter):
    """Time (UTC), level, logger, message. A traceback follows indented, so that no text in it passes for a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record)} {record.levelname} {record.name}: {visible(record.getMessage())}"
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n    {visible(row)}" for row in trace.splitlines())
        return line


class JsonFormatter(_UtcFormatter):
    """An object a line: time, level, logger, event and its fields.

    What is a sentence and no event of ours has the event `log`, the sentence as `message`, and a traceback as
    `traceback`.
    """

    def format(self, record: logging.LogRecord) -> str:
        row: dict[str, object] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if isinstance(record.msg, LogLine):
            row |= {"event": record.msg.event, **record.msg.fields}
        else:
            row |= {"event": "log", "message": record.getMessage()}
        if record.exc_info:
            row["traceback"] = self.formatException(record.exc_info)
        return json_text(row)


def log_to_stderr(level: str, log_format: LogFormat = "text") -> None:
    """Send every logger's lines to stderr: the host's from `level` on, other libraries' warnings and worse."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else LineFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("zhin_host").setLevel(level.upper())
    logging.captureWarnings(capture=True)
