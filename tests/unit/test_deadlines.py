"""Deadlines: who is due, the earliest first, once."""

from __future__ import annotations

from tests.builders import session_id_of
from zhin_host.deadlines import Deadlines


def test_the_due_are_named_once_and_the_earliest_first() -> None:
    deadlines = Deadlines()
    for number, at_ms in ((1, 300), (2, 100), (3, 200), (4, 400), (2, 250)):
        deadlines.add(session_id_of(number), at_ms)
    assert deadlines.take_due(99) == []
    assert deadlines.take_due(250) == [session_id_of(2), session_id_of(3), session_id_of(2)]
    assert deadlines.take_due(250) == []
    assert deadlines.take_due(1_000) == [session_id_of(1), session_id_of(4)]


def test_what_never_expires_is_never_due() -> None:
    deadlines = Deadlines()
    deadlines.add(session_id_of(1), 0)
    assert deadlines.take_due(1 << 60) == []
