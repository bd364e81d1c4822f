"""A host to be killed: `python -m tests.e2e.killed DIRECTORY` serves a scripted agent and prints its port."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from zhin_host import ToolDenied, Turn, create_agent_session_host, tool
from zhin_host.server import Address, serve


@tool(approval="always")
async def publish(page: str) -> str:
    """Publish a page."""
    return f"published {page}"


async def scripted(turn: Turn) -> None:
    """Say many words, run an action among them, ask before the tool when the message says so."""
    await turn.think("Thinking. ")
    for number in range(40):
        await turn.say(f"word{number} ")
        if number % 8 == 0:
            await asyncio.sleep(0)
    noted = await turn.run("note", len, turn.message)
    if "ask" in turn.message:
        try:
            await turn.say(await turn.call_tool(publish, page=f"page {noted}"))
        except ToolDenied:
            await turn.say("not published")
    await turn.checkpoint({"noted": noted})
    for number in range(40):
        await turn.say(f"more{number} ")
        await asyncio.sleep(0)


def _print_port(addresses: Sequence[Address]) -> None:
    sys.stdout.write(f"{addresses[0][1]}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    host = create_agent_session_host(scripted, data_dir=sys.argv[1], tools=[publish])
    serve(host.app, host="127.0.0.1", port=0, start=host.start, drain=host.stop, ready=_print_port)
