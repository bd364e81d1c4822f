"""Client: the way to one host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlencode

import httpx

from zhin_host import events as ev
from zhin_host.client.patience import Patience
from zhin_host.client.session import Session, new_key
from zhin_host.client.state import Message, checked_state, new_saved_state
from zhin_host.client.wire import BASE, Wire, session_path


class Client:
    """Speaks to one host; its sessions share its connections. Use it as `async with Client(url) as client:`.

    Args:
        url: The host's address, such as http://127.0.0.1:8787.
        bearer: A token of the host's token file, for the Authorization header.
        patience: How often and how long what fails is tried again.
        timeout_s: How long one try of a request may wait for its answer.
        heartbeat_s: The host's interval of heartbeats; None: the client asks it (GET /info). A stream that is silent
            for three of them is dead.
        transport: What carries the requests, in place of the network.
    """

    def __init__(
        self,
        url: str,
        *,
        bearer: str | None = None,
        patience: Patience | None = None,
        timeout_s: float = 30.0,
        heartbeat_s: float | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"A host's address begins with http:// or https://, not {url!r:.80}.")
        http = httpx.AsyncClient(
            base_url=url.rstrip("/").removesuffix(BASE) + BASE,
            headers={} if bearer is None else {"authorization": f"Bearer {bearer}"},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=8),  # a stream holds one
            transport=transport,
        )
        self._wire = Wire(http, patience or Patience(), timeout_s, heartbeat_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection. Turns go on: closing never cancels."""
        await self._wire.aclose()

    async def start(
        self,
        message: Message,
        *,
        agent: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Session:
        """Begin a session with a message; `session.turn` is the message's turn.

        However often the message has to be sent until an answer arrives, it begins one session.

        Args:
            message: Text, or a list of text parts.
            agent: Its name; None: the host's first one.
            metadata: Kept with the session.
            key: `GaveUp.key`, to go on with a start whose answer never came; None: the client makes one.

        Raises:
            AgentNotFound: The host serves no such agent.
            GaveUp: No answer came; the session may have begun.
        """
        fields = {"message": message, "agent": agent, "metadata": metadata}
        body = ev.json_bytes({name: value for name, value in fields.items() if value is not None})
        answer = await self._wire.call("POST", "/session", body, key=key or new_key())
        state = new_saved_state(answer["sessionId"], answer["continuationToken"], answer["startIndex"])
        state["turn"] = {"turnId": answer["turnId"], "startIndex": answer["startIndex"]}
        return Session(self._wire, state)

    async def open(self, session_id: str) -> Session:
        """A session that is there, by its id: with the token in force and the cursor at 0.

        Raises:
            SessionNotFound: It is not there, or is somebody else's.
        """
        view = await self._wire.call("GET", session_path(session_id), session_id=session_id)
        return Session(self._wire, new_saved_state(session_id, view["continuationToken"], view["cursor"] - 1))

    def restore(self, state: Mapping[str, Any]) -> Session:
        """The session of a state that was saved; the host is not asked yet.

        Raises:
            ValueError: It is no such state.
        """
        return Session(self._wire, checked_state(state))

    async def info(self) -> dict[str, Any]:
        """GET /info: the host's agents, their tools, its limits."""
        return await self._wire.call("GET", "/info")

    async def sessions(
        self, *, status: str | None = None, limit: int = 50, before: str | None = None
    ) -> dict[str, Any]:
        """GET /sessions: a page of sessions, newest first, and `nextBefore` where there is another page.

        Args:
            status: Only these: running, waiting, completed or failed.
            limit: At most so many, 1 to 200; a page may be short and not the last one.
            before: `nextBefore` of the page before.
        """
        query = {"status": status, "limit": limit, "before": before}
        given = urlencode({name: value for name, value in query.items() if value is not None})
        return await self._wire.call("GET", f"/sessions?{given}")
