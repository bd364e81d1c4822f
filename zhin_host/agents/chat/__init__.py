"""A chat agent with tools, for any endpoint that speaks OpenAI's chat completions (extra `chat`).

zhin-host serve --agent zhin_host.agents.chat:agent --model NAME [--base-url URL] [--tools MODULE] [--mcp FILE]
"""

from zhin_host.agents.chat.agent import ChatAgent
from zhin_host.agents.chat.calling import ToolSource
from zhin_host.agents.chat.model import ModelUnavailable
from zhin_host.agents.chat.options import agent

__all__ = ["ChatAgent", "ModelUnavailable", "ToolSource", "agent"]
