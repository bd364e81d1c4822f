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


class Conversation:
    """One session with its turns, and how long each follow-up took.

    Attributes:
        took_ms: Of each follow-up in order.
        readings: What was read of each turn.
    """

    def __init__(self, hosted: Hosted, connection: Connection) -> None:
        self._hosted = hosted
        self._connection = connection
        self._token = ""
        self._offset = 0
        self.session_id = ""
        self.took_ms: list[float] = []
        self.readings: list[Reading] = []

    async def begin(self) -> None:
        """Its first turn."""
        first = await turn(self._connection, self._hosted.caller, _CHUNKS)
        self.session_id = first.session_id
        answer = await ask(self._connection, self._hosted.caller.get(f"{BASE}/session/{self.session_id}"))
        self._token = answer["continuationToken"]
        self._take(first.body)

    async def follow_up(self) -> None:
        """One more turn."""
        began_s = time.perf_counter()
        body = {"continuationToken": self._token, "message": _CHUNKS}
        caller = self._hosted.caller
        answer = await ask(self._connection, caller.post(f"{BASE}/session/{self.session_id}", body))
        got = await self._connection.call(caller.stream(self.session_id, start=answer["startIndex"]))
        self.took_ms.append(1000 * (time.perf_counter() - began_s))
        self._token = answer["continuationToken"]
        self._take(got.lstrip(b"\n"))

    def _take(self, body: bytes) -> None:
        self.readings.append(Reading(self.session_id, body, self._offset, is_whole=False))
        self._offset += len(body)


async def measure(bench: Bench) -> None:
    """The last turns over the first ones of another session in turn, and what all snapshots took over the log."""
    sizes, hosted = bench.sizes, bench.standing_host()
    growth, share, p50_ms = [], [], []
    for _ in range(sizes.followups_runs):
        async with hosted.connected(1) as [connection]:
            for _ in range(min(_WARM_UP, sizes.followups)):
                await turn(connection, hosted.caller, _CHUNKS)
            long, written, short = await _follow_up(bench, hosted, connection)
        bench.compare(hosted.data_dir, [*long.readings, *short.readings])
        log_bytes = (hosted.data_dir / f"{long.session_id}.ndjson").stat().st_size
        last_ms = long.took_ms[-len(short.took_ms) :]
        growth.append(statistics.mean(last_ms) / statistics.mean(short.took_ms))
        share.append(written.size_bytes / log_bytes)
        p50_ms.append(statistics.median(long.took_ms))
    size = f"{sizes.followups:,} follow-ups, {sizes.followups_edge} at either end"
    bench.add(NAME, "a follow-up, p50", p50_ms, unit="ms", size=size)
    bench.add(NAME, "mean of the last ÷ of the first", growth, target=below(1.1), size=size)
    bench.add(NAME, "snapshots' bytes ÷ the log's", share, target=below(1.0), size=size)


async def _follow_up(
    bench: Bench, hosted: Hosted, connection: Connection
) -> tuple[Conversation, Written, Conversation]:
    """The long session, its snapshots, and a short one whose first turns came in turn with the long one's last.

    Half a minute lies between the first turns of a session and its last, in which a shared machine's speed changes by
    more than the target allows; so the last are held against first ones of the same moment.
    """
    sizes = bench.sizes
    long, short = Conversation(hosted, connection), Conversation(hosted, connection)
    await long.begin()
    written = Written(hosted.data_dir / f"{long.session_id}.json")
    for _ in range(sizes.followups - sizes.followups_edge):
        await long.follow_up()
        written.look()
    await short.begin()
    for _ in range(sizes.followups_edge):
        await short.follow_up()
        await long.follow_up()
        written.look()
    return long, written, short
