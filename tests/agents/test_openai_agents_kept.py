"""What is kept for the next turn, what a changed agent does with it, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agents import (
    CodeInterpreterTool,
    RunConfig,
    ShellTool,
    function_tool,
)
from agents.tracing import get_trace_provider, set_trace_processors

from tests.agents.openai_hosted import calling, echo, hosted
from tests.agents.openai_model import Call, outputs, say
from tests.fakes import FakeClock
from tests.hosting import crashing, hosting, one, types
from zhin_host.agents.openai_agents import OpenAIAgent
from zhin_host.storage.memory import MemorySessionPersistence


@function_tool(needs_approval=True)
async def publish(page: str) -> str:
    return f"published {page}"


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


# -- turns that wait -----------------------------------------------------------------------------------------------


async def test_a_turn_that_waits_leaves_memory_and_comes_back_when_it_is_answered() -> None:
    agent = hosted(calling("publish", {"page": "x"}), publish)
    async with hosting(agent, parked_s=300) as running:
        accepted = await running.start()
        [request] = await running.asked(accepted.session_id)
        running.clock.advance(301)
        await running.host._sessions.drop_idle()
        assert not running.is_in_memory(accepted.session_id)
        await running.approve(accepted.session_id, request.request_id)
        events = await running.idle(accepted.session_id)
    assert one(events, "message.completed")["message"] == "published x "
    assert types(events).count("actions.requested") == 3


async def _waiting(persistence: MemorySessionPersistence) -> tuple[str, str]:
    """A session that waits for an approval when its host is killed, and the request."""
    first = hosted(calling("publish", {"page": "x"}), publish, version="1")
    async with crashing(first, persistence=persistence) as running:
        accepted = await running.start()
        [request] = await running.asked(accepted.session_id)
    return accepted.session_id, request.request_id


async def test_a_turn_that_waits_goes_on_with_another_model_and_a_new_version() -> None:
    persistence = MemorySessionPersistence()
    session_id, request_id = await _waiting(persistence)
    second = hosted(lambda items: [say(f"new: {outputs(items)[0]}")], publish, version="2")
    async with hosting(second, persistence=persistence, on_agent_change="continue") as running:
        await running.approve(session_id, request_id)
        events = await running.idle(session_id)
    assert one(events, "message.completed")["message"] == "new: published x "


async def test_an_agent_that_takes_another_path_than_its_record_is_stopped() -> None:
    persistence = MemorySessionPersistence()
    session_id, request_id = await _waiting(persistence)

    def other(data: Any) -> Any:
        data.model_data.input = [*data.model_data.input, {"role": "user", "content": "more"}]
        return data.model_data

    config = RunConfig(call_model_input_filter=other, tracing_disabled=True)
    second = hosted(calling("publish", {"page": "x"}), publish, version="1", run_config=config)
    async with hosting(second, persistence=persistence, clock=FakeClock(seed=78)) as running:
        await running.approve(session_id, request_id)
        events = await running.idle(session_id)
    assert one(events, "turn.failed")["code"] == "TURN_DIVERGED"
