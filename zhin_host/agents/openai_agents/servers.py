"""Servers: an agent's MCP servers, connected while turns run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

from agents.mcp import MCPServer, MCPServerManager


class Servers:
    """Connects servers for the first turn that runs and closes them behind the last one.

    A server that was connected beforehand is left alone: whoever connected it closes it.
    """

    def __init__(self) -> None:
        self._turns = 0
        self._change = asyncio.Lock()
        self._manager: MCPServerManager | None = None

    @contextlib.asynccontextmanager
    async def connected(self, servers: Iterable[MCPServer]) -> AsyncIterator[None]:
        """They are connected in the block.

        Raises:
            Exception: One could not be connected; what it raised.
        """
        await self._enter(servers)
        try:
            yield
        finally:
            await self._leave()

    async def _enter(self, servers: Iterable[MCPServer]) -> None:
        async with self._change:
            if not self._turns:
                own = [server for server in servers if getattr(server, "session", None) is None]
                # A worker for each, so that what one turn's task opened another's may close.
                self._manager = MCPServerManager(own, strict=True, connect_in_parallel=True) if own else None
                if self._manager is not None:
                    await self._manager.connect_all()
            self._turns += 1

    async def _leave(self) -> None:
        async with self._change:
            self._turns -= 1
            if not self._turns and self._manager is not None:
                manager, self._manager = self._manager, None
                await manager.cleanup_all()
