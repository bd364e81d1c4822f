"""The console's modules that touch no DOM, driven by node's own test runner; skipped by name where node is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
STATIC = HERE.parents[1] / "zhin_host" / "console" / "static"


@pytest.mark.parametrize("file", sorted(path.name for path in HERE.glob("*.test.mjs")))
def test_in_node(file: str, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        if "CI" in os.environ or "ZHIN_BROWSER_REQUIRED" in os.environ:
            pytest.fail("node is missing")
        pytest.skip("node is missing: the console's modules are not tested")
    # Older releases of node take a .js file for a module only where a package.json says so.
    (tmp_path / "package.json").write_text('{"type":"module"}')
    shutil.copytree(STATIC, tmp_path / "zhin_host" / "console" / "static")
    shutil.copytree(HERE, tmp_path / "tests" / "console")
    done = subprocess.run(
        [node, "--test", file],
        cwd=tmp_path / "tests" / "console",
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
