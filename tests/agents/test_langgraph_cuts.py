"""A graph's turn that is cut down behind any event goes on: nothing is paid for, done or asked twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

from tests.agents.langgraph_graphs import chat_graph, of
from tests.agents.langgraph_model import ScriptedModel, calling, echo_results, scripted
from tests.conftest import check_directory
from tests.redrive.drive import NOBODY, counted_text, events_of, leave_as_killed
from zhin_host import AgentSessionHost, create_agent_session_host
from zhin_host.agents.langgraph import LangGraphAgent

RAN: Counter[str] = Counter()


@tool
async def publish(page: str) -> str:
    """Publish a page."""
    RAN[f"publish {page}"] += 1
    return f"published {page}"


@tool
def look(topic: str) -> str:
    """Look something up."""
    RAN["look"] += 1
    return f"all about {topic}"


@tool
async def consult(question: str) -> str:
    """Ask the user twice."""
    return f"{question} {interrupt(question)} {interrupt('Sure?')}"


def counted(script: Any) -> Any:
    def answer(messages: Sequence[BaseMessage]) -> AIMessage:
        RAN["model"] += 1
        given: AIMessage = script(messages)
        return given

    return answer


def agent_of(saver: InMemorySaver | None) -> LangGraphAgent:
    """Looks and publishes twice side by side, then asks beside one more publication, then tells all."""
    first = calling(
        ("look", {"topic": "cats"}), ("publish", {"page": "a"}), ("publish", {"page": "b"}), text="Hm."
    )
    second = calling(("consult", {"question": "Well?"}), ("publish", {"page": "c"}), round_=1)
    model = ScriptedModel(script=counted(scripted(first, second, echo_results)))
    graph = chat_graph(model, [look, publish, consult], checkpointer=saver)
    return LangGraphAgent(graph, rules={"publish": {"approval": "always"}})


async def until_rest(host: AgentSessionHost, session_id: str) -> None:
    """Answer whatever is asked until the turn has ended."""
    async for event in host.stream(session_id, until="never"):
        if event["type"] == "input.requested":
            view = await host.store.view(NOBODY, session_id)
            if event["data"]["requestId"] in view["pendingRequestIds"]:
                is_question = event["data"]["kind"] == "question"
                answer: dict[str, Any] = (
                    {"response": f"to {event['data']['prompt']}"} if is_question else {"approved": True}
                )
                await host.store.answer(NOBODY, session_id, event["data"]["requestId"], answer, None)
        if event["type"] == "session.waiting" and not event["data"]["parked"]:
            return


@pytest.mark.timeout(240)  # some fifty hosts
@pytest.mark.parametrize("has_saver", [False, True])
async def test_a_turn_cut_down_behind_any_event_ends_as_an_undisturbed_one(
    tmp_path: Path, *, has_saver: bool
) -> None:
    whole = tmp_path / "whole"
    agent = agent_of(InMemorySaver() if has_saver else None)
    RAN.clear()
    async with create_agent_session_host(agent, data_dir=whole, fsync="never") as host:
        session_id = (await host.run("go")).session_id
        await until_rest(host, session_id)
    ran, events = RAN.copy(), events_of(whole, session_id)
    assert ran == {"model": 3, "look": 1, "publish a": 1, "publish b": 1, "publish c": 1}
    said = counted_text(events)
    assert said.endswith("Well? to Well? to Sure? | published c ")
    [usage] = [row["usage"] for row in of(events, "message.completed")]
    lines = (whole / f"{session_id}.ndjson").read_bytes().splitlines(keepends=True)
    for cut in range(4, len(events) + 1):  # the first of them behind message.received
        directory = tmp_path / f"cut-{cut}"
        leave_as_killed(directory, session_id, b"".join(lines[:cut]))
        RAN.clear()
        async with create_agent_session_host(agent, data_dir=directory, fsync="never") as host:
            await until_rest(host, session_id)
        where = f"cut behind event {cut - 1}, {events[cut - 1]['type']}"
        after = events_of(directory, session_id)
        assert after[-1]["data"]["reason"] == "idle", where
        assert counted_text(after) == said, where
        assert of(after, "message.completed")[-1]["usage"] == usage, where
        assert ran - done_before(events[:cut]) == RAN, where
        assert len(of(after, "input.requested")) == len(of(events, "input.requested")), where
        check_directory(directory, is_refereed=cut % 4 == 0)
    check_directory(whole)


def done_before(events: list[dict[str, Any]]) -> Counter[str]:
    """What has a result in these events and must not run again."""
    inputs = {row["callId"]: row["input"] for row in of(events, "actions.requested")}
    done = Counter[str]()
    for row in of(events, "action.result"):
        if row["toolName"] == "publish":
            done[f"publish {inputs[row['callId']]['page']}"] += 1
        elif row["toolName"] != "consult":
            done[row["toolName"]] += 1
    return done
