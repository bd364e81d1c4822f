"""OpenAIAgent in a process that is killed: what its model answered and its tool did is not done again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT
from tests.e2e.process import Host, spoken, types
from tests.redrive.drive import counted_text

pytestmark = pytest.mark.timeout(180)  # the SDK takes long to import, in each process

AGENT = "tests.agents.apps.openai_agents:agent"


def served(folder: Path, data_dir: Path) -> Host:
    return Host(folder, "--agent", AGENT, "--data-dir", data_dir, PYTHONPATH=os.fspath(ROOT))


def events_until(host: Host, session_id: str, kind: str) -> list[dict[str, Any]]:
    """Read the stream until an event of this type has come."""
    got = b""
    with host.stream(session_id) as parts:
        for part in parts:
            got += part
            if f'"type":"{kind}"'.encode() in got:
                break
    return [json.loads(line) for line in got.split(b"\n")[:-1] if line]


def test_an_approval_outlives_kill_9_and_nothing_is_done_twice(tmp_path: Path, data_dir: Path) -> None:
    with served(tmp_path, data_dir) as host:
        accepted, request_id = host.parked("publish")
        host.kill()
    with served(tmp_path, data_dir) as host:
        host.post(f"/session/{accepted['sessionId']}/input", requestId=request_id, approved=True)
        events = host.events(accepted["sessionId"])
        while events[-1]["data"].get("parked"):  # the answer was quicker than the turn
            events += host.events(accepted["sessionId"], len(events))
        assert spoken(events) == "I publish it. \n\nPublished at https://pages.example/cats for you. "
        assert types(events).count("turn.completed") == 1
    assert (tmp_path / "asked.txt").read_text().splitlines() == ["1 items", "4 items"]
    assert (tmp_path / "ran.txt").read_text().splitlines() == ["cats"]


def test_an_answer_cut_off_in_the_middle_is_whole_once_after_the_restart(
    tmp_path: Path, data_dir: Path
) -> None:
    (tmp_path / "hang").touch()
    with served(tmp_path, data_dir) as host:
        session_id = host.say("tell")["sessionId"]
        events_until(host, session_id, "message.appended")
        host.kill()
    (tmp_path / "hang").unlink()
    with served(tmp_path, data_dir) as host:
        events = host.events(session_id)
        assert spoken(events) == counted_text(events) == "one two three four five six "
        assert "discardFrom" in json.dumps(events)
    assert (tmp_path / "asked.txt").read_text().splitlines() == ["1 items", "1 items"]


def test_a_session_goes_on_in_another_process(tmp_path: Path, data_dir: Path) -> None:
    with served(tmp_path, data_dir) as host:
        accepted = host.say("tell")
        host.events(accepted["sessionId"])
        host.stop()
    with served(tmp_path, data_dir) as host:
        token = host.client.get(f"/session/{accepted['sessionId']}").json()["continuationToken"]
        second = host.say("tell", {**accepted, "continuationToken": token})
        host.events(accepted["sessionId"], second["startIndex"])
    assert (tmp_path / "asked.txt").read_text().splitlines() == ["1 items", "3 items"]


def test_the_tools_and_their_policies_are_told(tmp_path: Path, data_dir: Path) -> None:
    with served(tmp_path, data_dir) as host:
        [agent] = host.client.get("/info").json()["agents"]
    assert agent["name"] == "publisher"
    assert [(tool["name"], tool["approval"]) for tool in agent["tools"]] == [("publish", "always")]
