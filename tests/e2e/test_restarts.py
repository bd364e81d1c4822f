"""What outlives the process, seen from outside: keys, queued messages, deadlines, changed agents, broken neighbours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.builders import LogBuilder, session_id_of
from tests.e2e.process import Host, spoken, types

AGENT = '''
import asyncio
from zhin_host import RequestExpired, tool

@tool(approval="always", expires_s=EXPIRES)
async def publish(page: str) -> str:
    """Publish a page."""
    with open("published.txt", "a") as file:
        file.write(page + "\\n")
    return "/" + page

class Agent:
    name = "mine"
    version = "VERSION"
    tools = (publish,)

    async def __call__(self, turn):
        if turn.message == "publish":
            try:
                await turn.say(await turn.call_tool(publish, page="one"))
            except RequestExpired:
                await turn.say("too late")
        else:
            await turn.say("heard " + turn.message)

agent = Agent()
'''


def write_agent(folder: Path, *, version: str = "1", expires_s: str = "None") -> str:
    """An agent of this version in the folder; how it is named."""
    source = AGENT.replace("VERSION", version).replace("EXPIRES", expires_s)
    (folder / "mine.py").write_text(source)
    return "mine:agent"


def published(folder: Path) -> list[str]:
    """The runs of the tool, by the files of its own it wrote."""
    path = folder / "published.txt"
    return path.read_text().splitlines() if path.exists() else []


def the_view(host: Host, session_id: str) -> dict[str, Any]:
    return dict(host.client.get(f"/session/{session_id}").json())


def keyed(host: Host, key: str, path: str, **body: Any) -> httpx.Response:
    """A POST with an Idempotency-Key."""
    return host.client.post(path, json=body, headers={"Idempotency-Key": key})


def test_a_post_sent_again_with_its_key_after_kill_9_gets_the_same_answer_and_no_second_turn(
    tmp_path: Path, data_dir: Path
) -> None:
    with Host(tmp_path, "--data-dir", data_dir) as host:
        first = keyed(host, "first", "/session", message="hello").json()
        before = host.events(first["sessionId"])
        path, token = f"/session/{first['sessionId']}", first["continuationToken"]
        second = keyed(host, "second", path, message="help", continuationToken=token).json()
        events = host.events(first["sessionId"], len(before))
        host.kill()
    with Host(tmp_path, "--data-dir", data_dir) as host:
        assert keyed(host, "first", "/session", message="hello").json() == first
        assert keyed(host, "second", path, message="help", continuationToken=token).json() == second
        other = keyed(host, "second", path, message="another", continuationToken=token)
        assert (other.status_code, other.json()["error"]) == (409, "IDEMPOTENCY_CONFLICT")
        assert host.events(first["sessionId"]) == before + events
        assert len(host.client.get("/sessions").json()["sessions"]) == 1
        host.stop()


def test_a_queued_message_gets_its_turn_after_kill_9(tmp_path: Path, data_dir: Path) -> None:
    agent = write_agent(tmp_path)
    with Host(tmp_path, "--data-dir", data_dir, "--agent", agent) as host:
        session, request_id = host.parked("publish")
        path = f"/session/{session['sessionId']}"
        token = session["continuationToken"]
        for message in ("a", "b"):
            queued = host.post(path, message=message, continuationToken=token, onBusy="queue")
            assert queued["queued"] is True
            token = queued["continuationToken"]
        host.kill()
    with Host(tmp_path, "--data-dir", data_dir, "--agent", agent) as host:
        at = the_view(host, session["sessionId"])["cursor"]
        host.post(f"{path}/input", requestId=request_id, approved=True)
        events = host.events(session["sessionId"], at)
        said = [event["data"]["message"] for event in events if event["type"] == "message.completed"]
        assert said == ["/one", "heard a", "heard b"]
        assert events[-1]["data"]["continuationToken"] == token
        assert published(tmp_path) == ["one"]
        host.stop()


def test_a_deadline_passes_while_no_host_runs(tmp_path: Path, data_dir: Path) -> None:
    agent = write_agent(tmp_path, expires_s="1.0")
    with Host(tmp_path, "--data-dir", data_dir, "--agent", agent) as host:
        session, request_id = host.parked("publish")
        [request] = the_view(host, session["sessionId"])["pendingRequests"]
        host.kill()
    with Host(tmp_path, "--data-dir", data_dir, "--agent", agent) as host:
        with host.stream(session["sessionId"]) as stream:
            seen = b""
            while b"turn.completed" not in seen:
                seen += next(stream)
        events = host.events(session["sessionId"])
        [answered] = [event for event in events if event["type"] == "input.completed"]
        assert (answered["data"]["requestId"], answered["data"]["outcome"]) == (request_id, "expired")
        assert answered["timestamp"] >= request["expiresAt"]
        assert spoken(events) == "too late"
        assert published(tmp_path) == []
        host.stop()


@pytest.mark.parametrize(
    ("policy", "kind", "runs"),
    [
        ("ask", "input.requested", 0),
        ("continue", "action.result", 1),
        ("fail", "turn.failed", 0),
    ],
)
def test_an_agent_that_changed_between_question_and_answer_follows_the_policy(
    tmp_path: Path, data_dir: Path, policy: str, kind: str, runs: int
) -> None:
    with Host(tmp_path, "--data-dir", data_dir, "--agent", write_agent(tmp_path)) as host:
        session, request_id = host.parked("publish")
        host.kill()
    agent = write_agent(tmp_path, version="2")
    with Host(tmp_path, "--data-dir", data_dir, "--agent", agent, "--on-agent-change", policy) as host:
        at = the_view(host, session["sessionId"])["cursor"]
        response = host.client.post(
            f"/session/{session['sessionId']}/input", json={"requestId": request_id, "approved": True}
        )
        assert response.status_code in {200, 404}
        events = host.events(session["sessionId"], at)
        assert kind in types(events)
        assert len(published(tmp_path)) == runs
        host.stop()


@pytest.mark.damaged(reason="one log is broken on purpose, and no host may mend it")
def test_a_session_that_cannot_be_read_keeps_no_other_from_starting(tmp_path: Path, data_dir: Path) -> None:
    with Host(tmp_path, "--data-dir", data_dir) as host:
        good, request_id = host.parked("write a note a: b")
        host.kill()
    bad = LogBuilder(session_id_of(7)).start("Hello")
    path = data_dir / f"{bad.session_id}.ndjson"
    path.write_bytes(bad.content.replace(b"Hello", b"Jello"))
    (data_dir / f"{bad.session_id}.open").write_text("running")
    with Host(tmp_path, "--data-dir", data_dir) as host:
        assert host.sessions_found == 2
        assert host.client.get("/ready").status_code == 200
        host.post(f"/session/{good['sessionId']}/input", requestId=request_id, approved=True)
        assert spoken(host.events(good["sessionId"])).endswith("to see it.")
        refused = host.client.post(
            f"/session/{bad.session_id}", json={"message": "a", "continuationToken": "b"}
        )
        assert (refused.status_code, refused.json()["error"], refused.json()["index"]) == (
            503,
            "STORAGE_UNAVAILABLE",
            3,
        )
        assert len(re.findall(rf"ERROR .*{bad.session_id}.* event 3", host.errors)) == 1
        host.stop()
    assert b"Jello" in path.read_bytes()
