"""The table of routes: what it lists of bodies and answers is sent and got, route by route."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import httpx

from tests.docs.tables import TOLD
from zhin_host import Turn, create_agent_session_host
from zhin_host.http.app import BASE, ROUTES

VALUES: Final[Mapping[str, Any]] = {
    "message": "hello",
    "metadata": {"team": "A"},
    "agent": "other",
    "onBusy": "queue",
    "comment": "fine",
    "outcome": "completed",
    "success": True,
    "error": None,
    "status": "waiting",
    "limit": 1,
    "startIndex": 0,
    "until": "tail",
    "response": True,
}


async def agent(turn: Turn) -> None:
    match turn.message:
        case "ask":
            await turn.approve("May I?")
        case "authorize":
            await turn.authorize("calendar")
        case "fail":
            raise RuntimeError(turn.message)
        case _:
            await turn.say(turn.message)


def _fields(listed: str) -> list[list[str]]:
    """A cell of the table: its fields, each with what may stand in its place."""
    return [names.split(" or ") for names in listed.split(", ") if names]


class Caller:
    """Calls a route with every field that the table lists, and holds its answer against the table."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.called: set[str] = set()

    async def call(self, name: str, **given: Any) -> dict[str, Any]:
        [(path, method)] = [
            (path, method)
            for path, methods in ROUTES.items()
            for method, row in methods.items()
            if row.name == name
        ]
        _, listed, answered = TOLD[name]
        body = {}
        for names in _fields(listed.replace("?", "")):
            field = next((field for field in names if field in given), names[0])
            assert field in given or field in VALUES, f"{name} is called without {field}"
            body[field] = given.get(field, VALUES.get(field))
        where = BASE + path.format(session_id=given.get("session"), request_id=given.get("request"))
        has_query = method == "GET"
        reply = await self._client.request(
            method, where, params=body if has_query else None, json=None if has_query or not body else body
        )
        assert reply.status_code == 200, reply.text
        self.called.add(name)
        if answered == "events":
            return {"events": [json.loads(line) for line in reply.text.splitlines() if line]}
        got = reply.json()
        rows = _fields(answered)
        told = {field.removesuffix("?") for row in rows for field in row}
        assert got.keys() - {"ok"} <= told, f"{name} answers {got.keys() - told}, which the table lacks"
        for row in rows:
            assert row[0].endswith("?") or any(field in got for field in row), f"{name} lacks {row}"
        return dict(got)

    async def rested(self, session: str) -> dict[str, Any]:
        """What the session is once it rests or waits for a person."""
        await self._client.get(f"{BASE}/session/{session}/stream")
        return await self.call("view", session=session)


async def test_each_route_takes_and_gives_what_the_table_lists() -> None:
    host = create_agent_session_host({"one": agent, "other": agent})
    transport = httpx.ASGITransport(host.app)
    async with host, httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        caller = Caller(client)
        for name in ("health", "ready", "info", "openapi"):
            await caller.call(name)

        session = (await caller.call("start", message="ask"))["sessionId"]
        [request] = (await caller.rested(session))["pendingRequestIds"]
        await caller.call("answer", session=session, requestId=request, approved=True)

        token = (await caller.rested(session))["continuationToken"]
        await caller.call("proceed", session=session, continuationToken=token, message="ask")
        [request] = (await caller.rested(session))["pendingRequestIds"]
        await caller.call("answer_relayed", traceId=session, promptId=request)

        token = (await caller.rested(session))["continuationToken"]
        turn = await caller.call("proceed", session=session, continuationToken=token, message="authorize")
        [request] = (await caller.rested(session))["pendingRequestIds"]
        await caller.call("authorize", request=request, sessionId=session)
        token = (await caller.rested(session))["continuationToken"]
        assert (await caller.call("cancel", session=session, turnId=turn["turnId"]))[
            "status"
        ] == "no_active_turn"

        await caller.call("proceed", session=session, continuationToken=token, message="fail")
        token = (await caller.rested(session))["continuationToken"]
        await caller.call("resume", session=session, continuationToken=token)
        await caller.rested(session)
        assert (await caller.call("stream", session=session))["events"][0]["type"] == "session.started"
        await caller.call("audit", session=session)
        await caller.call("end", session=session)

        newer = (await caller.call("start"))["sessionId"]
        await caller.rested(newer)
        await caller.call("page", before=newer, status="completed")
        await caller.call("delete", session=session)
        assert caller.called == {row.name for methods in ROUTES.values() for row in methods.values()}
