"""LangGraphAgent served as a process, and killed with -9 wherever it hurts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.agents.apps.langgraph import ROUNDS
from tests.e2e.process import DEADLINE_S, Host, spoken, types

AGENT: Final = "tests.agents.apps.langgraph:agent"


def serving(folder: Path, data_dir: Path) -> Host:
    """The app, served in the folder; what Python compiles of the library is kept."""
    return Host(folder, "--data-dir", data_dir, "--agent", AGENT, PYTHONDONTWRITEBYTECODE="")


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def until_there(path: Path) -> None:
    """Return when the file is there."""
    ends_s = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert time.monotonic() < ends_s, path
        time.sleep(0.01)


def until_looked(host: Host, session: dict[str, Any]) -> None:
    """Return when what looking has given is in the log: killed before that, it would rightly look again."""
    with host.stream(session["sessionId"]) as parts:
        seen = b""
        while b'"output":"all about cats"' not in seen:
            seen += next(parts)


def results(events: list[dict[str, Any]]) -> list[str]:
    """The actions that have a result, sorted."""
    return sorted(row["data"]["toolName"] for row in events if row["type"] == "action.result")


def test_an_approval_that_waited_over_kill_9_is_given_and_nothing_is_done_twice(
    tmp_path: Path, data_dir: Path
) -> None:
    with serving(tmp_path, data_dir) as host:
        session, request = host.parked("publish")
        until_looked(host, session)
        host.kill()
    with serving(tmp_path, data_dir) as host:
        host.post(f"/session/{session['sessionId']}/input", requestId=request, approved=True)
        events = host.events(session["sessionId"])
    assert spoken(events) == "Hm. \n\nall about cats | https://pages.example/a "
    assert results(events) == ["look", "model", "model", "publish"]
    assert len(lines_of(tmp_path / "asked")) == 2
    assert (lines_of(tmp_path / "looked"), lines_of(tmp_path / "published")) == (["cats"], ["a"])


def test_a_question_of_a_tool_that_waited_over_kill_9_is_answered(tmp_path: Path, data_dir: Path) -> None:
    with serving(tmp_path, data_dir) as host:
        session, request = host.parked("ask")
        until_looked(host, session)
        host.kill()
    with serving(tmp_path, data_dir) as host:
        host.post(f"/session/{session['sessionId']}/input", requestId=request, response="yes")
        events = host.events(session["sessionId"])
    assert spoken(events) == "all about cats | Sure? yes "
    assert len(lines_of(tmp_path / "asked")) == 2
    assert lines_of(tmp_path / "looked") == ["cats"]


def test_after_kill_9_in_mid_stream_exactly_one_whole_answer_counts(tmp_path: Path, data_dir: Path) -> None:
    with serving(tmp_path, data_dir) as host:
        session = host.say("say")
        until_there(tmp_path / "stopped")
        host.kill()
    log = (data_dir / f"{session['sessionId']}.ndjson").read_text()
    before = [json.loads(line) for line in log.split("\n") if line]
    assert "message.appended" in types(before)
    (tmp_path / "go").touch()
    with serving(tmp_path, data_dir) as host:
        events = host.events(session["sessionId"])
    assert spoken(events) == "one two stop three four "
    [resumed] = [row["data"] for row in events if row["type"] == "step.resumed"]
    counted = [
        row["data"]["messageDelta"]
        for row in events
        if row["type"] == "message.appended" and not resumed["discardFrom"] <= row["index"] < len(before)
    ]
    assert "".join(counted) == "one two stop three four "


def test_a_tool_that_kill_9_cut_off_runs_again_under_its_key_and_the_one_beside_it_does_not(
    tmp_path: Path, data_dir: Path
) -> None:
    with serving(tmp_path, data_dir) as host:
        session = host.say("work")
        until_there(tmp_path / "working")
        until_looked(host, session)
        host.kill()
    (tmp_path / "go").touch()
    with serving(tmp_path, data_dir) as host:
        events = host.events(session["sessionId"])
    assert spoken(events) == "all about cats | worked "
    keys = lines_of(tmp_path / "worked")
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert lines_of(tmp_path / "looked") == ["cats"]
    assert len(lines_of(tmp_path / "asked")) == 2


@pytest.mark.parametrize("kill_at", [9, 22])
def test_a_turn_of_many_rounds_that_is_killed_at_any_event_ends_as_if_it_had_not_been(
    tmp_path: Path, data_dir: Path, kill_at: int
) -> None:
    with serving(tmp_path, data_dir) as host:
        session = host.say("rounds")
        with host.stream(session["sessionId"]) as parts:
            seen = b""
            while f'"index":{kill_at},'.encode() not in seen:
                seen += next(parts)
        host.kill()
    with serving(tmp_path, data_dir) as host:
        events = host.events(session["sessionId"])
        (tmp_path / "go").touch()
        follow_up = host.say("say", {**session, "continuationToken": events[-1]["data"]["continuationToken"]})
        after = host.events(session["sessionId"], follow_up["startIndex"])
    told = " | ".join(f"all about {number}" for number in range(ROUNDS))
    said = "\n\n".join([*(f"Round {number} " for number in range(ROUNDS)), f"{told} "])
    assert spoken(events) == said
    completed = [
        row["data"]["toolName"]
        for row in events
        if row["type"] == "action.result" and row["data"]["status"] == "completed"
    ]
    assert completed == ["model", "look"] * ROUNDS + ["model"]
    assert (
        len(lines_of(tmp_path / "asked")) <= ROUNDS + 3
    )  # at most the one that was cut off, and the follow-up's
    assert spoken(after) == "one two stop three four "


def test_a_process_that_is_asked_to_stop_in_mid_stream_stops_and_goes_on_later(
    tmp_path: Path, data_dir: Path
) -> None:
    with serving(tmp_path, data_dir) as host:
        waiting, request = host.parked("publish")
        session = host.say("say")
        until_there(tmp_path / "stopped")
        host.stop()
    (tmp_path / "go").touch()
    with serving(tmp_path, data_dir) as host:
        assert spoken(host.events(session["sessionId"])) == "one two stop three four "
        host.post(f"/session/{waiting['sessionId']}/input", requestId=request, approved=False)
        said = spoken(host.events(waiting["sessionId"]))
    assert said.endswith("The user refused this call of publish; it did not run. ")
