"""Processes of MCP servers end with the host, however it ends, and a session goes on when it is back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.agents.mcp import LEGACY, calls, legacy
from tests.e2e.process import DEADLINE_S, Host, spoken, types
from zhin_host.agents.mcp import McpTools

AGENT: Final = """
import json
from zhin_host import ActionFailed, ToolDenied
from zhin_host.agents.mcp import McpTools

mcp = McpTools.from_file("mcp.json")

async def agent(turn):
    for name in turn.message.split():
        try:
            await turn.say(await turn.call_tool(mcp.tool(name)) + "\\n")
        except (ActionFailed, ToolDenied) as error:
            await turn.say(type(error).__name__ + "\\n")
"""


def written(folder: Path, *offered: str, manners: tuple[str, ...] = ()) -> str:
    """An agent in the folder with a small server's tools, of which `write` asks; how it is named."""
    ours = {"approval": {"it.write": "always", "*": "never"}}
    (folder / "mcp.json").write_text(
        json.dumps({"mcpServers": {"it": legacy(folder, *manners)}, "zhin": ours})
    )
    (folder / "tools.json").write_text(json.dumps(offered))
    (folder / "mine.py").write_text(AGENT)
    return "mine:agent"


def servers_in(folder: Path) -> list[int]:
    """The processes that were started with the folder as an argument: servers and what stays beside them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if LEGACY.encode() in words and str(folder).encode() in words:
            found.append(int(path.parent.name))
    return found


def environment_of(pid: int) -> list[bytes]:
    """The variables of a process, as it was started with them."""
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def until_none(folder: Path) -> None:
    """Wait until there is no such process any more."""
    end_s = time.monotonic() + DEADLINE_S
    while servers_in(folder):
        assert time.monotonic() < end_s, f"left behind: {servers_in(folder)}"
        time.sleep(0.02)


def until_called(folder: Path, name: str) -> None:
    """Wait until a server in the folder was called for this."""
    end_s = time.monotonic() + DEADLINE_S
    while name not in calls(folder):
        assert time.monotonic() < end_s
        time.sleep(0.02)


@pytest.mark.parametrize("manners", [(), ("deaf",)], ids=["a kind one", "a deaf one"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_no_process_of_a_server_outlives_its_host(
    tmp_path: Path, data_dir: Path, number: signal.Signals, manners: tuple[str, ...]
) -> None:
    agent = written(tmp_path, "tell", manners=manners)
    with Host(tmp_path, "--agent", agent, "--data-dir", data_dir) as host:
        assert spoken(host.events(host.say("it__tell")["sessionId"])).startswith("tell by ")
        assert len(servers_in(tmp_path)) == 2
        if number == signal.SIGKILL:
            host.kill()
        else:
            host.stop(number)
        until_none(tmp_path)


def test_a_host_that_is_killed_in_mid_call_leaves_no_process_and_asks_before_it_calls_again(
    tmp_path: Path, data_dir: Path
) -> None:
    agent = written(tmp_path, "tell", "stick")
    with Host(tmp_path, "--agent", agent, "--data-dir", data_dir) as host:
        session_id = host.say("it__tell it__stick it__tell")["sessionId"]
        until_called(tmp_path, "stick")
        host.kill()
        until_none(tmp_path)
    with Host(tmp_path, "--agent", agent, "--data-dir", data_dir) as host:
        events = host.events(session_id)
        [request] = [event["data"] for event in events if event["type"] == "input.requested"]
        assert (request["kind"], request["toolName"]) == ("retry", "it__stick")
        host.post(f"/session/{session_id}/input", requestId=request["requestId"], approved=False)
        said = spoken(host.events(session_id)).splitlines()
    assert said[1] == "ToolDenied"
    assert [row for row in calls(tmp_path) if row != "list"] == ["tell", "stick", "tell"]


def test_an_approval_that_was_pending_at_kill_9_is_given_after_the_restart_and_the_tool_runs_once(
    tmp_path: Path, data_dir: Path
) -> None:
    agent = written(tmp_path, "tell", "write")
    with Host(tmp_path, "--agent", agent, "--data-dir", data_dir) as host:
        accepted, request_id = host.parked("it__tell it__write it__tell")
        host.kill()
    until_none(tmp_path)
    (tmp_path / "tools.json").write_text(
        "[]"
    )  # from its record it takes the same path, whatever is offered now
    with Host(tmp_path, "--agent", agent, "--data-dir", data_dir) as host:
        host.post(f"/session/{accepted['sessionId']}/input", requestId=request_id, approved=True)
        events = host.events(accepted["sessionId"])
        host.stop()
    assert "turn.completed" in types(events)
    assert [line.split()[0] for line in spoken(events).splitlines()] == ["tell", "write", "tell"]
    assert [row for row in calls(tmp_path) if row != "list"] == ["tell", "write", "tell"]


async def test_closing_ends_the_processes_and_the_next_use_starts_them_again(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text('["tell"]')
    async with McpTools({"it": legacy(tmp_path)}) as mcp:
        await mcp.tools()
        await mcp.aclose()
        assert servers_in(tmp_path) == []
        await mcp.tools()
        assert len(servers_in(tmp_path)) == 2
    assert servers_in(tmp_path) == []


async def test_a_deaf_server_is_ended_by_closing_too(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text('["tell"]')
    async with McpTools({"it": legacy(tmp_path, "deaf")}) as mcp:
        await mcp.tools()
    assert servers_in(tmp_path) == []


def test_the_end_of_the_loop_closes_what_nobody_closed(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text('["tell"]')
    mcp = McpTools({"it": legacy(tmp_path)})

    async def name() -> str:
        return (await mcp.tools())[0].name

    assert asyncio.run(name()) == "it__tell"
    assert servers_in(tmp_path) == []
    assert asyncio.run(name()) == "it__tell"
    assert servers_in(tmp_path) == []


async def test_a_loop_beside_the_one_that_uses_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text('["tell"]')
    async with McpTools({"it": legacy(tmp_path)}) as mcp:
        await mcp.tools()
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, mcp.tools())


async def test_a_server_gets_no_variables_of_the_host_but_the_ones_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tools.json").write_text("[]")
    monkeypatch.setenv("SECRET_OF_THE_HOST", "x")
    server: dict[str, Any] = {**legacy(tmp_path), "env": {"ITS_OWN": "y"}}
    async with McpTools({"it": server}) as mcp:
        await mcp.tools()
        content = environment_of(int((tmp_path / "pid").read_text()))
    assert b"ITS_OWN=y" in content
    assert not any(row.startswith(b"SECRET_OF_THE_HOST") for row in content)
    assert f"PATH={os.environ['PATH']}".encode() in content
