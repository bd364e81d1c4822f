"""kill -9 at random moments, beside readers: nothing that anyone saw or was promised is lost (contract section 4).

ZHIN_KILLS says how many times (15 by default), ZHIN_SEED repeats a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

KILLS = int(os.environ.get("ZHIN_KILLS", "15"))
_DEADLINE_S = 30.0


@dataclass
class Seen:
    """What clients were told: the bytes each stream gave, from which index on, and the turns that were accepted."""

    streams: list[tuple[str, int, bytearray]] = field(default_factory=list)
    accepted: list[tuple[str, int, str]] = field(default_factory=list)  # session, index of turn.started, turn
    answered: list[tuple[str, str]] = field(default_factory=list)  # session, request

    def lost(self, directory: Path) -> list[str]:
        """What of it the files do not hold."""
        faults = []
        for session_id, index, got in self.streams:
            lines = _lines(directory, session_id)
            if not b"".join(lines[index:]).startswith(bytes(got).replace(b"\n\n", b"\n").lstrip(b"\n")):
                faults.append(
                    f"{session_id} from {index}: {len(got)} bytes that a reader saw are not in the file"
                )
        for session_id, index, turn_id in self.accepted:
            events = [json.loads(line) for line in _lines(directory, session_id)]
            if not any(event["data"].get("turnId") == turn_id for event in events[index:]):
                faults.append(f"{session_id}: turn {turn_id} was accepted at {index} and is not in the file")
        for session_id, request_id in self.answered:
            if '"input.completed"' not in _text(directory, session_id) or request_id not in _text(
                directory, session_id
            ):
                faults.append(
                    f"{session_id}: the answer to {request_id} was acknowledged and is not in the file"
                )
        return faults


def _lines(directory: Path, session_id: str) -> list[bytes]:
    return (directory / f"{session_id}.ndjson").read_bytes().splitlines(keepends=True)


def _text(directory: Path, session_id: str) -> str:
    return (directory / f"{session_id}.ndjson").read_text()


async def _start(directory: Path) -> tuple[asyncio.subprocess.Process, int]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.e2e.killed", str(directory), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), _DEADLINE_S)
    return process, int(line)


async def _read(client: httpx.AsyncClient, session_id: str, start: int, seen: Seen) -> None:
    got = bytearray()
    seen.streams.append((session_id, start, got))
    async with client.stream("GET", f"/session/{session_id}/stream?startIndex={start}") as response:
        async for block in response.aiter_raw():
            got += block


async def _talk(client: httpx.AsyncClient, sessions: list[str], seen: Seen, chance: random.Random) -> None:
    """One client: start or continue a session, read it, answer what it asks; until the host dies."""
    while True:
        message = chance.choice(["tell", "ask me", "ask again", "go on"])
        if sessions and chance.random() < 0.6:
            session_id = chance.choice(sessions)
            view = (await client.get(f"/session/{session_id}")).json()
            body: dict[str, Any] = {"message": message, "continuationToken": view["continuationToken"]}
            answer = await client.post(f"/session/{session_id}", json=body)
            if (
                answer.status_code == httpx.codes.CONFLICT
            ):  # another client was first, or the turn goes on by itself
                seen.answered += await _answer(client, session_id, chance)
                continue
        else:
            answer = await client.post("/session", json={"message": message})
        told = answer.json()
        assert answer.status_code == httpx.codes.OK, told
        seen.accepted.append((told["sessionId"], told["startIndex"], told["turnId"]))
        if told["sessionId"] not in sessions:
            sessions.append(told["sessionId"])
        await _read(client, told["sessionId"], told["startIndex"], seen)
        cursor = (await client.get(f"/session/{told['sessionId']}")).json()["cursor"]
        seen.answered += await _answer(client, told["sessionId"], chance)
        await _read(client, told["sessionId"], cursor, seen)


async def _answer(client: httpx.AsyncClient, session_id: str, chance: random.Random) -> list[tuple[str, str]]:
    """Answer what the session asks; the answers that were acknowledged."""
    given = []
    view = (await client.get(f"/session/{session_id}")).json()
    for request_id in view["pendingRequestIds"]:
        body = {"requestId": request_id, "approved": chance.random() < 0.7}
        answer = await client.post(f"/session/{session_id}/input", json=body)
        if answer.status_code == httpx.codes.OK:
            given.append((session_id, request_id))
    return given


async def _round(directory: Path, sessions: list[str], seen: Seen, chance: random.Random) -> None:
    """Start the host, wait until it is ready, let three clients talk, and kill it at a random moment."""
    process, port = await _start(directory)
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}/zhin/v1", timeout=_DEADLINE_S
        ) as client:
            async with asyncio.timeout(_DEADLINE_S):
                while (await client.get("/ready")).status_code != httpx.codes.OK:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            talks = [asyncio.create_task(_talk(client, sessions, seen, chance)) for _ in range(3)]
            await asyncio.sleep(
                chance.uniform(0.001, 0.15)
            )  # the moment of the kill is the point of the test
            process.kill()
            await process.wait()
            for talk in talks:
                talk.cancel()
            for ended in await asyncio.gather(*talks, return_exceptions=True):
                assert isinstance(ended, httpx.TransportError | asyncio.CancelledError), repr(ended)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _settle(client: httpx.AsyncClient, session_id: str) -> None:
    """Answer what is still asked and wait until the session rests: every turn that was cut down comes to its end."""
    async with asyncio.timeout(_DEADLINE_S):
        while True:
            view = (await client.get(f"/session/{session_id}")).json()
            if (view["status"], view["parked"]) == ("waiting", False):
                return
            for request_id in view["pendingRequestIds"]:
                await client.post(
                    f"/session/{session_id}/input", json={"requestId": request_id, "approved": True}
                )
            async with client.stream(
                "GET", f"/session/{session_id}/stream?startIndex={view['cursor']}"
            ) as stream:
                await stream.aread()


@pytest.mark.timeout(60 + 4 * KILLS)
async def test_a_host_killed_at_random_moments_loses_nothing_that_anyone_saw(data_dir: Path) -> None:
    seed = os.environ.get("ZHIN_SEED", str(random.randrange(1 << 32)))
    sys.stderr.write(f"ZHIN_SEED={seed} ZHIN_KILLS={KILLS}\n")
    chance, sessions, accepted, read_bytes = random.Random(seed), list[str](), 0, 0
    for _ in range(KILLS):
        seen = Seen()
        await _round(data_dir, sessions, seen, chance)
        assert seen.lost(data_dir) == []
        accepted += len(seen.accepted)
        read_bytes += sum(len(got) for _, _, got in seen.streams)
    assert accepted >= KILLS / 2, "the host was killed before it did anything: nothing was tried"
    assert read_bytes
    process, port = await _start(data_dir)  # sorts what the last kill left, for the audit behind this test
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/zhin/v1", timeout=_DEADLINE_S) as client:
        for session_id in sessions:
            await _settle(client, session_id)
    process.terminate()
    assert await process.wait() == 0
