"""An MCP server with two tools, over its standard streams: examples/mcp_tools.py starts it."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("pages", log_level="WARNING")


@server.tool()
def publish(page: str) -> str:
    """Publish a page; returns where it stands."""
    return f"https://pages.example/{page}"


@server.tool()
def pages() -> list[str]:
    """The pages there are."""
    return ["cats", "dogs"]


if __name__ == "__main__":
    server.run("stdio")
