"""Calls: requests as bytes, and a whole turn as one client makes it."""

from __future__ import annotations

import itertools
import secrets
from dataclasses import dataclass
from typing import Any

import orjson

from tests.bench.client import Connection

BASE = "/zhin/v1"


class Caller:
    """Makes the requests of one principal; each message has an idempotency key of its own.

    Args:
        token: The bearer token.
    """

    def __init__(self, token: str) -> None:
        self._common = f"host: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"
        self._nonce, self._counter = secrets.token_hex(6), itertools.count()

    def post(self, path: str, body: dict[str, Any]) -> bytes:
        """A POST with a JSON body and a new Idempotency-Key."""
        content = orjson.dumps(body)
        head = (
            f"POST {path} HTTP/1.1\r\n{self._common}content-type: application/json\r\n"
            f"idempotency-key: {self._nonce}-{next(self._counter)}\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        return head.encode("ascii") + content

    def get(self, path: str) -> bytes:
        return f"GET {path} HTTP/1.1\r\n{self._common}\r\n".encode("ascii")

    def stream(self, session_id: str, *, start: int = 0, until: str = "boundary") -> bytes:
        """The stream of a session from event `start` on."""
        return self.get(f"{BASE}/session/{session_id}/stream?startIndex={start}&until={until}")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader got of a session's stream.

    Attributes:
        offset: Where in the log it began; negative: counted from the log's end.
        is_whole: Whether it must be the rest of the log and not a part of it.
    """

    session_id: str
    body: bytes
    offset: int = 0
    is_whole: bool = True


class Refused(Exception):
    """A request that must be accepted was not."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"answered {status}: {body[:300].decode('utf-8', 'replace')}")


async def ask(connection: Connection, request: bytes) -> dict[str, Any]:
    """The JSON of a request that must be accepted.

    Raises:
        Refused: It was not.
    """
    body = await connection.call(request)
    if connection.status != 200:
        raise Refused(connection.status, body)
    answer: dict[str, Any] = orjson.loads(body)
    return answer


async def begin(connection: Connection, caller: Caller, message: str, agent: str | None = None) -> str:
    """Start a session with a message; its id."""
    body = {"message": message} if agent is None else {"message": message, "agent": agent}
    answer = await ask(connection, caller.post(f"{BASE}/session", body))
    return str(answer["sessionId"])


async def turn(connection: Connection, caller: Caller, message: str, agent: str | None = None) -> Reading:
    """A new session and its first turn, streamed to the boundary."""
    session_id = await begin(connection, caller, message, agent)
    body = await connection.call(caller.stream(session_id))
    if connection.status != 200:
        raise Refused(connection.status, body)
    return Reading(session_id, body)
