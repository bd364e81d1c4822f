"""Tools of the SDK as actions: what they are given, what they give, and how they end."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    RunConfig,
    RunContextWrapper,
    Runner,
    ToolOutputImage,
    function_tool,
)
from agents.tool import FunctionTool
from agents.tool_context import ToolContext

from tests.agents.openai_hosted import calling, echo, hosted, tool_result
from tests.agents.openai_model import ScriptedModel, say
from tests.fakes import FakeClock
from tests.hosting import crashing, hosting, one, types
from zhin_host import Turn, current_action
from zhin_host.agents.openai_agents import OpenAIAgent, ask_person
from zhin_host.storage.memory import MemorySessionPersistence


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
    assert said.startswith(
        "ok " if is_good else "An error occurred while running the tool. Please try again."
    )


async def test_a_failing_tools_error_is_behind_no_other(data_dir: Path) -> None:
    """The SDK looks through the whole chain of an error, which must have an end."""
    chains: list[int] = []

    def told(context: Any, error: Exception) -> str:
        link: BaseException | None = error
        while link is not None and len(chains) < 9:
            chains.append(id(link))
            link = link.__cause__ or link.__context__
        return "told"

    @function_tool(failure_error_function=told)
    async def fetch(page: str) -> str:
        raise OSError(page)

    for arguments in ('{"page": "x"}', "{not json"):
        _, said = await tool_result(hosted(calling("fetch", arguments), fetch), data_dir)
        assert said == "told "
        assert len(chains) == len(set(chains))
        chains.clear()


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

    result, said = await tool_result(hosted(calling("get", {}), get), data_dir)
    assert result["output"] == recorded
    assert said == told + " "


async def test_an_image_from_a_tool_reaches_the_model_as_one(data_dir: Path) -> None:
    @function_tool
    async def draw() -> ToolOutputImage:
        return ToolOutputImage(image_url="data:image/png;base64,AA==")

    result, said = await tool_result(hosted(calling("draw", {}), draw), data_dir)
    assert result["output"] == {"type": "image", "image_url": "data:image/png;base64,AA=="}
    assert "input_image" in said


async def test_an_output_over_the_line_limit_fails_and_the_model_is_told(data_dir: Path) -> None:
    @function_tool
    async def flood() -> str:
        return "x" * 2_000_000

    result, said = await tool_result(hosted(calling("flood", {}), flood), data_dir)
    assert result["error"]["code"] == "RESULT_TOO_LARGE"
    assert said.startswith("An error occurred")


async def test_a_tool_written_by_hand_is_an_action_too(data_dir: Path) -> None:
    async def invoke(context: ToolContext[Any], text: str) -> str:
        return f"{context.tool_name} got {text}"

    by_hand = FunctionTool(name="by_hand", description="", params_json_schema={}, on_invoke_tool=invoke)
    result, said = await tool_result(hosted(calling("by_hand", {"a": 1}), by_hand), data_dir)
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

    result, said = await tool_result(hosted(calling("wait", {}), wait), data_dir)
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
