"""Drives a host until its session rests, answering what it asks: the undisturbed run, and the one behind a cut."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson

from tests.redrive.agents import AGENTS, list_pages, pay, publish, wire
from zhin_host.audit import audit_directory
from zhin_host.host import AgentSessionHost, create_agent_session_host
from zhin_host.ports import Principal

NOBODY = Principal()
_DEADLINE_S = 20.0


def host_of(name: str, directory: Path, **settings: Any) -> AgentSessionHost:
    """A host of one scripted agent on a directory."""
    agent = {name: AGENTS[name]} if name in AGENTS else name
    return create_agent_session_host(
        agent, data_dir=directory, tools=[publish, list_pages, pay, wire], **{"fsync": "never", **settings}
    )


async def answer_all(host: AgentSessionHost, session_id: str, *, is_patient: bool) -> bool:
    """Answer every open request as the script says; whether there was one.

    "Quick?" is left to the agent's own limit while that is there.
    """
    view = await host.store.view(NOBODY, session_id)
    for request in view["pendingRequests"]:
        request_id = request["requestId"]
        match request["kind"]:
            case "authorization":
                await host.store.authorize(NOBODY, request_id, True, None, None)
            case "question":
                await host.store.answer(NOBODY, session_id, request_id, {"response": "red"}, None)
            case _:
                if request["prompt"] != "Quick?" or not is_patient:
                    await host.store.answer(NOBODY, session_id, request_id, {"approved": True}, None)
    return bool(view["pendingRequests"])


async def until_rest(host: AgentSessionHost, session_id: str, *, is_patient: bool = True) -> None:
    """Answer what is asked until the session waits for nobody."""
    async with asyncio.timeout(_DEADLINE_S):
        while True:
            view = await host.store.view(NOBODY, session_id)
            if view["status"] != "running" and not view["parked"]:
                return
            if not await answer_all(host, session_id, is_patient=is_patient):
                stream = await host.store.subscribe(NOBODY, session_id, view["cursor"], "boundary")
                try:
                    async for _ in stream:
                        pass
                finally:
                    await stream.aclose()
            else:
                await asyncio.sleep(
                    0.001
                )  # an approval that the agent itself gives up has no answer to wait for


def leave_as_killed(directory: Path, session_id: str, log: bytes) -> None:
    """Make a data directory as a killed host leaves it: so much of one log, and the mark of an open turn."""
    directory.mkdir(mode=0o700)
    for suffix, content in ((".ndjson", log), (".open", b"running")):
        path = directory / f"{session_id}{suffix}"
        path.write_bytes(content)
        path.chmod(0o600)


def events_of(directory: Path, session_id: str) -> list[dict[str, Any]]:
    """The log, parsed."""
    return [orjson.loads(line) for line in (directory / f"{session_id}.ndjson").read_bytes().splitlines()]


def results_of(events: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """callId -> the result that counts."""
    return {
        event["data"]["callId"]: event["data"]
        for event in events
        if event["type"] == "action.result" and event["data"]["status"] != "cancelled"
    }


def counted_text(events: list[dict[str, Any]]) -> str:
    """The text of the last turn that counts: what a client shows that applies discardFrom."""
    said: list[tuple[int, str]] = []
    for event in events:
        match event["type"]:
            case "turn.started":
                at = event["data"].get("discardFrom", event["index"])
                said = [row for row in said if row[0] < at] if "resumes" in event["data"] else []
            case "message.appended":
                said.append((event["index"], event["data"]["messageDelta"]))
            case "step.resumed" if "discardFrom" in event["data"]:
                said = [row for row in said if row[0] < event["data"]["discardFrom"]]
    return "".join(delta for _, delta in said)


def files_below(directory: Path) -> list[Path]:
    return [path for path in directory.glob("**/*") if path.is_file()]


def faults_below(directory: Path) -> list[str]:
    """What the audit, and the referee if there is one, find wrong in every directory below this one."""
    faults = [
        f"{below}: {fault.index} {fault.message}"
        for below in sorted({log.parent for log in directory.glob("**/*.ndjson")})
        for verdict in audit_directory(below)
        for fault in verdict.faults
    ]
    referee = os.environ.get("ZHIN_REFEREE")
    if referee is not None:
        done = subprocess.run(
            [sys.executable, referee, str(directory)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        faults += done.stdout.splitlines()[:-1]
    return faults
