"""What the client shows of a turn driven again or resumed is what counts: logs of real hosts, cut and gone on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from tests.builders import session_id_of
from tests.redrive import test_cuts as plain
from tests.redrive import test_resumed_cuts as resumed
from tests.redrive.agents import AGENTS, BESIDE
from tests.redrive.drive import counted_text, events_of, leave_as_killed
from tests.redrive.failing import FAILING, WORLD
from zhin_host import events as ev
from zhin_host.client import View, fold
from zhin_host.fold import apply
from zhin_host.state import new_state

GoOn = Callable[[str, Path, str], Awaitable[bool]]


def as_event(row: dict[str, Any]) -> ev.Event:
    return ev.Event(row["index"], row["type"], row["timestamp"], row["data"], row["sum"].encode())


def check_shown(name: str, rows: list[dict[str, Any]]) -> None:
    """Fail unless every prefix is shown as the host's own fold has it, and the last turn's text is what counts."""
    state, view = new_state(session_id_of(1)), View()
    for row in rows:
        apply(state, row["type"], row["data"], row["timestamp"])
        view = fold(view, as_event(row))
        assert (view.status, view.is_parked, view.continuation_token) == (
            state.status,
            state.is_parked,
            state.token,
        )
        assert [request.request_id for request in view.open_requests] == list(state.pending)
        if state.turn is not None and view.turn is not None:
            running = {call.call_id for call in view.turn.calls if call.status == "running"}
            assert running == set(state.turn.calls), (row["index"], row["type"])
            assert view.turn.attempt == state.turn.attempt
    assert view.turn is not None
    assert view.turn.said.text == counted_text(rows)
    if name not in BESIDE and view.turn.status == "completed":
        assert view.turn.text == view.turn.said.text
    assert reduce(fold, map(as_event, rows), view) is view


async def cut_and_shown(name: str, whole: Path, session_id: str, go_on: GoOn, folder: Path) -> None:
    """Cut the log after each event, let a host go on, and look at what came of it."""
    rows = events_of(whole, session_id)
    check_shown(name, rows)
    lines = (whole / f"{session_id}.ndjson").read_bytes().splitlines(keepends=True)
    for count in range(3, len(lines)):
        directory = folder / str(count)
        leave_as_killed(directory, session_id, b"".join(lines[:count]))
        WORLD.level = sum("resumes" in row["data"] for row in rows[:count])
        assert await go_on(name, directory, session_id)
        check_shown(name, events_of(directory, session_id))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", AGENTS)
async def test_a_turn_driven_again_is_shown_as_what_counts(name: str, tmp_path: Path) -> None:
    session_id = await plain._undisturbed(name, tmp_path / "whole")
    await cut_and_shown(name, tmp_path / "whole", session_id, plain._go_on, tmp_path)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", FAILING)
async def test_a_turn_resumed_is_shown_as_what_counts(name: str, tmp_path: Path) -> None:
    session_id = await resumed._undisturbed(name, tmp_path / "whole")
    await cut_and_shown(name, tmp_path / "whole", session_id, resumed._go_on, tmp_path)
