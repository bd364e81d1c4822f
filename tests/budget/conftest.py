"""What the host's own functions are replaced by, to be counted."""

from __future__ import annotations

import orjson
import pytest

from tests.budget.counting import Calls
from zhin_host import events as ev
from zhin_host.fold import apply
from zhin_host.moves import check


@pytest.fixture
def encodes(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Every value made JSON beside lines: to see whether it fits one, or since orjson does not take it as it is."""
    counted = Calls(ev.json_bytes)
    monkeypatch.setattr(ev, "json_bytes", counted)
    return counted


@pytest.fixture
def dumps(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Every call of the JSON encoder, whoever makes it."""
    counted = Calls(orjson.dumps)
    monkeypatch.setattr(orjson, "dumps", counted)
    return counted


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Every call of the JSON parser."""
    counted = Calls(orjson.loads)
    monkeypatch.setattr(orjson, "loads", counted)
    return counted


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> tuple[Calls, Calls]:
    """The journal's folds and checks: a run of deltas is one of each."""
    folded, checked = Calls(apply), Calls(check)
    monkeypatch.setattr("zhin_host.journal.apply", folded)
    monkeypatch.setattr("zhin_host.journal.check", checked)
    return folded, checked
