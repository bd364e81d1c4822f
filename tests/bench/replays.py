"""Replays: a long log read from its start and joined near its end."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from functools import partial
from pathlib import Path

from tests.bench import limits
from tests.bench.bench import Bench, Hosted
from tests.bench.calls import Reading, Refused
from tests.bench.datasets import generate
from tests.bench.rows import at_least, below
from tests.builders import session_id_of

NAME = "replay"
_NUMBER = 1
_NEAR = 1_000  # events before the end among which readers join


async def measure(bench: Bench) -> None:
    """Replay over FileResponse of the same bytes, and the time to the first byte of a late join."""
    sizes, session_id, data_dir = bench.sizes, session_id_of(_NUMBER), bench.data_dir("replay")
    bench.say("generating a long log")
    await generate("long", data_dir, _NUMBER, 1, sizes.replay_events)
    await asyncio.to_thread(os.sync)
    log = data_dir / f"{session_id}.ndjson"
    async with bench.host("replay") as hosted:
        first_ms = (await _joins(bench, hosted, 1))[0]
        await _replay(bench, hosted, log)
        rates, files = [], []
        for _ in range(sizes.replays):
            of_file, of_log = await bench.rounds(
                partial(limits.file, bench.plain(), log), partial(_replay, bench, hosted, log)
            )
            files += of_file
            rates += of_log
        joins_ms = [statistics.median(await _joins(bench, hosted, sizes.joins)) for _ in range(sizes.runs)]
    size = f"{log.stat().st_size / 1e6:,.0f} MB, {sizes.replay_events:,} events"
    bench.add(NAME, "FileResponse, beside it", files, unit="MB/s", size=size)
    bench.add(NAME, "replay", rates, unit="MB/s", size=size)
    bench.add_ratio(NAME, "replay ÷ FileResponse", rates, files, target=at_least(1.0), size=size)
    size = f"{sizes.joins:,} joins in the last {_NEAR:,} of {sizes.replay_events:,} events"
    bench.add(
        NAME, "first byte of a join, not in memory", [first_ms], unit="ms", size="the first join of all"
    )
    bench.add(NAME, "first byte of a join, p50", joins_ms, unit="ms", target=below(5), size=size)


async def _replay(bench: Bench, hosted: Hosted, log: Path) -> float:
    """MB a second."""
    async with hosted.connected(1) as [connection]:
        began_s = time.perf_counter()
        body = await connection.call(hosted.caller.stream(log.stem))
        took_s = time.perf_counter() - began_s
    bench.compare(hosted.data_dir, [Reading(log.stem, body)])
    return len(body) / took_s / 1e6


async def _joins(bench: Bench, hosted: Hosted, count: int) -> list[float]:
    """How long the first byte took, ms."""
    session_id, events, took_ms = session_id_of(_NUMBER), bench.sizes.replay_events, []
    async with hosted.connected(1) as [connection]:
        for _ in range(count):
            request = hosted.caller.stream(session_id, start=random.randrange(events - _NEAR, events))
            began_s = time.perf_counter()
            body = await connection.call(request)
            took_ms.append(1000 * (connection.first_byte_s - began_s))
            if connection.status != 200:
                raise Refused(connection.status, body)
            bench.compare(hosted.data_dir, [Reading(session_id, body, offset=-len(body))])
    return took_ms
