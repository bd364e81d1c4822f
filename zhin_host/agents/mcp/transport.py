"""Transport: the two streams of a server, over its standard streams or HTTP, and word when they end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import anyio
import httpx2
from mcp.client import Transport
from mcp.client.stdio import StdioServerParameters, get_default_environment, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from zhin_host.agents.mcp import leash
from zhin_host.agents.mcp.servers import Command, Endpoint, Server

_HTTP_TIMEOUT_S: Final = 30.0  # to connect and to write; how long an answer may take is the call's own limit
_EVENT_BYTES_MAX: Final = 16 * 1024 * 1024  # of one result over HTTP; what is kept of it is far less

_Item = SessionMessage | Exception


class Watched:
    """The stream of a server's messages, which tells when it has come to its end.

    The client of the protocol says so only to those who wait for an answer then. Who asks next would find a session
    that looks open.
    """

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    @property
    def last_context(self) -> Any:
        """What the client looks for on the streams of HTTP."""
        return getattr(self._stream, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _Item:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> _Item:
        try:
            item: _Item = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._ended()
            raise
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def transport_of(server: Server, ended: Callable[[], None]) -> Transport:
    """What the client enters; `ended` is called, perhaps more than once, when the server's messages end.

    Entering it raises FileNotFoundError where there is no such command, and other OSErrors where it cannot be run.
    """

    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Any, Any]]:
        inner = _stdio(server) if isinstance(server, Command) else _http(server)
        async with inner as (reading, writing):
            yield Watched(reading, ended), writing

    return opened()


@asynccontextmanager
async def _http(endpoint: Endpoint) -> AsyncIterator[tuple[Any, Any]]:
    timeout = httpx2.Timeout(_HTTP_TIMEOUT_S, read=None)
    async with (
        httpx2.AsyncClient(headers=endpoint.headers, timeout=timeout) as client,
        streamable_http_client(
            endpoint.url, http_client=client, max_sse_event_size=_EVENT_BYTES_MAX
        ) as streams,
    ):
        yield streams


@asynccontextmanager
async def _stdio(server: Command) -> AsyncIterator[tuple[Any, Any]]:
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-I", "-S", leash.__file__, _program_of(server), *server.args],
        env=server.env,
        cwd=server.cwd,
        encoding_error_handler="replace",  # one wrong byte is one bad message, not the end of the session
    )
    async with stdio_client(parameters) as streams:
        yield streams


def _program_of(server: Command) -> str:
    """The program as it is run.

    Raises:
        FileNotFoundError: There is none: the leash could only say so on the host's standard error.
    """
    name = server.command
    if "/" in name:
        found = str(name) if (server.cwd or Path.cwd()).joinpath(name).is_file() else None
    else:
        found = shutil.which(name, path=(get_default_environment() | server.env).get("PATH"))
    if found is None:
        raise FileNotFoundError(f"there is no program {name!r:.200}")
    return found
