"""The page about the command line: its examples are run one after another, as they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.e2e.process import Host, blocks_said

PAGE: Final = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


@pytest.mark.timeout(300)  # some twenty processes
def test_the_examples_do_what_the_page_says(tmp_path: Path, data_dir: Path) -> None:
    with Host(tmp_path, "--data-dir", data_dir) as host:
        # Twenty processes, and no module is written.
        said = iter(blocks_said(PAGE, host, tmp_path, data_dir, 280, PYTHONDONTWRITEBYTECODE=""))
    assert next(said).endswith("Done. Say `read shopping` to see it.\nYou have shopping.\n")
    sent = next(said)
    assert '"text":"You have shopping."' in sent
    assert sent.endswith("exit code 4\n")
    answered = next(said)
    assert "Approved: Allow delete_note?" in answered
    assert answered.endswith("exit code 3: it was approved\n")
    assert "session.waiting" in next(said)
    assert next(said) == ""
    [log] = [
        log
        for log in data_dir.glob("*.ndjson")
        if log.read_bytes() == (tmp_path / "session.ndjson").read_bytes()
    ]
    assert f"# Session ses\\_{log.stem[4:]}\n" in (tmp_path / "session.md").read_text()
    assert next(said).endswith("would be removed; --yes does it.\n")
    assert "with faults: none" in next(said)
    assert "can be mended: none.\n" in next(said)
    assert next(said) == ""
    assert "_ZHIN_HOST_COMPLETE" in (tmp_path / "zhin-host.bash").read_text()
    assert next(said) == ""
    assert list(said) == []
