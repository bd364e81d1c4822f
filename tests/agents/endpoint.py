"""A stub of an endpoint that speaks OpenAI's chat completions over real HTTP, with the faults of real ones."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Reply:
    """What the endpoint does with one request.

    Attributes:
        deltas: The pieces of the answer, each the `delta` of a chunk.
        finish_reason: Told behind them; None: the stream ends without one.
        status: Of a refusal: no stream then.
        headers: Beside the refusal.
        is_cut: The connection is broken off behind the pieces.
        waits: Behind the pieces it waits for this, once.
        repeats: The last piece comes again and again, until the client leaves.
        raw: Lines that are sent behind the pieces as they are.
    """

    deltas: Sequence[Mapping[str, Any]] = ()
    finish_reason: str | None = "stop"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    is_cut: bool = False
    waits: threading.Event | None = None
    repeats: bool = False
    raw: bytes = b""


def says(*pieces: str, thinks: str = "", **more: Any) -> Reply:
    """Text, in these pieces, perhaps behind a thought."""
    thoughts = [{"reasoning_content": thinks}] if thinks else []
    return Reply([*thoughts, *({"content": piece} for piece in pieces)], **more)


def calls(*asked: tuple[str, str], text: str = "") -> Reply:
    """Tool calls side by side, each a name and the text of its arguments, which comes in two pieces."""
    said: list[Mapping[str, Any]] = [{"content": text}] if text else []
    for at, (name, arguments) in enumerate(asked):
        half = len(arguments) // 2
        head = {"index": at, "id": f"call-{at}", "type": "function"}
        said.append({"tool_calls": [{**head, "function": {"name": name, "arguments": arguments[:half]}}]})
        said.append({"tool_calls": [{"index": at, "function": {"arguments": arguments[half:]}}]})
    return Reply(said, finish_reason="tool_calls")


class Endpoint:
    """The endpoint, in threads of its own, until the block ends.

    Attributes:
        url: What to give as base_url.
        requests: The bodies it got.
        left: Set when a client left a stream before its end.
    """

    def __init__(self, script: Callable[[Mapping[str, Any]], Reply]) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.left = threading.Event()
        self._script = script
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                assert self.path == "/v1/chat/completions"
                endpoint.keys.append(self.headers["authorization"])
                endpoint.requests.append(body)
                reply = endpoint._script(body)
                if reply.status == 200:
                    self._stream(reply)
                else:
                    self._refuse(reply)

            def _refuse(self, reply: Reply) -> None:
                body = json.dumps({"error": {"message": f"refused with {reply.status}"}}).encode()
                self.send_response(reply.status)
                for name, value in {**reply.headers, "content-type": "application/json"}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _stream(self, reply: Reply) -> None:
                self.close_connection = True
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                try:
                    for line in _lines(reply):
                        self.wfile.write(line)
                except OSError:
                    endpoint.left.set()
                    return
                if reply.is_cut:
                    with contextlib.suppress(OSError):
                        self.connection.shutdown(socket.SHUT_RDWR)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def _lines(reply: Reply) -> Iterator[bytes]:
    for delta in reply.deltas:
        yield _chunk([{"index": 0, "delta": delta, "finish_reason": None}])
    while reply.repeats:
        yield _chunk([{"index": 0, "delta": reply.deltas[-1], "finish_reason": None}])
    if reply.waits is not None:
        reply.waits.wait(30)
    yield reply.raw
    if reply.is_cut:
        return
    if reply.finish_reason is not None:
        yield _chunk([{"index": 0, "delta": {}, "finish_reason": reply.finish_reason}])
    yield _chunk([], usage={"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18})
    yield b"data: [DONE]\n\n"


def _chunk(choices: list[Any], **more: Any) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "stub-1"}
    return b"data: " + json.dumps({**head, "choices": choices, **more}).encode() + b"\n\n"


def in_order(*replies: Reply) -> Callable[[Mapping[str, Any]], Reply]:
    """The script that gives one reply after another; a request too many is refused as one that cannot succeed."""
    left = list(replies)
    return lambda _: left.pop(0) if left else Reply(status=400)
