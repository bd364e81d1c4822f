"""Streams: long turns to live readers, of an agent that never waits and of one that lets the loop run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from tests.bench import limits
from tests.bench.bench import Bench, Hosted
from tests.bench.calls import Reading, begin, turn
from tests.bench.rows import Target, at_least

TIGHT, YIELDING = "stream", "yielding"


async def long_turns(
    bench: Bench, hosted: Hosted, chunks: int, turns: int = 1, agent: str = "tight"
) -> float:
    """Events a second of turns of so many chunks, one after the other, from the POST to the stream's end."""
    took_s, events = 0.0, 0
    async with hosted.connected(1) as [connection]:
        for _ in range(turns):
            began_s = time.perf_counter()
            reading = await turn(connection, hosted.caller, str(chunks), agent)
            took_s += time.perf_counter() - began_s
            events += reading.body.count(b"\n")
            bench.compare(hosted.data_dir, [reading])
    return events / took_s


async def crowd(bench: Bench, hosted: Hosted, readers: int, chunks: int) -> float:
    """Lines a second of all readers together, each of them reading the same turn of the yielding agent."""
    async with hosted.connected(readers) as connections:
        began_s = time.perf_counter()
        session_id = await begin(connections[0], hosted.caller, str(chunks), "yielding")
        request = hosted.caller.stream(session_id)
        bodies = await asyncio.gather(*(connection.call(request) for connection in connections))
        took_s = time.perf_counter() - began_s
    bench.compare(hosted.data_dir, [Reading(session_id, body) for body in bodies])
    return sum(body.count(b"\n") for body in bodies) / took_s


async def measure_tight(bench: Bench) -> None:
    """Long turns of a tight agent, over one-line streaming; the longest over those of the second length."""
    sizes, hosted = bench.sizes, bench.standing_host()
    rates: dict[int, list[float]] = {}
    streamers = await _streamers(bench)
    await long_turns(bench, hosted, 2_000)
    for chunks, turns in sizes.stream_turns:
        work = partial(long_turns, bench, hosted, chunks, turns)
        of_stock, found, rates[chunks] = await bench.rounds(*streamers, work)
        size = f"{turns} turns of {chunks:,} chunks" if turns > 1 else f"a turn of {chunks:,} chunks"
        what = f"{chunks:,} chunks"
        bench.add(TIGHT, what, rates[chunks], unit="events/s", size=size)
        _over_lines(bench, (TIGHT, what), rates[chunks], (found, of_stock), at_least(1.0))
    longest, base = max(rates), sorted(rates)[1]
    bench.add_ratio(
        TIGHT, f"{longest:,} chunks ÷ {base:,}", rates[longest], rates[base], target=at_least(0.9)
    )


async def measure_yielding(bench: Bench) -> None:
    """An agent that lets the loop run after each chunk: one reader over one-line streaming, many over one."""
    sizes, hosted = bench.sizes, bench.standing_host()
    one, many = sizes.yielding_chunks, sizes.readers_chunks
    streamers = await _streamers(bench)
    alone = partial(long_turns, bench, hosted, agent="yielding")
    await alone(1_000)
    of_stock, found, rates = await bench.rounds(*streamers, partial(alone, one))
    lone, crowded = await bench.rounds(
        partial(crowd, bench, hosted, 1, many), partial(crowd, bench, hosted, sizes.readers, many)
    )
    bench.add(YIELDING, "one reader", rates, unit="events/s", size=f"a turn of {one:,} chunks")
    _over_lines(bench, (YIELDING, "one reader"), rates, (found, of_stock), at_least(0.35))
    what, size = f"{sizes.readers} readers", f"a turn of {many:,} chunks"
    bench.add(YIELDING, f"{what}, all lines", crowded, unit="lines/s", size=size)
    bench.add_ratio(YIELDING, f"{what} ÷ one", crowded, lone, target=at_least(5.0), size=size)


async def _streamers(bench: Bench) -> tuple[Callable[[], Awaitable[float]], ...]:
    """The one-line-per-chunk limit on uvicorn as it comes, and as the host runs it; both warm."""
    servers = bench.plain(is_stock=True), bench.plain()
    for server in servers:
        await limits.lines(server, bench.sizes.lines // 4)
    return tuple(partial(limits.lines, server, bench.sizes.lines) for server in servers)


def _over_lines(
    bench: Bench,
    name: tuple[str, str],
    rates: list[float],
    limits_found: tuple[list[float], list[float]],
    target: Target,
) -> None:
    """Rows of a figure, and what it is called there, over the two limits: of our uvicorn and of stock."""
    figure, what = name
    size, (ours, stock) = f"{bench.sizes.lines:,} lines", limits_found
    bench.add_ratio(figure, f"{what} ÷ a line a chunk", rates, ours, target=target, size=size)
    bench.add_ratio(figure, f"{what} ÷ a line a chunk, stock uvicorn", rates, stock, size=size)
