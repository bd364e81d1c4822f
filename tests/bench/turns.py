"""Turns: short ones, of many clients, of one, and under --fsync always."""

from __future__ import annotations

import asyncio
import statistics
import time
from functools import partial

from tests.bench import disk, limits
from tests.bench.bench import Bench, Hosted, together
from tests.bench.calls import Reading, turn
from tests.bench.client import Connection
from tests.bench.rows import at_least, below, percentile

MANY, LONE, FSYNC = "turns", "latency", "fsync"


async def many(bench: Bench, hosted: Hosted, count: int) -> float:
    """Turns a second of all clients together; each in a new session, POST and stream to the boundary."""
    message, readings = str(bench.sizes.turn_chunks), list[Reading]()

    async def one(connection: Connection) -> None:
        readings.append(await turn(connection, hosted.caller, message))

    async with hosted.connected(bench.sizes.clients) as connections:
        began_s = time.perf_counter()
        await together(connections, count, one)
        took_s = time.perf_counter() - began_s
    bench.compare(hosted.data_dir, readings)
    return count / took_s


async def measure_many(bench: Bench) -> None:
    """Short turns of many clients, over hello."""
    sizes, folder = bench.sizes, bench.folder / "turns-disk"
    await asyncio.to_thread(folder.mkdir)
    plain, stock, hosted = bench.plain(), bench.plain(is_stock=True), bench.standing_host()
    await limits.hellos(plain, sizes.clients, sizes.hellos // 4)
    await limits.hellos(stock, sizes.clients, sizes.hellos // 4)
    await many(bench, hosted, sizes.turns // 4)

    async def creation() -> float:
        return disk.creations(folder, sizes.files // 4)

    creations, of_stock, found, figures = await bench.rounds(
        creation,
        partial(limits.hellos, stock, sizes.clients, sizes.hellos),
        partial(limits.hellos, plain, sizes.clients, sizes.hellos),
        partial(many, bench, hosted, sizes.turns),
    )
    size = f"{sizes.turns:,} turns of {sizes.turn_chunks} chunks, {sizes.clients} clients"
    bench.add(MANY, "create a file, beside them", creations, unit="µs", size=f"{sizes.files // 4:,} files")
    bench.add(MANY, "hello, beside them", found, unit="1/s", size=f"{sizes.hellos:,} POSTs")
    bench.add(MANY, "short turns", figures, unit="turns/s", size=size)
    bench.add_ratio(MANY, "short turns ÷ hello", figures, found, target=at_least(0.12, 0.16), size=size)
    bench.add_ratio(MANY, "short turns ÷ hello, stock uvicorn", figures, of_stock, size=size)


async def measure_lone(bench: Bench) -> None:
    """Short turns of one client: how long a whole turn takes."""
    sizes, hosted, folder = bench.sizes, bench.standing_host(), bench.folder / "latency-disk"
    over_ms, p50_ms, p99_ms, sync_ms = [], [], [], []
    await asyncio.to_thread(folder.mkdir)
    await _lone(bench, hosted, sizes.lone_turns // 2)
    for run in range(sizes.runs):
        bench.say(f"run {run + 1} of {sizes.runs}")
        sync_ms.append(statistics.median(disk.syncs(folder, sizes.disk_s)))
        took_ms = await _lone(bench, hosted, sizes.lone_turns)
        p50_ms.append(statistics.median(took_ms))
        p99_ms.append(percentile(took_ms, 0.99))
        over_ms.append(p50_ms[-1] - sync_ms[-1])
    size = f"{sizes.lone_turns:,} turns of {sizes.turn_chunks} chunks, 1 client"
    bench.add(LONE, "fdatasync, beside them", sync_ms, unit="ms", size=f"for {sizes.disk_s:g} s")
    bench.add(LONE, "a whole turn, p50", p50_ms, unit="ms", size=size)
    bench.add(LONE, "p50 less one fdatasync", over_ms, unit="ms", target=below(1.2), size=size)
    bench.add(LONE, "a whole turn, p99", p99_ms, unit="ms", target=below(10), size=size)


async def _lone(bench: Bench, hosted: Hosted, count: int) -> list[float]:
    """How long each turn took, ms."""
    took_ms, readings = [], []
    async with hosted.connected(1) as [connection]:
        for _ in range(count):
            began_s = time.perf_counter()
            readings.append(await turn(connection, hosted.caller, str(bench.sizes.turn_chunks)))
            took_ms.append(1000 * (time.perf_counter() - began_s))
    bench.compare(hosted.data_dir, readings)
    return took_ms


async def measure_fsync(bench: Bench) -> None:
    """Short turns of many clients under --fsync always, over those under --fsync boundary."""
    sizes, boundary = bench.sizes, bench.standing_host()
    async with bench.host("always", "--fsync", "always") as always:
        await many(bench, boundary, sizes.turns // 4)
        await many(bench, always, sizes.turns // 4)
        found, figures = await bench.rounds(
            partial(many, bench, boundary, sizes.turns), partial(many, bench, always, sizes.turns)
        )
    size = f"{sizes.turns:,} turns, {sizes.clients} clients"
    bench.add(FSYNC, "turns under boundary", found, unit="turns/s", size=size)
    bench.add(FSYNC, "turns under always", figures, unit="turns/s", size=size)
    bench.add_ratio(FSYNC, "always ÷ boundary", figures, found, target=at_least(0.7), size=size)
