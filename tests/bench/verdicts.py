"""Verdicts: what the audit, and the referee that ZHIN_REFEREE names, say of what the bench has left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.bench.bench import Bench
from tests.bench.server import environment

_FAULTS_SHOWN = 5


def judge(bench: Bench) -> list[str]:
    """Audit every data directory, a sample of a large one, two at a time; a sentence each. Faults go to `wrong`."""
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda path: _judge(path, bench.sizes.audited), bench.directories))
    for _, faults in done:
        bench.wrong += faults
    return [sentence for sentence, _ in done]


def _judge(data_dir: Path, most: int) -> tuple[str, list[str]]:
    """What was looked at, and what was wrong with it."""
    logs = sorted(data_dir.glob("*.ndjson"))
    every = -(-len(logs) // most)
    marked = {path.stem for path in data_dir.glob("*.open")}
    chosen = [path.stem for at, path in enumerate(logs) if at % every == 0]
    chosen += [stem for stem in sorted(marked)[:most] if stem not in chosen]
    is_all = every == 1
    faults = _audit(data_dir, [] if is_all else chosen)
    program = os.environ.get("ZHIN_REFEREE")
    if program is not None and logs:
        faults += _referee(program, data_dir if is_all else _sample(data_dir, chosen))
    who = "audit" if program is None else "audit and referee"
    count = f"all {len(logs):,}" if is_all else f"{len(chosen):,} of {len(logs):,}"
    found = "no fault" if not faults else f"{len(faults)} faults"
    return f"{data_dir.name}: {who} of {count} sessions, {found}", faults[:_FAULTS_SHOWN]


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
        [sys.executable, program, str(data_dir)], capture_output=True, text=True, check=False
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
