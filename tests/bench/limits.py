"""Limits: what the machine gives without a host; they are taken again beside the figures that are ratios to them."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from tests.bench import disk
from tests.bench.bench import Bench, Hosted, together
from tests.bench.calls import Refused
from tests.bench.client import Connection

NAME = "limits"
_SLOW_CREATION_US = 120.0  # some 20 to 40 are usual


async def hellos(plain: Hosted, clients: int, count: int) -> float:
    """POSTs a second of request.json() and JSONResponse, of all clients together."""
    request = plain.caller.post("/hello", {"message": "20"})

    async def hello(connection: Connection) -> None:
        body = await connection.call(request)
        if connection.status != 200:
            raise Refused(connection.status, body)

    async with plain.connected(clients) as connections:
        began_s = time.perf_counter()
        await together(connections, count, hello)
        return count / (time.perf_counter() - began_s)


async def lines(plain: Hosted, count: int) -> float:
    """Lines a second of a StreamingResponse whose chunks are a line each."""
    async with plain.connected(1) as [connection]:
        began_s = time.perf_counter()
        body = await connection.call(plain.caller.get(f"/lines?count={count}"))
        took_s = time.perf_counter() - began_s
    if connection.status != 200 or body.count(b"\n") != count:
        raise Refused(connection.status, body)
    return count / took_s


async def file(plain: Hosted, path: Path) -> float:
    """MB a second of a FileResponse of a file of the bench's folder."""
    name, size_bytes = path.relative_to(plain.data_dir), path.stat().st_size  # noqa: ASYNC240
    async with plain.connected(1) as [connection]:
        began_s = time.perf_counter()
        body = await connection.call(plain.caller.get(f"/file/{name}"))
        took_s = time.perf_counter() - began_s
    if connection.status != 200 or len(body) != size_bytes:
        raise Refused(connection.status, body)
    return size_bytes / took_s / 1e6


async def measure(bench: Bench) -> None:
    """Every limit by itself."""
    sizes, folder = bench.sizes, bench.folder / "disk"
    folder.mkdir()
    large = bench.folder / "large"
    large.write_bytes(disk.BLOCK * (sizes.replay_events // 20))
    ours, stock = bench.plain(), bench.plain(is_stock=True)
    for plain in (ours, stock):
        await hellos(plain, sizes.clients, sizes.hellos // 4)
        await lines(plain, sizes.lines // 4)
    found = [
        (
            await hellos(ours, sizes.clients, sizes.hellos),
            await hellos(stock, sizes.clients, sizes.hellos),
            await lines(ours, sizes.lines),
            await lines(stock, sizes.lines),
            await file(ours, large),
        )
        for _ in range(sizes.runs)
    ]
    posts, chunks = f"{sizes.hellos:,} POSTs, {sizes.clients} clients", f"{sizes.lines:,} lines"
    for (what, unit, size), values in zip(
        (
            ("hello", "1/s", posts),
            ("hello, stock uvicorn", "1/s", posts),
            ("a line a chunk", "lines/s", chunks),
            ("a line a chunk, stock uvicorn", "lines/s", chunks),
            ("FileResponse", "MB/s", f"{large.stat().st_size / 1e6:,.0f} MB"),
        ),
        zip(*found, strict=True),
        strict=True,
    ):
        bench.add(NAME, what, values, unit=unit, size=size)
    _disk(bench, folder)


def _disk(bench: Bench, folder: Path) -> None:
    sizes = bench.sizes
    found = [
        (
            disk.appends(folder, sizes.disk_s),
            disk.creations(folder, sizes.files),
            disk.removals(folder, sizes.files // 10),
            statistics.median(disk.syncs(folder, sizes.disk_s)),
            disk.threaded_syncs(folder, sizes.disk_s, 8),
            disk.whole_syncs(folder, sizes.disk_s),
        )
        for _ in range(sizes.runs)
    ]
    by_kind = zip(*found, strict=True)
    if statistics.median(values[1] for values in found) > _SLOW_CREATION_US:
        bench.notes.append(
            "Files are created slowly here now, as on ext4 after many were unlinked: wait some minutes, or what "
            "the figures with new sessions say is that."
        )
    for_s = f"for {sizes.disk_s:g} s"
    for what, unit, size in (
        ("O_APPEND write of 4 KiB", "1/s", for_s),
        ("create a file", "µs", f"{sizes.files:,} files"),
        ("unlink a file", "µs", f"{sizes.files // 10:,} files"),
        ("fdatasync, 1 thread", "ms", for_s),
        ("fdatasync, 8 threads", "1/s", for_s),
        ("syncfs", "ms", for_s),
    ):
        bench.add(NAME, what, next(by_kind), unit=unit, size=size)
