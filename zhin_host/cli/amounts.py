"""Amounts as a person writes and reads them: an age, a size."""

from __future__ import annotations

import re
from typing import Any, Final

import click

_MS: Final = {"s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BYTES: Final = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}  # fmt: skip
_AMOUNT: Final = re.compile(r"(\d{1,12})\s?([A-Za-z]+)")


class _Amount(click.ParamType[int]):
    """A whole number and a unit, without which a slip is too easy."""

    def __init__(self, name: str, units: dict[str, int], example: str) -> None:
        self.name = name
        self._units = units
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = _AMOUNT.fullmatch(str(value))
        if match is None or match[2] not in self._units:
            self.fail(
                f"{value!r} is not a number and one of {', '.join(self._units)}, such as {self._example}.",
                param,
                ctx,
            )
        return int(match[1]) * self._units[match[2]]


AGE_MS: Final = _Amount("age", _MS, "30d")
SIZE_BYTES: Final = _Amount("size", _BYTES, "5GB")


def size_text(size_bytes: int) -> str:
    """A size with three digits or so, in decimal units."""
    for unit in ("TB", "GB", "MB", "kB"):
        if size_bytes >= _BYTES[unit]:
            return f"{size_bytes / _BYTES[unit]:.3g} {unit}"
    return f"{size_bytes} B"
