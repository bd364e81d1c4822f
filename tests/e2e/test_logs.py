"""The log of a host as a process: JSON a line on stderr, from the start to the stop, whatever agents say."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.process import Host

AGENT = """
async def agent(turn):
    if turn.message == "fail":
        raise ValueError("a\\nb\\x1b[2J")
    await turn.say("words of the agent")
"""


def test_every_line_is_an_object_and_says_what_happened(tmp_path: Path, data_dir: Path) -> None:
    (tmp_path / "own.py").write_text(AGENT)
    with Host(tmp_path, "--agent", "own:agent", "--data-dir", data_dir, "--log-format", "json") as host:
        accepted = host.say("words of a person")
        host.events(accepted["sessionId"])
        host.events(host.say("fail")["sessionId"])
        assert host.client.post("/session/nonsense/cancel").status_code == 404
        host.process.terminate()
        host.process.wait(30)
        rows = [json.loads(line) for line in host.errors.splitlines()]
    assert all(list(row)[:4] == ["time", "level", "logger", "event"] for row in rows)
    events = [row["event"] for row in rows]
    assert events[-2:] == ["host.draining", "host.stopped"]
    assert [row["sessionId"] for row in rows if row["event"] == "turn.completed"] == [accepted["sessionId"]]
    [refused] = [row for row in rows if row["event"] == "call.refused"]
    assert (refused["what"], refused["code"]) == ("cancel", "SESSION_NOT_FOUND")
    [bug] = [row for row in rows if "traceback" in row]
    assert bug["level"] == "error"
    assert bug["traceback"].splitlines()[0] == "Traceback (most recent call last):"
    assert "words of" not in host.errors
    assert accepted["continuationToken"] not in host.errors
