"""Soak: hosts killed at random moments under many clients, for as long as one likes; `scripts/soak` runs it."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.crash.lane import Counts

_SHOWN = ("kills", "found_open", "sessions", "turns", "actions", "repeated")


async def soak(
    seconds: float, seed: str, folder: Path, *, lanes: int, show: Callable[[Counts], None] = lambda _: None
) -> Counts:
    """Run lanes beside each other; the counts of all.

    Args:
        seconds: After so long no lane begins a round or kills any more; what is open is finished.
        seed: What is done at random follows from it; the moments are the machine's.
        folder: Where the houses are; what has faults stays there.
        lanes: Processes that each keep a house and its clients.
        show: Called with the counts so far.
    """
    counts = Counts()
    await asyncio.gather(
        *(_lane(folder / f"lane{n}", f"{seed}-{n}", seconds, counts, show) for n in range(lanes))
    )
    return counts


async def _lane(
    folder: Path, seed: str, seconds: float, counts: Counts, show: Callable[[Counts], None]
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.crash.lane", str(folder), seed, str(seconds)),
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    assert process.stdout is not None
    try:
        while line := await process.stdout.readline():
            counts.add(Counts(**orjson.loads(line)))
            show(counts)
        code = await process.wait()
        if code != 0:
            counts.faults.append(f"lane {seed} ended with code {code}")
    finally:
        if process.returncode is None:
            process.kill()


def _table(counts: Counts, seed: str) -> Table:
    table = Table(title=f"Soak with seed {seed}")
    table.add_column("what")
    table.add_column("how many", justify="right")
    for name, value in _numbers(counts).items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    return table


def _numbers(counts: Counts) -> dict[str, Any]:
    return {**dataclasses.asdict(counts), "faults": len(counts.faults)}


def _soaked(seconds: float, seed: str, folder: Path, lanes: int) -> Counts:
    """Run it, with a line of progress where somebody looks."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[told]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        shown: list[str] = []
        task, began_s = progress.add_task("soaking", total=seconds, told=""), time.monotonic()

        def show(counts: Counts) -> None:
            told = ", ".join(f"{getattr(counts, name)} {name.replace('_', ' ')}" for name in _SHOWN)
            passed_s = min(seconds, time.monotonic() - began_s)
            progress.update(task, completed=passed_s, told=f"{told}, {len(counts.faults)} faults")
            while len(shown) < len(counts.faults):
                shown.append(counts.faults[len(shown)])
                progress.console.print(shown[-1], markup=False)

        return asyncio.run(soak(seconds, seed, folder, lanes=lanes, show=show))


@click.command()
@click.option("--minutes", type=float, default=2.0, show_default=True, help="How long.")
@click.option("--seed", default=None, help="Repeats what is done at random; a new one when left out.")
@click.option("--lanes", type=click.IntRange(1), default=None, help="Houses at once; one a processor.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON, not as a table.")
def main(*, minutes: float, seed: str | None, lanes: int | None, as_json: bool) -> None:
    """Kill hosts at random moments and see that nothing is lost, said twice or done twice. Exits 1 on a fault."""
    seed = seed or str(random.randrange(1 << 32))
    folder = Path(tempfile.mkdtemp(prefix="zhin-soak-"))
    counts = _soaked(minutes * 60, seed, folder, lanes or os.cpu_count() or 1)
    if as_json:
        click.echo(orjson.dumps({"seed": seed, **_numbers(counts)}))
    else:
        Console().print(_table(counts, seed))
    if not counts.faults:
        shutil.rmtree(folder)
        return
    for fault in counts.faults:
        click.echo(fault, err=True)
    click.echo(f"What they left is in {folder}.", err=True)
    raise SystemExit(1)


if __name__ == "__main__":
    main()
