"""Graphs for the tests of LangGraphAgent, and short words for what tests look at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.pregel import Pregel

from zhin_host import AgentSessionHost, TurnHandle


@tool
async def publish(page: str) -> str:
    """Publish a page."""
    return f"https://pages.example/{page}"


@tool
def look(topic: str) -> str:
    """Look something up."""
    return f"all about {topic}"


def chat_graph(
    model: BaseChatModel, tools: Sequence[BaseTool | Callable[..., Any]] = (), **compiled: Any
) -> Any:
    """A model that may call tools until it is done."""

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", ask)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(**compiled)


def one_node(
    function: Callable[..., Any], state: Any = MessagesState, **compiled: Any
) -> Pregel[Any, Any, Any, Any]:
    """A graph that is one node."""
    builder = StateGraph(state)
    builder.add_node("node", function)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile(**compiled)


async def rest(host: AgentSessionHost, handle: TurnHandle) -> list[dict[str, Any]]:
    """The events of the session up to where it rests."""
    return [event async for event in host.stream(handle.session_id)]


async def requests_of(
    host: AgentSessionHost, handle: TurnHandle, count: int, answered: Collection[str] = ()
) -> list[dict[str, Any]]:
    """What the session waits for, once it waits for so many answers beside those that were given."""
    async for event in host.stream(handle.session_id, until="never"):
        if event["type"] == "session.waiting":
            requests = [row for row in await handle.requests() if row["requestId"] not in answered]
            if len(requests) == count:
                return requests
    raise AssertionError("the session is over")


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The data of the events of a type."""
    return [event["data"] for event in events if event["type"] == kind]


def names(events: list[dict[str, Any]], status: str = "completed") -> list[str]:
    """The actions that ended so, in order."""
    return [row["toolName"] for row in of(events, "action.result") if row["status"] == status]
