"""Intake: each message is accepted at most once, whatever clients send twice and whenever the host ends."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.hosting import NOBODY, Hosting, crashing, decoded, hosting, stored, types
from zhin_host import Turn
from zhin_host import events as ev
from zhin_host.clock import SessionId, base32
from zhin_host.errors import (
    AgentNotFound,
    ContinuationTokenStale,
    IdempotencyConflict,
    SessionBusy,
    SessionNotFound,
    SessionTerminal,
    StorageUnavailable,
)
from zhin_host.intake import Accepted, Key
from zhin_host.ports import Principal, SessionLog
from zhin_host.state import REMEMBERED
from zhin_host.storage.memory import MemoryLog, MemorySessionPersistence

ANN, BOB = Principal("ann"), Principal("bob")


def key_of(body: str, key: str = "k") -> Key:
    return Key(key, ev.digest(body.encode()))


async def _agent(turn: Turn) -> None:
    if turn.message == "park":
        await turn.approve("Sure?")
    await turn.say(turn.message)


async def _followed(
    host: Hosting,
    session_id: str,
    token: str,
    message: str,
    key: Key | None = None,
    *,
    who: Principal = NOBODY,
) -> Accepted:
    accepted = await host.store.proceed(who, session_id, token, message, "reject", key)
    await host.settled(session_id)
    return accepted


def _turns(host: Hosting, session_id: str) -> int:
    return types(decoded(session_id, host.log(session_id))).count(ev.TURN_STARTED)


# -- new sessions --------------------------------------------------------------------------------------------------


async def test_a_session_made_with_a_key_is_made_once(data_dir: Path) -> None:
    async with hosting(_agent, data_dir=data_dir) as host:
        first = await host.store.start(NOBODY, "one", key=key_of("one"))
        host.clock.advance(60)
        assert await host.store.start(NOBODY, "one", key=key_of("one")) == first
        await host.settled(first.session_id)
        assert await host.store.start(NOBODY, "one", key=key_of("one")) == first
        assert (first.start_index, first.is_queued) == (0, False)
    async with hosting(_agent, data_dir=data_dir) as host:
        assert await host.store.start(NOBODY, "one", key=key_of("one")) == first
        assert len(host.persistence.session_ids()) == 1
        assert _turns(host, first.session_id) == 1


async def test_a_key_is_still_the_session_s_after_its_host_was_killed_at_once() -> None:
    persistence = MemorySessionPersistence()
    async with crashing(_agent, persistence=persistence) as host:
        first = await host.store.start(NOBODY, "park", key=key_of("park"))
        await host.asked(first.session_id)
    async with hosting(_agent, persistence=persistence) as host:
        assert await host.store.start(NOBODY, "park", key=key_of("park")) == first


async def test_twins_with_one_key_make_one_session() -> None:
    async with hosting(_agent) as host:
        twins = await asyncio.gather(*(host.store.start(NOBODY, "one", key=key_of("one")) for _ in range(50)))
        assert len(set(twins)) == 1
        assert len(host.persistence.session_ids()) == 1
        await host.settled(twins[0].session_id)


async def test_another_body_under_the_same_key_is_a_conflict() -> None:
    async with hosting(_agent) as host:
        first = await host.store.start(NOBODY, "one", key=key_of("one"))
        with pytest.raises(IdempotencyConflict):
            await host.store.start(NOBODY, "two", key=key_of("two"))
        await host.settled(first.session_id)


async def test_each_caller_has_keys_of_its_own() -> None:
    async with hosting(_agent) as host:
        ann = await host.store.start(ANN, "one", key=key_of("one"))
        bob = await host.store.start(BOB, "two", key=key_of("two"))
        nobody = await host.store.start(NOBODY, "three", key=key_of("three"))
        assert len({ann.session_id, bob.session_id, nobody.session_id}) == 3
        assert await host.store.start(ANN, "one", key=key_of("one")) == ann
        for accepted in (ann, bob, nobody):
            await host.settled(accepted.session_id)


@pytest.mark.parametrize("who", [NOBODY, ANN])
async def test_a_session_s_id_ends_with_eighty_bits_of_caller_route_and_key(who: Principal) -> None:
    async with hosting(_agent) as host:
        first = await host.store.start(who, "one", key=key_of("one", "my-key"))
        named = hashlib.sha256(orjson.dumps([who.name, "POST /zhin/v1/session", "my-key"])).digest()
        assert first.session_id[-16:] == base32(int.from_bytes(named[:10], "big"), 16)
        await host.settled(first.session_id)


async def test_a_session_of_another_caller_that_ends_alike_is_not_the_answer() -> None:
    """What the names find is checked against the log's own key and owner."""
    persistence = MemorySessionPersistence()
    async with hosting(_agent, persistence=persistence) as host:
        mine = await host.store.start(ANN, "one", key=key_of("one"))
        await host.settled(mine.session_id)
    # The same name again, newer, of another: made by whoever computes it.
    async with hosting(_agent, persistence=persistence) as host:
        host.clock.advance(5)
        host.host._sessions.index._named[mine.session_id[-16:]] = SessionId(
            (await host.store.start(BOB, "two")).session_id
        )
        other = await host.store.start(ANN, "one", key=key_of("one"))
        assert other.session_id != mine.session_id
        await host.settled(other.session_id)


async def test_a_start_that_fails_frees_its_key() -> None:
    async with hosting(_agent) as host:
        with pytest.raises(AgentNotFound):
            await host.store.start(NOBODY, "one", None, "nobody", key_of("one"))
        first = await host.store.start(NOBODY, "two", key=key_of("two"))
        await host.settled(first.session_id)


async def test_a_twin_whose_first_fails_is_tried_itself() -> None:
    persistence = Failing()
    async with hosting(_agent, persistence=persistence) as host:
        persistence.failures = 1
        twins = await asyncio.gather(
            *(host.store.start(NOBODY, "one", key=key_of("one")) for _ in range(5)), return_exceptions=True
        )
        assert isinstance(twins[0], StorageUnavailable)
        assert len(set(twins[1:])) == 1
        assert isinstance(twins[1], Accepted)
        await host.settled(twins[1].session_id)


async def test_a_deleted_session_frees_its_key() -> None:
    async with hosting(_agent) as host:
        first = await host.store.start(NOBODY, "one", key=key_of("one"))
        await host.settled(first.session_id)
        await host.store.delete(NOBODY, first.session_id)
        host.clock.advance(1)
        again = await host.store.start(NOBODY, "two", key=key_of("two"))
        assert again.session_id != first.session_id
        await host.settled(again.session_id)


class Failing(MemorySessionPersistence):
    """A place in which making a log, or syncing one, fails so often."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0
        self.sync_failures = 0

    async def create_log(self, session_id: SessionId, instead_of: SessionId | None = None) -> SessionLog:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise StorageUnavailable("The disk is gone.")
        await super().create_log(session_id, instead_of)
        place = self

        class Log(MemoryLog):
            async def sync(self) -> None:
                await asyncio.sleep(0)
                if place.sync_failures:
                    place.sync_failures -= 1
                    raise StorageUnavailable("The sync failed.")

        return Log(session_id, self._content(session_id))


async def test_an_answer_under_a_key_is_synced_whoever_asked_for_it_first() -> None:
    """The first one's sync failed; its twin is not told 200 before one succeeds."""
    persistence = Failing()
    async with hosting(_agent, persistence=persistence) as host:
        persistence.sync_failures = 2

        async def start() -> tuple[Accepted, int]:
            accepted = await host.store.start(NOBODY, "park", key=key_of("park"))
            return accepted, persistence.sync_failures

        twins = await asyncio.gather(*(start() for _ in range(6)), return_exceptions=True)
        assert isinstance(twins[0], StorageUnavailable)
        told = [row for row in twins if not isinstance(row, BaseException)]
        assert len({accepted for accepted, _ in told}) == 1
        assert {failures for _, failures in told} == {0}
        assert len(persistence.session_ids()) == 1


# -- follow-ups ----------------------------------------------------------------------------------------------------


async def test_a_follow_up_with_a_key_makes_one_turn(data_dir: Path) -> None:
    async with hosting(_agent, data_dir=data_dir) as host:
        first = await host.start("one")
        await host.settled(first.session_id)
        second = await _followed(host, first.session_id, first.token, "two", key_of("two"))
        again = await _followed(host, first.session_id, first.token, "two", key_of("two"))
        assert again == second, "the token that the first one rotated is not judged: the key comes before it"
        third = await _followed(host, first.session_id, second.token, "three")
        assert await _followed(host, first.session_id, first.token, "two", key_of("two")) == second
        assert third.token != second.token
    async with hosting(_agent, data_dir=data_dir) as host:
        assert await _followed(host, first.session_id, first.token, "two", key_of("two")) == second
        with pytest.raises(IdempotencyConflict):
            await _followed(host, first.session_id, third.token, "other", key_of("other"))
        assert _turns(host, first.session_id) == 3


async def test_a_key_is_of_one_route_and_one_session() -> None:
    async with hosting(_agent) as host:
        first = await host.store.start(NOBODY, "one", key=key_of("one"))
        await host.settled(first.session_id)
        second = await _followed(host, first.session_id, first.token, "two", key_of("two"))
        assert second.turn_id != first.turn_id, "the key that made the session is free for its follow-ups"
        assert await host.store.start(NOBODY, "one", key=key_of("one")) == first
        assert await _followed(host, first.session_id, first.token, "two", key_of("two")) == second
        other = await host.start("other")
        await host.settled(other.session_id)
        third = await _followed(host, other.session_id, other.token, "three", key_of("three"))
        assert third.session_id == other.session_id


async def test_a_twin_that_comes_while_the_first_is_under_way_gets_its_answer() -> None:
    async with hosting(_agent) as host:
        first = await host.start("one")
        await host.settled(first.session_id)
        twins = await asyncio.gather(
            *(
                host.store.proceed(NOBODY, first.session_id, first.token, "two", "reject", key_of("two"))
                for _ in range(50)
            )
        )
        assert len(set(twins)) == 1
        await host.settled(first.session_id)
        assert _turns(host, first.session_id) == 2


async def test_a_queued_message_under_a_key_is_queued_once() -> None:
    async with hosting(_agent) as host:
        first = await host.start("park")
        (request,) = await host.asked(first.session_id)
        queued = await host.store.proceed(
            NOBODY, first.session_id, first.token, "two", "queue", key_of("two")
        )
        for _ in range(2):
            again = await host.store.proceed(
                NOBODY, first.session_id, first.token, "two", "queue", key_of("two")
            )
            assert again == queued
            assert again.is_queued
        await host.approve(first.session_id, request.request_id)
        await host.seen(first.session_id, ev.TURN_COMPLETED, 2)
        again = await host.store.proceed(NOBODY, first.session_id, first.token, "two", "queue", key_of("two"))
        assert again == queued, "also when it has had its turn"
        assert _turns(host, first.session_id) == 2


async def test_a_key_comes_before_the_end_the_token_and_the_open_turn() -> None:
    async with hosting(_agent) as host:
        first = await host.start("one")
        await host.settled(first.session_id)
        second = await host.store.proceed(
            NOBODY, first.session_id, first.token, "park", "reject", key_of("park")
        )
        (request,) = await host.asked(first.session_id)
        again = await host.store.proceed(
            NOBODY, first.session_id, "zhin:stale", "park", "reject", key_of("park")
        )
        assert again == second
        with pytest.raises(SessionBusy):
            await host.store.proceed(
                NOBODY, first.session_id, second.token, "x", "reject", key_of("x", "new")
            )
        await host.approve(first.session_id, request.request_id)
        await host.settled(first.session_id)
        await host.store.end(NOBODY, first.session_id, "completed", None)
        assert await _followed(host, first.session_id, first.token, "park", key_of("park")) == second
        with pytest.raises(SessionTerminal):
            await _followed(host, first.session_id, second.token, "x", key_of("x", "new"))


async def test_a_refused_follow_up_frees_its_key() -> None:
    async with hosting(_agent) as host:
        first = await host.start("one")
        await host.settled(first.session_id)
        with pytest.raises(ContinuationTokenStale):
            await _followed(host, first.session_id, "zhin:stale", "two", key_of("two"))
        second = await _followed(host, first.session_id, first.token, "other", key_of("other"))
        assert second.turn_id != first.turn_id


async def test_another_caller_s_session_is_not_found_whatever_the_key() -> None:
    async with hosting(_agent) as host:
        first = await host.store.start(ANN, "one")
        await host.settled(first.session_id)
        await _followed(host, first.session_id, first.token, "two", key_of("two"), who=ANN)
        with pytest.raises(SessionNotFound):
            await _followed(host, first.session_id, first.token, "two", key_of("two"), who=BOB)


async def test_the_last_thousand_keys_are_remembered_and_the_one_that_made_the_session() -> None:
    async with hosting(_agent, snapshot_bytes_min=1 << 30) as host:
        first = await host.store.start(NOBODY, "one", key=key_of("one"))
        await host.settled(first.session_id)
        token, answers = first.token, []
        for number in range(REMEMBERED + 1):
            key = key_of("two", f"key-{number}")
            answers.append(await _followed(host, first.session_id, token, "two", key))
            token = answers[-1].token
        with pytest.raises(ContinuationTokenStale):
            await _followed(host, first.session_id, first.token, "two", key_of("two", "key-0"))
        again = await _followed(host, first.session_id, first.token, "two", key_of("two", "key-1"))
        assert again == answers[1]
        assert await host.store.start(NOBODY, "one", key=key_of("one")) == first
        assert _turns(host, first.session_id) == REMEMBERED + 2


# -- twins with one token ------------------------------------------------------------------------------------------


async def test_of_twins_with_one_token_exactly_one_wins_a_hundred_times_out_of_a_hundred() -> None:
    async with hosting(_agent, snapshot_bytes_min=1 << 30) as host:
        first = await host.start("one")
        await host.settled(first.session_id)
        token = first.token
        for number in range(100):
            twins: list[Any] = await asyncio.gather(
                *(host.store.proceed(NOBODY, first.session_id, token, f"{number}") for _ in range(3)),
                return_exceptions=True,
            )
            won = [row for row in twins if isinstance(row, Accepted)]
            assert len(won) == 1
            assert sum(isinstance(row, ContinuationTokenStale) for row in twins) == 2
            token = won[0].token
            await host.settled(first.session_id)
        assert _turns(host, first.session_id) == 101


async def test_of_twins_that_queue_with_one_token_exactly_one_is_queued() -> None:
    async with hosting(_agent) as host:
        first = await host.start("park")
        (request,) = await host.asked(first.session_id)
        twins: list[Any] = await asyncio.gather(
            *(host.store.proceed(NOBODY, first.session_id, first.token, "x", "queue") for _ in range(10)),
            return_exceptions=True,
        )
        assert sum(isinstance(row, Accepted) for row in twins) == 1
        await host.approve(first.session_id, request.request_id)
        await host.seen(first.session_id, ev.TURN_COMPLETED, 2)
        assert stored(host.persistence, first.session_id).count(b'"message.queued"') == 1


async def test_a_key_of_another_caller_that_happens_to_name_the_same_session_finds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin = Principal("ops", frozenset({"admin"}))
    async with hosting(_agent) as host:
        mine = await host.store.start(ANN, "hello", key=key_of("a"))
        monkeypatch.setattr(host.host._sessions.index, "keyed", lambda _: SessionId(mine.session_id))
        theirs = await host.store.start(admin, "hello", key=key_of("a"))
        assert theirs.session_id != mine.session_id
        await host.settled(mine.session_id)
        await host.settled(theirs.session_id)


async def test_each_sender_has_keys_of_its_own_also_after_a_restart() -> None:
    admin, persistence = Principal("ops", frozenset({"admin"})), MemorySessionPersistence()
    async with hosting(_agent, persistence=persistence) as host:
        began = await host.store.start(ANN, "hello")
        await host.settled(began.session_id)
        mine = await _followed(host, began.session_id, began.token, "x", key_of("a"), who=ANN)
        theirs = await _followed(host, began.session_id, mine.token, "y", key_of("b"), who=admin)
        last = await host.store.proceed(
            admin, began.session_id, theirs.token, "park", "reject", key_of("c", "k2")
        )
        await host.asked_by(admin, began.session_id)
        queued = await host.store.proceed(ANN, began.session_id, last.token, "z", "queue", key_of("d", "k3"))
        await host.store.cancel(ANN, began.session_id, None)
        await host.settled(began.session_id)
    async with hosting(_agent, persistence=persistence) as host:
        for who, key, given in [
            (ANN, key_of("a"), mine),
            (admin, key_of("b"), theirs),
            (admin, key_of("c", "k2"), last),
            (ANN, key_of("d", "k3"), queued),
        ]:
            assert await host.store.proceed(who, began.session_id, "stale", "x", "reject", key) == given
        with pytest.raises(ContinuationTokenStale):
            await host.store.proceed(ANN, began.session_id, "stale", "x", "reject", key_of("c", "k2"))
