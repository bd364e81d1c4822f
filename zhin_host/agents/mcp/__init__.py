"""Tools of MCP servers as tools of an agent: `McpTools`. Needs the extra `mcp`."""

from zhin_host.agents.mcp.errors import (
    McpCallTimedOut,
    McpServerLost,
    McpServerUnreachable,
    McpToolFailed,
)
from zhin_host.agents.mcp.tools import McpTools

__all__ = ["McpCallTimedOut", "McpServerLost", "McpServerUnreachable", "McpToolFailed", "McpTools"]
