"""A key, wherever it comes in: it stands in no file and no answer, and the agent gets what was recorded."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import orjson
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hosting import hosting, one
from tests.integration.live import Serving, served
from tests.redrive.drive import files_below
from zhin_host import ActionFailed, Retry, ToolDenied, Turn, create_agent_session_host, tool
from zhin_host import events as ev
from zhin_host.errors import StartupError
from zhin_host.redaction import MARK, redactor_of

KEY = "ghp_" + "aB3dE6gH9" * 4
SEEN: list[Any] = []
LONG = "k" * 3000


@tool(approval="always")
async def deploy(config: dict[str, str]) -> dict[str, Any]:
    """Deploy with a configuration."""
    SEEN.append(config)
    return {"deployed": config, "log": [f"export TOKEN={KEY}"], KEY: 1}


@tool
async def pin(code: Annotated[str, pydantic.Field(pattern="^ghp_")]) -> str:
    """Take what begins like a key and nothing else."""
    return code


async def fetch(url: str, *, token: str) -> str:
    SEEN.append(token)
    return f"GET {url} with {token}: ok"


async def breaks(times: int = 0) -> None:
    raise ConnectionError(f"{LONG[: 2000 - 30]} {KEY}")


class Script:
    """Each verb takes a key in another way."""

    name = "scripted"
    tools = (deploy, pin)

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, turn: Turn) -> None:  # noqa: C901, PLR0912 - one case for each way
        SEEN.append(turn.message)
        match turn.message:
            case "run":
                got = await turn.run("fetch", fetch, "https://x.example", token=KEY)
                SEEN.append(got)
                await turn.say(f"{got} ")
                for character in KEY:
                    await turn.say(character)
                await turn.say(".")
            case "tool":
                got = await turn.call_tool(deploy, config={"token": KEY, "name": "x"})
                SEEN.append(got)
            case "fit":
                try:
                    await turn.call_tool(pin, code=KEY)
                except ActionFailed as error:
                    SEEN.append(error.error)
            case "ask":
                SEEN.append(await turn.ask(f"Is it {KEY}?", [KEY, "no"]))
            case "approve":
                SEEN.append(await turn.approve(f"Use {KEY}?", key=KEY))
            case "authorize":
                SEEN.append(await turn.authorize("mail", "https://auth.example?state=1"))
            case "state":
                await turn.checkpoint({"key": KEY})
                SEEN.append(turn.state)
            case "emit":
                await turn.emit("x.note", {"key": KEY, "list": [KEY]})
                await turn.finish(KEY, {KEY: 1})
            case "think":
                await turn.think(f"Let me use {KEY[:20]}")
                await turn.think(f"{KEY[20:]}.")
            case "try":
                try:
                    await turn.run("breaks", breaks, retry=Retry(attempts=2, delay_s=0))
                except ActionFailed as error:
                    SEEN.append(str(error))
            case "raise":
                raise ValueError(f"no {KEY}")
            case "deny":
                try:
                    await turn.call_tool(deploy, config={"token": KEY})
                except ToolDenied as error:
                    SEEN.append(str(error))
            case "hold":
                await self.go.wait()
            case _:
                SEEN.append(dict(turn.metadata))
                await turn.say(turn.message)


@asynccontextmanager
async def serving(data_dir: Path, **more: Any) -> AsyncIterator[Serving]:
    SEEN.clear()
    async with served(create_agent_session_host(Script(), data_dir=data_dir, **more)) as live:
        yield live
    assert more or [path for path in files_below(data_dir) if KEY[10:].encode() in path.read_bytes()] == []
    assert more or KEY[10:] not in repr([seen for seen in SEEN if seen != KEY])


async def told(live: Serving, session: dict[str, Any]) -> list[dict[str, Any]]:
    """The session's events, after its view and its list row, in none of which the key is."""
    events = await live.events(session)
    for path in (f"/session/{session['sessionId']}", "/sessions", f"/session/{session['sessionId']}/stream"):
        assert KEY[10:] not in (await live.client.get(path, params={"until": "tail"})).text
    return events


def data_of(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(dict(event["data"]) for event in events if event["type"] == kind)


async def test_what_a_client_sends_is_recorded_without_it_and_the_agent_gets_that(data_dir: Path) -> None:
    async with serving(data_dir) as live:
        session = await live.start(f"My key is {KEY}", metadata={"key": KEY, "n": 1, KEY: "x"})
        events = await told(live, session)
        assert data_of(events, "session.started")["metadata"] == {"key": MARK, "n": 1, MARK: "x"}
        assert data_of(events, "message.received")["message"] == f"My key is {MARK}"
        assert SEEN[0] == f"My key is {MARK}"
        assert SEEN[1] == {"key": MARK, "n": 1, MARK: "x"}
        parts = [{"type": "text", "text": f"one {KEY}"}, {"type": "text", "text": "two"}]
        more = {"message": parts, "continuationToken": session["continuationToken"]}
        live.good(await live.client.post(f"/session/{session['sessionId']}", json=more))
        await told(live, session)
        assert SEEN[2] == f"one {MARK}\ntwo"
        live.good(
            await live.client.post(
                f"/session/{session['sessionId']}/end", json={"outcome": "failed", "message": f"for {KEY}"}
            )
        )
        assert data_of(await told(live, session), "session.failed")["message"] == f"for {MARK}"
        other = await live.start("x")
        await live.events(other)
        body = {"outcome": "completed", "message": KEY}
        live.good(await live.client.post(f"/session/{other['sessionId']}/end", json=body))
        assert data_of(await told(live, other), "session.completed")["message"] == MARK


async def test_a_queued_message_and_its_key_are_recorded_without_it(data_dir: Path) -> None:
    async with serving(data_dir) as live:
        held = await live.start("hold")
        body = {"message": f"later {KEY}", "continuationToken": held["continuationToken"], "onBusy": "queue"}
        raw = orjson.dumps(body)
        headers = {"idempotency-key": "k1", "content-type": "application/json"}
        path = f"/session/{held['sessionId']}"
        queued = [live.good(await live.client.post(path, content=raw, headers=headers)) for _ in range(2)]
        assert queued[0] == queued[1]
        live.refused(
            await live.client.post(path, content=raw.replace(b"later", b"sooner"), headers=headers),
            409,
            "IDEMPOTENCY_CONFLICT",
        )
        live.good(await live.client.post(f"{path}/cancel"))
        events = await told(live, held)
        assert data_of(events, "message.queued")["message"] == f"later {MARK}"
        assert (
            data_of(events, "message.queued")["requestDigest"] == "sha256:" + hashlib.sha256(raw).hexdigest()
        )


async def test_what_an_agent_does_with_a_key_is_recorded_and_returned_without_it(data_dir: Path) -> None:
    async with serving(data_dir) as live:
        events = await told(live, await live.start("run"))
        result = f"GET https://x.example with {MARK}: ok"
        assert [SEEN[1], SEEN[2]] == [KEY, result]  # the function has what it was called with
        assert data_of(events, "actions.requested")["input"] == {"url": "https://x.example", "token": MARK}
        assert data_of(events, "action.result")["output"] == result
        assert data_of(events, "message.completed")["message"] == f"{result} {MARK}."


async def test_a_tool_runs_with_what_a_person_was_shown_and_nothing_else(data_dir: Path) -> None:
    async with serving(data_dir) as live:
        session, request_id = await live.parked("tool")
        requested = data_of(await told(live, session), "input.requested")
        shown = {"config": {"token": MARK, "name": "x"}}
        assert requested["args"] == shown
        assert requested["argsDigest"] == ev.digest(ev.json_bytes(shown))
        answer = {"requestId": request_id, "approved": True, "comment": f"yes, {KEY}"}
        live.good(await live.client.post(f"/session/{session['sessionId']}/input", json=answer))
        events = await told(live, session)
        assert data_of(events, "input.completed")["comment"] == f"yes, {MARK}"
        recorded = {"deployed": shown["config"], "log": [f"export TOKEN={MARK}"], MARK: 1}
        assert SEEN[1:] == [shown["config"], recorded]
        assert data_of(events, "action.result")["output"] == recorded


async def test_arguments_that_do_not_fit_any_more_fail_the_call_before_it_runs(data_dir: Path) -> None:
    async with serving(data_dir) as live:
        events = await told(live, await live.start("fit"))
        assert data_of(events, "action.result")["error"]["code"] == "BAD_ARGUMENTS"


@pytest.mark.parametrize("answer", [KEY, {"key": KEY}, [KEY, 1]], ids=["text", "object", "list"])
async def test_an_answer_is_recorded_without_it_and_given_twice_it_is_the_same(
    data_dir: Path, answer: Any
) -> None:
    async with serving(data_dir) as live:
        session, request_id = await live.parked("ask")
        requested = data_of(await told(live, session), "input.requested")
        assert (requested["prompt"], requested["options"]) == (f"Is it {MARK}?", [MARK, "no"])
        path, body = f"/session/{session['sessionId']}/input", {"requestId": request_id, "response": answer}
        given = [live.good(await live.client.post(path, json=body)) for _ in range(2)]
        recorded = redactor_of(()).form(answer)
        assert [row["response"] for row in given] == [recorded, recorded]
        assert [row["alreadyAnswered"] for row in given] == [False, True]
        await told(live, session)
        assert SEEN[-1] == recorded
        relayed = {"traceId": session["sessionId"], "promptId": request_id, "response": answer}
        assert live.good(await live.client.post("/resume", json=relayed))["alreadyAnswered"] is True


async def test_whatever_else_holds_it_is_recorded_without_it(data_dir: Path) -> None:
    async with serving(data_dir) as live:
        session, request_id = await live.parked("approve")
        requested = data_of(await told(live, session), "input.requested")
        assert (requested["prompt"], requested["args"]) == (f"Use {MARK}?", {"key": MARK})
        session, request_id = await live.parked("authorize")
        body = {"success": False, "error": f"bad {KEY}"}
        live.good(await live.client.post(f"/authorization/{request_id}/complete", json=body))
        assert data_of(await told(live, session), "authorization.completed")["error"] == f"bad {MARK}"
        assert data_of(await told(live, await live.start("state")), "checkpoint.saved")["state"] == {
            "key": MARK
        }
        events = await told(live, await live.start("emit"))
        assert data_of(events, "x.note") == {"key": MARK, "list": [MARK]}
        assert data_of(events, "message.completed")["finishReason"] == MARK
        assert data_of(events, "turn.completed")["usage"] == {MARK: 1}
        events = await told(live, await live.start("think"))
        assert data_of(events, "reasoning.completed")["reasoning"] == f"Let me use {MARK}."
        events = await told(live, await live.start("raise"))
        assert data_of(events, "turn.failed")["message"] == f"ValueError: no {MARK}"
        events = await told(live, await live.start("try"))
        for kind in ("action.retrying", "action.result"):  # a key is not cut too short to be known
            assert KEY[:10] not in data_of(events, kind)["error"]["message"]
        assert KEY[:10] not in SEEN[-1]


async def test_off_leaves_everything_as_it_is(data_dir: Path) -> None:
    async with serving(data_dir, redact=["off"]) as live:
        events = await live.events(await live.start("run"))
        assert data_of(events, "message.completed")["message"].endswith(f"{KEY}.")
        assert "redact" not in live.good(await live.client.get("/info"))["limits"]


async def test_ones_own_patterns_are_not_told_to_anybody(data_dir: Path) -> None:
    async with serving(data_dir, redact=["hunter[0-9]"]) as live:
        events = await live.events(await live.start("It is hunter2"))
        assert data_of(events, "message.received")["message"] == f"It is {MARK}"
        assert "hunter" not in (await live.client.get("/info")).text
    with pytest.raises(StartupError, match="Pattern 1 of redact") as refusal:
        create_agent_session_host(Script(), redact=["hunter2("])
    assert "hunter2" not in str(refusal.value)


class Stepped:
    """Its state and everything it tells hold a key."""

    def step(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        at = state["at"] = state.get("at", 0) + 1
        SEEN.append(state.get("key"))
        state["key"] = {"is": KEY}
        if at == 1:
            return [{"type": "message", "text": f"It is {KEY[:9]}"}]
        if at == 2:
            return [
                {"type": "message", "text": f"{KEY[9:]}. "},
                {"type": "thought", "text": f"or {KEY}"},
                {"type": "x.note", "data": {"key": KEY}},
                {"type": "approval", "prompt": f"Use {KEY}?", "why": KEY},
            ]
        return [{"type": "done", "text": f"Used {KEY}"}]


async def test_a_stepped_agent_goes_on_from_the_state_that_was_recorded() -> None:
    SEEN.clear()
    async with hosting({"stepped": Stepped()}) as host:
        accepted = await host.start("go")
        [request] = await host.asked(accepted.session_id)
        assert (request.data["prompt"], request.data["args"]) == (f"Use {MARK}?", {"why": MARK})
        await host.approve(accepted.session_id, request.request_id)
        events = await host.events(accepted.session_id)
        assert SEEN == [None, {"is": MARK}, {"is": MARK}]
        assert KEY[12:].encode() not in host.log(accepted.session_id)
        assert one(events, "message.completed")["message"] == f"It is {KEY[:9]}{MARK}. Used {MARK}"
        assert one(events, "reasoning.completed")["reasoning"] == f"or {MARK}"
        assert one(events, "x.note") == {"key": MARK}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from([KEY, "sk-" + "x" * 20, "words ", "s", "sk", "-", " ", "é", KEY[:9]]), max_size=6
    ).map("".join),
    st.lists(st.integers(0, 200), max_size=10),
)
def test_the_deltas_and_the_message_are_the_redacted_text_however_it_is_cut(
    text: str, cuts: list[int]
) -> None:
    bounds = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    pieces = [text[start:end] for start, end in pairwise(bounds)]

    async def agent(turn: Turn) -> None:
        for piece in pieces:
            await turn.say(piece)
            await turn.think(piece)

    async def play() -> list[ev.Event]:
        async with hosting(agent) as host:
            return await host.run()

    events = asyncio.run(play())
    expected = redactor_of(()).text(text)
    said = "".join(event.data["messageDelta"] for event in events if event.type == "message.appended")
    assert said == one(events, "message.completed")["message"] == expected
    thought = "".join(event.data["reasoningDelta"] for event in events if event.type == "reasoning.appended")
    closed = "".join(event.data["reasoning"] for event in events if event.type == "reasoning.completed")
    assert thought == closed


async def test_text_that_grows_by_what_was_held_still_fits_its_lines() -> None:
    async def agent(turn: Turn) -> None:
        await turn.say(f"sk-{'x' * 200}")
        await turn.say(" " + "\x00" * 1302 + "y" * 119)
        await turn.think(f"sk-{'x' * 12}")
        await turn.think(" " + "\x00" * 1320)

    async with hosting(agent, line_bytes_max=8192) as host:
        events = await host.run()
    said = "".join(event.data["messageDelta"] for event in events if event.type == "message.appended")
    assert said == f"{MARK} " + "\x00" * 1302 + "y" * 119
    thought = "".join(event.data["reasoningDelta"] for event in events if event.type == "reasoning.appended")
    assert thought == f"sk-{'x' * 12} " + "\x00" * 1320


async def test_a_message_that_grows_over_the_line_is_refused_as_too_large(data_dir: Path) -> None:
    async with serving(data_dir, redact=["a"], line_bytes_max=8192) as live:
        response = await live.client.post("/session", json={"message": "a " * 1000})
        live.refused(response, 413, "BODY_TOO_LARGE")
