"""An agent for the tests of the AI SDK: it does what its message says, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Final

from zhin_host import Retry, ToolDenied, Turn, tool

GATES_VARIABLE: Final = "ZHIN_TEST_GATES"
"""Names a folder; what waits for a gate goes on when its file is there."""

_GATE_POLL_S: Final = 0.02


@tool(approval="always")
async def publish(page: str) -> str:
    """Publish a page."""
    return f"/{page}"


@tool
async def look_up(topic: str) -> dict[str, str]:
    """Look something up."""
    return {"topic": topic}


def _is_open(gate: str) -> bool:
    return (Path(os.environ[GATES_VARIABLE]) / gate).exists()


async def _pass(gate: str) -> str:
    while not _is_open(gate):  # noqa: ASYNC110 - another process opens it
        await asyncio.sleep(_GATE_POLL_S)
    return "gone through"


async def _try(gate: str) -> str:
    if not _is_open(gate):
        raise ValueError("the gate is closed")
    return "gone through"


async def _dropping(turn: Turn, gate: str) -> str:
    """A stream of a model that breaks off once, having said something."""
    await turn.say("Once ")
    if not _is_open(gate):
        (Path(os.environ[GATES_VARIABLE]) / gate).touch()
        raise ConnectionError("cut")
    await turn.say("upon a time.")
    return "told"


def _huge(characters: int) -> str:
    return "ü" * characters


async def agent(turn: Turn) -> None:  # noqa: C901, PLR0912, PLR0915 - one case for each thing it can do
    """Do what the first word of the message says."""
    verb, _, rest = turn.message.partition(" ")
    match verb:
        case "think":
            await turn.think("Let me ")
            await turn.think("see.")
            await turn.say("I saw.")
            await turn.finish("length", {"inputTokens": 3, "outputTokens": 5})
        case "many":
            for number in range(int(rest)):
                await turn.say(f"{number} ")
        case "look":
            found = await turn.call_tool(look_up, topic=rest)
            await turn.say(f"About {found['topic']}.")
        case "publish":
            await turn.say("I will publish. ")
            try:
                await turn.say(f"It is at {await turn.call_tool(publish, page=rest)}.")
            except ToolDenied:
                await turn.say("It stays here.")
        case "publish-uncaught":
            await turn.call_tool(publish, page=rest)
        case "both":
            both = await asyncio.gather(*(turn.call_tool(publish, page=page) for page in rest.split()))
            await turn.say(f"At {' and '.join(both)}.")
        case "beside":
            run, at = await asyncio.gather(turn.run("gate", _pass, rest), turn.call_tool(publish, page=rest))
            await turn.say(f"{run}, {at}.")
        case "approve":
            await turn.say(f"approved: {await turn.approve('May I?', what=rest)}")
        case "ask":
            await turn.say("Gladly. ")
            answer = await turn.ask("Which?", options=["tea", "coffee"])
            if answer != "nothing":
                await turn.say(f"Then {answer}.")
        case "authorize":
            await turn.say(f"authorized: {await turn.authorize(rest, 'https://auth.example')}")
        case "gate":
            await turn.run("first", str.upper, rest)
            await turn.say("Waiting. ")
            await turn.emit("x.mark", {"at": "gate"})
            await turn.run("gate", _pass, rest)
            await turn.say("Through.")
        case "loose":
            await turn.run("first", str.upper, rest)
            await turn.think("Hm. ")
            await turn.say("Waiting. ")
            await turn.emit("x.mark", {"at": "gate"})
            await _pass(rest)
            await turn.say("Through.")
        case "retry":
            delays = Retry(attempts=2, delay_s=0.001)
            await turn.run("flaky", _try, rest, retry=delays)
        case "fail":
            await turn.say("Trying. ")
            await turn.run("first", str.upper, rest)
            await turn.say("Then ")
            await turn.run("flaky", _try, rest)
            await turn.say("done.")
        case "progress":
            for part in (1, 2):
                await turn.emit("x.progress", {"id": "bar", "part": part})
            await turn.emit("x.note", {"text": rest})
        case "json":
            await turn.run("json", json.loads, rest)
            await turn.say("Read.")
        case "drop":
            await turn.run("first", str.upper, rest)
            await turn.say("First. ")
            await turn.run("model", lambda: _dropping(turn, rest), retry=Retry(attempts=2, delay_s=0.001))
        case "huge":
            await turn.run("huge", _huge, int(rest))
            await turn.say("Read.")
        case "end":
            await turn.say("Goodbye.")
            await turn.end_session()
        case "recall":
            said = [row["content"] for row in await turn.history() if row["role"] == "user"]
            await turn.say(", ".join(said))
        case _:
            await turn.say(turn.message)
