"""What holds the loop up: the log's own short file operations, and nothing else (design.md, the one write path)."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType

import pytest
from blockbuster import BlockBusterFunction, BlockingError, blockbuster_ctx

from tests.hosting import Hosting, hosting
from zhin_host import Turn, tool
from zhin_host.storage.files import FileHttpSessionPersistence

# What the loop does itself, since handing it to a thread would cost more than it takes: an append with its look at the
# file's size, a block of a replay, a mark made or renamed.
_SHORT = {"open", "open_plain", "write", "pread", "fstat", "lstat", "rename", "unlink", "close"}
# What blockbuster does not know of itself, and what must never be done on the loop: a sync takes as long as the disk.
_MORE = ("fsync", "fdatasync", "sync", "ftruncate", "pwrite", "pread", "open")


@contextmanager
def guarded() -> Iterator[None]:
    """Raise where zhin_host blocks the loop otherwise. Not for a host's start, which nobody waits behind yet."""
    with blockbuster_ctx("zhin_host") as buster:
        for name in _MORE:
            function = BlockBusterFunction(os, name, scanned_modules="zhin_host")
            buster.functions[f"os.{name}"] = function
            function.activate()
        for function in buster.functions.values():
            function.can_block_in("zhin_host/storage/fs.py", _SHORT)
        # Of no length that depends on the disk or on anybody else: held for a few lines of our own.
        buster.functions["threading.Lock.acquire"].deactivate()
        yield


@tool(approval="always")
async def publish(page: str) -> str:
    return page


async def agent(turn: Turn) -> None:
    await turn.say("May I? ")
    await turn.say(await turn.call_tool(publish, page="front"))


async def parked(host: Hosting) -> tuple[str, str]:
    accepted = await host.start()
    (request,) = await host.asked(accepted.session_id)
    return accepted.session_id, request.request_id


def test_the_guard_sees_what_the_package_does() -> None:
    """Otherwise what follows could not fail."""
    blocking = compile("time.sleep(0)", str(Path(logging.__file__).parents[0] / "x.py"), "exec")
    ours = compile("time.sleep(0)", str(Path(__file__).parents[2] / "zhin_host" / "x.py"), "exec")

    async def run(code: CodeType) -> None:
        exec(code, {"time": time})  # noqa: S102 - the guard looks at where code is from

    with guarded():
        asyncio.run(run(blocking))
        with pytest.raises(BlockingError):
            asyncio.run(run(ours))


async def test_a_whole_life_of_sessions_never_waits_for_the_disk_on_the_loop(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        hosting(agent, persistence=FileHttpSessionPersistence(data_dir)) as host,
        host.client() as client,
    ):
        with guarded():
            first, request = await parked(host)
            await host.approve(first, request)
            await host.idle(first)
            second, request = await parked(host)
            host.clock.advance(host.host.config.parked_s)
            host.host._sessions.sweep()
            await host.host._sessions.drop_idle()
            assert not host.is_in_memory(second)
            for path in ("/sessions", f"/session/{second}", f"/session/{first}/audit", "/ready", "/info"):
                assert (await client.get(path)).status_code == 200
            assert (await client.get("http://localhost:8787/metrics")).status_code == 200
            await host.approve(second, request)
            await host.idle(second)
            third, _ = await parked(host)
            await host.cancel(third)
            await host.idle(third)
            for session_id in (first, third):
                assert (await client.delete(f"/session/{session_id}")).status_code == 200
    async with hosting(agent, persistence=FileHttpSessionPersistence(data_dir)) as host:
        with guarded():
            await host.follow_up(second)
            assert await host.asked(second)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
