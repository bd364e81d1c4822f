"""The corked transport: what is written in one pass of the loop goes out in one piece."""

from __future__ import annotations

import asyncio

from zhin_host.server.connection import CorkedTransport


class Wire(asyncio.Transport):
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.is_closed = self.is_aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True


async def test_what_is_written_in_one_pass_goes_out_in_one_piece() -> None:
    wire = Wire()
    corked = CorkedTransport(wire, asyncio.get_running_loop())
    corked.write(b"head ")
    corked.write(b"body")
    assert wire.sent == []
    await asyncio.sleep(0)
    corked.write(b" next")
    await asyncio.sleep(0)
    assert wire.sent == [b"head body", b" next"]


async def test_much_goes_out_at_once_so_that_a_slow_reader_is_felt() -> None:
    wire = Wire()
    corked = CorkedTransport(wire, asyncio.get_running_loop())
    corked.write(b"x" * 65_535)
    assert wire.sent == []
    corked.write(b"x")
    assert [len(part) for part in wire.sent] == [65_536]
    await asyncio.sleep(0)
    assert len(wire.sent) == 1


async def test_closing_sends_what_is_left_and_aborting_drops_it() -> None:
    closed, aborted = Wire(), Wire()
    for wire in (closed, aborted):
        corked = CorkedTransport(wire, asyncio.get_running_loop())
        corked.write(b"last")
        if wire is closed:
            corked.close()
        else:
            corked.abort()
        assert corked.is_closing()
    await asyncio.sleep(0)
    assert closed.sent == [b"last"]
    assert aborted.sent == []
    assert aborted.is_aborted


async def test_what_is_written_to_a_connection_that_was_lost_is_dropped() -> None:
    wire = Wire()
    corked = CorkedTransport(wire, asyncio.get_running_loop())
    corked.write(b"late")
    wire.is_closed = True
    await asyncio.sleep(0)
    assert wire.sent == []
