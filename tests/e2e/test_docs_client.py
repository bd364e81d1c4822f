"""The page about the Python client: each of its programs is run as it stands, against the host it speaks of."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.process import DEADLINE_S, Host, environment
from zhin_host import client as public
from zhin_host.client import ClientError

PAGE: Final = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
ADDRESS: Final = "http://127.0.0.1:8787"


def programs() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def host(tmp_path: Path, data_dir: Path) -> Iterator[Host]:
    with Host(tmp_path, "--data-dir", data_dir) as host:
        yield host


def ran(folder: Path, host: Host, at: int) -> str:
    """What the n-th program prints."""
    assert ADDRESS in programs()[at]
    (folder / "program.py").write_text(programs()[at].replace(ADDRESS, host.url))
    done = subprocess.run(
        [sys.executable, "-W", "error", "program.py"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_program_is_run_by_a_test_here() -> None:
    assert len(programs()) == 4


def test_the_conversation_writes_the_note_and_lists_it(tmp_path: Path, host: Host) -> None:
    said = ran(tmp_path, host, 0)
    assert "{'name': 'shopping', 'text': 'milk, eggs'}" in said
    assert "Done. Say `read shopping` to see it." in said
    assert said.endswith("You have shopping.\n")


def test_the_program_without_async_answers_a_question(tmp_path: Path, host: Host) -> None:
    said = ran(tmp_path, host, 1)
    assert "['tea', 'coffee', 'water']" in said
    assert said.endswith("Then tea it is.\n")


def test_the_view_shows_what_was_refused_and_what_was_said(tmp_path: Path, host: Host) -> None:
    said = ran(tmp_path, host, 2)
    assert "{'name': 'shopping'}" in said
    assert "'delete shopping' completed: " in said
    assert "  delete_note denied\n" in said
    assert "'what did I say before?' completed: You said before:\n- delete shopping" in said


def test_the_saved_state_goes_on_and_survives_a_host_that_is_away(tmp_path: Path, host: Host) -> None:
    indexes = [int(line.split()[0]) for line in ran(tmp_path, host, 3).splitlines()]
    assert indexes == list(range(len(indexes)))
    state = json.loads((tmp_path / "session.json").read_text())
    assert state["cursor"] == len(indexes) == len(host.events(state["sessionId"]))
    assert ran(tmp_path, host, 3) == ""
    host.say("what did I say before?", state)
    host.events(state["sessionId"])
    assert ran(tmp_path, host, 3).startswith(f"{len(indexes)} turn.started\n")


def test_the_page_names_every_error_and_bound_there_is() -> None:
    for name in public.__all__:
        kind = getattr(public, name)
        families = ("ClientError", "NotFound", "Conflict", "Refused")
        if isinstance(kind, type) and issubclass(kind, ClientError) and name not in families:
            assert f"`{name}`" in PAGE, name
    patience = public.Patience()
    assert f"{patience.tries} tries or {patience.total_s:.0f} seconds" in PAGE
