"""`scripts/bench`: measures the limits of the machine, then the host against them."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import orjson
import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tests.bench import report, sizes
from tests.bench.bench import ROOT, Bench
from tests.bench.figures import FIGURES, take
from tests.bench.verdicts import judge
from zhin_host.server import raise_descriptor_limit


def _names(_context: click.Context, _parameter: click.Parameter, given: str | None) -> list[str]:
    if given is None:
        return list(FIGURES)
    names = [name.strip() for name in given.split(",")]
    if unknown := [name for name in names if name not in FIGURES]:
        raise click.BadParameter(f"{', '.join(unknown)}; there are {', '.join(FIGURES)}")
    return [name for name in FIGURES if name in names]


@contextmanager
def _shown(total: int) -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """Who is told what is done now and what is done; a bar on a terminal, else lines."""
    console = Console(stderr=True)
    began_s = time.perf_counter()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("measuring", total=total, now="")

        def say(text: str) -> None:
            progress.update(task, now=text)

        def done(name: str) -> None:
            progress.advance(task)
            if not console.is_terminal:
                click.echo(f"{time.perf_counter() - began_s:6.1f} s  {name}", err=True)

        yield say, done


@click.command()
@click.option("--quick", is_flag=True, help="Every figure once and smaller, in under a minute.")
@click.option("--only", "names", callback=_names, metavar="NAME[,NAME]", help=f"Of {', '.join(FIGURES)}.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="An empty folder to work in, which stays; a temporary one under data/ when left out.",
)
@click.option(
    "--clean",
    is_flag=True,
    help="Remove the temporary folder at the end; on ext4 new files are then slow for minutes.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Write everything to this file; - is stdout.",
)
def main(
    *,
    quick: bool,
    names: list[str],
    data_dir: Path | None,
    clean: bool,
    json_file: Path | None,
) -> None:
    """Measure the limits of this machine, then the host against them, and print a table.

    A target that is missed is shown and no error. Exits 1 when something is wrong: a reader's bytes that differ from
    the file, a fault that the audit or the referee finds, a request that fails.
    """
    if data_dir is not None and data_dir.is_dir() and any(data_dir.iterdir()):
        raise click.UsageError(
            f"{data_dir} is not empty; nothing of it would be deleted, so name another one."
        )
    began_s = time.perf_counter()
    raise_descriptor_limit()  # for a connection of each subscriber
    folder = data_dir or Path(tempfile.mkdtemp(prefix="bench-", dir=ROOT / "data"))
    click.echo(f"Working in {folder}.", err=True)
    with _shown(len(names) + 1) as (say, done):
        bench = Bench(folder.resolve(), sizes.QUICK if quick else sizes.FULL, say)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(take(bench, names, done))
        say("audit")
        judged = judge(bench)
        done("audit")
    took_s = time.perf_counter() - began_s
    is_piped = json_file == Path("-")  # then the table makes way for it
    console = Console(stderr=is_piped, width=None if sys.stdout.isatty() else 180)
    console.print(report.table(bench.rows, f"zhin_host, {'quick' if quick else 'full'}: {took_s:.0f} s"))
    for line in (*bench.notes, *judged):
        console.print(line, markup=False)
    if json_file is not None:
        document = report.document(bench, is_quick=quick, took_s=took_s, judged=judged)
        content = orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"
        if is_piped:
            click.echo(content, nl=False)
        else:
            json_file.write_bytes(content)
    for line in bench.wrong:
        click.echo(f"WRONG: {line}", err=True)
    if data_dir is None and clean and not bench.wrong:
        shutil.rmtree(folder)
    else:
        click.echo(
            f"What was written is in {folder}; removing it makes new files slow for minutes.", err=True
        )
    if bench.wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
