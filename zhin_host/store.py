"""HttpAgentSessionStore: the commands of the host, one method each. SKELETON: bodies follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zhin_host.ports import Principal
from zhin_host.subscriptions import Subscription, Until


@dataclass(frozen=True, slots=True)
class Accepted:
    """A turn was accepted; it is durable and readable.

    Attributes:
        token: The continuation token in force now.
        start_index: Where the turn's events begin.
    """

    session_id: str
    token: str
    turn_id: str
    start_index: int


@dataclass(frozen=True, slots=True)
class Answered:
    """A request was answered, now or before (`already`), with `value`."""

    session_id: str
    request_id: str
    value: Any
    already: bool


@dataclass(frozen=True, slots=True)
class Page:
    """Some sessions, newest first; `next_before` begins the next page, None at the end."""

    sessions: list[dict[str, Any]]
    next_before: str | None


class HttpAgentSessionStore:
    async def start(
        self, who: Principal, message: str | list[dict[str, str]], metadata: Mapping[str, Any] | None, agent: str | None
    ) -> Accepted:
        """POST /session. Raises AgentNotFound, TooManySessions, ShuttingDown, Storage*, BodyTooLarge, BadRequest."""
        raise NotImplementedError

    async def proceed(
        self, who: Principal, session_id: str, token: str, message: str | list[dict[str, str]]
    ) -> Accepted:
        """POST /session/{id}."""
        raise NotImplementedError

    async def answer(
        self, who: Principal, session_id: str, request_id: str, answer: Mapping[str, Any], comment: str | None
    ) -> Answered:
        """POST /session/{id}/input; `answer` is {"approved": bool} or {"response": any JSON}."""
        raise NotImplementedError

    async def answer_relayed(self, who: Principal, session_id: str, request_id: str, response: Any) -> Answered:
        """POST /resume: "approve"/"deny" or a bool answers an approval; anything answers a question."""
        raise NotImplementedError

    async def authorize(
        self, who: Principal, request_id: str, success: bool, error: str | None, session_id: str | None
    ) -> Answered:
        """POST /authorization/{requestId}/complete; value is the success that stands."""
        raise NotImplementedError

    async def cancel(self, who: Principal, session_id: str, turn_id: str | None) -> str:
        """POST /session/{id}/cancel: "accepted" or "no_active_turn"."""
        raise NotImplementedError

    async def end(self, who: Principal, session_id: str, outcome: str, message: str | None) -> None:
        """POST /session/{id}/end; outcome "completed" or "failed"."""
        raise NotImplementedError

    async def delete(self, who: Principal, session_id: str) -> None:
        """DELETE /session/{id}."""
        raise NotImplementedError

    async def view(self, who: Principal, session_id: str) -> dict[str, Any]:
        """GET /session/{id}: the fields of the answer, `cursor` too, without `ok`."""
        raise NotImplementedError

    async def page(self, who: Principal, status: str | None, limit: int, before: str | None) -> Page:
        """GET /sessions."""
        raise NotImplementedError

    async def audit(self, who: Principal, session_id: str) -> dict[str, Any]:
        """GET /session/{id}/audit: the verdict's JSON. Raises TooManyStreams when another audit runs."""
        raise NotImplementedError

    async def subscribe(self, who: Principal, session_id: str, start_index: int, until: Until) -> Subscription:
        """GET /session/{id}/stream; a negative start counts from the tail. The caller closes it."""
        raise NotImplementedError

    def check_ready(self) -> None:
        """GET /ready: raise ShuttingDown or StorageUnavailable with the reason when it is not."""
        raise NotImplementedError
