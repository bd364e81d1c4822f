"""What the host's own log looks like on stderr: one line each, nothing in it that a terminal would obey."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

from zhin_host.cli.terminal import visible


class LineFormatter(logging.Formatter):
    """Time (UTC), level, logger, message. A traceback follows indented, so that no text in it passes for a line."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        line = f"{at}Z {record.levelname} {record.name}: {visible(record.getMessage())}"
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n    {visible(row)}" for row in trace.splitlines())
        return line


def log_to_stderr(level: str) -> None:
    """Send every logger's lines to stderr: the host's from `level` on, other libraries' warnings and worse."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("zhin_host").setLevel(level.upper())
    logging.captureWarnings(capture=True)
