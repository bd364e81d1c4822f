"""Agents of every form, several in one host: each asks, is killed with its question open, and goes on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.process import COMMAND, DEADLINE_S, Host, environment, run, spoken, types

AGENTS = '''
import time
from zhin_host import ToolDenied, tool

@tool(approval="always")
def publish(page: str) -> str:
    """Publish a page."""
    with open("published.txt", "a") as file:
        file.write(page + "\\n")
    return "/" + page

async def coroutine(turn):
    page = await turn.run("find", str.upper, turn.message)
    try:
        return await turn.call_tool(publish, page=page)
    except ToolDenied:
        return "refused"

async def words(turn):
    yield "at "
    page = await turn.run("find", str.upper, turn.message)
    try:
        yield await turn.call_tool(publish, page=page)
    except ToolDenied:
        yield "refused"

def plain(turn):
    page = turn.run("find", str.upper, turn.message)
    try:
        return turn.call_tool(publish, page=page)
    except ToolDenied:
        return "refused"

def plain_words(turn):
    yield "at "
    page = turn.run("find", str.upper, turn.message)
    try:
        yield turn.call_tool(publish, page=page)
    except ToolDenied:
        yield "refused"

def asking(turn):
    return f"{turn.ask('Which?')} {turn.approve('Sure?')}"

def stuck(turn):
    turn.say("stuck ")
    if turn.attempt == 1:
        time.sleep(600)
    return "no more"
'''
NAMES = ("coroutine", "words", "plain", "plain_words")


@pytest.fixture
def agents(tmp_path: Path) -> Sequence[str]:
    """Options that serve an agent of each form; the first is the default."""
    (tmp_path / "forms.py").write_text(AGENTS)
    return [word for name in (*NAMES, "asking", "stuck") for word in ("--agent", f"{name}=forms:{name}")]


def start(host: Host, agent: str, message: str = "page") -> str:
    return str(host.post("/session", message=message, agent=agent)["sessionId"])


def talk(folder: Path, host: Host, agent: str) -> subprocess.CompletedProcess[str]:
    """A conversation of one message, in which everything is allowed."""
    return subprocess.run(
        [COMMAND, "chat", "--agent", agent, "--yes", "--url", host.url],
        cwd=folder,
        env=environment(),
        input="page\n",
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def request_of(host: Host, session_id: str) -> str:
    """The request that the session waits for, once it does."""
    last = host.events(session_id)[-1]
    assert last["data"]["parked"], last
    return str(last["data"]["pendingRequestIds"][0])


def published(folder: Path) -> list[str]:
    """What the tool did, once for each of its runs."""
    path = folder / "published.txt"
    return path.read_text().splitlines() if path.exists() else []


def test_each_form_goes_on_behind_kill_9_when_its_approval_is_given_and_when_it_is_refused(
    tmp_path: Path, data_dir: Path, agents: Sequence[str]
) -> None:
    with Host(tmp_path, "--data-dir", data_dir, *agents) as host:
        waiting = {
            (name, allowed): start(host, name, f"{name} {allowed}")
            for name in NAMES
            for allowed in (True, False)
        }
        requests = {session_id: request_of(host, session_id) for session_id in waiting.values()}
        host.kill()
    with Host(tmp_path, "--data-dir", data_dir, *agents) as host:
        assert published(tmp_path) == []
        for (name, allowed), session_id in waiting.items():
            at = len(host.events(session_id))
            host.post(f"/session/{session_id}/input", requestId=requests[session_id], approved=allowed)
            events = host.events(session_id, at)
            expected = f"/{name.upper()} TRUE" if allowed else "refused"
            assert spoken(events) == ("at " if name.endswith("words") else "") + expected
            assert types(host.events(session_id)).count("actions.requested") == 2
        assert sorted(published(tmp_path)) == sorted(f"{name.upper()} TRUE" for name in NAMES)
        host.stop()


def test_a_plain_agents_question_outlives_its_process_and_so_does_the_answer(
    tmp_path: Path, data_dir: Path, agents: Sequence[str]
) -> None:
    with Host(tmp_path, "--data-dir", data_dir, *agents) as host:
        session_id = start(host, "asking")
        question = request_of(host, session_id)
        host.post(f"/session/{session_id}/input", requestId=question, response={"colour": "red"})
        host.events(session_id, -1)
        host.kill()
    with Host(tmp_path, "--data-dir", data_dir, *agents) as host:
        approval = request_of(host, session_id)
        assert approval != question
        host.kill()
    with Host(tmp_path, "--data-dir", data_dir, *agents) as host:
        at = len(host.events(session_id))
        host.post(f"/session/{session_id}/input", requestId=approval, approved=True)
        assert spoken(host.events(session_id, at)) == "{'colour': 'red'} True"
        host.stop()


def test_a_host_with_a_thread_that_never_ends_stops_and_its_turn_goes_on_in_the_next(
    tmp_path: Path, data_dir: Path, agents: Sequence[str]
) -> None:
    with Host(tmp_path, "--data-dir", data_dir, *agents, "--stop-grace-s", 0.2) as host:
        session_id = start(host, "stuck")
        with host.stream(session_id) as stream:
            seen = b""
            while b"stuck " not in seen:
                seen += next(stream)
        host.stop()
    with Host(tmp_path, "--data-dir", data_dir, *agents) as host:
        assert spoken(host.events(session_id)).endswith("no more")
        host.stop()


def test_several_agents_are_told_chosen_and_refused_by_name(
    tmp_path: Path, data_dir: Path, agents: Sequence[str]
) -> None:
    with Host(tmp_path, "--data-dir", data_dir, *agents) as host:
        told = [row["name"] for row in host.client.get("/info").json()["agents"]]
        assert told == [*NAMES, "asking", "stuck"]
        for name in (None, "words"):
            body = {"message": "page"} if name is None else {"message": "page", "agent": name}
            session_id = host.post("/session", **body)["sessionId"]
            assert host.events(session_id)[0]["data"]["agent"] == (name or "coroutine")
        refused = host.client.post("/session", json={"message": "page", "agent": "nobody"})
        assert (refused.status_code, refused.json()["error"]) == (404, "AGENT_NOT_FOUND")
        assert "'nobody'" in refused.json()["message"]
        sent = run("send", "--agent", "plain", "page", "--json", cwd=tmp_path, ZHIN_URL=host.url)
        assert sent.returncode == 4, sent.stderr
        session_id = json.loads(sent.stdout)["sessionId"]
        assert host.events(session_id)[0]["data"]["agent"] == "plain"
        unknown = run("send", "--agent", "nobody", "page", cwd=tmp_path, ZHIN_URL=host.url)
        assert unknown.returncode == 1
        assert "There is no agent 'nobody' here" in unknown.stderr
        unknown = talk(tmp_path, host, "nobody")
        assert unknown.returncode == 1
        assert "There is no agent 'nobody' here" in unknown.stderr
        assert "/PAGE" in talk(tmp_path, host, "plain").stdout
        host.stop()


def test_the_environment_names_several_agents_and_one_without_a_name_keeps_its_own(
    tmp_path: Path, data_dir: Path
) -> None:
    (tmp_path / "forms.py").write_text(AGENTS)
    agents = "forms:plain other=forms:plain"
    with Host(tmp_path, "--data-dir", data_dir, ZHIN_AGENT=agents) as host:
        assert [row["name"] for row in host.client.get("/info").json()["agents"]] == ["plain", "other"]
        host.stop()
