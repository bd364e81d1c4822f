"""Streams: framing, cursors, heartbeats, and every way in which one ends."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest

from tests.edge import SESSION, Exchange, Stage, http_scope, line, running
from zhin_host.errors import BadRequest, StorageUnavailable
from zhin_host.http import streaming
from zhin_host.http.framing import NDJSON, SSE, Framing
from zhin_host.http.reply import ABORT
from zhin_host.http.streaming import StreamReply
from zhin_host.subscriptions import Subscription


def reply_of(subscription: Subscription, framing: Framing = NDJSON) -> StreamReply:
    return StreamReply(subscription, framing)


async def streamed(reply: StreamReply, method: str = "GET") -> Exchange:
    """The exchange of a stream that ends by itself."""
    exchange = Exchange(http_scope(method))
    async with asyncio.timeout(10):
        await reply(exchange.scope, exchange.receive, exchange.send)
    return exchange


async def test_an_ndjson_body_is_exactly_the_bytes_of_the_log() -> None:
    stage = Stage(5, is_at_rest=True)
    exchange = await streamed(reply_of(stage.subscribe()))
    assert exchange.body == stage.log.content
    assert exchange.is_complete


async def test_the_headers_say_what_it_is_and_keep_proxies_from_holding_it_back() -> None:
    exchange = await streamed(reply_of(Stage(5, is_at_rest=True).subscribe(2)))
    assert exchange.status == 200
    assert exchange.headers == {
        b"content-type": b"application/x-ndjson; charset=utf-8",
        b"cache-control": b"no-cache, no-transform",
        b"content-encoding": b"identity",
        b"x-accel-buffering": b"no",
        b"x-content-type-options": b"nosniff",
        b"x-zhin-session-id": SESSION.encode(),
        b"x-zhin-stream-version": b"1",
        b"x-zhin-tail-index": b"4",
    }


async def test_sse_frames_each_line_with_its_index_and_type() -> None:
    stage = Stage()
    stage.log.content = line(0, "session.started") + line(1, "x.Own-type_1", '{"text":"a\\nb"}')
    stage.feed.publish(stage.log.content, 2, len(stage.log.content), is_at_rest=True, is_over=False)
    exchange = await streamed(reply_of(stage.subscribe(), SSE))
    assert exchange.headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    first, second = stage.log.content.splitlines(keepends=True)
    assert exchange.body == (
        b"retry: 1000\n\n"
        b"id: 0\nevent: session.started\ndata: " + first + b"\n"
        b"id: 1\nevent: x.Own-type_1\ndata: " + second + b"\n"
    )


async def test_sse_says_retry_once_and_frames_every_block() -> None:
    stage = Stage(2)
    exchange = Exchange(http_scope())
    async with running(reply_of(stage.subscribe(until="never"), SSE), exchange) as task:
        await exchange.until_body(b"id: 1\n")
        stage.write(2)
        await exchange.until_body(b"id: 3\n")
        stage.write(1, is_over=True)
        await asyncio.wait_for(task, 10)
    assert exchange.body.count(b"retry:") == 1
    assert re.findall(rb"^id: (\d+)$", exchange.body, re.MULTILINE) == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_stream_with_nothing_to_send_yet_sends_a_blank_line_at_once() -> None:
    exchange = Exchange(http_scope())
    async with running(reply_of(Stage().subscribe()), exchange):
        await exchange.until_body(b"\n")
        assert exchange.body == b"\n"


@pytest.mark.parametrize(
    ("framing", "heartbeat"),
    [(NDJSON, b"\n"), (SSE, b": heartbeat\n\nevent: ping\ndata: {}\n\n")],
)
async def test_silence_is_filled_with_heartbeats_that_have_no_id(framing: Framing, heartbeat: bytes) -> None:
    stage = Stage(1)
    exchange = Exchange(http_scope())
    async with running(reply_of(stage.subscribe(until="never"), framing), exchange):
        await exchange.until_body(b"\n")
        events = exchange.body
        for beats in range(1, 4):
            stage.pass_time(15)
            await exchange.until_body(events + heartbeat * beats)
        assert exchange.body == events + heartbeat * 3
        stage.write(1)
        await exchange.until_body(b'"index":1')


async def test_a_long_block_is_sent_in_parts_that_make_up_the_log() -> None:
    stage = Stage(20_000, is_at_rest=True)
    exchange = await streamed(reply_of(stage.subscribe()))
    assert exchange.body == stage.log.content
    assert max(len(message["body"]) for message in exchange.sent[1:]) <= 64 * 1024


async def test_a_reader_that_takes_a_part_in_time_is_not_dropped() -> None:
    stage = Stage(20_000, is_at_rest=True)
    subscription = stage.subscribe()
    exchange = Exchange(http_scope())
    plain_send = exchange.send

    async def slow_send(message: Any) -> None:
        stage.pass_time(29)
        await plain_send(message)

    async with asyncio.timeout(10):
        await reply_of(subscription)(exchange.scope, exchange.receive, slow_send)
    assert not subscription.is_dropped
    assert exchange.body == stage.log.content


async def test_a_head_request_gets_the_headers_and_leaves_no_reader() -> None:
    stage = Stage(3)
    exchange = await streamed(reply_of(stage.subscribe()), "HEAD")
    assert exchange.headers[b"x-zhin-tail-index"] == b"2"
    assert exchange.body == b""
    assert exchange.is_complete
    assert len(stage.hub) == 0


async def test_a_stream_ends_whole_when_the_host_drains() -> None:
    stage = Stage(3)
    exchange = Exchange(http_scope())
    async with running(reply_of(stage.subscribe(until="never")), exchange) as task:
        await exchange.until_body(b'"index":2')
        stage.feed.close()
        await asyncio.wait_for(task, 10)
    assert exchange.is_complete
    assert exchange.body == stage.log.content
    assert len(stage.hub) == 0


async def test_a_client_that_leaves_ends_its_stream_and_nothing_else() -> None:
    stage = Stage(3)
    exchange, other = Exchange(http_scope()), Exchange(http_scope())
    async with (
        running(reply_of(stage.subscribe(until="never")), exchange) as task,
        running(reply_of(stage.subscribe(until="never")), other),
    ):
        await exchange.until_body(b'"index":2')
        await other.until_body(b'"index":2')
        exchange.leave()
        await asyncio.wait_for(task, 10)  # ends without an error, though it was cancelled
        assert task.cancelling() == 0
        assert not exchange.is_complete
        assert len(stage.hub) == 1
        stage.write(1)
        await other.until_body(b'"index":3')


async def test_a_client_that_leaves_while_it_takes_nothing_ends_its_stream() -> None:
    stage = Stage(3)
    exchange = Exchange(http_scope())
    async with running(reply_of(stage.subscribe(until="never")), exchange) as task:
        await exchange.until_body(b'"index":2')
        exchange.take_nothing()
        stage.write(1)
        exchange.leave()
        await asyncio.wait_for(task, 10)
    assert len(stage.hub) == 0


async def test_a_reader_that_takes_nothing_is_broken_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "zhin_host.http")
    stage = Stage(3)
    aborted = asyncio.Event()
    subscription = stage.subscribe(until="never")
    exchange = Exchange(http_scope())
    exchange.scope["extensions"] = {ABORT: aborted.set}
    async with running(reply_of(subscription), exchange) as task:
        await exchange.until_body(b'"index":2')
        exchange.take_nothing()
        stage.write(1)
        await asyncio.wait_for(exchange.is_refused.wait(), 10)
        stage.pass_time(29)
        still_there = not subscription.is_dropped
        stage.pass_time(1)
        await asyncio.wait_for(task, 10)
    assert still_there
    assert subscription.is_dropped
    assert caplog.messages == [f"reader.dropped sessionId={SESSION} lag=0"]
    assert aborted.is_set()
    assert not exchange.is_complete
    assert len(stage.hub) == 0


async def test_a_dropped_reader_under_another_server_only_loses_its_stream() -> None:
    stage = Stage(3)
    subscription = stage.subscribe(until="never")
    exchange = Exchange(http_scope())
    async with running(reply_of(subscription), exchange) as task:
        await exchange.until_body(b'"index":2')
        exchange.take_nothing()
        stage.write(1)
        await asyncio.wait_for(exchange.is_refused.wait(), 10)
        stage.pass_time(30)
        await asyncio.wait_for(task, 10)
    assert len(stage.hub) == 0


async def test_a_reader_that_does_not_take_the_very_end_is_broken_off() -> None:
    stage = Stage(3)
    aborted = asyncio.Event()
    exchange = Exchange(http_scope())
    exchange.scope["extensions"] = {ABORT: aborted.set}
    async with running(reply_of(stage.subscribe(until="never")), exchange) as task:
        await exchange.until_body(b'"index":2')
        exchange.take_nothing()
        stage.feed.close()
        await asyncio.wait_for(exchange.is_refused.wait(), 10)
        stage.pass_time(30)
        await asyncio.wait_for(task, 10)
    assert aborted.is_set()
    assert len(stage.hub) == 0


async def test_a_stream_that_its_first_block_ends_makes_no_task_and_no_timer() -> None:
    stage = Stage(3, is_at_rest=True)
    exchange = Exchange(http_scope())
    loop: Any = asyncio.get_running_loop()
    reply = reply_of(stage.subscribe())
    made: list[object] = []

    def make(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
        made.append(coro)
        return asyncio.Task(coro, loop=loop, **more)

    timers = len(loop._scheduled)
    loop.set_task_factory(make)
    try:
        await reply(exchange.scope, exchange.receive, exchange.send)
    finally:
        loop.set_task_factory(None)
    assert exchange.body == stage.log.content
    assert (made, len(loop._scheduled)) == ([], timers)


async def test_a_cancellation_from_outside_goes_through() -> None:
    stage = Stage(3)
    exchange = Exchange(http_scope())
    async with running(reply_of(stage.subscribe(until="never")), exchange) as task:
        await exchange.until_body(b'"index":2')
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(stage.hub) == 0


@pytest.mark.parametrize("error", [StorageUnavailable("The disk is gone."), RuntimeError("a bug")])
async def test_an_unreadable_log_breaks_one_stream_off(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(3)
    aborted = asyncio.Event()
    exchange = Exchange(http_scope())
    exchange.scope["extensions"] = {ABORT: aborted.set}
    stage.log.error = error
    with caplog.at_level(logging.WARNING):
        async with running(reply_of(stage.subscribe()), exchange) as task:
            await asyncio.wait_for(task, 10)
    assert aborted.is_set()
    assert not exchange.is_complete
    assert len(stage.hub) == 0
    assert SESSION in caplog.text
    assert ("Traceback" in caplog.text) == isinstance(error, RuntimeError)


async def test_a_stream_ends_before_a_broken_line() -> None:
    stage = Stage(5, is_at_rest=True)
    whole = stage.log.content
    for broken in (b'{"index":3,"typ', b'{"index":4,"type"', b'{"index":03,"type"'):
        stage.log.content = whole.replace(b'{"index":3,"type"', broken, 1)
        exchange = await streamed(reply_of(stage.subscribe()))
        assert exchange.body.count(b"\n") == 3
        assert whole.startswith(exchange.body)
        assert exchange.is_complete


@pytest.mark.parametrize("start", range(-8, 8))
async def test_every_start_gives_every_event_after_it_once(start: int) -> None:
    stage = Stage(3)
    exchange = Exchange(http_scope())
    async with running(reply_of(stage.subscribe(start)), exchange) as task:
        await exchange.until_body(b"\n")
        stage.write(1)
        stage.write(3, is_at_rest=True)
        await asyncio.wait_for(task, 10)
    first = start if start >= 0 else max(0, 3 + start)
    got = [int(index) for index in re.findall(rb'"index":(\d+)', exchange.body)]
    assert got == list(range(first, 7))


@pytest.mark.parametrize("text", ["0", "7", "-1", "-999999999999999", "999999999999999", "007"])
def test_a_whole_number_of_at_most_15_digits_is_a_cursor(text: str) -> None:
    assert streaming.start_index_of({}, {"startIndex": text}) == int(text)


NO_CURSORS = [
    "",
    " ",
    "abc",
    "NaN",
    "1e9",
    "1.0",
    "+1",
    "--1",
    "- 1",
    "1 ",
    "0x10",
    "1_000",
    "٣",
    "1" * 16,
    "-" + "1" * 16,
]


@pytest.mark.parametrize("text", NO_CURSORS)
def test_anything_else_is_refused_under_each_name(text: str) -> None:
    with pytest.raises(BadRequest, match="startIndex"):
        streaming.start_index_of({}, {"startIndex": text})
    with pytest.raises(BadRequest, match="lastEventId"):
        streaming.start_index_of({}, {"lastEventId": text})
    with pytest.raises(BadRequest, match="Last-Event-ID"):
        streaming.start_index_of({b"last-event-id": text.encode()}, {})


def test_the_last_event_seen_is_never_negative() -> None:
    with pytest.raises(BadRequest, match="from 0 to"):
        streaming.start_index_of({b"last-event-id": b"-1"}, {})
    with pytest.raises(BadRequest, match="from 0 to"):
        streaming.start_index_of({}, {"lastEventId": "-1"})


def test_the_header_comes_before_lasteventid_and_that_before_startindex() -> None:
    query = {"lastEventId": "10", "startIndex": "5"}
    assert streaming.start_index_of({b"last-event-id": b"20"}, query) == 21
    assert streaming.start_index_of({}, query) == 11
    assert streaming.start_index_of({}, {"startIndex": "5"}) == 5
    assert streaming.start_index_of({}, {}) == 0


def test_ndjson_follows_to_the_boundary_and_sse_for_ever_when_nothing_is_said() -> None:
    assert streaming.until_of({}, NDJSON) == "boundary"
    assert streaming.until_of({}, SSE) == "never"
    assert streaming.until_of({"until": "tail"}, SSE) == "tail"


@pytest.mark.parametrize("until", ["", "Boundary", "end", "never "])
def test_an_unknown_until_is_refused(until: str) -> None:
    with pytest.raises(BadRequest, match="until is boundary, tail or never"):
        streaming.until_of({"until": until}, NDJSON)


@pytest.mark.parametrize(
    ("accept", "framing"),
    [
        (None, NDJSON),
        (b"*/*", NDJSON),
        (b"application/x-ndjson", NDJSON),
        (b"text/event-stream", SSE),
        (b"text/html, Text/Event-Stream;q=0.9", SSE),
    ],
)
def test_a_client_that_accepts_event_streams_gets_one(accept: bytes | None, framing: Framing) -> None:
    assert streaming.framing_of({} if accept is None else {b"accept": accept}) is framing


def test_a_query_is_pairs_of_which_the_last_counts() -> None:
    assert streaming.query_of(b"") == {}
    assert streaming.query_of(b"a=1&a=2&b=&c=%C3%A9") == {"a": "2", "b": "", "c": "é"}


@pytest.mark.parametrize("query", [b"a=%FF", b"a=\xff", b"&".join([b"a=1"] * 101)])
def test_what_is_no_query_is_refused(query: bytes) -> None:
    with pytest.raises(BadRequest, match="query"):
        streaming.query_of(query)


class Endless:
    """The log as it is, in a format in which nothing says that the stream is whole."""

    headers = ((b"content-type", b"text/plain"),)
    is_over = False

    def first(self) -> bytes:
        return b""

    def frame(self, block: bytes) -> bytes:
        return block

    def last(self) -> bytes | None:
        return None


async def test_a_format_that_has_no_end_for_a_stream_has_it_broken_off() -> None:
    stage = Stage(2, is_at_rest=True)
    exchange = Exchange(http_scope())
    broken: list[bool] = []
    exchange.scope["extensions"] = {ABORT: lambda: broken.append(True)}
    async with asyncio.timeout(10):
        await reply_of(stage.subscribe(), Endless())(exchange.scope, exchange.receive, exchange.send)
    assert broken == [True]
    assert exchange.body == stage.log.content
    assert not exchange.is_complete
