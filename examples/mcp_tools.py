"""A chat agent with the tools of an MCP server, of which one asks a person first.

python examples/canned_model.py &        # a stand-in for a model; or set MODEL, BASE_URL and OPENAI_API_KEY
scripts/serve --agent examples.mcp_tools:agent
"""

import os
import sys
from pathlib import Path

from zhin_host.agents.chat import ChatAgent
from zhin_host.agents.mcp import McpTools

SERVER = Path(__file__).with_name("mcp_server.py")

mcp = McpTools(
    {"pages": {"command": sys.executable, "args": [str(SERVER)]}},
    approval={"pages.pages": "never"},  # every other tool asks
)

agent = ChatAgent(
    os.environ.get("MODEL", "canned"),
    base_url=os.environ.get("BASE_URL", "http://127.0.0.1:8788/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
    instructions="You publish pages.",
    tools=[mcp],
)
