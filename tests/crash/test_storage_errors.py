"""No space, no disk, no rights, no descriptors: at any file operation of a host that serves (contract section 4).

Commands are refused with a clear code, nothing is half written, and the turn goes on by itself.
"""

from __future__ import annotations

import asyncio
import errno
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

ERRORS: Final = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE)
SAMPLE: Final = 30
AT_ONCE: Final = 6
CLEAR: Final = {(503, "STORAGE_UNAVAILABLE"), (507, "STORAGE_FULL")}


async def _failing(stage: Stage, name: str, error: int, at: int, count: int) -> Played:
    def plan(life: int, order: Order) -> Order:
        return plainly(order, fail_at=at, fail_error=error, fail_count=count) if life == 0 else order

    played = await stage.play(name, plan, restarts=True)
    where = f"{name}, {errno.errorcode[error]} at {at}, {count} times"
    played.faults[:] = [f"{where}: {fault}" for fault in played.faults]
    played.faults += [f"{where}: refused with {row}" for row in set(played.refusals) - CLEAR]
    return played


@pytest.mark.timeout(7200 if IS_EVERYTHING else 120)
@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
async def test_a_turn_goes_on_by_itself_after_an_error_at_any_file_operation(
    tmp_path: Path, seed: str, error: int
) -> None:
    chance = random.Random(f"{seed} {error}")
    operations = [(name, at) for name in SCRIPTS for at in range(14, 100)]
    places = operations if IS_EVERYTHING else chance.sample(operations, SAMPLE)
    played: list[Played] = []
    async with Stage.open(tmp_path) as stage:
        for first in range(0, len(places), AT_ONCE):
            played += await asyncio.gather(
                *(
                    _failing(stage, name, error, at, chance.choice([1, 1, 2, 4]))
                    for name, at in places[first : first + AT_ONCE]
                )
            )
    assert [fault for row in played for fault in row.faults] == []
    assert referee_of(tmp_path) == []
    codes = {refusal for row in played for refusal in row.refusals}
    assert codes <= ({(507, "STORAGE_FULL")} if error == errno.ENOSPC else {(503, "STORAGE_UNAVAILABLE")})
