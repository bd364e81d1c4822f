"""An authenticator of one's own: what it is given, and that nothing it does wrong lets anybody in."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from zhin_host import Principal, Turn, Unauthorized, create_agent_session_host
from zhin_host.errors import StartupError


async def echo(turn: Turn) -> None:
    await turn.say(turn.message)


class Own:
    """Answers what it was told to."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.headers: list[Mapping[bytes, bytes]] = []

    async def authenticate(self, headers: Mapping[bytes, bytes]) -> Principal:
        self.headers.append(headers)
        if isinstance(self.answer, Exception):
            raise self.answer
        principal: Principal = self.answer
        return principal


async def answer_of(own: Any, path: str = "/sessions") -> httpx.Response:
    host = create_agent_session_host(echo, authenticator=own)
    transport = httpx.ASGITransport(host.app)
    async with host, httpx.AsyncClient(transport=transport, base_url="http://localhost/zhin/v1") as client:
        return await client.get(path, headers=[("X-Who", "ada"), ("X-Who", "bob")])


async def test_it_is_given_the_headers_in_lower_case_and_of_repeated_ones_the_last() -> None:
    own = Own(Principal("ada"))
    assert (await answer_of(own)).status_code == 200
    assert own.headers[0][b"x-who"] == b"bob"


async def test_it_is_not_asked_whether_the_host_is_alive() -> None:
    own = Own(Unauthorized("No."))
    assert (await answer_of(own, "/health")).status_code == 200
    assert (await answer_of(own, "/ready")).status_code == 200
    assert own.headers == []


async def test_its_sentence_goes_to_the_caller() -> None:
    response = await answer_of(Own(Unauthorized("Log in at login.example.")))
    assert (response.status_code, response.json()["message"]) == (401, "Log in at login.example.")
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "answer", [None, True, "ada", {"name": "ada"}, ValueError("the login is away"), KeyError("x")]
)
async def test_whatever_else_it_does_lets_nobody_in_and_is_not_told(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL):
        response = await answer_of(Own(answer))
    assert (response.status_code, response.json()["error"]) == (500, "INTERNAL")
    assert "login" not in response.text


class Blocking:
    def authenticate(self, headers: Mapping[bytes, bytes]) -> Principal:
        return Principal("ada")


def blocking(connection: HTTPConnection) -> Principal:
    return Principal("ada")


async def careless() -> Principal:
    return Principal("ada")


@pytest.mark.parametrize(
    "wrong",
    [Own, object(), Blocking(), blocking, careless],
    ids=["class", "object", "blocking", "plain function", "no argument"],
)
def test_what_is_no_authenticator_stops_the_start(wrong: Any) -> None:
    with pytest.raises(StartupError, match="give an object with async def authenticate"):
        create_agent_session_host(echo, authenticator=wrong)


# -- an app around the host says who calls -------------------------------------------------------------------------


def around(app: ASGIApp, **put: Any) -> ASGIApp:
    """An app whose middleware puts these into the scope."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, **put}, receive, send)

    return serve


async def by_state(connection: HTTPConnection) -> Principal:
    return Principal(connection.state.user)


async def by_user(connection: HTTPConnection) -> Principal:
    return Principal(connection.user)


async def by_cookie(connection: HTTPConnection) -> Principal:
    return Principal({"c00kie": "ada"}[connection.cookies["login"]])


class Login:
    async def __call__(self, connection: HTTPConnection) -> Principal:
        return Principal(connection.session["name"])


@pytest.mark.parametrize(
    ("caller_of", "put"),
    [
        (by_state, {"state": {"user": "ada"}}),
        (by_user, {"user": "ada"}),
        (by_cookie, {}),
        (Login(), {"session": {"name": "ada"}}),
    ],
)
async def test_a_function_is_given_what_the_app_around_the_host_knows_of_the_request(
    caller_of: Any, put: dict[str, Any]
) -> None:
    host = create_agent_session_host(echo, authenticator=caller_of)
    transport = httpx.ASGITransport(around(host.app, **put))
    async with host, httpx.AsyncClient(transport=transport, base_url="http://localhost/zhin/v1") as client:
        client.cookies.set("login", "c00kie")
        session_id = (await client.post("/session", json={"message": "Hello"})).json()["sessionId"]
        assert (await client.get(f"/session/{session_id}")).json()["owner"] == "ada"
        assert (await client.get("/openapi.json")).json()["components"]["securitySchemes"]


@pytest.mark.parametrize(
    ("error", "status", "code", "told"),
    [
        (Unauthorized("Log in at /login."), 401, "UNAUTHORIZED", "Log in at /login."),
        (HTTPException(401, "Who are you?"), 401, "UNAUTHORIZED", "Who are you?"),
        (HTTPException(403, "Not you."), 403, "FORBIDDEN", "Not you."),
        (HTTPException(429, "Slower."), 429, "BAD_REQUEST", "Slower."),
        (HTTPException(401, {"why": "expired"}), 401, "UNAUTHORIZED", "{'why': 'expired'}"),  # type: ignore[arg-type]
        (KeyError("login"), 500, "INTERNAL", None),
    ],
)
async def test_what_a_function_raises_is_the_answer_and_lets_nobody_in(
    error: Exception, status: int, code: str, told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuses(connection: HTTPConnection) -> Principal:
        raise error

    with caplog.at_level(logging.CRITICAL):
        response = await answer_of(refuses)
        assert (await answer_of(refuses, "/health")).status_code == 200
    assert (response.status_code, response.json()["error"]) == (status, code)
    assert told is None or response.json()["message"] == told


async def test_a_function_that_returns_no_principal_lets_nobody_in(caplog: pytest.LogCaptureFixture) -> None:
    async def forgetful(connection: HTTPConnection) -> Any:
        return connection.cookies.get("name")

    with caplog.at_level(logging.CRITICAL):
        assert (await answer_of(forgetful)).status_code == 500
