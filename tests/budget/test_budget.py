"""What a batch, a turn and a POST cost, counted: a regression fails here on any machine, since nothing is timed.

A number that changed for the better is changed here, too.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.budget.bench import BATCH, BEAT_S, CHUNKS, GATHER_S, SHORT_TURN, Speaker, bench
from tests.budget.counting import Calls, CountingFileSystem, held_timers, watched_loop
from tests.fakes import FakeClock
from tests.integration.live import served
from zhin_host import Turn, create_agent_session_host
from zhin_host.clock import SessionId
from zhin_host.storage.crew import SyncCrew
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.log import SessionEventLog

# One batch: is the file as long as it should be, and the bytes. The log was opened before, and is not closed.
ONE_BATCH: Final = {"fstat .ndjson": 1, "write .ndjson": 1}
# A new session's names: the log's file is made, and the directory synced.
NEW_NAMES: Final = {"open .ndjson": 1, "open /": 1, "fsync /": 1, "close /": 1}
# Its mark, where no other session has one to leave.
NEW_MARK: Final = {"open .open": 1, "write .open": 1, "close .open": 1}


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


@pytest.mark.parametrize("chunks", [CHUNKS, BATCH * 10 + 1])
async def test_an_event_is_encoded_once(data_dir: Path, encodes: Calls, dumps: Calls, chunks: int) -> None:
    async with bench(Speaker(chunks), data_dir, snapshot_bytes_min=1 << 30) as host:
        encodes.take(), dumps.take()
        session_id = await host.start()
        lines = host.hosting.live(session_id).state.next_index
        assert lines == chunks + 8
        # Beside the lines: what the client sent, looked at for whether it fits a line (the session's fields, then
        # the message), and what stands beside the text in message.completed. Once more message and metadata together,
        # to look for keys in them.
        assert (encodes.take(), dumps.take()) == (3, lines + 4)
        await host.follow_up(session_id)
        more = host.hosting.live(session_id).state.next_index - lines
        assert (encodes.take(), dumps.take()) == (2, more + 2)  # it has no session's fields


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
