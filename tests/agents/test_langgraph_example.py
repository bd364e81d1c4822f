"""examples/langgraph_agent.py, as its first lines say."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.process import Host, spoken

ROOT = Path(__file__).parents[2]


def test_the_example_publishes_once_a_person_allows_it_whatever_is_killed_meanwhile(
    tmp_path: Path, data_dir: Path
) -> None:
    arguments = ("--agent", "examples.langgraph_agent:agent", "--data-dir", data_dir)
    with Host(tmp_path, *arguments, PYTHONPATH=str(ROOT), MODEL="") as host:
        accepted, request_id = host.parked("publish cats")
        host.kill()
    with Host(tmp_path, *arguments, PYTHONPATH=str(ROOT), MODEL="") as host:
        session_id = accepted["sessionId"]
        host.post(f"/session/{session_id}/input", requestId=request_id, approved=True)
        events = host.events(session_id)
        assert spoken(events) == "That gave: https://pages.example/cats"
        assert [row["data"]["messageDelta"] for row in events if row["type"] == "message.appended"] == [
            "That ",
            "gave: ",
            "https://pages.example/cats",
        ]
        assert [row["data"]["toolName"] for row in events if row["type"] == "action.result"] == [
            "model",
            "publish",
            "model",
        ]
        host.stop()
