"""The chat agent against an endpoint over real HTTP: what is said, called, asked, tried again and remembered."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agents.endpoint import Endpoint, Reply, calls, in_order, says
from tests.redrive.drive import counted_text, events_of
from zhin_host import AgentSessionHost, Retry, Tool, TurnResult, create_agent_session_host, tool
from zhin_host.agents.chat import ChatAgent, ModelUnavailable

QUICK = Retry(attempts=3, delay_s=0, on=(ModelUnavailable,))


@tool(approval="always")
async def publish(page: str) -> str:
    """Publish a page."""
    return f"published {page}"


@tool
async def look_up(topic: str) -> dict[str, str]:
    """Look something up."""
    return {"topic": topic}


@tool
async def breaks() -> None:
    """Fail."""
    raise ConnectionError("no route")


@dataclass
class Chat:
    """A host of the chat agent, and its endpoint."""

    endpoint: Endpoint
    host: AgentSessionHost
    data_dir: Path

    async def said(self, message: str = "go", session_id: str | None = None) -> tuple[str, TurnResult]:
        """One turn to its end: the session, and how it ended."""
        handle = await self.host.run(message, session_id=session_id)
        return handle.session_id, await handle.result()

    def events(self, session_id: str) -> list[dict[str, Any]]:
        return events_of(self.data_dir, session_id)

    def data(self, session_id: str, kind: str) -> list[dict[str, Any]]:
        return [event["data"] for event in self.events(session_id) if event["type"] == kind]


Chatting = Callable[..., Any]


@pytest.fixture
def chatting(data_dir: Path) -> Chatting:
    """Starts a host of the chat agent on an endpoint that gives these replies."""

    @asynccontextmanager
    async def start(*replies: Reply, **options: Any) -> AsyncIterator[Chat]:
        with Endpoint(in_order(*replies)) as endpoint:
            given = {"base_url": endpoint.url, "api_key": "key", "retry": QUICK, **options}
            agent = ChatAgent("stub", **given)
            async with create_agent_session_host(agent, data_dir=data_dir) as host:
                yield Chat(endpoint, host, data_dir)

    return start


async def test_text_and_thoughts_are_told_as_they_come_and_the_usage_with_the_message(
    chatting: Chatting,
) -> None:
    async with chatting(says("Hello", ", ", "world.", thinks="Hm."), instructions="Be brief.") as chat:
        session_id, result = await chat.said("hi")
        assert (result.outcome, result.text) == ("completed", "Hello, world.")
        assert result.usage == {"inputTokens": 11, "outputTokens": 7, "modelCalls": 1}
        kinds = [event["type"] for event in chat.events(session_id)]
        assert (
            kinds.index("reasoning.appended") < kinds.index("message.appended") < kinds.index("action.result")
        )
        assert chat.data(session_id, "reasoning.completed") == [{"reasoning": "Hm."}]
        [request] = chat.endpoint.requests
        assert request["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
        ]
        assert (request["model"], request["stream"], "tools" in request) == ("stub", True, False)
        assert chat.endpoint.keys == ["Bearer key"]
        [answer] = chat.data(session_id, "action.result")
        assert (answer["toolName"], answer["output"]["model"]) == ("model", "stub-1")


async def test_calls_of_one_answer_run_side_by_side_and_their_results_go_back_to_the_model(
    chatting: Chatting,
) -> None:
    asked = calls(("look_up", '{"topic":"cats"}'), ("look_up", '{"topic":"dogs"}'), text="Let me see. ")
    async with chatting(asked, says("Both."), tools=[look_up]) as chat:
        session_id, result = await chat.said()
        assert result.text == "Let me see. Both."
        assert result.usage == {"inputTokens": 22, "outputTokens": 14, "modelCalls": 2}
        inputs = [row["input"] for row in chat.data(session_id, "actions.requested")]
        assert inputs == [{}, {"topic": "cats"}, {"topic": "dogs"}, {}]
        first, second = chat.endpoint.requests
        assert first["tools"][0]["function"]["parameters"]["required"] == ["topic"]
        assert [row["role"] for row in second["messages"]] == ["user", "assistant", "tool", "tool"]
        assert [row["content"] for row in second["messages"][2:]] == [
            '{"topic": "cats"}',
            '{"topic": "dogs"}',
        ]
        assert [row["tool_call_id"] for row in second["messages"][2:]] == ["call-0", "call-1"]


@pytest.mark.parametrize(
    ("is_allowed", "told"),
    [(True, "published front"), (False, "A person refused this call; it was not made.")],
)
async def test_a_tool_that_needs_a_yes_waits_for_it_and_the_model_hears_of_a_no(
    chatting: Chatting, *, is_allowed: bool, told: str
) -> None:
    async with chatting(calls(("publish", '{"page":"front"}')), says("Well."), tools=[publish]) as chat:
        handle = await chat.host.run("go")
        [*_, parked] = [event async for event in chat.host.stream(handle.session_id)]
        assert parked["data"]["parked"] is True
        [request] = await handle.requests()
        assert (request["toolName"], request["args"]) == ("publish", {"page": "front"})
        await handle.answer(is_allowed)
        assert (await handle.result()).text == "Well."
        assert chat.endpoint.requests[-1]["messages"][-1]["content"] == told


async def test_two_approvals_of_one_answer_may_be_given_in_any_order(chatting: Chatting) -> None:
    asked = calls(("publish", '{"page":"a"}'), ("publish", '{"page":"b"}'))
    async with chatting(asked, says("Done."), tools=[publish]) as chat:
        handle = await chat.host.run("go")
        async for event in chat.host.stream(handle.session_id, until="never"):
            if event["type"] == "session.waiting" and len(event["data"]["pendingRequestIds"]) == 2:
                break
        requests = {row["args"]["page"]: row["requestId"] for row in await handle.requests()}
        await handle.answer(True, requests["b"])
        await handle.answer(False, requests["a"])
        assert (await handle.result()).outcome == "completed"
        results = [row["content"] for row in chat.endpoint.requests[-1]["messages"][-2:]]
        assert results == ["A person refused this call; it was not made.", "published b"]


async def test_an_approval_that_nobody_gives_in_time_is_told_to_the_model(
    chatting: Chatting,
) -> None:
    @tool(approval="always", expires_s=0.05)
    async def hurry() -> str:
        return "hurried"

    async with chatting(calls(("hurry", "")), says("Too late."), tools=[hurry]) as chat:
        _, result = await chat.said()
        assert result.text == "Too late."
        told = chat.endpoint.requests[-1]["messages"][-1]["content"]
        assert told == "Nobody allowed this call in time; it was not made."


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("breaks", "{}"), "This call failed: no route"),
        (("look_up", '{"topic"'), "This call failed: The arguments are not a JSON object."),
        (("look_up", "[1]"), "This call failed: The arguments are not a JSON object."),
        (("look_up", '{"subject":"cats"}'), "This call failed: tool look_up: argument topic: Field required"),
        (("invented", "{}"), "This call failed: There is no tool 'invented'."),
        (("\x00", ""), "This call failed: There is no tool '\\x00'."),
    ],
)
async def test_a_call_that_cannot_be_made_is_a_failed_action_of_which_the_model_hears(
    chatting: Chatting, call: tuple[str, str], told: str
) -> None:
    async with chatting(calls(call), says("I see."), tools=[look_up, breaks]) as chat:
        session_id, result = await chat.said()
        assert (result.outcome, result.text) == ("completed", "I see.")
        assert chat.endpoint.requests[-1]["messages"][-1]["content"] == told
        statuses = [row["status"] for row in chat.data(session_id, "action.result")]
        assert statuses == ["completed", "failed", "completed"]


async def test_the_next_turn_reminds_the_model_of_what_was_said_and_called(chatting: Chatting) -> None:
    replies = [calls(("look_up", '{"topic":"cats"}')), says("Cats."), says("You asked about cats.")]
    async with chatting(*replies, tools=[look_up]) as chat:
        session_id, _ = await chat.said("cats?")
        await chat.said("what did I ask?", session_id)
        roles = [row["role"] for row in chat.endpoint.requests[-1]["messages"]]
        assert roles == ["user", "assistant", "tool", "assistant", "user"]


async def test_the_oldest_exchanges_are_forgotten_first_and_never_in_part(chatting: Chatting) -> None:
    replies = [says("x" * 300) for _ in range(6)]
    async with chatting(*replies, history_tokens=300) as chat:
        session_id, _ = await chat.said("question 0")
        for at in range(1, 6):
            await chat.said(f"question {at}", session_id)
        told = [row["content"][:10] for row in chat.endpoint.requests[-1]["messages"]]
        assert told == ["question 3", "x" * 10, "question 4", "x" * 10, "question 5"]
        saved = chat.data(session_id, "checkpoint.saved")
        assert len(json.dumps(saved[-1])) < 2 * len(json.dumps(saved[0]["state"])) * 2


async def test_a_huge_result_of_a_tool_is_cut_for_the_model_and_whole_in_the_log(chatting: Chatting) -> None:
    @tool
    async def much() -> str:
        return "é" * 50_000

    async with chatting(calls(("much", "")), says("Much."), tools=[much], history_tokens=1000) as chat:
        session_id, _ = await chat.said()
        told = chat.endpoint.requests[-1]["messages"][-1]["content"]
        assert told.startswith("é" * 700)
        assert told.endswith("… (cut: the whole is in the session's log)")
        assert len(told.encode()) < 1600
        assert len(chat.data(session_id, "action.result")[1]["output"]) == 50_000


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_or_failing_endpoint_is_asked_again_and_each_failure_is_in_the_log(
    chatting: Chatting, status: int
) -> None:
    async with chatting(Reply(status=status), Reply(status=status), says("At last.")) as chat:
        session_id, result = await chat.said()
        assert result.text == "At last."
        told = [row["error"]["message"] for row in chat.data(session_id, "action.retrying")]
        assert len(told) == 2
        assert all(sentence.startswith(f"{status}: ") for sentence in told)


async def test_the_pause_that_the_endpoint_asks_for_is_made(chatting: Chatting) -> None:
    busy = Reply(status=429, headers={"retry-after": "0.25"})
    dated = Reply(status=429, headers={"retry-after": "Mon, 30 Nov 2026 00:00:00 GMT"})
    async with chatting(busy, dated, says("At last.")) as chat:
        session_id, _ = await chat.said()
        assert [row["delayMs"] for row in chat.data(session_id, "action.retrying")] == [250, 0]


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_request_that_cannot_succeed_fails_the_turn_at_once(chatting: Chatting, status: int) -> None:
    async with chatting(Reply(status=status)) as chat:
        _, result = await chat.said()
        assert (result.outcome, result.code) == ("failed", "ACTION_FAILED")
        assert f"refused with {status}" in str(result.error)
        assert len(chat.endpoint.requests) == 1


BROKEN = {
    "cut": says("Once ", is_cut=True),
    "no finish_reason": says("Once ", finish_reason=None),
    "an error in the stream": says("Once ", raw=b'data: {"error":{"message":"overloaded"}}\n\n'),
    "no JSON": says("Once ", raw=b"data: {\n\n"),
}


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_stream_that_breaks_off_is_asked_for_again_and_what_it_said_does_not_count(
    chatting: Chatting, broken: str
) -> None:
    async with chatting(BROKEN[broken], says("Once ", "upon a time.")) as chat:
        session_id, result = await chat.said()
        assert (result.outcome, result.text) == ("completed", "Once upon a time.")
        events = chat.events(session_id)
        assert counted_text(events) == "Once upon a time."
        [resumed] = chat.data(session_id, "step.resumed")
        assert resumed["attempt"] == 2
        assert len(chat.data(session_id, "action.retrying")) == 1


async def test_a_stream_that_breaks_off_every_time_fails_the_turn_and_a_person_may_resume_it(
    chatting: Chatting,
) -> None:
    cut = says("Once ", is_cut=True)
    async with chatting(cut, cut, cut, says("Once upon a time.")) as chat:
        session_id, result = await chat.said()
        assert (result.outcome, result.code, len(chat.endpoint.requests)) == ("failed", "ACTION_FAILED", 3)
        resumed = await (await chat.host.resume(session_id)).result()
        assert (resumed.outcome, resumed.text) == ("completed", "Once upon a time.")


async def test_an_answer_that_falls_silent_is_asked_for_again(chatting: Chatting) -> None:
    silence = threading.Event()
    async with chatting(says("Once ", waits=silence), says("Once more."), silence_s=0.2) as chat:
        _, result = await chat.said()
        silence.set()
        assert (result.outcome, result.text) == ("completed", "Once more.")


async def test_an_answer_that_never_ends_is_cut_off_and_its_connection_closed(chatting: Chatting) -> None:
    async with chatting(says("blah ", repeats=True), characters_max=500) as chat:
        session_id, result = await chat.said()
        assert result.outcome == "completed"
        assert result.text == "blah " * 101
        assert chat.data(session_id, "message.completed")[0]["finishReason"] == "length"
        assert chat.endpoint.left.wait(10)


async def test_cancelling_a_turn_leaves_the_models_stream(chatting: Chatting) -> None:
    async with chatting(says("blah ", repeats=True), characters_max=10**9) as chat:
        handle = await chat.host.run("go")
        async for event in chat.host.stream(handle.session_id, until="never"):
            if event["type"] == "message.appended":
                break
        assert await handle.cancel()
        assert (await handle.result()).outcome == "cancelled"
        assert chat.endpoint.left.wait(10)


async def test_a_model_that_only_ever_calls_tools_ends_the_turn(chatting: Chatting) -> None:
    again = calls(("look_up", '{"topic":"cats"}'))
    async with chatting(again, again, tools=[look_up], answers_max=2) as chat:
        _, result = await chat.said()
        assert (result.outcome, result.code) == ("failed", "AGENT_FAILED")
        assert "asked 2 times" in str(result.error)


async def test_a_refusal_is_what_was_said_and_an_empty_answer_is_one(chatting: Chatting) -> None:
    async with chatting(Reply([{"refusal": "I will not."}]), Reply()) as chat:
        session_id, refused = await chat.said()
        assert refused.text == "I will not."
        _, empty = await chat.said("again", session_id)
        assert (empty.outcome, empty.text) == ("completed", "")


class Source:
    """Tools that come and go."""

    def __init__(self) -> None:
        self.there = [look_up]
        self.is_closed = False

    async def tools(self) -> list[Any]:
        return self.there

    def tool(self, name: str) -> Tool:
        if name != "look_up":
            raise KeyError(name)
        return look_up

    async def aclose(self) -> None:
        self.is_closed = True


async def test_tools_of_a_source_are_those_it_has_when_the_turn_begins(chatting: Chatting) -> None:
    source = Source()
    asked = calls(("look_up", '{"topic":"cats"}'))
    async with chatting(asked, says("Cats."), says("Nothing."), tools=[source, publish]) as chat:
        session_id, _ = await chat.said()
        source.there = []
        await chat.said("and now?", session_id)
        given = [[row["function"]["name"] for row in request["tools"]] for request in chat.endpoint.requests]
        assert given == [["publish", "look_up"], ["publish", "look_up"], ["publish"]]
    assert source.is_closed


async def test_a_tool_that_went_away_since_the_turn_began_is_still_its_sources(chatting: Chatting) -> None:
    source = Source()
    source.there = []
    async with chatting(calls(("look_up", '{"topic":"cats"}')), says("Cats."), tools=[source]) as chat:
        session_id, _ = await chat.said()
        outputs = [row["output"] for row in chat.data(session_id, "action.result")]
        assert outputs[1] == {"topic": "cats"}


def test_tools_that_a_model_could_not_tell_apart_or_call_are_refused() -> None:
    @tool(name="look up")
    async def spaced() -> None: ...

    with pytest.raises(ValueError, match=r"'look up' has a name that models are not given"):
        ChatAgent("stub", base_url="http://127.0.0.1:1", api_key="key", tools=[spaced])
    with pytest.raises(ValueError, match="Two tools have the name 'look_up'"):
        ChatAgent("stub", base_url="http://127.0.0.1:1", api_key="key", tools=[look_up, look_up])


async def test_an_agent_whose_host_has_stopped_may_be_hosted_again(data_dir: Path) -> None:
    with Endpoint(in_order(says("One."), says("Two."))) as endpoint:
        agent = ChatAgent("stub", base_url=endpoint.url, api_key="key")
        texts = []
        for _ in range(2):
            async with create_agent_session_host(agent, data_dir=data_dir) as host:
                texts.append((await (await host.run("go")).result()).text)
    assert texts == ["One.", "Two."]
