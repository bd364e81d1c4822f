"""LangGraphAgent: what a graph says, does and asks, as a user of the host sees it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, Send, interrupt

from tests.agents.langgraph_graphs import chat_graph, look, names, of, one_node, publish, requests_of, rest
from tests.agents.langgraph_model import ScriptedModel, calling, echo_results, scripted
from zhin_host import Retry, Turn, create_agent_session_host, current_action
from zhin_host.agents.langgraph import LangGraphAgent

ALWAYS: Any = {"publish": {"approval": "always"}}


def looking_and_publishing() -> ScriptedModel:
    calls = calling(("look", {"topic": "cats"}), ("publish", {"page": "a"}), text="Let me see.")
    return ScriptedModel(script=scripted(calls, echo_results))


# -- what is said --------------------------------------------------------------------------------------------------


async def test_the_text_of_a_model_is_said_word_by_word_before_its_action_has_ended(data_dir: Path) -> None:
    agent = LangGraphAgent(chat_graph(ScriptedModel(script=scripted(AIMessage("one two three")))))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        result = await handle.result()
        events = await rest(host, handle)
    kinds = [event["type"] for event in events]
    said = [row["messageDelta"] for row in of(events, "message.appended")]
    assert said == ["one ", "two ", "three "]
    assert kinds.index("message.appended") < kinds.index("action.result")
    assert result.text == "one two three "


async def test_a_models_reasoning_is_thought(data_dir: Path) -> None:
    answer = AIMessage([{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "Yes."}])
    agent = LangGraphAgent(chat_graph(ScriptedModel(script=scripted(answer))))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        result = await handle.result()
        events = await rest(host, handle)
    assert of(events, "reasoning.completed") == [{"reasoning": "Hm."}]
    assert result.text == "Yes. "


async def test_two_answers_of_one_turn_are_two_paragraphs(data_dir: Path) -> None:
    agent = LangGraphAgent(chat_graph(looking_and_publishing(), [look, publish]))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        result = await (await host.run("hello")).result()
    assert result.text == "Let me see. \n\nall about cats | https://pages.example/a "


async def test_usage_is_summed_over_the_models_of_a_turn(data_dir: Path) -> None:
    agent = LangGraphAgent(chat_graph(looking_and_publishing(), [look, publish]))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        result = await handle.result()
        [completed] = of(await rest(host, handle), "message.completed")
    assert result.usage == {"requests": 2, "input_tokens": 10, "output_tokens": 4, "total_tokens": 14}
    assert completed["finishReason"] == "stop"


async def test_a_model_inside_a_tool_is_counted_and_not_heard(data_dir: Path) -> None:
    inner = ScriptedModel(script=scripted(AIMessage("whispered")))

    @tool
    async def consult(question: str) -> str:
        """Ask another model."""
        return str((await inner.ainvoke(question)).text)

    model = ScriptedModel(script=scripted(calling(("consult", {"question": "?"})), AIMessage("done")))
    agent = LangGraphAgent(chat_graph(model, [consult]))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        result = await (await host.run("hello")).result()
    assert result.text == "done "
    assert result.usage is not None
    assert result.usage["requests"] == 3


async def test_a_message_that_a_node_makes_itself_is_said(data_dir: Path) -> None:
    agent = LangGraphAgent(one_node(lambda state: {"messages": [AIMessage("made")]}))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        first = await host.run("hello")
        assert (await first.result()).text == "made"
        second = await host.run("again", session_id=first.session_id)
        assert (await second.result()).text == "made"


async def test_only_speakers_and_models_without_the_tag_nostream_are_heard(data_dir: Path) -> None:
    def model(text: str) -> ScriptedModel:
        return ScriptedModel(script=lambda messages: AIMessage(text))

    async def classify(state: MessagesState) -> dict[str, Any]:
        await model("class").ainvoke(state["messages"])
        return {}

    async def answer(state: MessagesState) -> dict[str, Any]:
        await model("hidden").with_config(tags=["nostream"]).ainvoke(state["messages"])
        return {"messages": [await model("heard").ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_sequence([classify, answer])
    builder.add_edge(START, "classify")
    agent = LangGraphAgent(builder.compile(), speakers=["answer"])
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        assert (await (await host.run("hello")).result()).text == "heard "


async def test_a_plain_function_that_asks_its_model_in_a_thread_is_heard(data_dir: Path) -> None:
    model = ScriptedModel(messages=iter(["from a thread"]), script=scripted())

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    agent = LangGraphAgent(one_node(ask))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        assert (await handle.result()).text == "from a thread"
        assert len(of(await rest(host, handle), "message.appended")) > 1


async def test_a_graph_without_messages_says_what_answer_makes_of_its_state(data_dir: Path) -> None:
    class State(TypedDict, total=False):
        topic: str
        page: str

    graph = one_node(lambda state: {"page": f"<h1>{state['topic']}</h1>"}, State)
    agent = LangGraphAgent(
        graph, input=lambda turn: {"topic": turn.message}, answer=lambda state: str(state["page"])
    )
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        assert (await (await host.run("cats")).result()).text == "<h1>cats</h1>"


async def test_what_a_node_writes_to_the_stream_is_an_event_of_its_own_type(data_dir: Path) -> None:
    async def work(state: MessagesState) -> dict[str, Any]:
        get_stream_writer()({"done": 0.5})
        return {}

    async with create_agent_session_host(LangGraphAgent(one_node(work)), data_dir=data_dir) as host:
        handle = await host.run("hello")
        await handle.result()
        assert of(await rest(host, handle), "x.langgraph") == [{"data": {"done": 0.5}}]


async def test_the_context_is_made_of_the_turn(data_dir: Path) -> None:
    from langgraph.runtime import Runtime

    class Context(TypedDict):
        user: str

    async def greet(state: MessagesState, runtime: Runtime[Context]) -> dict[str, Any]:
        return {"messages": [AIMessage(f"Hello, {runtime.context['user']}.")]}

    builder = StateGraph(MessagesState, context_schema=Context)
    builder.add_node("greet", greet)
    builder.add_edge(START, "greet")
    agent = LangGraphAgent(builder.compile(), context=lambda turn: {"user": turn.metadata["user"]})
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello", metadata={"user": "Ada"})
        assert (await handle.result()).text == "Hello, Ada."


# -- tools ---------------------------------------------------------------------------------------------------------


async def test_tools_side_by_side_are_actions_of_their_own_names(data_dir: Path) -> None:
    agent = LangGraphAgent(chat_graph(looking_and_publishing(), [look, publish]))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        await handle.result()
        events = await rest(host, handle)
    asked = [(row["toolName"], row["input"]) for row in of(events, "actions.requested")]
    assert asked[1:3] == [("look", {"topic": "cats"}), ("publish", {"page": "a"})]
    outputs = {row["toolName"]: row["output"] for row in of(events, "action.result")}
    assert (outputs["look"], outputs["publish"]) == ("all about cats", "https://pages.example/a")


async def test_the_input_of_a_models_action_does_not_grow_with_the_history(data_dir: Path) -> None:
    agent = LangGraphAgent(chat_graph(ScriptedModel(script=scripted(AIMessage("yes")))))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        first = await host.run("hello")
        await first.result()
        second = await host.run("and?", session_id=first.session_id)
        await second.result()
        events = await rest(host, second)
    assert [row["input"] for row in of(events, "actions.requested")] == [
        {"step": 1, "messages": 1},
        {"step": 4, "messages": 3},
    ]


@pytest.mark.parametrize("is_first_yes", [True, False])
async def test_two_approvals_stand_side_by_side_and_each_call_goes_on_as_it_is_answered(
    data_dir: Path, *, is_first_yes: bool
) -> None:
    calls = calling(("publish", {"page": "a"}), ("publish", {"page": "b"}))
    agent = LangGraphAgent(
        chat_graph(ScriptedModel(script=scripted(calls, echo_results)), [publish]), rules=ALWAYS
    )
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        requests = {row["args"]["page"]: row for row in await requests_of(host, handle, 2)}
        assert {row["toolName"] for row in requests.values()} == {"publish"}
        assert all(row["argsDigest"].startswith("sha256:") for row in requests.values())
        await handle.answer(not is_first_yes, requests["b"]["requestId"])
        await handle.answer(is_first_yes, requests["a"]["requestId"])
        text = (await handle.result()).text
        events = await rest(host, handle)
    refused = "The user refused this call of publish; it did not run."
    urls = {True: "https://pages.example/{}", False: refused}
    assert text == f"{urls[is_first_yes].format('a')} | {urls[not is_first_yes].format('b')} "
    assert names(events).count("publish") == 1


async def test_a_model_is_told_that_nobody_answered_in_time(data_dir: Path) -> None:
    model = ScriptedModel(script=scripted(calling(("publish", {"page": "a"})), echo_results))
    rules: Any = {"publish": {"approval": "always", "expires_s": 0.01}}
    agent = LangGraphAgent(chat_graph(model, [publish]), rules=rules)
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        result = await (await host.run("hello")).result()
    assert result.text == "Nobody allowed this call of publish in time; it did not run. "


async def test_a_tool_that_fails_ends_the_turn_and_is_tried_again_by_resume(data_dir: Path) -> None:
    fails = [True]

    @tool
    async def fetch(page: str) -> str:
        """Fetch a page."""
        if fails:
            raise OSError("no line")
        return f"got {page}"

    model = ScriptedModel(script=scripted(calling(("fetch", {"page": "a"})), echo_results))
    async with create_agent_session_host(
        LangGraphAgent(chat_graph(model, [fetch])), data_dir=data_dir
    ) as host:
        handle = await host.run("hello")
        failed = await handle.result()
        assert (failed.outcome, failed.code) == ("failed", "ACTION_FAILED")
        assert "no line" in str(failed.error)
        fails.clear()
        again = await host.resume(handle.session_id)
        assert (await again.result()).text == "got a "
        assert names(await rest(host, again)) == ["model", "fetch", "model"]


async def test_a_tool_that_its_node_makes_an_answer_of_is_a_failed_action_and_the_model_is_told(
    data_dir: Path,
) -> None:
    @tool
    async def fetch(number: int) -> str:
        """Fetch a page."""
        return f"page {number}"

    model = ScriptedModel(script=scripted(calling(("fetch", {"number": "many"})), echo_results))
    async with create_agent_session_host(
        LangGraphAgent(chat_graph(model, [fetch])), data_dir=data_dir
    ) as host:
        handle = await host.run("hello")
        text = (await handle.result()).text
        events = await rest(host, handle)
    assert "number" in text
    assert names(events, "failed") == ["fetch"]


async def test_a_tool_that_the_model_made_up_is_told_to_the_model_and_is_no_action(data_dir: Path) -> None:
    model = ScriptedModel(script=scripted(calling(("fly", {})), echo_results))
    async with create_agent_session_host(
        LangGraphAgent(chat_graph(model, [look])), data_dir=data_dir
    ) as host:
        handle = await host.run("hello")
        assert "fly is not a valid tool" in (await handle.result()).text
        assert names(await rest(host, handle)) == ["model", "model"]


async def test_tools_know_their_action_in_a_task_and_in_a_thread(data_dir: Path) -> None:
    keys: list[str] = []

    @tool
    async def one() -> str:
        """A coroutine."""
        keys.append(current_action().idempotency_key)
        return "1"

    @tool
    def two() -> str:
        """A plain function."""
        keys.append(current_action().idempotency_key)
        return "2"

    model = ScriptedModel(script=scripted(calling(("one", {}), ("two", {})), echo_results))
    async with create_agent_session_host(
        LangGraphAgent(chat_graph(model, [one, two])), data_dir=data_dir
    ) as host:
        handle = await host.run("hello")
        await handle.result()
    assert len(set(keys)) == 2
    assert all(handle.session_id in key for key in keys)


def test_a_rule_of_a_tool_that_the_graph_has_not_is_refused() -> None:
    graph = chat_graph(looking_and_publishing(), [look])
    with pytest.raises(ValueError, match="no ToolNode of the graph has a tool 'publish'; it has: look"):
        LangGraphAgent(graph, rules=ALWAYS)


def test_its_tools_are_known_before_it_runs() -> None:
    agent = LangGraphAgent(chat_graph(looking_and_publishing(), [look, publish]), rules=ALWAYS)
    assert [(row.name, row.approval, row.description) for row in agent.tools] == [
        ("look", "never", "Look something up."),
        ("publish", "always", "Publish a page."),
    ]
    assert agent.tools[1].schema["properties"]["page"]["type"] == "string"


def test_a_graph_that_is_not_compiled_is_refused() -> None:
    with pytest.raises(TypeError, match="StateGraph is no compiled graph"):
        LangGraphAgent(StateGraph(MessagesState))  # type: ignore[arg-type]


def test_a_tool_node_that_is_wrapped_without_await_is_refused_with_what_to_do() -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([look], wrap_tool_call=lambda request, execute: execute(request)))
    builder.add_edge(START, "tools")
    with pytest.raises(TypeError, match="give it awrap_tool_call"):
        LangGraphAgent(builder.compile())


def test_a_graph_without_messages_needs_to_be_told_its_input() -> None:
    class State(TypedDict):
        topic: str

    with pytest.raises(ValueError, match="say with input="):
        LangGraphAgent(one_node(lambda state: {}, State))


# -- questions and approvals of the graph --------------------------------------------------------------------------


async def answered(host: Any, handle: Any, *values: Any) -> Any:
    """Answer the only request, one after another, then give the turn's result."""
    for value in values:
        async for _ in host.stream(handle.session_id):
            pass
        await handle.answer(value)
    return await handle.result()


async def test_an_interrupt_is_a_question_and_its_answer_goes_on(data_dir: Path) -> None:
    async def ask(state: MessagesState) -> dict[str, Any]:
        name = interrupt("Who are you?")
        colour = interrupt({"question": "Which one?", "options": ["red", "blue"], "of": "paint"})
        return {"messages": [AIMessage(f"{name} likes {colour}.")]}

    async with create_agent_session_host(LangGraphAgent(one_node(ask)), data_dir=data_dir) as host:
        handle = await host.run("hello")
        result = await answered(host, handle, "Ada", "blue")
        events = await rest(host, handle)
    assert result.text == "Ada likes blue."
    asked = [(row["kind"], row["prompt"], row.get("options")) for row in of(events, "input.requested")]
    assert asked == [
        ("question", "Who are you?", None),
        ("question", 'Which one?\n{"of": "paint"}', ["red", "blue"]),
    ]


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_an_interrupt_that_shows_an_action_and_its_arguments_is_an_approval(
    data_dir: Path, *, is_allowed: bool
) -> None:
    async def ask(state: MessagesState) -> dict[str, Any]:
        allowed = interrupt({"action": "send", "args": {"to": "Ada"}, "message": "Send it?"})
        return {"messages": [AIMessage(f"{allowed}")]}

    async with create_agent_session_host(LangGraphAgent(one_node(ask)), data_dir=data_dir) as host:
        handle = await host.run("hello")
        result = await answered(host, handle, is_allowed)
        [asked] = of(await rest(host, handle), "input.requested")
    assert result.text == f"{is_allowed}"
    assert (asked["kind"], asked["prompt"]) == ("approval", "Send it?")
    assert asked["args"] == {"tool": "send", "args": {"to": "Ada"}}


async def test_interrupts_of_nodes_side_by_side_are_asked_together_and_go_on_by_their_ids(
    data_dir: Path,
) -> None:
    class State(TypedDict):
        messages: Annotated[list[BaseMessage], lambda old, new: [*old, *new]]

    def asking(question: str) -> Any:
        async def ask(state: State) -> dict[str, Any]:
            return {"messages": [AIMessage(f"{question}={interrupt(question)} ")]}

        return ask

    builder = StateGraph(State)
    for name in ("a", "b"):
        builder.add_node(name, asking(name))
        builder.add_edge(START, name)
    async with create_agent_session_host(LangGraphAgent(builder.compile()), data_dir=data_dir) as host:
        handle = await host.run("hello")
        requests = {row["prompt"]: row["requestId"] for row in await requests_of(host, handle, 2)}
        await handle.answer(2, requests["b"])
        await handle.answer(1, requests["a"])
        said = (await handle.result()).text
    assert sorted(said.split()) == ["a=1", "b=2"]


async def test_a_tool_may_ask_and_runs_on_with_the_answer_beside_one_that_ran_once(data_dir: Path) -> None:
    runs: list[str] = []

    @tool
    async def consult(question: str) -> str:
        """Ask the user."""
        return f"{interrupt(question)}!"

    @tool
    async def count() -> str:
        """Count the runs."""
        runs.append("count")
        return f"{len(runs)}"

    calls = calling(("consult", {"question": "one?"}), ("count", {}), ("consult", {"question": "two?"}))
    model = ScriptedModel(script=scripted(calls, echo_results))
    agent = LangGraphAgent(chat_graph(model, [consult, count]))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        result = await answered(host, handle, "first", "second")
    assert result.text == "first! | 1 | second! "
    assert runs == ["count"]


async def test_calls_of_two_rounds_with_the_same_id_are_two(data_dir: Path) -> None:
    @tool
    async def consult(question: str) -> str:
        """Ask the user."""
        return f"{question}{interrupt(question)}"

    model = ScriptedModel(
        script=scripted(
            calling(("look", {"topic": "cats"})),
            calling(("consult", {"question": "a"})),
            calling(("consult", {"question": "b"})),
            echo_results,
        )
    )
    agent = LangGraphAgent(chat_graph(model, [consult, look]))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        result = await answered(host, await host.run("hello"), "1", "2")
    assert result.text == "all about cats | a1 | b2 "


async def test_a_tool_that_asks_passes_its_gate_once(data_dir: Path) -> None:
    @tool("publish")
    async def asking(page: str) -> str:
        """Publish a page, in a colour."""
        return f"{page} in {interrupt('Which colour?')}"

    model = ScriptedModel(script=scripted(calling(("publish", {"page": "a"})), echo_results))
    agent = LangGraphAgent(chat_graph(model, [asking]), rules=ALWAYS)
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        result = await answered(host, handle, True, "blue")
        asked = [row["kind"] for row in of(await rest(host, handle), "input.requested")]
    assert result.text == "a in blue "
    assert asked == ["approval", "question"]


@pytest.mark.parametrize("answer", [None, False, 0, "", [], {}, {"a": [1]}])
async def test_any_json_may_be_the_answer(data_dir: Path, answer: Any) -> None:
    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{interrupt('What?')!r}")]}

    async with create_agent_session_host(LangGraphAgent(one_node(ask)), data_dir=data_dir) as host:
        handle = await host.run("hello")
        assert (await answered(host, handle, answer)).text == repr(answer)


async def test_a_question_that_nobody_answers_in_time_fails_the_turn_and_is_asked_again_by_resume(
    data_dir: Path,
) -> None:
    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{interrupt('What?')}")]}

    agent = LangGraphAgent(one_node(ask))
    async with create_agent_session_host(agent, data_dir=data_dir, request_expires_s=0.01) as host:
        handle = await host.run("hello")
        assert (await handle.result()).code == "REQUEST_EXPIRED"
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        again = await host.resume(handle.session_id)
        await requests_of(host, again, 1)
        await again.answer("this")
        assert (await again.result()).text == "this"


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_a_breakpoint_asks_whether_to_go_on(data_dir: Path, *, is_allowed: bool) -> None:
    model = ScriptedModel(script=scripted(calling(("look", {"topic": "cats"})), echo_results))
    agent = LangGraphAgent(chat_graph(model, [look], interrupt_before=["tools"]))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        result = await answered(host, handle, is_allowed)
        events = await rest(host, handle)
    assert result.text == ("all about cats " if is_allowed else "")
    assert len(of(events, "checkpoint.saved")) == is_allowed
    assert of(events, "input.requested")[0]["prompt"] == "Go on with tools?"


# -- shapes of graphs ----------------------------------------------------------------------------------------------


async def test_the_nodes_of_a_graph_inside_a_graph_are_actions_and_may_ask(data_dir: Path) -> None:
    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"It is {interrupt('What?')}.")]}

    inner = chat_graph(ScriptedModel(script=scripted(AIMessage("inside"))))
    builder = StateGraph(MessagesState)
    builder.add_node("talk", inner)
    builder.add_node("ask", one_node(ask))
    builder.add_edge(START, "talk")
    builder.add_edge("talk", "ask")
    builder.add_edge("ask", END)
    async with create_agent_session_host(LangGraphAgent(builder.compile()), data_dir=data_dir) as host:
        handle = await host.run("hello")
        result = await answered(host, handle, "good")
        events = await rest(host, handle)
    assert result.text == "inside \n\nIt is good."
    assert names(events) == ["talk/model", "ask/node", "ask/node"]


async def test_nodes_that_are_sent_to_run_side_by_side(data_dir: Path) -> None:
    class State(TypedDict):
        done: Annotated[list[str], lambda old, new: [*old, *new]]

    async def work(given: Any) -> Any:
        return {"done": [f"{given['n']}"]}

    builder: Any = StateGraph(State)
    builder.add_node("work", work)
    builder.add_conditional_edges(START, lambda state: [Send("work", {"n": n}) for n in range(3)], ["work"])
    agent = LangGraphAgent(
        builder.compile(), input=lambda turn: {"done": []}, answer=lambda state: " ".join(state["done"])
    )
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        assert (await handle.result()).text == "0 1 2"
        inputs = [row["input"] for row in of(await rest(host, handle), "actions.requested")]
    assert inputs == [{"step": 1, "send": 0}, {"step": 1, "send": 1}, {"step": 1, "send": 2}]


async def test_a_node_may_go_to_another_with_a_command(data_dir: Path) -> None:
    async def first(state: MessagesState) -> Command[Any]:
        return Command(update={"messages": [AIMessage("one")]}, goto="last")

    async def last(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("two")]}

    builder = StateGraph(MessagesState)
    builder.add_node("first", first, destinations=("last",))
    builder.add_node("last", last)
    builder.add_edge(START, "first")
    async with create_agent_session_host(LangGraphAgent(builder.compile()), data_dir=data_dir) as host:
        assert (await (await host.run("hello")).result()).text == "one\n\ntwo"


async def test_an_entrypoint_is_one_action_and_remembers_what_it_returned(data_dir: Path) -> None:
    @entrypoint(checkpointer=InMemorySaver())
    async def counting(message: str, *, previous: int | None = None) -> int:
        return (previous or 0) + len(message)

    agent = LangGraphAgent(counting, input=lambda turn: turn.message, answer=str)
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        first = await host.run("abc")
        assert (await first.result()).text == "3"
        second = await host.run("de", session_id=first.session_id)
        assert (await second.result()).text == "5"
        assert names(await rest(host, second)) == ["counting", "counting"]


async def test_a_nodes_retry_policy_is_kept_and_each_further_try_is_in_the_log(data_dir: Path) -> None:
    tries: list[int] = []

    async def shaky(state: MessagesState) -> dict[str, Any]:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("no line")
        return {"messages": [AIMessage("there")]}

    builder = StateGraph(MessagesState)
    builder.add_node("shaky", shaky, retry_policy=RetryPolicy(initial_interval=0.001))
    builder.add_edge(START, "shaky")
    async with create_agent_session_host(LangGraphAgent(builder.compile()), data_dir=data_dir) as host:
        handle = await host.run("hello")
        assert (await handle.result()).text == "there"
        events = await rest(host, handle)
    assert [row["error"]["type"] for row in of(events, "action.retrying")] == ["ConnectionError"] * 2
    assert names(events) == ["shaky"]


async def test_a_nodes_retry_policy_judges_what_is_worth_another_try(data_dir: Path) -> None:
    def wrong(state: MessagesState) -> dict[str, Any]:
        raise ValueError("wrong")

    policy = RetryPolicy(initial_interval=0.001)
    builder = StateGraph(MessagesState)
    builder.add_node("wrong", wrong, retry_policy=policy)
    builder.add_edge(START, "wrong")
    async with create_agent_session_host(LangGraphAgent(builder.compile()), data_dir=data_dir) as host:
        handle = await host.run("hello")
        assert (await handle.result()).code == "ACTION_FAILED"
        assert of(await rest(host, handle), "action.retrying") == []


async def test_a_node_without_a_policy_is_tried_again_as_the_agent_says(data_dir: Path) -> None:
    tries: list[int] = []

    async def shaky(state: MessagesState) -> dict[str, Any]:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("no line")
        return {"messages": [AIMessage("there")]}

    agent = LangGraphAgent(one_node(shaky), retry=Retry(delay_s=0.001))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        assert (await (await host.run("hello")).result()).text == "there"


@pytest.mark.parametrize("is_in_a_thread", [False, True])
async def test_what_a_failed_try_has_said_does_not_count(data_dir: Path, *, is_in_a_thread: bool) -> None:
    tries: list[int] = []

    async def before(word: str) -> None:
        if word == "three":
            tries.append(1)
            if len(tries) == 1:
                raise ConnectionError("the stream broke")

    model = ScriptedModel(script=scripted(AIMessage("one two three")), before=before)

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [asyncio.run(model.ainvoke(state["messages"]))]}

    graph = one_node(ask) if is_in_a_thread else chat_graph(model)
    agent = LangGraphAgent(graph, retry=Retry(delay_s=0.001, on=(ConnectionError,)))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        assert (await handle.result()).text == "one two three "
        events = await rest(host, handle)
    assert [row["messageDelta"] for row in of(events, "message.appended")].count("one ") == 2
    assert len(of(events, "action.retrying")) == 1


async def test_a_node_that_takes_longer_than_it_may_fails_the_turn(data_dir: Path) -> None:
    async def wait(state: MessagesState) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    builder = StateGraph(MessagesState)
    builder.add_node("wait", wait, timeout=0.05)
    builder.add_edge(START, "wait")
    async with create_agent_session_host(LangGraphAgent(builder.compile()), data_dir=data_dir) as host:
        handle = await host.run("hello")
        result = await handle.result()
        assert "NodeTimeoutError" in str(result.error)
        assert names(await rest(host, handle), "cancelled") == ["wait"]


@pytest.mark.parametrize("is_tool", [True, False])
async def test_a_result_that_fits_no_line_fails_the_turn_by_its_name(
    data_dir: Path, *, is_tool: bool
) -> None:
    @tool
    async def load() -> str:
        """Load a lot."""
        return "x" * 2_000_000

    model = ScriptedModel(script=scripted(calling(("load", {})), echo_results))
    large = one_node(lambda state: {"messages": [HumanMessage("x" * 2_000_000)]})
    agent = LangGraphAgent(chat_graph(model, [load]) if is_tool else large)
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        assert (await handle.result()).code == "ACTION_FAILED"
        codes = [row.get("error", {}).get("code") for row in of(await rest(host, handle), "action.result")]
        assert codes[-1] == "RESULT_TOO_LARGE"


async def test_two_sessions_of_one_agent_do_not_hear_each_other(data_dir: Path) -> None:
    agent = LangGraphAgent(chat_graph(ScriptedModel(script=history_echo)))
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handles = [await host.run(f"message {number}") for number in range(8)]
        texts = [(await handle.result()).text for handle in handles]
    assert texts == [f"message {number} " for number in range(8)]


# -- state ---------------------------------------------------------------------------------------------------------


def history_echo(messages: Any) -> AIMessage:
    return AIMessage(" ".join(str(row.text) for row in messages if isinstance(row, HumanMessage)))


@pytest.mark.parametrize("has_saver", [False, True])
async def test_the_next_turn_knows_the_one_before_and_not_one_that_was_cancelled(
    data_dir: Path, *, has_saver: bool
) -> None:
    def answer(messages: Any) -> AIMessage:
        if messages[-1].text == "call":
            return calling(("publish", {"page": "a"}))
        return history_echo(messages)

    saver = {"checkpointer": InMemorySaver()} if has_saver else {}
    agent = LangGraphAgent(chat_graph(ScriptedModel(script=answer), [publish], **saver), rules=ALWAYS)
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        first = await host.run("one")
        await first.result()
        second = await host.run("call", session_id=first.session_id)
        await rest(host, second)
        await second.cancel()
        assert (await second.result()).outcome == "cancelled"
        third = await host.run("three", session_id=first.session_id)
        assert (await third.result()).text == "one three "
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        fourth = await host.run("four", session_id=first.session_id)
        assert (await fourth.result()).text == "one three four "


async def test_the_oldest_exchanges_go_when_the_state_is_longer_than_it_may_be(data_dir: Path) -> None:
    model = ScriptedModel(script=history_echo)
    agent = LangGraphAgent(chat_graph(model), state_bytes_max=4_000)
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("0" * 300)
        said = [(await handle.result()).text]
        for digit in "12345678":
            handle = await host.run(digit * 300, session_id=handle.session_id)
            said.append((await handle.result()).text)
        states = of(await rest(host, handle), "checkpoint.saved")
    assert "0" in said[1]
    assert "0" not in said[-1]
    assert "7" in said[-1]
    assert all(len(str(row)) < 5_000 for row in states)


async def test_a_state_that_cannot_be_shortened_fails_the_turn_and_says_what_to_do(data_dir: Path) -> None:
    agent = LangGraphAgent(
        one_node(lambda state: {"messages": [AIMessage("x" * 3_000)]}), state_bytes_max=2_000
    )
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        result = await (await host.run("hello")).result()
    assert result.code == "AGENT_FAILED"
    assert "a checkpointer of its own" in str(result.error)


async def test_a_graph_inside_that_has_a_memory_of_its_own_keeps_it(data_dir: Path) -> None:
    class Inner(TypedDict, total=False):
        messages: list[Any]
        count: int

    async def count(state: Inner) -> Any:
        number = state.get("count", 0) + 1
        return {"count": number, "messages": [AIMessage(f"{number}", id=f"count-{number}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("count", one_node(count, Inner, checkpointer=True))
    builder.add_edge(START, "count")
    async with create_agent_session_host(LangGraphAgent(builder.compile()), data_dir=data_dir) as host:
        first = await host.run("hello")
        assert (await first.result()).text == "1"
        second = await host.run("hello", session_id=first.session_id)
        assert (await second.result()).text == "2"


# -- the end -------------------------------------------------------------------------------------------------------


async def test_a_cancelled_turn_stops_the_model_in_mid_stream(data_dir: Path) -> None:
    closed = asyncio.Event()

    async def before(word: str) -> None:
        if word == "two":
            try:
                await asyncio.Event().wait()
            finally:
                closed.set()

    model = ScriptedModel(script=scripted(AIMessage("one two three")), before=before)
    async with create_agent_session_host(LangGraphAgent(chat_graph(model)), data_dir=data_dir) as host:
        handle = await host.run("hello")
        async for event in host.stream(handle.session_id, until="never"):
            if event["type"] == "message.appended":
                await handle.cancel()
                break
        assert (await handle.result()).outcome == "cancelled"
        assert closed.is_set()
        others = {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}
        assert not [name for name in others if "model" in name or "tool" in name]


async def test_a_cancelled_turn_leaves_no_tool_behind(data_dir: Path) -> None:
    begun, closed = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()
        return ""

    model = ScriptedModel(script=scripted(calling(("wait", {}))))
    async with create_agent_session_host(
        LangGraphAgent(chat_graph(model, [wait])), data_dir=data_dir
    ) as host:
        handle = await host.run("hello")
        await begun.wait()
        await handle.cancel()
        assert (await handle.result()).outcome == "cancelled"
    assert closed.is_set()


async def test_the_turn_is_handed_to_input(data_dir: Path) -> None:
    def given(turn: Turn) -> dict[str, Any]:
        return {"messages": [HumanMessage(f"{turn.message}, says {turn.metadata['user']}")]}

    agent = LangGraphAgent(chat_graph(ScriptedModel(script=history_echo)), input=given)
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("hello", metadata={"user": "Ada"})
        assert (await handle.result()).text == "hello, says Ada "
