"""Process: uvicorn from its start to its stop, which drains the host before it waits for connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from types import FrameType
from typing import Any, Final, Literal

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import HANDLED_SIGNALS

from zhin_host.server.connection import Connection, ServerConfig
from zhin_host.server.listening import bind

_CLOSE_TIMEOUT_S: Final = 1.0  # streams have ended by then, unless their reader takes nothing

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
        stoppable = Stoppable(app)
        config = ServerConfig(stoppable, lifespan=lifespan, log_level=log_level)
        server = Server(config, stoppable, start=start, drain=drain, ready=ready)
        _run(server.serve(sockets), config.get_loop_factory())
    finally:
        for listener in sockets:
            listener.close()
    return not server.force_exit


def _run(
    main: Coroutine[Any, Any, None], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None
) -> None:
    """Run in a loop of its own; unlike asyncio.run, wait only so long for what refuses to be cancelled.

    An agent that swallows cancellation was left behind by the drain already; it must not hold the process.
    """
    loop = asyncio.new_event_loop() if loop_factory is None else loop_factory()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main)
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel("the server has stopped")
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=_CLOSE_TIMEOUT_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        if asyncio.all_tasks(loop):
            loop.set_exception_handler(
                lambda _loop, _context: None
            )  # what is left is destroyed; that was said
        asyncio.set_event_loop(None)
        loop.close()


class Stoppable:
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


class Server(uvicorn.Server):
    """uvicorn's server with another way of starting and stopping."""

    def __init__(
        self,
        config: ServerConfig,
        app: Stoppable,
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
            if isinstance(connection, Connection):
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
