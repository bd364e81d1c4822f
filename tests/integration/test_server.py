"""The server as a process: how it stops, what it refuses, and how a connection is broken off."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from zhin_host.errors import StartupError
from zhin_host.server import bind

ROOT = Path(__file__).parents[2]
STOPS = [signal.SIGTERM, signal.SIGINT]


class Process:
    """A tiny host in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.integration.tiny_host", *arguments]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )

    def until(self, beginning: str) -> str:
        """Read what it says up to the line that begins so; give the rest of that line."""
        assert self._process.stdout is not None
        for said in self._process.stdout:
            if said.startswith(beginning):
                return said.removeprefix(beginning).strip()
        pytest.fail(f"it ended without saying {beginning!r}: {self.end()}")

    def port(self) -> int:
        return int(self.until("port "))

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; give the exit code and what it still said, on stdout and stderr."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        said, errors = self._process.stdout.read(), self._process.stderr.read()
        return self._process.wait(), said, errors

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def start_host() -> Iterator[Callable[..., Process]]:
    with contextlib.ExitStack() as started:

        def start(*arguments: str) -> Process:
            process = Process(*arguments)
            started.callback(process.kill)
            return process

        yield start


def connect(port: int, request: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.sendall(request)
    return connection


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()


def read_until(connection: socket.socket, wanted: bytes) -> bytes:
    content = b""
    while wanted not in content and (part := connection.recv(65536)):
        content += part
    return content


@pytest.mark.parametrize("number", STOPS)
def test_a_stop_with_open_streams_ends_each_of_them_whole_and_exits_with_0(
    start_host: Callable[..., Process], number: signal.Signals
) -> None:
    host = start_host()
    port = host.port()
    with contextlib.ExitStack() as opened:
        readers = [opened.enter_context(connect(port, get("/stream"))) for _ in range(10)]
        for reader in readers:
            read_until(reader, b"begin\n")
        host.send_signal(number)
        for reader in readers:
            assert read_until(reader, b"\r\n0\r\n\r\n").endswith(b"end\n\r\n0\r\n\r\n")
    assert host.end() == (0, "draining\ndrained\n", "")


@pytest.mark.parametrize("number", STOPS)
def test_a_stop_without_connections_exits_with_0(
    start_host: Callable[..., Process], number: signal.Signals
) -> None:
    host = start_host()
    host.port()
    host.send_signal(number)
    assert host.end() == (0, "draining\ndrained\n", "")


def test_the_port_answers_while_the_host_drains(start_host: Callable[..., Process]) -> None:
    host = start_host("--hold")
    port = host.port()
    host.send_signal(signal.SIGTERM)
    host.until("draining")
    assert httpx.get(f"http://127.0.0.1:{port}/anything").text == "/anything"
    assert httpx.get(f"http://127.0.0.1:{port}/release").text == "released"
    assert host.end() == (0, "drained\n", "")


@pytest.mark.parametrize("number", STOPS)
def test_a_second_signal_does_not_wait_for_the_drain(
    start_host: Callable[..., Process], number: signal.Signals
) -> None:
    host = start_host("--hold")
    with connect(host.port(), get("/hang")) as reader:
        read_until(reader, b"\r\n\r\n")
        host.send_signal(signal.SIGTERM)
        host.until("draining")
        host.send_signal(number)
        assert host.end() == (1, "", "")


@pytest.mark.parametrize("path", ["/flood", "/hang"])
def test_a_response_that_cannot_end_does_not_hold_the_stop(
    start_host: Callable[..., Process], path: str
) -> None:
    host = start_host()
    with connect(host.port(), get(path)) as reader:
        reader.recv(1)
        host.send_signal(signal.SIGTERM)
        assert host.end() == (0, "draining\ndrained\n", "")


def test_a_half_sent_request_does_not_hold_the_stop(start_host: Callable[..., Process]) -> None:
    host = start_host()
    port = host.port()
    with connect(port, b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-le"), connect(port):
        host.send_signal(signal.SIGTERM)
        assert host.end() == (0, "draining\ndrained\n", "")


def test_a_signal_during_the_start_stops_the_host_once_it_has_started(
    start_host: Callable[..., Process],
) -> None:
    host = start_host("--slow-start")
    host.until("starting")
    host.send_signal(signal.SIGTERM)
    code, said, errors = host.end()
    assert (code, errors) == (0, "")
    assert said.endswith("draining\ndrained\n")


def test_what_the_start_raises_is_raised_by_serve(start_host: Callable[..., Process]) -> None:
    host = start_host("--fail-start")
    host.until("starting")
    assert host.end() == (2, "The host has no reason to start.\n", "")


def test_a_reader_that_is_broken_off_sees_no_end_of_the_response(start_host: Callable[..., Process]) -> None:
    host = start_host()
    with connect(host.port(), get("/flood?abort")) as reader:
        host.until("aborted")
        with pytest.raises(ConnectionResetError):
            read_until(reader, b"\r\n0\r\n\r\n")
    host.send_signal(signal.SIGTERM)
    assert host.end() == (0, "draining\ndrained\n", "")


def test_connections_beyond_the_descriptors_are_answered_503_and_files_can_still_be_opened(
    start_host: Callable[..., Process],
) -> None:
    host = start_host("--descriptors", "160")
    port = host.port()
    with contextlib.ExitStack() as opened:
        first = opened.enter_context(connect(port, get("/first")))
        read_until(first, b"/first")
        refused = 0
        for _ in range(300):
            crowd = opened.enter_context(connect(port, get("/crowd")))
            answer = read_until(crowd, b"\r\n\r\n")
            if answer.startswith(b"HTTP/1.1 503 "):
                refused += 1
                head, _, body = answer.partition(b"\r\n\r\n")
                assert b"retry-after: 2" in head
                assert b"connection: close" in head
                assert json.loads(body)["ok"] is False
            else:
                assert answer.startswith(b"HTTP/1.1 200 ")
        assert 300 - (160 - 64) <= refused < 300
        first.sendall(get("/file"))
        assert b"opened" in read_until(first, b"opened")
    host.send_signal(signal.SIGTERM)
    assert host.end() == (0, "draining\ndrained\n", "")


def test_the_soft_limit_of_descriptors_is_raised_to_the_hard_one(start_host: Callable[..., Process]) -> None:
    host = start_host(
        "--descriptors", "200"
    )  # the soft limit is 100 then: 36 connections, were it not raised
    port = host.port()
    with contextlib.ExitStack() as opened:
        for _ in range(80):
            connection = opened.enter_context(connect(port, get("/x")))
            assert read_until(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_a_malformed_request_is_answered_400_and_an_upgrade_as_the_request_it_is(
    start_host: Callable[..., Process],
) -> None:
    host = start_host()
    port = host.port()
    with connect(port, b"NONSENSE\r\n\r\n") as broken:
        assert read_until(broken, b"\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    upgrade = b"GET /x HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    with connect(port, upgrade) as wishful:
        assert read_until(wishful, b"/x").startswith(b"HTTP/1.1 200 ")


def test_a_head_without_end_is_refused_before_it_fills_the_memory(start_host: Callable[..., Process]) -> None:
    host = start_host()
    port = host.port()
    with connect(port, b"GET / HTTP/1.1\r\nhost: localhost\r\nx-large: ") as endless:
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                endless.sendall(b"x" * 16384)
        with contextlib.suppress(ConnectionResetError):
            assert read_until(endless, b"}").startswith(b"HTTP/1.1 431 ")
    body = b"x" * (1 << 20)
    head = b"POST /x HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
    with connect(port, (head + body) * 3 + get("/last")) as pipelining:
        assert read_until(pipelining, b"/last").count(b"HTTP/1.1 200 ") == 4


def test_a_port_in_use_is_refused_with_a_sentence() -> None:
    with contextlib.ExitStack() as opened:
        (taken,) = bind("127.0.0.1", 0)
        opened.enter_context(taken)
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=rf"^Port {port} of 127\.0\.0\.1 is in use; .*--port\.$"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize("host", ["", "no-such-host.invalid", "192.0.2.1", "not an address"])
def test_an_address_that_is_not_here_is_refused_with_a_sentence(host: str) -> None:
    with pytest.raises(StartupError, match=r"--host\.$"):
        bind(host, 0)


def test_every_address_of_a_name_listens_on_one_port() -> None:
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(listener) for listener in bind("localhost", 0)]
        assert len({listener.getsockname()[1] for listener in sockets}) == 1
        assert sockets[0].getsockname()[1] != 0


def test_connections_do_not_wait_to_fill_a_packet() -> None:
    with contextlib.ExitStack() as opened:
        for listener in bind("localhost", 0):
            opened.enter_context(listener)
            assert listener.proto == socket.IPPROTO_TCP  # what asyncio looks at before it sets TCP_NODELAY
