"""Scripted agents for hosts that die: every action writes in the ledger, and may dawdle so that a kill meets it."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import Any

from tests.crash.ledger import noted, times_begun, world_of
from zhin_host import ActionFailed, Retry, ToolDenied, Turn, tool

_PACE_S = float(os.environ.get("ZHIN_CRASH_PACE_S", "0"))  # how long an action dawdles at most


async def _dawdle() -> None:
    await asyncio.sleep(random.uniform(0, _PACE_S) if _PACE_S else 0)


async def look(page: str) -> dict[str, Any]:
    with noted():
        await _dawdle()
        return {"page": page, "words": len(page)}


def count(page: str) -> int:
    with noted():
        time.sleep(random.uniform(0, _PACE_S))
        return len(page)


@tool(approval="always")
async def publish(page: str) -> str:
    with noted():
        await _dawdle()
        return f"https://example.org/{page}"


@tool(approval="always")
async def refund(amount: int) -> str:
    with noted():
        return f"refunded {amount}"


@tool(approval="once")
async def list_pages() -> list[str]:
    with noted():
        await _dawdle()
        return ["a", "b"]


@tool(repeatable=False)
async def pay(amount: int) -> str:
    with noted():
        await _dawdle()
        return f"paid {amount}"


@tool(approval="always", repeatable=False)
async def wire(amount: int) -> str:
    with noted():
        await _dawdle()
        return f"wired {amount}"


async def plain(turn: Turn) -> None:
    await turn.think("Let me see. ")
    await turn.say("Looking at a. ")
    found = await turn.run("look", look, "a")
    await turn.say(f"It has {found['words']} words. ")
    counted = await turn.run("count", count, "bcd")
    await turn.emit("x.counted", {"counted": counted})
    earlier = await turn.history()
    await turn.say(f"And {counted}, after {len(earlier)}.")
    await turn.finish("stop", {"tokens": 7})


async def talking(turn: Turn) -> None:
    for number in range(150):
        await turn.say(f"{turn.message}{number} ")
        if number % 25 == 0:
            await turn.run("look", look, str(number))


async def gathering(turn: Turn) -> None:
    await turn.say("Three at once. ")
    found = await asyncio.gather(*(turn.run("look", look, page) for page in ("a", "bb", "ccc")))
    await turn.say(f"{[row['words'] for row in found]}")


async def side_by_side(turn: Turn) -> None:
    await turn.say("Two at once. ")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(turn.call_tool(publish, page=page)) for page in ("one", "two")]
    await turn.say(" and ".join(sorted(task.result() for task in tasks)))


async def approving(turn: Turn) -> None:
    await turn.say("May I? ")
    await turn.say(f"{await turn.call_tool(publish, page='front')}. ")
    try:
        await turn.call_tool(refund, amount=5)
    except ToolDenied:
        await turn.say("No refund. ")
    await turn.say(f"Sure: {await turn.approve('Sure?', why='because')}. ")
    await turn.say(f"Colour: {await turn.ask('Which?', ['red', 'blue'])}. ")
    await turn.say(f"Linked: {await turn.authorize('mail', 'https://example.org/login', 'read')}.")


async def granted(turn: Turn) -> None:
    for _ in range(2):
        await turn.say(f"{await turn.call_tool(list_pages)} ")


async def checkpointing(turn: Turn) -> None:
    state = turn.state
    if state is None or state["message"] != turn.message:  # the last turn's, not this one's
        state = {"message": turn.message, "done": []}
    for number in range(len(state["done"]), 3):
        await turn.say(f"Step {number}. ")
        found = await turn.run("look", look, "page")
        state["done"].append([number, found["words"]])
        await turn.checkpoint(state)
    await turn.say(f"All: {state['done']}")


async def paying(turn: Turn) -> None:
    await turn.say("Paying. ")
    await turn.say(f"{await turn.call_tool(pay, amount=3)}. ")
    await turn.say(f"{await turn.call_tool(wire, amount=4)}.")


async def trying(turn: Turn) -> None:
    async def flaky() -> str:
        with noted():
            await _dawdle()
            if times_begun() <= 2:
                raise ConnectionError("not yet")
            return "at last"

    await turn.say("Trying. ")
    await turn.say(
        await turn.run("flaky", flaky, retry=Retry(attempts=100, delay_s=0.001, delay_max_s=0.001))
    )


async def breaking(turn: Turn) -> None:
    """Fails until the world has changed; what it caught before that is in its record."""

    async def brittle() -> str:
        with noted():
            await _dawdle()
            if not world_of(turn.session_id).exists():
                raise OSError("the world is not ready")
            return "mended"

    async def hopeless() -> None:
        with noted():
            raise ValueError("never")

    await turn.say("Before. ")
    await turn.run("look", look, "a")
    try:
        await turn.run("hopeless", hopeless)
    except ActionFailed as error:
        await turn.say(f"Caught {error.error['type']}. ")
    await turn.say(await turn.run("brittle", brittle))


async def sleeping(turn: Turn) -> None:
    """Sleeps in an action when told to, until somebody cancels it."""

    async def sleep() -> None:
        with noted():
            await asyncio.sleep(3600)

    await turn.say("Well. ")
    if turn.message == "sleep":
        await turn.run("sleep", sleep)
    await turn.say(f"{await turn.run('look', look, turn.message)}")


async def mortal(turn: Turn) -> None:
    await turn.say("Once. ")
    found = await turn.run("look", look, "a")
    await turn.say(f"{found['words']}. {await turn.call_tool(publish, page='once')}")


async def ending(turn: Turn) -> None:
    await turn.say(f"{await turn.run('look', look, 'last')}")
    await turn.end_session()


class Stepping:
    """A step-style agent: three steps, an approval before the third."""

    async def step(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        await _dawdle()
        state["steps"] = state.get("steps", 0) + 1
        match state["steps"] % 4:
            case 1:
                return [{"type": "thought", "text": "Hm. "}, {"type": "message", "text": "One. "}]
            case 2:
                return [
                    {"type": "x.step", "data": {"number": 2}},
                    {"type": "approval", "prompt": "Go on?", "step": 2},
                ]
            case 3:
                state["told"] = state.pop("answer")
                return [{"type": "message", "text": f"Told {state['told']}. "}]
            case _:
                return [{"type": "done", "text": f"Done with {state['message']}."}]


mortal.resumable = False  # type: ignore[attr-defined]  # how an agent says so

TOOLS = (publish, refund, list_pages, pay, wire)
AGENTS: dict[str, Any] = {
    agent.__name__: agent
    for agent in (
        plain,
        talking,
        gathering,
        side_by_side,
        approving,
        granted,
        checkpointing,
        paying,
        trying,
        breaking,
        sleeping,
        mortal,
        ending,
    )
} | {"stepping": Stepping()}
