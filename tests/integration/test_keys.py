"""Idempotency-Key and onBusy over HTTP: what clients send twice happens once, and a busy session says so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.hosting import hosting
from zhin_host import Turn
from zhin_host import events as ev
from zhin_host.http.auth import BearerTokens


async def _agent(turn: Turn) -> None:
    if turn.message.startswith("park"):
        await turn.approve("Sure?")
    await turn.say(turn.message)


def _with(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


def _refused(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert (response.status_code, body["ok"], body["error"]) == (status, False, code)
    return body


async def test_the_same_post_twice_is_answered_alike_also_after_a_restart(data_dir: Path) -> None:
    async with hosting(_agent, data_dir=data_dir) as host, host.client() as client:
        first = await client.post("/session", json={"message": "one"}, headers=_with("a"))
        again = await client.post("/session", json={"message": "one"}, headers=_with("a"))
        assert first.status_code == again.status_code == 200
        assert first.content == again.content
        session_id, token = first.json()["sessionId"], first.json()["continuationToken"]
        await host.settled(session_id)
        body = {"continuationToken": token, "message": "two"}
        second = await client.post(f"/session/{session_id}", json=body, headers=_with("a"))
        assert second.json()["turnId"] != first.json()["turnId"], "the key is of another route"
        assert (
            await client.post(f"/session/{session_id}", json=body, headers=_with("a"))
        ).content == second.content
        await host.settled(session_id)
    async with hosting(_agent, data_dir=data_dir) as host, host.client() as client:
        again = await client.post("/session", json={"message": "one"}, headers=_with("a"))
        assert again.content == first.content
        assert (
            await client.post(f"/session/{session_id}", json=body, headers=_with("a"))
        ).content == second.content
        other = {**body, "message": "other"}
        response = await client.post(f"/session/{session_id}", json=other, headers=_with("a"))
        _refused(response, 409, "IDEMPOTENCY_CONFLICT")
        response = await client.post("/session", json={"message": "other"}, headers=_with("a"))
        _refused(response, 409, "IDEMPOTENCY_CONFLICT")
        events = await host.events(session_id, until="tail")
        assert sum(row.type == ev.TURN_STARTED for row in events) == 2


async def test_the_digest_of_a_request_is_of_its_bytes(data_dir: Path) -> None:
    body = b'{"message": "one"}'
    async with hosting(_agent, data_dir=data_dir) as host, host.client() as client:
        headers = {**_with("a"), "content-type": "application/json"}
        first = await client.post("/session", content=body, headers=headers)
        events = await host.events(first.json()["sessionId"])
        started = next(row.data for row in events if row.type == ev.TURN_STARTED)
        assert (started["idempotencyKey"], started["requestDigest"]) == ("a", ev.digest(body))
        response = await client.post("/session", content=b'{"message":"one"}', headers=headers)
        _refused(response, 409, "IDEMPOTENCY_CONFLICT")


async def test_twins_over_http_make_one_session_and_one_turn() -> None:
    async with hosting(_agent) as host, host.client() as client:
        posts = [client.post("/session", json={"message": "one"}, headers=_with("a")) for _ in range(20)]
        answers = await asyncio.gather(*posts)
        assert len({row.content for row in answers}) == 1
        assert answers[0].status_code == 200
        session_id = answers[0].json()["sessionId"]
        await host.settled(session_id)
        body = {"continuationToken": answers[0].json()["continuationToken"], "message": "two"}
        posts = [client.post(f"/session/{session_id}", json=body, headers=_with("b")) for _ in range(20)]
        answers = await asyncio.gather(*posts)
        assert len({row.content for row in answers}) == 1
        assert answers[0].status_code == 200
        await host.settled(session_id)


async def test_of_twins_with_one_token_one_wins_and_the_others_are_stale() -> None:
    async with hosting(_agent) as host, host.client() as client:
        started = (await client.post("/session", json={"message": "one"})).json()
        await host.settled(started["sessionId"])
        token = started["continuationToken"]
        for number in range(20):
            body = {"continuationToken": token, "message": f"{number}"}
            path = f"/session/{started['sessionId']}"
            answers = await asyncio.gather(*(client.post(path, json=body) for _ in range(3)))
            assert sorted(row.status_code for row in answers) == [200, 409, 409]
            for row in answers:
                if row.status_code == 200:
                    token = row.json()["continuationToken"]
                else:
                    _refused(row, 409, "CONTINUATION_TOKEN_STALE")
            await host.settled(started["sessionId"])


async def test_each_caller_has_keys_of_its_own() -> None:
    tokens = {"ann": "a" * 40, "bob": "b" * 40}
    async with hosting(_agent, authenticator=BearerTokens(tokens)) as host, host.client() as client:
        sessions: set[str] = set()
        for token in tokens.values():
            headers = {**_with("a"), "Authorization": f"Bearer {token}"}
            answer = await client.post("/session", json={"message": "one"}, headers=headers)
            sessions.add(answer.json()["sessionId"])
            await host.settled(answer.json()["sessionId"])
        assert len(sessions) == 2


@pytest.mark.parametrize("key", ["", " ", "a b", "ä", "x" * 256, "a\tb"])
async def test_a_key_that_is_none_is_refused(key: str) -> None:
    async with hosting(_agent) as host, host.client() as client:
        headers = [(b"Idempotency-Key", key.encode())]
        response = await client.post("/session", json={"message": "one"}, headers=headers)
        _refused(response, 400, "BAD_REQUEST")
        assert host.persistence.session_ids() == []


async def test_a_busy_session_refuses_queues_or_is_interrupted() -> None:
    async with hosting(_agent) as host, host.client() as client:
        started = (await client.post("/session", json={"message": "park"})).json()
        session_id, token = started["sessionId"], started["continuationToken"]
        (request,) = await host.asked(session_id)
        path = f"/session/{session_id}"
        response = await client.post(path, json={"continuationToken": token, "message": "two"})
        assert _refused(response, 409, "SESSION_BUSY")["pendingRequestIds"] == [request.request_id]
        body = {"continuationToken": token, "message": "two", "onBusy": "queue"}
        queued = (await client.post(path, json=body)).json()
        assert queued["queued"] is True
        assert queued["continuationToken"] != token
        _refused(await client.post(path, json=body), 409, "CONTINUATION_TOKEN_STALE")
        _refused(await client.delete(path), 409, "SESSION_BUSY")
        body = {"continuationToken": queued["continuationToken"], "message": "three", "onBusy": "interrupt"}
        third = (await client.post(path, json=body)).json()
        assert third["queued"] is True
        await host.seen(session_id, ev.TURN_COMPLETED, 2)
        events = await host.events(session_id, until="tail")
        assert events[queued["startIndex"]].type == events[third["startIndex"]].type == ev.MESSAGE_QUEUED
        assert [row.data["message"] for row in events if row.type == ev.MESSAGE_RECEIVED] == [
            "park",
            "two",
            "three",
        ]


@pytest.mark.parametrize("on_busy", ["later", 1, None])
async def test_an_unknown_way_to_be_busy_is_a_bad_request(on_busy: Any) -> None:
    async with hosting(_agent) as host, host.client() as client:
        started = (await client.post("/session", json={"message": "one"})).json()
        body = {"continuationToken": started["continuationToken"], "message": "two", "onBusy": on_busy}
        response = await client.post(f"/session/{started['sessionId']}", json=body)
        if on_busy is not None:
            _refused(response, 400, "BAD_REQUEST")
        await host.settled(started["sessionId"])


async def test_a_failed_turn_is_resumed_over_http() -> None:
    is_broken = True

    async def work() -> str:
        if is_broken:
            raise ConnectionError("down")
        return "up"

    async def agent(turn: Turn) -> None:
        await turn.say(await turn.run("work", work))

    async with hosting(agent) as host, host.client() as client:
        started = (await client.post("/session", json={"message": "one"})).json()
        path = f"/session/{started['sessionId']}/resume"
        await host.seen(started["sessionId"], ev.TURN_FAILED)
        await host.settled(started["sessionId"])
        is_broken = False
        response = await client.post(path, json={"continuationToken": "zhin:stale"})
        _refused(response, 409, "CONTINUATION_TOKEN_STALE")
        resumed = (await client.post(path)).json()
        assert resumed["turnId"] != started["turnId"]
        await host.seen(started["sessionId"], ev.TURN_COMPLETED)
        await host.settled(started["sessionId"])
        _refused(await client.post(path), 409, "NOTHING_TO_RESUME")
