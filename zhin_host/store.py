"""HttpAgentSessionStore: the commands of the host, one method each; every change they make is an event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zhin_host import events as ev
from zhin_host.answers import Answered, Answers, by, check_line
from zhin_host.attempt import Services
from zhin_host.clock import SessionId, id_between
from zhin_host.driver import TurnDriver
from zhin_host.errors import (
    AgentUnavailable,
    NotFound,
    SessionBusy,
    SessionTerminal,
    ShuttingDown,
    StorageUnavailable,
    TooManyStreams,
)
from zhin_host.intake import Accepted, Intake, Key, Message, OnBusy, busy_sentence
from zhin_host.logline import tell
from zhin_host.ports import Principal, Right
from zhin_host.recovery import peek
from zhin_host.redaction import redactor_of
from zhin_host.sessions import LiveSessions
from zhin_host.snapshot import list_view, public_view
from zhin_host.subscriptions import Subscription, Subscriptions, Until

_log = logging.getLogger("zhin_host.store")

Auditor = Callable[[SessionId, int | None], tuple[dict[str, Any], tuple[int, int] | None]]
"""Audits one session up to so many bytes of its log (None: all there is); blocks.

Returns the verdict's JSON, and index and byte of the first event that the chain does not hold.
"""


@dataclass(frozen=True, slots=True)
class Page:
    """Some sessions, newest first; `next_before` begins the next page, None at the end."""

    sessions: list[dict[str, Any]]
    next_before: str | None


class HttpAgentSessionStore:
    """The host's commands. Each raises a RequestError and has then changed nothing, unless it says otherwise.

    Args:
        sessions: Which sessions there are.
        driver: Who runs their turns.
        services: Clock and settings.
        hub: The streams.
        auditor: Audits one session; blocks.
    """

    def __init__(
        self,
        sessions: LiveSessions,
        driver: TurnDriver,
        services: Services,
        hub: Subscriptions,
        auditor: Auditor,
    ) -> None:
        self._sessions = sessions
        self._driver = driver
        self._services = services
        self._hub = hub
        self._auditor = auditor
        self._intake = Intake(sessions, driver, services)
        self._answers = Answers(sessions, driver, services)
        self._is_auditing = False
        self._is_stopping = False
        self._probe: asyncio.Task[None] | None = None

    # -- turns -----------------------------------------------------------------------------------------------------

    async def start(
        self,
        who: Principal,
        message: Message,
        metadata: Mapping[str, Any] | None = None,
        agent: str | None = None,
        key: Key | None = None,
    ) -> Accepted:
        """POST /session: a new session and its first turn.

        Raises:
            AgentNotFound, TooManySessions, ShuttingDown, BodyTooLarge, IdempotencyConflict, StorageUnavailable,
            StorageFull: No session was made; only when the last sync failed is there one, of which nobody has the id.
        """
        self._check_running()
        return await self._intake.start(who, message, metadata, agent, key)

    async def proceed(  # noqa: PLR0917 - what a follow-up consists of
        self,
        who: Principal,
        session_id: str,
        token: str,
        message: Message,
        on_busy: OnBusy = "reject",
        key: Key | None = None,
    ) -> Accepted:
        """POST /session/{id}: a follow-up. Its acceptance rotates the token."""
        self._check_running()
        return await self._intake.proceed(who, session_id, token, message, on_busy, key)

    async def find_made(self, who: Principal, right: Right, key: str) -> str | None:
        """The session that the caller made with this Idempotency-Key; None when there is none, or it is gone."""
        return await self._intake.find_made(who, right, key)

    async def resume(self, who: Principal, session_id: str, token: str | None = None) -> Accepted:
        """POST /session/{id}/resume: try the failed last turn again, from its record."""
        self._check_running()
        return await self._intake.resume(who, session_id, token)

    async def cancel(self, who: Principal, session_id: str, turn_id: str | None) -> str:
        """POST /session/{id}/cancel: "accepted", turn.cancelling being in the log, or "no_active_turn"."""
        async with self._sessions.held(who, "write", SessionId(session_id)) as live:
            if live.state.terminal is not None:
                return "no_active_turn"
            await live.check_writable()
            turn = live.state.turn
            if turn is None or (turn_id is not None and turn_id != turn.turn_id):
                return "no_active_turn"
            if live.state.agent not in self._driver.agents:
                raise AgentUnavailable(_not_hosted(live.state.agent))
            if turn.cancelling is None:
                await self._sessions.mark_running(live)
                data = {"turnId": turn.turn_id, "reason": "requested", **by(who)}
                self._driver.cancel(live, [ev.Draft(ev.TURN_CANCELLING, data)])
            await live.journal.sync()
            return "accepted"

    async def end(self, who: Principal, session_id: str, outcome: str, message: str | None) -> None:
        """POST /session/{id}/end: complete or fail a session at rest, for good."""
        async with self._sessions.held(who, "write", SessionId(session_id)) as live:
            await live.check_writable()
            state = live.state
            if state.terminal is not None:
                raise SessionTerminal(state.terminal)
            if state.turn is not None:
                if state.agent not in self._driver.agents:
                    raise AgentUnavailable(_not_hosted(state.agent))
                raise SessionBusy(busy_sentence(state), list(state.pending))
            note = redactor_of(self._services.config.redact).form(message)
            data: dict[str, Any] = {"sessionId": session_id}
            if state.queue:
                data["droppedTurnIds"] = [queued["turnId"] for queued in state.queue]
            if outcome == "failed":
                told = {
                    "code": "ENDED",
                    "message": note or "A person ended the session as failed.",
                    **by(who),
                }
                draft = ev.Draft(ev.SESSION_FAILED, {**data, **told})
            else:
                told = {} if note is None else {"message": note}
                draft = ev.Draft(ev.SESSION_COMPLETED, {**data, **told, **by(who)})
            check_line(self._services, draft.data)
            live.journal.write([draft])
            await live.journal.sync()
            self._sessions.at_rest(live)

    async def delete(self, who: Principal, session_id: str) -> None:
        """DELETE /session/{id}: remove every byte of a session at rest, or of one whose log is broken."""
        async with self._sessions.held(who, "write", SessionId(session_id)) as live:
            state = live.state
            if live.fault is None and (state.turn is not None or state.queue):
                raise SessionBusy(busy_sentence(state), list(state.pending))
            await self._sessions.delete(live)
            tell(_log, logging.INFO, "session.deleted", sessionId=session_id, **by(who))

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
        """GET /session/{id}: the snapshot's public fields as of now, and the cursor; `brokenAt` as a list has it."""
        live = await self._sessions.find(who, "read", SessionId(session_id))
        view = {**public_view(live.state), "cursor": live.state.next_index}
        fault = live.known_fault()
        if fault is not None:  # what looks like a running turn will never go on
            view["brokenAt"] = fault.index
        await live.journal.shown()
        return view

    async def page(self, who: Principal, status: str | None, limit: int, before: str | None) -> Page:
        """GET /sessions: those the caller may see, newest first. It looks at a bounded number; a page may be short."""
        rows: list[dict[str, Any]] = []
        looked_at: SessionId | None = None
        is_seen = False
        ids = self._sessions.index.before(before)
        for looked_at in ids:
            row = await self._row(looked_at)
            is_seen = row is not None and who.reaches("read", row.get("owner"))
            if row is None or not is_seen or (status is not None and row["status"] != status):
                continue
            rows.append(row)
            if len(rows) == limit:
                break
        if looked_at is None or not (older := self._sessions.index.before(looked_at)):
            return Page(rows, None)
        # Of another's session not even the id is told.
        return Page(rows, looked_at if is_seen else id_between(self._services.clock, older[0], looked_at))

    async def _row(self, session_id: SessionId) -> dict[str, Any] | None:
        live = self._sessions.in_memory(session_id)
        try:
            if live is not None:
                state, fault = live.state, live.fault
                await live.journal.shown()
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
        live = await self._sessions.find(who, "read", SessionId(session_id))
        if self._is_auditing:
            raise TooManyStreams(
                "Another audit runs; one at a time over HTTP. Try again, or run zhin-host audit."
            )
        self._is_auditing = True
        try:
            size = None if live.fault is not None else live.state.offset
            verdict, unchained = await asyncio.to_thread(self._auditor, live.session_id, size)
            if size is not None and unchained is not None:
                live.found_broken(*unchained)
            elif size is not None and verdict["bytes"] < size:  # it stopped before a line that is broken
                live.found_broken(verdict["events"], verdict["bytes"])
            return verdict
        finally:
            self._is_auditing = False

    async def subscribe(
        self, who: Principal, session_id: str, start_index: int, until: Until
    ) -> Subscription:
        """GET /session/{id}/stream; a negative start counts from the tail. The caller closes it."""
        live = await self._sessions.find(who, "read", SessionId(session_id))
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

    async def check_ready(self) -> None:
        """GET /ready: raise ShuttingDown or StorageUnavailable with the reason when it is not."""
        if self._is_stopping:
            raise ShuttingDown
        if self._sessions.unsorted:
            raise StorageUnavailable(
                f"{self._sessions.unsorted} interrupted sessions are still being recovered."
            )
        if self._probe is None or self._probe.done():  # one at a time: a disk that hangs takes one thread
            probing = asyncio.to_thread(self._sessions.persistence.check_writable)
            self._probe = asyncio.get_running_loop().create_task(probing, name="probe")
            self._probe.add_done_callback(lambda probe: probe.cancelled() or probe.exception())  # seen
        await asyncio.shield(self._probe)

    # -- for the host ----------------------------------------------------------------------------------------------

    async def expire(self) -> None:
        """Close the requests whose time is over. The host calls this about once a second."""
        await self._answers.expire_due()

    async def stop(self) -> None:
        """Take no new work, end the streams, let running actions end within the grace time, leave the rest open."""
        self._is_stopping = True
        self._sessions.begin_stop()
        for live in self._sessions.live:
            live.journal.feed.close()
        await self._driver.stop()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _check_running(self) -> None:
        if self._is_stopping:
            raise ShuttingDown


def _not_hosted(agent: str) -> str:
    return f"The agent {agent!r} of this session is not hosted here; its open turn goes on when the agent is back."
