"""Agents of the SDK made ready for turns, in place: the SDK compares agents and tools by identity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from agents import (
    Agent,
    CodeInterpreterTool,
    FileSearchTool,
    FunctionTool,
    Handoff,
    HostedMCPTool,
    ImageGenerationTool,
    Model,
    Tool,
    ToolSearchTool,
    WebSearchTool,
)
from agents.mcp import MCPServer

from zhin_host.agents.openai_agents.model import RecordedModel, recorded_model
from zhin_host.agents.openai_agents.tools import is_recorded, recorded

# These run at the model's own service, as a part of its answer.
_ELSEWHERE: Final = (
    CodeInterpreterTool,
    FileSearchTool,
    HostedMCPTool,
    ImageGenerationTool,
    ToolSearchTool,
    WebSearchTool,
)


def agents_of(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """The agent and those that a conversation with it may be handed over to, each once."""
    known: dict[int, Agent[Any]] = {}
    waiting = [agent]
    while waiting:
        one = waiting.pop(0)
        if id(one) not in known:
            known[id(one)] = one
            yield one
            waiting.extend(filter(None, map(_target, one.handoffs)))


def servers_of(agent: Agent[Any]) -> list[MCPServer]:
    """The MCP servers of the agent and of all it leads to, each once."""
    known: dict[int, MCPServer] = {}
    seen: set[int] = set()
    waiting = [agent]
    while waiting:
        for one in agents_of(waiting.pop()):
            if id(one) not in seen:
                seen.add(id(one))
                known.update((id(server), server) for server in one.mcp_servers)
                waiting.extend(filter(None, map(_inner, one.tools)))
    return list(known.values())


def prepare(agent: Agent[Any]) -> None:
    """Have the models and tools of this agent, and of all it leads to, recorded in turns. Again is as once.

    Raises:
        TypeError: It is no agent, or has a tool that runs here and is not recorded.
    """
    if not isinstance(agent, Agent):
        raise TypeError(f"give an agents.Agent, not a {type(agent).__name__}")
    for one in agents_of(agent):
        if any(kind.__name__ == "SandboxAgent" for kind in type(one).__mro__):
            raise TypeError(
                f"{one.name} is a SandboxAgent; the SDK makes its tools where they cannot be recorded"
            )
        if isinstance(one.model, Model) and not isinstance(one.model, RecordedModel):
            one.model = recorded_model(one.model)
        if "get_all_tools" not in vars(one):
            _prepare_later_tools(one)
            for tool in one.tools:
                _prepare_tool(tool)


def _prepare_later_tools(agent: Agent[Any]) -> None:
    """Tools of MCP servers, and those that were added since, are known only when a run asks for them."""
    ask = agent.get_all_tools

    async def get_all_tools(run_context: Any) -> list[Tool]:
        tools = await ask(run_context)
        for tool in tools:
            _prepare_tool(tool)
        return tools

    agent.get_all_tools = get_all_tools  # type: ignore[method-assign]


def _prepare_tool(tool: Tool) -> None:
    if isinstance(tool, FunctionTool):
        _prepare_function(tool)
    elif not isinstance(tool, _ELSEWHERE):
        raise TypeError(
            f"{type(tool).__name__} {tool.name} runs on this machine and its calls cannot be recorded yet; "
            "make it a function tool"
        )


def _prepare_function(tool: FunctionTool) -> None:
    inner = _inner(tool)
    if inner is not None:
        prepare(inner)
    invoker: Any = tool.on_invoke_tool
    invoke = getattr(invoker, "_invoke_tool_impl", None)
    if invoke is None:  # written by hand
        if not is_recorded(invoker):
            tool.on_invoke_tool = recorded(tool, invoker)
    elif not is_recorded(invoke):
        # Beneath what turns errors into words for the model, so that a failing tool is a failed action.
        invoker._invoke_tool_impl = recorded(tool, invoke)  # noqa: SLF001 - the SDK has no seam there


def _inner(tool: Tool) -> Agent[Any] | None:
    """The agent that a tool is."""
    return getattr(tool, "_agent_instance", None)


def _target(handoff: Agent[Any] | Handoff[Any, Any]) -> Agent[Any] | None:
    """Whom it hands over to; None where that is known only when it happens."""
    if isinstance(handoff, Agent):
        return handoff
    known = getattr(handoff, "_agent_ref", None)
    agent = None if known is None else known()
    return agent if isinstance(agent, Agent) else None
