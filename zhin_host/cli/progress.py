"""Progress of what takes long: a bar on stderr where a person looks at a terminal, else nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import Protocol, TypeVar

import click

T_co = TypeVar("T_co", covariant=True)


class Counted(Iterable[T_co], Sized, Protocol[T_co]):
    """Things whose number is known."""


def counted(things: Counted[T_co], label: str) -> Iterator[T_co]:
    """The things one after another, the bar going on with each."""
    with click.progressbar(
        things, label=label, file=sys.stderr, hidden=not sys.stderr.isatty(), show_pos=True
    ) as shown:
        yield from shown
