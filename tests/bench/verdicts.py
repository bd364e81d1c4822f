"""Verdicts: what the audit, and the referee that ZHIN_REFEREE names, say of what the bench has left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tests.bench.bench import Bench
from tests.bench.server import environment

_FAULTS_SHOWN = 5


def judge(bench: Bench) -> list[str]:
    """Audit every data directory, a sample of a large one, two at a time; a sentence each. Faults go to `wrong`."""
    program = os.environ.get("ZHIN_REFEREE")
    with ThreadPoolExecutor(2) as pool:
        todo: list[tuple[str, Future[list[str]]]] = []
        for data_dir in bench.directories:
            chosen, count = _choose(data_dir, bench.sizes.audited, bench.sizes.audited_bytes)
            is_all = len(chosen) == count
            which = f"all {count:,}" if is_all else f"{len(chosen):,} of {count:,}"
            work = pool.submit(_audit, data_dir, [] if is_all else chosen)
            todo.append((f"audit of {data_dir.name}: {which} sessions", work))
            if program is not None and count:
                place = data_dir if is_all else _sample(data_dir, chosen)
                work = pool.submit(_referee, program, place)
                todo.append((f"referee on {data_dir.name}: {which} sessions", work))
    told = []
    for what, work in todo:
        faults = work.result()
        told.append(f"{what}, {len(faults) or 'no'} faults")
        bench.wrong += faults[:_FAULTS_SHOWN]
    return told


def _choose(data_dir: Path, most: int, bytes_max: int) -> tuple[list[str], int]:
    """Sessions to look at: the one with the largest log, and others evenly; and how many there are."""
    sizes = {path.stem: path.stat().st_size for path in data_dir.glob("*.ndjson")}
    names = sorted(sizes)
    largest = max(names, key=sizes.__getitem__, default="")
    chosen, left_bytes = names[:0], bytes_max
    for name in names[:: -(-len(names) // most) or 1]:
        left_bytes -= 0 if name == largest else sizes[name]
        if left_bytes >= 0:
            chosen.append(name)
    return ([largest, *chosen] if largest and largest not in chosen else chosen), len(names)


def _audit(data_dir: Path, session_ids: list[str]) -> list[str]:
    command = str(Path(sys.executable).with_name("zhin-host"))
    done = subprocess.run(
        [command, "audit", "--data-dir", str(data_dir), *session_ids],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    if done.returncode == 0:
        return []
    lines = [line for line in done.stdout.splitlines()[:-1] if "  whole, " not in line]
    return [f"audit of {data_dir.name}: {line}" for line in lines or [done.stderr.strip()]]


def _referee(program: str, data_dir: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, program, str(data_dir)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    lines = done.stdout.splitlines()[:-1]  # the last one is the count
    if done.returncode == 0 and not lines:
        return []
    return [f"referee on {data_dir.name}: {line}" for line in lines or [done.stdout + done.stderr]]


def _sample(data_dir: Path, session_ids: list[str]) -> Path:
    """A folder beside it with the files of these sessions only, for who takes folders."""
    sample = data_dir.with_name(f"{data_dir.name}-sample")
    sample.mkdir(mode=0o700)
    for session_id in session_ids:
        for suffix in (".ndjson", ".json", ".open"):
            path = data_dir / f"{session_id}{suffix}"
            if path.exists():
                shutil.copy2(path, sample)
    return sample
