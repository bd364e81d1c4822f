"""LangGraphAgent over restarts of the host: what was done is not done again, whatever the graph was waiting for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from tests.agents.langgraph_graphs import chat_graph, look, names, of, one_node, publish, requests_of, rest
from tests.agents.langgraph_model import ScriptedModel, calling, echo_results, scripted
from zhin_host import Turn, create_agent_session_host
from zhin_host.agents.langgraph import LangGraphAgent

ALWAYS: Any = {"publish": {"approval": "always"}}


class Restarted:
    """A session whose host is stopped and started again each time it waits for somebody.

    Args:
        agent: Hosted each time.
        data_dir: The sessions.

    Attributes:
        events: All of them, once the turn has ended.
    """

    def __init__(self, agent: LangGraphAgent, data_dir: Path) -> None:
        self._agent = agent
        self._data_dir = data_dir
        self.events: list[dict[str, Any]] = []

    async def turn(self, message: str, *answers: Any, session_id: str | None = None) -> Any:
        """The result of a turn, each request answered by a host that did not ask it.

        Args:
            message: The turn's.
            answers: One for each time that it waits; a tuple where so many requests are open.
            session_id: The session to go on with.
        """
        answered, result = set[str](), None
        rounds = [answer if isinstance(answer, tuple) else (answer,) for answer in answers]
        async with self._host() as host:
            handle = await host.run(message, session_id=session_id)
            await requests_of(host, handle, len(rounds[0]))
        for given, following in zip(rounds, [*rounds[1:], None], strict=True):
            async with self._host() as host:
                handle = await host.resume(handle.session_id)
                for request, one in zip(await handle.requests(), given, strict=True):
                    answered.add(request["requestId"])
                    await handle.answer(one, request["requestId"])
                if following is not None:
                    await requests_of(host, handle, len(following), answered)
                    continue
                result = await handle.result()
                self.events = await rest(host, handle)
        return result

    def _host(self) -> Any:
        return create_agent_session_host(self._agent, data_dir=self._data_dir)


@pytest.mark.parametrize("has_saver", [False, True])
async def test_an_approved_tool_runs_once_and_no_model_is_asked_again(
    data_dir: Path, tmp_path: Path, *, has_saver: bool
) -> None:
    calls = calling(("look", {"topic": "cats"}), ("publish", {"page": "a"}), text="Let me see.")
    model = ScriptedModel(script=scripted(calls, echo_results), asked=tmp_path / "asked")
    saver = {"checkpointer": InMemorySaver()} if has_saver else {}
    session = Restarted(LangGraphAgent(chat_graph(model, [look, publish], **saver), rules=ALWAYS), data_dir)
    result = await session.turn("hello", True)
    assert result.text == "Let me see. \n\nall about cats | https://pages.example/a "
    assert sorted(names(session.events)) == ["look", "model", "model", "publish"]
    assert (tmp_path / "asked").read_text() == "asked\n" * 2
    assert result.usage["requests"] == 2
    again = await session.turn("again", True, session_id=session.events[0]["data"]["sessionId"])
    assert again.text == result.text


async def test_two_approvals_that_are_answered_after_a_restart_are_each_of_their_call(data_dir: Path) -> None:
    calls = calling(("publish", {"page": "a"}), ("publish", {"page": "b"}))
    model = ScriptedModel(script=scripted(calls, echo_results))
    session = Restarted(LangGraphAgent(chat_graph(model, [publish]), rules=ALWAYS), data_dir)
    result = await session.turn("hello", (False, True))
    refused = "The user refused this call of publish; it did not run."
    assert result.text == f"{refused} | https://pages.example/b "


async def test_a_node_that_asks_twice_has_each_answer_once(data_dir: Path) -> None:
    async def ask(state: MessagesState) -> dict[str, Any]:
        first = interrupt("First?")
        second = interrupt("Second?")
        third = interrupt("Third?")
        return {"messages": [AIMessage(f"{first}, {second}, {third}")]}

    session = Restarted(LangGraphAgent(one_node(ask)), data_dir)
    assert (await session.turn("hello", "1", "2", "3")).text == "1, 2, 3"
    assert [row["prompt"] for row in of(session.events, "input.requested")] == ["First?", "Second?", "Third?"]


async def test_a_node_deep_in_graphs_that_asks_twice_has_each_answer_once(data_dir: Path) -> None:
    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{interrupt('First?')}, {interrupt('Second?')}")]}

    graph = one_node(ask)
    for name in ("inner", "outer"):
        builder = StateGraph(MessagesState)
        builder.add_node(name, graph)
        builder.add_edge(START, name)
        builder.add_edge(name, END)
        graph = builder.compile()
    session = Restarted(LangGraphAgent(graph), data_dir)
    assert (await session.turn("hello", "1", "2")).text == "1, 2"


async def test_a_graph_that_a_node_calls_itself_may_ask(data_dir: Path) -> None:
    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"It is {interrupt('What?')}.")]}

    inner = one_node(ask)

    async def call(state: MessagesState) -> Any:
        return {"messages": (await inner.ainvoke(state))["messages"][-1:]}

    session = Restarted(LangGraphAgent(one_node(call)), data_dir)
    assert (await session.turn("hello", "good")).text == "It is good."
    assert len(of(session.events, "input.requested")) == 1


async def test_nodes_side_by_side_that_ask_twice_have_each_answer_once(data_dir: Path) -> None:
    def asking(name: str) -> Any:
        async def ask(state: MessagesState) -> dict[str, Any]:
            answers = [interrupt(f"{name}1"), interrupt(f"{name}2")]
            return {"messages": [AIMessage(f"{name}{answers} ")]}

        return ask

    builder = StateGraph(MessagesState)
    for name in ("a", "b"):
        builder.add_node(name, asking(name))
        builder.add_edge(START, name)
    session = Restarted(LangGraphAgent(builder.compile()), data_dir)
    result = await session.turn("hello", ("w", "x"), ("y", "z"))
    assert "a['w', 'y']" in result.text
    assert "b['x', 'z']" in result.text


async def test_tools_of_one_node_that_ask_have_each_answer_once_and_the_one_beside_them_runs_once(
    data_dir: Path,
) -> None:
    runs: list[str] = []

    @tool
    async def consult(question: str) -> str:
        """Ask the user twice."""
        return f"{question} {interrupt(question)} {interrupt('sure?')}"

    @tool
    async def count() -> str:
        """Count the runs."""
        runs.append("count")
        return f"{len(runs)}"

    calls = calling(("consult", {"question": "a"}), ("count", {}), ("consult", {"question": "b"}))
    model = ScriptedModel(script=scripted(calls, echo_results))
    session = Restarted(LangGraphAgent(chat_graph(model, [consult, count])), data_dir)
    result = await session.turn("hello", "1", "2", "3", "4")
    assert result.text == "a 1 2 | 1 | b 3 4 "
    assert runs == ["count"]


async def test_a_breakpoint_is_passed_once(data_dir: Path) -> None:
    model = ScriptedModel(script=scripted(calling(("look", {"topic": "cats"})), echo_results))
    session = Restarted(LangGraphAgent(chat_graph(model, [look], interrupt_before=["tools"])), data_dir)
    assert (await session.turn("hello", True)).text == "all about cats "
    assert names(session.events) == ["model", "look", "model"]


async def test_a_graph_that_was_changed_meanwhile_is_told_from_the_one_that_began(data_dir: Path) -> None:
    async with create_agent_session_host(
        LangGraphAgent(one_node(lambda state: {"messages": [AIMessage(str(interrupt("What?")))]})),
        data_dir=data_dir,
    ) as host:
        handle = await host.run("hello")
        await requests_of(host, handle, 1)
    model = ScriptedModel(script=scripted(AIMessage("other")))
    async with create_agent_session_host(LangGraphAgent(chat_graph(model)), data_dir=data_dir) as host:
        handle = await host.resume(handle.session_id)
        await handle.answer("this")
        assert (await handle.result()).code == "TURN_DIVERGED"


async def test_a_stop_in_the_middle_of_an_answer_has_it_said_anew_and_whole(data_dir: Path) -> None:
    is_first = [True]

    async def before(word: str) -> None:
        if word == "three" and is_first:
            is_first.clear()
            await asyncio.Event().wait()

    agent = LangGraphAgent(
        chat_graph(ScriptedModel(script=scripted(AIMessage("one two three")), before=before))
    )
    async with create_agent_session_host(agent, data_dir=data_dir, stop_grace_s=0.1) as host:
        handle = await host.run("hello")
        said = 0
        async for event in host.stream(handle.session_id, until="never"):
            said += event["type"] == "message.appended"
            if said == 2:
                break
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.resume(handle.session_id)
        assert (await handle.result()).text == "one two three "


async def test_a_graph_that_has_ended_does_not_run_again_for_the_end_of_its_turn(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    saved = asyncio.Event()
    checkpoint = Turn.checkpoint

    async def and_wait(turn: Turn, state: Any) -> None:
        await checkpoint(turn, state)
        saved.set()
        await asyncio.Event().wait()

    model = ScriptedModel(script=scripted(AIMessage("once")), asked=tmp_path / "asked")
    agent = LangGraphAgent(chat_graph(model))
    with monkeypatch.context() as patched:
        patched.setattr(Turn, "checkpoint", and_wait)
        async with create_agent_session_host(agent, data_dir=data_dir, stop_grace_s=0.1) as host:
            handle = await host.run("hello")
            await saved.wait()
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.resume(handle.session_id)
        result = await handle.result()
    assert (result.text, (tmp_path / "asked").read_text()) == ("once ", "asked\n")
    assert result.usage == {"requests": 1, "input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
