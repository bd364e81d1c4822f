"""A server of tools: `python -m tests.agents.apps.mcp_server FOLDER` over its standard streams, `server_in` for HTTP.

What it does leaves traces in the folder: a line a time in `calls`, and `pid` with its process id.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import EmbeddedResource, TextResourceContents, ToolAnnotations

Note = Callable[[str], None]


def server_in(folder: Path) -> MCPServer:
    """The server with its traces in the folder."""
    server = MCPServer("tests", log_level="CRITICAL")

    def note(text: str) -> None:
        with (folder / "calls").open("a") as file:
            file.write(f"{text}\n")

    _add_kind_tools(server, note)
    _add_unkind_tools(server, note)
    return server


def _add_kind_tools(server: MCPServer, note: Note) -> None:
    @server.tool()
    async def greet(name: str) -> str:
        """Greet somebody."""
        note(f"greet {name}")
        return f"Hello, {name}!"

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def count() -> dict[str, int]:
        """How many of what."""
        return {"cats": 3, "dogs": 1}

    @server.tool()
    async def delete_page(name: str, context: Context) -> str:
        """Delete a page."""
        meta = context.request_context.meta or {}
        note(f"delete {name} {meta.get('zhin-host/idempotency-key')}")
        return f"deleted {name}"

    @server.tool(structured_output=False)
    async def picture() -> list[Any]:
        """A picture, some words and a page."""
        page = TextResourceContents(uri="file:///page", text="the page")
        return ["before", Image(data=b"\0" * 300_000, format="png"), EmbeddedResource(resource=page)]

    @server.tool(structured_output=False)
    async def flood(size: int) -> str:
        """Much text."""
        return "é" * size

    @server.tool()
    async def grow(context: Context) -> str:
        """Offer one tool more."""

        async def grown() -> str:
            """It was not there before."""
            return "grown"

        server.add_tool(grown)
        await context.notify_tools_changed()
        return "grew"


def _add_unkind_tools(server: MCPServer, note: Note) -> None:
    gate = asyncio.Event()

    @server.tool()
    async def fail(why: str) -> str:
        """Fail."""
        raise ToolError(why)

    @server.tool()
    async def hold() -> str:
        """Wait until let go."""
        note("hold")
        try:
            await gate.wait()
        except asyncio.CancelledError:
            note("cancelled")
            raise
        return "held"

    @server.tool()
    async def let_go() -> str:
        """Let go."""
        gate.set()
        return "let go"

    @server.tool()
    async def block() -> str:
        """Hold everything up, and heed no signal that can be heeded."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note("block")
        time.sleep(600)  # noqa: ASYNC251 - this is what it is for
        return "never"

    @server.tool()
    async def die() -> str:
        """End in the middle of the call."""
        note("die")
        os._exit(3)


if __name__ == "__main__":
    traces = Path(sys.argv[1])
    (traces / "pid").write_text(str(os.getpid()))
    server_in(traces).run("stdio")
