"""A chat agent with a tool that a person must allow, for any endpoint that speaks OpenAI's chat completions.

python examples/canned_model.py &        # a stand-in for a model; or set MODEL, BASE_URL and OPENAI_API_KEY
scripts/serve --agent examples.chat_agent:agent
"""

import os

from zhin_host import tool
from zhin_host.agents.chat import ChatAgent


@tool(approval="always")
async def publish(page: str) -> str:
    """Publish a page."""
    return f"https://pages.example/{page}"


agent = ChatAgent(
    os.environ.get("MODEL", "canned"),
    base_url=os.environ.get("BASE_URL", "http://127.0.0.1:8788/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
    instructions="You publish pages.",
    tools=[publish],
)
