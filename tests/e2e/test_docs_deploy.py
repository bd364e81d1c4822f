"""The page about running it: its shell blocks are run one after another, as they stand, and their claims looked at."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.process import COMMAND, Host, environment

PAGE: Final = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()


@pytest.mark.timeout(120)
def test_the_blocks_do_what_the_page_says(tmp_path: Path, data_dir: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    script = "set -eu\n" + "".join(f"{block}echo ===\n" for block in blocks)
    with Host(tmp_path, "--data-dir", data_dir) as host:
        host.parked("write a note shopping: milk")
        settings = environment(ZHIN_URL=host.url, ZHIN_DATA_DIR=str(data_dir))
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=settings | {"PATH": f"{Path(COMMAND).parent}:{settings['PATH']}"},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        host.stop()
    assert done.returncode == 0, done.stdout + done.stderr
    examined, metrics, rest = done.stdout.split("===\n")
    assert f"A host runs on it: pid {host.process.pid} " in examined
    assert "zhin_host_turns_parked 1.0\n" in metrics
    assert 'zhin_host_turns_total{agent="demo",end="completed"} 0.0\n' in metrics
    assert rest == ""
