"""Rules: what a developer says of a graph's tools that LangChain has no word for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypedDict

from langchain_core.tools import BaseTool

from zhin_host import Tool


class ToolRules(TypedDict, total=False):
    """As `zhin_host.tool` has them.

    Attributes:
        approval: "never" (the default), "once" per session, "always", or a function of the arguments.
        repeatable: False: a person is asked before a second try after a crash.
        expires_s: When its approval request expires, seconds; 0: never.
    """

    approval: str | Callable[..., bool | Awaitable[bool]]
    repeatable: bool
    expires_s: float | None


def hosted_tool(tool: BaseTool, rules: ToolRules, function: Callable[..., Any]) -> Tool:
    """The tool as the host calls it.

    Args:
        tool: LangChain's.
        rules: What is said of it.
        function: What runs, given the arguments by name.

    Raises:
        TypeError: The policy is unknown.
        ValueError: The name is not 1 to 64 printable characters.
    """
    given: dict[str, Any] = dict(rules)
    return Tool.from_schema(tool.name, tool.description, _schema(tool), function, **given)


def checked_rules(
    rules: Mapping[str, ToolRules] | None, tools: Iterable[BaseTool]
) -> Mapping[str, ToolRules]:
    """The rules, each of a tool that the graph has.

    Raises:
        ValueError: One is of a tool that is not there: it would be asked for by nobody and guard nothing.
    """
    names = {tool.name for tool in tools}
    for name in rules or {}:
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise ValueError(f"no ToolNode of the graph has a tool {name!r:.80}; it has: {known}")
    return rules or {}


def _schema(tool: BaseTool) -> dict[str, Any]:
    """JSON Schema of what the model gives, without what LangGraph injects."""
    schema: Any = tool.tool_call_schema
    return dict(schema) if isinstance(schema, dict) else schema.model_json_schema()
