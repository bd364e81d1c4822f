"""Figures: the names that --only takes, in the order in which they are taken."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tests.bench import append, approvals, followups, limits, memory, replays, startups, streams, turns
from tests.bench.bench import Bench

TIMEOUT_S: Final = 600.0
"""What one figure may take at the most; then it is given up as wrong."""

FIGURES: Final[dict[str, Callable[[Bench], Awaitable[None]]]] = {
    limits.NAME: limits.measure,
    turns.MANY: turns.measure_many,
    turns.LONE: turns.measure_lone,
    turns.FSYNC: turns.measure_fsync,
    streams.TIGHT: streams.measure_tight,
    streams.YIELDING: streams.measure_yielding,
    replays.NAME: replays.measure,
    followups.NAME: followups.measure,
    startups.NAME: startups.measure,
    memory.PASSED: memory.measure_passed,
    memory.SUBSCRIBERS: memory.measure_subscribers,
    memory.PARKED: memory.measure_parked,
    approvals.NAME: approvals.measure,
    append.NAME: append.measure,
}


async def take(bench: Bench, names: Sequence[str], done: Callable[[str], None]) -> None:
    """Take these figures; one that fails is told as wrong, and the others are taken all the same.

    Args:
        bench: Gets the rows.
        names: Of FIGURES.
        done: Called with each name afterwards.
    """
    gc.disable()  # of the client: its pauses would count as the host's
    try:
        for name in names:
            bench.say(name)
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await FIGURES[name](bench)
            except Exception as error:  # noqa: BLE001 - told, and it makes the exit code 1
                bench.wrong.append(f"{name}: {type(error).__name__}: {error}")
            gc.collect()
            done(name)
    finally:
        gc.enable()
        bench.close()
