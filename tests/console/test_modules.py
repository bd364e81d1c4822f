"""The console's modules that touch no DOM, driven by node's own test runner; skipped by name where node is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("file", sorted(path.name for path in HERE.glob("*.test.mjs")))
def test_in_node(file: str) -> None:
    node = shutil.which("node")
    if node is None:
        if "CI" in os.environ or "ZHIN_BROWSER_REQUIRED" in os.environ:
            pytest.fail("node is missing")
        pytest.skip("node is missing: the console's modules are not tested")
    done = subprocess.run(
        [node, "--no-warnings", "--test", "--test-reporter=tap", file],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
