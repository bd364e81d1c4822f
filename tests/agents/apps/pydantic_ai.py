"""The agent of the process tests: it leaves in the working directory what was asked of it and what its tool did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from pydantic_ai import Agent, ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from tests.agents.scripts_pydantic_ai import answers_given, told
from zhin_host.agents.pydantic_ai import PydanticAIAgent

WORDS: Final = [f"word{number} " for number in range(20)]
ASKED: Final = Path("asked.txt")
PUBLISHED: Final = Path("published.txt")


def _note(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line + "\n")


async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """Call the tool first when the message says so, then speak; "hang" keeps the first try in mid-sentence."""
    _note(ASKED, str(len(messages)))
    message = str(told(messages[-1])[-1][1]) if answers_given(messages) == 0 else ""
    if "publish" in message:
        yield {0: DeltaToolCall("publish", '{"page":"one"}', tool_call_id="one")}
        return
    for at, word in enumerate(WORDS):
        yield word
        if at == len(WORDS) // 2 and "hang" in message and len(ASKED.read_text().splitlines()) == 1:
            await asyncio.Event().wait()


assistant = Agent(FunctionModel(stream_function=answer), name="assistant")


@assistant.tool_plain(requires_approval=True, metadata={"zhin": {"repeatable": False}})
async def publish(page: str) -> str:
    """Publish a page."""
    _note(PUBLISHED, page)
    return f"/{page}"


agent = PydanticAIAgent(assistant, version="1")
