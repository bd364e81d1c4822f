"""Options: the chat agent as the command line makes it, from what `zhin-host serve` was given."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from zhin_host import Tool
from zhin_host.agents.chat.agent import ChatAgent
from zhin_host.agents.chat.calling import ToolSource

_UNUSED_KEY: Final = "none"  # local servers ask for no key, and the client wants one


class ChatAgentFromOptions:
    """What `--agent zhin_host.agents.chat:agent` names: it becomes a ChatAgent once its options are known."""

    def with_options(
        self,
        *,
        model: str | None = None,
        base_url: str | None = None,
        tools: Iterable[str] = (),
        mcp: str | None = None,
        instructions: str | None = None,
    ) -> ChatAgent:
        """The agent.

        Args:
            model: The model's name.
            base_url: The endpoint; None: OPENAI_BASE_URL, else OpenAI's own.
            tools: Modules of `@tool`s.
            mcp: A file of MCP servers whose tools it may call (docs/mcp.md).
            instructions: A file of what the model is told before everything else.

        Raises:
            ValueError: There is no model, no key, or nothing in what was named; the sentence says what to do.
        """
        if not model:
            raise ValueError("The chat agent needs a model; name one with --model.")
        endpoint = base_url or os.environ.get("OPENAI_BASE_URL")
        if not endpoint and not os.environ.get("OPENAI_API_KEY"):
            raise ValueError(
                "The chat agent has no key; set OPENAI_API_KEY, or name another endpoint with --base-url."
            )
        return ChatAgent(
            model,
            base_url=endpoint,
            api_key=os.environ.get("OPENAI_API_KEY") or _UNUSED_KEY,
            tools=[*(tool for module in tools for tool in tools_of(module)), *_servers_of(mcp)],
            instructions="" if instructions is None else _read(instructions),
        )


def tools_of(module_name: str) -> list[Tool]:
    """The `@tool`s of a module, in its order.

    Raises:
        ValueError: It cannot be imported, or has none.
    """
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ValueError(
            f"The tools {module_name!r} cannot be imported: {type(error).__name__}: {error}."
        ) from error
    found = [value for value in vars(module).values() if isinstance(value, Tool)]
    if not found:
        raise ValueError(f"The module {module_name!r} has no @tool in it.")
    return found


def _servers_of(path: str | None) -> list[ToolSource]:
    """The servers of the file, as one source of tools; none without a file."""
    if path is None:
        return []
    try:
        from zhin_host.agents.mcp import McpTools  # noqa: PLC0415 - an extra of its own
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--mcp needs the package {error.name!r}; run pip install 'zhin-host[mcp]'."
        ) from error
    return [McpTools.from_file(path)]


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"The instructions {path!r} cannot be read: {error}.") from error


agent = ChatAgentFromOptions()
