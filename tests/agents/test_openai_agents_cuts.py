"""Logs of OpenAIAgent, cut after each event: the turn ends as it would have, and nothing recorded is done again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, function_tool

from tests.agents.openai_model import Call, ScriptedModel, Think, outputs, say
from tests.redrive.drive import NOBODY, counted_text, events_of, faults_below, leave_as_killed, until_rest
from zhin_host import create_agent_session_host
from zhin_host.agents.openai_agents import OpenAIAgent, ask_person

RAN: list[str] = []
"""The calls of tools, in order."""


@function_tool
async def look_up(topic: str) -> str:
    RAN.append(f"look_up {topic}")
    return f"all about {topic}"


@function_tool
async def divide(by: int) -> str:
    RAN.append(f"divide {by}")
    return str(1 // by)


@function_tool(needs_approval=True)
async def publish(page: str) -> str:
    RAN.append(f"publish {page}")
    return f"https://pages.example/{page}"


def _one(items: list[Any]) -> list[Any]:
    match len(outputs(items)):
        case 0:
            return [
                Think(("Hm, ", "well.")),
                say("I work."),
                Call("look_up", {"topic": "x"}),
                Call("look_up", {"topic": "x"}),
                Call("divide", {"by": 0}),
            ]
        case 3:
            return [
                Call("publish", {"page": "a"}),
                Call("publish", {"page": "b"}),
                Call("ask_person", {"question": "Ok?"}),
            ]
        case _:
            return [say(f"Done: {sorted(outputs(items))}")]


def _helper(page: str) -> Callable[[list[Any]], list[Any]]:
    def reply(items: list[Any]) -> list[Any]:
        given = outputs(items)
        if not given:
            return [Call("look_up", {"topic": page})]
        if len(given) == 1:
            return [Call("publish", {"page": page})]
        return [say(f"{page} is at {given[1]}")]

    return reply


def _lead(items: list[Any]) -> list[Any]:
    given = outputs(items)
    if given:
        return [say(f"Team: {sorted(given)}")]
    return [say("I ask."), Call("ask_a", {"input": "x"}), Call("ask_b", {"input": "x"})]


def alone() -> tuple[OpenAIAgent, list[ScriptedModel]]:
    model = ScriptedModel(_one)
    tools: list[Any] = [look_up, divide, publish, ask_person]
    return OpenAIAgent(Agent(name="alone", model=model, tools=tools)), [model]


def team() -> tuple[OpenAIAgent, list[ScriptedModel]]:
    models = [ScriptedModel(_helper(page), name=page) for page in "ab"]
    helpers = [
        Agent(name=model.name, model=model, tools=[look_up, publish]).as_tool(f"ask_{model.name}", "Ask.")
        for model in models
    ]
    lead = ScriptedModel(_lead, name="lead")
    return OpenAIAgent(Agent(name="lead", model=lead, tools=[*helpers])), [lead, *models]


def _recorded(events: list[dict[str, Any]], name: str) -> int:
    """How many calls of this name have a result."""
    rows = [event["data"] for event in events if event["type"] == "action.result"]
    return sum(row["toolName"] == name for row in rows)


def _keep(whole: Path, session_id: str, at: int, directory: Path) -> None:
    """Make a data directory that holds the events before `at`, as a crash leaves it."""
    lines = (whole / f"{session_id}.ndjson").read_bytes().splitlines(keepends=True)
    leave_as_killed(directory, session_id, b"".join(lines[:at]))


async def _go_on(make: Callable[[], Any], whole: Path, session_id: str, at: int, directory: Path) -> None:
    """Drive a session that was cut before `at` to its end, which is that of the whole one."""
    before = events_of(whole, session_id)[:at]
    _keep(whole, session_id, at, directory)
    RAN.clear()
    agent, models = make()
    async with create_agent_session_host(agent, data_dir=directory, fsync="never") as host:
        await until_rest(host, session_id)
    after, expected = events_of(directory, session_id), events_of(whole, session_id)
    where = f"cut at event {at}: {after[at - 1]}"
    assert after[-1]["data"]["reason"] == "idle", where
    assert [event["type"] for event in after if event["type"].startswith("turn.")] == [
        "turn.started",
        "turn.completed",
    ], f"{where} {after[-6:]}"
    assert counted_text(after) == counted_text(expected), where
    asked = sum(len(model.asked) for model in models)
    assert asked == _recorded(expected, "model") - _recorded(before, "model"), where
    for name in ("look_up", "divide", "publish"):
        ran = sum(call.startswith(name) for call in RAN)
        assert ran == _recorded(expected, name) - _recorded(before, name), where


@pytest.mark.timeout(240)
@pytest.mark.parametrize("make", [alone, team])
async def test_a_turn_cut_down_after_any_event_goes_on_from_its_record(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    agent, _ = make()
    async with create_agent_session_host(agent, data_dir=whole, fsync="never") as host:
        session_id = (await host.store.start(NOBODY, "go")).session_id
        await until_rest(host, session_id)
    events = events_of(whole, session_id)
    received = [event["type"] for event in events].index("message.received")
    completed = [event["type"] for event in events].index("turn.completed")
    for at in range(received + 1, completed + 1):
        await _go_on(make, whole, session_id, at, tmp_path / str(at))
    assert faults_below(tmp_path) == []
