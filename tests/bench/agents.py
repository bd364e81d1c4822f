"""Agents that the benchmark serves. The message says how many chunks are to be said."""

from __future__ import annotations

import asyncio
import time

from zhin_host import Turn, tool

CHUNK = "a few words "
"""What is said at once; a line of it has about 160 bytes."""


async def tight(turn: Turn) -> None:
    """Say chunk after chunk."""
    for _ in range(int(turn.message)):
        await turn.say(CHUNK)


async def yielding(turn: Turn) -> None:
    """Let the loop run after each chunk, as an agent does that waits for a model."""
    for _ in range(int(turn.message)):
        await turn.say(CHUNK)
        await asyncio.sleep(0)


@tool(approval="always")
async def clock() -> int:
    """The moment of the tool's first line, nanoseconds of time.monotonic_ns: one clock for the whole machine."""
    return time.monotonic_ns()


async def asking(turn: Turn) -> None:
    """Call a tool that waits for a person."""
    await turn.call_tool(clock)


every = {"tight": tight, "yielding": yielding, "asking": asking}
"""What the host serves; a session whose POST names no agent is of the first one."""
