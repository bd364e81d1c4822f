"""An agent of Pydantic AI as it is, hosted: what is said, thought, called, used and remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Any, TypeGuard

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, TextOutput
from pydantic_ai.capabilities import ProcessEventStream
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelResponse,
    PartStartEvent,
    TextPart,
    ThinkingPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from tests.agents.scripts_pydantic_ai import Script, Thought, Use, told
from tests.hosting import hosting, one, types
from zhin_host import Turn
from zhin_host.agents.pydantic_ai import PydanticAIAgent
from zhin_host.events import Event


def of(events: list[Event], kind: str) -> list[Any]:
    """The data of every event of a type."""
    return [event.data for event in events if event.type == kind]


def said(events: list[Event]) -> str:
    """What the one turn in the events said."""
    return str(one(events, "message.completed")["message"])


async def test_text_and_reasoning_are_told_while_the_model_answers() -> None:
    script = Script([Thought("Let me "), Thought("see."), "It is ", "all ", "fine."])
    async with hosting(PydanticAIAgent(Agent(script.model()))) as host:
        events = await host.run("how is it?")
    kinds = [
        kind for kind in types(events) if kind.split(".")[0] in ("reasoning", "message", "action", "actions")
    ]
    assert kinds == [
        "message.received",
        "actions.requested",
        *2 * ["reasoning.appended"],
        "reasoning.completed",
        *3 * ["message.appended"],
        "action.result",
        "message.completed",
    ]
    assert one(events, "reasoning.completed")["reasoning"] == "Let me see."
    assert said(events) == "It is all fine."


async def test_a_model_without_a_stream_is_told_when_its_answer_is_there() -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ThinkingPart("hm"), TextPart("a" * 40_000)])

    async with hosting(PydanticAIAgent(Agent(FunctionModel(answer)))) as host:
        events = await host.run()
    assert said(events) == "a" * 40_000
    assert len(of(events, "message.appended")) == 3
    assert one(events, "reasoning.completed")["reasoning"] == "hm"


@dataclass
class Shop:
    """What a tool depends on."""

    prices: dict[str, int]


async def test_a_tool_is_an_action_and_gets_the_context_that_it_expects() -> None:
    agent = Agent(Script([Use("price", {"name": "tea"})], ["It is 3."]).model(), deps_type=Shop)

    @agent.tool
    async def price(context: RunContext[Shop], name: str, times: int = 2) -> dict[str, Any]:
        """What something costs."""
        return {"each": context.deps.prices[name], "times": times, "asked": context.prompt}

    async with hosting(PydanticAIAgent(agent, deps=Shop({"tea": 3}))) as host:
        events = await host.run("what is tea?")
    calls = [(row["toolName"], row["input"]) for row in of(events, "actions.requested")]
    assert calls == [
        ("model", {}),
        ("price", {"name": "tea", "times": 2}),
        ("model", {}),
    ]
    [result] = [row for row in of(events, "action.result") if row["toolName"] == "price"]
    assert result["output"] == {"each": 3, "times": 2, "asked": "what is tea?"}
    assert said(events) == "It is 3."


async def test_tools_that_the_model_calls_at_once_run_side_by_side() -> None:
    agent = Agent(Script([Use("meet", {"me": "a"}), Use("meet", {"me": "b"})], ["met"]).model())
    both = asyncio.Barrier(2)

    @agent.tool_plain
    async def meet(me: str) -> str:
        await both.wait()
        return me

    async with hosting(PydanticAIAgent(agent)) as host:
        events = await host.run()
    assert [row["input"]["me"] for row in of(events, "actions.requested")[1:3]] == ["a", "b"]
    assert said(events) == "met"


async def test_deps_are_made_for_each_turn_by_a_function_of_it() -> None:
    async def deps(turn: Turn) -> str:
        return f"{turn.metadata['who']}: {turn.message}"

    agent = Agent(Script([Use("tell", {})], ["done"]).model(), deps_type=str)

    @agent.tool
    async def tell(context: RunContext[str]) -> str:
        return context.deps

    async with hosting(PydanticAIAgent(agent, deps=deps)) as host:
        events = await host.run("hello", who="Ada")
    assert of(events, "action.result")[1]["output"] == "Ada: hello"


async def test_texts_of_several_answers_are_told_apart() -> None:
    agent = Agent(Script(["I look. ", Use("look", {})], ["Found."]).model())

    @agent.tool_plain
    def look() -> str:
        return "it"

    async with hosting(PydanticAIAgent(agent)) as host:
        events = await host.run()
    assert said(events) == "I look. \n\nFound."


class Town(BaseModel):
    """A town."""

    name: str
    people: int


async def test_a_structured_output_is_said_as_json_and_nothing_beside_it() -> None:
    agent = Agent(
        Script(["I think of one.", Use("final_result", {"name": "Ulm", "people": 128})]).model(),
        output_type=Town,
    )
    async with hosting(PydanticAIAgent(agent)) as host:
        events = await host.run()
    assert said(events) == '{"name":"Ulm","people":128}'


async def test_a_text_that_a_function_or_a_validator_has_a_word_on_is_said_when_it_stands() -> None:
    def shout(text: str) -> str:
        return text.upper()

    checked = Agent(Script(["bad"], ["good"]).model())

    @checked.output_validator
    def check(text: str) -> str:
        if text == "bad":
            raise ModelRetry("no")
        return text

    agents = {
        "shouting": PydanticAIAgent(Agent(Script(["quiet"]).model(), output_type=TextOutput(shout))),
        "checked": PydanticAIAgent(checked),
    }
    async with hosting(agents) as host:
        texts = []
        for name in agents:
            accepted = await host.start("go", name)
            texts.append(said(await host.events(accepted.session_id)))
    assert texts == ["QUIET", "good"]


async def test_a_text_or_an_object_is_said_as_whichever_came() -> None:
    agent: Agent[None, Any] = Agent(
        Script(["Here: ", Use("final_result", {"name": "Ulm", "people": 1})]).model(), output_type=[str, Town]
    )
    async with hosting(PydanticAIAgent(agent)) as host:
        events = await host.run()
    assert said(events) == 'Here: \n\n{"name":"Ulm","people":1}'


async def test_what_the_run_used_is_told_with_its_end() -> None:
    agent = Agent(TestModel())

    @agent.tool_plain
    def look() -> int:
        return 1

    async with hosting(PydanticAIAgent(agent)) as host:
        events = await host.run("hello")
    usage = one(events, "turn.completed")["usage"]
    assert usage == one(events, "message.completed")["usage"]
    assert usage["modelCalls"] == 2
    assert usage["toolCalls"] == 1
    answers = [row["output"]["usage"] for row in of(events, "action.result") if row["toolName"] == "model"]
    assert usage["inputTokens"] == sum(row["input_tokens"] for row in answers)
    assert usage["outputTokens"] == sum(row["output_tokens"] for row in answers)


async def test_the_next_turn_has_the_messages_of_those_that_completed() -> None:
    script = Script(["first answer"])
    async with hosting(PydanticAIAgent(Agent(script.model(), system_prompt="Be brief."))) as host:
        accepted = await host.start("one")
        await host.idle(accepted.session_id)
        await host.follow_up(accepted.session_id, "two")
        await host.idle(accepted.session_id, len(await host.events(accepted.session_id)))
    [_, second] = script.asked
    assert [part.content for message in second for part in message.parts if hasattr(part, "content")] == [
        "Be brief.",
        "one",
        "first answer",
        "two",
    ]


async def test_the_oldest_exchanges_are_forgotten_first_and_never_the_system_prompt() -> None:
    script = Script(["answer " * 20])
    agent = PydanticAIAgent(Agent(script.model(), system_prompt="Be brief."), history_bytes_max=2_000)
    async with hosting(agent) as host:
        accepted = await host.start("message 0")
        await host.idle(accepted.session_id)
        for number in range(1, 6):
            start = host.live(accepted.session_id).state.next_index
            await host.follow_up(accepted.session_id, f"message {number}")
            await host.idle(accepted.session_id, start)
        states = of(await host.events(accepted.session_id), "checkpoint.saved")
    prompts = [
        [part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
        for messages in script.asked
    ]
    assert prompts[0] == ["message 0"]
    assert prompts[5][-1] == "message 5"
    assert 1 < len(prompts[5]) < 6
    assert prompts[5] == [f"message {number}" for number in range(6 - len(prompts[5]), 6)]
    assert {told(messages[0])[0] for messages in script.asked} == {("system-prompt", "Be brief.")}
    assert len(states) == 6


async def test_an_exchange_that_is_too_large_leaves_no_history() -> None:
    script = Script(["answer " * 1_000])
    async with hosting(PydanticAIAgent(Agent(script.model()), history_bytes_max=2_000)) as host:
        events = await host.run()
    assert one(events, "checkpoint.saved")["state"]["messages"] == []


async def test_who_listens_to_the_events_of_the_run_hears_them_and_the_text_still_streams() -> None:
    heard: list[str] = []

    async def listen(context: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
        heard.extend([event.part.content async for event in events if is_text(event)])

    script = Script(["one ", "two"])
    agent = Agent(script.model(), capabilities=[ProcessEventStream(listen)])
    async with hosting(PydanticAIAgent(agent)) as host:
        events = await host.run()
    assert said(events) == "one two"
    assert len(of(events, "message.appended")) == 2
    assert heard == ["one two"]


def is_text(event: AgentStreamEvent) -> TypeGuard[Any]:
    return isinstance(event, PartStartEvent) and isinstance(event.part, TextPart)


def test_the_tools_that_are_known_beforehand_are_told() -> None:
    agent = Agent(TestModel(), name="clerk")

    @agent.tool_plain(requires_approval=True, metadata={"zhin": {"repeatable": False, "expires_s": 60}})
    def pay(amount: int) -> None:
        """Pay."""

    hosted = PydanticAIAgent(agent, version="2")
    assert (hosted.name, hosted.version) == ("clerk", "2")
    [tool] = hosted.tools
    assert (tool.name, tool.description, tool.approval, tool.is_repeatable, tool.expires_s) == (
        "pay",
        "Pay.",
        "always",
        False,
        60,
    )
    assert tool.schema["required"] == ["amount"]


def test_metadata_that_name_no_option_are_refused_where_they_are_written() -> None:
    agent = Agent(TestModel())

    @agent.tool_plain(metadata={"zhin": {"repeatble": False}})
    def pay() -> None: ...

    with pytest.raises(TypeError, match="repeatble"):
        PydanticAIAgent(agent)
