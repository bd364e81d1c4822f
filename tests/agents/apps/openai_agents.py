"""An agent of the OpenAI Agents SDK for processes that are killed.

In its folder each request to its model is a line of `asked.txt`, each call of its tool one of `ran.txt`. While there
is a file `hang`, answers stop in the middle.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agents import Agent, function_tool

from tests.agents.openai_model import Call, ScriptedModel, message, outputs, say
from zhin_host.agents.openai_agents import OpenAIAgent


def _note(file: str, line: str) -> None:
    with Path(file).open("a") as lines:
        lines.write(f"{line}\n")


@function_tool(needs_approval=True)
async def publish(page: str) -> str:
    """Publish a page."""
    _note("ran.txt", page)
    return f"https://pages.example/{page}"


def _reply(items: list[Any]) -> list[Any]:
    _note("asked.txt", f"{len(items)} items")
    given = outputs(items)
    if given:
        return [say(f"Published at {given[0]} for you.")]
    if message(items) == "tell":
        return [say("one two three four five six")]
    return [say("I publish it."), Call("publish", {"page": "cats"})]


class _Pauses:
    """Stops an answer behind its third piece while there is a file `hang`."""

    def __init__(self) -> None:
        self._pieces = 0

    async def __call__(self) -> None:
        self._pieces += 1
        if self._pieces > 3 and Path("hang").exists():  # noqa: ASYNC240 - a test's own file
            await asyncio.Event().wait()


agent = OpenAIAgent(
    Agent(name="publisher", model=ScriptedModel(_reply, _Pauses()), tools=[publish]), version="1"
)
