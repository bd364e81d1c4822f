"""How turns of a Pydantic AI agent end otherwise: failures, second tries, limits and cancelling."""

from __future__ import annotations

import asyncio
from typing import Any

import pydantic_ai
import pytest
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.agents.scripts_pydantic_ai import Script, Use, told
from tests.agents.test_pydantic_ai import of, said
from tests.hosting import hosting, one, types
from zhin_host import Retry
from zhin_host.agents.pydantic_ai import ModelUnavailable, PydanticAIAgent


async def test_a_request_that_fails_for_a_while_is_sent_again_and_one_that_is_wrong_is_not() -> None:
    statuses = [503, 429, 400]

    async def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelHTTPError(statuses.pop(0), "busy")

    agent = PydanticAIAgent(
        Agent(FunctionModel(fail)), retry=Retry(attempts=5, delay_s=0, on=(ModelUnavailable,))
    )
    async with hosting(agent) as host:
        events = await host.run()
    assert [row["error"]["type"] for row in of(events, "action.retrying")] == 2 * ["ModelUnavailable"]
    failed = one(events, "turn.failed")
    assert failed["code"] == "ACTION_FAILED"
    assert "400" in failed["message"]
    assert failed["recoverable"]


@pytest.mark.parametrize(("error", "outcome"), [("ModelRetry", "retried"), ("ToolFailed", "failed")])
async def test_a_tool_that_sends_the_model_back_does_so_by_its_recorded_word(
    error: str, outcome: str
) -> None:
    script = Script([Use("look", {"at": "x"})], ["sorry"])
    agent = Agent(script.model())

    @agent.tool_plain
    def look(at: str) -> str:
        raise getattr(pydantic_ai, error)("look elsewhere")

    async with hosting(PydanticAIAgent(agent)) as host:
        events = await host.run()
    [failed] = [row for row in of(events, "action.result") if row["status"] == "failed"]
    assert (failed["error"]["type"], failed["error"]["message"]) == (error, "look elsewhere")
    assert said(events) == "sorry"
    [(_, content)] = told(script.asked[1][-1])
    assert "look elsewhere" in str(content)


async def test_a_tool_that_breaks_ends_the_turn_and_a_person_may_try_it_again() -> None:
    agent = Agent(Script([Use("look", {})], ["found"]).model())
    tries = []

    @agent.tool_plain
    def look() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("the disk is away")
        return "it"

    async with hosting(PydanticAIAgent(agent)) as host:
        events = await host.run()
        failed = one(events, "turn.failed")
        assert (failed["code"], failed["recoverable"]) == ("ACTION_FAILED", True)
        session_id = one(events, "session.started")["sessionId"]
        handle = await host.host.resume(session_id)
        assert (await handle.result()).text == "found"
        after = await host.events(session_id, len(events))
    assert [row["toolName"] for row in of(after, "action.result")] == ["look", "model"]


async def test_a_result_that_fits_no_line_is_told_to_the_model_as_a_failure() -> None:
    script = Script([Use("read", {})], ["too much"])
    agent = Agent(script.model())

    @agent.tool_plain
    def read() -> str:
        return "a" * 2_000_000

    async with hosting(PydanticAIAgent(agent)) as host:
        events = await host.run()
    assert [row["error"]["code"] for row in of(events, "action.result") if "error" in row] == [
        "RESULT_TOO_LARGE"
    ]
    assert said(events) == "too much"


async def test_cancelling_closes_the_stream_of_the_model() -> None:
    closed = asyncio.Event()

    async def endless(messages: list[ModelMessage], info: AgentInfo) -> Any:
        try:
            while True:
                yield "word "
                await asyncio.sleep(0)
        finally:
            closed.set()

    async with hosting(PydanticAIAgent(Agent(FunctionModel(stream_function=endless)))) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "message.appended", 3)
        await host.cancel(accepted.session_id)
        events = await host.idle(accepted.session_id)
        assert closed.is_set()
    assert types(events)[-3:] == ["turn.cancelled", "step.interrupted", "session.waiting"]


async def test_cancelling_ends_the_tools_that_run_side_by_side() -> None:
    agent = Agent(Script([Use("wait", {"n": 1}), Use("wait", {"n": 2})], ["never"]).model())
    ended: list[int] = []

    @agent.tool_plain
    async def wait(n: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(n)

    async with hosting(PydanticAIAgent(agent)) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "actions.requested", 3)
        await host.cancel(accepted.session_id)
        events = await host.idle(accepted.session_id)
    assert sorted(ended) == [1, 2]
    assert "turn.cancelled" in types(events)


async def test_a_turn_that_uses_more_than_it_may_fails() -> None:
    agent = Agent(Script(*10 * [[Use("look", {})]]).model())

    @agent.tool_plain
    def look() -> int:
        return 1

    async with hosting(PydanticAIAgent(agent, usage_limits=UsageLimits(request_limit=3))) as host:
        events = await host.run()
    failed = one(events, "turn.failed")
    assert failed["code"] == "AGENT_FAILED"
    assert failed["message"].startswith("UsageLimitExceeded")
    assert len(of(events, "action.result")) == 6
