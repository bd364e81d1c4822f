"""Guardrails, agents that lead to others, and MCP servers of the OpenAI Agents SDK."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    ToolGuardrailFunctionOutput,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
)
from agents.mcp import MCPServer, MCPServerStdio
from mcp import types as mcp_types

from tests.agents.openai_hosted import calling, echo, hosted, tool_result
from tests.agents.openai_model import Call, ScriptedModel, message, outputs, say
from tests.docs.blocks import ROOT
from tests.hosting import DEADLINE_S, hosting, one, types
from zhin_host.agents.openai_agents import OpenAIAgent


async def test_a_tripped_guardrail_ends_the_turn_as_failed(data_dir: Path) -> None:
    @input_guardrail
    async def stop(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered="bomb" in str(given))

    @output_guardrail
    async def quiet(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered="secret" in str(given))

    model = ScriptedModel(lambda items: [say(message(items))])
    agent = Agent(name="a", model=model, input_guardrails=[stop], output_guardrails=[quiet])
    async with hosting(OpenAIAgent(agent), data_dir=data_dir) as running:
        assert "tripwire" in one(await running.run("a bomb"), "turn.failed")["message"]
        assert "tripwire" in one(await running.run("a secret"), "turn.failed")["message"]
        assert "turn.completed" in types(await running.run("a cat"))


async def test_a_tool_that_was_allowed_and_that_its_guardrail_refuses_did_not_run(data_dir: Path) -> None:
    @tool_input_guardrail
    def refuse(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("no such page")

    @function_tool(needs_approval=True, tool_input_guardrails=[refuse])
    async def publish(page: str) -> str:
        return page

    async with hosting(hosted(calling("publish", {"page": "x"}), publish), data_dir=data_dir) as running:
        accepted = await running.start()
        [request] = await running.asked(accepted.session_id)
        await running.approve(accepted.session_id, request.request_id)
        events = await running.idle(accepted.session_id)
    assert one(events, "action.result", 1)["error"]["type"] == "NotRunError"
    assert one(events, "message.completed")["message"] == "no such page "


async def test_an_agent_that_is_made_when_it_takes_over_is_recorded_too(data_dir: Path) -> None:
    made = handoff(Agent(name="known"))

    async def make(context: Any, text: str) -> Any:
        return Agent(name="fresh", model=ScriptedModel(lambda _: [say("fresh")]), tools=[echo])

    made.on_invoke_handoff = make
    triage = Agent(
        name="triage", model=ScriptedModel(lambda _: [Call("transfer_to_known", {})]), handoffs=[made]
    )
    async with hosting(OpenAIAgent(triage), data_dir=data_dir) as running:
        first = await running.run()
        accepted = await running.follow_up(one(first, "session.started")["sessionId"])
        second = await running.events(accepted.session_id, accepted.start_index)
    assert types(first).count("actions.requested") == 2
    assert types(second).count("actions.requested") == 2  # nobody of that name is known: triage begins again


async def test_who_listens_to_an_agent_as_a_tool_hears_its_answers(data_dir: Path) -> None:
    heard: list[str] = []

    async def listen(event: Any) -> None:
        heard.append(getattr(getattr(event["event"], "data", None), "type", ""))

    inner = Agent(name="inner", model=ScriptedModel(lambda _: [say("inner words")], name="inner"))
    tool = inner.as_tool("ask_inner", "Ask.", on_stream=listen)
    result, said = await tool_result(hosted(calling("ask_inner", {"input": "x"}), tool), data_dir)
    assert said == "inner words  "
    assert "response.completed" in heard
    assert result["toolName"] == "model"


async def test_sessions_side_by_side_do_not_hear_each_other(data_dir: Path) -> None:
    async with hosting(hosted(lambda items: [say(message(items))]), data_dir=data_dir) as running:
        started = [await running.start(f"number {number}") for number in range(5)]
        for number, accepted in enumerate(started):
            events = await running.events(accepted.session_id)
            assert one(events, "message.completed")["message"] == f"number {number} "


class Notes(MCPServer):
    """An MCP server in this process."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.called: list[Any] = []

    @property
    def name(self) -> str:
        return "notes"

    async def connect(self) -> None:
        """Nothing to connect."""

    async def cleanup(self) -> None:
        """Nothing to clean."""

    async def list_tools(self, *args: Any, **kwargs: Any) -> Any:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        return [mcp_types.Tool.model_validate({"name": "read_note", "inputSchema": schema})]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> Any:
        self.called.append(arguments)
        content = [{"type": "text", "text": f"the note {arguments['name']}"}]
        return mcp_types.CallToolResult.model_validate({"content": content})

    async def list_prompts(self) -> Any:
        raise NotImplementedError

    async def get_prompt(self, name: str, arguments: Any = None) -> Any:
        raise NotImplementedError


async def test_tools_of_an_mcp_server_are_actions_and_may_need_approval(data_dir: Path) -> None:
    server = Notes(require_approval="always")
    model = ScriptedModel(calling("read_note", {"name": "tea"}))
    agent = OpenAIAgent(Agent(name="a", model=model, mcp_servers=[server]))
    async with hosting(agent, data_dir=data_dir) as running:
        accepted = await running.start()
        [request] = await running.asked(accepted.session_id)
        assert server.called == []
        await running.approve(accepted.session_id, request.request_id)
        events = await running.idle(accepted.session_id)
    assert one(events, "input.requested")["args"] == {"name": "tea"}
    assert server.called == [{"name": "tea"}]
    assert one(events, "action.result", 1)["output"] == {"type": "text", "text": "the note tea"}


def notes_server() -> MCPServerStdio:
    """A real one, a process of its own."""
    return MCPServerStdio(
        {
            "command": sys.executable,
            "args": ["-m", "tests.agents.apps.notes_server"],
            "cwd": os.fspath(ROOT),
            "env": {**os.environ, "PYTHONPATH": os.fspath(ROOT)},
        },
        client_session_timeout_seconds=DEADLINE_S,
    )


@pytest.mark.timeout(120)
async def test_a_server_of_tools_is_connected_while_turns_run(data_dir: Path) -> None:
    server = notes_server()

    def reads(items: list[Any]) -> list[Any]:
        given = outputs(items)
        return [say(str(given[0]))] if given else [Call("read_note", {"name": message(items)})]

    agent = OpenAIAgent(Agent(name="a", model=ScriptedModel(reads), mcp_servers=[server]))
    async with hosting(agent, data_dir=data_dir) as running:
        started = [await running.start(name) for name in ("tea", "none")]
        tea, none = [await running.events(accepted.session_id) for accepted in started]
        assert server.session is None
    assert "the note tea" in one(tea, "message.completed")["message"]
    assert "the note tea" in str(one(tea, "action.result", 1)["output"])
    assert "Error executing tool read_note" in one(none, "message.completed")["message"]


@pytest.mark.timeout(120)
async def test_a_server_that_cannot_be_connected_fails_the_turn(data_dir: Path) -> None:
    class Away(Notes):
        async def connect(self) -> None:
            raise ConnectionError("nobody there")

    agent = OpenAIAgent(Agent(name="a", model=ScriptedModel(lambda _: [say("x")]), mcp_servers=[Away()]))
    async with hosting(agent, data_dir=data_dir) as running:
        failed = one(await running.run(), "turn.failed")
    assert "nobody there" in failed["message"]


async def test_a_server_that_was_connected_beforehand_is_left_alone(data_dir: Path) -> None:
    class Connected(Notes):
        session = object()

        async def connect(self) -> None:
            raise AssertionError("it is connected")

        async def cleanup(self) -> None:
            raise AssertionError("another one closes it")

    helper = Agent(name="helper", mcp_servers=[Connected()])
    lead = Agent(
        name="lead",
        model=ScriptedModel(lambda _: [say("x")]),
        tools=[helper.as_tool("help", "Help.")],
    )
    async with hosting(OpenAIAgent(lead), data_dir=data_dir) as running:
        assert "turn.completed" in types(await running.run())
