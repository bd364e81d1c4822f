"""The server of the limits: what Starlette alone does. `python -m tests.bench.plain ours|stock FOLDER`.

`ours` is uvicorn as the host runs it, whose connections gather small writes; `stock` is uvicorn as it comes.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.bench.agents import CHUNK
from zhin_host import events as ev
from zhin_host import server
from zhin_host.clock import SystemClock, new_session_id, new_token, new_turn_id


def line() -> bytes:
    """A line as the agents' turns have them."""
    data = {"messageDelta": CHUNK}
    return ev.encode_line(
        123_456, ev.MESSAGE_APPENDED, 1_764_428_400_000, data, b"0" * ev.SUM_BYTES, 1 << 20
    )[0]


async def hello(request: Request) -> Response:
    """JSON in, JSON of the size of a POST's answer out."""
    body = await request.json()
    return JSONResponse({"ok": isinstance(body["message"], str), **_ANSWER})


async def lines(request: Request) -> Response:
    """As many lines as ?count= says, each a chunk of the response."""
    return StreamingResponse(_lines(int(request.query_params["count"])), media_type="application/x-ndjson")


async def _lines(count: int) -> AsyncIterator[bytes]:
    one = line()
    for _ in range(count):
        yield one


async def file(request: Request) -> Response:
    """A file of the folder."""
    return FileResponse(_FOLDER / request.path_params["name"])


def _announce(addresses: Sequence[server.Address]) -> None:
    host, port = addresses[0]
    sys.stdout.write(f"Listening on http://{host}:{port}\n")
    sys.stdout.flush()


_CLOCK = SystemClock()
_ANSWER = {
    "sessionId": new_session_id(_CLOCK),
    "continuationToken": new_token(_CLOCK),
    "turnId": new_turn_id(_CLOCK),
    "startIndex": 0,
}
_FOLDER = Path(sys.argv[-1])


def _serve(app: Starlette, *, is_stock: bool) -> None:
    if not is_stock:
        server.serve(app, host="127.0.0.1", port=0, ready=_announce)
        return
    listeners = server.bind("127.0.0.1", 0)
    _announce([listeners[0].getsockname()[:2]])  # who connects waits in the backlog until it accepts
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", lifespan="off", access_log=False, log_config=None
    )
    uvicorn.Server(config).run(listeners)


if __name__ == "__main__":
    routes = [
        Route("/hello", hello, methods=["POST"]),
        Route("/lines", lines),
        Route("/file/{name:path}", file),
    ]
    _serve(Starlette(routes=routes), is_stock=sys.argv[1] == "stock")
