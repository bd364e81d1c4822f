"""The engine without HTTP: run, resume and watch, over the same commands as the routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from zhin_host import events as ev
from zhin_host.errors import BadRequest, RequestNotFound, ShuttingDown
from zhin_host.intake import Accepted, Message
from zhin_host.ports import Principal
from zhin_host.store import HttpAgentSessionStore
from zhin_host.subscriptions import Until

Outcome = Literal["completed", "failed", "cancelled"]

_OUTCOMES: dict[str, Outcome] = {
    ev.TURN_COMPLETED: "completed",
    ev.TURN_FAILED: "failed",
    ev.TURN_CANCELLED: "cancelled",
}


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a turn ended.

    Attributes:
        text: What it said, as far as it counts.
        usage: What message.completed said of it.
        code: Of a failed turn: the code of turn.failed, and its `error` message.
    """

    turn_id: str
    outcome: Outcome
    text: str
    usage: Mapping[str, Any] | None = None
    code: str | None = None
    error: str | None = None


class TurnHandle:
    """One turn of one session, whether it was just started, taken up again or is only being waited for.

    Attributes:
        session_id: The session.
        turn_id: The turn.
    """

    def __init__(self, engine: Engine, accepted: Accepted) -> None:
        self.session_id = accepted.session_id
        self.turn_id = accepted.turn_id
        self._engine = engine
        self._start_index = accepted.start_index

    async def status(self) -> str:
        """running, waiting, parked, completed or failed: of the session, now."""
        view = await self._engine.view(self.session_id)
        return "parked" if view["parked"] else str(view["status"])

    async def requests(self) -> list[dict[str, Any]]:
        """What the session waits for a person to say."""
        view = await self._engine.view(self.session_id)
        requests: list[dict[str, Any]] = view["pendingRequests"]
        return requests

    async def result(self) -> TurnResult:
        """Wait for the turn's end, over every park: somebody else, or `answer`, must answer what it asks.

        Raises:
            ShuttingDown: The host stopped first; the turn goes on when it is back.
        """
        said: list[tuple[int, str]] = []
        usage = None
        async for event in self._engine.stream(self.session_id, self._start_index, "never"):
            kind, data = event["type"], event["data"]
            match kind:
                case ev.MESSAGE_APPENDED:
                    said.append((event["index"], data["messageDelta"]))
                case ev.STEP_RESUMED | ev.TURN_STARTED if "discardFrom" in data:
                    said = [row for row in said if row[0] < data["discardFrom"]]
                case ev.MESSAGE_COMPLETED:
                    usage = data.get("usage")
                    if not data.get("truncated"):
                        said = [(event["index"], data["message"])]  # a resumed turn began before this stream
                case _ if kind in _OUTCOMES and data["turnId"] == self.turn_id:
                    text = "".join(delta for _, delta in said)
                    outcome = _OUTCOMES[kind]
                    return TurnResult(
                        self.turn_id, outcome, text, usage, data.get("code"), data.get("message")
                    )
                case _:
                    pass
        raise ShuttingDown

    async def answer(self, value: Any, request_id: str | None = None, comment: str | None = None) -> None:
        """Answer an open request: a bool an approval, a retry or an authorization, any JSON a question.

        Args:
            value: The answer.
            request_id: Which one; None: the only one that is open.
            comment: A note for the log.

        Raises:
            RequestNotFound: It is not open, or none or several are and none was named.
            BadRequest: The value does not fit its kind.
        """
        open_ones = {row["requestId"]: row for row in await self.requests()}
        if request_id is None and len(open_ones) == 1:
            request_id = next(iter(open_ones))
        if request_id is None:
            raise RequestNotFound(f"(one of {len(open_ones)})")
        kind = open_ones.get(request_id, {"kind": "approval"})["kind"]
        await self._engine.answer(self.session_id, request_id, kind, value, comment)

    async def cancel(self) -> bool:
        """Cancel the turn; whether it was still open."""
        return await self._engine.cancel(self.session_id, self.turn_id)


class Engine:
    """Starts turns and watches them, for one principal.

    Args:
        store: The commands.
        who: In whose name.
    """

    def __init__(self, store: HttpAgentSessionStore, who: Principal) -> None:
        self._store = store
        self._who = who

    async def run(
        self, message: Message, session_id: str | None, metadata: Mapping[str, Any] | None, agent: str | None
    ) -> TurnHandle:
        """Begin a turn in a new session, or in one at rest."""
        if session_id is None:
            return TurnHandle(self, await self._store.start(self._who, message, metadata, agent))
        token = (await self.view(session_id))["continuationToken"]
        return TurnHandle(self, await self._store.proceed(self._who, session_id, token, message))

    async def resume(self, session_id: str) -> TurnHandle:
        """The session's turn: the open one, or else the last one tried again, if it failed so that it may be.

        Raises:
            NothingToResume: The last turn did not fail, or not so that it can be tried again.
        """
        view = await self.view(session_id)
        turn = view["turn"]
        if turn is not None:
            accepted = Accepted(session_id, view["continuationToken"], turn["turnId"], turn["startIndex"])
            return TurnHandle(self, accepted)
        return TurnHandle(self, await self._store.resume(self._who, session_id))

    async def stream(self, session_id: str, since: int, until: Until) -> AsyncIterator[dict[str, Any]]:
        """The session's events from `since` on, parsed; it only watches."""
        reader = await self._store.subscribe(self._who, session_id, since, until)
        try:
            async for block in reader:
                for line in block.splitlines():
                    yield orjson.loads(line)
        finally:
            await reader.aclose()

    async def view(self, session_id: str) -> dict[str, Any]:
        """What GET /session/{id} says."""
        return await self._store.view(self._who, session_id)

    async def answer(
        self, session_id: str, request_id: str, kind: str, value: Any, comment: str | None
    ) -> None:
        """Answer one request of this kind."""
        if kind == "authorization":
            await self._store.authorize(self._who, request_id, bool(value), comment, session_id)
        else:
            given = {"response": value} if kind == "question" else {"approved": value}
            if kind != "question" and not isinstance(value, bool):
                raise BadRequest(
                    f"Request {request_id} is of kind {kind} and is answered with True or False."
                )
            await self._store.answer(self._who, session_id, request_id, given, comment)

    async def cancel(self, session_id: str, turn_id: str) -> bool:
        """Cancel the turn if it is the open one."""
        return await self._store.cancel(self._who, session_id, turn_id) == "accepted"
