"""Scripted agents for the tests of re-driving, and the ledger in which their tools write what they did."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from zhin_host import ActionFailed, RequestExpired, SyncTurn, ToolDenied, Turn, current_action, tool
from zhin_host.actions import Retry

Agent = Callable[[Turn], Awaitable[object]] | Any
SECRET = "sk-" + "aB3dE6gH9" * 3
LEDGER: Counter[str] = Counter()  # callId -> how often its function ran to its end
KEYS: dict[str, set[str]] = {}  # callId -> the idempotency keys it was given


def _ran() -> None:
    action = current_action()
    LEDGER[action.call_id] += 1
    KEYS.setdefault(action.call_id, set()).add(action.idempotency_key)


async def look(page: str) -> dict[str, Any]:
    await asyncio.sleep(0)
    _ran()
    return {"page": page, "words": len(page)}


def count(page: str) -> int:
    _ran()
    return len(page)


async def breaks(page: str) -> None:
    _ran()
    raise ValueError(f"{page} is broken")


@tool(approval="always")
async def publish(page: str) -> str:
    _ran()
    return f"https://example.org/{page}"


@tool(approval="once")
async def list_pages() -> list[str]:
    _ran()
    return ["a", "b"]


@tool(repeatable=False)
async def pay(amount: int) -> str:
    await asyncio.sleep(0)
    _ran()
    return f"paid {amount}"


@tool(approval="always", repeatable=False)
async def wire(amount: int) -> str:
    await asyncio.sleep(0)
    _ran()
    return f"wired {amount}"


async def plain(turn: Turn) -> None:
    await turn.think("Let me see. ")
    await turn.say("Looking at a. ")
    found = await turn.run("look", look, "a")
    await turn.say(f"It has {found['words']} words. ")
    counted = await turn.run("count", count, "bcd")
    await turn.emit("x.counted", {"counted": counted})
    await turn.say(f"And {counted}.")
    await turn.finish("stop", {"tokens": 7})


async def repeated(turn: Turn) -> None:
    for _ in range(3):
        found = await turn.run("look", look, "same")
        await turn.say(f"{found['words']} ")


async def approving(turn: Turn) -> None:
    await turn.say("May I? ")
    try:
        await turn.say(f"Done: {await turn.call_tool(publish, page='front')}. ")
    except ToolDenied:
        await turn.say("Not published. ")
    await turn.say(f"Sure: {await turn.approve('Sure?', why='because')}. ")
    await turn.say(f"Colour: {await turn.ask('Which?', ['red', 'blue'])}. ")
    await turn.say(f"Linked: {await turn.authorize('mail', 'https://example.org/login', 'read')}.")


async def granted(turn: Turn) -> None:
    for _ in range(3):
        await turn.say(f"{await turn.call_tool(list_pages)} ")


async def gathering(turn: Turn) -> None:
    await turn.say("Three at once. ")
    found = await asyncio.gather(*(turn.run("look", look, page) for page in ("a", "bb", "ccc")))
    await turn.say(f"{[row['words'] for row in found]}")


async def side_by_side(turn: Turn) -> None:
    await turn.say("Two at once. ")
    done = await asyncio.gather(turn.call_tool(publish, page="one"), turn.call_tool(publish, page="two"))
    await turn.say(" and ".join(sorted(done)))


async def catching(turn: Turn) -> None:
    try:
        await turn.run("breaks", breaks, "x")
    except ActionFailed as error:
        await turn.say(f"Caught {error.error['type']}. ")
    await turn.say(f"{await turn.run('count', count, 'xy')}")


async def impatient(turn: Turn) -> None:
    """What it gives up itself is no part of its record: asked for again, it asks again."""
    try:
        async with asyncio.timeout(0.02):
            await turn.approve("Quick?")
    except TimeoutError:
        pass
    await turn.say(f"{await turn.run('count', count, 'xyz')}")


async def checkpointing(turn: Turn) -> None:
    state = turn.state or {"done": []}
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
    """The function fails twice in each process's count of its call; the log's count goes on."""

    async def flaky() -> str:
        _ran()
        if LEDGER[current_action().call_id] <= 2:
            raise ConnectionError("not yet")
        return "at last"

    await turn.say(await turn.run("flaky", flaky, retry=Retry(attempts=10, delay_s=0)))


async def dropping(turn: Turn) -> None:
    """A streamed answer is cut off twice in the middle, once of its words and once of its thoughts."""

    async def model() -> str:
        _ran()
        await turn.think("Hm. ")
        if LEDGER[current_action().call_id] == 1:
            raise ConnectionError("cut")
        await turn.say("Once ")
        if LEDGER[current_action().call_id] == 2:
            raise ConnectionError("cut")
        await turn.say("upon a time.")
        return "told"

    await turn.say("Well. ")
    await turn.run("model", model, retry=Retry(attempts=10, delay_s=0))
    await turn.say(" The end.")


async def keeps(text: str) -> dict[str, Any]:
    _ran()
    return {"kept": [text, SECRET], SECRET: text}


async def leaky(turn: Turn) -> None:
    """Says a key in pieces, one of them before an action, and has it in everything that it calls and gets back."""
    if turn.state is None:
        await _leak(turn)
        await turn.checkpoint({"key": SECRET})
    await turn.say(f" {turn.state} {SECRET[:7]}")
    await turn.finish(SECRET, {"key": SECRET})


async def _leak(turn: Turn) -> None:
    await turn.think(f"The key is {SECRET[:9]}")
    await turn.think(f"{SECRET[9:]}. ")
    await turn.say(f"It is {SECRET[:1]}")
    await turn.say(SECRET[1:11])
    await turn.say(f"{SECRET[11:]}, or {SECRET[:10]}")
    found = await turn.run(f"keep {SECRET}", keeps, f"my {SECRET}")
    await turn.say(f"{SECRET[10:]}. Kept {found}. ")
    await turn.say(f"{await turn.call_tool(publish, page=f'a {SECRET} b')} {SECRET}")
    await turn.say(f"{await turn.approve(f'Use {SECRET}?', why={SECRET: SECRET})}")
    await turn.say(f"{await turn.ask(SECRET, [SECRET, 'red'])}")
    try:
        await turn.run("breaks", breaks, SECRET)
    except ActionFailed as error:
        await turn.say(f" {error}")
    await turn.emit("x.key", {SECRET: SECRET})


def blocking(turn: SyncTurn) -> str:
    """A plain function, with everything that a turn can do but a checkpoint."""
    turn.think("Let me see. ")
    turn.say(f"After {len(turn.history())}. ")
    turn.say(f"{turn.run('look', look, 'a')} {turn.run('count', count, page='bcd')}. ")
    try:
        turn.run("breaks", breaks, "x")
    except ActionFailed as error:
        turn.say(f"Caught {error.error['type']}. ")
    turn.emit("x.looked", {"attempt": "any"})
    turn.say(f"{turn.call_tool(publish, page='front')} {turn.call_tool(list_pages)}. ")
    turn.say(f"{turn.approve('Sure?', why='because')} {turn.ask('Which?', ['red', 'blue'])} ")
    turn.say(f"{turn.authorize('mail', 'https://example.org/login', 'read')}. ")
    turn.finish("stop", {"tokens": 7})
    return "And that is all."


def remembering(turn: SyncTurn) -> str:
    """A plain function that goes on from its own state."""
    done = turn.state or []
    for number in range(len(done), 3):
        turn.say(f"Step {number}. ")
        done.append([number, turn.run("look", look, "page")["words"]])
        turn.checkpoint(done)
    return f"All: {done}"


def yielding(turn: SyncTurn) -> Generator[str, None, str]:
    """A plain generator, which both yields and returns."""
    yield "Looking. "
    yield f"{turn.run('look', look, 'a')['words']} words. "
    try:
        yield turn.call_tool(publish, page="front")
    except ToolDenied:
        yield "Not published."
    return " That is all."


def pooled(turn: SyncTurn) -> str:
    """A plain function that asks twice at once, from threads of its own."""
    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(turn.call_tool, publish, page=page) for page in ("one", "two")]
        return " and ".join(sorted(future.result() for future in done))


async def streaming(turn: Turn) -> AsyncIterator[str]:
    """An async generator."""
    yield "Looking. "
    yield f"{(await turn.run('look', look, 'a'))['words']} words. "
    yield await turn.call_tool(publish, page="front")
    yield f" {await turn.ask('Which?')}"


async def returning(turn: Turn) -> str:
    """An async function that returns what it has to say."""
    await turn.say("Looking. ")
    return f"{await turn.run('count', count, 'a')}, {await turn.approve('Sure?')}"


AGENTS: dict[str, Agent] = {
    agent.__name__: agent
    for agent in (
        plain,
        repeated,
        approving,
        granted,
        gathering,
        side_by_side,
        catching,
        impatient,
        checkpointing,
        paying,
        trying,
        dropping,
        leaky,
        blocking,
        remembering,
        yielding,
        pooled,
        streaming,
        returning,
    )
}
BESIDE = {"gathering", "side_by_side", "pooled"}  # text beside other actions may be repeated or missing
EXPIRES = (RequestExpired,)


class Counting:
    """A step-style agent: three looks, a question to a person between them, and its own memory in its state."""

    def step(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        at = state.setdefault("at", 0)
        state["at"] = at + 1
        if at == 1:
            return [
                {"type": "thought", "text": "Better ask. "},
                {"type": "approval", "prompt": "Go on?", "why": state["message"]},
            ]
        if at == 2:
            state["allowed"] = state["answer"]
            return [{"type": "x.allowed", "data": {"allowed": state["allowed"]}}]
        if at == 4:
            return [
                {"type": "message", "text": "Four. "},
                {"type": "done", "text": f"Allowed: {state['allowed']}."},
            ]
        return [{"type": "message", "text": f"Step {at}. "}]


AGENTS["counting"] = Counting()
