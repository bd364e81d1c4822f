"""subscriptions: a reader is a cursor and a bell, and gets every byte once."""

from __future__ import annotations

import asyncio
import random
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tests.edge import SESSION, LogInMemory, Stage, line
from zhin_host import subscriptions
from zhin_host.clock import SessionId
from zhin_host.errors import StorageUnavailable, TooManyStreams
from zhin_host.subscriptions import Feed, Subscription, Until

_INDEX = re.compile(rb'^\{"index":(\d+),', re.MULTILINE)


def indexes(content: bytes) -> list[int]:
    return [int(found) for found in _INDEX.findall(content)]


class Reader:
    """Reads one subscription in a task of its own, a block at a time when the test lets it.

    Attributes:
        blocks: What came; a heartbeat is b"".
    """

    def __init__(self, subscription: Subscription, *, is_slow: bool = False) -> None:
        self.subscription = subscription
        self.blocks: list[bytes] = []
        self._may_read = asyncio.Semaphore(0)
        self._is_slow = is_slow
        self.task = asyncio.create_task(self._read(), name="reader")

    async def _read(self) -> None:
        async for block in self.subscription:
            self.blocks.append(block)
            if self._is_slow:
                await self._may_read.acquire()

    def go_on(self) -> None:
        self._may_read.release()

    @property
    def content(self) -> bytes:
        return b"".join(self.blocks)

    @property
    def heartbeats(self) -> int:
        return self.blocks.count(b"")

    async def end(self) -> bytes:
        """Wait for the stream's end; what was read."""
        async with asyncio.timeout(20):
            await asyncio.wait([self.task])
        self.task.result()
        return self.content


@asynccontextmanager
async def reading(subscription: Subscription, *, is_slow: bool = False) -> AsyncIterator[Reader]:
    reader = Reader(subscription, is_slow=is_slow)
    try:
        await settle()
        yield reader
    finally:
        reader.task.cancel()
        await asyncio.wait([reader.task])
        await subscription.aclose()


async def settle() -> None:
    """Let everything run that can run."""
    for _ in range(8):
        await asyncio.sleep(0)


# -- where a stream begins -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "expected"),
    [(0, [0, 1, 2, 3, 4]), (3, [3, 4]), (4, [4]), (-1, [4]), (-2, [3, 4]), (-5, [0, 1, 2, 3, 4])],
)
async def test_a_stream_begins_at_the_event_asked_for(start: int, expected: list[int]) -> None:
    stage = Stage(5, is_at_rest=True)
    async with reading(stage.subscribe(start)) as reader:
        assert indexes(await reader.end()) == expected


@pytest.mark.parametrize("start", [-6, -(10**14)])
async def test_a_start_beyond_the_beginning_is_the_beginning(start: int) -> None:
    stage = Stage(5, is_at_rest=True)
    async with reading(stage.subscribe(start)) as reader:
        assert indexes(await reader.end()) == [0, 1, 2, 3, 4]


async def test_a_start_past_the_tail_waits_for_that_event_and_skips_what_comes_before() -> None:
    stage = Stage(3)
    async with reading(stage.subscribe(5, "never")) as reader:
        assert reader.blocks == [b""]  # sent at once, so that no proxy thinks it dead
        stage.write(1)
        await settle()
        assert reader.content == b""
        stage.write(3)
        await settle()
        assert indexes(reader.content) == [5, 6]


async def test_a_start_past_the_tail_ends_with_the_boundary_even_when_that_lies_before_it() -> None:
    stage = Stage(3)
    async with reading(stage.subscribe(9)) as reader:
        stage.write(2, is_at_rest=True)
        assert await reader.end() == b""


@pytest.mark.parametrize("until", ["boundary", "tail"])
async def test_a_start_past_the_tail_of_a_session_at_rest_ends_at_once(until: Until) -> None:
    stage = Stage(3, is_at_rest=True)
    async with reading(stage.subscribe(9, until)) as reader:
        assert await reader.end() == b""
        assert reader.blocks == [b""]


async def test_the_tail_at_opening_is_told() -> None:
    stage = Stage(3)
    assert stage.subscribe(0).tail_index == 2
    assert Stage().subscribe(0).tail_index == -1


# -- where it ends ---------------------------------------------------------------------------------------------


async def test_until_boundary_follows_to_the_event_at_which_the_session_rests() -> None:
    stage = Stage(2)
    async with reading(stage.subscribe()) as reader:
        stage.write(2)
        await settle()
        assert not reader.task.done()
        stage.write(1, is_at_rest=True)
        stage.write(2)  # another turn has begun already
        assert indexes(await reader.end()) == [0, 1, 2, 3, 4]


async def test_until_boundary_ends_at_once_where_the_session_rests() -> None:
    stage = Stage(4, is_at_rest=True)
    subscription = stage.subscribe()
    stage.write(3)
    async with reading(subscription) as reader:
        assert indexes(await reader.end()) == [0, 1, 2, 3]


async def test_until_boundary_stops_at_the_first_rest_within_a_batch() -> None:
    stage = Stage(1)
    async with reading(stage.subscribe()) as reader:
        lines = [line(index) for index in (1, 2, 3)]
        stage.log.content += b"".join(lines)
        rest = stage.feed.offset + len(lines[0]) + len(lines[1])
        stage.feed.publish(b"".join(lines), 4, rest, is_at_rest=False, is_over=False)
        assert indexes(await reader.end()) == [0, 1, 2]


async def test_until_tail_ends_with_what_was_there_at_opening() -> None:
    stage = Stage(4)
    subscription = stage.subscribe(1, "tail")
    stage.write(5)
    async with reading(subscription) as reader:
        assert indexes(await reader.end()) == [1, 2, 3]


async def test_until_tail_of_an_empty_log_is_one_empty_block() -> None:
    async with reading(Stage().subscribe(0, "tail")) as reader:
        assert await reader.end() == b""
        assert reader.blocks == [b""]


async def test_until_never_goes_on_over_boundaries_to_the_sessions_end() -> None:
    stage = Stage(2, is_at_rest=True)
    async with reading(stage.subscribe(0, "never")) as reader:
        stage.write(2, is_at_rest=True)
        await settle()
        stage.write(1, is_over=True)
        assert indexes(await reader.end()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("until", ["boundary", "tail", "never"])
async def test_a_session_that_is_over_is_replayed_and_left(until: Until) -> None:
    stage = Stage(3, is_over=True)
    async with reading(stage.subscribe(0, until)) as reader:
        assert indexes(await reader.end()) == [0, 1, 2]


async def test_it_is_known_whether_anything_is_left_to_read() -> None:
    stage = Stage(3, is_over=True)
    assert stage.subscribe(3, "never").has_nothing_left
    assert not stage.subscribe(2, "never").has_nothing_left
    assert not Stage(3).subscribe(3, "never").has_nothing_left


async def test_closing_the_feed_ends_every_stream_after_the_bytes_already_written() -> None:
    stage = Stage(2)
    async with reading(stage.subscribe(0, "never")) as first, reading(stage.subscribe(2)) as second:
        stage.write(1)
        stage.feed.close()
        assert indexes(await first.end()) == [0, 1, 2]
        assert indexes(await second.end()) == [2]
    async with reading(stage.subscribe(0, "never")) as late:
        assert indexes(await late.end()) == [0, 1, 2]


# -- every byte once -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail_bytes_max", [0, 200, 1 << 20])
async def test_a_reader_gets_the_bytes_of_the_log_whether_they_are_still_in_memory_or_not(
    tail_bytes_max: int,
) -> None:
    stage = Stage()
    feed = Feed(
        stage.log, offset=0, next_index=0, is_at_rest=False, is_over=False, tail_bytes_max=tail_bytes_max
    )
    stage.feed = feed
    async with (
        reading(stage.subscribe(0, "never")) as fast,
        reading(stage.subscribe(0, "never"), is_slow=True) as slow,
    ):
        for number in range(40):
            stage.write(number % 4 + 1, data='{"n":"%s"}' % ("x" * number))
            await settle()
        for _ in range(60):
            slow.go_on()
            await settle()
        assert fast.content == slow.content == stage.log.content


@pytest.mark.parametrize("size_bytes", [100_000, 1_500_000, 3_000_000])
async def test_a_line_longer_than_a_block_is_read_whole(size_bytes: int) -> None:
    stage = Stage(2)
    stage.write(1, data='{"n":"%s"}' % ("x" * size_bytes))
    stage.write(1)
    async with reading(stage.subscribe(0, "tail")) as reader:
        assert await reader.end() == stage.log.content
    assert all(block.endswith(b"\n") for block in reader.blocks)


@pytest.mark.parametrize("size_bytes", [70_000, 900_000, 2_500_000])
async def test_a_long_replay_is_whole_lines_in_every_block(size_bytes: int) -> None:
    stage = Stage()
    stage.write(1 + size_bytes // 3000, data='{"n":"%s"}' % ("x" * 2800))
    async with reading(stage.subscribe(0, "tail")) as reader:
        content = await reader.end()
    assert content == stage.log.content
    assert all(block.endswith(b"\n") for block in reader.blocks)


async def test_a_replay_longer_than_a_block_is_skipped_through_to_a_future_event() -> None:
    stage = Stage(3)
    async with reading(stage.subscribe(400, "never")) as reader:
        stage.write(420, data='{"n":"%s"}' % ("x" * 900))
        await settle()
        stage.feed.close()
        assert indexes(await reader.end()) == list(range(400, 423))


async def test_what_a_future_event_is_waited_for_behind_is_no_sign_when_it_came_before_the_first_read() -> (
    None
):
    stage = Stage(3)
    subscription = stage.subscribe(300, "never")
    for _ in range(2):  # the first of them is no longer in memory
        stage.write(200, data='{"n":"%s"}' % ("x" * 900))
    stage.feed.close()
    async with reading(subscription) as reader:
        assert indexes(await reader.end()) == list(range(300, 403))
        assert b"" not in reader.blocks


OPERATION = st.one_of(
    st.tuples(
        st.just("write"), st.integers(1, 4), st.sampled_from(["", "", "rest", "over"]), st.integers(0, 90)
    ),
    st.tuples(
        st.just("join"), st.integers(-12, 12), st.sampled_from(["boundary", "tail", "never"]), st.booleans()
    ),
    st.tuples(st.just("read"), st.integers(0, 5)),
)


@given(
    operations=st.lists(OPERATION, max_size=30),
    tail_bytes_max=st.sampled_from([0, 150, 400, 1 << 16]),
    seed=st.integers(0, 2**32),
)
def test_joining_at_any_moment_gives_every_byte_once(
    operations: list[tuple[Any, ...]], tail_bytes_max: int, seed: int
) -> None:
    note(f"seed {seed}")
    asyncio.run(_play(operations, tail_bytes_max, random.Random(seed)))


async def _play(operations: list[tuple[Any, ...]], tail_bytes_max: int, chance: random.Random) -> None:
    """Readers come, read and lag while the log grows; each must have what a list of lines says."""
    play = Play(tail_bytes_max)
    for operation in operations:
        match operation:
            case ("write", int(count), str(how), int(size)):
                play.write(count, how, size)
            case ("join", int(start), until, bool(is_slow)):
                play.join(start, until, is_slow=is_slow)
            case ("read", int(count)):
                for _ in range(count if play.readers else 0):
                    chance.choice(play.readers)[0].go_on()
                    await asyncio.sleep(0)
            case _:
                raise AssertionError(operation)
    await play.end()


class Play:
    """A log that grows, its readers, and what a list of lines says each of them must get."""

    def __init__(self, tail_bytes_max: int) -> None:
        self.stage = Stage(streams_max=100)
        self.stage.feed = Feed(
            self.stage.log,
            offset=0,
            next_index=0,
            is_at_rest=False,
            is_over=False,
            tail_bytes_max=tail_bytes_max,
        )
        self.lines: list[bytes] = []
        self.readers: list[tuple[Reader, int, int | None]] = []  # from which line to which

    def write(self, count: int, how: str, size: int) -> None:
        if self.stage.feed.is_over:
            return
        at = len(self.stage.log.content)
        data = '{"n":"%s"}' % ("x" * size)
        self.stage.write(count, is_at_rest=how == "rest", is_over=how == "over", data=data)
        self.lines += self.stage.log.content[at:].splitlines(keepends=True)
        if how:
            self.readers = [
                (reader, begin, len(self.lines) if end == -1 else end) for reader, begin, end in self.readers
            ]

    def join(self, start: int, until: Until, *, is_slow: bool) -> None:
        begin = start if start >= 0 else max(0, len(self.lines) + start)
        end: int | None = None
        if until == "tail" or (
            until == "boundary" and (self.stage.feed.is_at_rest or self.stage.feed.is_over)
        ):
            end = len(self.lines)
        elif until == "boundary":
            end = -1  # the next rest
        self.readers.append((Reader(self.stage.subscribe(start, until), is_slow=is_slow), begin, end))

    async def end(self) -> None:
        self.stage.feed.close()
        for reader, begin, end in self.readers:
            while not reader.task.done():
                reader.go_on()
                await asyncio.sleep(0)
            await reader.end()
            await reader.subscription.aclose()
            assert reader.content == b"".join(self.lines[begin : None if end == -1 else end])
        assert len(self.stage.hub) == 0
        assert not self.stage.feed.has_readers


# -- heartbeats and slow readers -------------------------------------------------------------------------------


async def test_a_reader_with_nothing_to_read_gets_a_sign_at_once_and_after_every_silence() -> None:
    stage = Stage(2)
    async with reading(stage.subscribe(2, "never")) as reader:
        assert reader.heartbeats == 1
        stage.pass_time(14)
        await settle()
        assert reader.heartbeats == 1
        stage.pass_time(1)
        await settle()
        assert reader.heartbeats == 2
        stage.pass_time(15)
        await settle()
        assert reader.heartbeats == 3


async def test_events_put_the_next_heartbeat_off() -> None:
    stage = Stage(1)
    async with reading(stage.subscribe(0, "never")) as reader:
        assert reader.heartbeats == 0
        stage.pass_time(14)
        stage.write(1)
        await settle()
        stage.pass_time(14)
        await settle()
        assert (reader.heartbeats, indexes(reader.content)) == (0, [0, 1])
        stage.pass_time(1)
        await settle()
        assert reader.heartbeats == 1


async def test_a_reader_that_is_roused_has_a_heartbeat_at_once_unless_events_come_first() -> None:
    stage = Stage(1)
    subscription = stage.subscribe(0, "never")
    async with reading(subscription) as reader:
        subscription.rouse()
        await settle()
        assert reader.heartbeats == 1
        subscription.rouse()
        stage.write(1)
        await settle()
        assert (reader.heartbeats, indexes(reader.content)) == (1, [0, 1])


async def test_a_reader_that_takes_nothing_for_the_write_timeout_is_dropped_and_nobody_else() -> None:
    stage = Stage(2)
    async with (
        reading(stage.subscribe(0, "never"), is_slow=True) as stuck,
        reading(stage.subscribe(0, "never")) as other,
    ):
        stage.pass_time(29)
        await settle()
        assert not stuck.task.done()
        stage.pass_time(1)
        await settle()
        assert stuck.subscription.is_dropped
        assert stuck.task.cancelled()
        stage.pass_time(1)  # dropped once is enough
        stage.write(1)
        await settle()
        assert indexes(other.content) == [0, 1, 2]
        assert not other.subscription.is_dropped


async def test_a_reader_that_takes_a_block_in_parts_is_not_dropped() -> None:
    stage = Stage(2)
    async with reading(stage.subscribe(0, "never"), is_slow=True) as slow:
        for _ in range(5):
            stage.pass_time(29)
            slow.subscription.took()
        await settle()
        assert not slow.task.done()


async def test_a_dropped_reader_goes_on_from_its_cursor() -> None:
    stage = Stage(3)
    async with reading(stage.subscribe(0, "never"), is_slow=True) as stuck:
        stage.pass_time(30)
        await settle()
        seen = indexes(stuck.content)
    stage.write(2)
    async with reading(stage.subscribe(seen[-1] + 1, "tail")) as again:
        assert [*seen, *indexes(await again.end())] == [0, 1, 2, 3, 4]


async def test_a_stream_that_nobody_iterates_yet_is_neither_dropped_nor_kept_from_closing() -> None:
    stage = Stage(2)
    subscription = stage.subscribe()
    stage.pass_time(100)
    assert not subscription.is_dropped
    await subscription.aclose()
    await subscription.aclose()
    assert len(stage.hub) == 0


# -- broken lines ----------------------------------------------------------------------------------------------


def spoiled(content: bytes, at: int) -> bytes:
    lines = content.splitlines(keepends=True)
    lines[at] = lines[at].replace(b'"type"', b'"tyqe"')
    return b"".join(lines)


@pytest.mark.parametrize("at", [0, 1, 4])
async def test_a_stream_ends_before_a_line_of_a_broken_shape(at: int) -> None:
    stage = Stage(5)
    stage.log.content = spoiled(stage.log.content, at)
    async with reading(stage.subscribe(0, "never")) as reader:
        assert indexes(await reader.end()) == list(range(at))


async def test_a_stream_ends_before_a_line_of_another_index() -> None:
    stage = Stage()
    stage.log.content = line(0) + line(1) + line(7) + line(3)
    stage.feed.publish(stage.log.content, 4, None, is_at_rest=True, is_over=False)
    async with reading(stage.subscribe()) as reader:
        assert indexes(await reader.end()) == [0, 1]


async def test_a_line_that_is_broken_in_two_ends_the_stream_before_it() -> None:
    stage = Stage(3)
    stage.log.content = stage.log.content.replace(b'"index":1,', b'"index":1\n', 1)
    async with reading(stage.subscribe(0, "tail")) as reader:
        assert indexes(await reader.end()) == [0]


@given(index=st.integers(0, 100_500), count=st.integers(0, 450))
def test_many_numbers_are_written_as_they_are_one_by_one(index: int, count: int) -> None:
    assert subscriptions._numbers(index, count) == b",".join(
        b"%d" % number for number in range(index, index + count)
    )


@given(
    first=st.sampled_from([0, 7, 95, 990, 99_999]),
    count=st.integers(1, 130),
    at=st.integers(0, 129),
    how=st.sampled_from(["nothing", "index", "type", "end", "split", "garbage", "lost", "twice"]),
)
def test_whole_lines_are_those_before_the_first_broken_one(first: int, count: int, at: int, how: str) -> None:
    lines = [line(first + number) for number in range(count)]
    at = min(at, count - 1)
    match how:
        case "index":
            lines[at] = lines[at].replace(b'{"index":%d,' % (first + at), b'{"index":0%d,' % (first + at))
        case "type":
            lines[at] = lines[at].replace(b'"type"', b'"tyqe"')
        case "end":
            lines[at] = lines[at][:-3] + b"]}\n"
        case "split":
            lines[at] = lines[at].replace(b'"data":', b'"data":\n')
        case "garbage":
            lines.insert(at, b'garbage"}\n')
        case "lost":
            lines[at : at + 1] = []
        case "twice":
            lines.insert(at, lines[at])
            at += 1
        case _:
            at = count
    block = b"".join(lines)
    assert subscriptions._unbroken(block, first) == (b"".join(lines[:at]), at)


async def test_a_log_whose_bytes_are_gone_ends_the_stream() -> None:
    stage = Stage(5)
    stage.log.content = b""
    async with reading(stage.subscribe(0, "never")) as reader:
        assert await reader.end() == b""


async def test_a_broken_line_is_met_by_every_reader() -> None:
    stage = Stage(5)
    stage.log.content = spoiled(stage.log.content, 2)
    for _ in range(3):
        async with reading(stage.subscribe(0, "tail")) as reader:
            assert indexes(await reader.end()) == [0, 1]


async def test_a_reader_hears_of_a_log_that_cannot_be_read() -> None:
    stage = Stage(3)
    subscription = stage.subscribe()
    stage.log.error = StorageUnavailable("the disk is gone")
    reader = Reader(subscription)
    with pytest.raises(StorageUnavailable):
        await reader.end()
    await subscription.aclose()


async def test_a_reader_that_goes_while_a_thread_reads_for_it_leaves_no_error_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriptions, "_BLOCK_BYTES", 64)
    stage, may_go, errors = Stage(10), threading.Event(), list[dict[str, Any]]()
    loop, has_begun, read = asyncio.get_running_loop(), asyncio.Event(), stage.log.read

    def held(offset: int, limit_bytes: int) -> bytes:
        loop.call_soon_threadsafe(has_begun.set)
        may_go.wait(20)
        return read(offset, limit_bytes)

    monkeypatch.setattr(stage.log, "read", held)
    loop.set_exception_handler(lambda _, context: errors.append(context))
    try:
        reader = Reader(stage.subscribe())
        await has_begun.wait()
        reader.task.cancel()
        await asyncio.wait([reader.task])
        may_go.set()
        await settle()
    finally:
        loop.set_exception_handler(None)
    await reader.subscription.aclose()
    assert reader.task.cancelled()
    assert errors == []


# -- bounds ----------------------------------------------------------------------------------------------------


async def test_one_stream_more_than_the_host_serves_is_refused_until_another_is_closed() -> None:
    stage = Stage(1)
    streams = [stage.subscribe() for _ in range(10)]
    with pytest.raises(TooManyStreams):
        stage.subscribe()
    await streams[0].aclose()
    stage.subscribe()


async def test_nothing_is_kept_in_memory_for_nobody() -> None:
    stage = Stage(3)
    assert stage.feed.recent(0) is None
    subscription = stage.subscribe()
    stage.write(2)
    assert stage.feed.recent(subscription._offset) is None  # written before it came: that is on disk
    assert stage.feed.recent(len(stage.log.content) - 5) is not None
    await subscription.aclose()
    assert stage.feed.recent(len(stage.log.content) - 5) is None


async def test_only_so_many_recent_bytes_are_kept_and_the_last_batch_whole() -> None:
    log = LogInMemory()
    feed = Feed(log, offset=0, next_index=0, is_at_rest=False, is_over=False, tail_bytes_max=300)
    stage = Stage()
    stage.feed, stage.log = feed, log
    stage.hub.open(SessionId(SESSION), feed, (0, 0), "never")
    stage.write(4)
    whole = len(log.content)
    assert feed.recent(0) == log.content  # more than the bound, and the only batch
    stage.write(1)
    assert feed.recent(0) is None
    assert feed.recent(whole) == log.content[whole:]
    assert feed.recent(len(log.content)) is None


async def test_a_thousand_idle_readers_cost_no_task_and_no_timer_of_the_host() -> None:
    stage = Stage(1)
    stage.hub._streams_max = 1_000
    loop: Any = asyncio.get_running_loop()
    tasks, timers = len(asyncio.all_tasks()), len(loop._scheduled)
    readers = [Reader(stage.subscribe(1, "never")) for _ in range(1_000)]
    await settle()
    assert all(reader.blocks == [b""] for reader in readers)
    assert len(asyncio.all_tasks()) - tasks == 1_000  # the test's own, one for each consumer
    assert len(loop._scheduled) == timers
    stage.write(1)
    await settle()
    assert all(indexes(reader.content) == [1] for reader in readers)
    stage.feed.close()
    for reader in readers:
        await reader.end()
        await reader.subscription.aclose()
