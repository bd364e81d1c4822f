"""Declared tools: those of an agent that are known before it runs, as GET /info tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic_ai import Agent
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from zhin_host import Tool

METADATA_KEY: Final = "zhin"
"""In a tool's metadata: what the host is told of it, by the names that `zhin_host.tool` takes."""

ASKING: Final = ("once", "always", "on-risk")
"""The policies under which a call that runs was allowed by a person."""


def hosted_tool(definition: ToolDefinition, function: Any, *, approval: str | None = None) -> Tool:
    """A tool of the library as one of the host.

    Args:
        definition: The library's word on it. Its metadata may have `{"zhin": {"approval": "once", "repeatable":
            False, "expires_s": 3600}}`, each of them optional.
        function: Async; gets the arguments by name, as JSON.
        approval: The policy of this call, whatever the metadata says; None: as they say, else "always" for a tool
            that requires approval.

    Raises:
        TypeError: The metadata name an option or a policy that there is none.
    """
    options = {**_options(definition), "approval": approval or policy_of(definition)}
    description = definition.description or ""
    return Tool.from_schema(
        definition.name, description, definition.parameters_json_schema, function, **options
    )


def policy_of(definition: ToolDefinition) -> Any:
    """When a person is asked before a call: as the metadata say, else always for a tool that requires approval."""
    default = "always" if definition.kind == "unapproved" else "never"
    return _options(definition).get("approval", default)


def declared_tools(agent: Agent[Any, Any]) -> tuple[Tool, ...]:
    """The function tools registered with the agent itself or in toolsets of functions, by their own names.

    What a toolset makes of another, what a server of tools offers and what capabilities bring is known in a run only.
    """
    return tuple(hosted_tool(definition, _not_here) for definition in _definitions(agent.toolsets))


def _definitions(toolsets: Iterable[AbstractToolset[Any]]) -> Iterator[ToolDefinition]:
    for toolset in toolsets:
        if isinstance(toolset, FunctionToolset):
            yield from (tool.tool_def for tool in toolset.tools.values())


def _options(definition: ToolDefinition) -> Mapping[str, Any]:
    options: Mapping[str, Any] = (definition.metadata or {}).get(METADATA_KEY, {})
    return options


async def _not_here(**arguments: Any) -> None:
    """Stands for a function that only a run has."""
    raise NotImplementedError(f"only a run of the agent can call this tool, with {', '.join(arguments)}")
