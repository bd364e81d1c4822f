"""The sync face runs the same code in a loop of its own, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.builders import LogBuilder
from tests.scripted_host import ScriptedHost, ok, sent
from zhin_host.client import GaveUp, SyncClient, SyncSession
from zhin_host.client.state import new_saved_state


@pytest.fixture
def host() -> ScriptedHost:
    return ScriptedHost()


@pytest.fixture
def client(host: ScriptedHost) -> Iterator[SyncClient]:
    patience = host.clock.patience(tries=3)
    with SyncClient("http://localhost:1", transport=host, patience=patience, heartbeat_s=15.0) as client:
        yield client


def held(client: SyncClient, host: ScriptedHost) -> SyncSession:
    return client.restore(
        new_saved_state(host.session_id, host.log.state.token, host.log.state.next_index - 1)
    )


async def endless(body: bytes) -> AsyncIterator[bytes]:
    yield body
    await asyncio.Event().wait()


def test_events_and_errors_are_those_of_the_async_face(client: SyncClient, host: ScriptedHost) -> None:
    session = held(client, host)
    assert list(session.events()) == host.events
    assert session.cursor == session.state["cursor"] == len(host.events)
    host.replies.extend([httpx.ReadError("")] * 3)
    with pytest.raises(GaveUp) as caught:
        session.send("And then?")
    assert caught.value.session_id == session.session_id


def test_a_turn_is_sent_read_and_cancelled(client: SyncClient, host: ScriptedHost) -> None:
    host.log.follow_up("And then?").say("so").finish("so")
    host.replies.extend([host.accepted(), ok(status="no_active_turn"), host.accepted()])
    session = held(client, host)
    turn = session.send("And then?")
    assert turn.result().text == "so"
    assert next(turn.events()).index == turn.start_index
    assert turn.cancel() is False
    assert session.turn.turn_id == turn.turn_id == session.resume().turn_id
    assert turn.is_queued is False


def test_a_session_is_ended(client: SyncClient, host: ScriptedHost) -> None:
    host.replies.append(ok(status="completed"))
    held(client, host).end()
    assert sent(host.posts[0]) == {"outcome": "completed"}


def test_leaving_a_reading_closes_its_connection(client: SyncClient, host: ScriptedHost) -> None:
    host.bodies.append(endless)
    with held(client, host).events(start=0, until="never") as events:
        assert next(events) == host.events[0]
    assert list(events) == []


def test_an_interrupted_wait_is_cancelled_and_the_next_one_goes_on() -> None:
    host = ScriptedHost(LogBuilder().start())
    host.bodies.append(endless)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with SyncClient("http://localhost:1", transport=host, heartbeat_s=15.0) as client:
            events = held(client, host).events(start=0, until="never")
            got = [next(events) for _ in host.log.lines]
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(KeyboardInterrupt):
                next(events)
            host.log.say("at last")
            got.append(next(events))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert got == host.events


def test_closing_ends_the_thread_and_what_other_threads_wait_for() -> None:
    host = ScriptedHost(LogBuilder().start())
    host.bodies.append(endless)
    client = SyncClient("http://localhost:1", transport=host, heartbeat_s=15.0)
    events = held(client, host).events(start=0, until="never")
    got = [next(events) for _ in host.log.lines]
    with ThreadPoolExecutor(1) as others:
        waiting = others.submit(next, events)
        client.close()
        client.close()
        assert waiting.exception(timeout=20) is not None
    assert got == host.events
    with pytest.raises(RuntimeError, match="closed"):
        next(events)
    assert "zhin-client" not in [thread.name for thread in threading.enumerate()]
