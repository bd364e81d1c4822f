"""Every log of every scripted agent, cut after each event and within each line: the turn goes on all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.redrive.agents import AGENTS, BESIDE, KEYS, LEDGER, SECRET
from tests.redrive.drive import (
    NOBODY,
    counted_text,
    events_of,
    faults_below,
    files_below,
    host_of,
    leave_as_killed,
    results_of,
    until_rest,
)
from zhin_host.errors import SessionNotFound


async def _undisturbed(name: str, directory: Path) -> str:
    """Run the agent to its end and return the session's id."""
    async with host_of(name, directory) as host:
        accepted = await host.store.start(NOBODY, "go")
        await until_rest(host, accepted.session_id)
    return accepted.session_id


async def _go_on(name: str, directory: Path, session_id: str) -> bool:
    """Start a host on a cut log and drive it to rest; whether the session is there at all."""
    async with host_of(name, directory) as host:
        try:
            await until_rest(host, session_id, is_patient=False)  # the limit went with the process
        except SessionNotFound:
            return False
    return True


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", AGENTS)
async def test_a_turn_cut_down_anywhere_ends_as_an_undisturbed_one(name: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    session_id = await _undisturbed(name, whole)
    events = events_of(whole, session_id)
    assert [event["data"] for event in events if event["type"].startswith("turn.")][-1].get("code") is None
    expected = counted_text(events)
    lines = (whole / f"{session_id}.ndjson").read_bytes().splitlines(keepends=True)
    offset = 0
    for at, line in enumerate(lines):
        for cut in sorted({1, len(line) // 2, len(line) - 1, len(line)}):
            directory = tmp_path / f"{at}-{cut}"
            leave_as_killed(directory, session_id, b"".join(lines)[: offset + cut])
            done = results_of(events[: at + (cut >= len(line) - 1)])
            LEDGER.clear()
            if not await _go_on(name, directory, session_id):
                assert at + (cut >= len(line) - 1) <= 1, "the session was told of and is gone"
                continue
            after = events_of(directory, session_id)
            where = f"cut at event {at}, byte {cut} of {len(line)} ({line[:60]!r})"
            if not any(
                event["type"] == "message.received" for event in events[: at + (cut >= len(line) - 1)]
            ):
                assert after[-1]["data"]["reason"] == "interrupted", where
                continue
            assert after[-1]["data"]["reason"] == "idle", where
            assert [
                event["type"] for event in after if event["type"] in ("turn.completed", "turn.failed")
            ] == ["turn.completed"], where
            assert [call for call in done if LEDGER[call]] == [], f"{where}: ran again"
            assert {call: row["status"] for call, row in results_of(after).items()} == {
                call: row["status"] for call, row in results_of(events).items()
            }, where
            if name not in BESIDE:
                assert counted_text(after) == expected, where
            assert [keys for keys in KEYS.values() if len(keys) > 1] == [], where
        offset += len(line)
    assert faults_below(tmp_path) == []
    assert [path for path in files_below(tmp_path) if SECRET[10:].encode() in path.read_bytes()] == []
