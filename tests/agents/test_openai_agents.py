"""OpenAIAgent: runs of the OpenAI Agents SDK as turns; every request to the model and every tool call is an action."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, function_tool

from tests.agents.openai_model import Call, Item, Reply, Say, ScriptedModel, Think, message, outputs, say
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
        ("model", {"model": "scripted", "messages": 1}),
        ("look_up", {"topic": "cats"}),
        ("model", {"model": "scripted", "messages": 5}),
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
