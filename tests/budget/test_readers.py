"""What a reader costs, counted: live, from cold, over HTTP, and one that waits."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from pathlib import Path
from typing import Final

from tests.budget.bench import (
    BATCH,
    BEAT_S,
    Bench,
    Speaker,
    StreamClient,
    bench,
    blocks_of,
    has_beaten,
    leave_memory,
    turned,
)
from tests.budget.counting import Calls, open_descriptors, waiting_timers, watched_loop
from tests.hosting import NOBODY

BLOCK_BYTES: Final = 256 * 1024  # what a replay reads at once


async def test_live_readers_cost_no_encode_no_parse_no_copy_and_no_read_of_the_disk(
    data_dir: Path, dumps: Calls, loads: Calls
) -> None:
    agent = Speaker(BATCH * 10)
    async with bench(agent, data_dir) as host:
        session_id = await host.start("hold")
        at = host.hosting.live(session_id).state.next_index
        streams = [await host.hosting.store.subscribe(NOBODY, session_id, at, "boundary") for _ in range(10)]
        readers = [asyncio.ensure_future(blocks_of(stream)) for stream in streams]
        host.fs.take(), dumps.take(), loads.take()
        with watched_loop() as loop:
            agent.go.set()
            got = await asyncio.gather(*readers)
        lines = host.hosting.live(session_id).state.next_index - at
        assert dumps.take() == lines + 1  # as many as without a reader: see the test above
        assert loads.take() == 0
        calls = host.fs.take()
        assert "pread .ndjson" not in calls
        assert calls["write .ndjson"] == 11
        assert loop.jobs == []
        assert b"".join(got[0]) == host.hosting.log(session_id)[-sum(map(len, got[0])) :]
        # All ten were given the very same bytes objects: the batches that were written.
        assert len(got[0]) == 11
        assert len({id(block) for blocks in got for block in blocks}) == 11


async def test_streams_over_http_cost_no_encode_and_no_parse_in_either_format(
    data_dir: Path, dumps: Calls, loads: Calls
) -> None:
    agent = Speaker(BATCH * 10)
    async with bench(agent, data_dir) as host:
        session_id = await host.start("hold")
        at = host.hosting.live(session_id).state.next_index
        query, accepted = f"startIndex={at}&until=boundary", (b"application/x-ndjson", b"text/event-stream")
        clients = [StreamClient(session_id, query, accept) for accept in accepted * 5]
        streams = [asyncio.create_task(client.stay(host.hosting.host.app)) for client in clients]
        await turned(
            lambda: all(len(client.sent) == 2 for client in clients)
        )  # the head, the first heartbeat
        host.fs.take(), dumps.take(), loads.take()
        with watched_loop() as loop:
            agent.go.set()
            await asyncio.gather(*streams)
        lines = host.hosting.live(session_id).state.next_index - at
        assert (dumps.take(), loads.take()) == (lines + 1, 0)  # as many as without a reader: see above
        assert "pread .ndjson" not in host.fs.take()
        assert loop.tasks == [f"sync {session_id}"]  # of the turn's end
        assert (loop.timers, loop.jobs) == ([], [])
        bodies = [b"".join(message.get("body", b"") for message in client.sent) for client in clients]
        assert [body.count(b'{"index":') for body in bodies] == [lines] * 10
        # Head, heartbeat, eleven batches in parts of 64 KiB at most, and the end: no message for an event.
        assert max(len(client.sent) for client in clients) <= 2 + 11 + 1


async def test_a_stream_of_a_session_at_rest_is_one_read_and_no_task(data_dir: Path) -> None:
    async with bench(Speaker(), data_dir) as host:
        session_id = await host.start()
        client = StreamClient(session_id, "startIndex=0")
        host.fs.take()
        with watched_loop() as loop:
            await client.stay(host.hosting.host.app)
        assert (loop.tasks, loop.timers, loop.jobs) == ([], [], [])
        assert host.fs.take() == {"pread .ndjson": 1}
        assert len(client.sent) == 3  # the head, all the events, the end


async def test_a_replay_from_cold_reads_each_byte_once_in_long_blocks(data_dir: Path, loads: Calls) -> None:
    agent = Speaker(20_000, padding="x" * 60)  # so much that no line says all of it once more
    async with bench(agent, data_dir) as host:
        session_id = await host.start()
        await leave_memory(host, session_id)
        stream = await host.hosting.store.subscribe(NOBODY, session_id, 0, "tail")
        host.fs.take(), loads.take()
        got = b"".join(await blocks_of(stream))
        calls = host.fs.take()
        assert got == host.hosting.log(session_id)
        # A block ends with a whole line, so a read is worth a block less a part of a line.
        longest = max(map(len, got.splitlines(keepends=True)))
        least, most = math.ceil(len(got) / BLOCK_BYTES), math.ceil(len(got) / (BLOCK_BYTES - longest))
        assert (least > 8, longest < 8_000) == (True, True)
        assert least <= calls.pop("pread .ndjson") <= most
        assert calls == {}
        assert loads.take() == 0


async def test_an_idle_stream_costs_one_task_beside_its_request_and_no_timer(data_dir: Path) -> None:
    count = 1_000
    async with bench(Speaker(), data_dir) as host:
        session_id = await host.start("hold")
        before, descriptors = waiting_timers(), open_descriptors()
        clients = [StreamClient(session_id, "until=never&startIndex=1000") for _ in range(count)]
        app = host.hosting.host.app
        host.fs.take()
        with watched_loop() as loop:
            requests = [asyncio.create_task(client.stay(app), name="request") for client in clients]
            await turned(lambda: loop.tasks.count("zhin-stream-watch") == count)
            assert loop.tasks.count("request") == count
            assert len(loop.tasks) == 2 * count
            assert loop.timers == []
            assert loop.jobs == []
            assert waiting_timers() == before
            assert open_descriptors() == descriptors
        assert host.fs.take() == {}  # whose cursor is the tail needs no look at the file
        await _heartbeats(host, clients)
        for client in clients:
            client.leave()
        await asyncio.gather(*requests)
        assert len(host.hosting.host._hub) == 0


async def _heartbeats(host: Bench, clients: list[StreamClient]) -> None:
    """Three heartbeats of every stream: no task, no timer, no call of the system for any of them."""
    for client in clients:
        client.sent.clear()
    with watched_loop() as loop:
        for count in range(1, 4):
            host.hosting.clock.advance(host.hosting.host.config.heartbeat_s)
            made = host.timers.made[BEAT_S]
            host.timers.fire(BEAT_S)
            await turned(partial(has_beaten, host.timers, made + 2))
            await turned(partial(_have_all, clients, count))
        assert (loop.tasks, loop.timers, loop.jobs) == ([], [], [])
    assert host.fs.take() == {}


def _have_all(clients: list[StreamClient], count: int) -> bool:
    return all(len(client.sent) == count for client in clients)
