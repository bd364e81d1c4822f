"""The engine without HTTP: run, resume and stream, one handle for all; and agents that go step by step."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.redrive.agents import Counting
from zhin_host import Turn, create_agent_session_host, tool
from zhin_host.errors import BadRequest, NothingToResume, RequestNotFound, ShuttingDown


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


@pytest.mark.parametrize("events", [[{"type": "done"}], [{"type": "done", "text": ""}]])
async def test_a_stepped_agent_may_be_done_without_a_word(data_dir: Path, events: Any) -> None:
    class Silent:
        async def step(self, state: dict[str, Any]) -> Any:
            return events

    async with create_agent_session_host({"silent": Silent()}, data_dir=data_dir) as host:
        result = await (await host.run("go")).result()
    assert (result.outcome, result.text) == ("completed", "")


async def test_a_plain_step_may_give_back_something_to_await(data_dir: Path) -> None:
    async def later() -> list[dict[str, Any]]:
        return [{"type": "done", "text": "at last"}]

    class Deferring:
        def step(self, state: dict[str, Any]) -> Any:
            return later()

    async with create_agent_session_host({"deferring": Deferring()}, data_dir=data_dir) as host:
        assert (await (await host.run("go")).result()).text == "at last"


async def halting(turn: Turn) -> None:
    """Is cut down in its first attempt, and fails in a later one where it is told to."""
    await turn.say("Half. ")
    if turn.attempt == 1:
        await asyncio.Event().wait()
    if turn.message == "fail":
        raise ValueError("no")
    await turn.say("Whole.")


async def _cut_down(data_dir: Path, message: str) -> str:
    """A session whose turn the stop of its host cut down while somebody waited for its end."""
    async with create_agent_session_host(halting, data_dir=data_dir, stop_grace_s=0.0) as host:
        handle = await host.run(message)
        waiting = asyncio.ensure_future(handle.result())
        while not host.gauges().readers:  # noqa: ASYNC110 - until it reads; nothing tells of that
            await asyncio.sleep(0)
        log = data_dir / f"{handle.session_id}.ndjson"
        while b"message.appended" not in log.read_bytes():  # noqa: ASYNC110 - as before
            await asyncio.sleep(0)
        await host.stop()
        with pytest.raises(ShuttingDown):
            await waiting
    return handle.session_id


async def test_who_waits_for_a_turn_is_told_of_the_stop_and_gets_its_end_from_the_next_host(
    data_dir: Path,
) -> None:
    session_id = await _cut_down(data_dir, "go")
    async with create_agent_session_host(halting, data_dir=data_dir) as host:
        result = await (await host.resume(session_id)).result()
    assert (result.outcome, result.text) == ("completed", "Half. Whole.")


async def test_the_text_of_a_failed_turn_is_what_counts_of_it(data_dir: Path) -> None:
    session_id = await _cut_down(data_dir, "fail")
    async with create_agent_session_host(halting, data_dir=data_dir) as host:
        result = await (await host.resume(session_id)).result()
    assert (result.outcome, result.text) == ("failed", "Half. ")


async def test_an_answer_too_long_for_a_line_is_whole_in_the_result(data_dir: Path) -> None:
    async def talkative(turn: Turn) -> None:
        for letter in "abc":
            await turn.say(letter * 4000)

    async with create_agent_session_host(talkative, data_dir=data_dir, line_bytes_max=8192) as host:
        result = await (await host.run("go")).result()
    assert result.text == "a" * 4000 + "b" * 4000 + "c" * 4000


async def test_of_several_open_requests_the_one_meant_must_be_named(data_dir: Path) -> None:
    async def curious(turn: Turn) -> None:
        answers = await asyncio.gather(turn.ask("One?"), turn.ask("Two?"))
        await turn.say(" ".join(answers))

    async with create_agent_session_host(curious, data_dir=data_dir) as host:
        handle = await host.run("go")
        asked = 0
        async for event in host.stream(handle.session_id, until="never"):
            asked += event["type"] == "input.requested"
            if asked == 2:
                break
        requests = await handle.requests()
        with pytest.raises(RequestNotFound, match="one of 2"):
            await handle.answer("?")
        for request in requests:
            await handle.answer(request["prompt"].lower(), request["requestId"])
        assert (await handle.result()).text == "one? two?"
        with pytest.raises(RequestNotFound, match="one of 0"):
            await handle.answer("?")


@pytest.mark.parametrize("success", [True, False])
async def test_an_authorization_is_answered_with_whether_it_succeeded(
    data_dir: Path, *, success: bool
) -> None:
    async def connecting(turn: Turn) -> None:
        await turn.say(str(await turn.authorize("mail")))

    async with create_agent_session_host(connecting, data_dir=data_dir) as host:
        handle = await host.run("go")
        assert [event async for event in host.stream(handle.session_id)][-1]["data"]["parked"] is True
        await handle.answer(success)
        assert (await handle.result()).text == str(success)
