"""An MCP server over stdio: `python -m tests.agents.apps.notes_server`."""

from __future__ import annotations

from mcp.server import MCPServer

server = MCPServer("notes")


@server.tool()
def read_note(name: str) -> str:
    """Read a note."""
    if name == "none":
        raise LookupError("there is no such note")
    return f"the note {name}"


if __name__ == "__main__":
    server.run("stdio")
