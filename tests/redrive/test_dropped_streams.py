"""A try that has said something and then fails: the turn is driven again at once, and what was said does not count."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.redrive.drive import counted_text, events_of
from zhin_host import Retry, Turn, create_agent_session_host, tool
from zhin_host.agent import HostedAgent

ONCE_MORE = Retry(attempts=2, delay_s=0)


class Model:
    """Says some words and then fails, so often; counts how often it was asked."""

    def __init__(self, failures: int = 1) -> None:
        self.asked = 0
        self.failures = failures
        self.may_fail = asyncio.Event()
        self.may_fail.set()

    async def answer(self, turn: Turn) -> str:
        self.asked += 1
        await turn.say("Once ")
        if self.asked <= self.failures:
            await self.may_fail.wait()
            raise ConnectionError("cut")
        await turn.say("upon a time.")
        return "told"


def _of_type(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


async def test_the_log_tells_of_the_retry_and_from_where_on_events_do_not_count(data_dir: Path) -> None:
    model = Model(failures=2)

    async def agent(turn: Turn) -> None:
        await turn.say("Well. ")
        await turn.run("model", partial(model.answer, turn), retry=Retry(attempts=3, delay_s=0))

    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("go")
        assert (await handle.result()).text == "Well. Once upon a time."
    events = events_of(data_dir, handle.session_id)
    assert [event["data"]["attempt"] for event in _of_type(events, "action.retrying")] == [1, 2]
    resumed = [event["data"] for event in _of_type(events, "step.resumed")]
    assert [row["attempt"] for row in resumed] == [2, 3]
    said = next(event for event in events if event["type"] == "message.appended")
    assert resumed[0]["discardFrom"] == said["index"]
    assert counted_text(events) == "Well. Once upon a time."
    assert len(_of_type(events, "action.result")) == 1


async def test_a_failure_before_anything_was_said_is_tried_again_in_its_place(data_dir: Path) -> None:
    asked = 0

    async def answer(turn: Turn) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ConnectionError("refused")
        await turn.say("Once.")

    async def agent(turn: Turn) -> None:
        await turn.say("Well. ")
        await turn.run("model", partial(answer, turn), retry=ONCE_MORE)

    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("go")
        assert (await handle.result()).text == "Well. Once."
    assert _of_type(events_of(data_dir, handle.session_id), "step.resumed") == []


@pytest.mark.parametrize("kind", ["think", "emit"])
async def test_thoughts_and_own_events_of_a_failed_try_do_not_count_either(data_dir: Path, kind: str) -> None:
    asked = 0

    async def answer(turn: Turn) -> None:
        nonlocal asked
        asked += 1
        await (turn.think("Hm.") if kind == "think" else turn.emit("x.progress", {"at": asked}))
        if asked == 1:
            raise ConnectionError("cut")

    async def agent(turn: Turn) -> None:
        await turn.run("model", partial(answer, turn), retry=ONCE_MORE)

    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("go")
        assert (await handle.result()).outcome == "completed"
    [resumed] = _of_type(events_of(data_dir, handle.session_id), "step.resumed")
    assert "discardFrom" in resumed["data"]


async def test_the_last_failure_ends_the_action_and_what_it_said_stands(data_dir: Path) -> None:
    model = Model(failures=9)

    async def agent(turn: Turn) -> None:
        await turn.run("model", partial(model.answer, turn), retry=ONCE_MORE)

    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("go")
        result = await handle.result()
    assert (result.outcome, result.code, result.text, model.asked) == ("failed", "ACTION_FAILED", "Once ", 2)


async def test_what_runs_beside_a_dropped_stream_ends_first_and_does_not_run_again(data_dir: Path) -> None:
    model, runs = Model(), 0
    model.may_fail.clear()
    release = asyncio.Event()

    async def slow() -> str:
        nonlocal runs
        runs += 1
        model.may_fail.set()
        await release.wait()
        return "slow"

    async def agent(turn: Turn) -> None:
        asking = turn.run("model", partial(model.answer, turn), retry=ONCE_MORE)
        await asyncio.gather(asking, turn.run("slow", slow))

    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("go")
        async for event in host.stream(handle.session_id, until="never"):
            if event["type"] == "action.retrying":
                break
        release.set()
        assert (await handle.result()).outcome == "completed"
    assert (runs, model.asked) == (1, 2)


@tool(approval="always")
async def publish(page: str) -> str:
    return f"published {page}"


async def test_while_a_person_is_asked_beside_it_the_turn_stays_parked_and_the_answer_drives_it_again(
    data_dir: Path,
) -> None:
    model = Model()
    model.may_fail.clear()

    async def agent(turn: Turn) -> None:
        asking = turn.run("model", partial(model.answer, turn), retry=ONCE_MORE)
        _, page = await asyncio.gather(asking, turn.call_tool(publish, page="front"))
        await turn.say(f" {page}")

    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("go")
        async for event in host.stream(handle.session_id, until="never"):
            if event["type"] == "input.requested":
                model.may_fail.set()
            if event["type"] == "action.retrying":
                break
        await handle.answer(True)
        result = await handle.result()
    assert (result.outcome, model.asked) == ("completed", 2)
    assert result.text.endswith(" published front")
    results = _of_type(events_of(data_dir, handle.session_id), "action.result")
    assert sorted(event["data"]["toolName"] for event in results) == ["model", "publish"]


async def test_a_turn_that_is_cancelled_in_the_pause_is_cancelled(data_dir: Path) -> None:
    model = Model()

    async def agent(turn: Turn) -> None:
        await turn.run("model", partial(model.answer, turn), retry=Retry(attempts=2, delay_s=60))

    async with create_agent_session_host(agent, data_dir=data_dir) as host:
        handle = await host.run("go")
        async for event in host.stream(handle.session_id, until="never"):
            if event["type"] == "action.retrying":
                break
        assert await handle.cancel()
        assert (await handle.result()).outcome == "cancelled"
    assert model.asked == 1


@pytest.mark.parametrize("ends", ["cancel", "stop"])
async def test_while_it_waits_for_what_runs_beside_the_turn_may_be_cancelled_or_the_host_stopped(
    data_dir: Path, ends: str
) -> None:
    model = Model()
    model.may_fail.clear()

    release = asyncio.Event()

    async def long() -> None:
        model.may_fail.set()
        await release.wait()

    async def agent(turn: Turn) -> None:
        asking = turn.run("model", partial(model.answer, turn), retry=ONCE_MORE)
        await asyncio.gather(asking, turn.run("long", long))

    host = create_agent_session_host(agent, data_dir=data_dir, stop_grace_s=0.01)
    async with host:
        handle = await host.run("go")
        async for event in host.stream(handle.session_id, until="never"):
            if event["type"] == "action.retrying":
                break
        if ends == "cancel":
            assert await handle.cancel()
            assert (await handle.result()).outcome == "cancelled"
    release.set()
    last = events_of(data_dir, handle.session_id)[-1]
    assert (last["type"] == "session.waiting") is (ends == "cancel")
    assert model.asked == 1


async def test_an_agent_that_cannot_be_driven_again_says_it_twice(data_dir: Path) -> None:
    model = Model()

    async def agent(turn: Turn) -> None:
        await turn.run("model", partial(model.answer, turn), retry=ONCE_MORE)

    hosted = HostedAgent(agent, "agent")
    hosted.is_resumable = False
    async with create_agent_session_host({"agent": hosted}, data_dir=data_dir) as host:
        handle = await host.run("go")
        assert (await handle.result()).text == "Once Once upon a time."
