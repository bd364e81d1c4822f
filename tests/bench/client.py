"""Client: one keep-alive connection that reads as little of HTTP as it can, the same for limits and host.

It shares two cores with the server it measures, so it counts bytes instead of parsing what it gets.
"""

from __future__ import annotations

import asyncio
import time
from typing import cast

_HEAD_END = b"\r\n\r\n"


class Connection(asyncio.Protocol):
    """A connection for one request at a time; of a response it knows status, length and chunks.

    Attributes:
        status: Of the last response.
        first_byte_s: When the first byte of its body came, by time.perf_counter; 0 before.
    """

    def __init__(self) -> None:
        self.status = 0
        self.first_byte_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] | None = None
        self._done: asyncio.Future[None] | None = None
        self._is_in_head = True
        self._is_chunked = False
        self._left = 0  # bytes of the body, or of the chunk with the line end behind it, that are to come
        self._rest = b""  # what came of a head or of a chunk's size that is not whole yet
        self._parts: list[bytes] = []

    async def call(self, request: bytes) -> bytes:
        """Send a request and wait for the whole body.

        Raises:
            ConnectionError: The server closed before its end.
        """
        self._send(request)
        return await self.rest()

    async def open(self, request: bytes) -> None:
        """Send a request and wait for the first byte of the body only; `rest` waits for its end.

        Raises:
            ConnectionError: The server closed before.
        """
        self._opened = asyncio.get_running_loop().create_future()
        self._send(request)
        await self._opened
        self._opened = None

    async def rest(self) -> bytes:
        """The body of the request that was opened, when it has ended."""
        assert self._done is not None
        await self._done
        return b"".join(self._parts)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _send(self, request: bytes) -> None:
        assert self._transport is not None
        self._parts = []
        self._is_in_head, self.first_byte_s = True, 0.0
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)

    # -- what the loop calls -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in (self._opened, self._done):
            if waiting is not None and not waiting.done():
                waiting.set_exception(ConnectionError("the server closed the connection"))
                waiting.exception()  # seen, where nobody waits for it

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            data = self._rest + data
            end = data.find(_HEAD_END)
            if end < 0:
                self._rest = data
                return
            self._rest = b""
            self._take_head(data[:end])
            data = data[end + len(_HEAD_END) :]
        if data:
            if not self.first_byte_s:
                self._begin_body()
            if self._is_chunked:
                self._take_chunks(data)
            else:
                self._parts.append(data)
                self._left -= len(data)
        if not self._is_chunked and self._left <= 0:
            self._finish()

    def _take_head(self, head: bytes) -> None:
        """Status, and how the body ends."""
        self._is_in_head = False
        self.status = int(head[9:12])
        self._is_chunked = b"\r\ntransfer-encoding: chunked" in head
        self._left = 0
        if not self._is_chunked:
            self._left = int(head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0])

    def _begin_body(self) -> None:
        self.first_byte_s = time.perf_counter()
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    def _take_chunks(self, data: bytes) -> None:
        if self._rest:
            data, self._rest = self._rest + data, b""
        at = self._within(data) if self._left else 0
        size, parts = len(data), self._parts
        while at < size:
            end = data.find(b"\r\n", at)
            if end < 0:
                break
            count = int(data[at:end], 16)
            start = end + 2
            stop = start + count
            if stop + 2 > size and (count == 0 or size <= start):
                break  # too little came to begin with it
            if count == 0:
                self._finish()
                return
            parts.append(data[start:stop])
            if stop + 2 > size:
                self._left = stop + 2 - size
                return
            at = stop + 2
        self._rest = data[at:]

    def _within(self, data: bytes) -> int:
        """Take what is left of a chunk; how many bytes of `data` that were."""
        body = min(len(data), self._left - 2)
        if body > 0:
            self._parts.append(data[:body])
        taken = min(len(data), self._left)
        self._left -= taken
        return taken

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


async def connect(port: int) -> Connection:
    """A connection to a server on this machine."""
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection
