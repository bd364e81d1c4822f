"""The page about the OpenAI Agents SDK and its example: as a user runs them, over a kill too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks_of
from tests.e2e.process import Host, run, spoken, types

pytestmark = pytest.mark.timeout(180)  # the SDK takes long to import, in each process

PAGE = "openai-agents.md"


@pytest.mark.parametrize("agent", ["publisher:agent", "examples.openai_agents_agent:agent"])
def test_the_agent_waits_for_a_person_over_a_kill(agent: str, tmp_path: Path, data_dir: Path) -> None:
    [source] = [block.text for block in blocks_of(PAGE) if block.file == "publisher.py"]
    (tmp_path / "publisher.py").write_text(source)
    with Host(tmp_path, "--agent", agent, "--data-dir", data_dir, PYTHONPATH=os.fspath(ROOT)) as host:
        accepted, request_id = host.parked("cats")
        host.kill()
    with Host(tmp_path, "--agent", agent, "--data-dir", data_dir, PYTHONPATH=os.fspath(ROOT)) as host:
        answered = run("approve", request_id, "--url", host.url, cwd=tmp_path)
        assert "Approved: Allow publish?" in answered.stdout, answered.stderr
        events = host.events(accepted["sessionId"])
        while events[-1]["data"].get("parked"):  # the answer was quicker than the turn
            events += host.events(accepted["sessionId"], len(events))
    assert spoken(events).split("\n\n")[1] == "Message 1: https://pages.example/cats "
    assert types(events).count("action.result") == 3
