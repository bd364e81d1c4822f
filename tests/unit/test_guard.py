"""The outermost layer: which Host and Origin may call, and what becomes of errors."""

from __future__ import annotations

import logging
from typing import Any

import orjson
import pytest
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from tests.edge import SESSION, Exchange, http_scope
from zhin_host.errors import (
    BadRequest,
    BodyTimeout,
    BodyTooLarge,
    Forbidden,
    RequestError,
    SessionBusy,
    SessionNotFound,
    ShuttingDown,
    StartupError,
    StorageFull,
    StorageUnavailable,
    Unauthorized,
)
from zhin_host.http.guard import Guard
from zhin_host.http.reply import ABORT, IS_STARTED, SESSION_ID, Reply


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    await Reply(200, b"{}")(scope, receive, send)


async def outcome(guard: Guard, headers: list[tuple[str, str]], method: str = "GET") -> Exchange:
    scope = http_scope(method)
    scope["headers"] = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    exchange = Exchange(scope)
    await guard(scope, exchange.receive, exchange.send)
    return exchange


def guarding(*hosts: str, origins: tuple[str, ...] = (), any_host: bool = False) -> Guard:
    return Guard(answer, allowed_hosts=hosts, allowed_origins=origins, any_host=any_host)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8787",
        "LocalHost:1",
        "127.0.0.1",
        "127.0.0.1:8787",
        "[::1]",
        "[::1]:8787",
        "named.example",
        "named.example:99",
        "with-port.example:8443",
    ],
)
async def test_a_host_of_this_machine_or_a_named_one_may_call(host: str) -> None:
    assert (
        await outcome(guarding("named.example", "with-port.example:8443"), [("host", host)])
    ).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8787",
        "localhost.evil.example",
        "evil-localhost",
        "localhost.",
        "localhost@evil.example",
        "localhost:8787:1",
        "localhost:",
        "localhost:x",
        "localhost:123456",
        "127.0.0.2",
        "127.1",
        "0.0.0.0",  # noqa: S104 - a Host header, not an address to bind
        "2130706433",
        "::1",
        "[::1",
        "[::2]",
        "[::ffff:127.0.0.1]",
        "localhost/../evil",
        "localhost evil.example",
        "localh\u00f6st",
        "with-port.example",
        "with-port.example:8444",
    ],
)
async def test_any_other_host_is_forbidden(host: str) -> None:
    exchange = await outcome(guarding("named.example", "with-port.example:8443"), [("host", host)])
    assert exchange.status == 403
    body = orjson.loads(exchange.body)
    assert body["ok"] is False
    assert body["error"] == "FORBIDDEN"
    assert "--allowed-host" in body["message"]


async def test_a_request_without_a_host_or_with_two_is_forbidden() -> None:
    assert (await outcome(guarding(), [])).status == 403
    assert (await outcome(guarding(), [("host", "localhost"), ("host", "evil.example")])).status == 403
    assert (await outcome(guarding(any_host=True), [("host", "a"), ("host", "b")])).status == 403


async def test_any_host_may_call_where_tokens_guard_an_open_address() -> None:
    assert (await outcome(guarding(any_host=True), [("host", "whatever.example:1")])).status == 200


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:8787", "http://localhost:8787"),
        ("localhost", "http://localhost"),
        ("localhost:80", "http://localhost"),
        ("[::1]:8787", "http://[::1]:8787"),
        ("LOCALHOST:8787", "http://localhost:8787"),
        ("localhost:8787", "https://app.example"),
    ],
)
async def test_the_hosts_own_origin_and_a_named_one_may_call(host: str, origin: str) -> None:
    guard = guarding(origins=("https://App.example/",))
    assert (await outcome(guard, [("host", host), ("origin", origin)])).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "http://evil.example",
        "http://localhost:8788",
        "http://localhost",
        "https://localhost:8787",
        "http://127.0.0.1:8787",
        "http://localhost:8787/",
        "http://localhost:8787.evil.example",
        "http://evil.example#http://localhost:8787",
        "https://app.example:444",
        "https://sub.app.example",
        "file://",
        "chrome-extension://abc",
    ],
)
@pytest.mark.parametrize("any_host", [False, True])
async def test_any_other_origin_is_forbidden(origin: str, any_host: bool) -> None:  # noqa: FBT001 - a parameter
    guard = guarding(origins=("https://app.example",), any_host=any_host)
    exchange = await outcome(guard, [("host", "localhost:8787"), ("origin", origin)], "POST")
    assert exchange.status == 403
    assert "--allowed-origin" in orjson.loads(exchange.body)["message"]


async def test_two_origins_are_forbidden() -> None:
    headers = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://evil.example")]
    assert (await outcome(guarding(), headers)).status == 403


async def test_a_page_of_a_named_origin_may_read_the_answer_and_no_other_page_is_told_it_may() -> None:
    guard = guarding(origins=("https://app.example",))
    named = await outcome(guard, [("host", "localhost"), ("origin", "https://app.example")])
    assert named.headers[b"access-control-allow-origin"] == b"https://app.example"
    own = await outcome(guard, [("host", "localhost"), ("origin", "http://localhost")])
    assert b"access-control-allow-origin" not in own.headers
    foreign = await outcome(guard, [("host", "localhost"), ("origin", "http://evil.example")])
    assert b"access-control-allow-origin" not in foreign.headers


async def test_a_preflight_is_answered_for_a_named_origin_only() -> None:
    guard = guarding(origins=("https://app.example",))
    named = await outcome(guard, [("host", "localhost"), ("origin", "https://app.example")], "OPTIONS")
    assert named.status == 204
    assert b"authorization" in named.headers[b"access-control-allow-headers"]
    foreign = await outcome(guard, [("host", "localhost"), ("origin", "http://evil.example")], "OPTIONS")
    assert foreign.status == 403


def raising(error: Exception) -> Guard:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        scope[SESSION_ID] = SESSION
        raise error

    return Guard(fail, allowed_hosts=(), allowed_origins=(), any_host=False)


@pytest.mark.parametrize(
    ("error", "status", "code", "extra", "headers"),
    [
        (BadRequest("Wrong."), 400, "BAD_REQUEST", {}, {b"x-zhin-session-id": SESSION.encode()}),
        (SessionBusy("Busy.", ["req_1"]), 409, "SESSION_BUSY", {"pendingRequestIds": ["req_1"]}, {}),
        (ShuttingDown(), 503, "SHUTTING_DOWN", {}, {b"retry-after": b"2"}),
        (StorageUnavailable("Broken.", 7), 503, "STORAGE_UNAVAILABLE", {"index": 7}, {b"retry-after": b"2"}),
        (StorageFull("Full."), 507, "STORAGE_FULL", {}, {}),
        (Unauthorized("Who?"), 401, "UNAUTHORIZED", {}, {b"www-authenticate": b"Bearer"}),
        (BodyTimeout("Late."), 408, "REQUEST_TIMEOUT", {}, {b"connection": b"close"}),
        (BodyTooLarge("Large."), 413, "BODY_TOO_LARGE", {}, {b"connection": b"close"}),
        (HTTPException(405, "Not so.", {"Allow": "GET"}), 405, "METHOD_NOT_ALLOWED", {}, {b"allow": b"GET"}),
        (HTTPException(404), 404, "NOT_FOUND", {}, {}),
        (HTTPException(400), 400, "BAD_REQUEST", {}, {}),
        (HTTPException(502), 502, "INTERNAL", {}, {}),
    ],
    ids=lambda value: value.__class__.__name__ if isinstance(value, Exception) else None,
)
async def test_an_error_becomes_its_json(
    error: Exception, status: int, code: str, extra: dict[str, Any], headers: dict[bytes, bytes]
) -> None:
    exchange = await outcome(raising(error), [("host", "localhost")])
    assert exchange.status == status
    body = orjson.loads(exchange.body)
    message = body.pop("message")
    assert body == {"ok": False, "error": code, **extra}
    assert message
    assert exchange.headers[b"content-type"] == b"application/json"
    assert headers.items() <= exchange.headers.items()


@pytest.mark.parametrize("error", [SessionNotFound(SESSION), Unauthorized("Who?"), Forbidden("No.")])
async def test_who_may_not_know_of_a_session_is_not_told_its_id(error: RequestError) -> None:
    exchange = await outcome(raising(error), [("host", "localhost")])
    assert b"x-zhin-session-id" not in exchange.headers


async def test_a_bug_is_a_500_whose_trace_is_in_the_log_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        exchange = await outcome(raising(RuntimeError("the secret of the bug")), [("host", "localhost")])
    assert exchange.status == 500
    assert orjson.loads(exchange.body)["error"] == "INTERNAL"
    assert b"secret" not in exchange.body
    assert b"Traceback" not in exchange.body
    assert "the secret of the bug" in caplog.text


async def test_an_error_after_the_response_has_begun_breaks_the_connection_off() -> None:
    aborted: list[bool] = []

    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        scope[IS_STARTED] = True
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError

    scope = http_scope()
    scope["extensions"] = {ABORT: lambda: aborted.append(True)}
    exchange = Exchange(scope)
    await Guard(fail, allowed_hosts=(), allowed_origins=(), any_host=False)(
        scope, exchange.receive, exchange.send
    )
    assert aborted == [True]
    assert len(exchange.sent) == 1


async def test_a_lone_surrogate_in_an_errors_sentence_does_not_break_the_answer() -> None:
    exchange = await outcome(raising(BadRequest("Not \ud800.")), [("host", "localhost")])
    assert orjson.loads(exchange.body)["message"] == "Not ?."


@pytest.mark.parametrize(
    "origin", ["*", "https://*.example", "app.example", "https://app.example/page", "https://", ""]
)
def test_an_allowed_origin_is_exact_or_stops_the_start(origin: str) -> None:
    with pytest.raises(StartupError, match="there is no wildcard"):
        Guard(fail_at_once, allowed_hosts=(), allowed_origins=[origin], any_host=False)


async def fail_at_once(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("nothing calls it")
