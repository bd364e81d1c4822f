"""An authenticator of one's own: what it is given, and that nothing it does wrong lets anybody in."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

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


async def answer_of(own: Own, path: str = "/sessions") -> httpx.Response:
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


@pytest.mark.parametrize(
    "wrong", [Own, object(), Blocking(), echo], ids=["class", "object", "blocking", "function"]
)
def test_what_is_no_authenticator_stops_the_start(wrong: Any) -> None:
    with pytest.raises(StartupError, match="give an object with async def authenticate"):
        create_agent_session_host(echo, authenticator=wrong)
