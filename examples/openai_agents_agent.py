"""An agent of the OpenAI Agents SDK on a host: it publishes pages, and a person allows each.

zhin-host serve --agent examples.openai_agents_agent:agent
OPENAI_MODEL=gpt-5 zhin-host serve --agent examples.openai_agents_agent:agent   # with a key in OPENAI_API_KEY
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, function_tool
from openai.types.responses import Response, ResponseCompletedEvent, ResponseTextDeltaEvent

from zhin_host.agents.openai_agents import OpenAIAgent, ask_person


class CannedModel(Model):
    """Publishes what it is told to and says where it is. It needs no key and no network."""

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Nobody asks for an answer as a whole: the host streams."""
        raise NotImplementedError

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """A sentence, word by word, and the call of a tool where one is due."""
        items = kwargs["input"] if "input" in kwargs else args[1]
        last, number = items[-1], sum(item.get("role") == "user" for item in items)
        text = f"Message {number}: {last.get('output') or 'I would like to publish it.'}"
        for word in text.split(" "):
            yield ResponseTextDeltaEvent.construct(
                type="response.output_text.delta", item_id=f"msg_{len(items)}", delta=f"{word} "
            )
        output: list[Any] = [_message(f"msg_{len(items)}", text)]
        if last.get("role") == "user":
            output.append(_call(f"call_{len(items)}", "publish", page=last["content"]))
        response = Response.construct(id="resp", output=output, usage=None)
        yield ResponseCompletedEvent.construct(type="response.completed", response=response)


def _message(item_id: str, text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": f"{text} ", "annotations": []}]
    return {"type": "message", "id": item_id, "role": "assistant", "status": "completed", "content": content}


def _call(call_id: str, name: str, **arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(arguments)}


@function_tool(needs_approval=True)
async def publish(page: str) -> str:
    """Publish a page; returns where it stands."""
    return f"https://pages.example/{page.rsplit(maxsplit=1)[-1]}"


assistant = Agent(
    name="publisher",
    instructions="You publish pages.",
    model=os.environ.get("OPENAI_MODEL") or CannedModel(),
    tools=[publish, ask_person],
)
agent = OpenAIAgent(assistant)
