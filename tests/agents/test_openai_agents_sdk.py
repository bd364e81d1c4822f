"""What the OpenAI Agents SDK has beside tools: guardrails, MCP servers, structured output, hosted tools, tracing."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    CodeInterpreterTool,
    GuardrailFunctionOutput,
    HostedMCPTool,
    RunConfig,
    RunContextWrapper,
    Runner,
    ShellTool,
    ToolGuardrailFunctionOutput,
    ToolOutputImage,
    WebSearchTool,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
)
from agents.mcp import MCPServer, MCPServerStdio
from agents.tool import FunctionTool
from agents.tool_context import ToolContext
from agents.tracing import get_trace_provider, set_trace_processors
from mcp import types as mcp_types
from openai.types.responses import ResponseFunctionWebSearch
from openai.types.responses.response_output_item import McpApprovalRequest
from pydantic import BaseModel

from tests.agents.openai_model import Call, Item, Reply, ScriptedModel, message, outputs, say
from tests.docs.blocks import ROOT
from tests.fakes import FakeClock
from tests.hosting import DEADLINE_S, crashing, hosting, one, types
from zhin_host import Turn, current_action
from zhin_host.agents.openai_agents import OpenAIAgent, ask_person
from zhin_host.agents.openai_agents.agent import RETRY
from zhin_host.storage.memory import MemorySessionPersistence


def hosted(reply: Reply, *tools: Any, **settings: Any) -> OpenAIAgent:
    return OpenAIAgent(Agent(name="assistant", model=ScriptedModel(reply), tools=[*tools]), **settings)


def calling(name: str, arguments: Any) -> Reply:
    """Calls one tool and then says what it gave."""

    def reply(items: list[Any]) -> list[Any]:
        given = outputs(items)
        return [say(str(given[0]))] if given else [Call(name, arguments)]

    return reply


async def result_of(agent: OpenAIAgent, data_dir: Path) -> tuple[dict[str, Any], str]:
    """The result of the tool of a new session's first turn, and what the turn said."""
    async with hosting(agent, data_dir=data_dir) as running:
        events = await running.run("go")
    return one(events, "action.result", 1), one(events, "message.completed")["message"]


# -- the model -----------------------------------------------------------------------------------------------------


class Failing(ScriptedModel):
    """Fails as often as it is told, before or behind its first words."""

    def __init__(self, failures: list[Exception], *, after_words: bool = False) -> None:
        super().__init__(lambda _: [say("well then")])
        self.failures = failures
        self.after_words = after_words

    async def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        async for event in super().stream_response(*args, **kwargs):
            if self.failures and not self.after_words:
                raise self.failures.pop()
            yield event
            if self.failures:
                raise self.failures.pop()


class Overloaded(openai.RateLimitError):
    """What the service answers when it has too much to do, without the response."""

    def __init__(self) -> None:
        Exception.__init__(self, "slow down")


async def test_a_request_that_is_refused_for_now_is_sent_again(data_dir: Path) -> None:
    retry = dataclasses.replace(RETRY, delay_s=0)
    agent = OpenAIAgent(Agent(name="a", model=Failing([Overloaded()])), retry=retry)
    async with hosting(agent, data_dir=data_dir) as running:
        events = await running.run()
    assert types(events).count("action.retrying") == 1
    assert one(events, "message.completed")["message"] == "well then "


async def test_a_model_that_fails_ends_the_turn_and_a_resume_asks_it_again(data_dir: Path) -> None:
    agent = OpenAIAgent(Agent(name="a", model=Failing([ValueError("broken")], after_words=True)))
    async with hosting(agent, data_dir=data_dir) as running:
        events = await running.run()
        failed = one(events, "turn.failed")
        assert (failed["code"], failed["callId"]) == ("ACTION_FAILED", one(events, "action.result")["callId"])
        handle = await running.host.resume(one(events, "session.started")["sessionId"])
        assert (await handle.result()).text == "well then "


async def test_a_model_that_does_not_stream_is_heard_when_its_answer_is_whole(data_dir: Path) -> None:
    model = ScriptedModel(lambda _: [say("all at once")], streams=False)
    async with hosting(OpenAIAgent(Agent(name="a", model=model)), data_dir=data_dir) as running:
        events = await running.run()
    assert one(events, "message.appended")["messageDelta"] == "all at once "


async def test_a_model_by_name_is_found_by_the_provider_and_recorded(data_dir: Path) -> None:
    class Provider:
        def get_model(self, name: str | None) -> Any:
            return ScriptedModel(lambda _: [say(f"I am {name}.")])

    config = RunConfig(model="big", model_provider=Provider(), tracing_disabled=True)  # type: ignore[arg-type]
    async with hosting(OpenAIAgent(Agent(name="a"), run_config=config), data_dir=data_dir) as running:
        events = await running.run()
    assert one(events, "message.completed")["message"] == "I am big. "
    assert one(events, "actions.requested")["toolName"] == "model"


async def test_structured_output_is_said_as_the_json_it_is(data_dir: Path) -> None:
    class Weather(BaseModel):
        degrees: int

    model = ScriptedModel(lambda _: [say('{"degrees":21}')])
    agent = OpenAIAgent(Agent(name="a", model=model, output_type=Weather))
    async with hosting(agent, data_dir=data_dir) as running:
        events = await running.run()
    assert json.loads(one(events, "message.completed")["message"]) == {"degrees": 21}


# -- tools ---------------------------------------------------------------------------------------------------------


@function_tool
async def echo(text: str) -> str:
    return text


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"text": "ok"}', {"text": "ok"}),
        ("", {}),
        ("{not json", {"input": "{not json"}),
        ('["a list"]', {"input": '["a list"]'}),
        ('{"other": 1}', {"other": 1}),
        ('{"text": NaN}', {"text": None}),
    ],
)
async def test_whatever_a_model_writes_as_arguments_is_shown_and_judged_by_the_sdk(
    arguments: str, shown: dict[str, Any], data_dir: Path
) -> None:
    async with hosting(hosted(calling("echo", arguments), echo), data_dir=data_dir) as running:
        events = await running.run("go")
    assert one(events, "actions.requested", 1)["input"] == shown
    is_good = shown == {"text": "ok"}
    assert one(events, "action.result", 1)["status"] == ("completed" if is_good else "failed")
    said = one(events, "message.completed")["message"]
    assert said == ("ok " if is_good else "An error occurred while running the tool. Please try again. ")


@dataclasses.dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("output", "recorded", "told"),
    [
        ({"a": [1, None]}, {"a": [1, None]}, "{'a': [1, None]}"),
        (None, None, "None"),
        ((1, 2), "(1, 2)", "(1, 2)"),
        (Point(1), "Point(x=1)", "Point(x=1)"),
    ],
)
async def test_the_model_gets_of_an_output_what_the_sdk_would_give_it(
    output: Any, recorded: Any, told: str, data_dir: Path
) -> None:
    @function_tool
    async def get() -> Any:
        return output

    result, said = await result_of(hosted(calling("get", {}), get), data_dir)
    assert result["output"] == recorded
    assert said == told + " "


async def test_an_image_from_a_tool_reaches_the_model_as_one(data_dir: Path) -> None:
    @function_tool
    async def draw() -> ToolOutputImage:
        return ToolOutputImage(image_url="data:image/png;base64,AA==")

    result, said = await result_of(hosted(calling("draw", {}), draw), data_dir)
    assert result["output"] == {"type": "image", "image_url": "data:image/png;base64,AA=="}
    assert "input_image" in said


async def test_an_output_over_the_line_limit_fails_and_the_model_is_told(data_dir: Path) -> None:
    @function_tool
    async def flood() -> str:
        return "x" * 2_000_000

    result, said = await result_of(hosted(calling("flood", {}), flood), data_dir)
    assert result["error"]["code"] == "RESULT_TOO_LARGE"
    assert said.startswith("An error occurred")


async def test_a_tool_written_by_hand_is_an_action_too(data_dir: Path) -> None:
    async def invoke(context: ToolContext[Any], text: str) -> str:
        return f"{context.tool_name} got {text}"

    by_hand = FunctionTool(name="by_hand", description="", params_json_schema={}, on_invoke_tool=invoke)
    result, said = await result_of(hosted(calling("by_hand", {"a": 1}), by_hand), data_dir)
    assert (result["toolName"], said) == ("by_hand", 'by_hand got {"a": 1} ')


async def test_a_tool_knows_its_action_and_the_context_that_was_made_for_the_turn(data_dir: Path) -> None:
    @function_tool
    async def who(context: RunContextWrapper[Any]) -> str:
        return f"{context.context} {current_action().idempotency_key}"

    def made(turn: Turn) -> str:
        return f"user of {turn.metadata['team']}"

    async with hosting(hosted(calling("who", {}), who, context=made), data_dir=data_dir) as running:
        events = await running.run("go", team="red")
    key = f"{one(events, 'session.started')['sessionId']}:{one(events, 'action.result', 1)['callId']}"
    assert one(events, "message.completed")["message"] == f"user of red {key} "


async def test_a_tool_that_takes_too_long_is_cancelled_and_the_model_is_told(data_dir: Path) -> None:
    @function_tool(timeout=0.01)
    async def wait() -> str:
        await asyncio.Event().wait()
        return ""

    result, said = await result_of(hosted(calling("wait", {}), wait), data_dir)
    assert result["status"] == "cancelled"
    assert "timed out" in said


async def test_the_output_of_a_tool_that_ends_the_run_is_the_answer(data_dir: Path) -> None:
    agent = Agent(
        name="a",
        model=ScriptedModel(calling("echo", {"text": "the end"})),
        tools=[echo],
        tool_use_behavior="stop_on_first_tool",
    )
    async with hosting(OpenAIAgent(agent), data_dir=data_dir) as running:
        events = await running.run()
    assert one(events, "message.completed")["message"] == "the end"


async def test_a_run_inside_of_a_tool_is_a_part_of_that_tools_action(data_dir: Path) -> None:
    inner = Agent(name="inner", model=ScriptedModel(lambda _: [say("inner words")]))

    @function_tool
    async def delegate() -> str:
        return str((await Runner.run(inner, "go", run_config=RunConfig(tracing_disabled=True))).final_output)

    agent = Agent(name="a", model=ScriptedModel(calling("delegate", {})), tools=[delegate], handoffs=[inner])
    async with hosting(OpenAIAgent(agent), data_dir=data_dir) as running:
        events = await running.run()
    assert types(events).count("actions.requested") == 3
    assert one(events, "message.completed")["message"] == "inner words  "


async def test_outside_of_a_turn_a_prepared_agent_works_as_before() -> None:
    agent = Agent(name="a", model=ScriptedModel(calling("echo", {"text": "plain"})), tools=[echo])
    OpenAIAgent(agent)
    config = RunConfig(tracing_disabled=True)
    assert (await Runner.run(agent, "go", run_config=config)).final_output == "plain "
    streamed = Runner.run_streamed(agent, "go", run_config=config)
    async for _ in streamed.stream_events():
        pass
    assert streamed.final_output == "plain "


async def test_a_person_is_asked_before_an_unrepeatable_tool_runs_a_second_time() -> None:
    begun = asyncio.Event()
    is_blocking = True

    @function_tool
    async def pay() -> str:
        begun.set()
        if is_blocking:
            await asyncio.Event().wait()
        return "paid"

    agent, persistence = hosted(calling("pay", {}), pay, unrepeatable={"pay"}), MemorySessionPersistence()
    async with crashing(agent, persistence=persistence) as running:
        accepted = await running.start()
        await begun.wait()
    is_blocking = False
    async with hosting(agent, persistence=persistence, clock=FakeClock(seed=77)) as running:
        [request] = await running.asked(accepted.session_id)
        await running.approve(accepted.session_id, request.request_id)
        events = await running.idle(accepted.session_id)
    assert one(events, "input.requested")["kind"] == "retry"
    assert one(events, "message.completed")["message"] == "paid "


async def test_an_expired_question_is_told_to_the_model(data_dir: Path) -> None:
    agent = hosted(calling("ask_person", {"question": "Well?"}), ask_person)
    async with hosting(agent, data_dir=data_dir, request_expires_s=60) as running:
        accepted = await running.start()
        await running.asked(accepted.session_id)
        running.clock.advance(61)
        events = await running.idle(accepted.session_id)
    assert one(events, "message.completed")["message"] == "Nobody answered in time. "


async def test_nobody_can_be_asked_outside_of_a_turn() -> None:
    agent = Agent(name="a", model=ScriptedModel(calling("ask_person", {"question": "?"})), tools=[ask_person])
    streamed = Runner.run_streamed(agent, "go", run_config=RunConfig(tracing_disabled=True))
    with pytest.raises(Exception, match="through a turn of a host"):
        async for _ in streamed.stream_events():
            pass


# -- guardrails ----------------------------------------------------------------------------------------------------


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


# -- agents --------------------------------------------------------------------------------------------------------


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
    result, said = await result_of(hosted(calling("ask_inner", {"input": "x"}), tool), data_dir)
    assert said == "inner words  "
    assert "response.completed" in heard
    assert result["toolName"] == "model"


async def test_sessions_side_by_side_do_not_hear_each_other(data_dir: Path) -> None:
    async with hosting(hosted(lambda items: [say(message(items))]), data_dir=data_dir) as running:
        started = [await running.start(f"number {number}") for number in range(5)]
        for number, accepted in enumerate(started):
            events = await running.events(accepted.session_id)
            assert one(events, "message.completed")["message"] == f"number {number} "


# -- servers of tools ----------------------------------------------------------------------------------------------


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


# -- the model's own service ---------------------------------------------------------------------------------------


async def test_a_tool_that_the_service_ran_is_told_in_the_log(data_dir: Path) -> None:
    searched = ResponseFunctionWebSearch.model_validate(
        {
            "id": "ws_1",
            "status": "completed",
            "type": "web_search_call",
            "action": {"type": "search", "query": "q"},
        }
    )
    model = ScriptedModel(lambda _: [Item(searched), say("found")])
    agent = OpenAIAgent(Agent(name="a", model=model, tools=[WebSearchTool()]))
    async with hosting(agent, data_dir=data_dir) as running:
        events = await running.run()
    assert one(events, "x.openai.hosted_tool") == {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
    }
    assert one(events, "action.result")["output"]["output"][0]["action"]["query"] == "q"


@pytest.mark.parametrize("approved", [True, False])
async def test_a_call_that_the_service_wants_to_have_allowed_is_a_hosts_approval(
    approved: bool,  # noqa: FBT001 - a parameter of the test
    data_dir: Path,
) -> None:
    wanted = McpApprovalRequest.model_validate(
        {
            "id": "mcpr_1",
            "arguments": '{"id":7}',
            "name": "delete",
            "server_label": "crm",
            "type": "mcp_approval_request",
        }
    )

    def reply(items: list[Any]) -> list[Any]:
        answers = [item["approve"] for item in items if item.get("type") == "mcp_approval_response"]
        return [say(f"allowed: {answers[0]}")] if answers else [Item(wanted)]

    tool = HostedMCPTool(
        tool_config={
            "type": "mcp",
            "server_label": "crm",
            "server_url": "https://crm.example",
            "require_approval": "always",
        }
    )
    agent = OpenAIAgent(Agent(name="a", model=ScriptedModel(reply), tools=[tool]))
    async with hosting(agent, data_dir=data_dir) as running:
        accepted = await running.start()
        [request] = await running.asked(accepted.session_id)
        await running.approve(accepted.session_id, request.request_id, approved=approved)
        events = await running.idle(accepted.session_id)
    asked = one(events, "input.requested")
    assert (asked["toolName"], asked["args"]) == ("delete", {"id": 7})
    assert one(events, "message.completed")["message"] == f"allowed: {approved} "


# -- what is kept, and what is refused -----------------------------------------------------------------------------


async def test_of_a_long_conversation_the_newest_whole_exchanges_are_kept(data_dir: Path) -> None:
    agent = hosted(calling("echo", {"text": "x" * 200}), echo, history_bytes=1_500)
    async with hosting(agent, data_dir=data_dir) as running:
        events = await running.run("number 0")
        session_id = one(events, "session.started")["sessionId"]
        for number in range(1, 4):
            await running.follow_up(session_id, f"number {number}")
            events = await running.events(session_id)
    kept = one(events, "checkpoint.saved", -1)["state"]["input"]
    assert [item.get("role", item.get("type")) for item in kept] == [
        "user",
        "function_call",
        "function_call_output",
        "assistant",
    ]
    assert kept[0]["content"] == "number 3"


async def test_of_one_exchange_that_is_too_long_the_message_and_the_answer_are_kept(data_dir: Path) -> None:
    def reply(items: list[Any]) -> list[Any]:
        return [say("short")] if outputs(items) else [Call("echo", {"text": "x" * 2_000})]

    async with hosting(hosted(reply, echo, history_bytes=1_000), data_dir=data_dir) as running:
        kept = one(await running.run("long"), "checkpoint.saved")["state"]["input"]
    assert [item["role"] for item in kept] == ["user", "assistant"]


async def test_tracing_is_off_unless_the_run_config_says_otherwise(data_dir: Path) -> None:
    class Heard:
        def __init__(self) -> None:
            self.names: list[str] = []

        def on_trace_start(self, trace: Any) -> None:
            self.names.append(trace.name)

        def on_trace_end(self, trace: Any) -> None: ...
        def on_span_start(self, span: Any) -> None: ...
        def on_span_end(self, span: Any) -> None: ...
        def shutdown(self) -> None: ...
        def force_flush(self) -> None: ...

    heard = Heard()
    set_trace_processors([heard])  # type: ignore[list-item]
    try:
        for config in (None, RunConfig(workflow_name="mine")):
            async with hosting(hosted(lambda _: [say("x")], run_config=config)) as running:
                await running.run()
    finally:
        set_trace_processors([])
    assert heard.names == ["mine"]
    assert get_trace_provider() is not None


def test_what_cannot_be_recorded_is_refused_when_the_agent_is_made() -> None:
    shell = ShellTool(executor=lambda request: "")
    with pytest.raises(TypeError, match="ShellTool shell runs on this machine"):
        hosted(lambda _: [], shell)
    with pytest.raises(TypeError, match="not a str"):
        OpenAIAgent("assistant")  # type: ignore[arg-type]
    code = CodeInterpreterTool(tool_config={"type": "code_interpreter", "container": {"type": "auto"}})
    assert hosted(lambda _: [], code).tools == ()
