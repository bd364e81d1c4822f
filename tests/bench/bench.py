"""Bench: what the figures share: folder, servers, rows, and what was found wrong."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.calls import Caller, Reading
from tests.bench.client import Connection, connect
from tests.bench.rows import Row, Target, ratios
from tests.bench.server import Server, host_command, limits_command
from tests.bench.sizes import Sizes

ROOT = Path(__file__).parents[2]
PRINCIPAL = "bench"
"""Whose the sessions are."""


@dataclass(slots=True)
class Hosted:
    """A host that runs, and where it keeps its sessions."""

    server: Server
    data_dir: Path
    caller: Caller

    @asynccontextmanager
    async def connected(self, count: int) -> AsyncIterator[list[Connection]]:
        """So many connections to it; made anew for each run, since servers close those that are idle for long."""
        connections = [await connect(self.server.port) for _ in range(count)]
        try:
            yield connections
        finally:
            for connection in connections:
                connection.close()


@dataclass(slots=True)
class Bench:
    """One run of the benchmark.

    Args:
        folder: Where everything is; what the figures leave in it stays until they all are done.
        sizes: How much each figure does.
        say: Told what is being done.

    Attributes:
        rows: What was measured, in order.
        wrong: What must not be: readers' bytes that differ, refused requests, faults of the audit. One a line.
        notes: What a reader of the table should know; no fault.
        directories: Data directories that the audit has to pass at the end.
    """

    folder: Path
    sizes: Sizes
    say: Callable[[str], None] = lambda _: None
    rows: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    directories: list[Path] = field(default_factory=list)
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    _standing: dict[str, Hosted] = field(default_factory=dict)
    _plain: dict[bool, Hosted] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.token_file.touch(mode=0o600)
        self.token_file.write_text(f"{PRINCIPAL} {self.token}\n")

    @property
    def token_file(self) -> Path:
        return self.folder / "tokens"

    @property
    def errors(self) -> Path:
        """What the servers say on stderr: the host's logs are on while it is measured."""
        return self.folder / "server.log"

    def add(
        self,
        figure: str,
        what: str,
        values: Iterable[float],
        *,
        unit: str = "",
        target: Target | None = None,
        size: str = "",
    ) -> None:
        """Put a row into the table."""
        self.rows.append(Row(figure, what, unit, tuple(values), target, size))

    def add_ratio(
        self,
        figure: str,
        what: str,
        rates: Sequence[float],
        limits: Sequence[float],
        *,
        target: Target | None = None,
        size: str = "",
    ) -> None:
        """Put a row of ratios into the table, each over the limit that was taken beside it."""
        values = tuple(ratios(rates, limits))
        self.rows.append(Row(figure, what, "", values, target, size, tuple(limits)))

    def data_dir(self, name: str) -> Path:
        """A data directory of this run; it is audited at the end."""
        path = self.folder / name
        if path not in self.directories:
            self.directories.append(path)
        return path

    @asynccontextmanager
    async def host(self, name: str, *flags: str) -> AsyncIterator[Hosted]:
        """A host on the data directory of that name, which may be there; stopped at the end of the block.

        Args:
            name: Of the data directory.
            flags: More of those of `zhin-host serve`.
        """
        hosted = self._start_host(name, *flags)
        try:
            yield hosted
        finally:
            self._stop_host(hosted)

    def standing_host(self, name: str = "shared", *flags: str) -> Hosted:
        """A host that several figures use, started by the first of them; `close` stops it. As `host` otherwise."""
        if name not in self._standing:
            self._standing[name] = self._start_host(name, *flags)
        return self._standing[name]

    def plain(self, *, is_stock: bool = False) -> Hosted:
        """The server of the limits; `close` stops it. Stock: on uvicorn as it comes, not as the host runs it."""
        if is_stock not in self._plain:
            server = Server(limits_command(self.folder, is_stock=is_stock), self.errors, ROOT)
            self._plain[is_stock] = Hosted(server, self.folder, Caller(self.token))
        return self._plain[is_stock]

    def close(self) -> None:
        """Stop the servers that are still there."""
        while self._standing:
            self._stop_host(self._standing.popitem()[1])
        while self._plain:
            self._plain.popitem()[1].server.stop()

    def _start_host(self, name: str, *flags: str) -> Hosted:
        data_dir = self.data_dir(name)
        command = host_command("tests.bench.agents:every", data_dir, self.token_file, *flags)
        return Hosted(Server(command, self.errors, ROOT), data_dir, Caller(self.token))

    def _stop_host(self, hosted: Hosted) -> None:
        if (code := hosted.server.stop()) != 0:
            self.wrong.append(
                f"the host on {hosted.data_dir.name} ended with code {code}; its log is {self.errors}"
            )

    def compare(self, data_dir: Path, readings: Sequence[Reading]) -> None:
        """Hold what readers got against the files; blank lines are heartbeats."""
        for reading in readings:
            if (fault := difference(data_dir, reading)) is not None:
                self.wrong.append(fault)

    async def rounds(self, *works: Callable[[], Awaitable[float]]) -> list[list[float]]:
        """Take limits and figure in turns, and each one's values.

        The machine's speed drifts, and a ratio needs both of one moment.
        """
        found: list[list[float]] = [[] for _ in works]
        for run in range(self.sizes.runs):
            self.say(f"run {run + 1} of {self.sizes.runs}")
            for values, work in zip(found, works, strict=True):
                values.append(await work())
        return found


def difference(data_dir: Path, reading: Reading) -> str | None:
    """What is wrong with what a reader got, None when it is the file's bytes."""
    path = data_dir / f"{reading.session_id}.ndjson"
    body = without_heartbeats(reading.body)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        offset = reading.offset if reading.offset >= 0 else size + reading.offset
        file.seek(offset)
        kept = file.read(len(body))
    where = f"session {reading.session_id} from byte {offset}"
    if not body:
        return f"{where}: the reader got nothing"
    if kept != body:
        return f"{where}: the reader's {len(body)} bytes differ from the file's"
    if reading.is_whole and offset + len(body) != size:
        return f"{where}: the reader got {len(body)} bytes of {size - offset}"
    return None


def without_heartbeats(body: bytes) -> bytes:
    """An NDJSON stream's bytes without its blank lines."""
    body = body.lstrip(b"\n")
    return (
        body
        if b"\n\n" not in body
        else b"".join(line for line in body.splitlines(keepends=True) if line != b"\n")
    )


async def together(
    connections: Sequence[Connection], count: int, work: Callable[[Connection], Awaitable[None]]
) -> None:
    """Do something `count` times in all, each connection as often as it comes to it."""
    todo = iter(range(count))

    async def client(connection: Connection) -> None:
        for _ in todo:
            await work(connection)

    await asyncio.gather(*(client(connection) for connection in connections))
