"""OpenAIAgent: runs of the OpenAI Agents SDK as turns; every request to the model and every tool call is an action."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, function_tool

from tests.agents.openai_model import Call, Reply, ScriptedModel, Think, message, outputs, say
from tests.hosting import hosting, last, one, types
from zhin_host.agents.openai_agents import OpenAIAgent, ask_person


@function_tool
async def look_up(topic: str) -> str:
    """Look something up."""
    return f"all about {topic}"


@function_tool(needs_approval=True)
async def publish(page: str) -> str:
    """Publish a page."""
    return f"https://pages.example/{page}"


def hosted(reply: Reply, *tools: Any, **settings: Any) -> OpenAIAgent:
    return OpenAIAgent(Agent(name="assistant", model=ScriptedModel(reply), tools=[*tools]), **settings)


def looks_up(items: list[Any]) -> list[Any]:
    found = outputs(items)
    if not found:
        return [Think(("Let me ", "see.")), say("I look it up."), Call("look_up", {"topic": message(items)})]
    return [say(f"Found: {found[0]}")]


def publishes(items: list[Any]) -> list[Any]:
    given = outputs(items)
    return [say(f"Result: {given[0]}")] if given else [Call("publish", {"page": "cats"})]


async def test_text_and_reasoning_are_streamed_before_the_models_answer_is_recorded(data_dir: Path) -> None:
    async with hosting(hosted(looks_up, look_up), data_dir=data_dir) as running:
        events = await running.run("cats")
    kinds = types(events)
    first = kinds.index("action.result")
    assert kinds[:first].count("message.appended") == 4
    assert kinds[:first].count("reasoning.appended") == 2
    assert one(events, "reasoning.completed")["reasoning"] == "Let me see."
    assert one(events, "message.completed")["message"] == "I look it up. \n\nFound: all about cats "
    assert [
        (event.data["toolName"], event.data["input"]) for event in events if event.type == "actions.requested"
    ] == [
        ("model", {"messages": 1}),
        ("look_up", {"topic": "cats"}),
        ("model", {"messages": 5}),
    ]


async def test_an_approved_tool_runs_once_with_the_arguments_shown(data_dir: Path) -> None:
    async with hosting(hosted(publishes, publish), data_dir=data_dir) as running:
        accepted = await running.start("go")
        [request] = await running.asked(accepted.session_id)
        await running.approve(accepted.session_id, request.request_id)
        events = await running.idle(accepted.session_id)
    asked = one(events, "input.requested")
    assert (asked["toolName"], asked["args"]) == ("publish", {"page": "cats"})
    assert asked["argsDigest"].startswith("sha256:")
    assert one(events, "action.result", 1)["output"] == "https://pages.example/cats"
    assert one(events, "message.completed")["message"] == "Result: https://pages.example/cats "


async def test_a_denied_tool_does_not_run_and_the_model_is_told(data_dir: Path) -> None:
    async with hosting(hosted(publishes, publish), data_dir=data_dir) as running:
        accepted = await running.start("go")
        [request] = await running.asked(accepted.session_id)
        await running.approve(accepted.session_id, request.request_id, approved=False)
        events = await running.idle(accepted.session_id)
    assert one(events, "action.result", 1)["status"] == "denied"
    assert one(events, "message.completed")["message"] == "Result: Tool execution was not approved. "


async def test_an_approval_that_expires_is_told_to_the_model(data_dir: Path) -> None:
    async with hosting(hosted(publishes, publish), data_dir=data_dir, request_expires_s=60) as running:
        accepted = await running.start("go")
        await running.asked(accepted.session_id)
        running.clock.advance(61)
        events = await running.idle(accepted.session_id)
    assert one(events, "action.result", 1)["error"]["code"] == "REQUEST_EXPIRED"
    assert "Nobody answered in time" in one(events, "message.completed")["message"]


def publishes_two(items: list[Any]) -> list[Any]:
    given = outputs(items)
    if given:
        return [say(" and ".join(sorted(given)))]
    return [Call("publish", {"page": "a"}), Call("look_up", {"topic": "x"}), Call("publish", {"page": "b"})]


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
async def test_two_approvals_are_open_at_once_and_are_answered_in_either_order(
    order: list[int], data_dir: Path
) -> None:
    async with hosting(hosted(publishes_two, publish, look_up), data_dir=data_dir) as running:
        accepted = await running.start("go")
        requests = await running.asked(accepted.session_id, 2)
        await running.approve(accepted.session_id, requests[order[0]].request_id)
        await running.seen(
            accepted.session_id, "action.result", 3
        )  # model, look_up and the one that is allowed
        await running.approve(accepted.session_id, requests[order[1]].request_id)
        events = await running.idle(accepted.session_id)
    said = one(events, "message.completed")["message"]
    assert said == "all about x and https://pages.example/a and https://pages.example/b "
    assert types(events).count("action.result") == 5
    assert len([1 for event in events if event.data.get("toolName") == "model"]) == 4


async def test_one_of_two_is_denied_and_the_other_runs(data_dir: Path) -> None:
    async with hosting(hosted(publishes_two, publish, look_up), data_dir=data_dir) as running:
        accepted = await running.start("go")
        first, second = await running.asked(accepted.session_id, 2)
        await running.approve(accepted.session_id, first.request_id, approved=False)
        await running.approve(accepted.session_id, second.request_id)
        events = await running.idle(accepted.session_id)
    said = one(events, "message.completed")["message"]
    assert said == "Tool execution was not approved. and all about x and https://pages.example/b "


async def test_a_policy_of_the_arguments_decides_whether_a_person_is_asked(data_dir: Path) -> None:
    async def is_large(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        return bool(arguments["amount"] > 100)

    @function_tool(needs_approval=is_large)
    async def refund(amount: int) -> str:
        return f"paid {amount}"

    def refunds(items: list[Any]) -> list[Any]:
        given = outputs(items)
        return [say(given[0])] if given else [Call("refund", {"amount": int(message(items))})]

    agent = hosted(refunds, refund)
    assert [tool.policy_name for tool in agent.tools] == ["function"]
    async with hosting(agent, data_dir=data_dir) as running:
        small = await running.run("7")
        assert "input.requested" not in types(small)
        assert last(await running.run("700"))["parked"]


async def test_tools_side_by_side_run_side_by_side(data_dir: Path) -> None:
    both = asyncio.Barrier(2)

    @function_tool
    async def meet(name: str) -> str:
        await both.wait()
        return name

    def meets(items: list[Any]) -> list[Any]:
        given = outputs(items)
        return [say(" ".join(given))] if given else [Call("meet", {"name": "a"}), Call("meet", {"name": "b"})]

    async with hosting(hosted(meets, meet), data_dir=data_dir) as running:
        events = await running.run()
    assert one(events, "message.completed")["message"] == "a b "


async def test_a_failing_tool_is_a_failed_action_and_words_for_the_model(data_dir: Path) -> None:
    @function_tool
    async def divide(by: int) -> str:
        return str(1 // by)

    def divides(items: list[Any]) -> list[Any]:
        given = outputs(items)
        return [say(given[0])] if given else [Call("divide", {"by": 0})]

    async with hosting(hosted(divides, divide), data_dir=data_dir) as running:
        events = await running.run()
    result = one(events, "action.result", 1)
    assert (result["status"], result["error"]["type"]) == ("failed", "ZeroDivisionError")
    assert one(events, "message.completed")["message"].startswith("An error occurred")


async def test_a_tool_whose_failure_ends_the_run_is_tried_again_by_a_resume(data_dir: Path) -> None:
    works = False

    @function_tool(failure_error_function=None)
    async def fetch() -> str:
        if not works:
            raise OSError("away")
        return "fetched"

    def fetches(items: list[Any]) -> list[Any]:
        given = outputs(items)
        return [say(given[0])] if given else [Call("fetch", {})]

    agent = hosted(fetches, fetch)
    async with hosting(agent, data_dir=data_dir) as running:
        events = await running.run()
        failed = one(events, "turn.failed")
        assert failed["callId"] == one(events, "action.result", 1)["callId"]
        works = True
        session_id = one(events, "session.started")["sessionId"]
        handle = await running.host.resume(session_id)
        assert (await handle.result()).text == "fetched "
    assert len(agent._agent.model.inner.asked) == 2  # type: ignore[union-attr]


async def test_the_next_turn_begins_with_what_was_said_before(data_dir: Path) -> None:
    agent = hosted(lambda items: [say(f"{len(items)} items, {message(items)}")])
    async with hosting(agent, data_dir=data_dir) as running:
        first = await running.run("one")
        session_id = one(first, "session.started")["sessionId"]
        accepted = await running.follow_up(session_id, "two")
        events = await running.events(session_id, accepted.start_index)
    assert one(events, "message.completed")["message"] == "3 items, two "
    assert one(events, "message.completed")["usage"] == {
        "requests": 1,
        "inputTokens": 10,
        "outputTokens": 5,
        "totalTokens": 15,
    }


async def test_usage_adds_up_over_the_requests_of_a_turn(data_dir: Path) -> None:
    async with hosting(hosted(looks_up, look_up), data_dir=data_dir) as running:
        events = await running.run("cats")
    assert one(events, "message.completed")["usage"]["requests"] == 2
    assert one(events, "message.completed")["usage"]["totalTokens"] == 30


async def test_a_cancel_in_mid_stream_closes_the_models_stream(data_dir: Path) -> None:
    async def wait() -> None:
        if model.asked and len(model.asked) == 1 and running_words:
            await asyncio.Event().wait()
        running_words.append(1)

    running_words: list[int] = []
    model = ScriptedModel(lambda _: [say("never to be heard in full")], wait)
    async with hosting(OpenAIAgent(Agent(name="a", model=model)), data_dir=data_dir) as running:
        accepted = await running.start()
        await running.seen(accepted.session_id, "message.appended")
        assert await running.cancel(accepted.session_id) == "accepted"
        events = await running.idle(accepted.session_id)
    assert "turn.cancelled" in types(events)
    assert model.open == 0


async def test_a_cancel_while_a_tool_works_leaves_nothing_behind(data_dir: Path) -> None:
    ended: list[str] = []

    @function_tool
    async def work() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("work")
        return ""

    async with hosting(hosted(lambda _: [Call("work", {})], work), data_dir=data_dir) as running:
        accepted = await running.start()
        await running.seen(accepted.session_id, "actions.requested", 2)
        await running.cancel(accepted.session_id)
        events = await running.idle(accepted.session_id)
    assert "turn.cancelled" in types(events)
    assert ended == ["work"]


async def test_a_cancel_while_a_person_is_asked_ends_the_turn(data_dir: Path) -> None:
    async with hosting(hosted(publishes, publish), data_dir=data_dir) as running:
        accepted = await running.start()
        await running.asked(accepted.session_id)
        await running.cancel(accepted.session_id)
        events = await running.idle(accepted.session_id)
    assert one(events, "input.completed")["outcome"] == "cancelled"
    assert "turn.cancelled" in types(events)


async def test_a_model_asks_a_person_and_gets_the_answer(data_dir: Path) -> None:
    def asks(items: list[Any]) -> list[Any]:
        given = outputs(items)
        if given:
            return [say(f"It is {given[0]}.")]
        return [Call("ask_person", {"question": "Which colour?", "options": ["red", "blue"]})]

    async with hosting(hosted(asks, ask_person), data_dir=data_dir) as running:
        accepted = await running.start()
        [request] = await running.asked(accepted.session_id)
        await running.respond(accepted.session_id, request.request_id, "blue")
        events = await running.idle(accepted.session_id)
    asked = one(events, "input.requested")
    assert (asked["kind"], asked["prompt"], asked["options"]) == (
        "question",
        "Which colour?",
        ["red", "blue"],
    )
    assert one(events, "message.completed")["message"] == "It is blue. "


async def test_an_agent_that_took_over_answers_the_next_turn_too(data_dir: Path) -> None:
    def takes_over(items: list[Any]) -> list[Any]:
        return [say("Specialist.")]

    def hands_over(items: list[Any]) -> list[Any]:
        return [Call("transfer_to_specialist", {})]

    specialist = Agent(name="specialist", model=ScriptedModel(takes_over))
    triage = Agent(name="triage", model=ScriptedModel(hands_over), handoffs=[specialist])
    async with hosting(OpenAIAgent(triage), data_dir=data_dir) as running:
        first = await running.run()
        session_id = one(first, "session.started")["sessionId"]
        accepted = await running.follow_up(session_id)
        second = await running.events(session_id, accepted.start_index)
    assert one(first, "message.completed")["message"] == "Specialist. "
    assert one(first, "checkpoint.saved")["state"]["agent"] == "specialist"
    assert types(second).count("actions.requested") == 1


def researches(items: list[Any]) -> list[Any]:
    given = outputs(items)
    return (
        [say(f"Both: {sorted(given)}")]
        if given
        else [Call("ask_a", {"input": "x"}), Call("ask_b", {"input": "x"})]
    )


def team(*, needs_approval: bool = False) -> OpenAIAgent:
    """One agent that asks two others side by side; each of them publishes when a person allows it."""
    helpers = [Agent(name=name, model=ScriptedModel(publishes, name=name), tools=[publish]) for name in "ab"]
    tools: list[Any] = [
        helper.as_tool(f"ask_{helper.name}", "Ask.", needs_approval=needs_approval) for helper in helpers
    ]
    return OpenAIAgent(Agent(name="lead", model=ScriptedModel(researches), tools=tools))


async def test_agents_as_tools_ask_for_approvals_side_by_side_and_are_not_heard(data_dir: Path) -> None:
    async with hosting(team(), data_dir=data_dir) as running:
        accepted = await running.start()
        requests = await running.asked(accepted.session_id, 2)
        for request in requests:
            await running.approve(accepted.session_id, request.request_id)
        events = await running.idle(accepted.session_id)
    said = one(events, "message.completed")["message"]
    assert said == "Both: ['Result: https://pages.example/cats ', 'Result: https://pages.example/cats '] "
    within = [event.data["input"].get("within") for event in events if event.type == "actions.requested"]
    assert within.count("ask_a call_m_1_0") == 2
    assert within.count("ask_b call_m_1_1") == 2
    assert one(events, "message.completed")["usage"]["requests"] == 6


async def test_an_agent_as_a_tool_may_need_an_approval_itself(data_dir: Path) -> None:
    async with hosting(team(needs_approval=True), data_dir=data_dir) as running:
        accepted = await running.start()
        first, second = await running.asked(accepted.session_id, 2)
        await running.approve(accepted.session_id, second.request_id, approved=False)
        await running.approve(accepted.session_id, first.request_id)
        await running.asked(accepted.session_id, 3)
        [third] = running.live(accepted.session_id).state.pending.values()
        await running.approve(accepted.session_id, third.request_id)
        events = await running.idle(accepted.session_id)
    said = one(events, "message.completed")["message"]
    assert said == "Both: ['Result: https://pages.example/cats ', 'Tool execution was not approved.'] "
