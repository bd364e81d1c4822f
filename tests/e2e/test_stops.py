"""Clean stops that something stands in the way of: callers that go on asking, agents that refuse to be cancelled."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx

from tests.e2e.process import Host

_AGENT = """
import asyncio


async def agent(turn):
    if turn.message == "stubborn":
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass
    await turn.say("Working. ")
    await asyncio.sleep(3600)
"""


def test_a_stop_that_callers_ask_through_is_no_crash_and_drives_nothing_again(
    data_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(_AGENT)
    arguments = ("--agent", "slow:agent", "--data-dir", data_dir)
    session_ids: list[str] = []
    for _ in range(5):
        with Host(tmp_path, *arguments) as host:
            while len(session_ids) < 3:
                session_ids.append(host.client.post("/session", json={"message": "go"}).json()["sessionId"])
            base = host.client.base_url
            is_over = threading.Event()

            def ask(base: httpx.URL = base, is_over: threading.Event = is_over) -> None:
                with httpx.Client(base_url=base, timeout=30) as client:
                    while not is_over.is_set():
                        try:
                            client.get(f"/session/{session_ids[0]}")
                        except httpx.TransportError:
                            return

            callers = [threading.Thread(target=ask) for _ in range(3)]
            for caller in callers:
                caller.start()
            host.stop()
            is_over.set()
            for caller in callers:
                caller.join()
        marks = [(data_dir / f"{session_id}.open").read_text() for session_id in session_ids]
        assert marks == ["stopped"] * 3
    with Host(tmp_path, *arguments) as host:
        for session_id in session_ids:
            view = host.client.get(f"/session/{session_id}").json()
            assert (view["status"], view["steps"][-1]["attempt"]) == ("running", 6)
            host.client.post(f"/session/{session_id}/cancel")
            host.events(session_id)


def test_an_agent_that_swallows_cancellation_cannot_hold_the_stop(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(_AGENT)
    with Host(tmp_path, "--agent", "slow:agent", "--data-dir", data_dir, "--stop-grace-s", "0.2") as host:
        host.client.post("/session", json={"message": "stubborn"})
        host.stop()
