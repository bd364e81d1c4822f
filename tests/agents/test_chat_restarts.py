"""The chat agent as a process: killed while a person is asked, and in the middle of an answer."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tests.agents.endpoint import Endpoint, calls, in_order, says
from tests.conftest import check_directory
from tests.e2e.process import Host, spoken, types
from tests.redrive.drive import counted_text

ROOT = Path(__file__).parents[2]
AGENT = (
    "--agent",
    "zhin_host.agents.chat:agent",
    "--model",
    "stub",
    "--tools",
    "tests.agents.apps.page_tools",
)


def _host(folder: Path, endpoint: Endpoint) -> Host:
    arguments = (*AGENT, "--base-url", endpoint.url, "--data-dir", folder / "sessions")
    return Host(folder, *arguments, PUBLISHED=str(folder / "published.txt"), PYTHONPATH=str(ROOT))


def _results(events: list[dict[str, Any]]) -> list[str]:
    return [event["data"]["toolName"] for event in events if event["type"] == "action.result"]


def test_an_approval_is_answered_after_kill_9_and_a_restart_and_nothing_is_asked_or_done_twice(
    tmp_path: Path,
) -> None:
    asked = calls(("look_up", '{"topic":"cats"}'), ("publish", '{"page":"cats"}'), text="Publishing. ")
    with Endpoint(in_order(asked, says("It is ", "online."), says("You wanted cats."))) as endpoint:
        with _host(tmp_path, endpoint) as host:
            accepted, request_id = host.parked("publish cats")
            host.kill()
        with _host(tmp_path, endpoint) as host:
            session_id = accepted["sessionId"]
            host.post(f"/session/{session_id}/input", requestId=request_id, approved=True)
            events = host.events(session_id)
            assert spoken(events) == "Publishing. It is online."
            assert len(endpoint.requests) == 2
            assert sorted(_results(events)) == ["look_up", "model", "model", "publish"]
            assert (tmp_path / "published.txt").read_text() == "cats\n"
            token = events[-1]["data"]["continuationToken"]
            again = host.say("what?", {"sessionId": session_id, "continuationToken": token})
            assert spoken(host.events(session_id, again["startIndex"])) == "You wanted cats."
            roles = [row["role"] for row in endpoint.requests[-1]["messages"]]
            assert roles == ["user", "assistant", "tool", "tool", "assistant", "user"]
            host.stop()
    check_directory(tmp_path / "sessions")


def test_a_host_killed_in_the_middle_of_an_answer_has_it_given_anew_and_the_first_half_does_not_count(
    tmp_path: Path,
) -> None:
    never = threading.Event()
    half, whole = says("Once ", "upon ", waits=never), says("Once ", "upon ", "a time.")
    with Endpoint(in_order(half, whole)) as endpoint:
        with _host(tmp_path, endpoint) as host:
            session_id = host.say("tell me")["sessionId"]
            with host.stream(session_id) as parts:
                while b"upon " not in next(parts):
                    pass
            host.kill()
        with _host(tmp_path, endpoint) as host:
            events = host.events(session_id)
            assert spoken(events) == counted_text(events) == "Once upon a time."
            assert "step.resumed" in types(events)
            host.stop()
        never.set()
    check_directory(tmp_path / "sessions")
