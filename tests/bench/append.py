"""Append: the processor time of an event's way into the log, in a process of its own without HTTP and files.

`python -m tests.bench.append COUNT` prints the µs of one event.
"""

from __future__ import annotations

import asyncio
import sys
import time

from tests.bench.agents import CHUNK
from tests.bench.bench import ROOT, Bench
from tests.bench.rows import below
from tests.bench.server import environment
from tests.builders import LogBuilder
from zhin_host import events as ev
from zhin_host.clock import SystemClock
from zhin_host.config import Config
from zhin_host.journal import SessionJournal
from zhin_host.recovery import fold_log
from zhin_host.state import new_state
from zhin_host.storage.memory import MemoryLog

NAME = "append"


async def cpu_us(count: int) -> float:
    """Processor time of one of `count` deltas, queued and written as a turn does it, µs."""
    builder = LogBuilder().start()
    log = MemoryLog(builder.session_id, bytearray(builder.content))
    state, _ = fold_log(log, new_state(builder.session_id))
    journal = SessionJournal(state, log, SystemClock(), Config())
    began_s = time.process_time()
    for _ in range(count):
        if journal.queue(ev.MESSAGE_APPENDED, {"messageDelta": CHUNK}):
            await journal.flush()
    await journal.flush()
    return 1e6 * (time.process_time() - began_s) / count


async def measure(bench: Bench) -> None:
    """The append path over memory persistence."""
    count = bench.sizes.append_events
    command = [sys.executable, "-m", "tests.bench.append", str(count)]
    found = []
    for _ in range(bench.sizes.runs):
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env=environment(), stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        found.append(float(said))
    bench.add(NAME, "CPU of an event", found, unit="µs", target=below(4.0), size=f"{count:,} deltas")


if __name__ == "__main__":
    how_many = int(sys.argv[1])
    asyncio.run(cpu_us(how_many // 10))
    sys.stdout.write(f"{asyncio.run(cpu_us(how_many))}\n")
