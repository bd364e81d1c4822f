"""The app over a store that only remembers: what each route asks of it and answers, and in which order it judges."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount
from starlette.types import ASGIApp

from tests.edge import OTHER_SESSION, REQUEST, SESSION, TOKEN, FakeStore, Stage, app_of
from zhin_host.errors import (
    AgentUnavailable,
    RequestError,
    SessionNotFound,
    ShuttingDown,
    StorageFull,
    StorageUnavailable,
)
from zhin_host.http import BearerTokens

ALICE = "alice-0123456789abcdef"
BASE = "http://localhost:8787/zhin/v1"


def client_of(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE)


ACCEPTED = {"ok": True, "sessionId": SESSION, "continuationToken": TOKEN}
AS_ALICE = {"authorization": f"Bearer {ALICE}"}

ROUTES: list[tuple[str, str, Any, tuple[Any, ...], dict[str, Any]]] = [
    (
        "POST",
        "/session",
        {"message": "hello", "metadata": {"k": 1}, "agent": "a"},
        ("start", None, "hello", {"k": 1}, "a"),
        {**ACCEPTED, "turnId": "turn_1", "startIndex": 0},
    ),
    (
        "POST",
        f"/session/{SESSION}",
        {"message": [{"type": "text", "text": "x"}], "continuationToken": "anything"},
        ("proceed", None, SESSION, "anything", [{"type": "text", "text": "x"}]),
        {**ACCEPTED, "turnId": "turn_2", "startIndex": 9},
    ),
    (
        "POST",
        f"/session/{SESSION}/input",
        {"requestId": REQUEST, "approved": False, "comment": "no"},
        ("answer", None, SESSION, REQUEST, {"approved": False}, "no"),
        {"ok": True, "sessionId": SESSION, "requestId": REQUEST, "approved": False, "alreadyAnswered": False},
    ),
    (
        "POST",
        f"/session/{SESSION}/input",
        {"requestId": REQUEST, "response": {"a": None}},
        ("answer", None, SESSION, REQUEST, {"response": {"a": None}}, None),
        {
            "ok": True,
            "sessionId": SESSION,
            "requestId": REQUEST,
            "response": {"a": None},
            "alreadyAnswered": False,
        },
    ),
    (
        "POST",
        "/resume",
        {"traceId": SESSION, "promptId": REQUEST, "response": "approve"},
        ("answer_relayed", None, SESSION, REQUEST, "approve"),
        {"ok": True, "sessionId": SESSION, "requestId": REQUEST, "approved": True, "alreadyAnswered": True},
    ),
    (
        "POST",
        f"/authorization/{REQUEST}/complete",
        {"success": False, "error": "refused", "sessionId": SESSION},
        ("authorize", None, REQUEST, False, "refused", SESSION),
        {"ok": True, "sessionId": SESSION, "requestId": REQUEST, "success": False, "alreadyAnswered": False},
    ),
    (
        "POST",
        f"/session/{SESSION}/cancel",
        {"turnId": "turn_1"},
        ("cancel", None, SESSION, "turn_1"),
        {"ok": True, "sessionId": SESSION, "status": "accepted"},
    ),
    (
        "POST",
        f"/session/{SESSION}/cancel",
        None,
        ("cancel", None, SESSION, None),
        {"ok": True, "sessionId": SESSION, "status": "accepted"},
    ),
    (
        "POST",
        f"/session/{SESSION}/end",
        {"outcome": "failed", "message": "enough"},
        ("end", None, SESSION, "failed", "enough"),
        {"ok": True, "sessionId": SESSION, "status": "failed"},
    ),
    ("DELETE", f"/session/{SESSION}", None, ("delete", None, SESSION), {"ok": True, "sessionId": SESSION}),
    (
        "GET",
        f"/session/{SESSION}",
        None,
        ("view", None, SESSION),
        {"ok": True, "sessionId": SESSION, "status": "waiting", "cursor": 9},
    ),
    ("GET", f"/session/{SESSION}/audit", None, ("audit", None, SESSION), {"ok": False, "faults": []}),
    (
        "GET",
        "/sessions",
        None,
        ("page", None, None, 50, None),
        {"ok": True, "sessions": [{"sessionId": SESSION}]},
    ),
    (
        "GET",
        f"/sessions?status=running&limit=200&before={SESSION}",
        None,
        ("page", None, "running", 200, SESSION),
        {"ok": True, "sessions": [{"sessionId": SESSION}]},
    ),
]
ROUTE_IDS = [
    f"{method} {path}" + ("" if body is None else f" {list(body)}") for method, path, body, _, _ in ROUTES
]


@pytest.mark.parametrize(("method", "path", "body", "call", "answer"), ROUTES, ids=ROUTE_IDS)
async def test_a_route_makes_one_call_of_the_store_and_renders_what_it_gives(
    method: str, path: str, body: Any, call: tuple[Any, ...], answer: dict[str, Any]
) -> None:
    store = FakeStore()
    async with client_of(app_of(store)) as client:
        response = await client.request(method, path, json=body)
    assert response.status_code == 200
    assert response.json() == answer
    assert store.calls == [call]
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    if not path.startswith("/sessions"):
        assert response.headers["x-zhin-session-id"] == SESSION


@pytest.mark.parametrize(("method", "path", "body", "call", "answer"), ROUTES, ids=ROUTE_IDS)
async def test_every_route_that_tells_of_sessions_needs_a_token_where_there_are_tokens(
    method: str, path: str, body: Any, call: tuple[Any, ...], answer: dict[str, Any]
) -> None:
    store = FakeStore()
    async with client_of(app_of(store, authenticator=BearerTokens({"alice": ALICE}))) as client:
        refused = await client.request(method, path, json=body)
        in_query = await client.request(
            method, path, json=body, params={"token": ALICE, "access_token": ALICE}
        )
        assert refused.status_code == in_query.status_code == 401
        assert refused.json()["error"] == "UNAUTHORIZED"
        assert refused.headers["www-authenticate"] == "Bearer"
        assert "x-zhin-session-id" not in refused.headers
        assert store.calls == []
        assert (await client.request(method, path, json=body, headers=AS_ALICE)).status_code == 200
    assert store.calls == [(call[0], "alice", *call[2:])]


@pytest.mark.parametrize(("method", "path", "body", "call", "answer"), ROUTES, ids=ROUTE_IDS)
async def test_a_foreign_host_or_origin_reaches_no_route(
    method: str, path: str, body: Any, call: tuple[Any, ...], answer: dict[str, Any]
) -> None:
    store = FakeStore()
    async with client_of(app_of(store)) as client:
        for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}, {"origin": "null"}):
            response = await client.request(method, path, json=body, headers=headers)
            assert response.status_code == 403
            assert response.json()["error"] == "FORBIDDEN"
    assert store.calls == []


@pytest.mark.parametrize("path", ["/health", "/ready", "/info", "/nowhere", "/zhin/v1/health"])
async def test_a_foreign_host_is_told_nothing_even_of_health(path: str) -> None:
    async with client_of(app_of(FakeStore())) as client:
        assert (await client.get(path, headers={"host": "evil.example"})).status_code == 403


async def test_health_and_ready_need_no_token_and_info_does() -> None:
    store = FakeStore()
    async with client_of(app_of(store, authenticator=BearerTokens({"alice": ALICE}))) as client:
        health = await client.get("/health")
        assert (health.status_code, health.json()) == (200, {"ok": True, "service": "zhin-agent-session"})
        assert (await client.get("/ready")).json() == {"ok": True}
        assert (await client.get("/info")).status_code == 401
        info = await client.get("/info", headers=AS_ALICE)
        assert info.json() == {"ok": True, "agents": [{"name": "scripted"}]}


@pytest.mark.parametrize("reason", [ShuttingDown(), StorageUnavailable("Gone."), StorageFull("Full.")])
async def test_ready_is_503_whatever_the_reason_and_health_stays_well(reason: RequestError) -> None:
    store = FakeStore()
    store.error = reason
    async with client_of(app_of(store)) as client:
        ready = await client.get("/ready")
        assert ready.status_code == 503
        assert ready.json() == {"ok": False, "error": reason.code, "message": str(reason)}
        assert ready.headers["retry-after"]
        assert (await client.get("/health")).status_code == 200


MALFORMED = [
    "ses_",
    "SES_01JDQ3V2K0000000000000000A",
    "ses_01jdq3v2k000000000000000il",
    SESSION + "a",
    SESSION[:-1],
    "..%5c..%5cetc",
    "%2e%2e",
    "%00",
    SESSION + "%00",
    SESSION + "%0a",
    "CON",
    "x" * 300,
]


@pytest.mark.parametrize("session_id", MALFORMED)
async def test_what_cannot_be_a_session_id_is_404_and_never_reaches_the_store(session_id: str) -> None:
    store = FakeStore()
    async with client_of(app_of(store)) as client:
        for method, suffix, body in [
            ("GET", "", None),
            ("DELETE", "", None),
            ("POST", "", {"message": "x", "continuationToken": "t"}),
            ("GET", "/stream", None),
            ("GET", "/audit", None),
            ("POST", "/cancel", None),
            ("POST", "/end", {"outcome": "completed"}),
            ("POST", "/input", {"requestId": REQUEST, "approved": True}),
        ]:
            response = await client.request(method, f"/session/{session_id}{suffix}", json=body)
            assert response.status_code == 404, suffix
            assert response.json()["error"] == "SESSION_NOT_FOUND"
            assert "x-zhin-session-id" not in response.headers
        relayed = {"traceId": "../" + session_id, "promptId": REQUEST, "response": True}
        assert (await client.post("/resume", json=relayed)).json()["error"] == "SESSION_NOT_FOUND"
    assert store.calls == []


@pytest.mark.parametrize(
    "path", ["/session/../../etc/passwd", "/session/a/b/c", "/session/%2e%2e/%2e%2e/x/stream"]
)
async def test_a_path_that_climbs_is_404(path: str) -> None:
    store = FakeStore()
    async with client_of(app_of(store)) as client:
        assert (await client.get(path)).status_code == 404
    assert store.calls == []


async def test_what_cannot_be_an_authorization_is_404_and_never_reaches_the_store() -> None:
    store = FakeStore()
    async with client_of(app_of(store)) as client:
        for request_id in ("req_1", REQUEST.upper(), REQUEST + "a", SESSION):
            response = await client.post(f"/authorization/{request_id}/complete", json={"success": True})
            assert response.status_code == 404
            assert response.json()["error"] == "AUTHORIZATION_REQUEST_NOT_FOUND"
        body = {"success": True, "sessionId": "elsewhere"}
        response = await client.post(f"/authorization/{REQUEST}/complete", json=body)
        assert response.json()["error"] == "SESSION_NOT_FOUND"
    assert store.calls == []


@pytest.mark.parametrize(
    "path", ["", "/", "/nowhere", "/session/", "/health/", f"/session/{SESSION}/", "/sessions/x"]
)
async def test_an_unknown_path_is_404_without_a_redirect(path: str) -> None:
    async with client_of(app_of(FakeStore())) as client:
        for method in ("GET", "POST"):
            response = await client.request(method, BASE + path)
            assert response.status_code == 404
            assert response.json()["error"] == "NOT_FOUND"


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/session", "POST"),
        ("DELETE", "/sessions", "GET, HEAD"),
        ("PUT", f"/session/{SESSION}", "DELETE, GET, HEAD, POST"),
        ("POST", f"/session/{SESSION}/stream", "GET, HEAD"),
        ("OPTIONS", "/info", "GET, HEAD"),
        ("BREW", "/health", "GET, HEAD"),
    ],
)
async def test_a_method_that_is_not_for_the_path_is_405_and_told_which_are(
    method: str, path: str, allow: str
) -> None:
    async with client_of(app_of(FakeStore())) as client:
        response = await client.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == allow
    assert response.json()["error"] == "METHOD_NOT_ALLOWED"


@pytest.mark.parametrize("path", ["/health", "/sessions", f"/session/{SESSION}"])
async def test_head_is_get_without_the_body(path: str) -> None:
    async with client_of(app_of(FakeStore())) as client:
        head, get = await client.head(path), await client.get(path)
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers == get.headers


@pytest.mark.parametrize(
    "query",
    [
        "status=parked",
        "status=",
        "status=Running",
        "limit=0",
        "limit=201",
        "limit=-1",
        "limit=",
        "limit=1.0",
        "limit=1e2",
        "limit=%D9%A1",
        "limit=99999999999999999999",
        "before=",
        "before=ses_",
        "before=../x",
        "limit=%FF",
    ],
)
async def test_a_wrong_query_of_the_list_is_400(query: str) -> None:
    store = FakeStore()
    async with client_of(app_of(store)) as client:
        response = await client.get(f"/sessions?{query}")
    assert response.status_code == 400
    assert response.json()["error"] == "BAD_REQUEST"
    assert store.calls == []


async def test_the_next_page_is_named_when_there_is_one() -> None:
    store = FakeStore()
    store.next_before = OTHER_SESSION
    async with client_of(app_of(store)) as client:
        assert (await client.get("/sessions")).json()["nextBefore"] == OTHER_SESSION


async def test_an_idempotency_key_reaches_the_store_with_the_digest_of_the_bodys_bytes() -> None:
    store = FakeStore()
    body = b'{"message": "x"}'
    headers = {"idempotency-key": "k-1", "content-type": "application/json"}
    async with client_of(app_of(store)) as client:
        assert (await client.post("/session", content=body, headers=headers)).status_code == 200
    digest = "sha256:" + hashlib.sha256(body).hexdigest()
    assert store.calls == [("start", None, "x", None, None, "k-1", digest)]


@pytest.mark.parametrize("key", ["", " ", "a b", "k" * 256, "caf\u00e9"])
async def test_a_key_that_is_not_visible_ascii_is_refused(key: str) -> None:
    store = FakeStore()
    async with client_of(app_of(store)) as client:
        response = await client.post(
            "/session", json={"message": "x"}, headers=[(b"idempotency-key", key.encode())]
        )
    assert (response.status_code, response.json()["error"]) == (400, "BAD_REQUEST")
    assert store.calls == []


@pytest.mark.parametrize("policy", ["queue", "interrupt"])
async def test_what_to_do_when_busy_reaches_the_store_and_a_queued_answer_says_so(policy: str) -> None:
    store = FakeStore()
    body = {"message": "x", "continuationToken": "t", "onBusy": policy}
    async with client_of(app_of(store)) as client:
        response = await client.post(f"/session/{SESSION}", json=body)
    assert response.json()["queued"] is True
    assert store.calls == [("proceed", None, SESSION, "t", "x", policy)]


@pytest.mark.parametrize(("body", "token"), [(None, None), ({}, None), ({"continuationToken": "t"}, "t")])
async def test_a_resume_needs_no_body_and_passes_its_token_on(body: Any, token: str | None) -> None:
    store = FakeStore()
    async with client_of(app_of(store)) as client:
        response = await client.post(f"/session/{SESSION}/resume", json=body)
    assert (response.status_code, response.json()["startIndex"]) == (200, 12)
    assert store.calls == [("resume", None, SESSION, token)]


async def test_the_body_is_judged_before_the_caller_and_the_caller_before_the_session() -> None:
    store = FakeStore()
    async with client_of(app_of(store, authenticator=BearerTokens({"alice": ALICE}))) as client:
        assert (await client.post("/session/nonsense", json={})).status_code == 400
        valid = {"message": "x", "continuationToken": "t"}
        assert (await client.post("/session/nonsense", json=valid)).status_code == 401
        assert (await client.post("/session/nonsense", json=valid, headers=AS_ALICE)).status_code == 404
        evil = {**AS_ALICE, "host": "evil.example"}
        assert (await client.post("/session/nonsense", json={}, headers=evil)).status_code == 403


@pytest.mark.parametrize(
    ("headers", "content", "status", "code"),
    [
        ({"content-type": "text/plain"}, b'{"message":"x"}', 415, "UNSUPPORTED_MEDIA_TYPE"),
        ({}, b'{"message":"x"}', 415, "UNSUPPORTED_MEDIA_TYPE"),
        (
            {"content-type": "application/json", "content-encoding": "gzip"},
            b"\x1f\x8b",
            415,
            "UNSUPPORTED_MEDIA_TYPE",
        ),
        ({"content-type": "application/json"}, b'{"message":"' + b"x" * 300 + b'"}', 413, "BODY_TOO_LARGE"),
        ({"content-type": "application/json"}, b"", 400, "BAD_REQUEST"),
        ({"content-type": "application/json"}, b"{", 400, "BAD_REQUEST"),
    ],
)
async def test_a_wrong_body_is_refused_and_changes_nothing(
    headers: dict[str, str], content: bytes, status: int, code: str
) -> None:
    store = FakeStore()
    async with client_of(app_of(store, body_bytes_max=256)) as client:
        response = await client.post("/session", headers=headers, content=content)
    assert response.status_code == status
    assert response.json()["error"] == code
    assert response.json()["message"].endswith(".")
    assert store.calls == []


async def test_an_error_of_the_callers_own_session_names_it() -> None:
    store = FakeStore()
    store.error = AgentUnavailable("Its agent is not hosted.")
    async with client_of(app_of(store)) as client:
        response = await client.get(f"/session/{SESSION}")
        assert response.status_code == 503
        assert response.headers["x-zhin-session-id"] == SESSION
        store.error = SessionNotFound(SESSION)
        assert "x-zhin-session-id" not in (await client.get(f"/session/{SESSION}")).headers


async def test_a_call_that_is_refused_leaves_one_line_without_its_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FakeStore()
    body = {"message": "secret words", "continuationToken": "zhin:secret"}
    with caplog.at_level(logging.INFO, logger="zhin_host.http"):
        async with client_of(app_of(store, authenticator=BearerTokens({"alice": ALICE}))) as client:
            await client.post(f"/session/{SESSION}", json=body, headers=AS_ALICE)
            await client.get(f"/session/{SESSION}", headers=AS_ALICE)
            await client.post("/session", json={"message": "x"}, headers=AS_ALICE)
            store.error = SessionNotFound(SESSION)
            await client.delete(f"/session/{SESSION}", headers=AS_ALICE)
            await client.post("/session", json={})
    assert caplog.messages == [  # what the others have changed is told where it is written
        f"call.refused what=delete sessionId={SESSION} by=alice code=SESSION_NOT_FOUND",
        "call.refused what=start code=BAD_REQUEST",
    ]


async def test_a_stream_is_what_its_parameters_ask_for() -> None:
    store = FakeStore(Stage(5, is_at_rest=True))
    async with client_of(app_of(store)) as client:
        response = await client.get(f"/session/{SESSION}/stream?startIndex=-2&until=tail")
        assert response.content == b"".join(store.stage.log.content.splitlines(keepends=True)[3:])
        seen = {"last-event-id": "3", "accept": "text/event-stream"}
        response = await client.get(f"/session/{SESSION}/stream?until=boundary", headers=seen)
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.text.count("id: ") == 1
        assert "id: 4\n" in response.text
    assert store.calls == [
        ("subscribe", None, SESSION, -2, "tail"),
        ("subscribe", None, SESSION, 4, "boundary"),
    ]


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("startIndex=abc", {}),
        ("startIndex=1e9", {}),
        ("startIndex=" + "1" * 16, {}),
        ("lastEventId=-1", {}),
        ("until=end", {}),
        ("", {"last-event-id": "x"}),
        ("", {"last-event-id": "-1"}),
    ],
)
async def test_a_wrong_cursor_is_400_before_the_store_is_asked(query: str, headers: dict[str, str]) -> None:
    store = FakeStore()
    async with client_of(app_of(store)) as client:
        response = await client.get(f"/session/{SESSION}/stream?{query}", headers=headers)
    assert response.status_code == 400
    assert store.calls == []


async def test_an_event_stream_with_nothing_left_is_204_so_that_a_browser_stops_asking() -> None:
    store = FakeStore(Stage(5, is_over=True))
    async with client_of(app_of(store)) as client:
        path = f"/session/{SESSION}/stream"
        over = await client.get(f"{path}?startIndex=5", headers={"accept": "text/event-stream"})
        assert over.status_code == 204
        assert over.content == b""
        assert over.headers["x-zhin-session-id"] == SESSION
        assert "content-length" not in over.headers
        left = await client.get(f"{path}?startIndex=4", headers={"accept": "text/event-stream"})
        assert "id: 4" in left.text
        plain = await client.get(f"{path}?startIndex=5&until=never")
        assert (plain.status_code, plain.content) == (200, b"\n")
    assert len(store.stage.hub) == 0


@pytest.mark.parametrize("accept", ["application/x-ndjson", "text/event-stream"])
async def test_a_stream_is_not_compressed_even_behind_middleware_that_compresses(accept: str) -> None:
    store = FakeStore(Stage(500, is_over=True))
    async with client_of(GZipMiddleware(app_of(store), minimum_size=1)) as client:
        headers = {"accept": accept, "accept-encoding": "gzip"}
        response = await client.get(f"/session/{SESSION}/stream", headers=headers)
    assert response.headers["content-encoding"] == "identity"
    assert b'"index":499' in response.content


async def test_more_streams_than_the_host_serves_are_429() -> None:
    store = FakeStore(Stage(1))
    opened = [store.stage.subscribe() for _ in range(10)]
    async with client_of(app_of(store)) as client:
        response = await client.get(f"/session/{SESSION}/stream")
        assert response.status_code == 429
        assert response.json()["error"] == "TOO_MANY_STREAMS"
        await opened[0].aclose()
        assert (await client.get(f"/session/{SESSION}/stream?until=tail")).status_code == 200


async def test_the_app_works_mounted_under_a_path_of_another_app() -> None:
    store = FakeStore(Stage(3, is_at_rest=True))
    mounted = Starlette(routes=[Mount("/agents", app_of(store))])
    async with client_of(mounted) as client:
        base = "http://localhost:8787/agents/zhin/v1"
        assert (await client.get(f"{base}/health")).json()["ok"] is True
        started = await client.post(f"{base}/session", json={"message": "x"})
        assert started.json()["sessionId"] == SESSION
        stream = await client.get(f"{base}/session/{SESSION}/stream")
        assert stream.content == store.stage.log.content
        assert (await client.get(f"{base}/nowhere")).json()["error"] == "NOT_FOUND"
        evil = await client.get(f"{base}/health", headers={"host": "evil.example"})
        assert evil.json()["error"] == "FORBIDDEN"
        relayed = await client.post(f"{base}/session/{SESSION}/input", json={"requestId": REQUEST})
        assert relayed.json()["error"] == "BAD_REQUEST"
