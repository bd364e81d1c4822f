"""Every route and every code of the contract's section 2, against a real host on a real port."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FaultyFileSystem
from tests.integration.live import UNKNOWN_REQUEST, UNKNOWN_SESSION, Script, Serving, served
from zhin_host import create_agent_session_host
from zhin_host.storage.files import FileHttpSessionPersistence


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def live(data_dir: Path, script: Script) -> AsyncIterator[Serving]:
    async with served(create_agent_session_host(script, data_dir=data_dir)) as serving:
        yield serving


def files_of(data_dir: Path, name: str) -> list[str]:
    """The files whose names begin so."""
    return [path.name for path in data_dir.glob(f"{name}*")]


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


# -- sessions and turns --------------------------------------------------------------------------------------------


async def test_a_session_is_readable_before_its_start_is_answered(live: Serving, data_dir: Path) -> None:
    response = await live.client.post("/session", json={"message": "hold on", "metadata": {"k": "é"}})
    started = live.good(response)
    assert started.keys() == {"ok", "sessionId", "continuationToken", "turnId", "startIndex"}
    assert started["startIndex"] == 0
    assert started["continuationToken"].startswith("zhin:")
    assert response.headers["x-zhin-session-id"] == started["sessionId"]
    log = (data_dir / f"{started['sessionId']}.ndjson").read_bytes()
    assert b'"type":"turn.started"' in log
    view = live.good(await live.client.get(f"/session/{started['sessionId']}"))
    assert view["status"] == "running"
    assert view["metadata"] == {"k": "é"}
    assert "agentState" not in view
    assert "log" not in view


async def test_a_follow_up_rotates_the_token_and_begins_where_it_says(live: Serving) -> None:
    session = await live.start("say hello")
    first = await live.events(session)
    assert first[-1]["data"]["continuationToken"] == session["continuationToken"]
    view = live.good(await live.client.get(f"/session/{session['sessionId']}"))
    assert view["continuationToken"] == session["continuationToken"]
    assert view["cursor"] == len(first)
    second = await live.follow_up(session, "say more")
    assert second["sessionId"] == session["sessionId"]
    assert second["continuationToken"] != session["continuationToken"]
    assert second["startIndex"] == len(first)
    later = await live.events(session, startIndex=second["startIndex"])
    assert types(later)[0] == "turn.started"
    assert later[0]["data"]["turnId"] == second["turnId"]
    assert later[-1]["data"]["continuationToken"] == second["continuationToken"]


async def test_a_message_in_parts_is_received_as_it_was_sent(live: Serving) -> None:
    parts = [{"type": "text", "text": "say a"}, {"type": "text", "text": "b"}]
    session = live.good(await live.client.post("/session", json={"message": parts}))
    events = await live.events(session)
    received = next(event for event in events if event["type"] == "message.received")
    assert received["data"]["message"] == parts


async def test_a_failed_turn_does_not_end_its_session(live: Serving) -> None:
    session = await live.start("fail loudly")
    events = await live.events(session)
    assert types(events)[-3:] == ["turn.failed", "step.interrupted", "session.waiting"]
    await live.follow_up(session, "say again")


async def test_an_unknown_agent_is_404(live: Serving) -> None:
    response = await live.client.post("/session", json={"message": "x", "agent": "nobody"})
    assert "nobody" in live.refused(response, 404, "AGENT_NOT_FOUND")["message"]


@pytest.mark.parametrize(
    "token", ["", "zhin:", "zhin:ffffffffffffffffffffffffff", "another", "é\u2028", "x" * 5000]
)
async def test_a_token_that_is_not_in_force_is_409_and_begins_nothing(live: Serving, token: str) -> None:
    session = await live.start("say hello")
    before = await live.events(session)
    body = {"message": "x", "continuationToken": token}
    response = await live.client.post(f"/session/{session['sessionId']}", json=body)
    live.refused(response, 409, "CONTINUATION_TOKEN_STALE")
    assert response.headers["x-zhin-session-id"] == session["sessionId"]
    assert await live.events(session) == before


async def test_of_twin_follow_ups_one_wins_and_the_other_is_stale(live: Serving) -> None:
    session = await live.start("say hello")
    await live.events(session)
    body = {"message": "hold", "continuationToken": session["continuationToken"]}
    path = f"/session/{session['sessionId']}"
    answers = await asyncio.gather(*(live.client.post(path, json=body) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409, 409]
    assert {answer.json().get("error") for answer in answers} == {None, "CONTINUATION_TOKEN_STALE"}


async def test_a_follow_up_while_a_turn_is_open_is_409_and_names_the_open_requests(live: Serving) -> None:
    session, request_id = await live.parked("approve it")
    body = {"message": "x", "continuationToken": session["continuationToken"]}
    response = await live.client.post(f"/session/{session['sessionId']}", json=body)
    assert live.refused(response, 409, "SESSION_BUSY")["pendingRequestIds"] == [request_id]


async def test_cancel_is_accepted_once_for_the_open_turn_and_frees_the_session(live: Serving) -> None:
    session = await live.start("hold on")
    path = f"/session/{session['sessionId']}/cancel"
    other = await live.client.post(path, json={"turnId": "turn_other"})
    assert live.good(other)["status"] == "no_active_turn"
    assert live.good(await live.client.post(path, json={"turnId": session["turnId"]}))["status"] == "accepted"
    assert "turn.cancelled" in types(await live.events(session))
    assert live.good(await live.client.post(path))["status"] == "no_active_turn"
    await live.follow_up(session, "say more")


async def test_a_session_at_rest_can_be_ended_and_takes_nothing_more(live: Serving) -> None:
    session = await live.start("hold on")
    path = f"/session/{session['sessionId']}"
    live.refused(await live.client.post(f"{path}/end", json={"outcome": "completed"}), 409, "SESSION_BUSY")
    await live.client.post(f"{path}/cancel")
    await live.events(session)
    live.good(await live.client.post(f"{path}/end", json={"outcome": "failed", "message": "enough"}))
    assert live.good(await live.client.get(path))["status"] == "failed"
    for suffix, body in [
        ("", {"message": "x", "continuationToken": session["continuationToken"]}),
        ("", {"message": "x", "continuationToken": "stale"}),
        ("/end", {"outcome": "completed"}),
    ]:
        live.refused(await live.client.post(path + suffix, json=body), 409, "SESSION_TERMINAL")


async def test_an_agent_can_end_its_session(live: Serving) -> None:
    session = await live.start("end it")
    assert types(await live.events(session))[-1] == "session.completed"


async def test_a_deleted_session_leaves_no_byte_and_its_streams_end(live: Serving, data_dir: Path) -> None:
    session = await live.start("hold on")
    path = f"/session/{session['sessionId']}"
    live.refused(await live.client.delete(path), 409, "SESSION_BUSY")
    await live.client.post(f"{path}/cancel")
    await live.events(session)
    async with live.client.stream("GET", f"{path}/stream", params={"until": "never"}) as stream:
        blocks = stream.aiter_raw()
        await anext(blocks)
        response = await live.client.delete(path)
        assert live.good(response) == {"ok": True, "sessionId": session["sessionId"]}
        async for _ in blocks:
            pass
    assert files_of(data_dir, session["sessionId"]) == []
    live.refused(await live.client.get(path), 404, "SESSION_NOT_FOUND")
    live.refused(await live.client.delete(path), 404, "SESSION_NOT_FOUND")


# -- answers -------------------------------------------------------------------------------------------------------


async def test_an_approval_is_given_once_and_the_same_again_changes_nothing(live: Serving) -> None:
    session, request_id = await live.parked("approve it")
    path = f"/session/{session['sessionId']}/input"
    view = live.good(await live.client.get(f"/session/{session['sessionId']}"))
    assert view["pendingRequestIds"] == [request_id]
    body = {"requestId": request_id, "approved": True, "comment": "fine"}
    answer = live.good(await live.client.post(path, json=body))
    assert answer == {
        "ok": True,
        "sessionId": session["sessionId"],
        "requestId": request_id,
        "approved": True,
        "alreadyAnswered": False,
    }
    events = await live.events(session)
    assert live.good(await live.client.post(path, json=body))["alreadyAnswered"] is True
    other = await live.client.post(path, json={**body, "approved": False})
    live.refused(other, 409, "REQUEST_ALREADY_ANSWERED")
    assert await live.events(session) == events
    completed = next(event for event in events if event["type"] == "input.completed")
    assert completed["data"]["comment"] == "fine"
    assert "by" not in completed["data"]


async def test_an_answer_of_the_wrong_kind_is_400_and_leaves_the_request_open(live: Serving) -> None:
    session, request_id = await live.parked("approve it")
    path = f"/session/{session['sessionId']}/input"
    live.refused(
        await live.client.post(path, json={"requestId": request_id, "response": True}), 400, "BAD_REQUEST"
    )
    asking, question = await live.parked("ask me")
    path = f"/session/{asking['sessionId']}/input"
    live.refused(
        await live.client.post(path, json={"requestId": question, "approved": True}), 400, "BAD_REQUEST"
    )
    answer = live.good(await live.client.post(path, json={"requestId": question, "response": ["b", None]}))
    assert answer["response"] == ["b", None]


async def test_a_request_is_found_only_under_its_own_session(live: Serving) -> None:
    first, first_request = await live.parked("approve it")
    second, _ = await live.parked("approve it")
    for session, request_id in [(second, first_request), (first, UNKNOWN_REQUEST), (first, "nonsense")]:
        path = f"/session/{session['sessionId']}/input"
        response = await live.client.post(path, json={"requestId": request_id, "approved": True})
        live.refused(response, 404, "REQUEST_NOT_FOUND")
    assert live.good(await live.client.get(f"/session/{first['sessionId']}"))["parked"] is True


async def test_a_cancelled_request_is_404(live: Serving) -> None:
    session, request_id = await live.parked("approve it")
    path = f"/session/{session['sessionId']}"
    await live.client.post(f"{path}/cancel")
    await live.events(session, startIndex=-1)
    response = await live.client.post(f"{path}/input", json={"requestId": request_id, "approved": True})
    live.refused(response, 404, "REQUEST_NOT_FOUND")


@pytest.mark.parametrize(
    ("response", "approved"), [("approve", True), ("deny", False), (True, True), (False, False)]
)
async def test_the_first_clients_answer_an_approval_by_trace_and_prompt(
    live: Serving,
    response: Any,
    approved: bool,  # noqa: FBT001 - a parameter
) -> None:
    session, request_id = await live.parked("publish home")
    body = {"traceId": session["sessionId"], "promptId": request_id, "response": response}
    answer = live.good(await live.client.post("/resume", json=body))
    assert answer["approved"] is approved
    assert answer["requestId"] == request_id
    wrong = await live.client.post("/resume", json={**body, "traceId": UNKNOWN_SESSION})
    live.refused(wrong, 404, "SESSION_NOT_FOUND")
    wrong = await live.client.post("/resume", json={**body, "promptId": UNKNOWN_REQUEST})
    live.refused(wrong, 404, "REQUEST_NOT_FOUND")


async def test_the_first_clients_answer_an_approval_with_nothing_else(live: Serving) -> None:
    session, request_id = await live.parked("publish home")
    for response in ("yes", "Approve", 1, None, ["approve"]):
        body = {"traceId": session["sessionId"], "promptId": request_id, "response": response}
        live.refused(await live.client.post("/resume", json=body), 400, "BAD_REQUEST")


async def test_the_first_clients_answer_a_question_with_any_json(live: Serving) -> None:
    session, request_id = await live.parked("ask me")
    body = {"traceId": session["sessionId"], "promptId": request_id, "response": "approve"}
    assert live.good(await live.client.post("/resume", json=body))["response"] == "approve"


async def test_an_authorization_is_completed_by_its_request(live: Serving) -> None:
    session, request_id = await live.parked("authorize forge")
    path = f"/authorization/{request_id}/complete"
    named = {"success": True, "sessionId": session["sessionId"]}
    elsewhere = await live.client.post(path, json={"success": True, "sessionId": UNKNOWN_SESSION})
    live.refused(elsewhere, 404, "AUTHORIZATION_REQUEST_NOT_FOUND")
    by_input = await live.client.post(
        f"/session/{session['sessionId']}/input", json={"requestId": request_id, "approved": True}
    )
    live.refused(by_input, 404, "REQUEST_NOT_FOUND")
    response = await live.client.post(path, json=named)
    answer = live.good(response)
    assert (answer["requestId"], answer["success"], answer["alreadyAnswered"]) == (request_id, True, False)
    assert response.headers["x-zhin-session-id"] == session["sessionId"]
    assert live.good(await live.client.post(path, json={"success": True}))["alreadyAnswered"] is True
    live.refused(await live.client.post(path, json={"success": False}), 409, "REQUEST_ALREADY_ANSWERED")
    assert "authorization.completed" in types(await live.events(session))


async def test_what_is_no_authorization_is_404(live: Serving) -> None:
    _, approval = await live.parked("approve it")
    for request_id in (UNKNOWN_REQUEST, approval, "nonsense"):
        response = await live.client.post(f"/authorization/{request_id}/complete", json={"success": True})
        live.refused(response, 404, "AUTHORIZATION_REQUEST_NOT_FOUND")


# -- looking -------------------------------------------------------------------------------------------------------


async def test_the_list_is_newest_first_in_pages_and_by_status(live: Serving) -> None:
    sessions = []
    for message in ("say a", "end b", "hold c", "approve d", "say e"):
        sessions.append(await live.start(message))
        if message != "hold c":
            await live.events(sessions[-1])
    newest_first = sorted((session["sessionId"] for session in sessions), reverse=True)
    listed: list[str] = []
    before: dict[str, str] = {}
    while True:
        page = live.good(await live.client.get("/sessions", params={"limit": 2, **before}))
        listed += [row["sessionId"] for row in page["sessions"]]
        if "nextBefore" not in page:
            break
        before = {"before": page["nextBefore"]}
    assert listed == newest_first
    for status, expected in [("running", 1), ("waiting", 3), ("completed", 1), ("failed", 0)]:
        page = live.good(await live.client.get("/sessions", params={"status": status}))
        assert [row["status"] for row in page["sessions"]] == [status] * expected


async def test_the_audit_of_a_whole_session_finds_nothing(live: Serving) -> None:
    session = await live.start("say hello")
    await live.events(session)
    response = await live.client.get(f"/session/{session['sessionId']}/audit")
    assert live.good(response)["sessionId"] == session["sessionId"]


async def test_of_two_audits_at_once_one_is_429(live: Serving) -> None:
    session = await live.start("many 2000")
    await live.events(session)
    path = f"/session/{session['sessionId']}/audit"
    answers = await asyncio.gather(*(live.client.get(path) for _ in range(4)))
    assert sorted({answer.status_code for answer in answers}) == [200, 429]
    for answer in answers:
        if answer.status_code == 429:
            live.refused(answer, 429, "TOO_MANY_STREAMS")


async def test_info_names_agents_tools_policies_and_limits(live: Serving) -> None:
    info = live.good(await live.client.get("/info"))
    assert [agent["name"] for agent in info["agents"]] == ["scripted"]
    assert [(tool["name"], tool["approval"]) for tool in info["agents"][0]["tools"]] == [
        ("publish", "always")
    ]
    assert info["limits"]["body_bytes_max"] == 1 << 20


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_an_unknown_session_is_404_on_every_route(live: Serving, method: str) -> None:
    bodies: dict[tuple[str, str], Any] = {
        ("POST", ""): {"message": "x", "continuationToken": "t"},
        ("POST", "/input"): {"requestId": UNKNOWN_REQUEST, "approved": True},
        ("POST", "/cancel"): None,
        ("POST", "/end"): {"outcome": "completed"},
        ("GET", ""): None,
        ("GET", "/stream"): None,
        ("GET", "/audit"): None,
        ("DELETE", ""): None,
    }
    for (wanted, suffix), body in bodies.items():
        if wanted == method:
            response = await live.client.request(method, f"/session/{UNKNOWN_SESSION}{suffix}", json=body)
            live.refused(response, 404, "SESSION_NOT_FOUND")


# -- limits and failures -------------------------------------------------------------------------------------------


async def test_more_open_turns_than_the_host_holds_are_429(data_dir: Path, script: Script) -> None:
    host = create_agent_session_host(script, data_dir=data_dir, open_turns_max=1)
    async with served(host) as live:
        session = await live.start("hold on")
        live.refused(await live.client.post("/session", json={"message": "x"}), 429, "TOO_MANY_SESSIONS")
        script.go.set()
        await live.events(session)
        await live.start("say now")


async def test_more_streams_than_the_host_serves_are_429(data_dir: Path, script: Script) -> None:
    host = create_agent_session_host(script, data_dir=data_dir, streams_max=1)
    async with served(host) as live:
        session = await live.start("say hello")
        path = f"/session/{session['sessionId']}/stream"
        async with live.client.stream("GET", path, params={"until": "never"}) as stream:
            blocks = stream.aiter_raw()
            await anext(blocks)
            live.refused(await live.client.get(path), 429, "TOO_MANY_STREAMS")


async def test_a_bug_is_500_and_says_nothing_of_itself(
    live: Serving, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await live.start("say hello")

    async def view(*_: Any) -> dict[str, Any]:
        raise RuntimeError("inside")

    monkeypatch.setattr(live.host.store, "view", view)
    response = await live.client.get(f"/session/{session['sessionId']}")
    assert "inside" not in live.refused(response, 500, "INTERNAL")["message"]
    assert "inside" in caplog.text


async def test_a_session_whose_agent_is_gone_is_503_and_keeps_nobody_waiting(data_dir: Path) -> None:
    async with served(create_agent_session_host({"old": Script()}, data_dir=data_dir)) as live:
        session, request_id = await live.parked("approve it")
    async with served(create_agent_session_host({"new": Script()}, data_dir=data_dir)) as live:
        path = f"/session/{session['sessionId']}"
        live.good(await live.client.get("/ready"))
        assert live.good(await live.client.get(path))["parked"] is True
        for suffix, body in [
            ("/input", {"requestId": request_id, "approved": True}),
            ("/cancel", None),
            ("", {"message": "x", "continuationToken": session["continuationToken"]}),
        ]:
            response = await live.client.post(path + suffix, json=body)
            assert "old" in live.refused(response, 503, "AGENT_UNAVAILABLE")["message"]


@pytest.mark.damaged(reason="an event in the middle was changed")
async def test_a_broken_log_is_503_with_the_index_and_readable_up_to_there(data_dir: Path) -> None:
    async with served(create_agent_session_host(Script(), data_dir=data_dir)) as live:
        session = await live.start("say hello")
        await live.events(session)
        other = await live.start("say hello")
        await live.events(other)
    log = data_dir / f"{session['sessionId']}.ndjson"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:3], lines[3].replace(b'"index":3', b'"index":9'), *lines[4:]]))
    (data_dir / f"{session['sessionId']}.json").unlink(missing_ok=True)
    async with served(create_agent_session_host(Script(), data_dir=data_dir)) as live:
        path = f"/session/{session['sessionId']}"
        body = {"message": "x", "continuationToken": session["continuationToken"]}
        response = await live.client.post(path, json=body)
        assert live.refused(response, 503, "STORAGE_UNAVAILABLE")["index"] == 3
        stream = await live.client.get(f"{path}/stream")
        assert stream.content == b"".join(lines[:3])
        assert live.good(await live.client.get("/ready")) == {"ok": True}
        await live.follow_up(other, "say more")
        verdict = (await live.client.get(f"{path}/audit")).json()
        assert verdict["ok"] is False
        live.good(await live.client.delete(path))
    assert not log.exists()


async def test_a_full_disk_is_507_for_writes_while_reads_go_on_and_passes_by_itself(data_dir: Path) -> None:
    disk = FaultyFileSystem()
    persistence = FileHttpSessionPersistence(data_dir, fs=disk)
    async with served(create_agent_session_host(Script(), persistence=persistence)) as live:
        session = await live.start("say hello")
        events = await live.events(session)
        disk.fail_next(errno.ENOSPC, "open", "write", count=None)
        live.refused(await live.client.post("/session", json={"message": "x"}), 507, "STORAGE_FULL")
        path = f"/session/{session['sessionId']}"
        body = {"message": "x", "continuationToken": session["continuationToken"]}
        live.refused(await live.client.post(path, json=body), 507, "STORAGE_FULL")
        assert await live.events(session) == events
        disk.heal()
        await live.follow_up(session, "say more")


async def test_a_body_that_trickles_is_408_and_its_connection_closed(script: Script, data_dir: Path) -> None:
    host = create_agent_session_host(script, data_dir=data_dir, body_timeout_s=0.05)
    async with served(host) as live:
        reader, writer = await asyncio.open_connection("localhost", live.port)
        head = "POST /zhin/v1/session HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: 20\r\n\r\n{{".encode())
        answer = await reader.read()  # to the end of the connection
        writer.close()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == "REQUEST_TIMEOUT"


async def test_a_body_too_large_is_413_whether_its_size_is_said_or_not(live: Serving) -> None:
    large = b'{"message":"' + b"x" * (1 << 20) + b'"}'

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(large), 1 << 16):
            yield large[at : at + (1 << 16)]

    headers = {"content-type": "application/json"}
    said = await live.client.post("/session", content=large, headers=headers)
    live.refused(said, 413, "BODY_TOO_LARGE")
    head = "POST /zhin/v1/session HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    reader, writer = await asyncio.open_connection("localhost", live.port)
    writer.write(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
    async for chunk in chunks():
        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
    assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    writer.close()


async def test_a_message_that_does_not_fit_a_line_is_413(data_dir: Path, script: Script) -> None:
    host = create_agent_session_host(script, data_dir=data_dir, line_bytes_max=8192)
    async with served(host) as live:
        response = await live.client.post("/session", json={"message": "x" * 8192})
        live.refused(response, 413, "BODY_TOO_LARGE")
    assert files_of(data_dir, "ses_") == []


async def test_a_stopping_host_is_well_but_not_ready_and_takes_nothing_new(
    script: Script, data_dir: Path
) -> None:
    async with served(create_agent_session_host(script, data_dir=data_dir)) as live:
        session = await live.start("say hello")
        await live.events(session)
        await live.host.stop()
        live.refused(await live.client.get("/ready"), 503, "SHUTTING_DOWN")
        live.refused(await live.client.post("/session", json={"message": "x"}), 503, "SHUTTING_DOWN")
        live.good(await live.client.get("/health"))


async def test_ten_open_streams_end_whole_when_the_host_stops(script: Script, data_dir: Path) -> None:
    async with served(create_agent_session_host(script, data_dir=data_dir)) as live:
        session, _ = await live.parked("approve it")
        path = f"/zhin/v1/session/{session['sessionId']}/stream?until=never"
        readers = []
        for _ in range(10):
            reader, writer = await asyncio.open_connection("localhost", live.port, family=socket.AF_INET)
            writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            await reader.readuntil(b"session.waiting")
            readers.append((reader, writer))
        await live.stop()
        for reader, writer in readers:
            assert (await reader.read()).endswith(b"0\r\n\r\n")
            writer.close()
