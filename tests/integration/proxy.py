"""A proxy between a client and a host, with the faults of real ones: it cuts, swallows and falls silent."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a connection.

    Attributes:
        after_bytes: So many bytes of the host's are passed on first.
        is_silent: Then nothing more comes, and the connection stays; else it is cut.
    """

    after_bytes: int
    is_silent: bool = False


class Proxy:
    """Passes bytes on.

    Attributes:
        port: Where it listens.
        faults: Of the next connections; then they have none.
        connections: How many there were.
        sent: What clients have sent, all connections together.
    """

    def __init__(self, to_port: int) -> None:
        self.port = 0
        self.faults: deque[Fault] = deque()
        self.connections = 0
        self.sent = b""
        self._to_port = to_port
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        fault = self.faults.popleft() if self.faults else None
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            to_reader, to_writer = await asyncio.open_connection("localhost", self._to_port)
            self._writers |= {writer, to_writer}
            try:
                up = asyncio.create_task(self._up(reader, to_writer))
                with contextlib.suppress(ConnectionError):
                    await self._down(to_reader, writer, fault)
                up.cancel()
                await asyncio.wait((up,))
            finally:
                to_writer.transport.abort()
                self._writers -= {writer, to_writer}
        except OSError:
            pass  # no host is there
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(65_536):
                self.sent += part
                writer.write(part)
                await writer.drain()
        writer.close()

    async def _down(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault | None
    ) -> None:
        left = fault.after_bytes if fault is not None else 1 << 60
        while part := await reader.read(65_536):
            writer.write(part[:left])
            await writer.drain()
            left -= len(part[:left])
            if not left and fault is not None and not fault.is_silent:
                return

    async def end(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def proxied(to_port: int) -> AsyncIterator[Proxy]:
    """A proxy to the port, until the block ends."""
    proxy = Proxy(to_port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
        await server.wait_closed()
