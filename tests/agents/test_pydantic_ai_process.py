"""A hosted Pydantic AI agent as a process: kill -9 while it waits and while it speaks, and the example."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agents.apps.pydantic_ai import WORDS
from tests.docs.shell import checkout_in
from tests.e2e.process import Host, spoken
from tests.redrive.drive import counted_text

AGENT = "tests.agents.apps.pydantic_ai:agent"


pytestmark = pytest.mark.timeout(180)  # a process takes its time to import the library


def serving(folder: Path, data_dir: Path, agent: str = AGENT) -> Host:
    """The agent, served; what Python compiles of the library is kept."""
    return Host(folder, "--data-dir", data_dir, "--agent", agent, PYTHONDONTWRITEBYTECODE="", MODEL="")


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_an_approval_that_waited_over_kill_9_is_given_and_nothing_is_done_twice(
    tmp_path: Path, data_dir: Path
) -> None:
    with serving(tmp_path, data_dir) as host:
        session, request_id = host.parked("publish")
        before = host.events(session["sessionId"])
        assert len(lines_of(tmp_path / "asked.txt")) == 1
        host.kill()
    with serving(tmp_path, data_dir) as host:
        host.post(f"/session/{session['sessionId']}/input", requestId=request_id, approved=True)
        events = host.events(session["sessionId"], len(before))
        assert spoken(events) == "".join(WORDS)
        assert lines_of(tmp_path / "asked.txt") == ["1", "3"]
        assert lines_of(tmp_path / "published.txt") == ["one"]
        follow_up = host.say("and now?", host.client.get(f"/session/{session['sessionId']}").json())
        again = host.events(follow_up["sessionId"], follow_up["startIndex"])
        assert spoken(again) == "".join(WORDS)
        assert lines_of(tmp_path / "asked.txt") == ["1", "3", "5"]
        host.stop()


def test_an_answer_cut_by_kill_9_counts_once_and_whole(tmp_path: Path, data_dir: Path) -> None:
    with serving(tmp_path, data_dir) as host:
        session = host.say("hang on")
        with host.stream(session["sessionId"]) as stream:
            seen = b""
            while WORDS[5].encode() not in seen:
                seen += next(stream)
        host.kill()
    with serving(tmp_path, data_dir) as host:
        events: list[dict[str, Any]] = host.events(session["sessionId"])
        assert spoken(events) == counted_text(events) == "".join(WORDS)
        appended = [event["data"]["messageDelta"] for event in events if event["type"] == "message.appended"]
        assert len(appended) > len(WORDS)
        assert "discardFrom" in next(event["data"] for event in events if event["type"] == "step.resumed")
        assert lines_of(tmp_path / "asked.txt") == ["1", "1"]
        host.stop()


def test_the_example_publishes_what_a_person_allows(tmp_path: Path, data_dir: Path) -> None:
    agent = "examples.pydantic_ai_agent:agent"
    with (
        checkout_in(tmp_path) as folder,
        serving(folder, data_dir, agent) as host,
    ):
        [told] = host.client.get("/info").json()["agents"]
        assert {tool["name"]: tool["approval"] for tool in told["tools"]} == {
            "look_up": "never",
            "publish": "always",
        }
        session, request_id = host.parked("a page about cats")
        cursor = len(host.events(session["sessionId"]))
        host.post(f"/session/{session['sessionId']}/input", requestId=request_id, approved=True)
        events = host.events(session["sessionId"], cursor)
        assert '"publish":"https://pages.example/1"' in spoken(events)
        host.stop()
