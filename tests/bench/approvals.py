"""Approvals: how soon a tool begins after a person's answer."""

from __future__ import annotations

import statistics
import time

import orjson

from tests.bench.bench import Bench, Hosted
from tests.bench.calls import BASE, Reading, ask, turn
from tests.bench.client import Connection
from tests.bench.rows import below

NAME = "input"


async def measure(bench: Bench) -> None:
    """From the POST of the answer to the tool's first line; both read the machine's one monotonic clock."""
    count, p50_ms = bench.sizes.approvals, []
    hosted = bench.standing_host()
    async with hosted.connected(1) as [connection]:
        for _ in range(count // 4):
            await _answer(bench, hosted, connection)
        for run in range(bench.sizes.runs):
            bench.say(f"run {run + 1} of {bench.sizes.runs}")
            took_ms = [await _answer(bench, hosted, connection) for _ in range(count)]
            p50_ms.append(statistics.median(took_ms))
    size = f"{count:,} answers, 1 client"
    bench.add(NAME, "answer to the tool's first line, p50", p50_ms, unit="ms", target=below(1.0), size=size)


async def _answer(bench: Bench, hosted: Hosted, connection: Connection) -> float:
    """How long it took, ms."""
    asked = await turn(connection, hosted.caller, "ask", "asking")
    lines = asked.body.splitlines()
    [request_id] = orjson.loads(lines[-1])["data"]["pendingRequestIds"]
    path = f"{BASE}/session/{asked.session_id}/input"
    request = hosted.caller.post(path, {"requestId": request_id, "approved": True})
    began_ns = time.monotonic_ns()
    await ask(connection, request)
    body = await connection.call(hosted.caller.stream(asked.session_id))
    bench.compare(hosted.data_dir, [Reading(asked.session_id, body)])
    [result] = [line for line in body.splitlines() if b'"type":"action.result"' in line]
    return float(orjson.loads(result)["data"]["output"] - began_ns) / 1e6
