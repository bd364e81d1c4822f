"""A process that serves a tiny app with zhin_host.server, as its tests tell it to; it says on stdout what it does."""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
from collections.abc import Sequence

from starlette.types import Receive, Scope, Send

from zhin_host.errors import StartupError
from zhin_host.server import ABORT, Address, serve

HEAD = {"type": "http.response.start", "status": 200, "headers": []}


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class TinyHost:
    """Its drain ends the streams and, when told to hold, waits for /release."""

    def __init__(self, *, is_held: bool) -> None:
        self._draining = asyncio.Event()
        self._released = asyncio.Event()
        if not is_held:
            self._released.set()

    async def drain(self) -> None:
        say("draining")
        self._draining.set()
        await self._released.wait()
        say("drained")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/stream":
                await send(HEAD)
                await send({"type": "http.response.body", "body": b"begin\n", "more_body": True})
                await self._draining.wait()
                await send({"type": "http.response.body", "body": b"end\n"})
            case "/flood":
                await self._flood(scope, send)
            case "/hang":
                await send(HEAD)
                await asyncio.Event().wait()
            case "/file":
                with tempfile.TemporaryFile():
                    await self._answer(send, b"opened")
            case "/release":
                self._released.set()
                await self._answer(send, b"released")
            case path:
                await self._answer(send, path.encode())

    async def _answer(self, send: Send, body: bytes) -> None:
        await send(HEAD)
        await send({"type": "http.response.body", "body": body})

    async def _flood(self, scope: Scope, send: Send) -> None:
        """Send until the reader takes no more; with ?abort, break it off then."""
        await send(HEAD)
        is_aborting = scope["query_string"] == b"abort"
        while True:
            await asyncio.sleep(0)  # where the stop can cancel it: sending to nobody never waits
            try:
                block = {"type": "http.response.body", "body": b"x" * 65536, "more_body": True}
                await asyncio.wait_for(send(block), 0.2 if is_aborting else None)
            except TimeoutError:
                scope["extensions"][ABORT]()
                say("aborted")
                return


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--descriptors", type=int)
    parser.add_argument("--hold", action="store_true")
    parser.add_argument("--slow-start", action="store_true")
    parser.add_argument("--fail-start", action="store_true")
    given = parser.parse_args()
    if given.descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (given.descriptors // 2, given.descriptors))

    async def start() -> None:
        say("starting")
        if given.fail_start:
            raise StartupError("The host has no reason to start.")
        if given.slow_start:
            await asyncio.sleep(0.5)

    def ready(addresses: Sequence[Address]) -> None:
        say(f"port {addresses[0][1]}")

    host = TinyHost(is_held=given.hold)
    try:
        is_drained = serve(host, host="127.0.0.1", port=0, start=start, drain=host.drain, ready=ready)
    except StartupError as error:
        say(str(error))
        return 2
    return 0 if is_drained else 1


if __name__ == "__main__":
    sys.exit(main())
