"""Patience: how often and how long a client tries again, and how it spreads its tries."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds of trying again. Both count from the first failure in a row; an event or a sign of life ends the row.

    A pause is drawn from 0 to `first_s` doubled with each try, at most `longest_s` (full jitter), so that many
    clients of a host that comes back do not come back at once.

    Attributes:
        tries: How often in a row.
        total_s: How long, pauses and tries together.
        first_s: Upper end of the first pause.
        longest_s: Upper end of any pause, what the host asks for aside.
        sleep: Waits so many seconds.
        draw: A random number between two.
        now_s: A clock that never goes back.
    """

    tries: int = 12
    total_s: float = 120.0
    first_s: float = 0.25
    longest_s: float = 10.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    draw: Callable[[float, float], float] = random.uniform
    now_s: Callable[[], float] = time.monotonic


class Tries:
    """One thing that is tried again and again.

    Attributes:
        count: How often it has failed in a row.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self.count = 0
        self._since_s = (
            0.0  # the first failure in a row; what lay before it may have been a long wait in peace
        )

    def succeeded(self) -> None:
        """Begin to count anew."""
        self.count = 0

    async def pause(self, at_least_s: float | None = None) -> bool:
        """Count a failure and wait; False, at once, where patience is at its end.

        Args:
            at_least_s: What the host asked to wait: the pause comes on top of it.
        """
        patience = self._patience
        self.count += 1
        if self.count == 1:
            self._since_s = patience.now_s()
        longest_s = min(patience.longest_s, patience.first_s * 2.0 ** min(self.count - 1, 60))
        pause_s = (at_least_s or 0.0) + patience.draw(0.0, longest_s)
        if self.count >= patience.tries or patience.now_s() + pause_s - self._since_s > patience.total_s:
            return False
        await patience.sleep(pause_s)
        return True
