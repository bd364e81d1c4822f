"""LangGraphAgent with graphs of LangChain's create_agent and its middleware."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    SummarizationMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from tests.agents.langgraph_graphs import look, names, of, one_node, publish, requests_of, rest
from tests.agents.langgraph_model import ScriptedModel, calling, echo_results, scripted
from zhin_host import create_agent_session_host
from zhin_host.agents.langgraph import LangGraphAgent

MODES = pytest.mark.parametrize("mode", ["batched", "per_call"])


def reviewed_agent(mode: str, **reviewed: Any) -> LangGraphAgent:
    calls = calling(("look", {"topic": "cats"}), ("publish", {"page": "a"}), ("publish", {"page": "b"}))
    review = HumanInTheLoopMiddleware(interrupt_on=reviewed or {"publish": True}, interrupt_mode=mode)  # type: ignore[arg-type]
    model = ScriptedModel(script=scripted(calls, echo_results))
    return LangGraphAgent(create_agent(model, [look, publish], middleware=[review]))


async def test_the_model_and_the_tools_of_an_agent_are_actions(data_dir: Path) -> None:
    model = ScriptedModel(script=scripted(calling(("look", {"topic": "cats"})), echo_results))
    agent = LangGraphAgent(create_agent(model, [look, publish]))
    assert [row.name for row in agent.tools] == ["look", "publish"]
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        assert (await handle.result()).text == "all about cats "
        assert names(await rest(host, handle)) == ["model", "look", "model"]


@MODES
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_review_is_an_approval_of_the_very_arguments_that_the_tool_is_given(
    data_dir: Path, mode: str, *, is_restarted: bool
) -> None:
    async with create_agent_session_host(reviewed_agent(mode), data_dir=data_dir) as host:
        handle = await host.run("hello")
        await requests_of(host, handle, 2)
        if not is_restarted:
            await decide_and_check(host, handle)
    if is_restarted:
        async with create_agent_session_host(reviewed_agent(mode), data_dir=data_dir) as host:
            await decide_and_check(host, await host.resume(handle.session_id))


async def decide_and_check(host: Any, handle: Any) -> None:
    """Allow page a, refuse page b; each tool call is one action, and its approval shows its arguments."""
    requests = {row["args"]["page"]: row for row in await requests_of(host, handle, 2)}
    assert [row["toolName"] for row in requests.values()] == ["publish", "publish"]
    await handle.answer(False, requests["b"]["requestId"])
    await handle.answer(True, requests["a"]["requestId"])
    text = (await handle.result()).text
    refused = "The user refused this call of publish; it did not run."
    assert text == f"all about cats | https://pages.example/a | {refused} "
    events = await rest(host, handle)
    results = [
        (row["toolName"], row["status"])
        for row in of(events, "action.result")
        if row["toolName"] in ("look", "publish")
    ]
    assert sorted(results) == [("look", "completed"), ("publish", "completed"), ("publish", "denied")]
    assert len(of(events, "input.requested")) == 2


@MODES
@pytest.mark.parametrize("is_outer", [True, False])
async def test_a_reviewed_call_whose_arguments_are_changed_is_asked_of_as_it_runs(
    data_dir: Path, mode: Any, *, is_outer: bool
) -> None:
    class Changing(AgentMiddleware):
        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            changed = {**request.tool_call, "args": {"page": "changed"}}
            return await handler(request.override(tool_call=changed))

    review = HumanInTheLoopMiddleware(interrupt_on={"publish": True}, interrupt_mode=mode)
    model = ScriptedModel(script=scripted(calling(("publish", {"page": "a"})), echo_results))
    middleware = [Changing(), review] if is_outer else [review, Changing()]
    agent = LangGraphAgent(create_agent(model, [publish], middleware=middleware))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        [request] = await requests_of(host, handle, 1)
        assert (request["toolName"], request["args"]) == ("publish", {"page": "changed"})
        await handle.answer(False)
        text = (await handle.result()).text
    assert text == "The user refused this call of publish; it did not run. "


async def test_a_call_that_a_review_lets_pass_is_not_asked_of_beside_one_that_it_does_not(
    data_dir: Path,
) -> None:
    calls = calling(("publish", {"page": "free"}), ("publish", {"page": "a"}))
    reviewed: Any = {
        "allowed_decisions": ["approve", "reject"],
        "when": lambda request: request.tool_call["args"]["page"] != "free",
    }
    review = HumanInTheLoopMiddleware(interrupt_on={"publish": reviewed})
    model = ScriptedModel(script=scripted(calls, echo_results))
    agent = LangGraphAgent(create_agent(model, [publish], middleware=[review]))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        [request] = await requests_of(host, handle, 1)
        assert request["args"] == {"page": "a"}
        await handle.answer(True)
        text = (await handle.result()).text
        assert len(of(await rest(host, handle), "input.requested")) == 1
    assert text == "https://pages.example/free | https://pages.example/a "


async def test_a_review_that_may_not_be_approved_is_a_question(data_dir: Path) -> None:
    agent = reviewed_agent("batched", look={"allowed_decisions": ["respond"]})
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        await rest(host, handle)
        [request] = await handle.requests()
        assert request["kind"] == "question"
        assert '"allowed_decisions": ["respond"]' in request["prompt"]
        await handle.answer({"decisions": [{"type": "respond", "message": "dogs"}]})
        text = (await handle.result()).text
    assert "dogs" in text
    assert "all about" not in text


async def test_what_another_asks_in_the_form_of_a_review_is_asked_before_it_goes_on(data_dir: Path) -> None:
    async def review(state: Any) -> dict[str, Any]:
        request = {"name": "publish", "args": {"page": "a"}, "description": "Publish a?"}
        config = {"action_name": "publish", "allowed_decisions": ["approve", "reject"]}
        decided = interrupt({"action_requests": [request], "review_configs": [config]})
        return {"messages": [AIMessage(str(decided["decisions"]))]}

    async with create_agent_session_host(LangGraphAgent(one_node(review)), data_dir=data_dir) as host:
        handle = await host.run("hello")
        await rest(host, handle)
        [request] = await handle.requests()
        assert (request["kind"], request["prompt"]) == ("approval", "Publish a?")
        await handle.answer(False)
        assert (await handle.result()).text == "[{'type': 'reject'}]"


async def test_a_tool_that_middleware_tries_again_is_an_action_each_time(data_dir: Path) -> None:
    tries: list[int] = []

    @tool
    async def fetch(page: str) -> str:
        """Fetch a page."""
        tries.append(1)
        if len(tries) == 1:
            raise OSError("no line")
        return page

    model = ScriptedModel(script=scripted(calling(("fetch", {"page": "a"})), echo_results))
    retry = ToolRetryMiddleware(max_retries=1, initial_delay=0.0)
    agent = LangGraphAgent(create_agent(model, [fetch], middleware=[retry]))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        assert (await handle.result()).text == "a "
        events = await rest(host, handle)
    assert (names(events, "failed"), names(events)) == (["fetch"], ["model", "fetch", "model"])


async def test_a_summary_that_takes_the_place_of_the_history_is_kept_and_old_answers_are_not_said_again(
    data_dir: Path,
) -> None:
    def answer(messages: Any) -> AIMessage:
        return AIMessage(f"{len(messages)} messages")

    summary = SummarizationMiddleware(
        ScriptedModel(script=lambda messages: AIMessage("summed up")),
        trigger=("messages", 4),
        keep=("messages", 2),
    )
    model = ScriptedModel(script=answer)
    agent = LangGraphAgent(create_agent(model, [], middleware=[summary]), speakers=["model"])
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("one")
        said = [(await handle.result()).text]
        for message in ("two", "three", "four"):
            handle = await host.run(message, session_id=handle.session_id)
            said.append((await handle.result()).text)
    assert said == ["1 messages ", "3 messages ", "3 messages ", "3 messages "]


async def test_an_agent_in_a_graph_is_hosted_as_deep_as_it_stands(data_dir: Path) -> None:
    model = ScriptedModel(script=scripted(calling(("publish", {"page": "a"})), echo_results))
    builder = StateGraph(MessagesState)
    builder.add_node("writer", create_agent(model, [publish]))
    builder.add_edge(START, "writer")
    builder.add_edge("writer", END)
    agent = LangGraphAgent(builder.compile(), rules={"publish": {"approval": "always"}})
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        await rest(host, handle)
        await handle.answer(True)
        assert (await handle.result()).text == "https://pages.example/a "
        assert names(await rest(host, handle)) == ["writer/model", "publish", "writer/model"]


async def test_a_message_of_a_person_has_the_turn_as_its_id(data_dir: Path) -> None:
    ids: list[str | None] = []

    def answer(messages: Any) -> AIMessage:
        ids.extend(row.id for row in messages if isinstance(row, HumanMessage))
        return AIMessage("yes")

    agent = LangGraphAgent(create_agent(ScriptedModel(script=answer), []))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        await handle.result()
    assert ids == [handle.turn_id]
