"""Session: one open session with a server of tools, in a task of its own that enters it and leaves it.

What the protocol's client opens must be closed by the task that opened it. Turns come and go, so none of them is that
task; their calls run in their own tasks, and one that is cancelled takes nothing with it but its call.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from contextlib import AsyncExitStack
from typing import Any, Final

import anyio
import mcp.types as protocol
from mcp import Client, MCPError
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from pydantic import ValidationError

from zhin_host import __version__
from zhin_host.agents.mcp.errors import McpServerUnreachable, root_of
from zhin_host.agents.mcp.servers import Server
from zhin_host.agents.mcp.transport import transport_of

_log = logging.getLogger("zhin_host.agents.mcp")

_PROBE_S: Final = 5.0  # how long a server that was silent once may take to show that it is there
_PAGES_MAX: Final = 100
_SELF: Final = protocol.Implementation(name="zhin-host", version=__version__)


class Session:
    """One session, opened when made.

    Args:
        name: The server's, for messages.
        server: Where it is.
        open_timeout_s: How long it may take to open, and a list of tools to arrive.

    Attributes:
        is_doubtful: Whether a call went so that the server may be gone or stuck.
    """

    def __init__(self, name: str, server: Server, open_timeout_s: float) -> None:
        self.is_doubtful = False
        self._name = name
        self._open_timeout_s = open_timeout_s
        self._client: Client | None = None
        self._failure: BaseException | None = None
        self._tools: tuple[protocol.Tool, ...] | None = None  # None: they have to be asked for
        self._tells_changes = False
        self._changes = 0
        self._calls = 0
        self._is_retired = False
        self._is_settled = asyncio.Event()  # open, or failed to be
        self._leave = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(
            self._live(server),
            name=f"mcp {name}",
            context=contextvars.Context(),  # it outlives the turn whose call opened it
        )

    @property
    def is_usable(self) -> bool:
        """Whether new calls may be made in it: it is open, or on its way to be.

        Raises:
            RuntimeError: It is at work in another event loop.
        """
        if self._task.done() or self._is_retired or self._leave.is_set():
            return False
        if self._loop is not asyncio.get_running_loop() and not self._loop.is_closed():
            raise RuntimeError("this McpTools is used by another event loop; make one for each")
        return self._loop is asyncio.get_running_loop()

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left."""
        return self._task.done()

    @property
    def failure(self) -> BaseException | None:
        """What ended it, if an error did."""
        return self._failure

    async def opened(self) -> Client:
        """Wait until it is open.

        Raises:
            McpServerUnreachable: It could not be.
        """
        await self._is_settled.wait()  # within open_timeout_s and what a server takes to be ended
        if self._client is None:
            raise McpServerUnreachable(
                f"the MCP server {self._name} cannot be reached: {_said(self._failure)}"
            )
        return self._client

    async def list_tools(self) -> tuple[protocol.Tool, ...]:
        """All tools of the server: the list at hand while the server says that it tells of changes, else a new one.

        Raises:
            McpServerUnreachable: The session could not be opened.
            MCPError: The server refused, was silent, or went.
        """
        client = await self.opened()
        if self._tools is not None and self._tells_changes:
            return self._tools
        changes = self._changes
        tools = await self._listed(client)
        if changes == self._changes:
            self._tools = tools
        return tools

    async def call(
        self, tool: str, arguments: dict[str, Any], timeout_s: float, meta: protocol.RequestParamsMeta
    ) -> protocol.CallToolResult:
        """Call a tool in the caller's own task; a caller that is cancelled tells the server so.

        Raises:
            MCPError: The server refused, gave no answer in time, or went.
        """
        client = await self.opened()
        self._calls += 1
        try:
            return await client.call_tool(tool, arguments, timeout_s, meta=meta)
        except (MCPError, TimeoutError):
            self.is_doubtful = True
            raise
        finally:
            self._calls -= 1
            if self._is_retired and not self._calls:
                self._leave.set()

    async def answers(self) -> bool:
        """Whether the server still answers in this session."""
        try:
            async with asyncio.timeout(_PROBE_S):
                await (await self.opened()).list_tools()
        except (MCPError, McpServerUnreachable, TimeoutError, ValidationError):
            return False
        self.is_doubtful = False
        return not self._leave.is_set()

    def retire(self) -> None:
        """Close it when the calls that are under way have ended; each of them has a time limit."""
        self._is_retired = True
        if not self._calls:
            self._leave.set()

    def close(self) -> None:
        """Begin to close it; calls under way fail."""
        self._leave.set()

    async def closed(self, within_s: float) -> None:
        """Wait for its end; after so many seconds it is cut off."""
        if self._loop is not asyncio.get_running_loop():
            return  # its loop has ended, and has cancelled it then
        _, late = await asyncio.wait((self._task,), timeout=within_s)
        if late:
            self._task.cancel("the server does not let its session be closed")
            await asyncio.wait((self._task,), timeout=within_s)

    async def _listed(self, client: Client) -> tuple[protocol.Tool, ...]:
        tools: list[protocol.Tool] = []
        cursor: str | None = None
        for _ in range(_PAGES_MAX):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        else:
            _log.warning("the MCP server %s lists tools without an end; %d are taken", self._name, len(tools))
        return tuple(tools)

    # -- in its own task -------------------------------------------------------------------------------------------

    async def _live(self, server: Server) -> None:
        try:
            async with AsyncExitStack() as stack:
                client = Client(
                    transport_of(server, self._leave.set),
                    client_info=_SELF,
                    message_handler=self._hear,
                    read_timeout_seconds=self._open_timeout_s,
                    cache=None,  # what holds and for how long is said here
                )
                async with asyncio.timeout(self._open_timeout_s):
                    await stack.enter_async_context(client)
                self._client = client
                self._is_settled.set()
                await self._follow(client)
        except TimeoutError:
            self._failure = TimeoutError(f"it did not answer within {self._open_timeout_s:g} s")
        except Exception as error:  # noqa: BLE001 - whatever a server makes the client raise ends this session only
            self._failure = root_of(error)
            _log.info("the session with the MCP server %s ended: %s", self._name, _said(self._failure))
        finally:
            self._leave.set()
            self._is_settled.set()

    async def _follow(self, client: Client) -> None:
        """Until the session is over: hear of changes of the list of tools, if the server tells them."""
        changes = self._loop.create_task(self._follow_changes(client), name=f"mcp {self._name} changes")
        try:
            await self._leave.wait()  # without a deadline: it lives as long as the host
        finally:
            changes.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await changes

    async def _follow_changes(self, client: Client) -> None:
        try:
            async with client.listen(tools_list_changed=True) as events:
                self._changed()  # what was listed before may be older than the first change that is told
                self._tells_changes = bool(events.honored.tools_list_changed)
                async for _ in events:
                    self._changed()
        except ListenNotSupportedError:  # an older server: told to `_hear`, if at all
            offered = client.server_capabilities.tools
            self._tells_changes = offered is not None and bool(offered.list_changed)
            return
        except (MCPError, SubscriptionLost, TimeoutError, anyio.ClosedResourceError) as error:
            _log.info("the MCP server %s tells no changes of its tools: %s", self._name, error)
        self._tells_changes = False

    async def _hear(self, message: protocol.ServerNotification | Exception) -> None:
        if isinstance(message, protocol.ToolListChangedNotification):
            self._changed()

    def _changed(self) -> None:
        self._tools = None
        self._changes += 1


def _said(error: BaseException | None) -> str:
    if error is None:
        return "it was closed meanwhile"
    return str(error) or type(error).__name__
