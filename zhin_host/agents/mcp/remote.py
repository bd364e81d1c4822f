"""Remote: a server of tools as its callers see it: always there, opened when needed and again after it went."""

from __future__ import annotations

import logging
from typing import Any, Final

import mcp.types as protocol
from mcp import MCPError
from pydantic import ValidationError

from zhin_host.agents.mcp.errors import (
    McpCallTimedOut,
    McpServerLost,
    McpServerUnreachable,
    McpToolFailed,
)
from zhin_host.agents.mcp.servers import Server
from zhin_host.agents.mcp.session import Session

_log = logging.getLogger("zhin_host.agents.mcp")

_CLOSE_S: Final = 10.0  # the client of the protocol ends a server that does not end itself after some six
# Where a request stands in an action, so that a server can know one that is repeated after a crash.
IDEMPOTENCY_KEY: Final = "zhin-host/idempotency-key"


class Remote:
    """One server by its name. Its session is shared by all turns of the process.

    Attributes:
        known: The tools that it last listed in this process, by their names there; None: none yet.
    """

    def __init__(self, name: str, server: Server, open_timeout_s: float, call_timeout_s: float) -> None:
        self.name = name
        self.known: dict[str, protocol.Tool] | None = None
        self._server = server
        self._open_timeout_s = open_timeout_s
        self._call_timeout_s = call_timeout_s
        self._session: Session | None = None
        self._leaving: set[Session] = set()

    async def list_tools(self) -> dict[str, protocol.Tool]:
        """Its tools by their names there, in its order; the first of two of one name.

        Raises:
            McpServerUnreachable: It cannot be reached.
        """
        session = await self._ready()
        try:
            tools = await session.list_tools()
        except (MCPError, TimeoutError, ValidationError) as error:
            session.is_doubtful = True
            raise McpServerUnreachable(
                f"the MCP server {self.name} lists no tools: {_said(error)}"
            ) from error
        known: dict[str, protocol.Tool] = {}
        for tool in tools:
            known.setdefault(tool.name, tool)
        self.known = known
        return known

    async def call(self, tool: str, arguments: dict[str, Any], key: str) -> protocol.CallToolResult:
        """Call one of its tools.

        Args:
            tool: Its name there.
            arguments: As they were shown to who approved them.
            key: The same for every attempt of this call, told to the server.

        Raises:
            McpToolFailed: The server refused the call.
            McpServerUnreachable: Nothing was called.
            McpCallTimedOut, McpServerLost: Whether it had an effect is not known.
        """
        session = await self._ready()
        try:
            try:
                return await self._call_in(session, tool, arguments, key)
            except MCPError as error:
                # A request that is refused as invalid did not run. A server that was restarted refuses so what comes
                # in a session it does not know: then it can be sent once more, in a new one.
                if error.code != protocol.INVALID_REQUEST or await session.answers():
                    raise
            session = await self._ready()
            return await self._call_in(session, tool, arguments, key)
        except MCPError as error:
            raise self._failure_of(error, session, tool) from error
        except TimeoutError as error:
            raise self._lost(session, tool) from error

    async def aclose(self) -> None:
        """End its session, and its process if it has one; calls under way fail."""
        sessions = [*self._leaving, *([] if self._session is None else [self._session])]
        self._session = None
        self._leaving.clear()
        for session in sessions:
            session.close()
        for session in sessions:
            await session.closed(_CLOSE_S)

    async def _ready(self) -> Session:
        """A session that is open, with a server that answers.

        Raises:
            McpServerUnreachable: There is none to be had.
        """
        session = self._session
        if session is not None and session.is_doubtful and session.is_usable and not await session.answers():
            _log.warning("the MCP server %s does not answer any more; its session is opened anew", self.name)
            session.retire()
        session = self._session
        if session is None or not session.is_usable:
            self._leaving = {row for row in (*self._leaving, session) if row is not None and not row.is_over}
            session = self._session = Session(self.name, self._server, self._open_timeout_s)
        await session.opened()
        return session

    async def _call_in(
        self, session: Session, tool: str, arguments: dict[str, Any], key: str
    ) -> protocol.CallToolResult:
        meta: protocol.RequestParamsMeta = {IDEMPOTENCY_KEY: key}  # type: ignore[typeddict-unknown-key]
        try:
            return await session.call(tool, arguments, self._call_timeout_s, meta)
        except (ValidationError, RuntimeError) as error:
            raise McpToolFailed(f"the answer to {tool} is none of the protocol: {_said(error)}") from error

    def _failure_of(self, error: MCPError, session: Session, tool: str) -> Exception:
        if error.code == protocol.REQUEST_TIMEOUT:
            return McpCallTimedOut(
                f"the MCP server {self.name} gave no result of {tool} within {self._call_timeout_s:g} s; "
                "whether it had an effect is not known"
            )
        if error.code == protocol.CONNECTION_CLOSED:
            return self._lost(session, tool)
        return McpToolFailed(error.message)

    def _lost(self, session: Session, tool: str) -> McpServerLost:
        why = "" if session.failure is None else f" ({session.failure})"
        return McpServerLost(
            f"the MCP server {self.name} went while {tool} ran{why}; whether it had an effect is not known"
        )


def _said(error: Exception) -> str:
    """What is wrong, in a line: pydantic would tell all the server's mistakes, with what it sent."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)
