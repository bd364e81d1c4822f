"""The page about agents: after a crash its adapters go on from the record, and no model is asked twice."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from tests.docs.blocks import blocks_of
from zhin_host import AgentSessionHost, create_agent_session_host

PAGE: Final = "agents.md"


def module(file: str) -> ModuleType:
    """The page's block that is to be put into the file, as that module."""
    [source] = [block.text for block in blocks_of(PAGE) if block.file == file]
    made = ModuleType(file.removesuffix(".py"))
    exec(compile(source, file, "exec"), made.__dict__)  # noqa: S102 - the page's own code
    return made


async def results(host: AgentSessionHost, session_id: str) -> list[str]:
    """The actions that have run, in order, up to where the session rests."""
    events = [event async for event in host.stream(session_id)]
    return [event["data"]["toolName"] for event in events if event["type"] == "action.result"]


async def after_a_restart(agent: Any, data_dir: Path, message: str) -> tuple[str, list[str], list[str]]:
    """What the agent says when it was cut down while it waited, and what had run before and in all."""
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        session_id = (await host.run(message)).session_id
        before = await results(host, session_id)
    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.resume(session_id)
        await handle.answer(True)
        said = (await handle.result()).text
        return said, before, await results(host, session_id)


async def test_the_pydantic_ai_agent_pays_for_each_answer_once(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = module("assistant.py")
    asked = 0
    request = page.MODEL.request

    async def counted(*given: Any) -> Any:
        nonlocal asked
        asked += 1
        return await request(*given)

    monkeypatch.setattr(page.MODEL, "request", counted)
    said, before, in_all = await after_a_restart(page.agent, data_dir, "publish the page about cats")
    assert said == '{"publish":"https://pages.example/a"}'
    assert (before, in_all) == (["model"], ["model", "publish", "model"])
    assert asked == 2


async def test_the_pydantic_ai_agent_remembers_the_turns_before(data_dir: Path) -> None:
    async with create_agent_session_host(module("assistant.py").agent, data_dir=data_dir) as host:
        first = await host.run("one")
        async for _ in host.stream(first.session_id):
            pass
        await first.answer(True)
        await first.result()
        second = await host.run("two", session_id=first.session_id)
        await second.result()
        states = [
            event["data"]["state"]
            async for event in host.stream(first.session_id, until="tail")
            if event["type"] == "checkpoint.saved"
        ]
    assert [
        part["content"]
        for message in states[1]
        for part in message["parts"]
        if part["part_kind"] == "user-prompt"
    ] == [
        "one",
        "two",
    ]


async def test_the_pydantic_ai_agent_tells_its_model_of_a_refusal(data_dir: Path) -> None:
    async with create_agent_session_host(module("assistant.py").agent, data_dir=data_dir) as host:
        handle = await host.run("publish it")
        async for _ in host.stream(handle.session_id):
            pass
        await handle.answer(False)
        assert (await handle.result()).text == '{"publish":"A person refused this."}'


async def test_the_graph_goes_on_behind_its_first_node(data_dir: Path) -> None:
    said, before, in_all = await after_a_restart(module("graph.py").agent, data_dir, "cats")
    assert said == "Writing. Published at https://pages.example/13."
    assert (before, in_all) == (["ask_model"], ["ask_model", "publish"])
