"""Memory: what the host keeps of sessions that passed through, of idle subscribers, and of parked sessions."""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from pathlib import Path

from tests.bench.bench import Bench, Hosted, together
from tests.bench.calls import Reading, begin, turn
from tests.bench.client import Connection
from tests.bench.rows import below

PASSED, SUBSCRIBERS, PARKED = "memory", "subscribers", "parked"
_PARKING = ("parked", "--parked-s", "0.5", "--idle-s", "0.5")
"""A host, and how it lets go of sessions at once."""
_CHUNKS = "1"
_PASS_MOST_S = 280.0  # what passing may take; the row says how many came through
_LEAVE_TIMEOUT_S = 120.0
_WAVE = 250
_KEPT = 1_000  # readings that are held against the files


async def measure_passed(bench: Bench) -> None:
    """Memory after many sessions passed through, over that of a host that has just started.

    As of all memory there is one run: the allocator does not give back what it once took.
    """
    sizes, readings, passed = bench.sizes, list[Reading](), 0

    async def one(connection: Connection) -> None:
        nonlocal passed
        if time.perf_counter() > end_s:
            return
        reading = await turn(connection, hosted.caller, _CHUNKS)
        passed += 1
        if len(readings) < _KEPT:
            readings.append(reading)
        if passed % 1000 == 0:
            bench.say(f"{passed:,} of {sizes.passed:,} sessions passed")

    async with bench.host("passed") as hosted, hosted.connected(sizes.clients) as connections:
        before, end_s = hosted.server.rss_bytes, time.perf_counter() + _PASS_MOST_S
        await together(connections, sizes.passed, one)
        await asyncio.sleep(sizes.settle_s)
        over = hosted.server.rss_bytes - before
        bench.compare(hosted.data_dir, readings)
    size = f"{passed:,} sessions of {_CHUNKS} chunk, over {before / 2**20:.0f} MiB at the start"
    bench.add(PASSED, "sessions passed through", [over / 2**20], unit="MiB", target=below(64), size=size)


async def measure_subscribers(bench: Bench) -> None:
    """What each idle subscriber of one session at rest adds."""
    count, settle_s = bench.sizes.subscribers, bench.sizes.settle_s
    hosted = bench.standing_host(*_PARKING)
    async with hosted.connected(1) as [connection]:
        reading = await turn(connection, hosted.caller, _CHUNKS)
        request = hosted.caller.stream(reading.session_id, until="never")
        await connection.open(request)
        await asyncio.sleep(settle_s)
        before = hosted.server.rss_bytes
        async with hosted.connected(count) as readers:
            for reader in readers:
                await reader.open(request)
            await asyncio.sleep(settle_s)
            each = (hosted.server.rss_bytes - before) / count / 1024
    size = f"{count:,} subscribers of a session at rest"
    bench.add(SUBSCRIBERS, "an idle subscriber", [each], unit="KiB", target=below(24), size=size)


async def measure_parked(bench: Bench) -> None:
    """What each parked session adds that has left memory, after a first wave that grew the process.

    What that wave gave back takes up some of it: a small number says little, a large one much.
    """
    count, hosted = bench.sizes.parked_left, bench.standing_host(*_PARKING)
    await _park(bench, hosted, min(_WAVE, count))
    before = hosted.server.rss_bytes
    await _park(bench, hosted, count)
    each = (hosted.server.rss_bytes - before) / count / 1024
    size = f"{count:,} that left memory, {min(_WAVE, count)} at once"
    bench.add(PARKED, "a parked session", [each], unit="KiB", target=below(2), size=size)


async def _park(bench: Bench, hosted: Hosted, count: int) -> None:
    """Park so many sessions, in waves that each leave memory before the next one comes."""
    todo = count
    while todo:
        wave = min(todo, _WAVE)
        bench.say(f"parking, {todo:,} to go")
        async with hosted.connected(bench.sizes.clients) as connections:
            await together(connections, wave, partial(_one, hosted))
        todo -= wave
        await _until_left(hosted.data_dir)
    await asyncio.sleep(bench.sizes.settle_s)


async def _one(hosted: Hosted, connection: Connection) -> None:
    session_id = await begin(connection, hosted.caller, "ask", "asking")
    await connection.call(hosted.caller.stream(session_id))


async def _until_left(data_dir: Path) -> None:
    """Wait until every session has a snapshot: these are so small that it is written when they leave."""
    async with asyncio.timeout(_LEAVE_TIMEOUT_S):
        while True:
            names = os.listdir(data_dir)  # noqa: PTH208 - names alone
            logs, snapshots = (sum(name.endswith(kind) for name in names) for kind in (".ndjson", ".json"))
            if logs == snapshots:
                return
            await asyncio.sleep(0.1)
