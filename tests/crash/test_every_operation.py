"""A host that ends, without any clean-up, at the n-th file operation of a scripted turn, for every n.

ZHIN_CRASH=all tries every operation of every script, twice; CI every one of two scripts and a sample of the others.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Final

import pytest

from tests.crash.conftest import IS_EVERYTHING
from tests.crash.house import plainly
from tests.crash.order import Order
from tests.crash.plays import Played, Stage
from tests.crash.scripts import SCRIPTS
from tests.crash.verdict import referee_of

WHOLE: Final = ("side by side", "not repeatable")
SAMPLE: Final = 6
AT_ONCE: Final = 6
OPERATIONS_MAX: Final = 400
AFTER_MAX: Final = 10  # further operations at which nothing died: the script is over before them


async def _stopped(stage: Stage, name: str, at: int, chance: random.Random, *, again: bool) -> Played:
    """Play it with the first host ending at an operation, half a write maybe done; the second one too if `again`."""
    half, second = chance.choice([0, 0, 1, 40, 400]), chance.randrange(12, 60)

    def plan(life: int, order: Order) -> Order:
        if life == 0:
            return plainly(order, stop_at=at, stop_bytes=half)
        return plainly(order, stop_at=second) if again and life == 1 else order

    played = await stage.play(name, plan)
    played.faults[:] = [f"{name}, stopped at {at} ({half} bytes): {fault}" for fault in played.faults]
    return played


async def _all_of(stage: Stage, name: str, chance: random.Random) -> list[Played]:
    """Every operation, until so many later ones are never reached."""
    played: list[Played] = []
    for first in range(0, OPERATIONS_MAX, AT_ONCE):
        numbers = range(first, first + AT_ONCE)
        played += await asyncio.gather(*(_stopped(stage, name, at, chance, again=False) for at in numbers))
        if not any(row.deaths for row in played[-AFTER_MAX:]):
            break
    return played


@pytest.mark.timeout(7200 if IS_EVERYTHING else 900)
async def test_a_host_that_ends_at_any_file_operation_loses_and_repeats_nothing(
    tmp_path: Path, seed: str
) -> None:
    chance = random.Random(seed)
    played: list[Played] = []
    async with Stage.open(tmp_path) as stage:
        for name in SCRIPTS if IS_EVERYTHING else WHOLE:
            played += await _all_of(stage, name, chance)
        assert sum(row.deaths for row in played) > 100, "most operations were never reached"
        places = [
            (name, at)
            for name in SCRIPTS
            for at in chance.sample(range(14, 80), 66 if IS_EVERYTHING else SAMPLE)
        ]
        for first in range(0, len(places), AT_ONCE):
            some = places[first : first + AT_ONCE]
            played += await asyncio.gather(
                *(_stopped(stage, name, at, chance, again=chance.random() < 0.5) for name, at in some)
            )
    assert [fault for row in played for fault in row.faults] == []
    assert sum(row.running for row in played)
    assert sum(row.parked for row in played)
    assert referee_of(tmp_path) == []
