"""Lines: bytes as they arrive, made into whole lines."""

from __future__ import annotations

from typing import Final

LINE_BYTES_MAX: Final = 64 * 1024 * 1024  # far above any host's own limit (1 MiB unless set otherwise)


class LineTooLong(ValueError):
    """A line does not end within the bound."""


class Lines:
    """Splits a body at 0x0A and at nothing else, wherever its parts were cut.

    Bytes are not decoded before a line is whole, so that a cut within a character or before a U+2028 is none.

    Args:
        line_bytes_max: What is held of a line that has not ended yet.
    """

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._begun: list[bytes] = []
        self._begun_bytes = 0

    @property
    def has_part(self) -> bool:
        """Whether a line has begun that has not ended."""
        return bool(self._begun)

    def feed(self, part: bytes) -> list[bytes]:
        """The lines that end in this part, without their newlines; an empty one is a heartbeat.

        Raises:
            LineTooLong: The line that has begun is over the bound.
        """
        first, *others = part.split(b"\n")
        if not others:
            self._keep(first)
            return []
        lines = [b"".join([*self._begun, first]), *others[:-1]]
        self._begun, self._begun_bytes = [], 0
        self._keep(others[-1])
        return lines

    def _keep(self, part: bytes) -> None:
        if part:
            self._begun.append(part)
            self._begun_bytes += len(part)
        if self._begun_bytes > self._line_bytes_max:
            raise LineTooLong(f"a line goes on after {self._line_bytes_max} bytes")
