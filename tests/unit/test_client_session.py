"""A message begins one turn however often it is sent, requests are repeated where that is safe, a state goes on."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.builders import LogBuilder
from tests.scripted_host import ScriptedHost, broken_at, ok, refused, sent
from zhin_host import events as ev
from zhin_host.client import (
    BadRequest,
    BadResponse,
    Client,
    ContinuationTokenStale,
    Forbidden,
    GaveUp,
    IdempotencyConflict,
    Refused,
    RequestAlreadyAnswered,
    RequestNotFound,
    SessionBusy,
    SessionNotFound,
    SessionTerminal,
    StorageUnavailable,
    TooLarge,
    TooMany,
    Unauthorized,
    Unavailable,
    View,
    fold,
)
from zhin_host.client.state import new_saved_state
from zhin_host.client.view import Request

LOST_BEFORE = httpx.ConnectError("refused")
LOST_AFTER = httpx.ReadError("reset")


def keys(host: ScriptedHost) -> list[str | None]:
    return [request.headers.get("idempotency-key") for request in host.posts]


# -- one turn a message ----------------------------------------------------------------------------------------------


async def test_a_start_is_sent_until_it_is_answered_with_one_key_and_the_same_bytes() -> None:
    host = ScriptedHost()
    host.replies.extend(
        [
            LOST_BEFORE,
            LOST_AFTER,
            httpx.ReadTimeout(""),
            refused(503, "SHUTTING_DOWN", retry_after=1),
            host.accepted(),
        ]
    )
    async with host.client() as client:
        session = await client.start("Hello", metadata={"a": 1}, agent="demo")
        assert session.session_id == host.session_id
        assert [event async for event in session.turn] == host.events
    assert len(host.posts) == 5
    assert len(set(keys(host))) == 1
    assert {request.content for request in host.posts} == {host.posts[0].content}
    assert sent(host.posts[0]) == {"message": "Hello", "metadata": {"a": 1}, "agent": "demo"}


async def test_every_message_has_a_key_of_its_own() -> None:
    host = ScriptedHost()
    async with host.client() as client:
        session = host.session(client)
        for _ in range(3):
            host.log.follow_up().finish("")
            host.replies.append(host.accepted())
            await session.send("And then?")
    assert len(set(keys(host))) == 3


async def test_a_follow_up_carries_the_token_in_force_and_takes_the_new_one() -> None:
    host = ScriptedHost()
    async with host.client() as client:
        session = host.session(client)
        before = session.continuation_token
        host.log.follow_up("And then?").finish("")
        host.replies.append(host.accepted())
        turn = await session.send("And then?")
        assert sent(host.posts[0]) == {
            "continuationToken": before,
            "message": "And then?",
            "onBusy": "reject",
        }
        assert session.continuation_token == host.log.state.token != before
        assert (turn.turn_id, turn.is_queued) == (host.log.turn_id, False)
        assert session.turn is turn


async def test_a_message_that_was_given_up_is_sent_again_as_it_was_under_its_key() -> None:
    host = ScriptedHost()
    async with host.client(bounds={"tries": 2}) as client:
        session = host.session(client)
        host.replies.extend([LOST_AFTER, LOST_AFTER])
        with pytest.raises(GaveUp) as caught:
            await session.send("And then?")
        assert caught.value.session_id == session.session_id
        assert caught.value.key == keys(host)[0]
        host.log.follow_up("And then?").say("so").finish("so")  # it had arrived
        _ = [event async for event in session.events()]
        assert session.continuation_token == host.log.state.token
        restored = client.restore(json.loads(json.dumps(session.state)))
        host.replies.append(host.accepted())
        turn = await restored.send("And then?", key=caught.value.key)
        assert (await turn.result()).text == "so"
    assert len({(request.headers["idempotency-key"], request.content) for request in host.posts}) == 1
    assert restored.state["unanswered"] is None


async def test_another_message_under_an_old_key_is_sent_as_it_is_and_left_to_the_host_to_refuse() -> None:
    host = ScriptedHost()
    async with host.client(bounds={"tries": 1}) as client:
        session = host.session(client)
        host.replies.extend([LOST_AFTER, refused(409, "IDEMPOTENCY_CONFLICT")])
        with pytest.raises(GaveUp) as caught:
            await session.send("one")
        with pytest.raises(IdempotencyConflict):
            await session.send("two", key=caught.value.key)
    assert [sent(request)["message"] for request in host.posts] == ["one", "two"]


async def test_a_start_that_was_given_up_says_its_key_and_no_session() -> None:
    host = ScriptedHost()
    async with host.client(bounds={"tries": 3}) as client:
        host.replies.extend([LOST_AFTER] * 3)
        with pytest.raises(GaveUp, match="a new session") as caught:
            await client.start("Hello")
        assert (caught.value.session_id, caught.value.cursor, caught.value.tries) == (None, 0, 3)
        host.replies.append(host.accepted())
        await client.start("Hello", key=caught.value.key)
    assert len(set(keys(host))) == 1


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "BAD_REQUEST", BadRequest),
        (401, "UNAUTHORIZED", Unauthorized),
        (403, "FORBIDDEN", Forbidden),
        (404, "SESSION_NOT_FOUND", SessionNotFound),
        (409, "CONTINUATION_TOKEN_STALE", ContinuationTokenStale),
        (409, "SESSION_BUSY", SessionBusy),
        (409, "SESSION_TERMINAL", SessionTerminal),
        (409, "IDEMPOTENCY_CONFLICT", IdempotencyConflict),
        (413, "BODY_TOO_LARGE", TooLarge),
        (500, "INTERNAL", Unavailable),
        (507, "STORAGE_FULL", StorageUnavailable),
    ],
)
async def test_a_refusal_is_raised_at_once(status: int, code: str, error: type[Refused]) -> None:
    host = ScriptedHost()
    async with host.client() as client:
        host.replies.append(refused(status, code, pendingRequestIds=["req_1"]))
        with pytest.raises(error) as caught:
            await host.session(client).send("And then?")
    assert (caught.value.code, caught.value.status, str(caught.value)) == (code, status, f"It is {code}.")
    assert len(host.posts) == 1
    if isinstance(caught.value, SessionBusy):
        assert caught.value.pending_request_ids == ["req_1"]


async def test_a_full_host_is_tried_again_and_then_given_up_with_its_reason() -> None:
    host = ScriptedHost()
    async with host.client(bounds={"tries": 3}) as client:
        host.replies.extend([refused(429, "TOO_MANY_SESSIONS") for _ in range(3)])
        with pytest.raises(GaveUp) as caught:
            await client.start("Hello")
    assert isinstance(caught.value.__cause__, TooMany)


async def test_a_stale_token_is_refreshed_only_when_asked() -> None:
    host = ScriptedHost()
    async with host.client() as client:
        session = client.restore(new_saved_state(host.session_id, "zhin:old", -1))
        host.replies.append(refused(409, "CONTINUATION_TOKEN_STALE"))
        with pytest.raises(ContinuationTokenStale):
            await session.send("And then?")
        assert session.continuation_token == "zhin:old"
        assert (await session.refresh())["status"] == "waiting"
        assert session.continuation_token == host.log.state.token


async def test_an_old_event_brings_no_old_token_back() -> None:
    host = ScriptedHost()
    host.log.follow_up().finish("")
    async with host.client() as client:
        session = host.session(client)
        events = session.events()
        for _ in range(4):
            await anext(events)
        await events.aclose()
        assert session.continuation_token == host.log.state.token
        restored = client.restore(session.state)
        await anext(restored.events())
        assert restored.continuation_token == host.log.state.token


# -- the other requests ----------------------------------------------------------------------------------------------


async def test_an_answer_is_sent_until_it_is_answered_and_says_when_it_was_there_before() -> None:
    host = ScriptedHost()
    host.replies.extend([LOST_AFTER, ok(requestId="req_1", approved=True, alreadyAnswered=True)])
    async with host.client() as client:
        answer = await host.session(client).answer("req_1", approved=True, comment="fine")
    assert (answer.request_id, answer.value, answer.is_repeated) == ("req_1", True, True)
    assert [sent(request) for request in host.posts] == [
        {"approved": True, "requestId": "req_1", "comment": "fine"}
    ] * 2


async def test_a_request_is_named_by_its_id_its_event_or_its_view() -> None:
    host = ScriptedHost(LogBuilder().start().ask_approval("call_1"))
    view = View()
    for event in host.events:
        view = fold(view, event)
    [asked] = [event for event in host.events if event.type == ev.INPUT_REQUESTED]
    [shown] = view.open_requests
    async with host.client() as client:
        for request in (asked, shown, shown.request_id):
            host.replies.append(ok(approved=False, alreadyAnswered=False))
            answer = await host.session(client).answer(request, approved=False)
            assert (answer.value, answer.is_repeated) == (False, False)
    assert {sent(request)["requestId"] for request in host.posts} == {shown.request_id}
    assert isinstance(shown, Request)


async def test_none_answers_a_question() -> None:
    host = ScriptedHost()
    host.replies.append(ok(response=None, alreadyAnswered=False))
    async with host.client() as client:
        await host.session(client).answer("req_1", response=None)
    assert sent(host.posts[0]) == {"response": None, "requestId": "req_1"}


async def test_an_authorization_is_completed_where_it_belongs() -> None:
    host = ScriptedHost()
    host.replies.append(ok(success=False, alreadyAnswered=False))
    async with host.client() as client:
        await host.session(client).answer("req_1", success=False, error="no")
    assert host.posts[0].url.path == "/zhin/v1/authorization/req_1/complete"
    assert sent(host.posts[0]) == {"success": False, "sessionId": host.session_id, "error": "no"}


@pytest.mark.parametrize("given", [{}, {"approved": True, "response": 1}, {"comment": "?"}])
async def test_an_answer_is_exactly_one_thing(given: dict[str, Any]) -> None:
    host = ScriptedHost()
    async with host.client() as client:
        with pytest.raises(TypeError, match="exactly one"):
            await host.session(client).answer("req_1", **given)
    assert host.requests == []


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (409, "REQUEST_ALREADY_ANSWERED", RequestAlreadyAnswered),
        (404, "REQUEST_NOT_FOUND", RequestNotFound),
        (404, "AUTHORIZATION_REQUEST_NOT_FOUND", RequestNotFound),
    ],
)
async def test_an_answer_that_does_not_count_is_an_error(
    status: int, code: str, error: type[Refused]
) -> None:
    host = ScriptedHost()
    host.replies.append(refused(status, code))
    async with host.client() as client:
        with pytest.raises(error):
            await host.session(client).answer("req_1", approved=True)


async def test_a_cancel_names_the_open_turn_so_that_its_repetition_hits_no_other() -> None:
    host = ScriptedHost(LogBuilder().start())
    host.replies.extend([ok(**host.view()), LOST_AFTER, ok(status="accepted")])
    async with host.client() as client:
        assert await host.session(client).cancel() is True
    assert [sent(request) for request in host.posts] == [{"turnId": host.log.turn_id}] * 2


async def test_a_cancel_where_no_turn_is_open_sends_nothing() -> None:
    host = ScriptedHost()
    async with host.client() as client:
        assert await host.session(client).cancel() is False
    assert host.posts == []


async def test_a_turn_that_is_over_was_not_cancelled() -> None:
    host = ScriptedHost()
    host.replies.extend([host.accepted(), ok(status="no_active_turn")])
    async with host.client() as client:
        session = await client.start("Hello")
        assert await session.turn.cancel() is False


async def test_an_end_whose_answer_is_lost_is_said_again_and_found_done() -> None:
    host = ScriptedHost()
    over = {**host.view(), "status": "failed"}
    host.replies.extend([LOST_AFTER, refused(409, "SESSION_TERMINAL"), ok(**over)])
    async with host.client() as client:
        await host.session(client).end("failed", "No use.")
    assert [sent(request) for request in host.posts] == [{"outcome": "failed", "message": "No use."}] * 2


async def test_a_session_that_ended_otherwise_is_not_ended_again() -> None:
    host = ScriptedHost()
    host.replies.extend([refused(409, "SESSION_TERMINAL"), ok(**{**host.view(), "status": "failed"})])
    async with host.client() as client:
        with pytest.raises(SessionTerminal):
            await host.session(client).end()
    assert sent(host.posts[0]) == {"outcome": "completed"}


async def test_a_resume_is_not_repeated_where_it_may_have_arrived() -> None:
    host = ScriptedHost()
    async with host.client() as client:
        session = host.session(client)
        host.replies.append(LOST_AFTER)
        with pytest.raises(GaveUp):
            await session.resume()
        assert len(host.posts) == 1
        host.replies.extend([LOST_BEFORE, refused(503, "SHUTTING_DOWN"), host.accepted()])
        turn = await session.resume()
        assert turn.turn_id == host.log.turn_id
        assert len(host.posts) == 4
    assert all("idempotency-key" not in request.headers for request in host.posts)


async def test_opening_a_session_takes_its_token_and_begins_at_0() -> None:
    host = ScriptedHost()
    async with host.client() as client:
        session = await client.open(host.session_id)
        assert (session.cursor, session.continuation_token) == (0, host.log.state.token)
        assert [event async for event in session.events()] == host.events
        with pytest.raises(LookupError, match="begun no turn"):
            _ = session.turn


async def test_the_bearer_goes_with_every_request_and_not_into_the_state() -> None:
    host = ScriptedHost()
    host.replies.append(host.accepted())
    async with host.client(bearer="s3cret") as client:
        session = await client.start("Hello")
        _ = [event async for event in session.turn]
    assert {request.headers["authorization"] for request in host.requests} == {"Bearer s3cret"}
    assert "s3cret" not in json.dumps(session.state)


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/zhin/v1", "http://h:1/zhin/v1/"])
async def test_the_address_may_hold_the_base_or_not(url: str) -> None:
    host = ScriptedHost()
    async with Client(url, transport=host) as client:
        await client.open(host.session_id)
    assert str(host.requests[0].url) == f"http://h:1/zhin/v1/session/{host.session_id}"


def test_an_address_is_one_of_http() -> None:
    with pytest.raises(ValueError, match="begins with http"):
        Client("localhost:8787")


async def test_an_id_cannot_leave_its_place_in_the_path() -> None:
    host = ScriptedHost()
    host.replies.append(refused(404, "SESSION_NOT_FOUND"))
    async with host.client() as client:
        with pytest.raises(SessionNotFound):
            await client.open("../sessions?x=")
    assert host.requests[0].url.raw_path == b"/zhin/v1/session/..%2Fsessions%3Fx%3D"


@pytest.mark.parametrize(
    "reply", [httpx.Response(200, text="hello"), httpx.Response(200, json=[1]), httpx.Response(404)]
)
async def test_what_no_host_says_is_no_answer(reply: httpx.Response) -> None:
    host = ScriptedHost()
    host.replies.append(reply)
    async with host.client() as client:
        with pytest.raises(BadResponse):
            await client.open(host.session_id)


# -- saved state -----------------------------------------------------------------------------------------------------


async def test_a_state_saved_after_any_event_goes_on_with_the_next_one() -> None:
    host = ScriptedHost()
    host.replies.append(host.accepted())
    async with host.client() as client:
        session = await client.start("Hello")
        states = [json.dumps(session.state)]
        async for _ in session.turn:
            states.append(json.dumps(session.state))  # noqa: PERF401 - each as it is then
        for count, state in enumerate(states):
            restored = client.restore(json.loads(state))
            assert restored.cursor == count
            assert [event async for event in restored.events()] == host.events[count:]
            again = client.restore(json.loads(state))
            assert [event async for event in again.turn.events(again.cursor)] == host.events[count:]


async def test_restoring_asks_the_host_nothing_and_never_begins_a_session() -> None:
    host = ScriptedHost()
    async with host.client() as client:
        session = client.restore(host.session(client).state)
        assert host.requests == []
        host.replies.append(refused(404, "SESSION_NOT_FOUND"))
        with pytest.raises(SessionNotFound):
            await session.send("And then?")
    assert [request.url.path for request in host.requests] == [f"/zhin/v1/session/{host.session_id}"]


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"version": 2},
        {"version": 1, "sessionId": "x"},
        {"version": 1, "sessionId": "x", "continuationToken": "y", "tokenIndex": None},
    ],
)
async def test_what_is_no_state_is_refused(state: dict[str, Any]) -> None:
    async with Client("http://localhost") as client:
        with pytest.raises(ValueError, match=r"state"):
            client.restore(state)


async def test_reading_and_answering_need_no_stream_closed() -> None:
    log = LogBuilder().start().ask_approval("call_1")
    host = ScriptedHost(log)
    host.bodies.append(broken_at(10_000))
    async with host.client() as client:
        session = host.session(client)
        events = session.events(start=0, until="never")
        asked = [await anext(events) for _ in log.lines]
        host.replies.append(ok(approved=True, alreadyAnswered=False))
        await session.answer(asked[-3], approved=True)
        log.answer("call_1").result("call_1").finish("")
        got = [await anext(events) for _ in range(len(log.lines) - len(asked))]
        await events.aclose()
    assert asked + got == host.events
