"""An agent that publishes a page once a person allows it.

scripts/serve --agent examples.publish:agent
"""

from zhin_host import ToolDenied, Turn, create_agent_session_host, tool


@tool(approval="always")
async def publish(page: str) -> str:
    """Publish a page; returns where it stands."""
    return f"https://pages.example/{len(page)}"


async def fetch(topic: str) -> str:
    """Find the page about a topic."""
    return f"<h1>{topic}</h1>"


async def agent(turn: Turn) -> None:
    """Fetch the page that the message names, then publish it if a person says yes."""
    await turn.say("Looking. ")  # message.appended: readers see it at once
    page = await turn.run("fetch", fetch, turn.message)  # an action: recorded, with its result
    try:
        url = await turn.call_tool(publish, page=page)  # waits for a person, as long as it takes
    except ToolDenied:
        await turn.say("Not published.")
    else:
        await turn.say(f"Published at {url}.")


host = create_agent_session_host(agent, data_dir="data/http-agent-sessions", tools=[publish])
app = host.app  # ASGI: serve it with any server, or mount it in an app you have
