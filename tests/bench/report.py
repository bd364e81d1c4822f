"""Report: the table for people and the JSON for programs, and what machine the numbers are of."""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from rich.table import Table

import zhin_host
from tests.bench.bench import ROOT, Bench
from tests.bench.rows import Row, number


def table(rows: list[Row], title: str) -> Table:
    """Figure, target, median, spread, whether met."""
    made = Table(title=title)
    for name in ("figure", "what", "size"):
        made.add_column(name)
    for name in ("target", "median", "spread"):
        made.add_column(name, justify="right")
    made.add_column("met")
    before = ""
    for row in rows:
        low, high = row.spread
        spread = f"{number(low)} - {number(high)}" if len(row.values) > 1 else "one run"
        met = {None: "", True: "yes", False: "[bold red]no[/]"}[row.is_met]
        target = "" if row.target is None else f"{row.target} {row.unit}"
        cells = (row.what, row.size, target, f"{number(row.median)} {row.unit}", spread, met)
        made.add_row(row.figure if row.figure != before else "", *cells)
        before = row.figure
    return made


def document(bench: Bench, *, is_quick: bool, took_s: float, judged: list[str]) -> dict[str, Any]:
    """Everything, each run's values included.

    Args:
        bench: What was measured.
        is_quick: Whether the sizes were those of --quick.
        took_s: How long it all took.
        judged: What the audit and the referee looked at, a sentence each.
    """
    return {
        "zhinHost": zhin_host.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "fileSystem": file_system(bench.folder),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": is_quick,
        "tookSeconds": round(took_s, 1),
        "sizes": dataclasses.asdict(bench.sizes),
        "rows": [row.to_json() for row in bench.rows],
        "notes": bench.notes,
        "judged": judged,
        "wrong": bench.wrong,
    }


def file_system(path: Path) -> str:
    """The type of the file system that holds the path, "unknown" where the system does not say."""
    best, kind = "", "unknown"
    mounts = Path("/proc/mounts")
    for line in mounts.read_text().splitlines() if mounts.exists() else ():
        _, place, of_type, *_ = line.split(" ")
        if path.resolve().is_relative_to(place) and len(place) >= len(best):
            best, kind = place, of_type
    return kind


def _commit() -> str:
    """The checkout's commit, with `+` where files differ from it; "unknown" without git."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
