"""What models answer, and how they fail; what OpenAI runs itself; tracing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    HostedMCPTool,
    RunConfig,
    WebSearchTool,
)
from openai.types.responses import ResponseFunctionWebSearch
from openai.types.responses.response_output_item import McpApprovalRequest
from pydantic import BaseModel

from tests.agents.openai_model import Item, ScriptedModel, say
from tests.hosting import hosting, one, types
from zhin_host.agents.openai_agents import OpenAIAgent
from zhin_host.agents.openai_agents.agent import RETRY


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
