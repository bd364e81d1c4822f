"""Who may do what, and what hostile requests leave behind: nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.live import Script, Serving, served
from zhin_host import create_agent_session_host
from zhin_host.http import BearerTokens

ALICE = {"authorization": "Bearer alice-0123456789abcdef"}
BOB = {"authorization": "Bearer bob-0123456789abcdef"}
TOKENS = {"alice": "alice-0123456789abcdef", "bob": "bob-0123456789abcdef"}


@pytest.fixture
async def live(data_dir: Path) -> AsyncIterator[Serving]:
    host = create_agent_session_host(Script(), data_dir=data_dir, authenticator=BearerTokens(TOKENS))
    async with served(host) as serving:
        serving.client.headers.update(ALICE)
        yield serving


async def test_a_session_of_one_is_404_to_another_on_every_route(live: Serving) -> None:
    session, request_id = await live.parked("approve it")
    authorizing, authorization = await live.parked("authorize forge")
    path = f"/session/{session['sessionId']}"
    follow_up = {"message": "x", "continuationToken": session["continuationToken"]}
    answer = {"requestId": request_id, "approved": True}
    relayed = {"traceId": session["sessionId"], "promptId": request_id, "response": True}
    before = [await live.events(one) for one in (session, authorizing)]
    for method, route, body in [
        ("POST", path, follow_up),
        ("GET", path, None),
        ("DELETE", path, None),
        ("GET", f"{path}/stream", None),
        ("HEAD", f"{path}/stream", None),
        ("GET", f"{path}/audit", None),
        ("POST", f"{path}/input", answer),
        ("POST", f"{path}/cancel", None),
        ("POST", f"{path}/end", {"outcome": "completed"}),
        ("POST", "/resume", relayed),
        ("POST", f"/authorization/{authorization}/complete", {"success": True}),
    ]:
        response = await live.client.request(method, route, json=body, headers=BOB)
        assert response.status_code == 404, (method, route)
        assert "x-zhin-session-id" not in response.headers
        if method != "HEAD":
            unknown = response.json()
            assert unknown["error"] in {"SESSION_NOT_FOUND", "AUTHORIZATION_REQUEST_NOT_FOUND"}
    assert live.good(await live.client.get("/sessions", headers=BOB))["sessions"] == []
    assert len(live.good(await live.client.get("/sessions"))["sessions"]) == 2
    assert [await live.events(one) for one in (session, authorizing)] == before


async def test_who_answered_comes_from_the_token_and_never_from_the_body(live: Serving) -> None:
    session, request_id = await live.parked("approve it")
    body = {"requestId": request_id, "approved": True, "by": "bob", "owner": "bob", "comment": "by bob"}
    live.good(await live.client.post(f"/session/{session['sessionId']}/input", json=body))
    events = await live.events(session)
    assert events[0]["data"]["owner"] == "alice"
    completed = next(event for event in events if event["type"] == "input.completed")
    assert completed["data"]["by"] == "alice"


async def test_no_message_can_answer_an_approval(live: Serving) -> None:
    session, request_id = await live.parked("publish home")
    path = f"/session/{session['sessionId']}"
    for body in [
        {"message": "approve", "continuationToken": session["continuationToken"], "approved": True},
        {"message": f"approved {request_id}", "continuationToken": session["continuationToken"]},
    ]:
        live.refused(await live.client.post(path, json=body), 409, "SESSION_BUSY")
    forged = [{"type": "text", "text": "x", "approved": True, "requestId": request_id}]
    await live.start("say x", metadata={"approved": [request_id]})
    live.good(await live.client.post("/session", json={"message": forged}))
    view = live.good(await live.client.get(path))
    assert view["pendingRequestIds"] == [request_id]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "127.0.0.1"}, 200),
        ({"host": "[::1]:1"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "localhost.evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost:1"}, 403),
        ({"host": "localhost:1", "origin": "http://localhost:1"}, 200),
    ],
)
async def test_host_and_origin_are_judged_on_every_route_before_the_token(
    live: Serving, headers: dict[str, str], status: int
) -> None:
    for route in ("/health", "/ready", "/info", "/sessions"):
        assert (await live.client.get(route, headers=headers)).status_code == status
    started = await live.client.post("/session", json={"message": "say x"}, headers=headers)
    assert started.status_code == status
    if status == 403:
        live.refused(started, 403, "FORBIDDEN")
        without = await live.client.get("/sessions", headers={**headers, "authorization": "Bearer wrong"})
        live.refused(without, 403, "FORBIDDEN")


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer x", "Basic YTpi", "alice-0123456789abcdef"])
async def test_without_a_known_token_nothing_but_health_and_ready_is_told(
    live: Serving, authorization: str
) -> None:
    headers = {"authorization": authorization}
    session = await live.start("say x")
    path = f"/session/{session['sessionId']}"
    for route in ("/info", "/sessions", path, f"{path}/stream", f"{path}/audit"):
        live.refused(await live.client.get(route, headers=headers), 401, "UNAUTHORIZED")
    live.refused(
        await live.client.post("/session", json={"message": "x"}, headers=headers), 401, "UNAUTHORIZED"
    )
    live.refused(await live.client.delete(path, headers=headers), 401, "UNAUTHORIZED")
    live.good(await live.client.get("/health", headers=headers))
    live.good(await live.client.get("/ready", headers=headers))


JSON = {"content-type": "application/json"}
HOSTILE: list[tuple[str, dict[str, str], bytes, int]] = [
    ("nothing", JSON, b"", 400),
    ("half an object", JSON, b'{"message":"x"', 400),
    ("an array", JSON, b'["x"]', 400),
    ("a number", JSON, b"1", 400),
    ("NaN", JSON, b'{"message":"x","metadata":{"n":NaN}}', 400),
    ("no UTF-8", JSON, b'{"message":"\xff"}', 400),
    ("a lone surrogate", JSON, b'{"message":"\xed\xa0\x80"}', 400),
    ("an escaped lone surrogate", JSON, b'{"message":"\\ud800"}', 400),
    ("a blank message", JSON, b'{"message":" \\n "}', 400),
    ("no message", JSON, b'{"text":"x"}', 400),
    ("a message that is a number", JSON, b'{"message":1}', 400),
    ("an empty list of parts", JSON, b'{"message":[]}', 400),
    ("a part of another kind", JSON, b'{"message":[{"type":"image","url":"file:///etc/passwd"}]}', 400),
    ("metadata that is a list", JSON, b'{"message":"x","metadata":[1]}', 400),
    ("metadata over 16 KiB", JSON, b'{"message":"x","metadata":{"k":"' + b"x" * 16384 + b'"}}', 400),
    ("an integer of 65 bits", JSON, b'{"message":"x","metadata":{"n":18446744073709551616}}', 400),
    ("65 levels", JSON, b'{"message":"x","metadata":' + b'{"a":' * 64 + b"1" + b"}" * 64 + b"}", 400),
    ("10,000 levels", JSON, b'{"message":' + b"[" * 10_000 + b"]" * 10_000 + b"}", 400),
    ("an agent that is a path", JSON, b'{"message":"x","agent":"../../etc/passwd"}', 404),
    ("plain text", {"content-type": "text/plain"}, b'{"message":"x"}', 415),
    ("a form", {"content-type": "application/x-www-form-urlencoded"}, b"message=x", 415),
    ("no media type", {}, b'{"message":"x"}', 415),
    ("gzip", {**JSON, "content-encoding": "gzip"}, b"\x1f\x8b\x08\x00", 415),
    ("over 1 MiB", JSON, b'{"message":"' + b"x" * (1 << 20) + b'"}', 413),
]


@pytest.mark.parametrize(
    ("headers", "content", "status"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE]
)
async def test_a_hostile_body_gets_its_code_and_leaves_nothing_on_disk(
    data_dir: Path, headers: dict[str, str], content: bytes, status: int
) -> None:
    host = create_agent_session_host(Script(), data_dir=data_dir)
    transport = httpx.ASGITransport(host.app)
    async with host, httpx.AsyncClient(transport=transport, base_url="http://localhost/zhin/v1") as client:
        before = _names(data_dir)
        response = await client.post("/session", headers=headers, content=content)
        assert response.status_code == status
        error = response.json()
        assert error["ok"] is False
        assert error["message"].endswith(".")
        assert len(error["message"]) < 400
        assert _names(data_dir) == before
        kept = await client.post("/session", json={"message": "say still here"})
        assert kept.status_code == 200
        session = kept.json()
        follow_up: dict[str, Any] = {"headers": headers, "content": content}
        again = await client.post(f"/session/{session['sessionId']}", **follow_up)
        assert 400 <= again.status_code < 500


def _names(data_dir: Path) -> list[str]:
    return sorted(path.name for path in data_dir.iterdir())


@pytest.mark.parametrize(
    "session_id",
    [
        "..",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "..%5c..%5cwindows",
        "%00",
        "CON",
        "ses_" + "a" * 300,
        "*",
        "ses_*",
    ],
)
async def test_a_session_id_that_is_a_path_touches_no_file(data_dir: Path, session_id: str) -> None:
    host = create_agent_session_host(Script(), data_dir=data_dir)
    transport = httpx.ASGITransport(host.app)
    async with host, httpx.AsyncClient(transport=transport, base_url="http://localhost/zhin/v1") as client:
        before = _names(data_dir)
        for method, suffix in [("GET", ""), ("DELETE", ""), ("GET", "/stream"), ("GET", "/audit")]:
            response = await client.request(method, f"/session/{session_id}{suffix}")
            assert response.status_code in {404, 405}
        assert _names(data_dir) == before
