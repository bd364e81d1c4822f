"""Scopes: which caller gets through on which route, in whose sessions, and that a refusal says nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest

from tests.integration.live import UNKNOWN_SESSION, Script, Serving, served
from zhin_host import create_agent_session_host
from zhin_host.http import BearerTokens
from zhin_host.http.app import ROUTES
from zhin_host.ports import OWN_SCOPES, SCOPES, Principal, Right

OWNER: Final = "owner"
COMBINATIONS: Final = (*((scope,) for scope in SCOPES), ("read", "approve"), ("read:all", "approve:all"), ())


def token_of(name: str, scopes: tuple[str, ...] | None) -> str:
    return f"{name}-0123456789abcdef-{'none' if scopes is None else '+'.join(scopes)}"


def bearer(name: str, scopes: tuple[str, ...] | None = None) -> dict[str, str]:
    return {"authorization": f"Bearer {token_of(name, scopes)}"}


def principals() -> dict[str, Principal]:
    """The owner and a stranger, each with a token for every combination."""
    found = {}
    for name in (OWNER, "stranger"):
        found[token_of(name, None)] = Principal(name)
        for scopes in COMBINATIONS:
            found[token_of(name, scopes)] = Principal(name, frozenset(scopes))
    return found


@pytest.fixture
async def live(data_dir: Path) -> AsyncIterator[Serving]:
    authenticator = BearerTokens(principals())
    host = create_agent_session_host(Script(), data_dir=data_dir, authenticator=authenticator)
    async with served(host) as serving:
        serving.client.headers.update(bearer(OWNER))
        yield serving


async def call_of(live: Serving, method: str, path: str) -> tuple[str, str, Any]:
    """A request of this route that would do what the route is for, in a session of the owner."""
    if path == "/session":
        return method, path, {"message": "say new"}
    is_authorization = path.startswith("/authorization")
    session, request_id = await live.parked("authorize forge" if is_authorization else "approve it")
    session_id = session["sessionId"]
    if path in {"/session/{session_id}/end", "/session/{session_id}/resume"} or (method, path) in {
        ("DELETE", "/session/{session_id}"),
        ("POST", "/session/{session_id}"),
    }:
        session = await live.start("fail it" if path.endswith("/resume") else "say x")
        await live.events(session)
        session_id = session["sessionId"]
    bodies: dict[str, Any] = {
        "/session/{session_id}": {"message": "x", "continuationToken": session["continuationToken"]},
        "/session/{session_id}/input": {"requestId": request_id, "approved": True},
        "/session/{session_id}/end": {"outcome": "completed"},
        "/authorization/{request_id}/complete": {"success": True},
        "/resume": {"traceId": session_id, "promptId": request_id, "response": True},
    }
    body = bodies.get(path) if method == "POST" else None
    where = path.format(session_id=session_id, request_id=request_id)
    return method, where + ("?until=tail" if path.endswith("/stream") else ""), body


ROUTE_ROWS: Final = [
    (method, path, row.right)
    for path, methods in ROUTES.items()
    for method, row in methods.items()
    if not row.is_open
]


@pytest.mark.parametrize(
    ("method", "path", "right"), ROUTE_ROWS, ids=[f"{row[0]} {row[1]}" for row in ROUTE_ROWS]
)
async def test_every_scope_gets_on_every_route_as_far_as_it_reaches(
    live: Serving, method: str, path: str, right: Right | None
) -> None:
    has_session = "{" in path or path == "/resume"
    for name in (OWNER, "stranger"):
        for scopes in COMBINATIONS:
            request = await call_of(live, method, path)
            who = Principal(name, frozenset(scopes))
            response = await live.client.request(*request[:2], json=request[2], headers=bearer(name, scopes))
            told = (name, scopes, response.text)
            if right is not None and not (right in scopes or f"{right}:all" in scopes or "admin" in scopes):
                error = live.refused(response, 403, "FORBIDDEN")
                assert f"scope {right}," in error["message"]
                assert "x-zhin-session-id" not in response.headers
            elif has_session and right is not None and not who.reaches(right, OWNER):
                assert response.status_code == 404, told
                assert "x-zhin-session-id" not in response.headers
            else:
                assert response.status_code == 200, told


@pytest.mark.parametrize(("method", "path", "right"), ROUTE_ROWS)
async def test_a_missing_scope_is_told_before_it_is_looked_whether_there_is_such_a_session(
    live: Serving, method: str, path: str, right: Right | None
) -> None:
    if right is None or "{session_id}" not in path:
        return
    _, where, body = await call_of(live, method, path)
    mine = where.split("/")[2].partition("?")[0]
    for session_id in (mine, UNKNOWN_SESSION, "ses_no", ".."):
        response = await live.client.request(
            method, where.replace(mine, session_id), json=body, headers=bearer("stranger", ())
        )
        if session_id != "..":
            live.refused(response, 403, "FORBIDDEN")


async def test_the_body_is_judged_before_the_token_and_the_token_before_the_scope(live: Serving) -> None:
    read_only = bearer(OWNER, ("read",))
    bad: dict[str, Any] = {"message": 1}
    live.refused(await live.client.post("/session", json=bad, headers=read_only), 400, "BAD_REQUEST")
    nobody = {"authorization": "Bearer x"}
    live.refused(await live.client.post("/session", json=bad, headers=nobody), 400, "BAD_REQUEST")
    good = {"message": "x"}
    live.refused(await live.client.post("/session", json=good, headers=nobody), 401, "UNAUTHORIZED")
    live.refused(await live.client.post("/session", json=good, headers=read_only), 403, "FORBIDDEN")


async def test_a_list_shows_what_the_caller_may_see(live: Serving) -> None:
    await live.start("say x")
    await live.client.post("/session", json={"message": "say y"}, headers=bearer("stranger"))
    counts = {
        (OWNER, None): 1,
        (OWNER, ("read",)): 1,
        ("stranger", ("read", "approve")): 1,
        ("stranger", ("read:all",)): 2,
        (OWNER, ("admin",)): 2,
    }
    for (name, scopes), count in counts.items():
        page = live.good(await live.client.get("/sessions", headers=bearer(name, scopes)))
        assert len(page["sessions"]) == count, (name, scopes)


async def test_a_continuation_token_seen_in_a_stream_is_not_enough_to_write(live: Serving) -> None:
    session = await live.start("say x")
    seen = await live.client.get(
        f"/session/{session['sessionId']}/stream", headers=bearer("stranger", ("read:all",))
    )
    token = session["continuationToken"]
    assert token in seen.text
    body = {"message": "mine now", "continuationToken": token}
    path = f"/session/{session['sessionId']}"
    before = await live.events(session)
    for headers, status in [
        (bearer("stranger", ("read:all",)), 403),
        (bearer("stranger", ("read:all", "approve:all")), 403),
        (bearer("stranger"), 404),
        ({"authorization": f"Bearer {token}"}, 401),
    ]:
        assert (await live.client.post(path, json=body, headers=headers)).status_code == status
    assert await live.events(session) == before


async def test_whoever_acts_in_anothers_session_is_named_in_its_log(live: Serving) -> None:
    session, request_id = await live.parked("approve it")
    path = f"/session/{session['sessionId']}"
    approver, admin = bearer("stranger", ("read:all", "approve:all")), bearer("stranger", ("admin",))
    view = live.good(await live.client.get(path, headers=approver))
    assert view["pendingRequestIds"] == [request_id]
    answer = {"requestId": request_id, "approved": True, "by": "nobody"}
    live.good(await live.client.post(f"{path}/input", json=answer, headers=approver))
    await live.events(session)
    body = {"message": "say mine", "continuationToken": session["continuationToken"]}
    live.good(await live.client.post(path, json=body, headers=admin))
    events = await live.events(session)
    completed = next(event["data"] for event in events if event["type"] == "input.completed")
    first, second = [event["data"] for event in events if event["type"] == "turn.started"]
    assert (completed["by"], first.get("by"), second["by"]) == ("stranger", None, "stranger")
    assert events[0]["data"]["owner"] == OWNER


async def test_an_idempotency_key_is_its_callers_own(live: Serving) -> None:
    session = await live.start("say x")
    path = f"/session/{session['sessionId']}"
    key, admin = {"idempotency-key": "k1"}, bearer("stranger", ("admin",))

    async def send(headers: dict[str, str], token: str) -> dict[str, Any]:
        await live.events(session)
        body = {"message": "say y", "continuationToken": token}
        return live.good(await live.client.post(path, json=body, headers={**headers, **key}))

    mine = await send({}, session["continuationToken"])
    theirs = await send(admin, mine["continuationToken"])
    assert theirs["turnId"] != mine["turnId"]
    queued = {"message": "say z", "continuationToken": theirs["continuationToken"], "onBusy": "queue"}
    held = await live.start("hold")
    queued["continuationToken"] = held["continuationToken"]
    answers = [
        live.good(
            await live.client.post(f"/session/{held['sessionId']}", json=queued, headers={**admin, **key})
        )
        for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert (
        await live.client.post("/session/" + held["sessionId"], json=queued, headers=key)
    ).status_code == 409
    events = await live.events(session)
    assert [event["data"].get("by") for event in events if event["type"] == "turn.started"] == [
        None,
        None,
        "stranger",
    ]


async def test_a_session_of_another_and_one_that_is_not_there_take_the_same_time(live: Serving) -> None:
    session = await live.start("say x")
    await live.events(session)
    mallory = bearer("stranger")

    async def taken(session_id: str) -> float:
        began = time.perf_counter()
        await live.client.get(f"/session/{session_id}", headers=mallory)
        return time.perf_counter() - began

    theirs, unknown, left = [], [], []
    for _ in range(9):
        theirs.append(await taken(session["sessionId"]))
        unknown.append(await taken(UNKNOWN_SESSION))
    await live.host._sessions.drop_idle()
    live.host._sessions._live.clear()
    left = [await taken(session["sessionId"]) for _ in range(9)]
    assert live.host._sessions.in_memory(session["sessionId"]) is None  # nor is it read for a stranger
    for times in (theirs, unknown, left):
        assert min(times) >= 0.02
    assert abs(median(theirs) - median(unknown)) < 0.01
    assert abs(median(left) - median(unknown)) < 0.01


async def test_where_a_list_goes_on_names_no_session_of_another(
    live: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zhin_host.index.LOOKED_AT_MAX", 2)
    mine = [(await live.start("say x"))["sessionId"]]
    others = []
    for _ in range(5):
        started = await live.client.post("/session", json={"message": "say y"}, headers=bearer("stranger"))
        others.append(live.good(started)["sessionId"])
        await asyncio.sleep(0.002)
    mine.append((await live.start("say x"))["sessionId"])
    seen: list[str] = []
    before: str | None = None
    for _ in range(20):
        page = live.good(
            await live.client.get("/sessions", params={} if before is None else {"before": before})
        )
        seen += [row["sessionId"] for row in page["sessions"]]
        before = page.get("nextBefore")
        assert before not in others
        if before is None:
            break
    assert seen == mine[::-1]
    ops = bearer("stranger", ("read:all",))
    page = live.good(await live.client.get("/sessions", headers=ops))
    assert page["nextBefore"] == page["sessions"][-1]["sessionId"]


def test_a_caller_of_whom_nothing_is_said_may_do_everything_in_its_own_sessions() -> None:
    assert Principal("x").scopes == OWN_SCOPES
