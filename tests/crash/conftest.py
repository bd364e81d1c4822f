"""What the crash tests share: a seed that is printed, and how much of everything there is to try."""

from __future__ import annotations

import os
import random
import sys

import pytest

IS_EVERYTHING = os.environ.get("ZHIN_CRASH") == "all"


@pytest.fixture
def seed() -> str:
    """ZHIN_SEED repeats a run."""
    seed = os.environ.get("ZHIN_SEED", str(random.randrange(1 << 32)))
    sys.stderr.write(f"ZHIN_SEED={seed}\n")
    return seed
