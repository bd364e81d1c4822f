"""Meters: what a host counts about itself, as plain numbers; who exposes them reads them (ADR 0009)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, Literal

End = Literal["completed", "failed", "cancelled"]
ENDS: Final[tuple[End, ...]] = ("completed", "failed", "cancelled")

Recovery = Literal["redriven", "parked", "ended", "waiting_for_agent", "broken"]
RECOVERIES: Final[dict[Recovery, str]] = {
    "redriven": "its turn was driven again from its record, or the next queued one begun",
    "parked": "its turn waits for a person and stays parked",
    "ended": "its turn was ended by recovery, or had ended already",
    "waiting_for_agent": "its agent is not hosted now",
    "broken": "its log has a broken line",
}
"""What became of a session that the last host left in the middle of a turn."""

OTHER: Final = "other"
"""The label of an agent that is not hosted."""

_BOUNDS_S: Final = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0)


class Histogram:
    """How often something took how long.

    Attributes:
        bounds_s: Upper bounds, seconds; behind the last one comes what took longer.
        total_s: All durations together.
    """

    __slots__ = ("_counts", "bounds_s", "total_s")

    def __init__(self, bounds_s: tuple[float, ...] = _BOUNDS_S) -> None:
        self.bounds_s = bounds_s
        self.total_s = 0.0
        self._counts = [0] * (len(bounds_s) + 1)

    def observe(self, duration_s: float) -> None:
        """Count one."""
        self._counts[bisect_left(self.bounds_s, duration_s)] += 1
        self.total_s += duration_s

    @property
    def cumulated(self) -> list[int]:
        """How many took at most each bound; the last number is that of all."""
        return list(accumulate(self._counts))


class Meters:
    """The counters of one host. They begin at 0 with it, and only grow.

    Args:
        agents: The names of the hosted agents: the only ones that become labels.

    Attributes:
        turns: (agent, how it ended) -> turns whose end is in the log.
        appends: Writes of a batch to a session's log.
        syncs: Waits for a session's log to survive a power cut; next to nothing where another's sync did it.
        storage_errors: "append" or "sync" -> how often it failed, once for each that waited.
        recoveries: What became of the sessions that the last host left in the middle of a turn.
        refusals: Code -> requests that were answered with it, but for those of GET /ready, which scrapers of it know.
    """

    def __init__(self, agents: Iterable[str] = ()) -> None:
        self._agents = frozenset(agents)
        self.turns: Counter[tuple[str, End]] = Counter(
            dict.fromkeys(((name, end) for name in agents for end in ENDS), 0)
        )
        self.appends = Histogram()
        self.syncs = Histogram()
        self.storage_errors: Counter[str] = Counter(append=0, sync=0)
        self.recoveries: Counter[Recovery] = Counter(dict.fromkeys(RECOVERIES, 0))
        self.refusals: Counter[str] = Counter()

    def turn_ended(self, agent: str, end: End) -> None:
        """A turn's end is in the log."""
        self.turns[agent if agent in self._agents else OTHER, end] += 1
