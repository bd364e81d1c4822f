"""What one thing costs, counted: a regression fails here on any machine, since nothing is timed.

Two timers are held still by every test: the journal's millisecond and the beat of the host's own two tasks. A number
that changed for the better is changed here, too.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from starlette.types import ASGIApp, Message

from tests.budget.counting import (
    Calls,
    CountingFileSystem,
    HeldTimers,
    held_timers,
    open_descriptors,
    waiting_timers,
    watched_loop,
)
from tests.fakes import FakeClock
from tests.hosting import NOBODY, Hosting, hosting, types
from tests.integration.live import served
from zhin_host import Turn, create_agent_session_host
from zhin_host import events as ev
from zhin_host import journal as journal_module
from zhin_host.clock import SessionId
from zhin_host.fold import apply
from zhin_host.intake import Accepted, Key
from zhin_host.moves import check
from zhin_host.storage.crew import SyncCrew
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.log import SessionEventLog
from zhin_host.subscriptions import Subscription

GATHER_S: Final = journal_module._GATHER_S
BEAT_S: Final = 1.0  # AgentSessionHost._interval_s with the default settings
BATCH: Final = 64  # batch_events_max
BLOCK_BYTES: Final = 256 * 1024  # what a replay reads at once
CHUNKS: Final = 20

# One batch: is the file as long as it should be, and the bytes. The log was opened before, and is not closed.
ONE_BATCH: Final = {"fstat .ndjson": 1, "write .ndjson": 1}
# A turn: the POST's batch (turn.started, step.started, message.received), then what was said and the turn's end. Both
# are there before the POST's sync begins, so that one sync serves the POST and the turn.
SHORT_TURN: Final = {"fstat .ndjson": 2, "write .ndjson": 2, "datasync .ndjson": 1}
# A new session's names: the log's file is made, and the directory synced.
NEW_NAMES: Final = {"open .ndjson": 1, "open /": 1, "fsync /": 1, "close /": 1}
# Its mark, where no other session has one to leave.
NEW_MARK: Final = {"open .open": 1, "write .open": 1, "close .open": 1}
# session.started turn.started step.started message.received …20 deltas… message.completed turn.completed
# step.completed session.waiting
SHORT_TURN_EVENTS: Final = 4 + CHUNKS + 4


class Speaker:
    """Says so many words without a pause, or with one after each.

    Attributes:
        words: How many.
        go: What a held turn waits for before it speaks.
    """

    def __init__(self, words: int = CHUNKS, *, padding: str = "", yields: bool = False) -> None:
        self.words = words
        self.go = asyncio.Event()
        self._padding = padding
        self._yields = yields

    async def __call__(self, turn: Turn) -> None:
        if turn.message == "hold":
            await self.go.wait()
        for number in range(self.words):
            await turn.say(f"word {number} {self._padding}")
            if self._yields:
                await asyncio.sleep(0)


@dataclass
class Bench:
    """A host on counted files, its time standing still."""

    hosting: Hosting
    fs: CountingFileSystem
    timers: HeldTimers

    async def start(self, message: str = "Hello") -> str:
        """A new session; its first turn has ended, unless it was told to hold."""
        accepted = await self.hosting.start(message)
        if message != "hold":
            await self.ended(accepted.session_id)
        return accepted.session_id

    async def follow_up(self, session_id: str, message: str = "Go on", key: Key | None = None) -> Accepted:
        """A follow-up; its turn has ended, unless it was told to hold."""
        token = self.hosting.live(session_id).state.token
        store = self.hosting.store
        accepted = await store.proceed(NOBODY, session_id, token, message, key=key)
        if message != "hold":
            await self.ended(session_id)
        return accepted

    async def ended(self, session_id: str) -> None:
        """Wait until no turn of it is open, without a timer of our own."""
        runner = self.hosting.store._driver.runner(SessionId(session_id))
        if runner is not None:
            await runner.settled()


@asynccontextmanager
async def bench(agent: Any, data_dir: Path, **settings: Any) -> AsyncIterator[Bench]:
    """A host for the block; what its start cost is not counted."""
    fs = CountingFileSystem()
    fsync = settings.get("fsync", "boundary")
    persistence = FileHttpSessionPersistence(data_dir, fsync=fsync, fs=fs)
    with held_timers(GATHER_S, BEAT_S) as timers:
        async with hosting(agent, persistence=persistence, **settings) as host:
            await _turned(partial(_has_beaten, timers, 2))  # the ticker and the housekeeping have begun
            fs.take()
            yield Bench(host, fs, timers)


@pytest.fixture
def encodes(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Every value that is made JSON for a line, or to see whether it fits one."""
    counted = Calls(ev.json_bytes)
    monkeypatch.setattr(ev, "json_bytes", counted)
    return counted


@pytest.fixture
def dumps(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Every call of the JSON encoder, whoever makes it."""
    counted = Calls(orjson.dumps)
    monkeypatch.setattr(orjson, "dumps", counted)
    return counted


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Every call of the JSON parser."""
    counted = Calls(orjson.loads)
    monkeypatch.setattr(orjson, "loads", counted)
    return counted


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> tuple[Calls, Calls]:
    """The journal's folds and checks: a run of deltas is one of each."""
    folded, checked = Calls(apply), Calls(check)
    monkeypatch.setattr(journal_module, "apply", folded)
    monkeypatch.setattr(journal_module, "check", checked)
    return folded, checked


# -- the log's calls ---------------------------------------------------------------------------------------------


def test_a_batch_is_one_look_and_one_write(data_dir: Path) -> None:
    fs = CountingFileSystem()
    data_dir.mkdir()
    session_id = SessionId("ses_01jdq3v2k0000000000000000a")
    log = SessionEventLog.create(session_id, str(data_dir / "a.log"), fs=fs, crew=SyncCrew(fs))
    fs.take()
    line = b'{"index":0,"sum":"' + b"A" * 43 + b'"}\n'
    for count in (1, BATCH, 10_000):
        log.append(line * count, expected_bytes=log.size_bytes)
        assert fs.take() == {"fstat .log": 1, "write .log": 1}
    log.close()


async def test_a_short_turn_writes_its_log_twice(data_dir: Path) -> None:
    async with bench(Speaker(), data_dir) as host:
        session_id = await host.start()
        assert host.fs.take() == SHORT_TURN | NEW_NAMES | NEW_MARK
        for _ in range(3):
            await host.follow_up(session_id)
            assert host.fs.take() == SHORT_TURN  # the mark is still there


async def test_a_new_session_takes_the_mark_of_one_at_rest(data_dir: Path) -> None:
    async with bench(Speaker(), data_dir) as host:
        await host.start()
        host.fs.take()
        for _ in range(3):
            await host.start()
            assert host.fs.take() == SHORT_TURN | NEW_NAMES | {"rename .open": 1}
        assert sum(name.endswith(".open") for name in host.fs.names(str(data_dir))) == 1


async def test_the_syncs_of_a_turn_are_those_of_its_post_and_its_end(data_dir: Path) -> None:
    agent = Speaker()
    async with bench(agent, data_dir) as host:
        session_id = await host.start("hold")
        assert host.fs.take()["datasync .ndjson"] == 1
        agent.go.set()
        await host.ended(session_id)
        # Words are no boundary: one sync for the turn's end, however much was said before it.
        assert host.fs.take() == ONE_BATCH | {"datasync .ndjson": 1}


@pytest.mark.parametrize(("fsync", "syncs"), [("never", {}), ("always", {"datasync .ndjson": 1})])
async def test_a_short_turn_writes_twice_under_every_mode_of_sync(
    data_dir: Path, fsync: str, syncs: dict[str, int]
) -> None:
    async with bench(Speaker(), data_dir, fsync=fsync) as host:
        session_id = await host.start()
        host.fs.take()
        await host.follow_up(session_id)
        assert host.fs.take() == {"fstat .ndjson": 2, "write .ndjson": 2, **syncs}


@pytest.mark.parametrize("chunks", [BATCH * 10, BATCH * 100])
async def test_a_tight_turn_writes_once_for_each_full_batch(data_dir: Path, chunks: int) -> None:
    async with bench(Speaker(chunks), data_dir) as host:
        session_id = await host.start()
        calls = host.fs.take()
        assert calls["write .ndjson"] == 1 + chunks // BATCH + 1  # the POST's, the full ones, the end's
        assert calls["datasync .ndjson"] <= 2  # the POST's and the end's: a say() is no boundary
        assert host.hosting.live(session_id).state.next_index == chunks + 8


async def test_a_turn_that_yields_after_every_word_writes_no_more_than_a_tight_one(data_dir: Path) -> None:
    chunks = BATCH * 10
    async with bench(Speaker(chunks, yields=True), data_dir) as host:
        await host.start()
        assert host.fs.take()["write .ndjson"] == 1 + chunks // BATCH + 1
        assert host.timers.made[GATHER_S] == 1  # it did not pass; planned anew only when it has


async def test_words_that_come_fast_are_one_write_a_millisecond(data_dir: Path) -> None:
    words_in_a_ms, ms = 10, 20

    async def agent(turn: Turn) -> None:
        for _ in range(ms):
            for _ in range(words_in_a_ms):
                await turn.say("word ")
                await asyncio.sleep(0)
            host.timers.fire(GATHER_S)

    async with bench(agent, data_dir) as host:
        await host.start()
        assert host.fs.take()["write .ndjson"] == 1 + ms + 1
        assert host.timers.made[GATHER_S] == ms


async def test_a_word_after_a_pause_waits_for_no_timer(data_dir: Path) -> None:
    writes: list[int] = []

    async def agent(turn: Turn) -> None:
        for _ in range(3):
            host.hosting.clock.advance(2 * GATHER_S)
            await turn.say("word ")
            await asyncio.sleep(0)
            writes.append(host.fs.take().get("write .ndjson", 0))

    async with bench(agent, data_dir) as host:
        await host.start()
        assert writes[1:] == [1, 1]
        assert host.timers.made[GATHER_S] == 0


# -- encodes and readers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [CHUNKS, BATCH * 10 + 1])
async def test_an_event_is_encoded_once(data_dir: Path, encodes: Calls, dumps: Calls, chunks: int) -> None:
    async with bench(Speaker(chunks), data_dir, snapshot_bytes_min=1 << 30) as host:
        encodes.take(), dumps.take()
        session_id = await host.start()
        lines = host.hosting.live(session_id).state.next_index
        assert lines == chunks + 8
        # Beside the lines: what the client sent, looked at for whether it fits a line (the session's fields, then
        # the message), and what stands beside the text in message.completed.
        assert (encodes.take(), dumps.take()) == (lines + 3, lines + 3)
        await host.follow_up(session_id)
        more = host.hosting.live(session_id).state.next_index - lines
        assert (encodes.take(), dumps.take()) == (more + 2, more + 2)  # it has no session's fields


async def test_live_readers_cost_no_encode_no_parse_no_copy_and_no_read_of_the_disk(
    data_dir: Path, dumps: Calls, loads: Calls
) -> None:
    agent = Speaker(BATCH * 10)
    async with bench(agent, data_dir) as host:
        session_id = await host.start("hold")
        at = host.hosting.live(session_id).state.next_index
        streams = [await host.hosting.store.subscribe(NOBODY, session_id, at, "boundary") for _ in range(10)]
        readers = [asyncio.ensure_future(_blocks(stream)) for stream in streams]
        host.fs.take(), dumps.take(), loads.take()
        with watched_loop() as loop:
            agent.go.set()
            got = await asyncio.gather(*readers)
        lines = host.hosting.live(session_id).state.next_index - at
        assert dumps.take() == lines + 1  # as many as without a reader: see the test above
        assert loads.take() == 0
        calls = host.fs.take()
        assert "pread .ndjson" not in calls
        assert calls["write .ndjson"] == 11
        assert loop.jobs == []
        assert b"".join(got[0]) == host.hosting.log(session_id)[-sum(map(len, got[0])) :]
        # All ten were given the very same bytes objects: the batches that were written.
        assert len(got[0]) == 11
        assert len({id(block) for blocks in got for block in blocks}) == 11


async def _blocks(stream: Subscription) -> list[bytes]:
    try:
        return [block async for block in stream if block]
    finally:
        await stream.aclose()


async def test_a_replay_from_cold_reads_each_byte_once_in_long_blocks(data_dir: Path, loads: Calls) -> None:
    agent = Speaker(20_000, padding="x" * 60)  # so much that no line says all of it once more
    async with bench(agent, data_dir) as host:
        session_id = await host.start()
        await _leave_memory(host, session_id)
        stream = await host.hosting.store.subscribe(NOBODY, session_id, 0, "tail")
        host.fs.take(), loads.take()
        got = b"".join(await _blocks(stream))
        calls = host.fs.take()
        assert got == host.hosting.log(session_id)
        # A block ends with a whole line, so a read is worth a block less a part of a line.
        longest = max(map(len, got.splitlines(keepends=True)))
        least, most = math.ceil(len(got) / BLOCK_BYTES), math.ceil(len(got) / (BLOCK_BYTES - longest))
        assert (least > 8, longest < 8_000) == (True, True)
        assert least <= calls.pop("pread .ndjson") <= most
        assert calls == {}
        assert loads.take() == 0


async def _leave_memory(host: Bench, session_id: str) -> None:
    """Let the session be dropped from memory, as one unused for a while."""
    await host.hosting.live(session_id).snapshot_written()
    host.hosting.host._sessions.sweep()
    host.hosting.clock.advance(host.hosting.host.config.idle_s)
    await host.hosting.host._sessions.drop_idle()
    assert not host.hosting.is_in_memory(session_id)


# -- the length of a session -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_keyed", [False, True], ids=["plain", "keyed"])
async def test_the_last_of_2000_follow_ups_costs_what_the_first_did(
    data_dir: Path,
    encodes: Calls,
    folds: tuple[Calls, Calls],
    is_keyed: bool,  # noqa: FBT001 - pytest's
) -> None:
    folded, checked = folds
    works: list[dict[str, int]] = []
    async with bench(Speaker(3), data_dir) as host:
        session_id = await host.start()
        live, start = host.hosting.live(session_id), host.hosting.live(session_id).state.offset
        snapshots = 0
        host.fs.take(), encodes.take(), folded.take(), checked.take()
        for number in range(2_000):
            key = Key(f"key {number}", "sha256:" + "0" * 64) if is_keyed else None
            await host.follow_up(session_id, key=key)
            work = {"encodes": encodes.take(), "folds": folded.take(), "checks": checked.take()}
            await live.snapshot_written()
            work |= host.fs.take()
            snapshots += work.get("rename .json", 0)
            works.append({name: work[name] for name in sorted(work) if not name.endswith((".json", ".tmp"))})
        # turn.started step.started message.received …3 deltas… message.completed turn.completed step.completed
        # session.waiting: ten lines, the deltas folded as one.
        usual = {"checks": 8, "encodes": 12, "folds": 8, **SHORT_TURN}
        with_snapshot = usual | {"lstat .ndjson": 1}  # is the log still there
        assert [work for work in works if work not in (usual, with_snapshot)] == []
        assert sum(work == with_snapshot for work in works) == snapshots
        log_bytes = live.state.offset - start
        assert 0 < host.fs.written[".tmp"] < log_bytes
        # One for each 64 KiB or for as much as the last one took, whichever is more.
        assert snapshots <= log_bytes / host.hosting.host.config.snapshot_bytes_min


# -- what waits costs nothing ------------------------------------------------------------------------------------


class IdleClient:
    """An ASGI client that opens a stream and stays; what it is sent is counted."""

    def __init__(self, session_id: str) -> None:
        self.sent: list[Message] = []
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": f"/zhin/v1/session/{session_id}/stream",
            "raw_path": b"",
            "root_path": "",
            "query_string": b"until=never&startIndex=1000",
            "headers": [(b"host", b"localhost:8787")],
            "server": ("localhost", 8787),
            "client": ("127.0.0.1", 1),
        }
        self._leaves = asyncio.get_running_loop().create_future()

    async def stay(self, app: ASGIApp) -> None:
        await app(self.scope, self.receive, self.send)

    async def receive(self) -> Message:
        await self._leaves
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def leave(self) -> None:
        self._leaves.set_result(None)


async def test_an_idle_stream_costs_one_task_beside_its_request_and_no_timer(data_dir: Path) -> None:
    count = 1_000
    async with bench(Speaker(), data_dir) as host:
        session_id = await host.start("hold")
        before, descriptors = waiting_timers(), open_descriptors()
        clients = [IdleClient(session_id) for _ in range(count)]
        app = host.hosting.host.app
        host.fs.take()
        with watched_loop() as loop:
            requests = [asyncio.create_task(client.stay(app), name="request") for client in clients]
            await _turned(lambda: loop.tasks.count("zhin-stream-watch") == count)
            assert loop.tasks.count("request") == count
            assert len(loop.tasks) == 2 * count
            assert loop.timers == []
            assert loop.jobs == []
            assert waiting_timers() == before
            assert open_descriptors() == descriptors
        assert host.fs.take() == {}  # whose cursor is the tail needs no look at the file
        await _heartbeats(host, clients)
        for client in clients:
            client.leave()
        await asyncio.gather(*requests)
        assert len(host.hosting.host._hub) == 0


async def _heartbeats(host: Bench, clients: list[IdleClient]) -> None:
    """Three heartbeats of every stream: no task, no timer, no call of the system for any of them."""
    for client in clients:
        client.sent.clear()
    with watched_loop() as loop:
        for count in range(1, 4):
            host.hosting.clock.advance(host.hosting.host.config.heartbeat_s)
            made = host.timers.made[BEAT_S]
            host.timers.fire(BEAT_S)
            await _turned(partial(_has_beaten, host.timers, made + 2))
            await _turned(partial(_have_all, clients, count))
        assert (loop.tasks, loop.timers, loop.jobs) == ([], [], [])
    assert host.fs.take() == {}


def _has_beaten(timers: HeldTimers, count: int) -> bool:
    return timers.made[BEAT_S] == count


def _have_all(clients: list[IdleClient], count: int) -> bool:
    return all(len(client.sent) == count for client in clients)


async def _turned(is_so: Callable[[], bool]) -> None:
    """Let the loop turn until something is so; a bound on its turns is the deadline."""
    for _ in range(10_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not become so")


async def test_parked_sessions_out_of_memory_hold_no_task_no_timer_and_no_descriptor(data_dir: Path) -> None:
    count = 300

    async def agent(turn: Turn) -> None:
        await turn.say(f"approved {await turn.approve('May I?')}")

    async with bench(agent, data_dir) as host:
        host_of = host.hosting
        first = await host_of.start()  # whatever is made once is made now
        await host_of.asked(first.session_id)
        await _park(host, 1)
        tasks, timers, descriptors = asyncio.all_tasks(), waiting_timers(), open_descriptors()
        parked = [(await host_of.start()).session_id for _ in range(count)]
        requests = [(await host_of.asked(session_id))[0].request_id for session_id in parked]
        # In memory: the turn's task, and the log.
        assert len(asyncio.all_tasks() - tasks) == count
        assert open_descriptors() == descriptors + count
        await _park(host, count)
        assert asyncio.all_tasks() == tasks
        assert waiting_timers() <= timers
        assert open_descriptors() == descriptors
        assert host_of.store._driver._runners == {}
        await host_of.approve(parked[-1], requests[-1])  # it goes on from its line in the log
        assert types(await host_of.idle(parked[-1]))[-1] == ev.SESSION_WAITING


async def _park(host: Bench, count: int) -> None:
    """Let parked turns leave memory, as after five minutes."""
    assert len(host.hosting.host._sessions.live) == count
    host.hosting.clock.advance(host.hosting.host.config.parked_s)
    await host.hosting.host._sessions.drop_idle()
    assert host.hosting.host._sessions.live == ()


# -- over HTTP ---------------------------------------------------------------------------------------------------


async def test_a_post_of_a_new_session_makes_five_tasks_and_three_timers(data_dir: Path) -> None:
    persistence = FileHttpSessionPersistence(data_dir, fs=CountingFileSystem())
    host = create_agent_session_host(Speaker(), persistence=persistence, clock=FakeClock())
    with held_timers(BEAT_S):
        async with served(host) as serving:
            reader, writer = await asyncio.open_connection("localhost", serving.port)
            for _ in range(3):  # the second and third on a warm connection
                with watched_loop() as loop:
                    writer.write(_post(serving.port))
                    await _answer(reader)
                kinds = Counter(_without_id(name) for name in loop.tasks)
                # The request and the turn, which outlive each other; the syncs, each of which others may wait for, so
                # that nobody's cancellation ends it: of the names, of the POST's batch, and of the turn's end, which
                # came while the second one waited to begin and finds its work done.
                assert kinds <= Counter({"Task": 1, "turn": 1, "sync": 2, "sync of names": 1})
                # The body's time limit, the connection's, and the millisecond for which words are gathered. What
                # sleeps is uvicorn itself, ten times a second, whatever it serves.
                timers = Counter(name for name, _ in loop.timers if name != "_set_result_unless_cancelled")
                ours = ("Timeout._on_timeout", "SessionJournal._flush_soon")
                assert timers <= Counter((*ours, "HttpToolsProtocol.timeout_keep_alive_handler"))
                assert loop.jobs == []
            writer.close()
            await writer.wait_closed()


def _post(port: int) -> bytes:
    body = b'{"message":"Hello"}'
    head = (
        b"POST /zhin/v1/session HTTP/1.1\r\nhost: localhost:%d\r\ncontent-type: application/json\r\n" % port
    )
    return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)


async def _answer(reader: asyncio.StreamReader) -> None:
    """Read a whole answer, which must be 200."""
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    [size] = [int(row[15:]) for row in head.split(b"\r\n") if row.startswith(b"content-length:")]
    await reader.readexactly(size)


def _without_id(name: str) -> str:
    """What a task's name says of its kind."""
    return re.sub(r"( (ses|turn)_.*|-[0-9]+)\Z", "", name)
