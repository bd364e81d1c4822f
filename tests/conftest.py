"""What every test has: the event loop's name, and a data directory that is audited when the test is over."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zhin_host.audit import audit_directory


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "damaged(reason): the test leaves a data directory that the audit must not pass, because of the reason",
    )


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Name the only event loop that the host runs on; anyio's plugin asks for it."""
    return "asyncio"


@pytest.fixture
def data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A data directory, not made yet. It is audited when the test is over, by the referee too."""
    directory = tmp_path / "sessions"
    yield directory
    if request.node.get_closest_marker("damaged") is None:
        check_directory(directory)


def check_directory(directory: Path, *, is_refereed: bool = True) -> None:
    """Fail unless the audit, and the referee that ZHIN_REFEREE names, find nothing wrong."""
    if not any(directory.glob("*.ndjson")):
        return
    faults = {
        verdict.session_id: [fault.message for fault in verdict.faults]
        for verdict in audit_directory(directory)
        if not verdict.ok
    }
    assert not faults
    if is_refereed:
        assert referee(directory) in (None, [])


def referee(directory: Path) -> list[str] | None:
    """What the independent check finds wrong; None where ZHIN_REFEREE names none."""
    program = os.environ.get("ZHIN_REFEREE")
    if program is None:
        return None
    done = subprocess.run(
        [sys.executable, program, str(directory)], capture_output=True, text=True, check=False, timeout=60
    )
    lines = done.stdout.splitlines()[:-1]  # the last one is the count
    return lines if lines or done.returncode == 0 else [done.stdout + done.stderr]
