"""A host on a real port, in the test's own loop, with an agent that does what its message says."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.documented import check_event, check_response
from zhin_host import Turn, tool
from zhin_host.host import AgentSessionHost
from zhin_host.server import Server, bind
from zhin_host.server.connection import ServerConfig
from zhin_host.server.process import Stoppable

UNKNOWN_SESSION = "ses_01jdq3v2k0000000000000000z"
UNKNOWN_REQUEST = "req_01jdq3v2k0000000000000000z_0123456789abcdefghjkmnpqrs"


@tool(approval="always")
async def publish(page: str) -> str:
    """Publish a page."""
    return f"/{page}"


class Script:
    """An agent whose message begins with what it shall do.

    Attributes:
        go: What a held turn waits for.
    """

    name = "scripted"
    tools = (publish,)

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, turn: Turn) -> None:  # noqa: C901 - one case for each thing it can do
        verb, _, rest = turn.message.partition(" ")
        match verb:
            case "hold":
                await turn.say("holding ")
                await self.go.wait()
                await turn.say("done")
            case "many":
                for number in range(int(rest)):
                    await turn.say(f"{number} ")
            case "flood":
                for _ in range(int(rest)):
                    await turn.say("x" * 60_000)
            case "approve":
                await turn.say(f"approved {await turn.approve('May I?')}")
            case "ask":
                await turn.say(f"answered {await turn.ask('Which?')}")
            case "publish":
                await turn.say(f"at {await turn.call_tool(publish, page=rest)}")
            case "authorize":
                await turn.say(f"authorized {await turn.authorize(rest, 'https://auth.example')}")
            case "fail":
                raise ValueError(rest)
            case "end":
                await turn.end_session()
            case _:
                await turn.say(turn.message)


class Serving:
    """A host that is being served.

    Attributes:
        port: Where.
        client: Speaks to it, with /zhin/v1 as its base.
    """

    def __init__(self, host: AgentSessionHost, port: int, server: Server, task: asyncio.Task[None]) -> None:
        self.host = host
        self.port = port
        hooks = {"response": [check_response]}
        base_url = f"http://localhost:{port}/zhin/v1"
        self.client = httpx.AsyncClient(base_url=base_url, timeout=20, event_hooks=hooks)
        self._server = server
        self._task = task

    async def stop(self) -> None:
        """What a signal does."""
        self._server.should_exit = True
        await self._task

    async def start(self, message: str, **more: Any) -> dict[str, Any]:
        """Begin a session."""
        return self.good(await self.client.post("/session", json={"message": message, **more}))

    async def follow_up(self, session: Mapping[str, Any], message: str) -> dict[str, Any]:
        """Go on with one, by the token it was given."""
        body = {"message": message, "continuationToken": session["continuationToken"]}
        return self.good(await self.client.post(f"/session/{session['sessionId']}", json=body))

    async def events(self, session: Mapping[str, Any], **parameters: Any) -> list[dict[str, Any]]:
        """The session's events up to where it is at rest."""
        path = f"/session/{session['sessionId']}/stream"
        response = await self.client.get(path, params=parameters)
        assert response.status_code == 200, response.text
        events = [json.loads(line) for line in response.content.split(b"\n") if line]
        for event in events:
            check_event(event)
        return events

    async def parked(self, message: str) -> tuple[dict[str, Any], str]:
        """A session that waits for a person, and the request it waits for."""
        session = await self.start(message)
        last = (await self.events(session))[-1]
        assert (last["type"], last["data"]["parked"]) == ("session.waiting", True)
        return session, last["data"]["pendingRequestIds"][0]

    @staticmethod
    def good(response: httpx.Response) -> dict[str, Any]:
        """The JSON of an answer that must be 200."""
        assert response.status_code == 200, response.text
        answer = response.json()
        assert answer["ok"] is True
        return dict(answer)

    @staticmethod
    def refused(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
        """The JSON of an answer that must be this error, whole."""
        assert response.status_code == status, response.text
        error = response.json()
        assert (error["ok"], error["error"]) == (False, code)
        assert error["message"].endswith(".")
        assert response.headers["content-type"] == "application/json"
        assert ("retry-after" in response.headers) == (status == 503)
        return dict(error)


@asynccontextmanager
async def served(host: AgentSessionHost) -> AsyncIterator[Serving]:
    """The host on a free port until the block ends."""
    sockets = bind("localhost", 0)
    app = Stoppable(host.app)
    is_ready = asyncio.Event()
    server = Server(
        ServerConfig(app, lifespan="off", log_level=logging.WARNING),
        app,
        start=host.start,
        drain=host.stop,
        ready=lambda _: is_ready.set(),
    )
    task = asyncio.create_task(server.serve(sockets), name="server")
    await asyncio.wait((task, asyncio.ensure_future(is_ready.wait())), return_when=asyncio.FIRST_COMPLETED)
    serving = Serving(host, sockets[0].getsockname()[1], server, task)
    try:
        yield serving
    finally:
        await serving.client.aclose()
        await serving.stop()
