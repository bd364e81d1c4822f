"""Connection: refused when descriptors run short, sent in whole pieces, and able to be broken off."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from typing import Any, Final, Literal

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from zhin_host.server.listening import BACKLOG

if sys.platform != "win32":
    import resource

ABORT: Final = "zhin.abort"
"""Key of scope["extensions"]: breaks the connection off; zhin_host.http.reply names it too."""

_DESCRIPTORS_KEPT: Final = 64  # for logs, snapshots, the lock and the loop (contract: RLIMIT_NOFILE - 64)
_KEEP_ALIVE_S: Final = 20  # longer than clients usually keep a connection: they meet no closing one
_LINGER_NOT: Final = struct.pack("ii", 1, 0)  # on, 0 seconds: closing resets the connection
_CORK_BYTES_MAX: Final = 64 * 1024
_HEAD_BYTES_MAX: Final = 64 * 1024  # of a request's line and headers, counted by what arrives at once


def _refusal(status: bytes, code: str, message: str, header: bytes = b"") -> bytes:
    """A whole response for a connection that is closed without asking the app."""
    body = f'{{"ok":false,"error":"{code}","message":"{message}"}}'.encode()
    return (
        b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n%bconnection: close\r\n"
        b"content-length: %d\r\n\r\n%b" % (status, header, len(body), body)
    )


_FULL: Final = _refusal(
    b"503 Service Unavailable",
    "STORAGE_UNAVAILABLE",
    "The host has no descriptors left for another connection; close some, or try again later.",
    b"retry-after: 2\r\n",
)
_HEAD_TOO_LARGE: Final = _refusal(
    b"431 Request Header Fields Too Large", "BAD_REQUEST", "The headers are too large; send less of them."
)


class CorkedTransport(asyncio.Transport):
    """A transport that sends what is written in one pass of the loop with one call of the system.

    uvicorn writes a response's head and its body apart, and each write would be a packet of its own.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0
        self.is_closing = transport.is_closing  # type: ignore[method-assign]  # asked with every request
        self.get_extra_info = transport.get_extra_info  # type: ignore[method-assign]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send at the end of this pass; at once when it is much, so that a slow reader is felt."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(bytes(data))
        self._size += len(data)
        if self._size >= _CORK_BYTES_MAX:
            self._flush()

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts, self._size = self._parts, [], 0
            if not self._transport.is_closing():
                self._transport.write(b"".join(parts))

    def close(self) -> None:
        """Send what is left, then close."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Drop what is left, and the connection."""
        self._parts = []
        self._transport.abort()


class Connection(HttpToolsProtocol):
    """A connection: refused when descriptors run short, and able to be broken off."""

    def __init__(
        self,
        config: ServerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._descriptor_max = config.descriptor_max
        self._is_in_head = False
        self._is_new_head = False
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self.transport = CorkedTransport(transport, self.loop)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.fileno() >= self._descriptor_max:
            self._refuse(_FULL)
            return
        # Who connects and says nothing is sent away like one who has said all (uvicorn waits for ever).
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_head:
            if not self._is_new_head:  # what came with its beginning may belong to the body before it
                self._head_bytes += len(data)
            self._is_new_head = False
            if self._head_bytes > _HEAD_BYTES_MAX and not self.transport.is_closing():
                self._refuse(_HEAD_TOO_LARGE)  # uvicorn would keep all that comes

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = self._is_new_head = True
        self._head_bytes = 0
        self.scope["extensions"] = {ABORT: self.abort}  # type: ignore[dict-item]  # a function, in this process only

    def _refuse(self, response: bytes) -> None:
        self.transport.write(response)
        self.transport.close()

    def abort(self) -> None:
        """Break the connection off: what is not sent yet is dropped, by the kernel too, since nobody reads it."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None and not self.transport.is_closing():
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        if self.cycle is not None:
            self.cycle.disconnected = True  # an unfinished response is then nothing to complain of
            self.cycle.message_event.set()
        self.transport.abort()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: a WebSocket that is asked for is answered as the request it also is."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open descriptors to the hard one; return the limit in force."""
    if sys.platform == "win32":  # it has no such limit
        return sys.maxsize
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # some systems refuse the hard limit they name
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


class ServerConfig(uvicorn.Config):
    """uvicorn's settings, and the first descriptor that is too many for a connection."""

    def __init__(self, app: ASGIApp, *, lifespan: Literal["on", "off"], log_level: int) -> None:
        super().__init__(
            app,
            http=Connection,
            ws="none",
            interface="asgi3",
            lifespan=lifespan,
            log_config=None,
            log_level=log_level,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # the guard compares Origin with what this server itself was asked
            workers=1,
            backlog=BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
        )
        self.descriptor_max = raise_descriptor_limit() - _DESCRIPTORS_KEPT
