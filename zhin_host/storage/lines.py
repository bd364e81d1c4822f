"""Lines: finding events in a log's bytes without reading all of them. The bytes come through a `Read`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from zhin_host.events import SUM_BYTES, chain_start, decode_line

Read = Callable[[int, int], bytes]
"""read(offset, size_bytes): that many bytes from there, fewer only at the end."""

_HEAD: Final = re.compile(rb'\{"index":(0|[1-9]\d{0,14}),')
_HEAD_BYTES: Final = 32
_PROBE_BYTES: Final = 1024  # one short read shows the next line's start where lines are ordinary
_SCAN_BYTES: Final = 16 * 1024  # when the search is down to this much, one read settles it
_BLOCK_BYTES: Final = 64 * 1024
_SUM_AT: Final = -(SUM_BYTES + 3)  # a line ends with the sum, a quote, a brace and its newline


class BrokenLine(ValueError):
    """There is no event line at `offset`."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"no event line begins at byte {offset}")
        self.offset = offset


class Tail(NamedTuple):
    """The end of a log.

    Attributes:
        end: Where its last newline ends, 0 when it has none.
        sum: Last link of the chain in the line that ends there, as it is written; not checked.
        rest: What stands after it.
    """

    end: int
    sum: bytes
    rest: bytes


def last_sum(lines: bytes) -> bytes:
    """The chain's link at the end of whole lines."""
    return lines[_SUM_AT:-3]


def newline_before(read: Read, end: int) -> int:
    """Where the last newline before `end` ends, 0 when there is none. Reads backwards from the end only."""
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        at = read(start, end - start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def tail_of(read: Read, size_bytes: int, session_id: str) -> Tail:
    """The end of a log; reads the bytes after its last newline and a few before."""
    end = newline_before(read, size_bytes)
    link = last_sum(read(max(0, end + _SUM_AT), min(end, -_SUM_AT))) if end else chain_start(session_id)
    return Tail(end, link, read(end, size_bytes - end))


def is_whole(line: bytes, previous: bytes) -> bool:
    """Whether the bytes are an event line but for its newline: the shape, and the chain to the one before."""
    try:
        decode_line(line, previous)
    except ValueError:
        return False
    return True


def find_line(read: Read, size_bytes: int, index: int) -> int:
    """The byte at which event `index` begins; `size_bytes` when there is no such event yet.

    Each line says its index first, so halving finds it: some twenty short reads, whatever the length.

    Raises:
        BrokenLine: No event line begins where it looked.
    """
    if size_bytes == 0:
        return 0
    low, high = (
        0,
        size_bytes,
    )  # low: the start of a line whose index is not above; the line begins before high
    passed = False  # whether a line of a higher index was seen
    while high - low > _SCAN_BYTES:
        middle = (low + high) // 2
        start = _line_after(read, middle, high)
        if start is None:
            high = middle + 1
            continue
        found = _index_at(read, start)
        if found > index:
            high, passed = start, True
        else:
            low = start
    return _scan(read, (low, high, size_bytes), index, passed=passed)


def _scan(read: Read, span: tuple[int, int, int], index: int, *, passed: bool) -> int:
    """The last stretch, in one read: line after line from `low`."""
    low, high, size_bytes = span
    block = read(low, high - low)
    ahead = index - _index_in(block, low)
    at = 0
    while ahead > 0:
        at = block.find(b"\n", at) + 1
        if at == 0 or low + at >= high:
            break
        ahead -= 1
    if ahead > 0 and not passed:
        return size_bytes
    if ahead != 0 or _index_at(read, low + at) != index:
        raise BrokenLine(low + at)
    return low + at


def _line_after(read: Read, offset: int, high: int) -> int | None:
    """Where the first line that begins after `offset` and before `high` begins."""
    size_bytes = _PROBE_BYTES
    while offset < high:
        block = read(offset, min(size_bytes, high - offset))
        if not block:
            return None
        at = block.find(b"\n")
        if at >= 0:
            start = offset + at + 1
            return start if start < high else None
        offset += len(block)
        size_bytes = _BLOCK_BYTES
    return None


def _index_at(read: Read, offset: int) -> int:
    return _index_in(read(offset, _HEAD_BYTES), offset)


def _index_in(block: bytes, offset: int) -> int:
    head = _HEAD.match(block)
    if head is None:
        raise BrokenLine(offset)
    return int(head[1])
