"""HttpAgentSessionStore: the commands of the host, one method each; every change they make is an event."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zhin_host import events as ev
from zhin_host.agent import Agent
from zhin_host.answers import Answered, Answers, by, check_line
from zhin_host.attempt import Services
from zhin_host.clock import SessionId, fingerprint, new_session_id, new_token, new_turn_id
from zhin_host.errors import (
    AgentNotFound,
    AgentUnavailable,
    ContinuationTokenStale,
    NotFound,
    SessionBusy,
    SessionTerminal,
    ShuttingDown,
    StorageUnavailable,
    TooManySessions,
    TooManyStreams,
)
from zhin_host.ports import Principal
from zhin_host.recovery import peek
from zhin_host.session import LiveSession
from zhin_host.sessions import LiveSessions
from zhin_host.snapshot import list_view, public_view
from zhin_host.state import SessionState, new_state
from zhin_host.subscriptions import Subscription, Subscriptions, Until
from zhin_host.turns import HttpTurnRunner

_log = logging.getLogger("zhin_host.store")

Message = str | list[dict[str, str]]
Auditor = Callable[[SessionId, int | None], dict[str, Any]]
"""Audits one session up to so many bytes of its log (None: all there is) and returns the verdict's JSON; blocks."""


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
class Page:
    """Some sessions, newest first; `next_before` begins the next page, None at the end."""

    sessions: list[dict[str, Any]]
    next_before: str | None


class HttpAgentSessionStore:
    """The host's commands. Each raises a RequestError and has then changed nothing, unless it says otherwise.

    Args:
        sessions: Which sessions there are.
        agents: The hosted agents by name; the first is the default.
        services: Clock, settings and worker threads.
        hub: The streams.
        auditor: Audits one session; blocks.
    """

    def __init__(
        self,
        sessions: LiveSessions,
        agents: Mapping[str, Agent],
        services: Services,
        hub: Subscriptions,
        auditor: Auditor,
    ) -> None:
        self._sessions = sessions
        self._agents = agents
        self._services = services
        self._hub = hub
        self._auditor = auditor
        self._answers = Answers(sessions, agents, services)
        self._runners: dict[SessionId, HttpTurnRunner] = {}
        self._is_auditing = False
        self._is_stopping = False

    # -- turns -----------------------------------------------------------------------------------------------------

    async def start(
        self, who: Principal, message: Message, metadata: Mapping[str, Any] | None, agent: str | None
    ) -> Accepted:
        """POST /session: a new session and its first turn.

        Raises:
            AgentNotFound, TooManySessions, ShuttingDown, BodyTooLarge, StorageUnavailable, StorageFull: No session was
                made; only when the last sync failed is there one, of which nobody has the id.
        """
        self._check_running()
        hosted = self._hosted(agent)
        self._check_room(message)
        session_id = new_session_id(self._services.clock)
        turn_id, token = new_turn_id(self._services.clock), new_token(self._services.clock)
        started: dict[str, Any] = {
            "sessionId": session_id,
            "agent": hosted.name,
            "logVersion": ev.LOG_VERSION,
            "continuationToken": token,
        }
        if who.name is not None:
            started["owner"] = who.name
        if metadata is not None:
            started["metadata"] = metadata
        log = await self._sessions.persistence.create_log(session_id)
        live = LiveSession(new_state(session_id), log, self._services)
        drafts = [ev.Draft(ev.SESSION_STARTED, started), *_turn_drafts(hosted, turn_id, token, message)]
        try:
            live.journal.write(drafts)
        except StorageUnavailable:
            log.close()
            await self._forget(session_id)
            raise
        self._sessions.add(live)
        async with live.lock:
            self._run(live, hosted, turn_id, message)
            await live.journal.sync()
        return Accepted(session_id, token, turn_id, 0)

    async def proceed(self, who: Principal, session_id: str, token: str, message: Message) -> Accepted:
        """POST /session/{id}: a follow-up. Its acceptance rotates the token."""
        async with self._sessions.held(who, SessionId(session_id)) as live:
            await live.check_writable()
            state = live.state
            if state.terminal is not None:
                raise SessionTerminal(state.terminal)
            if not hmac.compare_digest(token.encode("utf-8", "replace"), state.token.encode()):
                _log.info("session %s: stale token %s", session_id, fingerprint(token))
                raise ContinuationTokenStale
            hosted = self._agents.get(state.agent)
            if hosted is None:
                raise AgentUnavailable(
                    f"The agent {state.agent!r} of this session is not hosted here; start it again."
                )
            if state.turn is not None:
                raise SessionBusy(_busy(state), list(state.pending))
            self._check_running()
            self._check_room(message)
            turn_id, token = new_turn_id(self._services.clock), new_token(self._services.clock)
            await self._sessions.mark_running(live)
            start_index = live.state.next_index
            live.journal.write(_turn_drafts(hosted, turn_id, token, message))
            self._run(live, hosted, turn_id, message)
            await live.journal.sync()
            return Accepted(session_id, token, turn_id, start_index)

    async def cancel(self, who: Principal, session_id: str, turn_id: str | None) -> str:
        """POST /session/{id}/cancel: "accepted", turn.cancelling being in the log, or "no_active_turn"."""
        async with self._sessions.held(who, SessionId(session_id)) as live:
            if live.state.terminal is not None:
                return "no_active_turn"
            await live.check_writable()
            turn = live.state.turn
            if turn is None or (turn_id is not None and turn_id != turn.turn_id):
                return "no_active_turn"
            runner = self._runners.get(live.session_id)
            if runner is None:
                raise AgentUnavailable(f"The agent {live.state.agent!r} of this session is not hosted here.")
            if turn.cancelling is None:
                data = {"turnId": turn.turn_id, "reason": "requested", **by(who)}
                live.journal.write([ev.Draft(ev.TURN_CANCELLING, data)])
                runner.cancel()
            await live.journal.sync()
            return "accepted"

    async def end(self, who: Principal, session_id: str, outcome: str, message: str | None) -> None:
        """POST /session/{id}/end: complete or fail a session at rest, for good."""
        async with self._sessions.held(who, SessionId(session_id)) as live:
            await live.check_writable()
            state = live.state
            if state.terminal is not None:
                raise SessionTerminal(state.terminal)
            if state.turn is not None:
                raise SessionBusy(_busy(state), list(state.pending))
            data: dict[str, Any] = {"sessionId": session_id}
            if state.queue:
                data["droppedTurnIds"] = [queued["turnId"] for queued in state.queue]
            if outcome == "failed":
                told = {
                    "code": "ENDED",
                    "message": message or "A person ended the session as failed.",
                    **by(who),
                }
                live.journal.write([ev.Draft(ev.SESSION_FAILED, {**data, **told})])
            else:
                note = {} if message is None else {"message": message}
                live.journal.write([ev.Draft(ev.SESSION_COMPLETED, {**data, **note, **by(who)})])
            await live.journal.sync()
            self._sessions.at_rest(live)

    async def delete(self, who: Principal, session_id: str) -> None:
        """DELETE /session/{id}: remove every byte of a session at rest, or of one whose log is broken."""
        async with self._sessions.held(who, SessionId(session_id)) as live:
            state = live.state
            if live.fault is None and (state.turn is not None or state.queue):
                raise SessionBusy(_busy(state), list(state.pending))
            await self._sessions.delete(live)

    # -- answers ---------------------------------------------------------------------------------------------------

    async def answer(
        self, who: Principal, session_id: str, request_id: str, answer: Mapping[str, Any], comment: str | None
    ) -> Answered:
        """POST /session/{id}/input; `answer` is {"approved": bool} or {"response": any JSON}."""
        return await self._answers.answer(who, session_id, request_id, answer, comment)

    async def answer_relayed(
        self, who: Principal, session_id: str, request_id: str, response: Any
    ) -> Answered:
        """POST /resume: "approve"/"deny" or a bool answers an approval; anything answers a question."""
        return await self._answers.answer_relayed(who, session_id, request_id, response)

    async def authorize(
        self,
        who: Principal,
        request_id: str,
        success: bool,  # noqa: FBT001 - as the body has it
        error: str | None,
        session_id: str | None,
    ) -> Answered:
        """POST /authorization/{requestId}/complete; value is the success that stands."""
        return await self._answers.authorize(who, request_id, success, error, session_id)

    # -- looking ---------------------------------------------------------------------------------------------------

    async def view(self, who: Principal, session_id: str) -> dict[str, Any]:
        """GET /session/{id}: the snapshot's public fields as of now, and the cursor."""
        live = await self._sessions.find(who, SessionId(session_id))
        return {**public_view(live.state), "cursor": live.state.next_index}

    async def page(self, who: Principal, status: str | None, limit: int, before: str | None) -> Page:
        """GET /sessions: the caller's, newest first. Looks at a bounded number of sessions; a page may be short."""
        rows: list[dict[str, Any]] = []
        looked_at: SessionId | None = None
        ids = self._sessions.before(before)
        for looked_at in ids:
            row = await self._row(looked_at)
            if (
                row is None
                or row.get("owner") != who.name
                or (status is not None and row["status"] != status)
            ):
                continue
            rows.append(row)
            if len(rows) == limit:
                break
        is_last = looked_at is None or not self._sessions.before(looked_at)
        return Page(rows, None if is_last else looked_at)

    async def _row(self, session_id: SessionId) -> dict[str, Any] | None:
        live = self._sessions.in_memory(session_id)
        try:
            if live is not None:
                state, fault = live.state, live.fault
            else:
                found = await asyncio.to_thread(peek, self._sessions.persistence, session_id)
                state, fault = found.state, found.fault
        except (NotFound, StorageUnavailable) as error:
            _log.warning("session %s is left out of the list: %s", session_id, error)
            return None
        return list_view(state, None if fault is None else fault.index)

    async def audit(self, who: Principal, session_id: str) -> dict[str, Any]:
        """GET /session/{id}/audit: the verdict on the log as it is now.

        Raises:
            TooManyStreams: Another audit runs.
        """
        live = await self._sessions.find(who, SessionId(session_id))
        if self._is_auditing:
            raise TooManyStreams(
                "Another audit runs; one at a time over HTTP. Try again, or run zhin-host audit."
            )
        self._is_auditing = True
        try:
            size = None if live.fault is not None else live.state.offset
            return await asyncio.to_thread(self._auditor, live.session_id, size)
        finally:
            self._is_auditing = False

    async def subscribe(
        self, who: Principal, session_id: str, start_index: int, until: Until
    ) -> Subscription:
        """GET /session/{id}/stream; a negative start counts from the tail. The caller closes it."""
        live = await self._sessions.find(who, SessionId(session_id))
        if self._is_stopping:
            raise ShuttingDown
        feed = live.journal.feed
        wanted = start_index if start_index >= 0 else max(0, feed.next_index + start_index)
        if wanted >= feed.next_index:
            position = (feed.offset, feed.next_index)
        else:
            position = (live.log.offset_of(wanted) if wanted else 0, wanted)
        reader = self._hub.open(live.session_id, feed, position, until)
        reader.start_at(wanted)
        return reader

    def check_ready(self) -> None:
        """GET /ready: raise ShuttingDown or StorageUnavailable with the reason when it is not."""
        if self._is_stopping:
            raise ShuttingDown
        if self._sessions.unsorted:
            raise StorageUnavailable(
                f"{self._sessions.unsorted} interrupted sessions are still being recovered."
            )
        self._sessions.persistence.check_writable()

    # -- for the host ----------------------------------------------------------------------------------------------

    @property
    def open_turns(self) -> int:
        return len(self._runners)

    def expire(self) -> None:
        """Close the requests whose time is over. The host calls this about once a second."""
        now_ms = self._services.clock.now_ms()
        for runner in tuple(self._runners.values()):
            try:
                for request_id in runner.live.expired(now_ms):
                    runner.live.expire(request_id)
            except StorageUnavailable as error:
                _log.warning("a request of %s could not expire yet: %s", runner.live.session_id, error)

    async def stop(self) -> None:
        """Take no new work, end the streams, let running actions end within the grace time, leave the rest open."""
        self._is_stopping = True
        for live in self._sessions.live:
            live.journal.feed.close()
        grace_s = self._services.config.stop_grace_s
        await asyncio.gather(*(runner.stop(grace_s) for runner in self._runners.values()))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _run(self, live: LiveSession, agent: Agent, turn_id: str, message: Message) -> None:
        runner = HttpTurnRunner(live, agent, turn_id, message, self._services, self._ended)
        self._runners[live.session_id] = runner
        runner.start()

    def _ended(self, runner: HttpTurnRunner) -> None:
        if self._runners.get(runner.live.session_id) is runner:
            del self._runners[runner.live.session_id]
        self._sessions.at_rest(runner.live)

    async def _forget(self, session_id: SessionId) -> None:
        """Remove what a start that failed has left; nobody was told of it, and start-up knows it for what it is."""
        try:
            await self._sessions.persistence.delete(session_id)
        except StorageUnavailable as error:
            _log.warning("the files of session %s, which never began, stay for now: %s", session_id, error)

    def _check_running(self) -> None:
        if self._is_stopping:
            raise ShuttingDown

    def _check_room(self, message: Message) -> None:
        limit = self._services.config.open_turns_max
        if len(self._runners) >= limit:
            raise TooManySessions(f"{limit} turns are open; answer or cancel some, or try again later.")
        check_line(self._services, {"message": message})

    def _hosted(self, name: str | None) -> Agent:
        hosted = next(iter(self._agents.values())) if name is None else self._agents.get(name)
        if hosted is None:
            raise AgentNotFound(
                f"There is no agent {name!r:.80} here; GET /zhin/v1/info lists {', '.join(self._agents)}."
            )
        return hosted


def _turn_drafts(agent: Agent, turn_id: str, token: str, message: Message) -> list[ev.Draft]:
    started: dict[str, Any] = {"turnId": turn_id, "continuationToken": token}
    if agent.version:
        started["agentVersion"] = agent.version
    if agent.tools:
        started["toolsDigest"] = agent.tools_digest
    received = {"turnId": turn_id, "message": message}
    return [ev.Draft(ev.TURN_STARTED, started), ev.Draft(ev.MESSAGE_RECEIVED, received)]


def _busy(state: SessionState) -> str:
    if state.pending:
        return (
            "The session waits for an answer; POST …/input for one of pendingRequestIds, or cancel the turn."
        )
    return "A turn is open; read the stream until session.waiting, or cancel it."
