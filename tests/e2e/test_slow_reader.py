"""A reader that never reads, for the length of a load: it slows nobody, costs no memory and is dropped in its time."""

from __future__ import annotations

import asyncio
import contextlib
import re
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from tests.e2e.process import Host

_WRITE_TIMEOUT_S: Final = 6.0  # some thirty MB go past the one that does not read in half of it
_DEADLINE_S: Final = 50.0
_ANSWER_S: Final = 10.0  # each answer and each part of a stream of the others: far more than one takes
_CHATS: Final = 4
_TURNS_USUAL: Final = 2  # before there is such a reader
_TURNS: Final = 7
_PIECES: Final = 256  # of 16 KB: a turn of 4 MB, read by who reads and kept from who does not
# What a reader that does not take may hold: the block it was handed last (64 pieces, a MiB, are one batch) and a part
# of it in the server's buffer; the memory that Python and malloc keep for later is several times that. Measured: 2 MiB.
_GROWTH_BYTES_MAX: Final = 8 << 20

_AGENT: Final = """
import asyncio


async def agent(turn):
    verb, _, count = turn.message.partition(" ")
    for number in range(int(count)):
        await turn.say(f"{number} " + "x" * (16_000 if verb == "flood" else 8))
        await asyncio.sleep(0)
"""


class Talk:
    """A session and what its client was sent: the streams of its turns, one after the other.

    Attributes:
        session_id: The session.
        content: Its events, without the blank lines between them.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.session_id = ""
        self.content = bytearray()
        self._client = client
        self._token = ""

    async def say(self, message: str) -> None:
        """One turn, read while it runs, to its end."""
        path = f"/session/{self.session_id}" if self.session_id else "/session"
        given = {"continuationToken": self._token} if self.session_id else {}
        answer = await self._client.post(path, json={"message": message, **given})
        told = answer.raise_for_status().json()
        self.session_id, self._token = told["sessionId"], told["continuationToken"]
        path = f"/session/{self.session_id}/stream?startIndex={told['startIndex']}"
        async with self._client.stream("GET", path) as response:
            content = b"".join([part async for part in response.raise_for_status().aiter_raw()])
        self.content += re.sub(rb"(?m)^\n", b"", content)


class NeverReader:
    """A connection that asks for a stream and takes nothing of it: what comes lies in the kernel, or does not come.

    Args:
        url: The host's.
        session_id: Whose stream, from its beginning.
    """

    def __init__(self, url: str, session_id: str) -> None:
        address = urlsplit(url)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect((address.hostname, address.port))
        target = f"/zhin/v1/session/{session_id}/stream?until=never"
        self._socket.sendall(f"GET {target} HTTP/1.1\r\nhost: {address.netloc}\r\n\r\n".encode())
        self._opened_at_s = time.monotonic()

    def dropped(self) -> float:
        """Wait until the connection is broken off, without reading; after how many seconds."""
        poll = select.poll()
        poll.register(self._socket, 0)  # nothing is asked for: what is told then is an error or the end
        assert poll.poll((_WRITE_TIMEOUT_S + _ANSWER_S) * 1000), "it was not dropped"
        return time.monotonic() - self._opened_at_s

    def taken(self) -> bytes:
        """The whole lines of what the kernel had taken for it."""
        raw = b""
        with contextlib.closing(self._socket), contextlib.suppress(ConnectionResetError):
            while part := self._socket.recv(1 << 20):
                raw += part
        body = b"".join(_chunks(raw.partition(b"\r\n\r\n")[2]))
        return re.sub(rb"(?m)^\n", b"", body[: body.rfind(b"\n") + 1])


def _chunks(raw: bytes) -> Iterator[bytes]:
    """The parts of a body in chunked coding, which may be cut off anywhere."""
    while b"\r\n" in raw:
        size, _, raw = raw.partition(b"\r\n")
        yield raw[: int(size, 16)]
        raw = raw[int(size, 16) + 2 :]


@pytest.mark.slow
@pytest.mark.timeout(120)  # it writes and reads eighty MB, on a machine that may have little time for it
async def test_a_reader_that_never_reads_costs_nothing_and_goes_on_from_its_cursor(
    data_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "load.py").write_text(_AGENT)
    arguments = ("--agent", "load:agent", "--data-dir", data_dir, "--write-timeout-s", _WRITE_TIMEOUT_S)
    with Host(tmp_path, *arguments) as host:
        async with (
            asyncio.timeout(_DEADLINE_S),
            httpx.AsyncClient(base_url=f"{host.url}/zhin/v1", timeout=_ANSWER_S) as client,
        ):
            talks = await _load(
                client, Talk(client), _TURNS_USUAL
            )  # everybody reads: what the load costs by itself
            usual_bytes = _most_bytes(host)
            flooded = Talk(client)
            await flooded.say("speak 20")
            stuck = NeverReader(host.url, flooded.session_id)
            dropping = asyncio.ensure_future(asyncio.to_thread(stuck.dropped))
            talks += await _load(client, flooded, _TURNS, dropping)
            grown_bytes = _most_bytes(host) - usual_bytes
            assert dropping.result() >= _WRITE_TIMEOUT_S
            assert host.errors.count(f"reader.dropped sessionId={flooded.session_id}") == 1
            logs = {talk.session_id: (data_dir / f"{talk.session_id}.ndjson").read_bytes() for talk in talks}
            assert [talk.session_id for talk in talks if talk.content != logs[talk.session_id]] == []
            log, got = logs[flooded.session_id], stuck.taken()
            assert len(log) >= 3 * _GROWTH_BYTES_MAX
            assert grown_bytes <= _GROWTH_BYTES_MAX
            assert log.startswith(got)
            path = f"/session/{flooded.session_id}/stream"
            rest = await client.get(path, params={"startIndex": got.count(b"\n")})
            assert got + rest.content == log
        host.stop()


async def _load(
    client: httpx.AsyncClient, flooded: Talk, turns: int, until: asyncio.Future[float] | None = None
) -> list[Talk]:
    """So many long turns in one session beside short ones in others, which go on until something has happened."""
    is_over = asyncio.Event()
    chats = [Talk(client) for _ in range(_CHATS)]
    chatting = [asyncio.create_task(_chat(chat, is_over)) for chat in chats]
    for _ in range(turns):
        await flooded.say(f"flood {_PIECES}")
    if until is not None:
        await asyncio.wait({until})
    is_over.set()
    await asyncio.gather(*chatting)
    return [flooded, *chats]


async def _chat(chat: Talk, is_over: asyncio.Event) -> None:
    while not is_over.is_set():
        await chat.say("speak 20")


def _most_bytes(host: Host) -> int:
    """The most memory that the process has had so far."""
    status = Path(f"/proc/{host.process.pid}/status").read_text()
    [kilobytes] = re.findall(r"VmHWM:\s+([0-9]+) kB", status)
    return int(kilobytes) * 1024
