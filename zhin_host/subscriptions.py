"""Subscriptions: a reader of a session is a cursor and a bell; the bytes it gets are the log's own.

A `Feed` belongs to one session in memory: how far its readers may read, the recent bytes, and who reads. The journal
tells it what was written; it keeps no event and no queue for anybody, so a slow reader costs nothing but its cursor.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator
from typing import Literal

from zhin_host.clock import Clock, SessionId
from zhin_host.errors import TooManyStreams
from zhin_host.ports import SessionLog

Until = Literal["boundary", "tail", "never"]
Lines = tuple[bytes, int]
"""Whole lines, and how many."""

_BLOCK_BYTES = 64 * 1024
_LONG_BLOCK_BYTES = 256 * 1024  # what a reader that has stopped taking costs
_LINE = re.compile(
    rb'\{"index":([0-9]+),"type":"[A-Za-z0-9_.-]+","timestamp":[0-9]+,"data":\{.*\},"sum":"[A-Za-z0-9_-]{43}"\}\n'
)
# Where a line ends, and the index of the next one if both look as they should: nothing where either does not.
_SEAM = re.compile(rb'\n(?:(?<="\}\n)\{"index":([0-9]+),"type":")?')
_ALIKE = 100  # numbers that differ in their last two digits only
_HUNDRED = b",".join(b"@%02d" % last for last in range(_ALIKE))


class Feed:
    """What a session's readers share.

    Attributes:
        offset: Bytes that readers may see; always ends with a whole line.
        next_index: The index after the last event that readers may see.
        is_at_rest: Whether the session is at rest there (contract section 1).
        is_over: Whether nothing will ever follow: the session is terminal.
        broken_at: Index and byte of a line that a reader met and that is broken, None when none was.
    """

    def __init__(
        self,
        log: SessionLog,
        *,
        offset: int,
        next_index: int,
        is_at_rest: bool,
        is_over: bool,
        tail_bytes_max: int,
    ) -> None:
        self.offset = offset
        self.next_index = next_index
        self.is_at_rest = is_at_rest
        self.is_over = is_over
        self.is_closed = False
        self.broken_at: tuple[int, int] | None = None
        self._log = log
        self._recent: deque[tuple[int, bytes]] = deque()  # (offset, a batch's bytes), oldest first
        self._recent_bytes = 0
        self._tail_bytes_max = tail_bytes_max
        self._readers: set[Subscription] = set()

    @property
    def readers(self) -> int:
        """How many there are."""
        return len(self._readers)

    @property
    def has_readers(self) -> bool:
        return bool(self._readers)

    def publish(
        self, lines: bytes, next_index: int, rest_offset: int | None, *, is_at_rest: bool, is_over: bool
    ) -> None:
        """Let readers see a batch that is in the log now.

        Args:
            lines: The batch's bytes.
            next_index: The index after it.
            rest_offset: Where the first boundary in it ends at which the session is at rest, None when there is none.
            is_at_rest: Whether the session is at rest after it.
            is_over: Whether it ended the session.
        """
        if self._readers:
            self._recent.append((self.offset, lines))
            self._recent_bytes += len(lines)
            while self._recent_bytes > self._tail_bytes_max and len(self._recent) > 1:
                self._recent_bytes -= len(self._recent.popleft()[1])
        self.offset += len(lines)
        self.next_index, self.is_at_rest, self.is_over = next_index, is_at_rest, is_over
        for reader in self._readers:
            reader.notice(rest_offset)

    def close(self) -> None:
        """End every stream after the bytes already written: the session is deleted or the host stops."""
        self.is_closed = True
        for reader in self._readers:
            reader.ring()

    def recent(self, offset: int) -> bytes | None:
        """The bytes from `offset` to the end of its batch, None when they are no longer in memory."""
        if not self._recent or offset < self._recent[0][0]:
            return None
        start, lines = next(batch for batch in reversed(self._recent) if offset >= batch[0])
        return lines[offset - start :] or None

    def read(self, offset: int, limit_bytes: int) -> bytes:
        """Bytes of the log, in any thread."""
        return self._log.read(offset, limit_bytes)

    def join(self, reader: Subscription) -> None:
        self._readers.add(reader)

    def leave(self, reader: Subscription) -> None:
        self._readers.discard(reader)
        if not self._readers:
            self._recent.clear()
            self._recent_bytes = 0


class Subscription:
    """One reader: iterate it for blocks of whole lines, exactly the bytes of the log.

    An empty block means that a heartbeat is due: at once on opening when there is no event yet, then after every
    silence. Close it with `aclose`; that never touches a turn.

    Attributes:
        tail_index: Index of the last event at opening, -1 when there was none.
        is_dropped: Whether it was ended because its reader took nothing for the write timeout.
    """

    def __init__(
        self, hub: Subscriptions, session_id: SessionId, feed: Feed, position: tuple[int, int], until: Until
    ) -> None:
        self.session_id = session_id
        self.tail_index = feed.next_index - 1
        self.is_dropped = False
        self._hub = hub
        self._feed = feed
        self._offset, self._index = position  # where to read next, and the index that is there
        self._skip_below = self._index
        self._end: int | None = None
        if until == "tail" or (until == "boundary" and (feed.is_at_rest or feed.is_over)):
            self._end = feed.offset
        self._until = until
        self._bell = asyncio.Event()
        self._is_heartbeat_due = False
        self._handed_at_s: float | None = None  # when the consumer got the block it is still sending
        self._idle_since_s = hub.clock.monotonic_s()
        self._task: asyncio.Task[object] | None = None
        self._ahead: tuple[int, asyncio.Future[Lines]] | None = None  # from which byte on, and what is there
        feed.join(self)

    @property
    def has_nothing_left(self) -> bool:
        """Whether the session is over and the cursor behind its last event."""
        return self._feed.is_over and self._offset >= self._feed.offset

    @property
    def lag(self) -> int:
        """How many events lie before it that it was not handed yet."""
        return self._feed.next_index - self._index if self._offset < self._limit() else 0

    @property
    def is_at_end(self) -> bool:
        """Whether the reader has had all that this stream will ever give."""
        is_last = self._end is not None or self._feed.is_over or self._feed.is_closed
        return is_last and self._offset >= self._limit()

    def start_at(self, index: int) -> None:
        """Begin with event `index`, which may lie beyond the tail: what comes before it is not sent."""
        self._skip_below = index

    def notice(self, rest_offset: int | None) -> None:
        """More may be read; `rest_offset` is where a boundary ends at which the session came to rest."""
        if rest_offset is not None and self._end is None and self._until == "boundary":
            self._end = rest_offset
        self._bell.set()

    def ring(self) -> None:
        self._bell.set()

    def rouse(self) -> None:
        """Have a heartbeat due at once, unless events come first."""
        self._is_heartbeat_due = True
        self._bell.set()

    def tick(self, now_s: float, heartbeat_s: float, write_timeout_s: float) -> None:
        """Called by the host's one ticker: a heartbeat when silent, the end when the reader takes nothing."""
        if self._handed_at_s is not None:
            if (
                now_s - self._handed_at_s >= write_timeout_s
                and self._task is not None
                and not self.is_dropped
            ):
                self.is_dropped = True
                self._hub.dropped += 1
                self._task.cancel("the reader took nothing for the write timeout")
        elif now_s - self._idle_since_s >= heartbeat_s:
            self.rouse()

    def took(self) -> None:
        """The reader took a part of the block it was handed: the write timeout counts from here."""
        self._handed_at_s = self._hub.clock.monotonic_s()

    async def aclose(self) -> None:
        self._feed.leave(self)
        self._hub.leave(self)

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        self._task = asyncio.current_task()
        is_first = True
        while True:
            block = await self._next_block()
            if block is None:
                return
            if not block and is_first and self._offset < self._limit():
                continue  # everything so far lies before the first event asked for
            if block or is_first or self._is_heartbeat_due:
                self._is_heartbeat_due = False
                is_first = False
                self._handed_at_s = self._hub.clock.monotonic_s()
                yield block
                self._handed_at_s = None
                self._idle_since_s = self._hub.clock.monotonic_s()
            if not block and not await self._wait():
                return

    def _limit(self) -> int:
        return self._feed.offset if self._end is None else min(self._end, self._feed.offset)

    async def _wait(self) -> bool:
        """Wait for the bell; False when the stream is at its end."""
        while self._offset >= self._limit() and not self._is_heartbeat_due:
            if self.is_at_end:
                return False
            self._bell.clear()
            await self._bell.wait()
        return True

    async def _next_block(self) -> bytes | None:
        """Whole lines at the cursor, b"" when there are none now, None before a broken line."""
        limit = self._limit()
        if self._offset >= limit:
            return b""
        block = self._feed.recent(self._offset)
        if block is not None and len(block) <= limit - self._offset:
            count = block.count(b"\n")
        else:
            block, count = await self._read_lines(limit)
            if not block:
                self._feed.broken_at = (self._index, self._offset)
                return None
        first = self._index
        self._offset += len(block)
        self._index += count
        return block if first >= self._skip_below else self._without_skipped(block, first)

    async def _read_lines(self, limit: int) -> Lines:
        """Whole lines of the file at the cursor: a block of them, or one line that is longer than a block."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == self._offset:
            lines = await ahead[1]
        elif limit - self._offset <= _BLOCK_BYTES:
            lines = self._lines_at(self._offset, limit - self._offset, self._index)
        else:
            lines = await self._in_thread(self._offset, limit - self._offset, self._index)
        block, count = lines
        following = self._offset + len(block)
        if block and limit - following > _BLOCK_BYTES:  # while this block is on its way
            self._ahead = (following, self._in_thread(following, limit - following, self._index + count))
        return lines

    def _in_thread(self, offset: int, most_bytes: int, index: int) -> asyncio.Future[Lines]:
        """As `_lines_at`; the check, too, is done while the loop waits for the reader to take what it has."""
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(None, self._lines_at, offset, most_bytes, index)
        reading.add_done_callback(_seen)
        return reading

    def _lines_at(self, offset: int, most_bytes: int, index: int) -> Lines:
        """Up to a long block of lines, or one longer line, none of them broken."""
        size = _LONG_BLOCK_BYTES
        while True:
            block = self._feed.read(offset, min(most_bytes, size))
            end = block.rfind(b"\n") + 1
            if end or len(block) < size:
                return _unbroken(block[:end], index)
            size *= 2

    def _without_skipped(self, block: bytes, first: int) -> bytes:
        """The block without the events before the first one asked for, which lay beyond the tail at opening."""
        if self._index <= self._skip_below:
            return b""
        begin = 0
        for _ in range(self._skip_below - first):
            begin = block.index(b"\n", begin) + 1
        return block[begin:]


def _unbroken(block: bytes, index: int) -> Lines:
    """Whole lines up to the first whose shape or index is wrong, and how many (contract section 2, Streams).

    Only the places where lines meet are looked at, unless one is wrong: a replay spends most of its time here.
    """
    first, found = _LINE.match(block), _SEAM.findall(block)
    is_whole = block.endswith(b'"}\n') and first is not None and first[1] == b"%d" % index
    if is_whole and b",".join(found[:-1]) == _numbers(index + 1, len(found) - 1):
        return block, len(found)
    good, count = 0, 0
    for line in block.splitlines(keepends=True):
        match = _LINE.fullmatch(line)
        if match is None or match[1] != b"%d" % (index + count):
            break
        good += len(line)
        count += 1
    return block[:good], count


def _numbers(start: int, count: int) -> bytes:
    """`count` numbers from `start` on, joined by commas: a hundred at a time, since there are many."""
    parts: list[bytes] = []
    at, end = start, start + count
    while at < end:
        until = min(end, at - at % _ALIKE + _ALIKE)
        if until - at < _ALIKE or at < _ALIKE:
            parts.extend(map(b"%d".__mod__, range(at, until)))
        else:
            parts.append(_HUNDRED.replace(b"@", b"%d" % (at // _ALIKE)))
        at = until
    return b",".join(parts)


def _seen(reading: asyncio.Future[Lines]) -> None:
    """What was read ahead may be wanted by nobody; an error of it is then nobody's."""
    if not reading.cancelled():
        reading.exception()


class Subscriptions:
    """Every stream of the host: the bound on their number, and the one ticker for heartbeats and slow readers.

    Attributes:
        dropped: Readers so far that took nothing for the write timeout.
    """

    def __init__(self, clock: Clock, *, streams_max: int, heartbeat_s: float, write_timeout_s: float) -> None:
        self.clock = clock
        self._streams_max = streams_max
        self._heartbeat_s = heartbeat_s
        self._write_timeout_s = write_timeout_s
        self._all: set[Subscription] = set()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._all)

    def open(
        self, session_id: SessionId, feed: Feed, position: tuple[int, int], until: Until
    ) -> Subscription:
        """A new reader at `position`: the byte to read next, and the index of the event there.

        Raises:
            TooManyStreams: As many are open as the host serves.
        """
        if len(self._all) >= self._streams_max:
            raise TooManyStreams(
                f"{self._streams_max} streams are open already; close one, or try again later."
            )
        reader = Subscription(self, session_id, feed, position, until)
        self._all.add(reader)
        return reader

    def leave(self, reader: Subscription) -> None:
        self._all.discard(reader)

    def lags(self) -> list[int]:
        """How many events each reader is behind: what it may see and was not handed yet."""
        return [reader.lag for reader in self._all]

    def tick(self) -> None:
        """Look at every stream once; the host calls this about four times in the shorter of the two times."""
        now_s = self.clock.monotonic_s()
        for reader in tuple(self._all):
            reader.tick(now_s, self._heartbeat_s, self._write_timeout_s)
