"""Answers: what people reply to open requests; exactly one outcome per request, however often it is given."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from zhin_host import events as ev
from zhin_host.attempt import Services
from zhin_host.clock import SessionId, session_of_request
from zhin_host.driver import TurnDriver
from zhin_host.errors import (
    AgentUnavailable,
    AuthorizationRequestNotFound,
    BadRequest,
    BodyTooLarge,
    RequestAlreadyAnswered,
    RequestNotFound,
    SessionNotFound,
    StorageUnavailable,
)
from zhin_host.fold import response_digest
from zhin_host.ports import Principal
from zhin_host.redaction import redactor_of
from zhin_host.session import LiveSession
from zhin_host.sessions import LiveSessions
from zhin_host.state import Answer, PendingRequest

_log = logging.getLogger("zhin_host.answers")

_EVENT_MARGIN_BYTES: Final = 1_024
_EXPIRE_AGAIN_MS: Final = 10_000
_RELAYED: Final = {"approve": True, "deny": False, True: True, False: False}


@dataclass(frozen=True, slots=True)
class Answered:
    """A request was answered, now or before (`already`), with `value`."""

    session_id: str
    request_id: str
    value: Any
    already: bool


class Answers:
    """Matches each answer to its request by id, within one session, and by nothing else.

    Args:
        sessions: Which sessions there are.
        driver: Who runs the turns, and takes up the parked ones.
        services: Clock and settings.
    """

    def __init__(self, sessions: LiveSessions, driver: TurnDriver, services: Services) -> None:
        self._sessions = sessions
        self._driver = driver
        self._services = services
        self._redactor = redactor_of(services.config.redact)

    async def answer(
        self, who: Principal, session_id: str, request_id: str, answer: Mapping[str, Any], comment: str | None
    ) -> Answered:
        """POST /session/{id}/input; `answer` is {"approved": bool} or {"response": any JSON}."""
        async with self._sessions.held(who, "approve", SessionId(session_id)) as live:
            pending, given = await self._asked(live, request_id)
            kind = given.kind if pending is None else pending.kind
            if kind == "authorization":
                raise RequestNotFound(request_id)
            wanted = "response" if kind == "question" else "approved"
            if wanted not in answer:
                raise BadRequest(
                    f"body.{wanted}: request {request_id} is of kind {kind} and is answered with {wanted}."
                )
            return await self._give(live, who, request_id, kind, answer[wanted], comment)

    async def answer_relayed(
        self, who: Principal, session_id: str, request_id: str, response: Any
    ) -> Answered:
        """POST /resume: "approve"/"deny" or a bool answers an approval; anything answers a question."""
        async with self._sessions.held(who, "approve", SessionId(session_id)) as live:
            pending, given = await self._asked(live, request_id)
            kind = given.kind if pending is None else pending.kind
            if kind == "authorization":
                raise RequestNotFound(request_id)
            if kind != "question":
                if not isinstance(response, str | bool) or response not in _RELAYED:
                    raise BadRequest(
                        f'body.response: request {request_id} takes "approve", "deny", true or false.'
                    )
                response = _RELAYED[response]
            return await self._give(live, who, request_id, kind, response, None)

    async def authorize(
        self,
        who: Principal,
        request_id: str,
        success: bool,  # noqa: FBT001 - as the body has it
        error: str | None,
        session_id: str | None,
    ) -> Answered:
        """POST /authorization/{requestId}/complete; value is the success that stands."""
        named = session_of_request(request_id)
        if session_id is not None and session_id != named:
            raise AuthorizationRequestNotFound(request_id)
        try:
            async with self._sessions.held(who, "approve", named) as live:
                pending, given = await self._asked(live, request_id)
                if "authorization" not in (given.kind, None if pending is None else pending.kind):
                    raise AuthorizationRequestNotFound(request_id)
                outcome = "success" if success else "failure"
                if pending is None:
                    return _again(live, request_id, given, Answer("authorization", outcome), success)
                data = {"requestId": request_id, "connection": pending.data["connection"], "success": success}
                if error is not None:  # the bare word "cancelled" is the host's, for a request given up
                    error = self._redactor.text(error)
                    data["error"] = error if error != "cancelled" else "cancelled by the user"
                check_line(self._services, data)
                await self._close(live, request_id, ev.AUTHORIZATION_COMPLETED, {**data, **by(who)})
                return Answered(live.session_id, request_id, success, already=False)
        except (SessionNotFound, RequestNotFound):
            raise AuthorizationRequestNotFound(request_id) from None

    async def _asked(self, live: LiveSession, request_id: str) -> tuple[PendingRequest | None, Answer]:
        """The open request of this id, or how it was answered; exactly one of the two says something.

        Raises:
            RequestNotFound: Neither: never made, cancelled or expired.
        """
        await live.check_writable()
        if request_id in live.expired(self._services.clock.now_ms()):
            await self._expire(live, request_id)
        turn, pending = live.state.turn, live.state.pending.get(request_id)
        if pending is not None:
            if turn is not None and turn.cancelling is not None:
                raise RequestNotFound(request_id)
            if live.state.agent not in self._driver.agents:
                raise AgentUnavailable(f"The agent {live.state.agent!r} of this session is not hosted here.")
            return pending, Answer("", "")
        given = live.state.answers.get(request_id)
        if given is None or given.outcome in ("cancelled", "expired"):
            raise RequestNotFound(request_id)
        return None, given

    async def _give(  # noqa: PLR0917 - who answers what, and how
        self, live: LiveSession, who: Principal, request_id: str, kind: str, value: Any, comment: str | None
    ) -> Answered:
        value, comment = self._redactor.form([value, comment])  # what is recorded is what counts as given
        if kind == "question":
            answer = Answer(kind, "answered", response_digest(value))
            told: dict[str, Any] = {"outcome": "answered", "response": value}
        else:
            answer = Answer(kind, "approved" if value else "denied")
            told = {"outcome": answer.outcome, "approved": value}
        given = live.state.answers.get(request_id)
        if given is not None:
            return _again(live, request_id, given, answer, value)
        note = {} if comment is None else {"comment": comment}
        data = {"requestId": request_id, "kind": kind, **told, **note, **by(who)}
        check_line(self._services, data)
        await self._close(live, request_id, ev.INPUT_COMPLETED, data)
        return Answered(live.session_id, request_id, value, already=False)

    async def expire_due(self) -> None:
        """Close every request whose time is over. The host calls this about once a second."""
        for session_id in self._sessions.due(self._services.clock.now_ms()):
            try:
                async with self._sessions.held(None, "approve", session_id) as live:
                    for request_id in live.expired(self._services.clock.now_ms()):
                        if request_id in live.state.pending:
                            await self._expire(live, request_id)
            except SessionNotFound:
                continue
            except StorageUnavailable as error:
                _log.warning("a request of session %s could not expire: %s", session_id, error)
                again_ms = self._services.clock.now_ms() + _EXPIRE_AGAIN_MS
                self._sessions.deadlines.add(session_id, again_ms)

    async def _expire(self, live: LiveSession, request_id: str) -> None:
        kind = live.state.pending[request_id].kind
        await self._close(
            live,
            request_id,
            ev.INPUT_COMPLETED,
            {"requestId": request_id, "kind": kind, "outcome": "expired"},
        )

    async def _close(self, live: LiveSession, request_id: str, kind: str, data: Mapping[str, Any]) -> None:
        """Append what ends a request. Nobody may be waiting for it: then the last one drives the turn again.

        Raises:
            StorageUnavailable: It was not written; or it was, and not synced.
        """
        is_live = self._driver.runner(live.session_id) is not None
        if is_live and live.state.turn is not None:
            data = {**data, "attempt": live.state.turn.attempt}  # ADR 0004 D5
        else:
            await self._sessions.mark_running(live)
        live.close_request(request_id, ev.Draft(kind, data), is_live=is_live)
        if not is_live and not live.state.pending and self._driver.is_resumable(live):
            self._driver.drive_again(live)
        await live.journal.sync()


def check_line(services: Services, data: Mapping[str, Any]) -> None:
    """Refuse what a client sent when it would not fit the event it becomes.

    Raises:
        BodyTooLarge: It would not.
    """
    limit = services.config.line_bytes_max
    size = len(ev.json_bytes(data)) + _EVENT_MARGIN_BYTES
    if size > limit:
        raise BodyTooLarge(f"The body becomes an event of {size} bytes; a line holds {limit}. Send less.")


def by(who: Principal) -> dict[str, str]:
    """Who, from the authentication and never from the body."""
    return {} if who.name is None else {"by": who.name}


def _again(live: LiveSession, request_id: str, given: Answer, answer: Answer, value: Any) -> Answered:
    """The same answer twice is the first one's; another is refused."""
    if given != answer:
        raise RequestAlreadyAnswered(request_id)
    return Answered(live.session_id, request_id, value, already=True)
