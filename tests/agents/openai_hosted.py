"""Agents of the SDK with a scripted model, as the tests host them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents import (
    Agent,
    function_tool,
)

from tests.agents.openai_model import Call, Reply, ScriptedModel, outputs, say
from tests.hosting import hosting, one
from zhin_host.agents.openai_agents import OpenAIAgent


def hosted(reply: Reply, *tools: Any, **settings: Any) -> OpenAIAgent:
    return OpenAIAgent(Agent(name="assistant", model=ScriptedModel(reply), tools=[*tools]), **settings)


def calling(name: str, arguments: Any) -> Reply:
    """Calls one tool and then says what it gave."""

    def reply(items: list[Any]) -> list[Any]:
        given = outputs(items)
        return [say(str(given[0]))] if given else [Call(name, arguments)]

    return reply


async def tool_result(agent: OpenAIAgent, data_dir: Path) -> tuple[dict[str, Any], str]:
    """The result of the tool of a new session's first turn, and what the turn said."""
    async with hosting(agent, data_dir=data_dir) as running:
        events = await running.run("go")
    return one(events, "action.result", 1), one(events, "message.completed")["message"]


@function_tool
async def echo(text: str) -> str:
    return text
