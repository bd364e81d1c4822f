"""Start-ups: a host on a directory of many sessions, some cut down midway and some parked."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from tests.bench.bench import Bench, Hosted
from tests.bench.calls import BASE, ask
from tests.bench.client import Connection
from tests.bench.datasets import generate
from tests.bench.rows import below

NAME = "startup"
_READY_TIMEOUT_S = 120.0
_PAGE = 50


async def measure(bench: Bench) -> None:
    """Time to ready, and then of the first page of the list."""
    sizes, data_dir = bench.sizes, bench.data_dir("startup")
    bench.say("generating sessions")
    await asyncio.gather(
        generate("whole", data_dir, 1, sizes.stored, sizes.stored_bytes),
        generate("parked", data_dir, sizes.stored + 1, sizes.parked),
    )
    first = sizes.stored + sizes.parked + 1
    ready_s, page_ms, later_ms, rss_mib = [], [], [], []
    for run in range(sizes.runs):
        await generate("cut", data_dir, first + run * sizes.cut, sizes.cut, 20)
        bench.say(f"run {run + 1} of {sizes.runs}")
        async with bench.host("startup") as hosted, hosted.connected(1) as [connection]:
            await _until_ready(hosted, connection)
            ready_s.append(time.perf_counter() - hosted.server.began_s)
            rss_mib.append(hosted.server.rss_bytes / 2**20)
            page, took_ms = await _page(hosted, connection, None)
            page_ms.append(took_ms)
            later_ms.append((await _page(hosted, connection, page["nextBefore"]))[1])
            if len(page["sessions"]) != min(_PAGE, sizes.stored):
                bench.wrong.append(f"a page of {_PAGE} sessions had {len(page['sessions'])}")
    size = (
        f"{sizes.stored:,} sessions, {_size_mb(data_dir):,.0f} MB, {sizes.cut} cut, {sizes.parked:,} parked"
    )
    bench.add(NAME, "time to ready", ready_s, unit="s", target=below(3.0), size=size)
    bench.add(NAME, f"a page of {_PAGE}", page_ms, unit="ms", target=below(100), size="the newest sessions")
    bench.add(NAME, "the page after it", later_ms, unit="ms", target=below(100), size="parked sessions")
    bench.add(NAME, "memory when ready", rss_mib, unit="MiB", size=size)


async def _until_ready(hosted: Hosted, connection: Connection) -> None:
    request = hosted.caller.get(f"{BASE}/ready")
    async with asyncio.timeout(_READY_TIMEOUT_S):
        while True:
            await connection.call(request)
            if connection.status == 200:
                return
            await asyncio.sleep(0.005)


async def _page(hosted: Hosted, connection: Connection, before: str | None) -> tuple[dict[str, Any], float]:
    """A page of the list, and how long it took, ms."""
    more = "" if before is None else f"&before={before}"
    request = hosted.caller.get(f"{BASE}/sessions?limit={_PAGE}{more}")
    began_s = time.perf_counter()
    page = await ask(connection, request)
    return page, 1000 * (time.perf_counter() - began_s)


def _size_mb(data_dir: Path) -> float:
    return sum(path.stat().st_size for path in data_dir.iterdir()) / 1e6
