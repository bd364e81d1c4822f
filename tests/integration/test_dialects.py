"""The door for other protocols: their routes stand behind the same guard, authentication, limits and log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx
import orjson
import pytest
from starlette.types import ASGIApp

from zhin_host import Turn, create_agent_session_host
from zhin_host.http import BearerTokens
from zhin_host.http.door import Call, Door, Endpoint, Handler
from zhin_host.http.streaming import StreamReply
from zhin_host.protocols.threads import Threads

TOKENS = "ada aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\nbob bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"
ADA, BOB = ({"authorization": f"Bearer {letter * 32}"} for letter in "ab")


async def echo(turn: Turn) -> None:
    await turn.say(turn.message)


class Shouted:
    """Says each message.appended in capitals, a line each, and is over with the turn."""

    headers = ((b"content-type", b"text/plain"),)

    def __init__(self) -> None:
        self.is_over = False

    def first(self) -> bytes:
        return b"<"

    def frame(self, block: bytes) -> bytes:
        said = b""
        for line in block.splitlines():
            event = orjson.loads(line)
            if event["type"] == "message.appended":
                said += event["data"]["messageDelta"].upper().encode() + b"\n"
            self.is_over = self.is_over or event["type"] == "turn.completed"
        return said

    def last(self) -> bytes:
        return b">"


class Shout:
    """A protocol of one route."""

    def routes(self, door: Door) -> Mapping[str, Mapping[str, tuple[Endpoint, Handler]]]:
        threads = Threads(door.store, "shout")

        async def shout(call: Call) -> ASGIApp:
            body = await door.body(call)
            who = await door.who(call)
            thread, run, message = str(body["thread"]), str(body["run"]), str(body["message"])
            accepted = await threads.send(who, "echo", thread, run, message, message)
            subscription = await door.store.subscribe(who, accepted.session_id, accepted.start_index, "never")
            return StreamReply(subscription, Shouted())

        return {"/shout": {"POST": (Endpoint("shout", "write"), shout)}}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKENS)
    tokens.chmod(0o600)
    host = create_agent_session_host(
        echo, dialects=[Shout()], authenticator=BearerTokens.from_file(tokens), any_host=True
    )
    transport = httpx.ASGITransport(host.app)
    async with host, httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def test_another_protocol_starts_and_continues_sessions_and_frames_their_events_as_it_likes(
    client: httpx.AsyncClient,
) -> None:
    first = await client.post("/shout", json={"thread": "t", "run": "1", "message": "hello"}, headers=ADA)
    assert (first.status_code, first.headers["content-type"], first.text) == (200, "text/plain", "<HELLO\n>")
    second = await client.post("/shout", json={"thread": "t", "run": "2", "message": "again"}, headers=ADA)
    assert second.text == "<AGAIN\n>"
    assert second.headers["x-zhin-session-id"] == first.headers["x-zhin-session-id"]


async def test_the_same_run_again_is_the_same_turn_and_with_other_words_it_is_refused(
    client: httpx.AsyncClient,
) -> None:
    for run in ("1", "2"):
        body = {"thread": "t", "run": run, "message": f"hello {run}"}
        said = {(await client.post("/shout", json=body, headers=ADA)).text for _ in range(2)}
        assert said == {f"<HELLO {run}\n>"}
        refused = await client.post("/shout", json={**body, "message": "something else"}, headers=ADA)
        assert (refused.status_code, refused.json()["error"]) == (409, "IDEMPOTENCY_CONFLICT")
    listed = (await client.get("/zhin/v1/sessions", headers=ADA)).json()["sessions"]
    assert [row["metadata"]["threadId"] for row in listed] == ["t"]


async def test_a_thread_is_its_callers_own_whatever_others_call_theirs(client: httpx.AsyncClient) -> None:
    body = {"thread": "t", "run": "1", "message": "hello"}
    ids = {
        (await client.post("/shout", json=body, headers=who)).headers["x-zhin-session-id"]
        for who in (ADA, BOB, ADA)
    }
    assert len(ids) == 2


async def test_names_that_no_key_may_have_are_threads_like_others(client: httpx.AsyncClient) -> None:
    for thread in ("ein Gespräch", "x" * 300):
        for run in ("erster Zug", "zweiter Zug"):
            body = {"thread": thread, "run": run, "message": run}
            assert (await client.post("/shout", json=body, headers=ADA)).text == f"<{run.upper()}\n>"
    assert len((await client.get("/zhin/v1/sessions", headers=ADA)).json()["sessions"]) == 2


async def test_its_callers_are_authenticated_and_its_bodies_limited_as_everywhere(
    client: httpx.AsyncClient,
) -> None:
    body = {"thread": "t", "run": "1", "message": "hello"}
    assert (await client.post("/shout", json=body)).json()["error"] == "UNAUTHORIZED"
    foreign = {**ADA, "origin": "http://evil.example"}
    assert (await client.post("/shout", json=body, headers=foreign)).status_code == 403
    assert (await client.post("/shout", json=[], headers=ADA)).json()["error"] == "BAD_REQUEST"
    assert (await client.get("/shout", headers=ADA)).status_code == 405
