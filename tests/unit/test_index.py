"""index: the ids of every session, by age and by the key they were made with."""

from __future__ import annotations

from tests.builders import session_id_of
from zhin_host.clock import SessionId
from zhin_host.index import LOOKED_AT_MAX, SessionIndex, name_of_key

IDS = [session_id_of(number) for number in range(1, 6)]


def test_ids_are_listed_from_the_newest_back() -> None:
    index = SessionIndex()
    index.fill(IDS[:3])
    index.add(IDS[4])
    index.add(IDS[3])
    assert index.before(None) == IDS[::-1]
    assert index.before(IDS[2]) == [IDS[1], IDS[0]]
    assert index.before(IDS[0]) == []
    assert len(index) == 5


def test_a_page_of_ids_is_bounded() -> None:
    index = SessionIndex()
    index.fill(session_id_of(number) for number in range(LOOKED_AT_MAX + 10))
    assert len(index.before(None)) == LOOKED_AT_MAX


def test_an_id_is_there_until_it_is_discarded() -> None:
    index = SessionIndex()
    index.fill(IDS)
    assert IDS[2] in index
    index.discard(IDS[2])
    index.discard(IDS[2])
    assert IDS[2] not in index
    assert len(index) == 4


def test_a_session_is_found_by_the_end_of_its_id_and_the_newest_one_when_there_are_two() -> None:
    name = name_of_key(None, "POST /zhin/v1/session", "k1")
    old, new = SessionId("ses_" + "0" * 10 + name), SessionId("ses_" + "1" * 10 + name)
    index = SessionIndex()
    index.fill([old])
    assert index.keyed(name) == old
    index.add(new)
    assert index.keyed(name) == new
    index.discard(old)
    assert index.keyed(name) == new
    index.discard(new)
    assert index.keyed(name) is None


def test_a_keys_name_is_of_its_caller_and_its_route() -> None:
    names = {
        name_of_key(caller, route, key)
        for caller in (None, "ann", "bob")
        for route in ("POST /zhin/v1/session", "POST /zhin/v1/session/x")
        for key in ("k1", "k2")
    }
    assert len(names) == 12
    assert {len(name) for name in names} == {16}
