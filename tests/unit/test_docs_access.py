"""The page about access: its token file is one, and its Python blocks run as they stand."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from zhin_host import Authenticator, Turn, create_agent_session_host
from zhin_host.http.auth import parse_tokens
from zhin_host.ports import OWN_SCOPES

PAGE = Path(__file__).parents[2] / "docs" / "access.md"
KEY = "a key of at least thirty-two bytes, for HS256"
CLAIMS: dict[str, Any] = {
    "sub": "ada",
    "iss": "https://login.example",
    "aud": "zhin",
    "exp": 4_000_000_000,
    "scope": "openid read write",
}


def json_web_tokens() -> Authenticator:
    """The page's authenticator."""
    [source] = re.findall(
        r"^```python title=\"json_web_tokens.py\"\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(source, str(PAGE), "exec"), names)  # noqa: S102 - the page's own code
    made: Authenticator = names["JsonWebTokens"](KEY)
    return made


async def echo(turn: Turn) -> None:
    await turn.say(turn.message)


async def status_of(method: str, path: str, authorization: str, body: Any = None) -> tuple[int, Any]:
    host = create_agent_session_host(echo, authenticator=json_web_tokens())
    transport = httpx.ASGITransport(host.app)
    async with host, httpx.AsyncClient(transport=transport, base_url="http://localhost/zhin/v1") as client:
        answer = await client.request(method, path, json=body, headers={"authorization": authorization})
        if answer.status_code == 200 and method == "POST":
            seen = await client.get(
                f"/session/{answer.json()['sessionId']}", headers={"authorization": authorization}
            )
            return 200, seen.json()["owner"]
        return answer.status_code, answer.json().get("error")


async def test_a_signed_token_says_who_calls_and_what_it_may_do() -> None:
    token = jwt.encode(CLAIMS, KEY, "HS256")
    assert await status_of("POST", "/session", f"Bearer {token}", {"message": "hi"}) == (200, "ada")
    reading = jwt.encode({**CLAIMS, "scope": "read"}, KEY, "HS256")
    assert await status_of("POST", "/session", f"Bearer {reading}", {"message": "hi"}) == (403, "FORBIDDEN")
    assert (await status_of("GET", "/sessions", f"Bearer {reading}"))[0] == 200
    nothing = jwt.encode({key: CLAIMS[key] for key in ("sub", "iss", "aud", "exp")}, KEY, "HS256")
    assert await status_of("GET", "/sessions", f"Bearer {nothing}") == (403, "FORBIDDEN")


@pytest.mark.parametrize(
    "change",
    [
        {"exp": int(time.time()) - 60},
        {"exp": None},
        {"iss": "https://evil.example"},
        {"aud": "other"},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "ada\nforged"},
        {"nbf": 3_999_999_999},
    ],
    ids=str,
)
async def test_a_token_of_which_any_claim_is_wrong_lets_nobody_in(change: dict[str, Any]) -> None:
    claims = {key: value for key, value in {**CLAIMS, **change}.items() if value is not None}
    token = jwt.encode({**claims, "sub": "x"} if claims.get("sub") == 7 else claims, KEY, "HS256")
    if claims.get("sub") == 7:  # the library refuses to make one
        token = jwt.api_jws.encode(
            b'{"sub":7,"iss":"https://login.example","aud":"zhin","exp":4000000000}', KEY, "HS256"
        )
    assert await status_of("GET", "/sessions", f"Bearer {token}") == (401, "UNAUTHORIZED")


async def test_a_token_that_another_key_or_none_signed_lets_nobody_in() -> None:
    good = jwt.encode(CLAIMS, KEY, "HS256")
    for token in (
        jwt.encode(CLAIMS, KEY + "x", "HS256"),
        jwt.encode(CLAIMS, "", "none"),
        jwt.encode(CLAIMS, KEY * 2, "HS512"),
        good.rpartition(".")[0] + ".",
        good + "x",
        "x",
        "",
    ):
        assert await status_of("GET", "/sessions", f"Bearer {token}") == (401, "UNAUTHORIZED"), token
    assert await status_of("GET", "/sessions", f"Basic {good}") == (401, "UNAUTHORIZED")


def test_the_token_file_is_one() -> None:
    [text] = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found = parse_tokens(text, "tokens").values()
    assert [(who.name, who.scopes) for who in found] == [
        ("ada", OWN_SCOPES),
        ("ada", {"read", "approve"}),
        ("bob", {"read:all", "approve:all"}),
        ("ops", {"admin"}),
    ]
