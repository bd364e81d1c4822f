"""A LangGraph graph with a tool that a person must allow.

scripts/serve --agent examples.langgraph_agent:agent

Without a key a stand-in for a model answers. For a real one install langchain and its provider's package, and name it
in MODEL, as `init_chat_model` has it: "openai:…", "anthropic:…" or another.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from zhin_host.agents.langgraph import LangGraphAgent


@tool
async def publish(page: str) -> str:
    """Publish a page."""
    return f"https://pages.example/{page}"


class CannedModel(BaseChatModel):
    """Publishes the last word of the message, then says where that stands, word by word."""

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            answer = AIMessage(f"That gave: {last.text}")
        else:
            call = {"name": "publish", "args": {"page": last.text.split()[-1]}, "id": f"call_{len(messages)}"}
            answer = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        answer = self._generate(messages).generations[0].message
        if isinstance(answer, AIMessage) and answer.tool_calls:
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_calls=answer.tool_calls))
        for word in re.findall(r"\S+\s*", str(answer.text)):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))

    @property
    def _llm_type(self) -> str:
        return "canned"


def model_named(name: str) -> Any:
    """The model that has this name; "" is the stand-in."""
    if not name:
        return CannedModel()
    from langchain.chat_models import init_chat_model  # noqa: PLC0415 - needed for a real model only

    return init_chat_model(name).bind_tools([publish])


model = model_named(os.environ.get("MODEL", ""))


async def ask(state: MessagesState) -> dict[str, Any]:
    """The node that asks the model."""
    return {"messages": [await model.ainvoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("model", ask)
builder.add_node("tools", ToolNode([publish]))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")

agent = LangGraphAgent(builder.compile(), rules={"publish": {"approval": "always"}})
