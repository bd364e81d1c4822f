"""The host in an app that somebody has: under a prefix, behind its login and middleware, killed and started again."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import httpx
import pytest

from tests.e2e.process import spoken
from tests.integration.outer import FASTAPI, PREFIX, STARLETTE, running, write_app


@pytest.fixture(params=[STARLETTE, FASTAPI], ids=["starlette", "fastapi"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, data_dir: Path) -> Path:
    """A folder with the app in it."""
    write_app(tmp_path, request.param, data_dir)
    return tmp_path


def published(folder: Path) -> list[str]:
    path = folder / "published.txt"
    return path.read_text().splitlines() if path.exists() else []


def test_an_approval_that_waits_when_the_app_is_killed_is_given_to_the_next_one(folder: Path) -> None:
    with running(folder) as app:
        session_id = app.start("front")["sessionId"]
        last = app.events(session_id)[-1]
        (request_id,) = last["data"]["pendingRequestIds"]
        app.process.kill()
        app.process.wait()
    with running(folder) as app:
        assert published(folder) == []
        answer = app.client.post(
            f"/session/{session_id}/input", json={"requestId": request_id, "approved": True}
        )
        assert answer.status_code == 200, answer.text
        events = app.events(session_id, last["index"] + 1)
        assert spoken(events) == "Wait. /front"
        answered = next(event for event in events if event["type"] == "input.completed")
        assert answered["data"]["by"] == "ada"
        assert published(folder) == ["front"]
        assert app.client.get(f"/session/{session_id}").json()["owner"] == "ada"
        app.stop()


def test_the_apps_login_says_who_calls_and_what_it_says_of_others_is_the_answer(folder: Path) -> None:
    with running(folder) as app:
        session_id = app.start("hello", "echo")["sessionId"]
        assert spoken(app.events(session_id)) == "hello"
        with app.client_of("bob") as bob:
            assert bob.get(f"/session/{session_id}").json()["error"] == "SESSION_NOT_FOUND"
            assert bob.get("/sessions").json()["sessions"] == []
        with app.client_of("nobody") as nobody:
            refused = nobody.get("/sessions")
            assert (refused.status_code, refused.json()["error"]) == (401, "UNAUTHORIZED")
            assert refused.json()["message"] == "Log in at /login."
            assert nobody.get("/health").status_code == 200
        app.stop()


def test_every_route_answers_under_the_prefix_and_errors_are_the_hosts_own(folder: Path) -> None:
    with running(folder) as app:
        client = app.client
        document = client.get("/openapi.json").json()
        assert document["servers"] == [{"url": f"{PREFIX}/zhin/v1"}]
        assert httpx.get(f"{app.url}{document['servers'][0]['url']}/ready").json() == {"ok": True}
        info = client.get("/info").json()
        assert [agent["name"] for agent in info["agents"]] == ["publisher", "echo"]
        metrics = document["paths"]["/metrics"]["servers"][0]["url"] + "/metrics"
        assert "zhin_host_" in client.get(f"{app.url}{metrics}").text
        started = app.start("one", "echo")
        session_id = started["sessionId"]
        at = len(app.events(session_id))
        body = {"continuationToken": started["continuationToken"], "message": "two"}
        assert client.post(f"/session/{session_id}", json=body).status_code == 200
        assert spoken(app.events(session_id, at)) == "two"
        assert client.get(f"/session/{session_id}/audit").json()["ok"] is True
        assert client.post(f"/session/{session_id}/cancel").json()["status"] == "no_active_turn"
        assert client.post(f"/session/{session_id}/resume").json()["error"] == "NOTHING_TO_RESUME"
        assert client.post(f"/session/{session_id}/end", json={"outcome": "completed"}).status_code == 200
        assert client.delete(f"/session/{session_id}").status_code == 200
        for method, path, status, code in (
            ("GET", "/nothing", 404, "NOT_FOUND"),
            ("GET", "/session/", 404, "NOT_FOUND"),
            ("PUT", "/session", 405, "METHOD_NOT_ALLOWED"),
            ("GET", f"/session/{session_id}", 404, "SESSION_NOT_FOUND"),
        ):
            refused = client.request(method, path)
            assert (refused.status_code, refused.json()["error"]) == (status, code)
        unknown = client.post("/session", json={"message": "x", "agent": "nobody"})
        assert (unknown.status_code, unknown.json()["error"]) == (404, "AGENT_NOT_FOUND")
        assert (
            httpx.get(f"{app.url}/elsewhere").status_code == 418
        )  # the app's own handler, for its own paths
        assert client.get(f"{app.url}/").status_code == 200
        app.stop()


def test_the_console_finds_itself_and_the_routes_under_the_prefix(folder: Path) -> None:
    with running(folder) as app:
        page = app.client.get(f"{app.url}{PREFIX}/console")
        assert page.status_code == 200
        links = re.findall(r'(?:src|href)="(console/[^"]+)"', page.text)
        assert links
        for link in links:
            assert app.client.get(f"{app.url}{PREFIX}/{link}").status_code == 200
        app.stop()


def test_the_guard_stands_inside_the_app_and_takes_the_hosts_and_origins_it_was_given(folder: Path) -> None:
    with running(folder) as app:
        client = app.client
        assert client.get("/sessions", headers={"Host": "app.example"}).status_code == 200
        strange = client.get("/sessions", headers={"Host": "attacker.example"})
        assert (strange.status_code, strange.json()["error"]) == (403, "FORBIDDEN")
        body = {"message": "hello", "agent": "echo"}
        own = client.post("/session", json=body, headers={"Origin": app.url})
        assert own.status_code == 200
        for origin in ("https://attacker.example", "https://spa.example", "null"):
            foreign = client.post("/session", json=body, headers={"Origin": origin})
            assert (foreign.status_code, foreign.json()["error"]) == (403, "FORBIDDEN")
        shared = client.get("/sessions", headers={"Origin": "https://desk.example"})
        assert shared.headers.get_list("access-control-allow-origin") == ["https://desk.example"]
        app.stop()


def test_a_stream_through_the_apps_middleware_comes_as_it_happens_and_ends_whole_at_a_stop(
    folder: Path,
) -> None:
    with running(folder) as app:
        session_id = app.start("front")["sessionId"]
        app.events(session_id)
        path = f"/session/{session_id}/stream"
        with app.client.stream("GET", path, params={"until": "never"}) as stream:
            assert stream.headers["content-encoding"] == "identity"
            received = stream.iter_raw()
            first = next(received)
            assert first.startswith(b'{"index":0,')
            app.process.send_signal(signal.SIGTERM)
            body = first + b"".join(received)
        assert body.rstrip(b"\n").endswith(b"}")
        app.stop()
    with running(folder) as app:
        assert app.client.get(f"/session/{session_id}").json()["parked"] is True
        app.stop()


def test_a_stop_of_the_app_is_a_clean_stop_of_the_host(folder: Path, data_dir: Path) -> None:
    with running(folder) as app:
        session_id = app.start("hello", "echo")["sessionId"]
        app.events(session_id)
        app.stop()
    assert (data_dir / f"{session_id}.json").exists()  # its snapshot, which a kill leaves out
    assert not (data_dir / ".holder").exists()
