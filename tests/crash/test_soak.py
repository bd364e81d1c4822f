"""A short soak: hosts killed at random under many clients. `scripts/soak` runs it for longer.

ZHIN_SOAK_MINUTES says for how long, ZHIN_SEED repeats what is done at random.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.crash.soak import soak

MINUTES = float(os.environ.get("ZHIN_SOAK_MINUTES", "2"))


@pytest.mark.slow
@pytest.mark.timeout(MINUTES * 60 + 180)
async def test_killed_at_random_hosts_lose_nothing_and_do_nothing_twice(tmp_path: Path, seed: str) -> None:
    counts = await soak(MINUTES * 60, seed, tmp_path, lanes=2)
    sys.stderr.write(f"{counts}\n")
    assert counts.faults == []
    assert counts.kills
    assert counts.found_open >= counts.kills / 2
