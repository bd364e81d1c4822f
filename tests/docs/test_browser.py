"""The page about the browser: its reader goes on over a host that was killed, without a gap or a repetition."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of
from tests.docs.shell import PORT
from tests.e2e.process import DEADLINE_S, Host

PROGRAM = """
import { events, isBoundary } from "./zhin.mjs";
for await (const event of events(process.argv[2])) {
  console.log(event.index, event.type);
  if (isBoundary(event) && !event.data.parked) break;
}
console.log("left");
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_reader_of_the_page_goes_on_over_a_host_that_was_killed(tmp_path: Path, data_dir: Path) -> None:
    [source] = [block.text for block in blocks_of("browser.md") if block.file == "zhin.mjs"]
    with Host(tmp_path, "--data-dir", data_dir) as host:
        port = host.url.rsplit(":", 1)[1]
        (tmp_path / "zhin.mjs").write_text(source.replace(PORT, port))
        (tmp_path / "read.mjs").write_text(PROGRAM)
        session, request_id = host.parked("delete shopping")
        parked_at = len(host.events(session["sessionId"])) - 1
        with subprocess.Popen(
            ["node", "read.mjs", session["sessionId"]], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        ) as reader:
            try:
                assert reader.stdout is not None
                said = [reader.stdout.readline() for _ in range(parked_at + 1)]
                host.kill()
                with Host(tmp_path, "--data-dir", data_dir, "--port", port) as again:
                    again.post(f"/session/{session['sessionId']}/input", requestId=request_id, approved=True)
                    rest, _ = reader.communicate(timeout=DEADLINE_S)
                    log = again.events(session["sessionId"])
            finally:
                reader.kill()
        lines = [*"".join([*said, rest]).splitlines()]
        assert lines == [*(f"{event['index']} {event['type']}" for event in log), "left"]
        assert reader.returncode == 0
