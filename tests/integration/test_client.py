"""The client against a real host, straight and through a proxy with the faults of real ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from tests.integration.live import Script, Serving, served
from tests.integration.proxy import Fault, Proxy, proxied
from tests.scripted_host import take
from zhin_host import Turn, create_agent_session_host
from zhin_host import events as ev
from zhin_host.client import (
    Client,
    Event,
    GaveUp,
    IdempotencyConflict,
    Patience,
    RequestAlreadyAnswered,
    SessionBusy,
    SessionNotFound,
    SessionTerminal,
    StorageUnavailable,
    SyncClient,
    Unauthorized,
    View,
    fold,
)
from zhin_host.http import BearerTokens

QUICK = Patience(first_s=0.01, longest_s=0.05)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def live(data_dir: Path, script: Script) -> AsyncIterator[Serving]:
    host = create_agent_session_host(script, data_dir=data_dir, heartbeat_s=0.05)
    async with served(host) as serving:
        yield serving


@pytest.fixture
async def client(live: Serving) -> AsyncIterator[Client]:
    async with Client(f"http://localhost:{live.port}", patience=QUICK) as client:
        yield client


@pytest.fixture
async def proxy(live: Serving) -> AsyncIterator[Proxy]:
    async with proxied(live.port) as proxy:
        yield proxy


def logged(data_dir: Path, session_id: str) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in (data_dir / f"{session_id}.ndjson").read_bytes().split(b"\n") if line
    ]


def as_logged(events: list[Event]) -> list[dict[str, Any]]:
    """The events as the log's lines have them."""
    return [
        {
            "index": event.index,
            "type": event.type,
            "timestamp": event.timestamp_ms,
            "data": event.data,
            "sum": event.sum.decode(),
        }
        for event in events
    ]


def types(events: list[Event]) -> list[str]:
    return [event.type for event in events]


# -- what people do --------------------------------------------------------------------------------------------------


async def test_a_conversation(client: Client, data_dir: Path) -> None:
    session = await client.start("say hello")
    assert (await session.turn.result()).text == "say hello"
    turn = await session.send("publish home")
    events = []
    async for event in turn:
        events.append(event)
        if event.type == ev.INPUT_REQUESTED:
            answer = await session.answer(event, approved=True, comment="fine")
            assert (answer.value, answer.is_repeated) == (True, False)
    assert (await turn.result()).text == "at /home"
    await (await session.send([{"type": "text", "text": "say more"}])).result()
    everything = [event async for event in session.events(start=0)]
    assert as_logged(everything) == logged(data_dir, session.session_id)
    view = reduce(fold, everything, View())
    assert [turn.text for turn in view.turns] == ["say hello", "at /home", "say more"]
    assert (view.status, view.continuation_token) == ("waiting", session.continuation_token)
    assert events == everything[events[0].index : events[-1].index + 1]


async def test_questions_refusals_and_authorizations(client: Client) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("ask it", {"response": {"n": [1, None]}}, "answered {'n': [1, None]}"),
        ("ask it", {"response": None}, "answered None"),
        ("approve it", {"approved": False}, "approved False"),
        ("authorize mail", {"success": True}, "authorized True"),
    ]
    for message, answer, text in cases:
        session = await client.start(message)
        async for event in session.turn:
            if event.type in ev.REQUESTS:
                await session.answer(event, **answer)
        assert (await session.turn.result()).text == text


async def test_an_answer_given_twice_says_so_and_another_is_refused(client: Client) -> None:
    session = await client.start("approve it")
    [request_id] = [
        event.data["requestId"] async for event in session.events() if event.type == ev.INPUT_REQUESTED
    ]
    assert (await session.answer(request_id, approved=True)).is_repeated is False
    assert (await session.answer(request_id, approved=True)).is_repeated is True
    with pytest.raises(RequestAlreadyAnswered):
        await session.answer(request_id, approved=False)
    assert (await session.turn.result()).text == "approved True"


async def test_a_failed_turn_says_why_and_is_tried_again_from_its_record(data_dir: Path) -> None:
    runs = 0

    async def shaky() -> str:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise OSError("busy")
        return "done"

    async def agent(turn: Turn) -> None:
        await turn.say("Trying. ")
        await turn.say(await turn.run("shaky", shaky))

    async with served(create_agent_session_host(agent, data_dir=data_dir)) as live:
        async with Client(f"http://localhost:{live.port}") as client:
            session = await client.start("go")
            failed = await session.turn.result()
            assert (failed.status, failed.code, failed.is_recoverable) == ("failed", "ACTION_FAILED", True)
            again = await session.resume()
            assert (await again.result()).text == "Trying. done"
            view = reduce(fold, [event async for event in session.events(start=0)], View())
        old, new = view.turns
        assert (old.resumed_by, new.resumes) == (new.turn_id, old.turn_id)
        assert new.text == new.said.text == "Trying. done"
        assert [(call.status, call.output) for call in new.calls] == [("completed", "done")]


async def test_a_cancel_ends_the_turn_and_not_the_session(client: Client) -> None:
    session = await client.start("hold on")
    assert await session.cancel() is True
    assert (await session.turn.result()).status == "cancelled"
    assert await session.cancel() is False
    assert await session.turn.cancel() is False
    assert (await (await session.send("say on")).result()).text == "say on"


async def test_a_session_that_is_ended_takes_no_message_any_more(client: Client, script: Script) -> None:
    session = await client.start("hold on")
    with pytest.raises(SessionBusy):
        await session.end()
    script.go.set()
    await session.turn.result()
    await session.end(message="That was all.")
    await session.end()  # ended so already
    with pytest.raises(SessionTerminal):
        await session.end("failed")
    with pytest.raises(SessionTerminal):
        await session.send("say more")
    events = [event async for event in session.events(start=0)]
    assert (events[-1].type, events[-1].data["message"]) == ("session.completed", "That was all.")


async def test_messages_that_queue_get_their_own_ends(client: Client, script: Script) -> None:
    session = await client.start("hold on")
    first = session.turn
    with pytest.raises(SessionBusy) as caught:
        await session.send("say no")
    assert caught.value.pending_request_ids == []
    second = await session.send("say two", on_busy="queue")
    third = await session.send("say three", on_busy="queue")
    assert (first.is_queued, second.is_queued, third.is_queued) == (False, True, True)
    waiting = asyncio.gather(third.result(), second.result(), first.result())
    script.go.set()
    assert [result.text for result in await waiting] == ["say three", "say two", "holding done"]


async def test_a_message_may_interrupt(client: Client) -> None:
    session = await client.start("hold on")
    first = session.turn
    second = await session.send("say two", on_busy="interrupt")
    assert (await second.result()).text == "say two"
    assert (await first.result()).status == "cancelled"


async def test_two_clients_in_a_session_see_the_same_and_need_the_token_in_force(
    client: Client, live: Serving
) -> None:
    async with Client(f"http://localhost:{live.port}", patience=QUICK) as other:
        mine = await client.start("approve it")
        theirs = await other.open(mine.session_id)
        readers = [asyncio.create_task(mine.turn.result())]
        async for event in theirs.events():
            if event.type == ev.INPUT_REQUESTED:
                await theirs.answer(event, approved=True)
        assert (await readers[0]).text == "approved True"
        turn = await theirs.send("say theirs")
        assert (await turn.result()).text == "say theirs"
        assert mine.continuation_token != theirs.continuation_token
        assert [event async for event in mine.events(start=0)] == [
            event async for event in theirs.events(start=0)
        ]
        assert (await (await mine.send("say mine")).result()).text == "say mine"


async def test_an_ended_session_takes_nothing_more(client: Client) -> None:
    session = await client.start("end it")
    assert types([event async for event in session.events(until="never")])[-1] == ev.SESSION_COMPLETED
    assert [event async for event in session.events(until="never")] == []
    with pytest.raises(SessionTerminal):
        await session.send("say more")


async def test_a_session_that_is_deleted_while_it_is_read_is_a_named_error(
    client: Client, live: Serving
) -> None:
    session = await client.start("say hello")
    events = session.events(until="never")
    while (await anext(events)).type != ev.SESSION_WAITING:
        pass
    await live.client.delete(f"/session/{session.session_id}")
    with pytest.raises(SessionNotFound):
        await anext(events)
    with pytest.raises(SessionNotFound):
        await session.send("say more")
    assert live.good(await live.client.get("/sessions"))["sessions"] == []


async def test_a_bearer_opens_its_own_sessions_only(data_dir: Path, script: Script) -> None:
    tokens = BearerTokens({"ann": "a" * 16, "bob": "b" * 16})
    host = create_agent_session_host(script, data_dir=data_dir, authenticator=tokens)
    async with served(host) as live:
        url = f"http://localhost:{live.port}"
        async with Client(url) as nobody:
            with pytest.raises(Unauthorized):
                await nobody.start("say hello")
        async with Client(url, bearer="a" * 16) as ann, Client(url, bearer="b" * 16) as bob:
            session = await ann.start("say hello")
            assert (await session.turn.result()).text == "say hello"
            with pytest.raises(SessionNotFound):
                await bob.open(session.session_id)


async def test_values_beyond_json_are_sent_in_the_hosts_forms(client: Client) -> None:
    session = await client.start("say \ud800", metadata={"big": 2**200})
    assert (await session.turn.result()).text == "say \ufffd"
    assert (await session.refresh())["metadata"] == {"big": str(2**200)}


# -- faults of the network -------------------------------------------------------------------------------------------


async def test_a_parked_turn_is_waited_for_on_one_connection(client: Client, live: Serving) -> None:
    session = await client.start("approve it")
    events = session.turn.events()
    while (event := await anext(events)).type != ev.SESSION_WAITING:
        pass
    rest = asyncio.create_task(anext(events))
    hub = live.host._hub
    [stream] = hub._all
    last_s = stream._idle_since_s
    while stream._idle_since_s - last_s < 0.5:  # ten heartbeats have gone
        await live.client.get("/health")
    assert set(hub._all) == {stream}
    assert await client._wire.heartbeat_s() == 0.05
    await session.answer(event.data["pendingRequestIds"][0], approved=True)
    assert (await rest).type == ev.INPUT_COMPLETED
    await events.aclose()


async def test_connections_cut_at_any_place_lose_nothing(live: Serving, proxy: Proxy, data_dir: Path) -> None:
    async with Client(proxy.url, patience=QUICK, heartbeat_s=15.0) as client:
        session = await client.start("many 10")
        await session.turn.result()
        log = logged(data_dir, session.session_id)
        size_bytes = sum(len(json.dumps(row)) for row in log) + 1_000  # the head of the response too
        for cut in range(0, size_bytes, 61):
            await client._wire._http._transport.aclose()  # every reading on a new connection
            proxy.faults.append(Fault(cut))
            assert as_logged([event async for event in session.events(start=0)]) == log
            assert not proxy.faults


async def test_a_connection_that_falls_silent_is_replaced(
    live: Serving, proxy: Proxy, data_dir: Path, script: Script
) -> None:
    async with Client(proxy.url, patience=QUICK, heartbeat_s=0.1) as client:
        proxy.faults.extend([Fault(1 << 20), Fault(700, is_silent=True), Fault(0, is_silent=True)])
        session = await client.start("hold on")
        await client._wire._http._transport.aclose()
        reading = asyncio.create_task(session.turn.result())
        while proxy.connections < 4:
            await live.client.get("/health")
        script.go.set()
        assert (await reading).text == "holding done"
        assert as_logged([event async for event in session.events(start=0)]) == logged(
            data_dir, session.session_id
        )


async def test_an_answer_lost_on_the_wire_begins_no_second_session_and_no_second_turn(
    live: Serving, proxy: Proxy, data_dir: Path
) -> None:
    async with Client(proxy.url, patience=QUICK, heartbeat_s=15.0) as client:
        proxy.faults.extend([Fault(0), Fault(100), Fault(1 << 20)])
        session = await client.start("say hello")
        assert (await session.turn.result()).text == "say hello"
        await client._wire._http._transport.aclose()
        proxy.faults.extend([Fault(0), Fault(100), Fault(1 << 20)])
        turn = await session.send("say more")
        assert (await turn.result()).text == "say more"
    assert proxy.sent.count(b"POST ") == 6
    assert len(live.good(await live.client.get("/sessions"))["sessions"]) == 1
    log = logged(data_dir, session.session_id)
    assert [row["data"]["turnId"] for row in log if row["type"] == ev.TURN_STARTED] == [
        log[1]["data"]["turnId"],
        turn.turn_id,
    ]


async def test_a_message_given_up_is_sent_once_more_in_another_process_and_begins_one_turn(
    live: Serving, proxy: Proxy, data_dir: Path
) -> None:
    hasty = Patience(tries=2, first_s=0.01)
    async with Client(proxy.url, patience=hasty, heartbeat_s=15.0) as client:
        session = await client.start("say hello")
        await session.turn.result()
        await client._wire._http._transport.aclose()
        proxy.faults.extend([Fault(0), Fault(0)])
        with pytest.raises(GaveUp) as caught:
            await session.send("say more")
        saved = json.dumps(session.state)
    async with Client(proxy.url, patience=QUICK) as client:
        session = client.restore(json.loads(saved))
        _ = [event async for event in session.events()]  # the token in force is another one by now
        turn = await session.send("say more", key=caught.value.key)
        assert (await turn.result()).text == "say more"
        with pytest.raises(IdempotencyConflict):
            await session.send("say other", key=caught.value.key)
    log = logged(data_dir, session.session_id)
    assert [row["type"] for row in log].count(ev.TURN_STARTED) == 2


async def test_a_host_that_stops_ends_streams_well_and_the_client_does_not_take_that_for_an_end(
    data_dir: Path, script: Script
) -> None:
    async with (
        served(create_agent_session_host(script, data_dir=data_dir)) as live,
        Client(f"http://localhost:{live.port}", patience=Patience(tries=2, first_s=0.01)) as client,
    ):
        session = await client.start("approve it")
        reading = asyncio.create_task(session.turn.result())
        while not live.host._hub._all:
            await live.client.get("/health")
        await live.stop()
        with pytest.raises(GaveUp) as caught:
            await reading
    assert caught.value.session_id == session.session_id
    assert caught.value.cursor == session.cursor


@pytest.mark.damaged(reason="a line in the middle is broken on purpose")
async def test_a_session_whose_log_is_broken_is_read_up_to_there_and_named(
    data_dir: Path, script: Script
) -> None:
    def host() -> Any:
        return served(create_agent_session_host(script, data_dir=data_dir))

    async with host() as live, Client(f"http://localhost:{live.port}", patience=QUICK) as client:
        session = await client.start("many 20")
        await session.turn.result()
    path = data_dir / f"{session.session_id}.ndjson"
    path.write_bytes(path.read_bytes().replace(b'{"index":9,', b'{"index":7,'))
    got: list[Event] = []
    async with host() as live, Client(f"http://localhost:{live.port}", patience=QUICK) as client:
        session = client.restore({**session.state, "cursor": 0, "sum": None})
        with pytest.raises(StorageUnavailable) as caught:
            await take(session.events(), got)
    assert [event.index for event in got] == list(range(9))
    assert caught.value.broken_at == 9


# -- without an event loop -------------------------------------------------------------------------------------------


async def test_the_sync_face_does_the_same(live: Serving, data_dir: Path) -> None:
    def talk() -> str:
        with SyncClient(f"http://localhost:{live.port}", patience=QUICK) as client:
            assert [row["name"] for row in client.info()["agents"]] == ["scripted"]
            session = client.start("publish home")
            for event in session.turn:
                if event.type == ev.INPUT_REQUESTED:
                    [listed] = client.sessions(status="waiting", limit=1)["sessions"]
                    assert listed["sessionId"] == session.session_id
                    assert client.sessions(before=session.session_id)["sessions"] == []
                    assert session.answer(event, approved=True).value is True
            turn = session.send("say more")
            assert turn.result().text == "say more"
            everything = list(client.restore(session.state).events(start=0))
            assert as_logged(everything) == logged(data_dir, session.session_id)
            again = client.open(session.session_id)
            with again.events(until="never") as events:
                assert next(events) == everything[0]
            assert again.cancel() is False
            assert again.refresh()["continuationToken"] == again.continuation_token
            with pytest.raises(SessionNotFound):
                client.open("ses_nobody")
            return session.session_id

    session_id = await asyncio.to_thread(talk)
    assert logged(data_dir, session_id)[-1]["type"] == ev.SESSION_WAITING


async def test_threads_may_share_a_session_one_reads_and_one_answers(live: Serving) -> None:
    with SyncClient(f"http://localhost:{live.port}", patience=QUICK) as client:
        session = await asyncio.to_thread(client.start, "ask it")
        reading = asyncio.create_task(asyncio.to_thread(session.turn.result))
        while not (view := await asyncio.to_thread(session.refresh))["pendingRequestIds"]:
            pass
        [request_id] = view["pendingRequestIds"]
        await asyncio.to_thread(session.answer, request_id, response="tea")
        assert (await reading).text == "answered tea"
