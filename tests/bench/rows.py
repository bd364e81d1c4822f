"""Rows: a figure's values run by run, their median and spread, and whether its target is met."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """What a median is held against.

    Attributes:
        bound: In the figure's unit.
        is_least: Whether the median must reach the bound; else it must stay below.
        stretch: A harder bound of the same kind, that is only shown.
    """

    bound: float
    is_least: bool
    stretch: float | None = None

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.is_least else value < self.bound

    def __str__(self) -> str:
        sign = ">=" if self.is_least else "<"
        more = "" if self.stretch is None else f" ({number(self.stretch)})"
        return f"{sign} {number(self.bound)}{more}"


def at_least(bound: float, stretch: float | None = None) -> Target:
    return Target(bound, is_least=True, stretch=stretch)


def below(bound: float) -> Target:
    return Target(bound, is_least=False)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        figure: The name that --only takes.
        what: What was measured, in a few words; unique.
        unit: Of the values and the target, "" for a ratio.
        values: One of each run, in their order.
        target: None for what is only shown, as the limits are.
        size: What was done in one run.
        limits: The limit that each value is a ratio to; empty for what is no ratio.
    """

    figure: str
    what: str
    unit: str
    values: tuple[float, ...]
    target: Target | None = None
    size: str = ""
    limits: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest value."""
        return min(self.values), max(self.values)

    @property
    def is_met(self) -> bool | None:
        """Whether the median meets the target, None when there is none."""
        return None if self.target is None else self.target.is_met(self.median)

    def to_json(self) -> dict[str, Any]:
        target = self.target
        low, high = self.spread
        return {
            "figure": self.figure,
            "what": self.what,
            "unit": self.unit,
            "size": self.size,
            "values": list(self.values),
            "limits": list(self.limits),
            "median": self.median,
            "min": low,
            "max": high,
            "target": None
            if target is None
            else {"kind": "least" if target.is_least else "below", "bound": target.bound},
            "met": self.is_met,
        }


def ratios(figures: Sequence[float], limits: Sequence[float]) -> list[float]:
    """Each figure over the limit that was taken just before it."""
    return [figure / limit for figure, limit in zip(figures, limits, strict=True)]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` (0 to 1) of all are not above: the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def number(value: float) -> str:
    """A value in three or four places, thousands parted."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
