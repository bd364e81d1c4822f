"""The page about running it: its shell blocks are run one after another, as they stand, and their claims looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.e2e.process import Host, blocks_said

PAGE: Final = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()


@pytest.mark.timeout(120)
def test_the_blocks_do_what_the_page_says(tmp_path: Path, data_dir: Path) -> None:
    with Host(tmp_path, "--data-dir", data_dir) as host:
        host.parked("write a note shopping: milk")
        examined, metrics, rest = blocks_said(PAGE, host, tmp_path, data_dir, 100)
        host.stop()
    assert f"A host runs on it: pid {host.process.pid} " in examined
    assert "zhin_host_turns_parked 1.0\n" in metrics
    assert 'zhin_host_turns_total{agent="demo",end="completed"} 0.0\n' in metrics
    assert rest == ""
