"""An assistant made with Pydantic AI, hosted: it looks things up by itself and asks before it publishes.

scripts/serve --agent examples.pydantic_ai_agent:agent                       # the library's own model for tests
MODEL=anthropic:… scripts/serve --agent examples.pydantic_ai_agent:agent     # a real one, with its key and its extra
"""

from __future__ import annotations

import os

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from zhin_host.agents.pydantic_ai import PydanticAIAgent

assistant = Agent(
    os.environ.get("MODEL") or TestModel(),
    name="assistant",
    instructions="Write a page about what you are asked for, and publish it.",
)


@assistant.tool_plain
async def look_up(topic: str) -> str:
    """Find out about a topic."""
    return f"all about {topic}"


@assistant.tool_plain(requires_approval=True)
async def publish(page: str) -> str:
    """Publish a page; returns where it stands."""
    return f"https://pages.example/{len(page)}"


agent = PydanticAIAgent(assistant)
