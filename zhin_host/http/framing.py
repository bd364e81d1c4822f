"""Framing: how a stream puts the bytes of a log on the wire: as they are, as server-sent events, or translated."""

from __future__ import annotations

import re
from typing import Final, Protocol

_EVENT = re.compile(rb'^\{"index":([0-9]+),"type":"([^"]+)".*\n', re.MULTILINE)
_SSE_FIRST: Final = b"retry: 1000\n\n"
_SSE_HEARTBEAT: Final = (
    b": heartbeat\n\nevent: ping\ndata: {}\n\n"  # without data a browser dispatches no event
)


class Framing(Protocol):
    """What one stream sends. One with a memory of what it has sent is made anew for each response.

    Attributes:
        headers: content-type, and what else belongs to the format.
        is_over: Whether the stream ends here, although the log goes on.
    """

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]: ...

    @property
    def is_over(self) -> bool: ...

    def first(self) -> bytes:
        """What is sent before the first block."""

    def frame(self, block: bytes) -> bytes:
        """What is sent for whole lines of the log, in order; for b"", a heartbeat."""

    def last(self) -> bytes | None:
        """What is sent at the end of a stream that was not broken off; None breaks it off.

        None is for a protocol in which an end says that the answer is whole: a client of a host that stops must see
        that it is not.
        """


class LogFraming:
    """Every line of the log, each as it is."""

    is_over = False

    def __init__(self, content_type: bytes) -> None:
        self.headers = ((b"content-type", content_type),)

    def first(self) -> bytes:
        return b""

    def frame(self, block: bytes) -> bytes:
        return block or b"\n"

    def last(self) -> bytes:
        return b""


class SseFraming(LogFraming):
    """Every line of the log as the data of a server-sent event of its type, with its index as the id."""

    def first(self) -> bytes:
        return _SSE_FIRST

    def frame(self, block: bytes) -> bytes:
        return _EVENT.sub(rb"id: \1\nevent: \2\ndata: \g<0>\n", block) if block else _SSE_HEARTBEAT


NDJSON: Final[Framing] = LogFraming(b"application/x-ndjson; charset=utf-8")
SSE: Final[Framing] = SseFraming(b"text/event-stream; charset=utf-8")
