"""Follow-ups: many turns of one session; none must be dearer for those before it."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from tests.bench.bench import Bench, Hosted
from tests.bench.calls import BASE, Reading, ask, turn
from tests.bench.client import Connection
from tests.bench.rows import below

NAME = "followups"
_CHUNKS = "3"
_WARM_UP = 200  # turns of other sessions: the first ones of a process are slow for reasons of their own


class Written:
    """The snapshots of one session, counted as they are replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = (0, 0)
        self.size_bytes = 0

    def look(self) -> None:
        """Count the snapshot when it is another than at the last look."""
        try:
            facts = self._path.stat()
        except FileNotFoundError:
            return
        if self._seen != (facts.st_ino, facts.st_mtime_ns):
            self._seen = (facts.st_ino, facts.st_mtime_ns)
            self.size_bytes += facts.st_size


async def measure(bench: Bench) -> None:
    """The last turns over the first ones, and what all snapshots took over what the log takes."""
    sizes, hosted = bench.sizes, bench.standing_host()
    growth, share, p50_ms = [], [], []
    for _ in range(sizes.followups_runs):
        async with hosted.connected(1) as [connection]:
            for _ in range(min(_WARM_UP, sizes.followups)):
                await turn(connection, hosted.caller, _CHUNKS)
            session_id, took_ms, written = await _follow_up(bench, hosted, connection)
        log_bytes = (hosted.data_dir / f"{session_id}.ndjson").stat().st_size
        edge = sizes.followups_edge
        growth.append(statistics.mean(took_ms[-edge:]) / statistics.mean(took_ms[:edge]))
        share.append(written.size_bytes / log_bytes)
        p50_ms.append(statistics.median(took_ms))
    size = f"{sizes.followups:,} follow-ups, {sizes.followups_edge} at either end"
    bench.add(NAME, "a follow-up, p50", p50_ms, unit="ms", size=size)
    bench.add(NAME, "mean of the last ÷ of the first", growth, target=below(1.1), size=size)
    bench.add(NAME, "snapshots' bytes ÷ the log's", share, target=below(1.0), size=size)


async def _follow_up(
    bench: Bench, hosted: Hosted, connection: Connection
) -> tuple[str, list[float], Written]:
    """The session, how long each turn took (ms), and its snapshots."""
    first = await turn(connection, hosted.caller, _CHUNKS)
    path, offset = f"{BASE}/session/{first.session_id}", len(first.body)
    written = Written(hosted.data_dir / f"{first.session_id}.json")
    answer = await ask(connection, hosted.caller.get(path))
    took_ms, readings = [], [Reading(first.session_id, first.body, is_whole=False)]
    for _ in range(bench.sizes.followups):
        began_s = time.perf_counter()
        body = {"continuationToken": answer["continuationToken"], "message": _CHUNKS}
        answer = await ask(connection, hosted.caller.post(path, body))
        got = await connection.call(hosted.caller.stream(first.session_id, start=answer["startIndex"]))
        took_ms.append(1000 * (time.perf_counter() - began_s))
        readings.append(Reading(first.session_id, got.lstrip(b"\n"), offset, is_whole=False))
        offset += len(readings[-1].body)
        written.look()
    bench.compare(hosted.data_dir, readings)
    return first.session_id, took_ms, written
