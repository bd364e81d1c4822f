"""examples/mounted.py: people log in at the app, and what waits for them is theirs again after its kill -9."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import check_directory
from tests.e2e.process import DEADLINE_S
from tests.integration.outer import App, running

EXAMPLE = "examples.mounted:app"


@contextlib.contextmanager
def logged_in(app: App, name: str, password: str) -> Iterator[httpx.Client]:
    """Somebody's browser, with the host as its base."""
    with httpx.Client(base_url=f"{app.url}/agents/zhin/v1", timeout=DEADLINE_S) as client:
        answer = client.post(f"{app.url}/login", json={"name": name, "password": password})
        assert answer.status_code == 200, answer.text
        yield client


def until_rest(client: httpx.Client, session_id: str) -> str:
    return client.get(f"/session/{session_id}/stream").text


@pytest.mark.timeout(120)
def test_who_has_logged_in_has_the_agents_and_a_refund_waits_through_a_kill(tmp_path: Path) -> None:
    with running(tmp_path, EXAMPLE) as app:
        with httpx.Client(base_url=app.url, timeout=DEADLINE_S) as stranger:
            assert stranger.get("/").status_code == 401
            refused = stranger.get("/agents/zhin/v1/sessions")
            assert (refused.status_code, refused.json()["error"]) == (401, "UNAUTHORIZED")
            wrong = stranger.post("/login", json={"name": "ada", "password": "battery staple"})
            assert wrong.status_code == 401
        with logged_in(app, "ada", "correct horse") as ada:
            assert "Hello ada" in ada.get(f"{app.url}/").text
            assert ada.get(f"{app.url}/agents/console").status_code == 200
            told = ada.get("/info").json()["agents"]
            assert [(row["name"], [one["name"] for one in row["tools"]]) for row in told] == [
                ("support", ["refund"]),
                ("counter", []),
            ]
            counted = ada.post("/session", json={"message": "one two", "agent": "counter"}).json()[
                "sessionId"
            ]
            assert "2 words, 0 messages before." in until_rest(ada, counted)
            session_id = ada.post("/session", json={"message": "pay back 4711"}).json()["sessionId"]
            assert '"reason":"parked"' in until_rest(ada, session_id)
        app.process.kill()
    with running(tmp_path, EXAMPLE) as app:
        with logged_in(app, "bob", "battery staple") as bob:
            assert bob.get(f"/session/{session_id}").status_code == 404
        with logged_in(app, "ada", "correct horse") as ada:
            (request,) = ada.get(f"/session/{session_id}").json()["pendingRequests"]
            assert (request["toolName"], request["args"]) == ("refund", {"order": "4711"})
            body = {"requestId": request["requestId"], "approved": True}
            assert ada.post(f"/session/{session_id}/input", json=body).status_code == 200
            while ada.get(f"/session/{session_id}").json()["status"] == "running":
                ada.get(f"/session/{session_id}/stream?startIndex=-1")
            assert '"message":"order 4711 is paid back"' in until_rest(ada, session_id)
        app.stop()
    check_directory(tmp_path / "data" / "mounted-sessions")
