"""Streams of a real host on a real port: every cursor, every format, joining, leaving and falling behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.live import UNKNOWN_SESSION, Script, Serving, served
from zhin_host import create_agent_session_host
from zhin_host.clock import SystemClock

SSE = {"accept": "text/event-stream"}


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def live(data_dir: Path, script: Script) -> AsyncIterator[Serving]:
    host = create_agent_session_host(script, data_dir=data_dir, heartbeat_s=0.05)
    async with served(host) as serving:
        yield serving


def stream_path(session: dict[str, Any]) -> str:
    return f"/session/{session['sessionId']}/stream"


def indexes(content: bytes) -> list[int]:
    """The indexes of the events, in either format."""
    return [int(found) for found in re.findall(rb'^(?:data: )?\{"index":(\d+),', content, re.MULTILINE)]


class Reader:
    """A stream that is read as it comes."""

    def __init__(self, response: httpx.Response) -> None:
        self._blocks = response.aiter_raw()
        self.content = b""

    async def until(self, wanted: bytes) -> None:
        async with asyncio.timeout(20):
            while wanted not in self.content:
                self.content += await anext(self._blocks)

    async def end(self) -> bytes:
        async with asyncio.timeout(20):
            async for block in self._blocks:
                self.content += block
        return self.content


async def test_a_body_is_the_bytes_of_the_file_less_blank_lines(live: Serving, data_dir: Path) -> None:
    session = await live.start("many 200")
    followed = (await live.client.get(stream_path(session))).content
    replayed = (await live.client.get(stream_path(session))).content
    log = (data_dir / f"{session['sessionId']}.ndjson").read_bytes()
    assert re.sub(rb"(?m)^\n", b"", followed) == replayed == log


async def test_the_headers_of_a_stream(live: Serving) -> None:
    session = await live.start("say hello")
    count = len(await live.events(session))
    response = await live.client.get(stream_path(session), headers={"accept-encoding": "gzip, br"})
    assert response.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-zhin-session-id"] == session["sessionId"]
    assert response.headers["x-zhin-stream-version"] == "1"
    assert response.headers["x-zhin-tail-index"] == str(count - 1)
    assert response.headers["transfer-encoding"] == "chunked"
    head = await live.client.head(stream_path(session))
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["x-zhin-tail-index"] == str(count - 1)


@pytest.mark.parametrize("headers", [{}, SSE], ids=["ndjson", "sse"])
async def test_reconnecting_after_every_event_gives_every_later_one_once(
    live: Serving, headers: dict[str, str]
) -> None:
    session = await live.start("many 20")
    count = len(await live.events(session))
    for seen in range(count):
        expected = list(range(seen + 1, count))
        for how, more in [
            ({"startIndex": seen + 1}, {}),
            ({"lastEventId": seen}, {}),
            ({}, {"last-event-id": str(seen)}),
            ({"startIndex": 0, "lastEventId": 0}, {"last-event-id": str(seen)}),
            ({"startIndex": 0, "lastEventId": seen}, {}),
        ]:
            parameters: dict[str, str | int] = {"until": "tail", **how}
            response = await live.client.get(
                stream_path(session), params=parameters, headers={**headers, **more}
            )
            assert indexes(response.content) == expected


async def test_sse_carries_index_type_and_line(live: Serving) -> None:
    session = await live.start("say a\u2028b")
    events = await live.events(session)
    response = await live.client.get(stream_path(session), params={"until": "boundary"}, headers=SSE)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    frames = response.text.split("\n\n")
    assert frames[0].startswith("retry: ")
    assert frames[-1] == ""
    for frame, event in zip(frames[1:-1], events, strict=True):
        first, second, third = frame.split("\n", 2)
        assert first == f"id: {event['index']}"
        assert second == f"event: {event['type']}"
        assert json.loads(third.removeprefix("data: ")) == event


@pytest.mark.parametrize("start", [-1, -3, -1000])
async def test_a_negative_start_counts_from_the_tail(live: Serving, start: int) -> None:
    session = await live.start("say hello")
    count = len(await live.events(session))
    response = await live.client.get(stream_path(session), params={"startIndex": start})
    assert indexes(response.content) == list(range(max(0, count + start), count))


@pytest.mark.parametrize("text", ["abc", "NaN", "1e9", "1.5", "", "1" * 16, "0x1", "--1", "%20"])
async def test_what_is_no_cursor_is_400(live: Serving, text: str) -> None:
    session = await live.start("say hello")
    for name in ("startIndex", "lastEventId"):
        response = await live.client.get(f"{stream_path(session)}?{name}={text}")
        live.refused(response, 400, "BAD_REQUEST")
    live.refused(await live.client.get(f"{stream_path(session)}?until={text}"), 400, "BAD_REQUEST")


async def test_an_unknown_session_is_404_at_once_in_both_formats(live: Serving) -> None:
    for headers in ({}, SSE):
        response = await live.client.get(f"/session/{UNKNOWN_SESSION}/stream", headers=headers)
        live.refused(response, 404, "SESSION_NOT_FOUND")


async def test_a_start_past_the_tail_waits_for_it(live: Serving, script: Script) -> None:
    session = await live.start("hold on")
    parameters: dict[str, str | int] = {"startIndex": 6, "until": "boundary"}
    async with live.client.stream("GET", stream_path(session), params=parameters) as response:
        reader = Reader(response)
        await reader.until(b"\n")
        assert indexes(reader.content) == []
        script.go.set()
        got = indexes(await reader.end())
    assert got == list(range(6, len(await live.events(session))))


async def test_a_start_far_past_the_tail_ends_where_until_says(live: Serving) -> None:
    session = await live.start("say hello")
    await live.events(session)
    for until in ("tail", "boundary"):
        response = await live.client.get(stream_path(session), params={"startIndex": 10**14, "until": until})
        assert response.content == b"\n"


async def test_until_tail_replays_what_is_there_and_closes_within_a_turn(live: Serving) -> None:
    session = await live.start("hold on")
    view = live.good(await live.client.get(f"/session/{session['sessionId']}"))
    response = await live.client.get(stream_path(session), params={"until": "tail"})
    assert indexes(response.content)[: view["cursor"]] == list(range(view["cursor"]))
    assert b"session.waiting" not in response.content


async def test_until_never_goes_on_over_turns_to_the_end_of_the_session(live: Serving) -> None:
    session = await live.start("say one")
    async with live.client.stream("GET", stream_path(session), params={"until": "never"}) as response:
        reader = Reader(response)
        await reader.until(b"session.waiting")
        session = await live.follow_up(session, "say two")
        await reader.until(b"two")
        await reader.until(b'"type":"turn.completed"')
        await live.events(session)
        await live.client.post(f"/session/{session['sessionId']}/end", json={"outcome": "completed"})
        content = await reader.end()
    count = len(await live.events(session))
    assert indexes(content) == list(range(count))
    assert b"session.completed" in content


async def test_an_event_stream_of_a_session_that_is_over_is_204_once_all_was_seen(live: Serving) -> None:
    session = await live.start("end it")
    count = len(await live.events(session))
    seen = await live.client.get(stream_path(session), headers={**SSE, "last-event-id": str(count - 1)})
    assert (seen.status_code, seen.content) == (204, b"")
    left = await live.client.get(stream_path(session), headers={**SSE, "last-event-id": str(count - 2)})
    assert indexes(left.content) == [count - 1]


@pytest.mark.parametrize(
    ("headers", "heartbeat"),
    [({}, b"\n"), (SSE, b": heartbeat\n\nevent: ping\ndata: {}\n\n")],
    ids=["ndjson", "sse"],
)
async def test_a_parked_session_stays_open_with_heartbeats_and_goes_on_when_answered(
    live: Serving, headers: dict[str, str], heartbeat: bytes
) -> None:
    session, request_id = await live.parked("approve it")
    parameters: dict[str, str | int] = {"until": "never", "startIndex": 10**6}
    async with live.client.stream(
        "GET", stream_path(session), params=parameters, headers=headers
    ) as response:
        reader = Reader(response)
        await reader.until(heartbeat * 3)
        assert indexes(reader.content) == []
    async with live.client.stream(
        "GET", stream_path(session), params={"until": "never"}, headers=headers
    ) as response:
        reader = Reader(response)
        await reader.until(b"session.waiting")
        body = {"requestId": request_id, "approved": True}
        await live.client.post(f"/session/{session['sessionId']}/input", json=body)
        await reader.until(b"approved True")
        await reader.until(b"turn.completed")


async def test_heartbeats_leave_no_trace_in_the_log(live: Serving, data_dir: Path) -> None:
    session, _ = await live.parked("approve it")
    log = (data_dir / f"{session['sessionId']}.ndjson").read_bytes()
    async with live.client.stream("GET", stream_path(session), params={"until": "never"}) as response:
        await Reader(response).until(b"\n\n\n")
    assert (data_dir / f"{session['sessionId']}.ndjson").read_bytes() == log


async def test_cutting_the_connection_within_a_turn_stops_nothing_and_loses_nothing(
    live: Serving, script: Script
) -> None:
    session = await live.start("hold on")
    async with live.client.stream("GET", stream_path(session)) as response:
        reader = Reader(response)
        await reader.until(b'"messageDelta":"holding "')
    seen = indexes(reader.content)
    script.go.set()
    rest = await live.client.get(stream_path(session), params={"startIndex": seen[-1] + 1})
    whole = (await live.client.get(stream_path(session))).content
    assert seen + indexes(rest.content) == indexes(whole) == list(range(len(indexes(whole))))
    assert b"turn.completed" in whole


async def test_readers_that_join_at_any_moment_get_the_same_bytes(live: Serving) -> None:
    session = await live.start("many 2000")

    async def join(number: int) -> bytes:
        for _ in range(number):
            await live.client.get("/health")  # time passes, the turn goes on
        return (await live.client.get(stream_path(session))).content

    bodies = await asyncio.gather(*(join(number) for number in range(12)))
    whole = (await live.client.get(stream_path(session))).content
    assert {re.sub(rb"(?m)^\n", b"", body) for body in bodies} == {whole}


class LeapingClock(SystemClock):
    """The machine's clock, ahead by as much as it is told."""

    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


async def test_a_reader_that_never_reads_harms_nobody_and_is_broken_off(
    data_dir: Path, script: Script
) -> None:
    clock = LeapingClock()
    host = create_agent_session_host(script, data_dir=data_dir, clock=clock, heartbeat_s=0.1)
    async with served(host) as live:
        session = await live.start("say hello")
        first = len(await live.events(session))
        with socket.create_connection(("localhost", live.port)) as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            path = f"/zhin/v1{stream_path(session)}?until=never"
            stuck.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            flood = await live.follow_up(
                session, "flood 300"
            )  # 18 MB: more than the kernel takes off its hands
            got = await asyncio.gather(*(live.events(flood, startIndex=first) for _ in range(5)))
            assert [[event["index"] for event in events] for events in got] == [
                list(range(first, first + len(got[0])))
            ] * 5
            clock.ahead_s = 31
            while len(host._hub):  # until the ticker has dropped it
                await live.client.get("/health")
            received = await asyncio.to_thread(_read_all, stuck)
    assert not received.endswith(b"\r\n0\r\n\r\n")
    assert 0 < len(received) < 300 * 60_000


async def test_a_hundred_idle_readers_all_get_what_comes(live: Serving) -> None:
    session, request_id = await live.parked("approve it")
    parameters = {"until": "never"}
    async with (
        contextlib.AsyncExitStack() as opened,
        httpx.AsyncClient(base_url=live.client.base_url, limits=httpx.Limits(max_connections=None)) as client,
    ):
        readers = []
        for _ in range(100):
            stream = client.stream("GET", stream_path(session), params=parameters)
            readers.append(Reader(await opened.enter_async_context(stream)))
        body = {"requestId": request_id, "approved": True}
        await live.client.post(f"/session/{session['sessionId']}/input", json=body)
        for reader in readers:
            await reader.until(b"turn.completed")


def _read_all(connection: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 20):
            received += part
    return received


async def test_a_new_session_can_be_streamed_before_it_says_anything(live: Serving) -> None:
    session = await live.start("hold on")
    async with live.client.stream("GET", stream_path(session)) as response:
        reader = Reader(response)
        await reader.until(b'"type":"session.started"')
