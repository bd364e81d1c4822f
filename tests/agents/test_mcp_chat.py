"""The chat agent with tools of an MCP server: examples/mcp_tools.py, killed and gone on with, and servers that go."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.endpoint import Endpoint, in_order, says
from tests.agents.endpoint import calls as asks
from tests.agents.mcp import calls, legacy
from tests.docs.shell import free_port
from tests.e2e.process import Host, spoken
from zhin_host import create_agent_session_host
from zhin_host.agents.chat import ChatAgent
from zhin_host.agents.mcp import McpTools
from zhin_host.agents.mcp.policies import Approval

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(120)  # two hosts, two servers and a model, all of them processes
def test_the_example_is_killed_while_it_asks_and_publishes_once_it_is_back(
    tmp_path: Path, data_dir: Path
) -> None:
    port = free_port()
    model = [sys.executable, str(ROOT / "examples" / "canned_model.py"), str(port)]

    def host_with() -> Host:
        return Host(
            tmp_path,
            "--agent",
            "examples.mcp_tools:agent",
            "--data-dir",
            data_dir,
            BASE_URL=f"http://127.0.0.1:{port}/v1",
            PYTHONPATH=str(ROOT),
            OPENAI_API_KEY="none",
        )

    with subprocess.Popen(model) as running:
        try:
            with host_with() as host:
                accepted, request_id = host.parked("publish cats")
                host.kill()
            with host_with() as host:
                session_id = accepted["sessionId"]
                host.post(f"/session/{session_id}/input", requestId=request_id, approved=True)
                events = host.events(session_id)
        finally:
            running.kill()
    assert spoken(events) == "That gave: https://pages.example/cats "
    results = [event["data"] for event in events if event["type"] == "action.result"]
    assert [row["toolName"] for row in results] == ["model", "pages__publish", "model"]


async def test_the_model_is_told_of_a_server_that_went_and_the_turn_and_the_session_go_on(
    tmp_path: Path, data_dir: Path
) -> None:
    (tmp_path / "tools.json").write_text('["tell", "die"]')
    script = in_order(
        asks(("it__die", "{}")), says("It went."), asks(("it__tell", "{}")), says("It is back.")
    )
    mcp = McpTools({"it": legacy(tmp_path)}, approval={"*": "never"})
    with Endpoint(script) as endpoint:
        agent = ChatAgent("stub", base_url=endpoint.url, api_key="none", tools=[mcp])
        async with create_agent_session_host(agent, data_dir=data_dir) as host:
            first = await host.run("do it")
            assert (await first.result()).text == "It went."
            second = await host.run("again", session_id=first.session_id)
            assert (await second.result()).text == "It is back."
            pid = int((tmp_path / "pid").read_text())
        told = [row["content"] for row in endpoint.requests[-1]["messages"] if row["role"] == "tool"]
    assert told == [
        "This call failed: the MCP server it went while die ran; whether it had an effect is not known",
        f"tell by {pid}",
    ]
    assert [row["function"]["name"] for row in endpoint.requests[0]["tools"]] == ["it__tell", "it__die"]
    assert not await asyncio.to_thread(os.path.exists, f"/proc/{pid}")  # the host's stop has closed it


async def test_recorded_calls_of_the_model_stand_when_the_server_offers_other_tools_later(
    tmp_path: Path, data_dir: Path
) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text('["tell", "write"]')
    policies: dict[str, Approval] = {"it.write": "always", "*": "never"}
    script = in_order(asks(("it__tell", "{}")), asks(("it__write", "{}")), says("Done."))
    with Endpoint(script) as endpoint:

        def agent() -> ChatAgent:
            mcp = McpTools({"it": legacy(tmp_path)}, approval=policies)
            return ChatAgent("stub", base_url=endpoint.url, api_key="none", tools=[mcp])

        async with create_agent_session_host(agent(), data_dir=data_dir) as host:
            session_id = (await host.run("write")).session_id
            async for _ in host.stream(session_id):
                pass
        tools.write_text(json.dumps(["write"]))
        async with create_agent_session_host(agent(), data_dir=data_dir) as host:
            handle = await host.resume(session_id)
            await handle.answer(True)
            assert (await handle.result()).text == "Done."
    assert [row for row in calls(tmp_path) if row != "list"] == ["tell", "write"]
