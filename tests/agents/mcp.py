"""MCP servers for tests, as a configuration names them, and an agent that calls what its message says."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from tests.agents.apps.mcp_server import server_in
from tests.docs.blocks import ROOT
from zhin_host import ActionFailed, RequestExpired, ToolDenied, Turn
from zhin_host.agents.mcp import McpTools

LEGACY: Final = str(Path(__file__).parent / "apps" / "mcp_legacy.py")


def stdio(folder: Path) -> dict[str, Any]:
    """A server that is a process, with its traces in the folder."""
    return {
        "command": sys.executable,
        "args": ["-m", "tests.agents.apps.mcp_server", str(folder)],
        "cwd": str(ROOT),
    }


def legacy(folder: Path, *arguments: str) -> dict[str, Any]:
    """A small server of the protocol before 2026, which starts at once."""
    return {"command": sys.executable, "args": ["-I", "-S", LEGACY, str(folder), *arguments]}


@asynccontextmanager
async def served(folder: Path, port: int = 0) -> AsyncIterator[int]:
    """The same server over HTTP, in this loop; its port. Its path is /mcp."""
    async with serving(server_in(folder).streamable_http_app(), port) as taken:
        yield taken


@asynccontextmanager
async def serving(app: ASGIApp, port: int = 0) -> AsyncIterator[int]:
    """An app on a port, until the block ends."""
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", lifespan="on")
    server = uvicorn.Server(config)
    sockets = [config.bind_socket()]
    task = asyncio.create_task(server.serve(sockets), name="mcp server")
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0)
    try:
        yield int(sockets[0].getsockname()[1])
    finally:
        server.should_exit = server.force_exit = True
        await task


def calls(folder: Path) -> list[str]:
    """What servers with their traces in the folder were called for."""
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that another process brings about."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - nothing here is told of it
            await asyncio.sleep(0.01)


def calling(tools: McpTools) -> Callable[[Turn], Awaitable[None]]:
    """An agent whose message is a JSON array of `[name, arguments]`: it calls one after another and says what came."""

    async def agent(turn: Turn) -> None:
        for name, arguments in json.loads(turn.message):
            try:
                value = await turn.call_tool(tools.tool(name), **arguments)
            except ActionFailed as error:
                await turn.say(f"{error.error.get('type')}: {error.error['message']}\n")
            except (ToolDenied, RequestExpired) as error:
                await turn.say(f"{type(error).__name__}\n")
            else:
                await turn.say(f"{json.dumps(value, ensure_ascii=False)}\n")

    return agent


def message(*rows: tuple[str, dict[str, Any]]) -> str:
    """What has that agent call so."""
    return json.dumps(rows)
