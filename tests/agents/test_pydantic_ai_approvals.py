"""What an agent of Pydantic AI defers: approvals of exact arguments, refusals, expiry, questions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, HttpUrl
from pydantic_ai import Agent, ApprovalRequired, CallDeferred, ModelRetry, RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, HandleDeferredToolCalls
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.tool_manager import ValidatedToolCall
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset

from tests.agents.scripts_pydantic_ai import Script, Use
from tests.agents.test_pydantic_ai import of, said
from tests.hosting import Hosting, hosting, one, types
from zhin_host.agents.pydantic_ai import PydanticAIAgent
from zhin_host.events import Event, digest, json_bytes


def returned(script: Script) -> list[tuple[str, Any, str]]:
    """What the last request told the model of its calls: name, content, outcome."""
    return [
        (part.tool_name, part.content, part.outcome)
        for part in script.asked[-1][-1].parts
        if isinstance(part, ToolReturnPart)
    ]


async def answered(host: Hosting, message: str, *answers: Any) -> list[Event]:
    """A whole turn, whose requests are answered one after another: a bool approves, anything else responds."""
    accepted = await host.start(message)
    for count, answer in enumerate(answers, 1):
        request = (await host.asked(accepted.session_id, count))[-1]
        if isinstance(answer, bool):
            await host.approve(accepted.session_id, request.request_id, approved=answer)
        else:
            await host.respond(accepted.session_id, request.request_id, answer)
    return await host.idle(accepted.session_id)


def gated(raises: Callable[[RunContext[None], int], None]) -> FunctionToolset[None]:
    """A toolset with a tool that pays, when `raises` lets it."""
    toolset: FunctionToolset[None] = FunctionToolset()

    @toolset.tool
    async def pay(context: RunContext[None], amount: int) -> str:
        """Pay."""
        raises(context, amount)
        return f"paid {amount}"

    return toolset


def always(context: RunContext[None], amount: int) -> None:
    """Let it pay."""


def above_ten(context: RunContext[None], amount: int) -> None:
    if amount > 10 and not context.tool_call_approved:
        raise ApprovalRequired(metadata={"limit": 10})


def pay_checked(context: RunContext[Any], amount: int) -> str:
    return f"paid {amount}"


pay_checked.__name__ = "pay"


class Hooked(AbstractCapability[None]):
    """A hook that wants each call of a tool allowed."""

    async def before_tool_execute(self, ctx: RunContext[None], *, args: Any, **call: Any) -> Any:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return args


def agents(script: Script) -> dict[str, Agent[None, str]]:
    """All ways in which the library says that a call must be allowed."""
    required = Agent(script.model())

    @required.tool_plain(requires_approval=True)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    validated: Agent[None, str] = Agent(script.model())

    def check(context: RunContext[Any], amount: int) -> None:
        if not context.tool_call_approved:
            raise ApprovalRequired

    validated.tool(args_validator=check)(pay_checked)
    return {
        "requires_approval": required,
        "raised in the tool": Agent(script.model(), toolsets=[gated(above_ten)]),
        "toolset": Agent(script.model(), toolsets=[gated(always).approval_required()]),
        "toolset, some": Agent(
            script.model(),
            toolsets=[gated(always).approval_required(lambda context, tool, args: args["amount"] > 10)],
        ),
        "hook": Agent(script.model(), toolsets=[gated(always)], capabilities=[Hooked()]),
        "validator": validated,
    }


CAN_VALIDATORS_DEFER = hasattr(ValidatedToolCall, "deferral")  # not in the oldest release
WAYS = [way for way in agents(Script()) if way != "validator" or CAN_VALIDATORS_DEFER]


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_that_must_be_allowed_waits_for_a_person_who_sees_its_arguments(way: str) -> None:
    script = Script([Use("pay", {"amount": 20})], ["done"])
    async with hosting(PydanticAIAgent(agents(script)[way])) as host:
        events = await answered(host, "pay", True)
    request = one(events, "input.requested")
    assert (request["kind"], request["toolName"], request["args"]) == ("approval", "pay", {"amount": 20})
    assert request["argsDigest"] == digest(json_bytes({"amount": 20}))
    results = [row for row in of(events, "action.result") if row["toolName"] == "pay"]
    assert (results[-1]["status"], results[-1]["output"]) == ("completed", "paid 20")
    assert results[-1]["callId"] == request["callId"]
    assert returned(script) == [("pay", "paid 20", "success")]
    assert said(events) == "done"


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_that_is_refused_does_not_run_and_the_model_is_told(way: str) -> None:
    script = Script([Use("pay", {"amount": 20})], ["not done"])
    async with hosting(PydanticAIAgent(agents(script)[way])) as host:
        events = await answered(host, "pay", False)
    results = [row for row in of(events, "action.result") if row["toolName"] == "pay"]
    assert results[-1]["status"] == "denied"
    assert "paid 20" not in str(results)
    assert returned(script) == [("pay", "a person refused pay", "denied")]
    assert said(events) == "not done"


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_that_nobody_allows_in_time_does_not_run_and_the_model_is_told(way: str) -> None:
    script = Script([Use("pay", {"amount": 20})], ["not done"])
    async with hosting(PydanticAIAgent(agents(script)[way]), request_expires_s=60) as host:
        accepted = await host.start("pay")
        await host.asked(accepted.session_id)
        host.clock.advance(61)
        await host.store.expire()
        events = await host.idle(accepted.session_id)
    assert returned(script) == [("pay", "nobody allowed pay in time", "denied")]
    assert one(events, "input.completed")["outcome"] == "expired"


@pytest.mark.parametrize("way", ["raised in the tool", "toolset, some"])
async def test_what_a_condition_lets_pass_asks_nobody(way: str) -> None:
    script = Script([Use("pay", {"amount": 5})], ["done"])
    async with hosting(PydanticAIAgent(agents(script)[way])) as host:
        events = await host.run("pay")
    assert "input.requested" not in types(events)
    assert returned(script) == [("pay", "paid 5", "success")]


@pytest.mark.parametrize("is_first_first", [True, False])
@pytest.mark.parametrize("way", WAYS)
async def test_several_approvals_are_open_at_once_and_answered_in_any_order(
    way: str, *, is_first_first: bool
) -> None:
    script = Script([Use("pay", {"amount": 20}), Use("pay", {"amount": 30})], ["done"])
    async with hosting(PydanticAIAgent(agents(script)[way])) as host:
        accepted = await host.start("pay twice")
        requests = await host.asked(accepted.session_id, 2)
        assert len(requests) == 2
        for request in requests if is_first_first else reversed(requests):
            approved = request.data["args"]["amount"] == 30
            await host.approve(accepted.session_id, request.request_id, approved=approved)
        events = await host.idle(accepted.session_id)
    told = [("pay", "a person refused pay", "denied"), ("pay", "paid 30", "success")]
    assert (
        sorted(returned(script)) == told
    )  # in which order the model hears of them is another in older releases
    assert said(events) == "done"


async def test_a_call_beside_one_that_waits_goes_on() -> None:
    script = Script([Use("pay", {"amount": 20}), Use("look", {})], ["done"])
    agent = agents(script)["requires_approval"]

    @agent.tool_plain
    def look() -> str:
        return "seen"

    async with hosting(PydanticAIAgent(agent)) as host:
        accepted = await host.start("pay")
        [request] = await host.asked(accepted.session_id)
        await host.seen(accepted.session_id, "action.result", 2)
        await host.approve(accepted.session_id, request.request_id)
        events = await host.idle(accepted.session_id)
    assert [row["toolName"] for row in of(events, "action.result")] == ["model", "look", "pay", "model"]


async def test_what_the_metadata_of_a_tool_say_is_the_policy() -> None:
    script = Script([Use("look", {"at": "a"})], [Use("look", {"at": "b"})], ["done"])
    agent = Agent(script.model())

    @agent.tool_plain(requires_approval=True, metadata={"zhin": {"approval": "once"}})
    def look(at: str) -> str:
        return at

    async with hosting(PydanticAIAgent(agent)) as host:
        events = await answered(host, "look", True)
    assert one(events, "input.requested")["scope"] == "session"
    assert said(events) == "done"


class Order(BaseModel):
    """What is bought."""

    at: HttpUrl
    tags: set[str]


async def test_arguments_of_any_type_are_shown_as_json_and_given_to_the_tool_as_their_types() -> None:
    order = {"at": "https://shop.example/", "tags": ["b", "a", "c"]}
    script = Script([Use("buy", {"order": order, "within": "PT1H"})], ["done"])
    agent = Agent(script.model())
    bought = []

    @agent.tool_plain(requires_approval=True)
    def buy(order: Order, within: timedelta) -> None:
        bought.append((order.tags, within))

    async with hosting(PydanticAIAgent(agent)) as host:
        events = await answered(host, "buy", True)
    assert one(events, "input.requested")["args"] == {
        "order": {"at": "https://shop.example/", "tags": ["a", "b", "c"]},
        "within": "PT1H",
    }
    assert bought == [({"a", "b", "c"}, timedelta(hours=1))]


async def test_a_tool_runs_with_what_was_shown_where_a_key_was_redacted() -> None:
    secret = "sk-" + "aB3dE6gH9" * 3
    script = Script([Use("send", {"text": f"my key is {secret}"})], ["done"])
    agent = Agent(script.model())
    sent = []

    @agent.tool_plain(requires_approval=True)
    def send(text: str) -> None:
        sent.append(text)

    async with hosting(PydanticAIAgent(agent)) as host:
        events = await answered(host, "send", True)
        assert secret not in str(events)
    assert sent == [one(events, "input.requested")["args"]["text"]] == ["my key is [redacted]"]


async def test_a_call_from_outside_is_a_question_whose_response_is_its_result() -> None:
    lookup = ToolDefinition(
        name="lookup",
        parameters_json_schema={"type": "object", "properties": {"name": {"type": "string"}}},
    )
    script = Script([Use("lookup", {"name": "Ada"})], ["done"])
    agent = Agent(script.model(), toolsets=[ExternalToolset([lookup])])
    async with hosting(PydanticAIAgent(agent)) as host:
        events = await answered(host, "who?", {"age": 36})
    request = one(events, "input.requested")
    assert (request["kind"], request["prompt"]) == (
        "question",
        'What is the result of lookup with {"name":"Ada"}?',
    )
    assert returned(script) == [("lookup", {"age": 36}, "success")]


async def test_a_tool_that_defers_its_call_words_the_question() -> None:
    script = Script([Use("choose", {})], ["done"])
    agent = Agent(script.model())

    @agent.tool_plain
    def choose() -> str:
        raise CallDeferred(metadata={"prompt": "Which paper?", "options": ["white", "blue"]})

    async with hosting(PydanticAIAgent(agent)) as host:
        events = await answered(host, "choose", "blue")
    request = one(events, "input.requested")
    assert (request["prompt"], request["options"]) == ("Which paper?", ["white", "blue"])
    assert returned(script) == [("choose", "blue", "success")]


async def test_a_question_that_nobody_answers_in_time_is_a_failure_that_the_model_is_told() -> None:
    script = Script([Use("choose", {})], ["done"])
    agent = Agent(script.model())

    @agent.tool_plain
    def choose() -> str:
        raise CallDeferred

    async with hosting(PydanticAIAgent(agent), request_expires_s=60) as host:
        accepted = await host.start("choose")
        await host.asked(accepted.session_id)
        host.clock.advance(61)
        await host.store.expire()
        await host.idle(accepted.session_id)
    [(name, content, outcome)] = returned(script)
    assert (name, outcome) == ("choose", "failed")
    assert "nobody answered in time" in content


async def test_an_allowed_call_may_still_send_the_model_back() -> None:
    script = Script([Use("pay", {"amount": 20})], [Use("pay", {"amount": 30})], ["done"])
    agent = Agent(script.model())

    @agent.tool_plain(requires_approval=True)
    def pay(amount: int) -> str:
        if amount == 20:
            raise ModelRetry("30 it is")
        return f"paid {amount}"

    async with hosting(PydanticAIAgent(agent)) as host:
        events = await answered(host, "pay", True, True)
    assert [row["args"] for row in of(events, "input.requested")] == [{"amount": 20}, {"amount": 30}]
    assert returned(script) == [("pay", "paid 30", "success")]


@pytest.mark.parametrize("way", WAYS)
async def test_cancelling_ends_a_turn_that_waits(way: str) -> None:
    script = Script([Use("pay", {"amount": 20}), Use("pay", {"amount": 30})], ["never"])
    async with hosting(PydanticAIAgent(agents(script)[way])) as host:
        accepted = await host.start("pay")
        await host.asked(accepted.session_id, 2)
        await host.cancel(accepted.session_id)
        events = await host.idle(accepted.session_id)
    assert [row["outcome"] for row in of(events, "input.completed")] == ["cancelled", "cancelled"]
    assert "turn.cancelled" in types(events)
    assert len(script.asked) == 1


async def test_a_handler_of_the_agents_own_answers_first_but_never_against_a_person() -> None:
    asked: list[str] = []

    def handle(context: RunContext[None], requests: DeferredToolRequests) -> DeferredToolResults:
        asked.extend(call.tool_name for call in (*requests.approvals, *requests.calls))
        calls: dict[str, Any] = {call.tool_call_id: "by hand" for call in requests.calls}
        return requests.build_results(calls=calls, approve_all=True)

    script = Script([Use("pay", {"amount": 20}), Use("choose", {})], ["done"])
    agent = Agent(
        script.model(), toolsets=[gated(above_ten)], capabilities=[HandleDeferredToolCalls(handler=handle)]
    )

    @agent.tool_plain
    def choose() -> str:
        raise CallDeferred

    async with hosting(PydanticAIAgent(agent)) as host:
        events = await answered(host, "pay", False)
    assert sorted(asked) == ["choose", "pay"]
    assert sorted(returned(script)) == [
        ("choose", "by hand", "success"),
        ("pay", "a person refused pay", "failed"),
    ]
    assert one(events, "input.requested")["toolName"] == "pay"


async def test_a_call_refused_once_may_be_made_again_under_the_same_id() -> None:
    call = Use("pay", {"amount": 20}, call_id="the same")
    script = Script([call], [call], ["done"])
    async with hosting(PydanticAIAgent(agents(script)["requires_approval"])) as host:
        events = await answered(host, "pay", False, True)
    assert returned(script) == [("pay", "paid 20", "success")]
    assert len(of(events, "input.requested")) == 2


async def test_a_tool_that_its_metadata_have_asked_about_is_told_that_it_was_allowed() -> None:
    script = Script([Use("pay", {"amount": 20})], ["done"])
    agent = Agent(script.model())

    @agent.tool(metadata={"zhin": {"approval": "always"}})
    def pay(context: RunContext[Any], amount: int) -> bool:
        above_ten(context, amount)
        return context.tool_call_approved

    async with hosting(PydanticAIAgent(agent)) as host:
        events = await answered(host, "pay", True)
    assert len(of(events, "input.requested")) == 1
    assert returned(script) == [("pay", True, "success")]
