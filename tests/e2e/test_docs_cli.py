"""The page about the command line: its examples are run one after another, as they stand."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.process import COMMAND, Host, environment

PAGE: Final = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


@pytest.mark.timeout(300)  # some twenty processes
def test_the_examples_do_what_the_page_says(tmp_path: Path, data_dir: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    script = "set -eu\n" + "".join(f"{block}echo === >&2\necho ===\n" for block in blocks)
    with Host(tmp_path, "--data-dir", data_dir) as host:
        settings = environment(
            ZHIN_URL=host.url,
            ZHIN_DATA_DIR=str(data_dir),
            PYTHONDONTWRITEBYTECODE="",  # twenty processes, and no module is written
        )
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=settings | {"PATH": f"{Path(COMMAND).parent}:{settings['PATH']}"},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    said = iter(done.stdout.split("===\n"))
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
