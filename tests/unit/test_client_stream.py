"""Every event comes once, whole and in order, whatever the connections do; what cannot be mended has a name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import LogBuilder, rechained
from tests.scripted_host import (
    ScriptedHost,
    broken_at,
    ended_at,
    in_parts,
    instead,
    ok,
    refused,
    silent,
    take,
)
from tests.stories import STORIES, queued_messages
from zhin_host import events as ev
from zhin_host.client import (
    BadResponse,
    Client,
    ConnectionLost,
    Event,
    GaveUp,
    HistoryChanged,
    Session,
    SessionNotFound,
    StorageUnavailable,
    Unauthorized,
)
from zhin_host.client.reading import Reading
from zhin_host.client.state import new_saved_state


def held(client: Client, host: ScriptedHost) -> Session:
    """The session, of which nothing was read."""
    return client.restore(new_saved_state(host.session_id, "zhin:", -1))


async def read(host: ScriptedHost, until: Any = "boundary", **settings: Any) -> list[Event]:
    async with host.client(**settings) as client:
        return [event async for event in held(client, host).events(until=until)]


# -- whole and in order ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [broken_at, ended_at], ids=["broken", "ended"])
async def test_a_stream_cut_at_any_byte_is_gone_on_with_from_the_last_whole_line(cut: Any) -> None:
    log = LogBuilder().start("é😀").say("ü\u2028").finish("ü\u2028")
    async with ScriptedHost(log).client() as client:
        for size_bytes in range(len(log.content) + 1):
            host = client._wire._http._transport
            assert isinstance(host, ScriptedHost)
            host.requests.clear()
            host.bodies.append(cut(size_bytes))
            got = [event async for event in held(client, host).events()]
            assert got == host.events
            assert host.starts[0] == 0
            assert host.starts[1:] in ([], [log.content[:size_bytes].count(b"\n")])


FAULTS = st.one_of(
    st.integers(0, 3_000).map(broken_at),
    st.integers(0, 3_000).map(ended_at),
    st.integers(1, 3_000).map(lambda size: instead(b"<html>" * size)),
    st.just(silent),
    st.sampled_from([httpx.ConnectError(""), httpx.ReadError(""), httpx.ConnectTimeout("")]),
    st.sampled_from([refused(503, "SHUTTING_DOWN", retry_after=1), refused(429, "TOO_MANY_STREAMS")]),
    st.just(httpx.Response(502, text="<html>Bad Gateway</html>")),
)


@settings(deadline=None)
@given(st.sampled_from(sorted(STORIES)), st.lists(FAULTS, max_size=10), st.integers(1, 500))
async def test_any_number_of_faults_loses_and_repeats_nothing(
    name: str, faults: list[Any], size_bytes: int
) -> None:
    host = ScriptedHost(STORIES[name]())
    host.bodies.extend([*faults, in_parts(size_bytes)])
    assert await read(host, "tail") == host.events


async def test_events_that_come_again_are_not_told_again_and_do_not_move_the_cursor() -> None:
    host = ScriptedHost()
    lines = host.log.lines
    host.bodies.append(instead(b"".join([*lines[:3], *lines[1:4], *lines[3:]])))
    assert await read(host) == host.events


async def test_a_gap_is_no_progress_but_a_connection_that_broke() -> None:
    host = ScriptedHost()
    host.bodies.append(instead(b"".join([*host.log.lines[:2], *host.log.lines[3:]])))
    assert await read(host) == host.events
    assert host.starts == [0, 2]


async def test_a_line_that_is_no_event_is_thrown_away_with_its_connection() -> None:
    host = ScriptedHost()
    for junk in (b"<html>502</html>\n", b'{"index":2}\n', host.log.lines[2].replace(b":", b"!", 4)):
        host.bodies.append(instead(host.log.lines[0] + junk))
        host.requests.clear()
        assert await read(host) == host.events
        assert host.starts == [0, 1]


async def test_heartbeats_are_no_events_and_take_no_index() -> None:
    host = ScriptedHost()
    host.bodies.append(instead(b"\n" + b"\n\n".join(host.log.lines) + b"\n"))
    assert await read(host) == host.events
    assert host.starts == [0]


async def test_a_line_of_twenty_megabytes_is_read() -> None:
    host = ScriptedHost()
    line = ev.encode_line(0, "x.large", 1, {"text": "x" * (20 << 20)}, host.session_id.encode(), 1 << 30)[0]
    host.bodies.append(instead(line))
    host.heads["x-zhin-tail-index"] = "0"
    [event] = await read(host, "tail")
    assert len(event.data["text"]) == 20 << 20


async def test_a_negative_start_counts_from_the_tail() -> None:
    host = ScriptedHost()
    host.bodies.append(broken_at(len(host.log.lines[-3]) + 5))
    async with host.client() as client:
        got = [event async for event in held(client, host).events(start=-3)]
    assert got == host.events[-3:]
    assert host.starts == [-3, len(host.events) - 2]


# -- ends ------------------------------------------------------------------------------------------------------------


async def test_a_body_that_ends_well_within_a_turn_is_no_end() -> None:
    log = LogBuilder().start().say("half")
    host = ScriptedHost(log)
    host.bodies.append(ended_at(len(log.content)))
    async with host.client() as client:
        events = held(client, host).events()
        got = [await anext(events) for _ in log.lines]
        log.say("whole").finish("halfwhole")
        got += [event async for event in events]
    assert got == host.events


async def test_a_boundary_before_the_tail_is_no_end() -> None:
    log = LogBuilder().start().finish("").follow_up().finish("")
    host = ScriptedHost(log)
    first = b"".join(log.lines[: len(LogBuilder().start().finish("").lines)])
    host.bodies.append(ended_at(len(first)))
    assert await read(host) == host.events


async def test_a_wait_before_a_queued_turn_is_no_end() -> None:
    log = queued_messages()
    [waiting, *_] = [event for event in ScriptedHost(log).events if event.type == ev.SESSION_WAITING]
    assert waiting.data["queued"] == 1
    host = ScriptedHost(log)
    host.bodies.append(ended_at(sum(map(len, log.lines[: waiting.index + 1]))))
    host.heads["x-zhin-tail-index"] = str(waiting.index)
    events = []
    async with host.client() as client:
        async for event in held(client, host).events():
            events.append(event)
            if event == waiting:
                host.heads.clear()
    assert events == host.events


async def test_reading_on_where_nothing_is_left_ends_at_once() -> None:
    for story in ("a_plain_turn", "a_session_that_ends_itself"):
        host = ScriptedHost(STORIES[story]())
        async with host.client() as client:
            session = held(client, host)
            assert [event async for event in session.events()] == host.events
            assert [event async for event in session.events()] == []
            assert [event async for event in session.events(until="tail")] == []
        assert host.clock.slept == []


async def test_until_never_ends_with_the_session_also_when_all_was_read_before() -> None:
    host = ScriptedHost(STORIES["a_session_that_ends_itself"]())
    async with host.client() as client:
        session = held(client, host)
        assert [event async for event in session.events(until="never")] == host.events
        assert [event async for event in session.events(until="never")] == []


async def test_until_tail_ends_within_a_turn() -> None:
    host = ScriptedHost(LogBuilder().start().say("half"))
    assert await read(host, "tail") == host.events
    host.heads["x-zhin-tail-index"] = ""
    assert await read(host, "tail") == host.events  # a proxy that drops the header


async def test_a_session_deleted_meanwhile_is_a_named_error_and_no_new_session() -> None:
    host = ScriptedHost(LogBuilder().start().say("half"))
    host.bodies.extend([ended_at(10_000), refused(404, "SESSION_NOT_FOUND")])
    with pytest.raises(SessionNotFound, match="SESSION_NOT_FOUND"):
        await read(host)
    host.replies.append(refused(404, "SESSION_NOT_FOUND"))
    host.bodies.append(ended_at(10_000))
    with pytest.raises(SessionNotFound):
        await read(host)
    assert host.posts == []


# -- trying again, and giving up -------------------------------------------------------------------------------------

LOST = httpx.ConnectError("All connection attempts failed")


async def test_giving_up_keeps_the_session_and_the_cursor_and_the_same_call_goes_on_later() -> None:
    host = ScriptedHost()
    host.bodies.extend([broken_at(len(host.log.lines[0]) + 5), LOST, LOST, LOST])
    got: list[Event] = []
    async with host.client(bounds={"tries": 4}) as client:
        session = held(client, host)
        with pytest.raises(GaveUp) as caught:
            await take(session.events(), got)
        assert (caught.value.session_id, caught.value.cursor, caught.value.tries) == (host.session_id, 1, 4)
        assert isinstance(caught.value.__cause__, ConnectionLost)
        got += [event async for event in session.events()]
    assert got == host.events
    assert host.posts == []


async def test_the_very_iterator_that_gave_up_goes_on_with_all_its_patience() -> None:
    host = ScriptedHost()
    got: list[Event] = []
    async with host.client(bounds={"tries": 4}) as client:
        events = held(client, host).events()
        for cut in (3, 7):
            host.bodies.extend(
                [broken_at(sum(map(len, host.log.lines[:cut]) if not got else [0])), *[LOST] * 3]
            )
            with pytest.raises(GaveUp):
                await take(events, got)
        assert len(got) == 3
        host.bodies.extend([LOST] * 3)
        await take(events, got)
    assert got == host.events


async def endless(body: bytes) -> AsyncIterator[bytes]:
    yield body
    await asyncio.Event().wait()


async def give_up_waiting(events: Reading) -> None:
    """Wait for an event that does not come, and cancel the wait."""
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.wait({waiting}, timeout=0.001)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()


async def test_a_wait_that_is_cancelled_loses_no_event() -> None:
    host = ScriptedHost(LogBuilder().start())
    host.bodies.extend([endless] * 3)
    async with host.client() as client:
        events = held(client, host).events(until="never")
        got = [await anext(events) for _ in host.log.lines]
        for _ in range(2):
            await give_up_waiting(events)
        host.log.say("at last").finish("at last")
        got += [await anext(events) for _ in range(len(host.log.lines) - len(got))]
        await events.aclose()
        assert [event async for event in events] == []
    assert got == host.events


async def test_a_turn_whose_wait_is_cancelled_goes_on_within_the_turn() -> None:
    host = ScriptedHost(LogBuilder().start())
    host.bodies.append(endless)
    host.replies.append(host.accepted())
    async with host.client() as client:
        events = (await client.start("Hello")).turn.events()
        got = [await anext(events) for _ in host.log.lines]
        await give_up_waiting(events)
        host.log.say("at last").finish("at last")
        got += [event async for event in events]
    assert got == host.events


async def test_a_broken_log_is_named_with_the_index() -> None:
    host = ScriptedHost()
    host.bodies.append(ended_at(sum(map(len, host.log.lines[:4]))))
    host.replies.append(ok(**host.view(), brokenAt=4))
    with pytest.raises(StorageUnavailable, match="Event 4 of") as caught:
        await read(host)
    assert caught.value.broken_at == 4


async def test_a_connection_that_breaks_behind_the_end_is_not_made_again() -> None:
    host = ScriptedHost()
    host.bodies.append(broken_at(len(host.log.content)))
    assert await read(host) == host.events
    assert len(host.requests) == 1


async def test_pauses_double_up_to_a_bound_and_an_event_begins_them_anew() -> None:
    host = ScriptedHost()
    first = broken_at(len(host.log.lines[0]))
    host.bodies.extend([*[LOST] * 5, first, *[LOST] * 2])
    await read(host, bounds={"first_s": 1.0, "longest_s": 5.0})
    assert host.clock.slept == [1, 2, 4, 5, 5, 1, 2, 4]


async def test_the_time_in_all_is_bounded_and_counts_from_the_first_failure() -> None:
    host = ScriptedHost()
    host.bodies.extend([LOST] * 50)
    with pytest.raises(GaveUp):
        await read(host, bounds={"tries": 50, "first_s": 1.0, "longest_s": 10.0, "total_s": 60.0})
    assert 50 < sum(host.clock.slept) <= 60
    host = ScriptedHost()
    host.bodies.append(broken_at(len(host.log.content) - 5))
    async with host.client(bounds={"total_s": 60.0}) as client:
        events = held(client, host).events()
        got = [await anext(events)]
        host.clock.now_s += 86_400  # a person thinks about it
        got += [event async for event in events]
    assert got == host.events


async def test_what_the_host_asks_to_wait_is_waited_for() -> None:
    host = ScriptedHost()
    host.bodies.extend([refused(503, "SHUTTING_DOWN", retry_after=2), refused(429, "TOO_MANY_STREAMS")])
    assert await read(host, bounds={"first_s": 0.5}) == host.events
    assert host.clock.slept == [2.5, 1.0]


async def test_connections_that_live_are_no_failures_however_many_there_are() -> None:
    host = ScriptedHost(LogBuilder().start())
    count = len(host.events)

    def idle(body: bytes) -> Any:
        async def parts() -> Any:
            yield body
            host.clock.now_s += 15
            yield b"\n"
            raise httpx.ReadError("a proxy cuts what is older than a minute")

        return parts()

    host.bodies.extend([idle] * 40)
    async with host.client(bounds={"tries": 3}) as client:
        events = held(client, host).events(until="never")
        got = [await anext(events) for _ in range(count)]
        host.bodies.append(lambda body: host_said(host, body))
        got.append(await anext(events))
        await events.aclose()
    assert got[-1].data["messageDelta"] == "at last"
    assert len(host.starts) == 41


async def host_said(host: ScriptedHost, body: bytes) -> Any:
    host.log.say("at last")
    yield host.log.lines[-1]


async def test_connections_that_break_after_their_first_byte_are_failures() -> None:
    host = ScriptedHost(LogBuilder().start())
    host.bodies.extend([silent] * 40)
    with pytest.raises(GaveUp) as caught:
        await read(host, "never", bounds={"tries": 3})
    assert "silent" in str(caught.value.__cause__)
    assert len(host.starts) == 3


async def test_silence_is_a_connection_that_broke() -> None:
    host = ScriptedHost()
    host.bodies.extend([silent, silent])
    assert await read(host) == host.events


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (refused(401, "UNAUTHORIZED"), Unauthorized),
        (refused(503, "STORAGE_UNAVAILABLE", retry_after=2, index=3), StorageUnavailable),
        (httpx.Response(404, text="<html>no such page</html>"), BadResponse),
        (httpx.Response(301, headers={"location": "https://elsewhere.example"}), BadResponse),
        (httpx.Response(200, text="<html>log in first</html>"), BadResponse),
        (
            httpx.Response(200, headers={"content-type": "application/x-ndjson", "content-encoding": "br"}),
            BadResponse,
        ),
    ],
)
async def test_what_waiting_does_not_mend_is_raised_at_once(
    reply: httpx.Response, error: type[Exception]
) -> None:
    host = ScriptedHost()
    host.bodies.append(reply)
    with pytest.raises(error):
        await read(host)
    assert host.clock.slept == []


async def test_a_proxy_that_says_502_is_a_host_that_restarts() -> None:
    host = ScriptedHost()
    gone = httpx.Response(502, text="<html>Bad Gateway</html>", headers={"retry-after": "7"})
    host.bodies.extend([gone, broken_at(0)])
    assert await read(host, bounds={"first_s": 1.0}) == host.events
    assert host.clock.slept == [8.0, 2.0]


# -- another story ---------------------------------------------------------------------------------------------------


async def test_a_log_shorter_than_what_was_read_is_named_and_read_from_0() -> None:
    host = ScriptedHost()
    async with host.client() as client:
        session = held(client, host)
        first = [event async for event in session.events()]
        host.log = LogBuilder().start()
        with pytest.raises(HistoryChanged) as caught:
            await anext(session.events(until="never"))
        assert caught.value.cursor == len(host.events)
        assert session.cursor == 0
        again = [event async for event in session.events(until="tail")]
    assert again == host.events == first[: len(again)]


async def test_a_log_that_went_on_otherwise_is_named() -> None:
    host = ScriptedHost()
    async with host.client() as client:
        session = held(client, host)
        seen = len([event async for event in session.events()])
        host.log = LogBuilder().start().say("Ho").finish("Ho").follow_up().finish("")
        state = json.loads(json.dumps(session.state))
        for holder in (session, client.restore(state)):
            with pytest.raises(HistoryChanged) as caught:
                await anext(holder.events())
            assert caught.value.cursor == seen


async def test_an_event_that_was_changed_is_named() -> None:
    host = ScriptedHost()
    lines = host.log.lines
    forged = rechained(host.log.session_id, [*lines[:3], lines[3].replace(b"Hello", b"Jello"), *lines[4:]])
    host.bodies.append(instead(b"".join(lines[:3]) + lines[3].replace(b"Hello", b"Jello")))
    with pytest.raises(HistoryChanged) as caught:
        await read(host)
    assert caught.value.cursor == 3
    host.bodies.extend([broken_at(sum(map(len, lines[:5]))), instead(b"".join(forged.splitlines(True)[5:]))])
    with pytest.raises(HistoryChanged):
        await read(host)


async def test_a_start_beyond_the_tail_that_was_asked_for_waits() -> None:
    host = ScriptedHost()
    async with host.client() as client:
        assert [event async for event in held(client, host).events(start=10_000)] == []


# -- the host's heartbeats -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reply", "silence_s"),
    [
        ({"heartbeat_s": 2.0}, None, 6.0),
        ({"heartbeat_s": None}, ok(limits={"heartbeat_s": 5.0}), 15.0),
        ({"heartbeat_s": None}, ok(limits={"heartbeat_s": 0.05}), 1.0),
        ({"heartbeat_s": None}, ok(limits={}), 45.0),
        ({"heartbeat_s": None}, refused(401, "UNAUTHORIZED"), 45.0),
        ({"heartbeat_s": None}, LOST, 45.0),
    ],
)
async def test_three_missed_heartbeats_are_silence(
    settings: dict[str, Any], reply: Any, silence_s: float
) -> None:
    host = ScriptedHost()
    if reply is not None:
        host.replies.append(reply)
    await read(host, **settings)
    [stream] = [request for request in host.requests if request.url.path.endswith("/stream")]
    assert stream.extensions["timeout"]["read"] == silence_s
    assert stream.headers["accept-encoding"] == "identity"


async def test_the_host_is_asked_for_its_heartbeats_once() -> None:
    host = ScriptedHost()
    host.replies.extend([LOST, ok(limits={"heartbeat_s": 5.0})])
    async with host.client(heartbeat_s=None) as client:
        for _ in range(4):
            _ = [event async for event in held(client, host).events(start=0)]
    assert [request.url.path for request in host.requests].count("/zhin/v1/info") == 2
