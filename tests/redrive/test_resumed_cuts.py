"""Every log of every agent that fails and is resumed, cut after each event and within each line, ends the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.redrive.agents import KEYS, LEDGER
from tests.redrive.drive import NOBODY, counted_text, events_of, faults_below, leave_as_killed
from tests.redrive.failing import FAILING, WORLD, failing_host, until_done
from zhin_host.errors import SessionNotFound

_BESIDE = {"beside"}  # text beside other actions may be repeated or missing


async def _undisturbed(name: str, directory: Path, level: int = 0) -> str:
    WORLD.level = level
    host, clock = failing_host(name, directory)
    async with host:
        accepted = await host.store.start(NOBODY, "go")
        await until_done(host, clock, accepted.session_id)
    return accepted.session_id


async def _go_on(name: str, directory: Path, session_id: str) -> bool:
    host, clock = failing_host(name, directory)
    async with host:
        try:
            await until_done(host, clock, session_id)
        except SessionNotFound:
            return False
    return True


def _last_results(events: list[dict[str, Any]]) -> dict[str, str]:
    """callId -> how it ended last."""
    return {
        event["data"]["callId"]: event["data"]["status"]
        for event in events
        if event["type"] == "action.result" and event["data"]["status"] != "cancelled"
    }


def _ends(events: list[dict[str, Any]]) -> list[str]:
    """How its turns ended: a code, or "completed"."""
    return [
        event["data"].get("code", "completed")
        for event in events
        if event["type"] in ("turn.failed", "turn.completed")
    ]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", FAILING)
async def test_a_resumed_turn_cut_down_anywhere_ends_as_an_undisturbed_one(name: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    session_id = await _undisturbed(name, whole)
    events = events_of(whole, session_id)
    assert _ends(events)[-1] == "completed"
    assert len(_ends(events)) > 1, "it did not fail"
    unfailing = events_of(tmp_path / "unfailing", await _undisturbed(name, tmp_path / "unfailing", level=9))
    assert counted_text(events) == counted_text(unfailing)
    content = (whole / f"{session_id}.ndjson").read_bytes()
    offset = 0
    for at, line in enumerate(content.splitlines(keepends=True)):
        for cut in sorted({len(line) // 2, len(line) - 1, len(line)}):
            directory = tmp_path / f"{at}-{cut}"
            leave_as_killed(directory, session_id, content[: offset + cut])
            before = events[: at + (cut >= len(line) - 1)]
            done = [call for call, status in _last_results(before).items() if status == "completed"]
            WORLD.level = sum("resumes" in event["data"] for event in before)
            LEDGER.clear()
            where = f"cut at event {at}, byte {cut} of {len(line)} ({line[:60]!r})"
            if not await _go_on(name, directory, session_id):
                assert len(before) <= 1, f"{where}: the session was told of and is gone"
                continue
            after = events_of(directory, session_id)
            if not any(event["type"] == "message.received" for event in before):
                assert after[-1]["data"]["reason"] == "interrupted", where
                continue
            assert _ends(after) == _ends(events), where
            assert [call for call in done if LEDGER[call]] == [], f"{where}: ran again"
            assert _last_results(after) == _last_results(events), where
            if name not in _BESIDE:
                assert counted_text(after) == counted_text(events), where
            assert [keys for keys in KEYS.values() if len(keys) > 1] == [], where
        offset += len(line)
    assert faults_below(tmp_path) == []
