"""Agents whose turn fails until somebody mends the world and resumes it, and who answers and resumes them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes import FakeClock
from tests.redrive.agents import _ran, count, look
from tests.redrive.drive import NOBODY
from zhin_host import ActionFailed, ToolDenied, Turn, tool
from zhin_host.errors import NothingToResume
from zhin_host.host import AgentSessionHost, create_agent_session_host

_DEADLINE_S = 20.0
_EXPIRES_S = 60.0


@dataclass
class World:
    """What the agents act on.

    Attributes:
        level: How often it was mended; each agent fails below a level of its own.
    """

    level: int = 0


WORLD = World()


async def mended(page: str, *, level: int = 1) -> str:
    """Work that fails until the world is mended."""
    await asyncio.sleep(0)
    _ran()
    if WORLD.level < level:
        raise ConnectionError(f"{page} cannot be reached")
    return f"{page} at last"


@tool(approval="always")
async def release(page: str) -> str:
    _ran()
    return f"released {page}"


@tool(approval="always")
async def push(page: str) -> str:
    """Approved once; it fails all the same."""
    return await mended(page)


async def raising(turn: Turn) -> None:
    await turn.think("Hm. ")
    await turn.say("First. ")
    await turn.say(f"{(await turn.run('look', look, 'a'))['words']} ")
    await turn.say("then ")
    if WORLD.level < 1:
        raise RuntimeError("no idea")
    await turn.say(f"{await turn.run('count', count, 'bcd')}.")


async def acting(turn: Turn) -> None:
    await turn.say("One. ")
    await turn.say(f"{(await turn.run('look', look, 'a'))['words']}. ")
    await turn.say("Two. ")
    try:
        await turn.say(f"{await turn.run('mend', mended, 'b')}. ")
    except ActionFailed:
        await turn.say("Oh no. ")
        raise
    await turn.say(f"{await turn.run('count', count, 'bcd')}.")


async def twice(turn: Turn) -> None:
    """A chain: its second try fails too, further on."""
    await turn.say("One. ")
    await turn.say(f"{await turn.run('first', mended, 'a')}. ")
    await turn.say("Two. ")
    await turn.say(f"{await turn.run('second', mended, 'b', level=2)}. ")
    await turn.say("Three.")


async def stubborn(turn: Turn) -> None:
    """A chain: the same action fails twice."""
    await turn.say("One. ")
    await turn.say(f"{await turn.run('first', mended, 'a', level=2)}.")


async def pushing(turn: Turn) -> None:
    await turn.say("Push? ")
    await turn.say(f"{await turn.call_tool(push, page='a')}.")


async def denied(turn: Turn) -> None:
    await turn.say("May I? ")
    try:
        await turn.say(f"{await turn.call_tool(release, page='a')}. ")
    except ToolDenied:
        await turn.say("What a pity. ")
        raise
    await turn.say(f"{await turn.run('count', count, 'bcd')}.")


async def expired(turn: Turn) -> None:
    await turn.say("Well? ")
    await turn.say(f"{await turn.ask('Which?', ['red', 'blue'])} ")
    await turn.say(f"{await turn.run('count', count, 'bcd')}.")


async def late(turn: Turn) -> None:
    """A tool's approval that nobody gives in time."""
    await turn.say("Well? ")
    await turn.say(f"{await turn.call_tool(release, page='a')}.")


async def beside(turn: Turn) -> None:
    await turn.say("Three at once. ")
    found = await asyncio.gather(
        turn.run("look", look, "a"), turn.run("mend", mended, "b"), turn.run("count", count, "ccc")
    )
    await turn.say(f"{found}")


async def saving(turn: Turn) -> None:
    """What fails stands behind a checkpoint."""
    state = turn.state or {"at": 0}
    while state["at"] < 3:
        await turn.say(f"Step {state['at']}. ")
        await turn.run("mend", mended, "same", level=int(state["at"] == 1))
        state["at"] += 1
        await turn.checkpoint(state)
    await turn.say("Saved.")


FAILING: dict[str, Any] = {
    agent.__name__: agent
    for agent in (
        raising, acting, twice, stubborn, pushing, denied, expired, late, beside, saving,
    )
}  # fmt: skip


def failing_host(name: str, directory: Path) -> tuple[AgentSessionHost, FakeClock]:
    """A host of one of them on a directory, and its clock."""
    clock = FakeClock()
    expires_s = _EXPIRES_S if name in ("expired", "late") else 0
    host = create_agent_session_host(
        {name: FAILING[name]}, data_dir=directory, fsync="never", clock=clock, request_expires_s=expires_s
    )
    return host, clock


async def until_done(host: AgentSessionHost, clock: FakeClock, session_id: str) -> None:
    """Answer what is asked, and mend and resume what failed, until the last turn did not fail."""
    async with asyncio.timeout(_DEADLINE_S):
        while True:
            await _until_rest(host, clock, session_id)
            try:
                WORLD.level += 1
                await host.store.resume(NOBODY, session_id)
            except NothingToResume:
                WORLD.level -= 1
                return


async def _until_rest(host: AgentSessionHost, clock: FakeClock, session_id: str) -> None:
    while True:
        view = await host.store.view(NOBODY, session_id)
        for request in view["pendingRequests"]:
            request_id = request["requestId"]
            if WORLD.level < 1 and "expiresAt" in request:
                clock.advance(_EXPIRES_S + 1)
                await host.store.expire()
            elif request["kind"] == "question":
                await host.store.answer(NOBODY, session_id, request_id, {"response": "red"}, None)
            else:
                approved = WORLD.level > 0 or request["toolName"] != "release"
                await host.store.answer(NOBODY, session_id, request_id, {"approved": approved}, None)
        if view["pendingRequests"]:
            continue
        if view["status"] != "running":
            return
        stream = await host.store.subscribe(NOBODY, session_id, view["cursor"], "boundary")
        try:
            async for _ in stream:
                pass
        finally:
            await stream.aclose()
