"""Tools of MCP servers in turns: listed, called, allowed or refused, and what becomes of a turn when a server goes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.agents.mcp import calling, calls, legacy, message, served, serving, stdio, until
from tests.hosting import crashing
from tests.integration.proxy import proxied
from zhin_host import AgentSessionHost, create_agent_session_host
from zhin_host.agents.mcp import McpTools
from zhin_host.agents.mcp.policies import Approval
from zhin_host.storage.files import FileHttpSessionPersistence

HELLO = ("web__greet", {"name": "Ada"})
ANYTHING: Final[dict[str, Approval]] = {"*": "never"}
WRITES_ASK: Final[dict[str, Approval]] = {"*.write": "always", "*": "never"}


@asynccontextmanager
async def web(folder: Path, **more: Any) -> AsyncIterator[McpTools]:
    """The tools of one server over HTTP, called web."""
    async with (
        served(folder) as port,
        McpTools(
            {"web": {"url": f"http://127.0.0.1:{port}/mcp"}}, **({"approval": ANYTHING} | more)
        ) as tools,
    ):
        yield tools


@asynccontextmanager
async def small(
    folder: Path, *offered: str, manners: tuple[str, ...] = (), **more: Any
) -> AsyncIterator[McpTools]:
    """The tools of one small process, called it."""
    (folder / "tools.json").write_text(json.dumps(offered))
    async with McpTools({"it": legacy(folder, *manners)}, **({"approval": ANYTHING} | more)) as tools:
        yield tools


async def said(host: AgentSessionHost, *rows: tuple[str, dict[str, Any]]) -> list[str]:
    """What came of the calls of one turn."""
    async with asyncio.timeout(30):
        return (await (await host.run(message(*rows))).result()).text.splitlines()


async def asked(host: AgentSessionHost, session_id: str) -> list[dict[str, Any]]:
    """The requests made up to where the session rests."""
    events = [event async for event in host.stream(session_id)]
    return [event["data"] for event in events if event["type"] == "input.requested"]


async def listening(mcp: McpTools, prefix: str) -> None:
    """Open the session and wait until it hears of changes: nothing of it is half made any more."""
    await mcp.tools()
    session = mcp._remotes[prefix]._session
    assert session is not None
    await until(lambda: session._tells_changes)


def lives(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_the_tools_of_a_server_have_its_names_descriptions_and_schemas(tmp_path: Path) -> None:
    async with web(tmp_path) as mcp:
        tools = {tool.name: tool for tool in await mcp.tools()}
    assert list(tools)[:3] == ["web__greet", "web__count", "web__delete_page"]
    greet = tools["web__greet"]
    assert greet.description == "Greet somebody."
    assert greet.schema["properties"] == {"name": {"title": "Name", "type": "string"}}
    assert (greet.is_repeatable, tools["web__count"].is_repeatable) == (False, True)


async def test_a_result_is_its_text_or_its_structure_and_what_is_neither_is_described(
    tmp_path: Path, data_dir: Path
) -> None:
    async with web(tmp_path) as mcp, create_agent_session_host(calling(mcp), data_dir=data_dir) as host:
        lines = await said(
            host, HELLO, ("web__count", {}), ("web__picture", {}), ("web__flood", {"size": 1_000_000})
        )
    assert lines[0] == '"Hello, Ada!"'
    assert lines[1] == '{"cats": 3, "dogs": 1}'
    assert (
        json.loads(lines[2])
        == "before\n[image, image/png, 300000 bytes, left out]\n[resource file:///page]\nthe page"
    )
    assert json.loads(lines[3]) == "é" * 131_072 + "\n[cut: the first 262144 of 2000000 bytes]"


async def test_what_a_tool_says_of_its_failure_is_the_action_s_error_and_the_turn_goes_on(
    tmp_path: Path, data_dir: Path
) -> None:
    async with web(tmp_path) as mcp, create_agent_session_host(calling(mcp), data_dir=data_dir) as host:
        lines = await said(host, ("web__fail", {"why": "no paper"}), ("web__nothing", {}), HELLO)
    assert lines == [
        "McpToolFailed: Error executing tool fail: no paper",
        "McpToolFailed: Unknown tool: nothing",
        '"Hello, Ada!"',
    ]


async def test_a_pattern_decides_which_calls_a_person_allows_and_the_server_gets_the_call_s_key(
    tmp_path: Path, data_dir: Path
) -> None:
    async with (
        web(tmp_path, approval={"web.delete_*": "always", "*": "never"}) as mcp,
        create_agent_session_host(calling(mcp), data_dir=data_dir) as host,
    ):
        handle = await host.run(message(HELLO, ("web__delete_page", {"name": "home"})))
        [request] = await asked(host, handle.session_id)
        assert (request["toolName"], request["args"]) == ("web__delete_page", {"name": "home"})
        assert calls(tmp_path) == ["greet Ada"]
        await handle.answer(True)
        assert (await handle.result()).text.splitlines() == ['"Hello, Ada!"', '"deleted home"']
    assert calls(tmp_path)[1] == f"delete home {handle.session_id}:{request['callId']}"


async def test_a_call_that_a_person_refuses_never_reaches_the_server(tmp_path: Path, data_dir: Path) -> None:
    async with (
        web(tmp_path, approval={"web.delete_*": "always", "*": "never"}) as mcp,
        create_agent_session_host(calling(mcp), data_dir=data_dir) as host,
    ):
        handle = await host.run(message(("web__delete_page", {"name": "home"}), HELLO))
        await asked(host, handle.session_id)
        await handle.answer(False)
        assert (await handle.result()).text.splitlines() == ["ToolDenied", '"Hello, Ada!"']
    assert calls(tmp_path) == ["greet Ada"]


async def test_a_tool_that_calls_itself_harmless_still_asks_where_no_pattern_names_it(
    tmp_path: Path, data_dir: Path
) -> None:
    async with (
        web(tmp_path, approval={"web.greet": "never"}) as mcp,
        create_agent_session_host(calling(mcp), data_dir=data_dir) as host,
    ):
        handle = await host.run(message(HELLO, ("web__count", {})))
        [request] = await asked(host, handle.session_id)
        assert request["toolName"] == "web__count"
        await handle.answer(True)
        await handle.result()


async def test_a_tool_that_was_allowed_once_does_not_ask_again_in_the_session(
    tmp_path: Path, data_dir: Path
) -> None:
    async with (
        web(tmp_path, approval={"*": "once"}) as mcp,
        create_agent_session_host(calling(mcp), data_dir=data_dir) as host,
    ):
        handle = await host.run(message(HELLO, ("web__greet", {"name": "Bob"})))
        await asked(host, handle.session_id)
        await handle.answer(True)
        assert (await handle.result()).text.splitlines() == ['"Hello, Ada!"', '"Hello, Bob!"']


async def test_a_process_that_ends_in_mid_call_fails_that_call_and_the_next_one_starts_it_again(
    tmp_path: Path, data_dir: Path
) -> None:
    async with (
        small(tmp_path, "tell", "die") as mcp,
        create_agent_session_host(calling(mcp), data_dir=data_dir) as host,
    ):
        first, died, second = await said(host, ("it__tell", {}), ("it__die", {}), ("it__tell", {}))
    assert died == (
        "McpServerLost: the MCP server it went while die ran; whether it had an effect is not known"
    )
    assert first.startswith('"tell by ')
    assert second.startswith('"tell by ')
    assert first != second


async def test_a_process_that_is_killed_between_two_calls_costs_none_of_them(
    tmp_path: Path, data_dir: Path
) -> None:
    async with (
        small(tmp_path, "tell") as mcp,
        create_agent_session_host(calling(mcp), data_dir=data_dir) as host,
    ):
        await said(host, ("it__tell", {}))
        pid = int((tmp_path / "pid").read_text())
        session = mcp._remotes["it"]._session
        os.kill(pid, 9)
        assert session is not None
        await until(lambda: not session.is_usable)
        [line] = await said(host, ("it__tell", {}))
    assert line.startswith('"tell by ')
    assert line != f'"tell by {pid}"'


async def test_a_connection_that_is_cut_in_mid_call_fails_that_call_and_the_next_one_connects_again(
    tmp_path: Path, data_dir: Path
) -> None:
    async with (
        served(tmp_path) as port,
        proxied(port) as proxy,
        McpTools({"web": {"url": f"{proxy.url}/mcp"}}, approval=ANYTHING) as mcp,
        create_agent_session_host(calling(mcp), data_dir=data_dir) as host,
    ):
        turn = asyncio.create_task(said(host, ("web__hold", {}), HELLO))
        await until(lambda: calls(tmp_path) == ["hold"])
        await proxy.end()
        lost, hello = await turn
    assert lost.startswith("McpServerLost: the MCP server web went while hold ran")
    assert hello == '"Hello, Ada!"'


async def test_a_call_that_takes_too_long_fails_and_the_server_is_told_to_stop_it(
    tmp_path: Path, data_dir: Path
) -> None:
    async with (
        web(tmp_path, call_timeout_s=0.3) as mcp,
        create_agent_session_host(calling(mcp), data_dir=data_dir) as host,
    ):
        await mcp.tools()
        session = mcp._remotes["web"]._session
        lines = await said(host, ("web__hold", {}), HELLO)
        await until(lambda: "cancelled" in calls(tmp_path))
        assert mcp._remotes["web"]._session is session  # it answers, so nothing is closed that others may use
    assert lines[0] == (
        "McpCallTimedOut: the MCP server web gave no result of hold within 0.3 s; "
        "whether it had an effect is not known"
    )
    assert lines[1] == '"Hello, Ada!"'


async def test_a_server_that_is_stuck_is_started_anew_and_ended(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zhin_host.agents.mcp.session._PROBE_S", 0.3)
    async with (
        small(tmp_path, "tell", "stick", call_timeout_s=0.3) as mcp,
        create_agent_session_host(calling(mcp), data_dir=data_dir) as host,
    ):
        await mcp.tools()
        stuck = int((tmp_path / "pid").read_text())
        lines = await said(host, ("it__stick", {}), ("it__tell", {}))
        await until(lambda: not lives(stuck))
    assert lines[0].startswith("McpCallTimedOut: ")
    assert lines[1].startswith('"tell by ')


async def test_a_turn_that_is_cancelled_stops_its_call_and_no_other_turn_s(
    tmp_path: Path, data_dir: Path
) -> None:
    async with web(tmp_path) as mcp, create_agent_session_host(calling(mcp), data_dir=data_dir) as host:
        await mcp.tools()
        other = asyncio.create_task(said(host, ("web__hold", {})))
        await until(lambda: calls(tmp_path) == ["hold"])
        handle = await host.run(message(("web__hold", {})))
        await until(lambda: calls(tmp_path) == ["hold", "hold"])
        await handle.cancel()
        await until(lambda: "cancelled" in calls(tmp_path))
        assert await said(host, ("web__let_go", {})) == ['"let go"']
        assert await other == ['"held"']
    assert calls(tmp_path).count("cancelled") == 1


async def test_a_turn_that_is_cancelled_while_a_server_starts_does_not_stop_it_for_the_others(
    tmp_path: Path, data_dir: Path
) -> None:
    async with (
        small(tmp_path, "tell") as mcp,
        create_agent_session_host(calling(mcp), data_dir=data_dir) as host,
    ):
        first = asyncio.create_task(mcp.tools())
        await asyncio.sleep(0)
        second = asyncio.create_task(said(host, ("it__tell", {})))
        await asyncio.sleep(0)
        first.cancel()
        [line] = await second
    assert line == f'"tell by {(tmp_path / "pid").read_text()}"'


async def test_a_server_that_went_and_came_back_is_used_again(
    tmp_path: Path, data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path) as port:
        mcp = McpTools({"web": {"url": f"http://127.0.0.1:{port}/mcp"}}, approval=ANYTHING)
        before = [tool.name for tool in await mcp.tools()]
        await mcp.aclose()
    async with mcp, create_agent_session_host(calling(mcp), data_dir=data_dir) as host:
        with caplog.at_level(logging.WARNING, "zhin_host.agents.mcp"):
            assert [tool.name for tool in await mcp.tools()] == before  # a call says what is the matter
        assert "of its tools are offered as they were" in caplog.text
        [gone] = await said(host, HELLO)
        assert (
            gone
            == "McpServerUnreachable: the MCP server web cannot be reached: All connection attempts failed"
        )
        async with served(tmp_path, port):
            assert await said(host, HELLO) == ['"Hello, Ada!"']
            await mcp.aclose()


async def test_a_server_that_cannot_be_started_takes_no_other_s_tools_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tools.json").write_text('["tell"]')
    servers = {"gone": {"command": "no-such-program"}, "it": legacy(tmp_path)}
    async with McpTools(servers) as mcp:
        assert [tool.name for tool in await mcp.tools()] == ["it__tell"]
    assert (
        "the MCP server gone cannot be reached: there is no program 'no-such-program'; none of its tools are offered"
    ) in caplog.text


async def test_a_server_that_does_not_answer_in_time_is_given_up_and_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with small(tmp_path, manners=("mute",), open_timeout_s=0.5) as mcp:
        assert await mcp.tools() == []
        await until(lambda: not lives(int((tmp_path / "pid").read_text())))
    assert "cannot be reached: it did not answer within 0.5 s" in caplog.text


async def test_lines_that_are_no_messages_are_passed_over(tmp_path: Path, data_dir: Path) -> None:
    async with (
        small(tmp_path, "tell", "odd", manners=("chatty",)) as mcp,
        create_agent_session_host(calling(mcp), data_dir=data_dir) as host,
    ):
        assert [tool.name for tool in await mcp.tools()] == ["it__tell", "it__odd"]
        tell, odd, again = await said(host, ("it__tell", {}), ("it__odd", {}), ("it__tell", {}))
    assert tell == again == f'"tell by {(tmp_path / "pid").read_text()}"'
    assert odd.startswith("McpToolFailed: the answer to odd is none of the protocol: ")


async def test_a_list_that_is_none_of_the_protocol_s_takes_no_other_s_tools_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd, even = tmp_path / "odd", tmp_path / "even"
    for folder, offered in ((odd, "[5]"), (even, '["tell"]')):
        folder.mkdir()
        (folder / "tools.json").write_text(offered)
    async with McpTools({"odd": legacy(odd), "even": legacy(even)}) as mcp:
        assert [tool.name for tool in await mcp.tools()] == ["even__tell"]
    assert "the MCP server odd lists no tools: " in caplog.text


async def test_a_list_without_an_end_is_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with small(tmp_path, "tell", manners=("endless",)) as mcp:
        assert [tool.name for tool in await mcp.tools()] == ["it__tell"]
    assert "lists tools without an end" in caplog.text


async def test_a_list_is_asked_for_once_until_the_server_says_that_it_changed(
    tmp_path: Path, data_dir: Path
) -> None:
    async with (
        small(tmp_path, "change") as mcp,
        create_agent_session_host(calling(mcp), data_dir=data_dir) as host,
    ):
        for _ in range(3):
            assert [tool.name for tool in await mcp.tools()] == ["it__change"]
        assert calls(tmp_path) == ["list"]
        await said(host, ("it__change", {}))
        assert [tool.name for tool in await mcp.tools()] == ["it__change", "it__changed"]


async def test_a_list_is_asked_for_each_time_where_the_server_tells_no_changes(
    tmp_path: Path, data_dir: Path
) -> None:
    async with (
        small(tmp_path, "change", manners=("quiet",)) as mcp,
        create_agent_session_host(calling(mcp), data_dir=data_dir) as host,
    ):
        assert [tool.name for tool in await mcp.tools()] == ["it__change"]
        await said(host, ("it__change", {}))
        assert [tool.name for tool in await mcp.tools()] == ["it__change", "it__changed"]


async def test_changes_are_heard_over_http_too(tmp_path: Path, data_dir: Path) -> None:
    async with web(tmp_path) as mcp, create_agent_session_host(calling(mcp), data_dir=data_dir) as host:
        await listening(mcp, "web")
        session = mcp._remotes["web"]._session
        assert session is not None
        assert "web__grown" not in [tool.name for tool in await mcp.tools()]
        assert await said(host, ("web__grow", {})) == ['"grew"']
        await until(lambda: session._tools is None)
        assert "web__grown" in [tool.name for tool in await mcp.tools()]


async def test_recorded_calls_stand_when_the_server_offers_other_tools_after_a_crash(
    tmp_path: Path, data_dir: Path
) -> None:
    rows = message(("it__tell", {}), ("it__write", {}), ("it__tell", {"again": True}))
    async with (
        small(tmp_path, "tell", "write", approval=WRITES_ASK) as mcp,
        crashing(calling(mcp), persistence=FileHttpSessionPersistence(data_dir)) as hosted,
    ):
        accepted = await hosted.start(rows)
        [request] = await hosted.asked(accepted.session_id)
    pid = (tmp_path / "pid").read_text()
    async with small(tmp_path, "other", approval=WRITES_ASK) as mcp:
        assert [tool.name for tool in await mcp.tools()] == ["it__other"]
        async with create_agent_session_host(calling(mcp), data_dir=data_dir) as host:
            handle = await host.resume(accepted.session_id)
            await handle.answer(True, request_id=request.request_id)
            first, second, third = (await handle.result()).text.splitlines()
    new = (tmp_path / "pid").read_text()
    assert first == f'"tell by {pid}"'
    assert (second, third) == (f'"write by {new}"', f'"tell by {new}"')
    assert [line for line in calls(tmp_path) if line != "list"] == ["tell", "write", "tell"]


async def test_recorded_calls_stand_when_the_server_is_not_there_after_a_crash(
    tmp_path: Path, data_dir: Path
) -> None:
    rows = message(("it__tell", {}), ("it__write", {}))
    async with (
        small(tmp_path, "tell", "write", approval=WRITES_ASK) as mcp,
        crashing(calling(mcp), persistence=FileHttpSessionPersistence(data_dir)) as hosted,
    ):
        accepted = await hosted.start(rows)
        [request] = await hosted.asked(accepted.session_id)
    gone = McpTools({"it": {"command": "no-such-program"}}, approval=WRITES_ASK)
    async with gone, create_agent_session_host(calling(gone), data_dir=data_dir) as host:
        handle = await host.resume(accepted.session_id)
        await handle.answer(True, request_id=request.request_id)
        first, second = (await handle.result()).text.splitlines()
    assert first.startswith('"tell by ')
    assert second.startswith("McpServerUnreachable: ")


async def test_a_call_cut_off_by_a_crash_is_made_again_only_if_a_person_or_the_server_says_that_it_may_be(
    tmp_path: Path, data_dir: Path
) -> None:
    rows = message(("web__hold", {}))
    async with web(tmp_path) as mcp:
        await listening(mcp, "web")
        async with crashing(calling(mcp), persistence=FileHttpSessionPersistence(data_dir)) as hosted:
            accepted = await hosted.start(rows)
            await until(lambda: "hold" in calls(tmp_path))
        async with create_agent_session_host(calling(mcp), data_dir=data_dir) as host:
            [request] = await asked(host, accepted.session_id)
            assert (request["kind"], request["toolName"]) == ("retry", "web__hold")
            handle = await host.resume(accepted.session_id)
            await handle.answer(False)
            assert (await handle.result()).text == "ToolDenied\n"
    assert calls(tmp_path).count("hold") == 1


async def test_approvals_side_by_side_are_answered_in_either_order(tmp_path: Path, data_dir: Path) -> None:
    async with web(tmp_path, approval={}) as mcp:

        async def agent(turn: Any) -> None:
            names = ("Ada", "Bob")
            greetings = await asyncio.gather(
                *(turn.call_tool(mcp.tool("web__greet"), name=name) for name in names)
            )
            await turn.say(" ".join(greetings))

        async with create_agent_session_host(agent, data_dir=data_dir) as host:
            handle = await host.run("both")
            while len(requests := await asked(host, handle.session_id)) < 2:
                pass
            for request in reversed(requests):
                await handle.answer(True, request_id=request["requestId"])
            assert (await handle.result()).text == "Hello, Ada! Hello, Bob!"


async def test_a_python_server_over_its_standard_streams_does_the_same(
    tmp_path: Path, data_dir: Path
) -> None:
    async with (
        McpTools({"web": stdio(tmp_path)}, approval=ANYTHING) as mcp,
        create_agent_session_host(calling(mcp), data_dir=data_dir) as host,
    ):
        lines = await said(host, HELLO, ("web__die", {}), ("web__fail", {"why": "no paper"}))
    assert lines[0] == '"Hello, Ada!"'
    assert lines[1].startswith("McpServerLost: ")
    assert lines[2] == "McpToolFailed: Error executing tool fail: no paper"


class Sessions:
    """A server over HTTP of the protocol before 2026, which forgets its sessions when told to.

    Attributes:
        known: The session that it knows.
        called: What it was called for.
    """

    def __init__(self) -> None:
        self.known = "first"
        self.called: list[str] = []

    async def answer(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        method, answer = message["method"], {"jsonrpc": "2.0", "id": message.get("id")}
        told: dict[str, Any]
        if method == "server/discover":
            return JSONResponse({**answer, "error": {"code": -32601, "message": "no such method"}}, 404)
        if method == "initialize":
            told = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            told["serverInfo"] = {"name": "sessions", "version": "1"}
            return JSONResponse({**answer, "result": told}, headers={"mcp-session-id": self.known})
        if request.headers.get("mcp-session-id") != self.known:
            return Response(status_code=404)
        if method == "tools/list":
            return JSONResponse({**answer, "result": {"tools": []}})
        if method == "tools/call":
            self.called.append(message["params"]["name"])
            told = {"content": [{"type": "text", "text": f"in {self.known}"}]}
            return JSONResponse({**answer, "result": told})
        return Response(status_code=202)


async def test_a_call_in_a_session_that_the_server_forgot_is_made_in_a_new_one(
    tmp_path: Path, data_dir: Path
) -> None:
    sessions = Sessions()
    app = Starlette(routes=[Route("/mcp", sessions.answer, methods=["GET", "POST", "DELETE"])])
    async with (
        serving(app) as port,
        McpTools({"web": {"url": f"http://127.0.0.1:{port}/mcp"}}, approval=ANYTHING) as mcp,
        create_agent_session_host(calling(mcp), data_dir=data_dir) as host,
    ):
        assert await said(host, ("web__tell", {})) == ['"in first"']
        sessions.known = "second"
        assert await said(host, ("web__tell", {})) == ['"in second"']
    assert sessions.called == ["tell", "tell"]
