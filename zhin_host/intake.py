"""Intake: how messages come in: new sessions, follow-ups, queued ones, turns tried again; each at most once."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

from zhin_host import events as ev
from zhin_host.agent import Agent
from zhin_host.answers import by, check_line
from zhin_host.attempt import Services
from zhin_host.clock import SessionId, fingerprint, new_session_id, new_token, new_turn_id
from zhin_host.driver import TurnDriver
from zhin_host.errors import (
    AgentNotFound,
    AgentUnavailable,
    ContinuationTokenStale,
    IdempotencyConflict,
    NothingToResume,
    SessionBusy,
    SessionNotFound,
    SessionTerminal,
    StorageUnavailable,
    TooManySessions,
)
from zhin_host.fold import keyed_as
from zhin_host.index import keyed_session_id, name_of_key
from zhin_host.ports import Principal, Right
from zhin_host.redaction import redactor_of
from zhin_host.session import LiveSession
from zhin_host.sessions import LiveSessions
from zhin_host.state import KeyedTurn, SessionState, new_state
from zhin_host.turns import received, started

_log = logging.getLogger("zhin_host.intake")

Message = str | list[dict[str, str]]
OnBusy = Literal["reject", "queue", "interrupt"]

_START: Final = "POST /zhin/v1/session"  # the route, as the names of keyed sessions have it


@dataclass(frozen=True, slots=True)
class Key:
    """An Idempotency-Key and what it came with.

    Attributes:
        key: 1 to 255 visible ASCII characters.
        digest: requestDigest of the body.
    """

    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message was accepted; it is durable and readable.

    Attributes:
        token: The continuation token in force now.
        start_index: Where the turn's events begin, or its message.queued.
        is_queued: Whether it waits for its turn.
    """

    session_id: str
    token: str
    turn_id: str
    start_index: int
    is_queued: bool = False


class Intake:
    """Accepts messages.

    Args:
        sessions: Which sessions there are.
        driver: Who runs their turns.
        services: Clock and settings.
    """

    def __init__(self, sessions: LiveSessions, driver: TurnDriver, services: Services) -> None:
        self._sessions = sessions
        self._driver = driver
        self._services = services
        self._redactor = redactor_of(services.config.redact)
        self._reserved: dict[tuple[str | None, str, str], asyncio.Event] = {}
        self._beginning = 0  # turns that were let in and do not run yet

    async def start(
        self,
        who: Principal,
        message: Message,
        metadata: Mapping[str, Any] | None,
        agent: str | None,
        key: Key | None,
    ) -> Accepted:
        """A new session and its first turn; with a key that was used before, that one's answer."""
        message, metadata = self._redactor.form([message, metadata])
        async with self._once(who, _START, key):
            name = None if key is None else name_of_key(who.name, _START, key.key)
            if key is not None and name is not None:
                before = await self._started_before(who, name, key)
                if before is not None:
                    return before
            hosted = self._hosted(agent)
            clock = self._services.clock
            session_id = new_session_id(clock) if name is None else keyed_session_id(clock, name)
            return await self._begin(who, session_id, hosted, message, metadata, key)

    async def proceed(  # noqa: PLR0917 - what a follow-up consists of
        self, who: Principal, session_id: str, token: str, message: Message, on_busy: OnBusy, key: Key | None
    ) -> Accepted:
        """A follow-up: its turn begins now, or after the open one. Its acceptance rotates the token."""
        route = f"POST /zhin/v1/session/{session_id}"
        message = self._redactor.form(message)
        async with (
            self._once(who, route, key),
            self._sessions.held(who, "write", SessionId(session_id)) as live,
        ):
            await live.check_writable()
            sender = _sender(live.state, who)
            if (
                key is not None
                and (row := live.state.keys.get(keyed_as(key.key, sender.get("by")))) is not None
            ):
                return await _again(live, row, key)
            self._check_follow_up(live.state, token)
            hosted = self._agent_of(live.state)
            if live.state.turn is None and not live.state.queue:
                return await self._follow(live, hosted, message, key, **sender)
            if on_busy == "reject":
                raise SessionBusy(busy_sentence(live.state), list(live.state.pending))
            return await self._queue(live, who, message, key, interrupts=on_busy == "interrupt")

    async def resume(self, who: Principal, session_id: str, token: str | None) -> Accepted:
        """Try the failed last turn again, from its record."""
        async with self._sessions.held(who, "write", SessionId(session_id)) as live:
            await live.check_writable()
            self._check_follow_up(live.state, token)
            hosted, state, failed = self._agent_of(live.state), live.state, live.state.failed
            if state.turn is not None or state.queue:
                raise SessionBusy(busy_sentence(state), list(state.pending))
            if failed is None:
                raise NothingToResume(
                    "The last turn did not fail, or not so that it can be tried again; send a message."
                )
            more: dict[str, Any] = {"resumes": failed.turn_id}
            if failed.discard_from is not None:
                more["discardFrom"] = failed.discard_from
            more.update(_sender(state, who))
            return await self._follow(live, hosted, failed.message, None, **more)

    async def find_made(self, who: Principal, right: Right, key: str) -> SessionId | None:
        """The session that the caller made with this Idempotency-Key; None when there is none, or it is gone."""
        session_id = self._sessions.index.keyed(name_of_key(who.name, _START, key))
        if session_id is None:
            return None
        try:
            state = (await self._sessions.find(who, right, session_id)).state
        except SessionNotFound:
            return None
        is_it = state.made is not None and state.made[0] == key and state.owner == who.name
        return session_id if is_it else None

    # -- inside ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _once(self, who: Principal, route: str, key: Key | None) -> AsyncIterator[None]:
        """Reserve a key before the first await: a twin that comes meanwhile waits, and then finds the answer."""
        if key is None:
            yield
            return
        name = (who.name, route, key.key)
        while (other := self._reserved.get(name)) is not None:
            await other.wait()
        done = self._reserved[name] = asyncio.Event()
        try:
            yield
        finally:
            del self._reserved[name]
            done.set()

    async def _started_before(self, who: Principal, name: str, key: Key) -> Accepted | None:
        """The answer that a new session was given under this key, None when there is no such session any more."""
        session_id = self._sessions.index.keyed(name)
        if session_id is None:
            return None
        try:
            async with self._sessions.held(who, "write", session_id) as live:
                made = live.state.made
                if made is None or made[0] != key.key or live.state.owner != who.name:
                    return None
                return await _again(live, made[1], key)
        except SessionNotFound:
            return None

    async def _begin(  # noqa: PLR0917 - all that a session begins with
        self,
        who: Principal,
        session_id: SessionId,
        hosted: Agent,
        message: Message,
        metadata: Mapping[str, Any] | None,
        key: Key | None,
    ) -> Accepted:
        turn_id, token = new_turn_id(self._services.clock), new_token(self._services.clock)
        data: dict[str, Any] = {
            "sessionId": session_id,
            "agent": hosted.name,
            "logVersion": ev.LOG_VERSION,
            "continuationToken": token,
        }
        if who.name is not None:
            data["owner"] = who.name
        if metadata is not None:
            data["metadata"] = metadata
        check_line(self._services, data)
        with self._room(message):
            log = await self._sessions.create_log(session_id)
            live = LiveSession(new_state(session_id), log, self._services, self._sessions.at_rest)
            turn = [started(hosted, turn_id, token, **_keyed(key)), received(turn_id, message)]
            try:
                live.journal.write([ev.Draft(ev.SESSION_STARTED, data), *turn])
            except StorageUnavailable:
                log.close()
                await self._forget(session_id)
                raise
            self._sessions.add(live)
            self._driver.begin(live)
        async with live.lock:
            await live.journal.sync()
        return Accepted(session_id, token, turn_id, 0)

    async def _follow(
        self, live: LiveSession, hosted: Agent, message: Message, key: Key | None, **more: Any
    ) -> Accepted:
        turn_id, token = new_turn_id(self._services.clock), new_token(self._services.clock)
        with self._room(message):
            await self._sessions.mark_running(live)
            start_index = live.state.next_index
            turn = [started(hosted, turn_id, token, **_keyed(key), **more), received(turn_id, message)]
            live.journal.write(turn)
            self._driver.begin(live)
        await live.journal.sync()
        return Accepted(live.session_id, token, turn_id, start_index)

    async def _queue(
        self, live: LiveSession, who: Principal, message: Message, key: Key | None, *, interrupts: bool
    ) -> Accepted:
        """Have the message wait for its turn; it interrupts the open one at once or lets it end."""
        limit = self._services.config.queue_max
        if len(live.state.queue) >= limit:
            raise SessionBusy(
                f"{limit} messages wait already; let a turn end first.", list(live.state.pending)
            )
        check_line(self._services, {"message": message})
        turn_id, token = new_turn_id(self._services.clock), new_token(self._services.clock)
        data = {"turnId": turn_id, "message": message, "continuationToken": token, **_keyed(key)}
        data.update(_sender(live.state, who))
        await self._sessions.mark_running(live)
        queued, turn = ev.Draft(ev.MESSAGE_QUEUED, data), live.state.turn
        start_index = live.state.next_index
        if interrupts and turn is not None and turn.cancelling is None:
            cancelling = {"turnId": turn.turn_id, "reason": "interrupted", **by(who)}
            start_index += 1
            self._driver.cancel(live, [ev.Draft(ev.TURN_CANCELLING, cancelling), queued])
        else:
            live.journal.write([queued])
        await live.journal.sync()
        return Accepted(live.session_id, token, turn_id, start_index, is_queued=True)

    async def _forget(self, session_id: SessionId) -> None:
        """Remove what a start that failed has left; nobody was told of it, and start-up knows it for what it is."""
        try:
            await self._sessions.persistence.delete(session_id)
        except StorageUnavailable as error:
            _log.warning("the files of session %s, which never began, stay for now: %s", session_id, error)

    def _check_follow_up(self, state: SessionState, token: str | None) -> None:
        if state.terminal is not None:
            raise SessionTerminal(state.terminal)
        if token is not None and not hmac.compare_digest(
            token.encode("utf-8", "replace"), state.token.encode()
        ):
            _log.info("session %s: stale token %s", state.session_id, fingerprint(token))
            raise ContinuationTokenStale

    def _agent_of(self, state: SessionState) -> Agent:
        hosted = self._driver.agents.get(state.agent)
        if hosted is None:
            raise AgentUnavailable(
                f"The agent {state.agent!r} of this session is not hosted here; start it again."
            )
        return hosted

    def _hosted(self, name: str | None) -> Agent:
        agents = self._driver.agents
        hosted = next(iter(agents.values())) if name is None else agents.get(name)
        if hosted is None:
            raise AgentNotFound(
                f"There is no agent {name!r:.80} here; GET /zhin/v1/info lists {', '.join(agents)}."
            )
        return hosted

    @contextmanager
    def _room(self, message: Message) -> Iterator[None]:
        """Let one more turn in, from before the first await until its runner counts.

        Raises:
            TooManySessions: As many are open as the host bears.
            BodyTooLarge: The message does not fit a line.
        """
        limit = self._services.config.open_turns_max
        if not self._driver.has_room(limit - self._beginning):
            raise TooManySessions(f"{limit} turns are open; answer or cancel some, or try again later.")
        check_line(self._services, {"message": message})
        self._beginning += 1
        try:
            yield
        finally:
            self._beginning -= 1


def busy_sentence(state: SessionState) -> str:
    """What to do about a session that is busy."""
    if state.pending:
        return (
            "The session waits for an answer; POST …/input for one of pendingRequestIds, or cancel the turn."
        )
    return 'A turn is open; read the stream until session.waiting, cancel it, or send with onBusy "queue".'


def _sender(state: SessionState, who: Principal) -> dict[str, str]:
    """Who sends, where it is not the session's owner."""
    return {} if who.name == state.owner else by(who)


def _keyed(key: Key | None) -> dict[str, str]:
    return {} if key is None else {"idempotencyKey": key.key, "requestDigest": key.digest}


async def _again(live: LiveSession, row: KeyedTurn, key: Key) -> Accepted:
    """The answer that this key was given, if the request is the same; synced, as the first may not have been.

    Raises:
        IdempotencyConflict: It is not.
        StorageUnavailable: The sync failed.
    """
    if row.digest != key.digest:
        raise IdempotencyConflict(
            "This Idempotency-Key came with another body before; use a new key for a new request."
        )
    await live.journal.sync()
    return Accepted(live.session_id, row.token, row.turn_id, row.index, row.is_queued)
