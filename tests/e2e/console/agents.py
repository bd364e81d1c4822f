"""Agents for the browser: each message begins with what is to be done."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from zhin_host import ActionFailed, ToolDenied, Turn, tool

PLANTED = (
    '<img src=x onerror="window.planted=1"><script>window.planted=1</script><svg/onload=window.planted=1>'
    "<a href='javascript:window.planted=1'>x</a>&lt;b&gt; \u202egnp.exe \x1b[2J"
)
PLANTED_NAME = "<img src=x onerror=window.planted=1>"  # a name is printable and short


@tool(approval="always")
async def publish(page: str, copies: int = 1) -> dict[str, object]:
    """Publish a page."""
    with Path(page).open("a") as file:  # noqa: ASYNC230 - a few bytes
        file.write("published\n")
    return {"url": f"https://pages.example/{page}", "copies": copies}


@tool(repeatable=False)
async def pay(amount: int) -> str:
    """Pay; the first time the bank never answers."""
    with Path("paid.txt").open("a") as file:  # noqa: ASYNC230 - a few bytes
        file.write(f"{amount}\n")
    if os.stat("paid.txt").st_size < 4:  # noqa: PTH116
        await asyncio.Event().wait()
    return f"paid {amount}"


async def look_up(topic: str) -> dict[str, str]:
    """Find something."""
    await asyncio.sleep(0.05)
    return {"topic": topic, "found": "a line\nand another"}


async def fail(topic: str) -> str:
    """Fail, until a file says not to."""
    if not Path(topic).exists():  # noqa: ASYNC240
        raise ActionError(f"{topic} is away")
    return "mended"


class ActionError(Exception):
    """What the action fails with."""


async def agent(turn: Turn) -> None:  # noqa: C901, PLR0912 - one case for each thing it can do
    """Do what the first word says."""
    verb, _, rest = turn.message.partition(" ")
    match verb:
        case "work":
            await turn.think("First I look, then I tell. ")
            await turn.say("Looking. ")
            found = await turn.run("look_up", look_up, rest)
            for word in (f"Found {found['topic']}, ", "and nothing ", "but that."):
                await turn.say(word)
                await asyncio.sleep(0.03)
        case "publish":
            await turn.say("I would like to publish. ")
            try:
                result = await turn.call_tool(publish, page=rest, copies=12345678901234567)
                await turn.say(f"Published at {result['url']}.")
            except ToolDenied:
                await turn.say("Not published.")
        case "plant":
            await turn.think(PLANTED)
            await turn.say(PLANTED)
            await turn.emit("x.planted", {PLANTED: PLANTED})
            await turn.run(PLANTED_NAME, look_up, PLANTED)
            await turn.authorize(PLANTED, "javascript:window.planted=1", PLANTED)
            await turn.ask(PLANTED, options=[PLANTED, {"html": PLANTED}])
        case "pay":
            await turn.say(await turn.call_tool(pay, amount=3))
        case "ask":
            await turn.say(f"answered {await turn.ask('Which?', options=['tea', 'coffee', {'cups': 2}])!r}")
        case "authorize":
            await turn.say(f"let in: {await turn.authorize('calendar', 'https://auth.example/x', 'read')}")
        case "fail":
            try:
                await turn.say(await turn.run("reach", fail, rest))
            except ActionFailed:
                await turn.say("It did not work.")
                raise
        case "wait":
            await turn.say("This is said before the host goes away. ")
            while not Path(rest).exists():  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(0.02)
            await turn.say("This is said after.")
        case "many":
            for number in range(int(rest)):
                await turn.say(f"{number} ")
        case "many-actions":
            for number in range(int(rest)):
                await turn.run("count", look_fast, number)
            await turn.say("Counted.")
        case _:
            await turn.say(f"You said: {turn.message}")


async def look_fast(number: int) -> int:
    """Give the number back."""
    return number
