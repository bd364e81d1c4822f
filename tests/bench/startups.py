"""Start-ups: a host on a directory of many sessions, some cut down midway and some parked."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from tests.bench.bench import Bench, Hosted
from tests.bench.calls import BASE, ask
from tests.bench.client import Connection
from tests.bench.datasets import generate
from tests.bench.rows import below
from tests.builders import session_id_of
from zhin_host.clock import SessionId

NAME = "startup"
_READY_TIMEOUT_S = 120.0
_PAGE = 50


async def measure(bench: Bench) -> None:
    """Time to ready, and then of the first page of the list."""
    sizes, data_dir = bench.sizes, bench.data_dir("startup")
    bench.say("generating sessions")
    first_parked = 1 + sizes.runs * sizes.cut  # the newest are read from the disk, the cut ones are in memory
    first = first_parked + sizes.parked
    await asyncio.gather(
        generate("parked", data_dir, first_parked, sizes.parked),
        generate("whole", data_dir, first, sizes.stored, sizes.stored_bytes),
        generate("cut", data_dir, 1, sizes.cut, 20),
    )
    ready_s, page_ms, parked_ms, rss_mib = [], [], [], []
    for run in range(sizes.runs):
        if run:  # the host has ended those of the run before
            await generate("cut", data_dir, 1 + run * sizes.cut, sizes.cut, 20)
        bench.say(f"run {run + 1} of {sizes.runs}")
        await asyncio.to_thread(os.sync)  # what is still on its way would count as the host's
        async with bench.host("startup") as hosted, hosted.connected(1) as [connection]:
            await _until_ready(hosted, connection)
            ready_s.append(time.perf_counter() - hosted.server.began_s)
            rss_mib.append(hosted.server.rss_bytes / 2**20)
            page_ms.append(await _page(bench, hosted, connection))
            parked_ms.append(await _page(bench, hosted, connection, session_id_of(first)))
    size = (
        f"{sizes.stored:,} sessions, {_size_mb(data_dir):,.0f} MB, {sizes.cut} cut, {sizes.parked:,} parked"
    )
    bench.add(NAME, "time to ready", ready_s, unit="s", target=below(3.0), size=size)
    bench.add(NAME, f"a page of {_PAGE}", page_ms, unit="ms", target=below(100), size="the newest sessions")
    bench.add(
        NAME, f"a page of {_PAGE} parked", parked_ms, unit="ms", target=below(100), size="the newest of them"
    )
    bench.add(NAME, "memory when ready", rss_mib, unit="MiB", size=size)


async def _until_ready(hosted: Hosted, connection: Connection) -> None:
    request = hosted.caller.get(f"{BASE}/ready")
    async with asyncio.timeout(_READY_TIMEOUT_S):
        while True:
            await connection.call(request)
            if connection.status == 200:
                return
            await asyncio.sleep(0.005)


async def _page(
    bench: Bench, hosted: Hosted, connection: Connection, before: SessionId | None = None
) -> float:
    """How long a page of the list took, of sessions that are not in memory, ms."""
    more = "" if before is None else f"&before={before}"
    request = hosted.caller.get(f"{BASE}/sessions?limit={_PAGE}{more}")
    began_s = time.perf_counter()
    page = await ask(connection, request)
    took_ms = 1000 * (time.perf_counter() - began_s)
    if len(page["sessions"]) != min(_PAGE, bench.sizes.stored if before is None else bench.sizes.parked):
        bench.wrong.append(f"a page of {_PAGE} sessions had {len(page['sessions'])}")
    return took_ms


def _size_mb(data_dir: Path) -> float:
    return sum(path.stat().st_size for path in data_dir.iterdir()) / 1e6
