"""examples/chat_agent.py beside the stand-in for a model, as its first lines say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import check_directory
from tests.docs.shell import free_port
from tests.e2e.process import Host, spoken

ROOT = Path(__file__).parents[2]


def test_the_example_publishes_once_a_person_allows_it_and_says_what_came_of_it(tmp_path: Path) -> None:
    port = free_port()
    model = [sys.executable, str(ROOT / "examples" / "canned_model.py"), str(port)]
    base_url = f"http://127.0.0.1:{port}/v1"
    arguments = ("--agent", "examples.chat_agent:agent", "--data-dir", tmp_path / "sessions")
    with (
        subprocess.Popen(model) as running,
        Host(tmp_path, *arguments, BASE_URL=base_url, PYTHONPATH=str(ROOT), OPENAI_API_KEY="none") as host,
    ):
        try:
            accepted, request_id = host.parked("publish cats")
            session_id = accepted["sessionId"]
            host.post(f"/session/{session_id}/input", requestId=request_id, approved=True)
            assert spoken(host.events(session_id)) == "That gave: https://pages.example/cats "
            host.stop()
        finally:
            running.kill()
    check_directory(tmp_path / "sessions")
