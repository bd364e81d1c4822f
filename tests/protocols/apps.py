"""The agent of these tests: what it does is said by the first word of the message; no model, no network."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from zhin_host import Retry, Turn, tool


@tool(approval="always")
async def publish(page: str) -> str:
    """Publish a page."""
    return f"https://pages.example/{page}"


@tool(approval="always")
async def erase(page: str) -> dict[str, str]:
    """Erase a page."""
    return {"erased": page}


@tool(approval="always", expires_s=0.01)
async def hurry(page: str) -> str:
    """Ask for very little time."""
    return page


async def _gate(turn: Turn) -> None:
    """Wait until somebody makes the file that the second word names: the tests are another process."""
    gate = _gate_of(turn)
    while not gate.exists():  # noqa: ASYNC110 - as said
        await asyncio.sleep(0.01)


def _gate_of(turn: Turn) -> Path:
    return Path(turn.message.split()[1])


async def _say_then_wait(turn: Turn) -> None:
    await turn.say("one ")
    await _gate(turn)
    await turn.say("two.")


async def _publish(turn: Turn) -> None:
    await turn.think("Which page? ")
    await turn.think("This one.")
    await turn.say("Looking. ")
    await turn.say(f"Published at {await turn.call_tool(publish, page='cats')}.")


async def _both(turn: Turn) -> None:
    url, erased = await asyncio.gather(turn.call_tool(publish, page="new"), turn.call_tool(erase, page="old"))
    await turn.say(f"{url} {erased['erased']}")


async def _beside(turn: Turn) -> None:
    """An approval, beside work that goes on until the gate opens."""
    url, _ = await asyncio.gather(turn.call_tool(publish, page="new"), turn.run("work", lambda: _gate(turn)))
    await turn.say(str(url))


async def _ask(turn: Turn) -> None:
    await turn.say(f"You said {await turn.ask('Tea or coffee?', options=['tea', 'coffee'])}.")


async def _approve(turn: Turn) -> None:
    await turn.say(f"{await turn.approve('Shall I?', amount=3)}")


async def _authorize(turn: Turn) -> None:
    await turn.say(f"{await turn.authorize('mail', 'https://login.example')}")


async def _fail(turn: Turn) -> None:
    await turn.say("Well. ")
    raise ValueError("this cannot be done")


async def _drop(turn: Turn) -> None:
    """A stream that breaks off once: what it said does not count, and is said again."""
    await turn.think("Hm. ")
    gate = _gate_of(turn)

    async def told() -> str:
        await turn.say("Once ")
        if not gate.exists():
            gate.touch()
            raise ConnectionError("cut")
        await turn.say("upon a time.")
        return "told"

    await turn.run("model", told, retry=Retry(attempts=2, delay_s=0))


async def _state(turn: Turn) -> None:
    await turn.checkpoint({"count": 1})
    await turn.emit("x.progress", {"percent": 50})
    await turn.finish(usage={"inputTokens": 3, "output_tokens": 4, "model": "none"})


async def _hurry(turn: Turn) -> None:
    await turn.call_tool(hurry, page="now")


async def _recall(turn: Turn) -> None:
    for row in await turn.history():
        await turn.say(f"{row['role']}: {row['content']}; ")


_ACTIONS: Final[dict[str, Any]] = {
    "wait": _say_then_wait,
    "publish": _publish,
    "both": _both,
    "beside": _beside,
    "ask": _ask,
    "approve": _approve,
    "authorize": _authorize,
    "fail": _fail,
    "drop": _drop,
    "state": _state,
    "hurry": _hurry,
    "recall": _recall,
}


async def agent(turn: Turn) -> None:
    """Do what the first word says; else say it back, a word at a time."""
    words = turn.message.split()
    if words[0] in _ACTIONS:
        await _ACTIONS[words[0]](turn)
        return
    for word in words:
        await turn.say(f"{word} ")
