"""store: the commands: who may do what, when, and what stays as it was when they are refused."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from tests.hosting import DEADLINE_S, NOBODY, Hosting, hosting, one, types
from tests.scripted_log import UnsteadyPersistence
from tests.stories import STORIES
from zhin_host import Turn
from zhin_host.errors import (
    AgentNotFound,
    AgentUnavailable,
    AuthorizationRequestNotFound,
    BadRequest,
    BodyTooLarge,
    ContinuationTokenStale,
    RequestAlreadyAnswered,
    RequestError,
    RequestNotFound,
    SessionBusy,
    SessionNotFound,
    SessionTerminal,
    ShuttingDown,
    StorageFull,
    StorageUnavailable,
    TooManySessions,
    TooManyStreams,
)
from zhin_host.ports import Principal
from zhin_host.storage.memory import MemorySessionPersistence

ANN, BOB = Principal("ann"), Principal("bob")
GONE = StorageUnavailable("the disk is gone")
UNKNOWN = "ses_" + "0" * 26


async def talkative(turn: Turn) -> None:
    """Does what its message says."""
    match turn.message:
        case "ask":
            await turn.say(f"{await turn.ask('What?')}")
        case "approve":
            await turn.say(f"{await turn.approve('May I?')}")
        case "authorize":
            await turn.say(f"{await turn.authorize('mail')}")
        case "end":
            await turn.end_session()
        case "wait":
            await asyncio.Event().wait()
        case _:
            await turn.say("ok")


async def resting(host: Hosting, message: str = "Hello") -> tuple[str, str]:
    """A session at rest, and its token."""
    accepted = await host.start(message)
    await host.idle(accepted.session_id)
    return accepted.session_id, accepted.token


async def asking(host: Hosting, message: str = "ask") -> tuple[str, str]:
    """A session that waits for an answer, and the request's id."""
    accepted = await host.start(message)
    (request,) = await host.asked(accepted.session_id)
    return accepted.session_id, request.request_id


async def refused(
    host: Hosting, session_id: str, error: type[RequestError], command: Awaitable[Any]
) -> RequestError:
    """The command is refused so, and changes nothing in the log."""
    before = host.log(session_id)
    with pytest.raises(error) as caught:
        await command
    assert host.log(session_id) == before
    return caught.value


# -- starting --------------------------------------------------------------------------------------------------


async def test_a_session_is_readable_before_its_start_is_answered() -> None:
    async with hosting(talkative) as host:
        accepted = await host.store.start(ANN, "Hello", {"ticket": 7}, None)
        log = host.log(accepted.session_id)
        assert log.count(b"\n") >= 4
        view = await host.store.view(ANN, accepted.session_id)
        assert view["continuationToken"] == accepted.token
        assert (view["owner"], view["metadata"], view["agent"]) == ("ann", {"ticket": 7}, "talkative")
        assert accepted.start_index == 0
        assert accepted.is_queued is False
        await host.settled(accepted.session_id)


async def test_an_agent_is_chosen_by_name_and_the_first_one_when_none_is_named() -> None:
    async def other(turn: Turn) -> None:
        await turn.say("other")

    async with hosting({"first": talkative, "second": other}) as host:
        by_default, by_name = await host.start(), await host.start(agent="second")
        assert one(await host.idle(by_default.session_id), "session.started")["agent"] == "first"
        assert one(await host.idle(by_name.session_id), "message.completed")["message"] == "other"
        with pytest.raises(AgentNotFound, match="first, second"):
            await host.start(agent="third")
        assert len(host.persistence.session_ids()) == 2


async def test_a_message_that_no_line_can_hold_starts_no_session_and_no_turn() -> None:
    async with hosting(talkative, line_bytes_max=8192) as host:
        with pytest.raises(BodyTooLarge):
            await host.start("x" * 8192)
        assert host.persistence.session_ids() == []
        session_id, token = await resting(host)
        await refused(
            host, session_id, BodyTooLarge, host.store.proceed(NOBODY, session_id, token, "x" * 8192)
        )


async def test_no_more_turns_are_open_than_the_host_bears_and_an_answer_makes_room() -> None:
    async with hosting(talkative, open_turns_max=2) as host:
        session_id, token = await resting(host)
        waiting = [await host.start("wait") for _ in range(2)]
        with pytest.raises(TooManySessions):
            await host.start()
        await refused(
            host, session_id, TooManySessions, host.store.proceed(NOBODY, session_id, token, "Hello")
        )
        await host.cancel(waiting[0].session_id)
        await host.idle(waiting[0].session_id)
        await host.settled(waiting[0].session_id)
        await host.start()
        await host.cancel(waiting[1].session_id)
        await host.idle(waiting[1].session_id)


async def test_no_more_turns_are_open_than_the_host_bears_when_they_come_all_at_once(data_dir: Path) -> None:
    async with hosting(talkative, data_dir=data_dir, open_turns_max=3) as host:
        results = await asyncio.gather(*(host.start("wait") for _ in range(12)), return_exceptions=True)
        accepted = [result for result in results if not isinstance(result, BaseException)]
        assert len(accepted) == 3
        assert all(isinstance(result, TooManySessions) for result in results if result not in accepted)
        assert len(host.persistence.session_ids()) == 3
        for row in accepted:
            await host.cancel(row.session_id)
            await host.idle(row.session_id)


async def test_metadata_that_no_line_can_hold_starts_no_session() -> None:
    async with hosting(talkative, line_bytes_max=8192) as host:
        with pytest.raises(BodyTooLarge):
            await host.start(note="x" * 8192)
        assert host.persistence.session_ids() == []


@pytest.mark.parametrize("error", [GONE, StorageFull("no space")], ids=["gone", "full"])
async def test_a_session_that_cannot_be_written_is_none(error: StorageUnavailable) -> None:
    persistence = UnsteadyPersistence()
    async with hosting(talkative, persistence=persistence) as host:
        persistence.append_error = error
        with pytest.raises(type(error)):
            await host.start()
        assert persistence.session_ids() == []
        assert persistence.marks() == {}
        persistence.append_error = None
        await resting(host)


async def test_a_session_that_can_be_neither_written_nor_removed_is_none_for_the_next_host_too() -> None:
    persistence = UnsteadyPersistence()
    async with hosting(talkative, persistence=persistence) as host:
        persistence.append_error = persistence.delete_error = GONE
        with pytest.raises(StorageUnavailable):
            await host.start()
        persistence.append_error = persistence.delete_error = None
        assert (await host.store.page(NOBODY, None, 10, None)).sessions == []
    async with hosting(talkative, persistence=persistence, is_audited=False) as host:
        await recovered(host)
        await host.store.check_ready()
        assert (await host.store.page(NOBODY, None, 10, None)).sessions == []


class HangingPersistence(MemorySessionPersistence):
    """Whose probe waits until the test lets it go."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.go, self.probes = threading.Event(), threading.Event(), 0

    def check_writable(self) -> None:
        self.probes += 1
        self.began.set()
        assert self.go.wait(DEADLINE_S)


async def test_who_asks_whether_the_host_is_ready_while_the_disk_hangs_waits_for_the_one_probe_under_way() -> (
    None
):
    persistence = HangingPersistence()
    async with hosting(talkative, persistence=persistence) as host:
        persistence.go.clear()
        asking = [asyncio.create_task(host.store.check_ready()) for _ in range(20)]
        await asyncio.to_thread(persistence.began.wait, DEADLINE_S)
        asking[0].cancel()
        persistence.go.set()
        await asyncio.gather(*asking[1:])
        assert persistence.probes == 1
        await host.store.check_ready()
        assert persistence.probes == 2


async def test_a_session_whose_first_sync_fails_is_answered_as_failed_and_goes_on_by_itself() -> None:
    persistence = UnsteadyPersistence()
    async with hosting(talkative, persistence=persistence) as host:
        persistence.sync_error = GONE
        with pytest.raises(StorageUnavailable):
            await host.start()
        (session_id,) = persistence.session_ids()
        persistence.sync_error = None
        assert "turn.completed" in types(await host.idle(session_id))


async def test_a_host_that_stops_takes_no_new_work() -> None:
    async with hosting(talkative) as host:
        session_id, token = await resting(host)
        await host.store.stop()
        with pytest.raises(ShuttingDown):
            await host.start()
        await refused(host, session_id, ShuttingDown, host.store.proceed(NOBODY, session_id, token, "Hello"))
        await refused(host, session_id, ShuttingDown, host.store.resume(NOBODY, session_id))
        with pytest.raises(ShuttingDown):
            await host.store.subscribe(NOBODY, session_id, 0, "tail")
        with pytest.raises(ShuttingDown):
            await host.store.check_ready()


async def test_a_start_under_way_when_the_host_stops_runs_nothing_behind_its_back() -> None:
    persistence = UnsteadyPersistence()
    ran: list[str] = []

    async def agent(turn: Turn) -> None:
        ran.append(turn.message)
        await asyncio.Event().wait()

    async with hosting(agent, persistence=persistence) as host:
        persistence.hold_creation()
        starting = asyncio.create_task(host.start())
        await asyncio.sleep(0)
        stopping = asyncio.create_task(host.host.stop())
        for _ in range(5):
            await asyncio.sleep(0)
        persistence.let_creation_go()
        await asyncio.wait([starting, stopping])
        assert ran == []
        starting.exception()


# -- following up ----------------------------------------------------------------------------------------------


async def test_a_follow_up_rotates_the_token_and_the_old_one_is_stale() -> None:
    async with hosting(talkative) as host:
        session_id, token = await resting(host)
        accepted = await host.store.proceed(NOBODY, session_id, token, "again")
        assert accepted.session_id == session_id
        assert accepted.token != token
        events = await host.idle(session_id, accepted.start_index)
        assert types(events)[0] == "turn.started"
        assert events[0].index == accepted.start_index
        assert one(events, "session.waiting")["continuationToken"] == accepted.token
        await refused(
            host,
            session_id,
            ContinuationTokenStale,
            host.store.proceed(NOBODY, session_id, token, "again"),
        )


@pytest.mark.parametrize("token", ["", "zhin:", "é", "\ud800", "x" * 10_000])
async def test_any_other_string_is_a_stale_token(token: str) -> None:
    async with hosting(talkative) as host:
        session_id, _ = await resting(host)
        command = host.store.proceed(NOBODY, session_id, token, "again")
        await refused(host, session_id, ContinuationTokenStale, command)


@pytest.mark.parametrize("is_on_files", [False, True], ids=["memory", "files"])
async def test_of_twin_follow_ups_one_wins_and_the_other_is_stale_every_time(
    is_on_files: bool,  # noqa: FBT001 - a parameter of the test
    data_dir: Path,
) -> None:
    async with hosting(talkative, data_dir=data_dir if is_on_files else None) as host:
        session_id, token = await resting(host)
        for _ in range(100):
            twins = await asyncio.gather(
                *(host.store.proceed(NOBODY, session_id, token, "again") for _ in range(2)),
                return_exceptions=True,
            )
            won = [twin for twin in twins if not isinstance(twin, BaseException)]
            lost = [twin for twin in twins if isinstance(twin, BaseException)]
            assert len(won) == 1
            assert isinstance(lost[0], ContinuationTokenStale)
            token = won[0].token
            await host.idle(session_id, won[0].start_index)
        events = await host.events(session_id)
        assert types(events).count("turn.started") == types(events).count("turn.completed") == 101


async def test_a_follow_up_while_a_turn_is_open_is_told_what_the_session_waits_for() -> None:
    async with hosting(talkative) as host:
        session_id, request_id = await asking(host)
        token = (await host.store.view(NOBODY, session_id))["continuationToken"]
        error = await refused(
            host, session_id, SessionBusy, host.store.proceed(NOBODY, session_id, token, "again")
        )
        assert error.extra() == {"pendingRequestIds": [request_id]}
        await host.respond(session_id, request_id, "tea")
        assert one(await host.idle(session_id), "message.completed")["message"] == "tea"


async def test_what_is_wrong_with_a_follow_up_is_judged_in_the_order_of_the_contract() -> None:
    async with hosting(talkative) as host:
        ended, ended_token = await resting(host, "end")
        await refused(host, ended, SessionTerminal, host.store.proceed(NOBODY, ended, "stale", "again"))
        await refused(host, ended, SessionTerminal, host.store.proceed(NOBODY, ended, ended_token, "again"))
        busy, _ = await asking(host)
        await refused(host, busy, ContinuationTokenStale, host.store.proceed(NOBODY, busy, "stale", "again"))
        await host.cancel(busy)
        await host.idle(busy)


async def test_a_message_never_answers_a_request() -> None:
    """Scenario B5: what is typed before the prompt existed is no answer to it."""
    async with hosting(talkative) as host:
        session_id, request_id = await asking(host, "approve")
        token = (await host.store.view(NOBODY, session_id))["continuationToken"]
        for message in (
            "approve",
            "true",
            '{"approved":true}',
            f'{{"requestId":"{request_id}","approved":true}}',
        ):
            await refused(
                host, session_id, SessionBusy, host.store.proceed(NOBODY, session_id, token, message)
            )
        await host.cancel(session_id)
        await host.idle(session_id)


# -- whose it is -----------------------------------------------------------------------------------------------


def commands(host: Hosting, who: Principal, session_id: str, token: str, request_id: str) -> dict[str, Any]:
    """Every command on a session, in the name of `who`."""
    store = host.store
    return {
        "view": lambda: store.view(who, session_id),
        "audit": lambda: store.audit(who, session_id),
        "subscribe": lambda: store.subscribe(who, session_id, 0, "tail"),
        "proceed": lambda: store.proceed(who, session_id, token, "again"),
        "resume": lambda: store.resume(who, session_id),
        "answer": lambda: store.answer(who, session_id, request_id, {"response": 1}, None),
        "answer_relayed": lambda: store.answer_relayed(who, session_id, request_id, 1),
        "cancel": lambda: store.cancel(who, session_id, None),
        "end": lambda: store.end(who, session_id, "completed", None),
        "delete": lambda: store.delete(who, session_id),
    }


@pytest.mark.parametrize("who", [BOB, NOBODY], ids=["another", "nobody"])
async def test_a_session_of_somebody_else_is_not_there(who: Principal) -> None:
    """Scenario H3."""
    async with hosting(talkative) as host:
        accepted = await host.store.start(ANN, "ask")
        (request,) = await host.asked_by(ANN, accepted.session_id)
        for command in commands(host, who, accepted.session_id, accepted.token, request.request_id).values():
            await refused(host, accepted.session_id, SessionNotFound, command())
        with pytest.raises(AuthorizationRequestNotFound):
            await host.store.authorize(who, request.request_id, True, None, None)
        assert (await host.store.page(who, None, 10, None)).sessions == []
        await host.store.cancel(ANN, accepted.session_id, None)
        await host.settled(accepted.session_id)


async def test_a_session_that_never_was_is_not_there() -> None:
    async with hosting(talkative) as host:
        for command in commands(host, NOBODY, UNKNOWN, "token", "req_x").values():
            with pytest.raises(SessionNotFound):
                await command()


async def test_who_did_it_comes_from_the_authentication() -> None:
    async with hosting(talkative) as host:
        accepted = await host.store.start(ANN, "approve")
        (request,) = await host.asked_by(ANN, accepted.session_id)
        await host.store.answer(ANN, accepted.session_id, request.request_id, {"approved": True}, "by bob")
        await host.settled(accepted.session_id)
        token = (await host.store.view(ANN, accepted.session_id))["continuationToken"]
        await host.store.proceed(ANN, accepted.session_id, token, "wait")
        await host.store.cancel(ANN, accepted.session_id, None)
        await host.settled(accepted.session_id)
        await host.store.end(ANN, accepted.session_id, "failed", "enough")
        log = host.log(accepted.session_id)
    for kind in (b"input.completed", b"turn.cancelling", b"turn.cancelled", b"session.failed"):
        (line,) = [line for line in log.splitlines() if b'"type":"%b"' % kind in line]
        assert b'"by":"ann"' in line
    assert b'"comment":"by bob"' in log


# -- answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "given", "same", "other"),
    [
        ("approve", {"approved": True}, {"approved": True}, {"approved": False}),
        ("approve", {"approved": False}, {"approved": False}, {"approved": True}),
        ("ask", {"response": {"a": 1, "b": 2}}, {"response": {"b": 2, "a": 1}}, {"response": {"a": 1}}),
        ("ask", {"response": None}, {"response": None}, {"response": 0}),
    ],
)
async def test_the_same_answer_twice_is_one_answer_and_another_is_refused(
    message: str, given: dict[str, Any], same: dict[str, Any], other: dict[str, Any]
) -> None:
    async with hosting(talkative) as host:
        session_id, request_id = await asking(host, message)
        first = await host.store.answer(NOBODY, session_id, request_id, given, "sure")
        assert (first.already, first.request_id, first.value) == (
            False,
            request_id,
            next(iter(given.values())),
        )
        second = await host.store.answer(NOBODY, session_id, request_id, same, None)
        assert second.already is True
        await host.idle(session_id)
        assert (await host.store.answer(NOBODY, session_id, request_id, same, None)).already is True
        await refused(
            host,
            session_id,
            RequestAlreadyAnswered,
            host.store.answer(NOBODY, session_id, request_id, other, None),
        )
        events = await host.events(session_id)
    assert types(events).count("input.completed") == 1
    assert one(events, "input.completed")["comment"] == "sure"


async def test_of_two_different_answers_at_once_exactly_one_stands() -> None:
    for _ in range(20):
        async with hosting(talkative) as host:
            session_id, request_id = await asking(host, "approve")
            results = await asyncio.gather(
                *(
                    host.store.answer(NOBODY, session_id, request_id, {"approved": approved}, None)
                    for approved in (True, False)
                ),
                return_exceptions=True,
            )
            events = await host.idle(session_id)
        lost = [result for result in results if isinstance(result, BaseException)]
        assert len(lost) == 1
        assert isinstance(lost[0], RequestAlreadyAnswered)
        assert types(events).count("input.completed") == 1


async def test_a_request_is_answered_in_its_own_session_and_by_its_own_id_only() -> None:
    """Scenario B11: the id of another session's request opens nothing here."""
    async with hosting(talkative) as host:
        first, first_request = await asking(host)
        second, second_request = await asking(host)
        for session_id, request_id in (
            (first, second_request),
            (second, first_request),
            (first, first_request[:-1]),
            (first, ""),
        ):
            command = host.store.answer(NOBODY, session_id, request_id, {"response": 1}, None)
            await refused(host, session_id, RequestNotFound, command)
        for session_id in (first, second):
            await host.cancel(session_id)
            await host.idle(session_id)


@pytest.mark.parametrize(
    ("message", "answer"), [("ask", {"approved": True}), ("approve", {"response": True}), ("ask", {})]
)
async def test_a_request_takes_the_answer_of_its_kind_only(message: str, answer: dict[str, Any]) -> None:
    async with hosting(talkative) as host:
        session_id, request_id = await asking(host, message)
        command = host.store.answer(NOBODY, session_id, request_id, answer, None)
        error = await refused(host, session_id, BadRequest, command)
        assert request_id in str(error)
        await host.cancel(session_id)
        await host.idle(session_id)


async def test_an_answer_that_no_line_can_hold_is_refused_and_the_request_stays_open() -> None:
    async with hosting(talkative, line_bytes_max=8192) as host:
        session_id, request_id = await asking(host)
        for answer, comment in (({"response": "x" * 8192}, None), ({"response": 1}, "x" * 8192)):
            command = host.store.answer(NOBODY, session_id, request_id, answer, comment)
            await refused(host, session_id, BodyTooLarge, command)
        await host.respond(session_id, request_id, "short")
        await host.idle(session_id)


async def test_a_request_that_was_cancelled_is_not_there_any_more() -> None:
    async with hosting(talkative) as host:
        session_id, request_id = await asking(host)
        await host.cancel(session_id)
        await host.idle(session_id)
        command = host.store.answer(NOBODY, session_id, request_id, {"response": 1}, None)
        await refused(host, session_id, RequestNotFound, command)


async def test_an_answer_that_could_not_be_written_can_be_given_again() -> None:
    persistence = UnsteadyPersistence()
    async with hosting(talkative, persistence=persistence) as host:
        session_id, request_id = await asking(host)
        persistence.append_error = GONE
        with pytest.raises(StorageUnavailable):
            await host.respond(session_id, request_id, "tea")
        persistence.append_error = None
        await host.respond(session_id, request_id, "tea")
        assert one(await host.idle(session_id), "message.completed")["message"] == "tea"


@pytest.mark.parametrize(
    ("message", "response", "value"),
    [
        ("approve", "approve", True),
        ("approve", "deny", False),
        ("approve", True, True),
        ("approve", False, False),
        ("ask", "approve", "approve"),
        ("ask", [1, 2], [1, 2]),
    ],
)
async def test_a_relayed_answer_speaks_the_words_of_the_first_clients(
    message: str, response: Any, value: Any
) -> None:
    async with hosting(talkative) as host:
        session_id, request_id = await asking(host, message)
        answered = await host.store.answer_relayed(NOBODY, session_id, request_id, response)
        assert (answered.value, answered.already) == (value, False)
        again = await host.store.answer_relayed(NOBODY, session_id, request_id, response)
        assert (again.value, again.already) == (value, True)
        assert one(await host.idle(session_id), "message.completed")["message"] == str(value)


@pytest.mark.parametrize("response", ["yes", 1, 0, None, [True], {"approved": True}, "APPROVE"])
async def test_a_relayed_answer_to_an_approval_is_nothing_that_only_looks_like_one(response: Any) -> None:
    async with hosting(talkative) as host:
        session_id, request_id = await asking(host, "approve")
        command = host.store.answer_relayed(NOBODY, session_id, request_id, response)
        await refused(host, session_id, BadRequest, command)
        await host.cancel(session_id)
        await host.idle(session_id)


# -- authorizations --------------------------------------------------------------------------------------------


async def authorize(host: Hosting, request_id: str, *, success: bool = True, **more: Any) -> Any:
    return await host.store.authorize(NOBODY, request_id, success, more.get("error"), more.get("session_id"))


async def test_the_same_completion_of_an_authorization_twice_is_one_and_another_is_refused() -> None:
    async with hosting(talkative) as host:
        session_id, request_id = await asking(host, "authorize")
        first = await authorize(host, request_id, session_id=session_id)
        assert (first.session_id, first.value, first.already) == (session_id, True, False)
        assert (await authorize(host, request_id)).already is True
        await host.idle(session_id)
        await refused(host, session_id, RequestAlreadyAnswered, authorize(host, request_id, success=False))
        assert types(await host.events(session_id)).count("authorization.completed") == 1


async def test_an_authorization_is_completed_under_its_own_id_in_its_own_session_only() -> None:
    async with hosting(talkative) as host:
        session_id, request_id = await asking(host, "authorize")
        other, question = await asking(host, "ask")
        unknown = request_id[:-1] + ("0" if request_id[-1] != "0" else "1")
        nowhere = "req_" + UNKNOWN[4:] + "_" + "0" * 26
        for named, of in (
            (request_id, other),
            (question, None),
            (unknown, None),
            (nowhere, None),
            ("", None),
        ):
            wrong = authorize(host, named, session_id=of)
            await refused(host, session_id, AuthorizationRequestNotFound, wrong)
        for answer in ({"approved": True}, {"response": 1}):
            command = host.store.answer(NOBODY, session_id, request_id, answer, None)
            await refused(host, session_id, RequestNotFound, command)
        relayed = host.store.answer_relayed(NOBODY, session_id, request_id, True)
        await refused(host, session_id, RequestNotFound, relayed)
        for waiting in (session_id, other):
            await host.cancel(waiting)
            await host.idle(waiting)


async def test_an_authorization_error_that_no_line_can_hold_is_refused_and_the_request_stays_open() -> None:
    async with hosting(talkative, line_bytes_max=8192) as host:
        session_id, request_id = await asking(host, "authorize")
        command = authorize(host, request_id, success=False, error="x" * 8192)
        await refused(host, session_id, BodyTooLarge, command)
        await authorize(host, request_id, success=False, error="declined")
        assert one(await host.idle(session_id), "message.completed")["message"] == "False"


# -- ending and deleting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "message", "data"),
    [
        ("completed", None, {}),
        ("completed", "done", {"message": "done"}),
        ("failed", None, {"code": "ENDED", "message": "A person ended the session as failed."}),
        ("failed", "enough", {"code": "ENDED", "message": "enough"}),
    ],
)
async def test_a_session_at_rest_can_be_ended_for_good(outcome: str, message: str | None, data: Any) -> None:
    async with hosting(talkative) as host:
        session_id, token = await resting(host)
        await host.store.end(NOBODY, session_id, outcome, message)
        events = await host.events(session_id)
        assert types(events)[-1] == f"session.{outcome}"
        assert events[-1].data == {"sessionId": session_id, **data}
        assert (await host.store.view(NOBODY, session_id))["status"] == outcome
        await refused(host, session_id, SessionTerminal, host.store.end(NOBODY, session_id, outcome, message))
        await refused(host, session_id, SessionTerminal, host.store.proceed(NOBODY, session_id, token, "x"))
        assert await host.cancel(session_id) == "no_active_turn"


async def test_a_session_with_a_turn_open_can_be_neither_ended_nor_deleted() -> None:
    async with hosting(talkative) as host:
        session_id, request_id = await asking(host)
        for command in (
            host.store.end(NOBODY, session_id, "completed", None),
            host.store.delete(NOBODY, session_id),
        ):
            error = await refused(host, session_id, SessionBusy, command)
            assert error.extra() == {"pendingRequestIds": [request_id]}
        await host.cancel(session_id)
        await host.idle(session_id)


async def test_a_message_that_no_line_can_hold_ends_no_session() -> None:
    async with hosting(talkative, line_bytes_max=8192) as host:
        session_id, _ = await resting(host)
        for outcome in ("completed", "failed"):
            command = host.store.end(NOBODY, session_id, outcome, "x" * 8192)
            await refused(host, session_id, BodyTooLarge, command)
        await host.store.end(NOBODY, session_id, "completed", "short")


@pytest.mark.parametrize("is_on_files", [False, True], ids=["memory", "files"])
async def test_a_deleted_session_leaves_no_byte_and_ends_its_streams(
    is_on_files: bool,  # noqa: FBT001 - a parameter of the test
    data_dir: Path,
) -> None:
    async with hosting(talkative, data_dir=data_dir if is_on_files else None) as host:
        session_id, _ = await resting(host)
        kept, _ = await resting(host)
        await host.live(session_id).save_snapshot(host.persistence)
        reader = await host.store.subscribe(NOBODY, session_id, 0, "never")
        reading = asyncio.create_task(_read(reader))
        await asyncio.sleep(0)
        await host.store.delete(NOBODY, session_id)
        async with asyncio.timeout(10):
            assert (await reading).count(b"\n") > 5
        assert host.persistence.session_ids() == [kept]
        assert session_id not in host.persistence.marks()
        with pytest.raises(SessionNotFound):
            await host.store.view(NOBODY, session_id)
        if is_on_files:
            assert not [name for name in await asyncio.to_thread(os.listdir, data_dir) if session_id in name]
        page = await host.store.page(NOBODY, None, 10, None)
        assert [row["sessionId"] for row in page.sessions] == [kept]


async def _read(reader: Any) -> bytes:
    try:
        return b"".join([block async for block in reader])
    finally:
        await reader.aclose()


async def test_a_session_is_deleted_once_however_many_ask_at_once() -> None:
    async with hosting(talkative) as host:
        session_id, _ = await resting(host)
        results = await asyncio.gather(
            *(host.store.delete(NOBODY, session_id) for _ in range(3)), return_exceptions=True
        )
        assert results.count(None) == 1
        assert sum(isinstance(result, SessionNotFound) for result in results) == 2


async def test_a_session_is_not_deleted_before_the_snapshot_under_way_is_written() -> None:
    """Else its bytes would come back."""
    persistence = UnsteadyPersistence()
    async with hosting(talkative, persistence=persistence) as host:
        session_id, _ = await resting(host)
        persistence.hold_snapshots()
        host.live(session_id).save_snapshot_soon(persistence)
        deleting = asyncio.create_task(host.store.delete(NOBODY, session_id))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not deleting.done()
        persistence.let_snapshots_go()
        await deleting
        assert persistence.session_ids() == []


# -- an agent that is not here any more ------------------------------------------------------------------------


async def left_open(message: str) -> tuple[MemorySessionPersistence, str, str]:
    """A session whose turn an earlier host left open, and its request."""
    persistence = MemorySessionPersistence()
    async with hosting({"old": talkative}, persistence=persistence) as host:
        session_id, request_id = await asking(host, message)
    return persistence, session_id, request_id


async def test_a_turn_whose_agent_is_not_hosted_stays_open_and_says_so_and_ready_is_not_held_up() -> None:
    persistence, session_id, request_id = await left_open("ask")
    async with hosting({"new": talkative}, persistence=persistence) as host:
        before = host.log(session_id)
        token = (await host.store.view(NOBODY, session_id))["continuationToken"]
        await recovered(host)
        await host.store.check_ready()
        for command in (
            host.store.proceed(NOBODY, session_id, token, "again"),
            host.store.answer(NOBODY, session_id, request_id, {"response": 1}, None),
            host.store.cancel(NOBODY, session_id, None),
            host.store.end(NOBODY, session_id, "completed", None),
        ):
            await refused(host, session_id, AgentUnavailable, command)
        assert host.log(session_id) == before
    async with hosting({"old": talkative}, persistence=persistence) as host:
        await host.respond(session_id, request_id, "tea")
        assert one(await host.idle(session_id), "message.completed")["message"] == "tea"


async def recovered(host: Hosting) -> None:
    async with asyncio.timeout(10):
        while host.host._sessions.unsorted:  # noqa: ASYNC110 - threads read the logs
            await asyncio.sleep(0.001)


async def test_a_session_at_rest_whose_agent_is_not_hosted_takes_no_message_and_can_be_ended() -> None:
    persistence = MemorySessionPersistence()
    async with hosting({"old": talkative}, persistence=persistence) as host:
        session_id, token = await resting(host)
    async with hosting({"new": talkative}, persistence=persistence) as host:
        command = host.store.proceed(NOBODY, session_id, token, "again")
        await host.store.view(NOBODY, session_id)
        await refused(host, session_id, AgentUnavailable, command)
        await host.store.end(NOBODY, session_id, "completed", None)


async def test_a_session_that_is_ended_says_which_messages_it_drops() -> None:
    builder = STORIES["queued_messages"]()
    lines = builder.lines
    at = next(index for index, line in enumerate(lines) if b'"type":"session.waiting"' in line)
    persistence = MemorySessionPersistence()
    persistence._logs[builder.session_id] = bytearray(b"".join(lines[: at + 1]))
    persistence._marks[builder.session_id] = "stopped"
    async with hosting({"new": talkative}, persistence=persistence) as host:
        await host.store.end(NOBODY, builder.session_id, "completed", None)
        events = await host.events(builder.session_id)
    assert events[-1].data["droppedTurnIds"] == [f"turn_{'later':0>26}"]


# -- looking ---------------------------------------------------------------------------------------------------


async def test_a_view_is_the_snapshot_as_of_now_and_where_a_stream_would_go_on() -> None:
    async with hosting(talkative) as host:
        session_id, request_id = await asking(host, "approve")
        view = await host.store.view(NOBODY, session_id)
        assert view["status"] == "waiting"
        assert view["parked"] is True
        assert view["pendingRequestIds"] == [request_id]
        assert view["pendingRequests"][0]["prompt"] == "May I?"
        assert view["cursor"] == len(await host.events(session_id))
        assert not {"agentState", "log"} & set(view)
        await host.approve(session_id, request_id)
        await host.idle(session_id)
        assert (await host.store.view(NOBODY, session_id))["pendingRequests"] == []


async def test_under_fsync_always_a_view_shows_nothing_that_a_power_cut_could_take() -> None:
    persistence = UnsteadyPersistence()
    async with hosting(talkative, persistence=persistence, fsync="always") as host:
        session_id, _ = await resting(host)
        before = await host.store.view(NOBODY, session_id)
        persistence.hold_syncs()
        following = asyncio.create_task(host.follow_up(session_id, "ask"))
        live = host.live(session_id)
        for _ in range(10):
            await asyncio.sleep(0)
        assert live.state.next_index > before["cursor"]
        looking = asyncio.create_task(host.store.view(NOBODY, session_id))
        listing = asyncio.create_task(host.store.page(NOBODY, None, 10, None))
        for _ in range(10):
            await asyncio.sleep(0)
        is_early = looking.done() or listing.done()
        persistence.let_syncs_go()
        await following
        assert not is_early
        view = await looking
        await listing
        assert before["cursor"] < view["cursor"] <= live.journal.feed.next_index
        await host.asked(session_id)
        await host.cancel(session_id)
        await host.idle(session_id)


async def many(host: Hosting, count: int) -> list[str]:
    """Sessions at rest, newest first."""
    session_ids: list[str] = []
    for _ in range(count):
        host.clock.advance(0.001)
        session_ids.append((await resting(host))[0])
    return session_ids[::-1]


async def test_a_list_goes_from_the_newest_back_page_by_page() -> None:
    async with hosting(talkative) as host:
        session_ids = await many(host, 7)
        pages: list[list[str]] = []
        before: str | None = None
        while True:
            page = await host.store.page(NOBODY, None, 3, before)
            pages.append([row["sessionId"] for row in page.sessions])
            before = page.next_before
            if before is None:
                break
    assert pages == [session_ids[:3], session_ids[3:6], session_ids[6:]]


async def test_a_list_that_ends_with_a_full_page_says_that_it_ends() -> None:
    async with hosting(talkative) as host:
        session_ids = await many(host, 3)
        page = await host.store.page(NOBODY, None, 3, None)
        assert [row["sessionId"] for row in page.sessions] == session_ids
        assert page.next_before is None
        assert (await host.store.page(NOBODY, None, 3, session_ids[-1])).sessions == []
    async with hosting(talkative) as host:
        page = await host.store.page(NOBODY, None, 3, None)
        assert (page.sessions, page.next_before) == ([], None)


async def test_a_list_holds_the_callers_own_of_the_status_asked_for() -> None:
    async with hosting(talkative) as host:
        mine = (await host.store.start(ANN, "end")).session_id
        await host.settled(mine)
        await host.store.start(BOB, "end")
        waiting = (await host.store.start(ANN, "wait")).session_id
        rows = (await host.store.page(ANN, None, 10, None)).sessions
        assert {row["sessionId"]: row["status"] for row in rows} == {mine: "completed", waiting: "running"}
        rows = (await host.store.page(ANN, "completed", 10, None)).sessions
        assert [row["sessionId"] for row in rows] == [mine]
        assert rows[0]["owner"] == "ann"
        assert not {"continuationToken", "steps"} & set(rows[0])
        await host.store.cancel(ANN, waiting, None)
        await host.settled(waiting)


async def test_a_list_shows_sessions_that_are_out_of_memory_without_taking_them_in() -> None:
    persistence = MemorySessionPersistence()
    async with hosting(talkative, persistence=persistence) as host:
        session_ids = await many(host, 3)
    async with hosting(talkative, persistence=persistence) as host:
        rows = (await host.store.page(NOBODY, None, 10, None)).sessions
        assert [row["sessionId"] for row in rows] == session_ids
        assert not any(host.is_in_memory(session_id) for session_id in session_ids)


async def test_a_page_looks_at_a_bounded_number_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zhin_host.index.LOOKED_AT_MAX", 4)
    async with hosting(talkative) as host:
        session_ids = await many(host, 6)
        await host.store.end(NOBODY, session_ids[5], "completed", None)
        page = await host.store.page(NOBODY, "completed", 10, None)
        assert (page.sessions, page.next_before) == ([], session_ids[3])
        page = await host.store.page(NOBODY, "completed", 10, page.next_before)
        assert [row["sessionId"] for row in page.sessions] == [session_ids[5]]


async def test_a_session_that_goes_away_while_a_list_is_made_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    persistence = MemorySessionPersistence()
    async with hosting(talkative, persistence=persistence) as host:
        session_ids = await many(host, 2)
    async with hosting(talkative, persistence=persistence) as host:
        persistence._forget(host.host._sessions.index.before(None)[0])
        with caplog.at_level(logging.CRITICAL):
            rows = (await host.store.page(NOBODY, None, 10, None)).sessions
        assert [row["sessionId"] for row in rows] == session_ids[1:]


async def test_one_audit_runs_at_a_time() -> None:
    async with hosting(talkative) as host:
        session_id, _ = await resting(host)
        results = await asyncio.gather(
            *(host.store.audit(NOBODY, session_id) for _ in range(3)), return_exceptions=True
        )
        assert sum(isinstance(result, TooManyStreams) for result in results) == 2
        (verdict,) = [result for result in results if not isinstance(result, BaseException)]
        assert verdict["ok"] is True
        assert (await host.store.audit(NOBODY, session_id))["events"] == len(await host.events(session_id))


async def test_only_so_many_streams_are_open_at_once() -> None:
    async with hosting(talkative, streams_max=2) as host:
        session_id, _ = await resting(host)
        readers = [await host.store.subscribe(NOBODY, session_id, 0, "never") for _ in range(2)]
        with pytest.raises(TooManyStreams):
            await host.store.subscribe(NOBODY, session_id, 0, "never")
        for reader in readers:
            await reader.aclose()
        assert await host.content(session_id) == host.log(session_id)


@pytest.mark.parametrize(("start", "first"), [(0, 0), (3, 3), (-1, -1), (-3, -3), (-100, 0)])
async def test_a_stream_begins_where_it_is_asked_to(start: int, first: int) -> None:
    async with hosting(talkative) as host:
        session_id, _ = await resting(host)
        events = await host.events(session_id)
        assert await host.events(session_id, start) == events[first:]
        assert await host.content(session_id, len(events) + 5) == b""


async def test_a_host_is_ready_when_what_was_interrupted_is_sorted_and_the_place_is_writable() -> None:
    class Full(MemorySessionPersistence):
        def check_writable(self) -> None:
            raise StorageFull("no space")

    async with hosting(talkative) as host:
        await recovered(host)
        await host.store.check_ready()
    async with hosting(talkative, persistence=Full()) as host:
        with pytest.raises(StorageFull):
            await host.store.check_ready()
    persistence, _, _ = await left_open("ask")
    persistence._marks = dict.fromkeys(persistence._marks, "running")
    async with hosting({"old": talkative}, persistence=persistence) as host:
        with pytest.raises(StorageUnavailable, match="1 interrupted sessions"):
            await host.store.check_ready()
        await recovered(host)
        await host.store.check_ready()
