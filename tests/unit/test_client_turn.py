"""A turn has its own events and its own end, whatever else its session does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import LogBuilder
from tests.scripted_host import ScriptedHost, ended_at, ok, sent
from tests.stories import STORIES, cancelled, cancelling, fail
from zhin_host import events as ev
from zhin_host.client import Client, TurnDropped


async def a_turn(host: ScriptedHost, client: Client) -> Any:
    host.replies.append(host.accepted())
    return await host.session(client).send("And then?")


async def test_the_end_of_an_earlier_turn_is_not_the_end_of_this_one() -> None:
    host = ScriptedHost()
    host.log.follow_up("And then?").say("second").finish("second")
    async with host.client() as client:
        turn = await a_turn(host, client)
        events = [event async for event in turn]
        assert (await turn.result()).text == "second"
    assert events[0].index == turn.start_index
    assert [event.type for event in events if event.type in ev.TURN_ENDS] == [ev.TURN_COMPLETED]
    assert {event.data["turnId"] for event in events if "turnId" in event.data} == {turn.turn_id}
    assert events[-1].type == ev.SESSION_WAITING


async def test_a_queued_turn_begins_and_ends_with_its_own_events() -> None:
    log = LogBuilder().start()
    first, later, another = log.turn_id, f"turn_{'later':0>26}", f"turn_{'another':0>26}"
    tokens = {later: "zhin:" + "q" * 26, another: "zhin:" + "r" * 26}
    for turn_id in (later, another):
        queued = {"turnId": turn_id, "message": "next", "continuationToken": tokens[turn_id]}
        log.put((ev.MESSAGE_QUEUED, queued))
    log.say("of another").finish("of another")
    for turn_id in (later, another):
        log.put(
            (ev.TURN_STARTED, {"turnId": turn_id, "continuationToken": tokens[turn_id]}),
            (ev.MESSAGE_RECEIVED, {"turnId": turn_id, "message": "next"}),
            (ev.MESSAGE_APPENDED, {"messageDelta": turn_id}),
            (ev.MESSAGE_COMPLETED, {"message": turn_id, "finishReason": "stop"}),
            (ev.TURN_COMPLETED, {"turnId": turn_id}),
        )
    host = ScriptedHost(log)
    [index] = [
        event.index
        for event in host.events
        if event.type == ev.MESSAGE_QUEUED and event.data["turnId"] == later
    ]
    answer = ok(
        sessionId=host.session_id,
        continuationToken=tokens[later],
        turnId=later,
        startIndex=index,
        queued=True,
    )
    host.replies.append(answer)
    async with host.client() as client:
        turn = await host.session(client).send("next", on_busy="queue")
        assert turn.is_queued
        events = [event async for event in turn]
        result = await turn.result()
    assert sent(host.posts[0])["onBusy"] == "queue"
    assert [event.type for event in events[:3]] == [ev.MESSAGE_QUEUED, ev.TURN_STARTED, ev.STEP_STARTED]
    assert {event.data["turnId"] for event in events if "turnId" in event.data} == {later}
    assert (result.text, result.status, result.message) == (later, "completed", "next")
    assert first not in json.dumps([event.data for event in events if event.type != ev.SESSION_WAITING])
    assert events[-1].data["queued"] == 1  # a wait, though another turn comes


async def test_a_message_that_others_queue_meanwhile_is_not_of_this_turn() -> None:
    log = LogBuilder().start()
    queued = {"turnId": f"turn_{'other':0>26}", "message": "next", "continuationToken": "zhin:" + "q" * 26}
    log.put((ev.MESSAGE_QUEUED, queued)).say("mine").finish("mine")
    host = ScriptedHost(log)
    host.replies.append(host.accepted())
    async with host.client() as client:
        session = await client.start("Hello")
        events = [event async for event in session.turn]
        assert session.continuation_token == queued["continuationToken"]
    assert ev.MESSAGE_QUEUED not in [event.type for event in events]
    assert events[-1].type == ev.SESSION_WAITING


async def test_a_turn_moves_the_cursor_over_no_event_that_nobody_was_given() -> None:
    log = LogBuilder().start().finish("")
    host, others = ScriptedHost(log), len(log.lines)
    async with host.client() as client:
        host.replies.append(host.accepted())
        session = await client.start("Hello")
        await session.turn.result()
        assert session.cursor == others
        log.follow_up("of another client").finish("")
        await session.refresh()
        log.follow_up("And then?").finish("")
        host.replies.append(host.accepted())
        await (await session.send("And then?")).result()
        assert session.cursor == others
        assert [event async for event in session.events()] == host.events[others:]
        assert session.cursor == len(host.events)


async def test_a_turn_that_parks_goes_on_when_it_is_answered() -> None:
    log = LogBuilder().start().ask_approval("call_1")
    host = ScriptedHost(log)
    host.replies.append(host.accepted())
    types = []
    host.bodies.append(ended_at(10_000))  # a host that stopped while it waited
    async with host.client() as client:
        session = await client.start("Hello")
        async for event in session.turn:
            types.append(event.type)
            if event.type == ev.INPUT_REQUESTED:
                host.replies.append(ok(approved=True, alreadyAnswered=False))
                await session.answer(event, approved=True)
                log.answer("call_1").result("call_1").finish("")
    assert types == [event.type for event in host.events]


async def test_a_failed_and_a_cancelled_turn_end_too() -> None:
    for end in (fail, cancelled):
        log = LogBuilder().start().say("half")
        if end is cancelled:
            log.put(cancelling(log))
        log.put(end(log))
        host = ScriptedHost(log)
        host.replies.append(host.accepted())
        async with host.client() as client:
            result = await (await client.start("Hello")).turn.result()
        assert (result.status, result.text) == ("failed" if end is fail else "cancelled", "half")


async def test_a_turn_that_ends_the_session_ends_with_it() -> None:
    host = ScriptedHost(STORIES["a_session_that_ends_itself"]())
    host.replies.append(host.accepted())
    async with host.client() as client:
        events = [event async for event in (await client.start("Hello")).turn]
    assert events[-1].type == ev.SESSION_COMPLETED


async def test_a_queued_message_that_the_end_of_the_session_drops_is_a_named_error() -> None:
    host = ScriptedHost(STORIES["dropped_messages"]())
    [queued] = [event for event in host.events if event.type == ev.MESSAGE_QUEUED]
    answer = ok(
        sessionId=host.session_id,
        continuationToken=queued.data["continuationToken"],
        turnId=queued.data["turnId"],
        startIndex=queued.index,
        queued=True,
    )
    host.replies.append(answer)
    async with host.client() as client:
        turn = await host.session(client).send("next", on_busy="queue")
        with pytest.raises(TurnDropped) as caught:
            await turn.result()
    assert caught.value.turn_id == queued.data["turnId"]
