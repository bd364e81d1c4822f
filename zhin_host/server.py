"""Server: uvicorn that drains before it waits for connections, and that leaves descriptors for the logs.

uvicorn waits for open responses before it tells the app to stop, so one open stream would hold every stop for
long. Here the host is drained first, with the port still answering; then connections are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import struct
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from types import FrameType
from typing import Any, Final, Literal

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import HANDLED_SIGNALS, ServerState

from zhin_host.errors import StartupError

if sys.platform != "win32":
    import resource

_logger = logging.getLogger("zhin_host.server")

ABORT: Final = "zhin.abort"
"""Key of scope["extensions"]: breaks the connection off; zhin_host.http.reply names it too."""

_DESCRIPTORS_KEPT: Final = 64  # for logs, snapshots, the lock and the loop (contract: RLIMIT_NOFILE - 64)
_BACKLOG: Final = 2048
_CLOSE_TIMEOUT_S: Final = 1.0  # streams have ended by then, unless their reader takes nothing
_KEEP_ALIVE_S: Final = 20  # longer than clients usually keep a connection: they meet no closing one
_LINGER_NOT: Final = struct.pack("ii", 1, 0)  # on, 0 seconds: closing resets the connection
_CORK_BYTES_MAX: Final = 64 * 1024
_HEAD_BYTES_MAX: Final = 64 * 1024  # of a request's line and headers, counted by what arrives at once


def _refusal(status: bytes, code: str, message: str) -> bytes:
    """A whole response for a connection that is closed without asking the app."""
    body = f'{{"ok":false,"error":"{code}","message":"{message}"}}'.encode()
    return (
        b"HTTP/1.1 %b\r\ncontent-type: application/json\r\nretry-after: 2\r\n"
        b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)
    )


_FULL: Final = _refusal(
    b"503 Service Unavailable",
    "STORAGE_UNAVAILABLE",
    "The host has no descriptors left for another connection; close some, or try again later.",
)
_HEAD_TOO_LARGE: Final = _refusal(
    b"431 Request Header Fields Too Large", "BAD_REQUEST", "The headers are too large; send less of them."
)

Address = tuple[str, int]


def serve(
    app: ASGIApp,
    *,
    host: str,
    port: int,
    start: Callable[[], Awaitable[None]] | None = None,
    drain: Callable[[], Awaitable[None]] | None = None,
    ready: Callable[[Sequence[Address]], None] | None = None,
    lifespan: Literal["on", "off"] = "off",
    log_level: int = logging.WARNING,
) -> bool:
    """Serve the app until SIGTERM or SIGINT; a second signal does not wait for the drain.

    Args:
        app: What to serve.
        host: Name or address to listen on.
        port: 0 for any free one.
        start: Awaited in the loop before the first connection is accepted; what it raises is raised here.
        drain: Awaited when a signal came, with the port still open; it ends the streams.
        ready: Called with the addresses, once connections are accepted.
        lifespan: Whether to send the app lifespan events as well.
        log_level: From which level on uvicorn says what it does.

    Returns:
        Whether the drain came to its end, or there was none to do.

    Raises:
        StartupError: The address cannot be listened on; or what `start` raises.
    """
    sockets = bind(host, port)
    try:
        stoppable = _Stoppable(app)
        config = _Config(stoppable, lifespan=lifespan, log_level=log_level)
        server = _Server(config, stoppable, start=start, drain=drain, ready=ready)
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(server.serve(sockets))
    finally:
        for listener in sockets:
            listener.close()
    return not server.force_exit


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of `host`, all on one port.

    Listening begins here: only that says for certain that the port is free. What connects is answered
    once the host has started.

    Raises:
        StartupError: There is no such address, or the port is in use or not ours to take.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise StartupError(
            f"There is no address {host!r} here: {error.strerror}; choose another --host."
        ) from None
    sockets: list[socket.socket] = []
    try:
        for family, _, protocol, _, address in dict.fromkeys(found):
            taken = sockets[0].getsockname()[1] if sockets else port
            sockets.append(_listen(family, protocol, (address[0], taken, *address[2:])))
    except OSError as error:
        for listener in sockets:
            listener.close()
        raise StartupError(_why_not(error, host, port)) from None
    return sockets


def _listen(family: int, protocol: int, address: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(
        family, socket.SOCK_STREAM, protocol
    )  # named, asyncio sets TCP_NODELAY; else it waits
    try:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart need not wait a minute
        if family == socket.AF_INET6:
            listener.setsockopt(
                socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1
            )  # the other has a socket of its own
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _why_not(error: OSError, host: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"Port {port} of {host} is in use; stop what listens there, or choose another --port."
        case errno.EACCES:
            return f"Port {port} of {host} may not be taken by this user; choose a --port above 1023."
        case _:
            return f"{host} port {port} cannot be listened on: {error.strerror}; choose another --host."


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


class _Config(uvicorn.Config):
    """uvicorn's settings, and the first descriptor that is too many for a connection."""

    def __init__(self, app: ASGIApp, *, lifespan: Literal["on", "off"], log_level: int) -> None:
        super().__init__(
            app,
            http=_Protocol,
            ws="none",
            interface="asgi3",
            lifespan=lifespan,
            log_config=None,
            log_level=log_level,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # the guard compares Origin with what this server itself was asked
            workers=1,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
        )
        self.descriptor_max = raise_descriptor_limit() - _DESCRIPTORS_KEPT


class _CorkedTransport(asyncio.Transport):
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


class _Protocol(HttpToolsProtocol):
    """A connection: refused when descriptors run short, and able to be broken off."""

    def __init__(
        self,
        config: _Config,
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
        self.transport = _CorkedTransport(transport, self.loop)
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


class _Stoppable:
    """The app; what the stop has to cancel in it ends without a trace in the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.is_stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self.is_stopping:
                raise


class _Server(uvicorn.Server):
    """uvicorn's server with another way of starting and stopping."""

    def __init__(
        self,
        config: _Config,
        app: _Stoppable,
        *,
        start: Callable[[], Awaitable[None]] | None,
        drain: Callable[[], Awaitable[None]] | None,
        ready: Callable[[Sequence[Address]], None] | None,
    ) -> None:
        super().__init__(config)
        self._app = app
        self._start = start
        self._drain = drain
        self._ready = ready
        self._forced = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the host, accept connections, say so. A signal that came meanwhile stops the server then."""
        self._loop = asyncio.get_running_loop()
        if self._start is not None and not await self._finish(self._start):
            self.should_exit = True
            return
        await super().startup(sockets)
        if self.started and self._ready is not None:
            self._ready([listener.getsockname()[:2] for listener in sockets or []])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, close the connections, then do what uvicorn does."""
        try:
            if self._drain is not None:
                await self._finish(self._drain)
        finally:
            self._app.is_stopping = True
            await self._close_connections()
            await super().shutdown(sockets)

    async def _finish(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Wait until `work` is done, False when a second signal cut it short; its error is raised here."""
        working = asyncio.ensure_future(work())
        forced = asyncio.create_task(self._forced.wait(), name="zhin-forced-stop")
        await asyncio.wait((working, forced), return_when=asyncio.FIRST_COMPLETED)
        forced.cancel()
        if working.done():
            working.result()
            return True
        working.cancel()
        await asyncio.wait((working,), timeout=_CLOSE_TIMEOUT_S)  # for its clean-up
        return False

    async def _close_connections(self) -> None:
        """Let responses end that still can; break the others off, whose readers take nothing."""
        connections = self.server_state.connections
        for connection in tuple(connections):
            connection.shutdown()
        deadline_s = asyncio.get_running_loop().time() + _CLOSE_TIMEOUT_S
        while (  # noqa: ASYNC110 - the set is uvicorn's, and rings no bell
            connections and not self.force_exit and asyncio.get_running_loop().time() < deadline_s
        ):
            await asyncio.sleep(0.02)
        for connection in tuple(connections):
            if isinstance(connection, _Protocol):
                connection.abort()
        if tasks := tuple(self.server_state.tasks):
            for task in tasks:
                task.cancel("the server stops")
            await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT_S)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle the signals while serving; unlike uvicorn, do not raise them again: the exit code is 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
        """Stop at the first signal of either kind; wait for nothing at the second; a third kills."""
        if self.should_exit and self._loop is not None:
            self.force_exit = True
            signal.signal(sig, signal.SIG_DFL)
            self._loop.call_soon_threadsafe(self._forced.set)
        self.should_exit = True
