"""The engine without HTTP: run, resume and stream, one handle for all; and agents that go step by step."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.redrive.agents import Counting
from zhin_host import Turn, create_agent_session_host, tool
from zhin_host.errors import BadRequest, NothingToResume, RequestNotFound


@tool(approval="always")
async def publish(page: str) -> str:
    return f"published {page}"


async def scripted(turn: Turn) -> None:
    await turn.say("Wait. ")
    await turn.say(await turn.call_tool(publish, page=turn.message))
    await turn.finish("stop", {"tokens": 3})


async def test_a_turn_runs_parks_is_answered_and_ends_without_http(data_dir: Path) -> None:
    async with create_agent_session_host(scripted, data_dir=data_dir) as host:
        handle = await host.run("front", metadata={"from": "a test"})
        seen = [event async for event in host.stream(handle.session_id)]
        assert seen[-1]["data"]["parked"] is True
        assert await handle.status() == "parked"
        await handle.answer(True)
        result = await handle.result()
        assert (result.outcome, result.text, result.usage) == (
            "completed",
            "Wait. published front",
            {"tokens": 3},
        )
        assert await handle.status() == "waiting"
        rest = [event async for event in host.stream(handle.session_id, since=len(seen))]
        assert [event["index"] for event in [*seen, *rest]] == list(range(len(seen) + len(rest)))


async def test_watching_executes_nothing(data_dir: Path) -> None:
    async with create_agent_session_host(scripted, data_dir=data_dir) as host:
        handle = await host.run("front")
        first = [event async for event in host.stream(handle.session_id)]
        again = [event async for event in host.stream(handle.session_id)]
        assert first == again
        await handle.cancel()
        assert (await handle.result()).outcome == "cancelled"


async def test_a_parked_turn_is_taken_up_by_its_handle_after_a_restart(data_dir: Path) -> None:
    async with create_agent_session_host(scripted, data_dir=data_dir) as host:
        session_id = (await host.run("front")).session_id
        assert [event async for event in host.stream(session_id)][-1]["data"]["parked"] is True
    async with create_agent_session_host(scripted, data_dir=data_dir) as host:
        handle = await host.resume(session_id)
        with pytest.raises(BadRequest, match="True or False"):
            await handle.answer("yes")
        with pytest.raises(RequestNotFound):
            await handle.answer(True, "req_unknown")
        await handle.answer(False)
        result = await handle.result()
        assert (result.outcome, result.code) == ("failed", "TOOL_DENIED")
        again = await host.resume(session_id)  # it may be tried again, and asks again
        assert [event async for event in host.stream(session_id)][-1]["data"]["parked"] is True
        await again.answer(True)
        assert (await again.result()).text == "Wait. published front"
        with pytest.raises(NothingToResume):
            await host.resume(session_id)
        follow_up = await host.run("second", session_id=session_id)
        assert await follow_up.cancel()


class Flaky:
    """Crashes at random in three steps out of ten, after it has changed its state."""

    def __init__(self, chance: random.Random | None) -> None:
        self._chance = chance

    def step(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        history = state.setdefault("history", [])
        history.append(len(history) ** 2)
        if self._chance is not None and self._chance.random() < 0.3:
            raise RuntimeError("the model timed out")
        if len(history) == 12:
            state["sum"] = sum(history)
            return [{"type": "done", "text": f"The sum is {state['sum']}."}]
        return [{"type": "message", "text": f"{history[-1]} "}]


async def _state_and_answer(data_dir: Path, agent: Flaky) -> tuple[Any, str, int]:
    async with create_agent_session_host({"flaky": agent}, data_dir=data_dir) as host:
        handle = await host.run("add up")
        resumes = 0
        while (result := await handle.result()).outcome != "completed":
            assert result.code == "AGENT_FAILED"
            handle = await host.resume(handle.session_id)
            resumes += 1
        states = [
            event["data"]["state"]
            async for event in host.stream(handle.session_id)
            if event["type"] == "checkpoint.saved"
        ]
        return states[-1], result.text, resumes


@pytest.mark.parametrize("seed", range(5))
async def test_an_agent_that_crashes_at_random_ends_with_the_state_and_answer_of_an_undisturbed_run(
    data_dir: Path, seed: int
) -> None:
    undisturbed = await _state_and_answer(data_dir, Flaky(None))
    state, text, resumes = await _state_and_answer(data_dir, Flaky(random.Random(seed)))
    assert (state, text, 0) == undisturbed
    assert resumes > 0


async def test_a_stepped_agent_gets_the_message_and_the_answer_it_waited_for(
    data_dir: Path,
) -> None:
    async with create_agent_session_host({"counting": Counting()}, data_dir=data_dir) as host:
        handle = await host.run("go")
        assert [event async for event in host.stream(handle.session_id)][-1]["data"]["parked"] is True
        (request,) = await handle.requests()
        assert (request["prompt"], request["args"]) == ("Go on?", {"why": "go"})
        await handle.answer(True)
        assert (await handle.result()).text == "Step 0. Step 3. Four. Allowed: True."


async def test_a_stepped_agent_goes_on_with_the_state_of_the_last_turn_that_completed(data_dir: Path) -> None:
    class Remembering:
        async def step(self, state: dict[str, Any]) -> list[dict[str, Any]]:
            state.setdefault("heard", []).append(state["message"])
            return [{"type": "done", "text": ", ".join(state["heard"])}]

    async with create_agent_session_host({"remembering": Remembering()}, data_dir=data_dir) as host:
        handle = await host.run("one")
        assert (await handle.result()).text == "one"
        again = await host.run("two", session_id=handle.session_id)
        assert (await again.result()).text == "one, two"


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ("no list", "step returns a list of events"),
        ([1], "step returns a list of events"),
        ([{"type": "shout"}], "a step's event is message"),
        ([{"type": "done"}, {"type": "message", "text": "x"}], "a step's event is message"),
        ([{}], "a step's event is message"),
    ],
)
async def test_what_is_no_step_fails_the_turn_with_a_sentence(data_dir: Path, events: Any, said: str) -> None:
    class Wrong:
        async def step(self, state: dict[str, Any]) -> Any:
            return events

    async with create_agent_session_host({"wrong": Wrong()}, data_dir=data_dir) as host:
        result = await (await host.run("go")).result()
    assert result.code == "AGENT_FAILED"
    assert said in (result.error or "")
