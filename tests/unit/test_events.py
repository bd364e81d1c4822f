"""events: JSON forms, the line codec and the chain."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import enum
import hashlib
import json
import math
import pathlib
import uuid
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhin_host import events as ev
from zhin_host.errors import EventTooLarge, Unserializable

SESSION = "ses_01jdq3v2k0000000000000000a"
START = ev.chain_start(SESSION)
LIMIT = 1 << 20


@dataclass
class Point:
    x: int
    y: list[decimal.Decimal]


@dataclass(frozen=True, slots=True)
class Slotted:
    when: dt.datetime
    raw: bytes


class Colour(enum.Enum):
    RED = "red"
    NUMBER = 2**70


class Number(enum.IntEnum):
    ONE = 1


class Name(enum.StrEnum):
    ADA = "ada"


class Model:
    """Looks like a Pydantic model."""

    def model_dump(self, *, mode: str) -> dict[str, object]:
        return {"mode": mode, "size": 2**64}


class Text(str):
    __slots__ = ()


FORMS: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (0, 0),
    (-(2**63), -(2**63)),
    (2**64 - 1, 2**64 - 1),
    (2**64, str(2**64)),
    (-(2**63) - 1, str(-(2**63) - 1)),
    (2**200, str(2**200)),
    (1.5, 1.5),
    (math.nan, None),
    (math.inf, None),
    (-math.inf, None),
    ("text", "text"),
    ("\ud800", "\ufffd"),
    ("a\udc00b\ud83d", "a\ufffdb\ufffd"),
    ("\ud83d\ude00", "\U0001f600"),
    (Text("plain"), "plain"),
    (Text("\ud800"), "\ufffd"),
    (decimal.Decimal("1.10"), "1.10"),
    (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    (pathlib.PurePosixPath("/a/b"), "/a/b"),
    (dt.datetime(2025, 1, 2, 3, 4, 5, tzinfo=dt.UTC), "2025-01-02T03:04:05+00:00"),
    (dt.date(2025, 1, 2), "2025-01-02"),
    (dt.time(3, 4, 5), "03:04:05"),
    (b"\x00\xff", base64.b64encode(b"\x00\xff").decode()),
    (bytearray(b"ab"), "YWI="),
    (memoryview(b"ab"), "YWI="),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset({"b", "a"}), ["a", "b"]),
    ({2**64, 5}, [str(2**64), 5]),
    ((1, (2, 3)), [1, [2, 3]]),
    (Colour.RED, "red"),
    (Colour.NUMBER, str(2**70)),
    (Number.ONE, 1),
    (Name.ADA, "ada"),
    (Point(1, [decimal.Decimal("2.5")]), {"x": 1, "y": ["2.5"]}),
    (Point(2**64, []), {"x": str(2**64), "y": []}),
    (Slotted(dt.datetime(2025, 1, 2), b"a"), {"when": "2025-01-02T00:00:00", "raw": "YQ=="}),  # noqa: DTZ001
    (Model(), {"mode": "json", "size": str(2**64)}),
    ({1: "a", None: "b", 1.5: "d"}, {"1": "a", "null": "b", "1.5": "d"}),
    ({"\ud800": 2**64}, {"\ufffd": str(2**64)}),
    ({"a": [{"b": (b"x", {b"y"})}]}, {"a": [{"b": ["eA==", ["eQ=="]]}]}),
    ("\u2028\u2029\u0085", "\u2028\u2029\u0085"),
]
FORM_IDS = [f"{number}-{type(value).__name__}" for number, (value, _) in enumerate(FORMS)]


@pytest.mark.parametrize(("value", "form"), FORMS, ids=FORM_IDS)
def test_a_value_has_one_documented_form(value: Any, form: Any) -> None:
    assert ev.json_form(value) == form
    assert json.loads(ev.json_bytes(value), parse_constant=pytest.fail) == form


@pytest.mark.parametrize(("value", "form"), FORMS, ids=FORM_IDS)
def test_a_form_is_its_own_form_wherever_it_stands(value: Any, form: Any) -> None:
    assert ev.json_form({"deep": [value, "\ud800"]}) == {"deep": [form, "\ufffd"]}
    assert ev.json_form(form) == form


@pytest.mark.parametrize("value", [object(), len, Point, 1j, {"a": [object()]}, {(1, 2): 3}, {1: 2, "1": 3}])
def test_a_value_without_a_form_is_refused_and_named(value: Any) -> None:
    with pytest.raises(Unserializable) as refused:
        ev.json_bytes(value)
    assert str(refused.value)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Unserializable, match="nested deeper"):
        ev.json_bytes(loop)


@pytest.mark.parametrize("depth", [150, 300, 5000])
def test_a_deep_value_is_either_read_back_or_refused(depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    try:
        raw = ev.json_bytes(value)
    except Unserializable:
        return
    assert orjson.loads(raw) == value


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_what_line_readers_split_on_is_escaped_in_keys_and_values(separator: str) -> None:
    value = {f"a{separator}b": [f"{separator}{separator}", "\u0100\u0185\u2027\u202a"]}
    raw = ev.json_bytes(value)
    assert len(raw.decode().splitlines()) == 1
    assert orjson.loads(raw) == value


@pytest.mark.parametrize(
    ("text", "form"),
    [("a\ud83d\ude00b", "a\U0001f600b"), ("\ude00\ud83d", "\ufffd\ufffd"), ("plain", "plain")],
)
def test_surrogates_become_their_character_or_the_replacement(text: str, form: str) -> None:
    assert ev.text_form(text) == form


# -- lines -----------------------------------------------------------------------------------------------------------


def test_a_line_has_its_keys_in_order_and_ends_with_its_sum() -> None:
    line, link = ev.encode_line(7, "step.started", 1764428400123, {"a": 1}, START, LIMIT)
    payload = b'{"index":7,"type":"step.started","timestamp":1764428400123,"data":{"a":1}'
    expected = base64.urlsafe_b64encode(hashlib.sha256(SESSION.encode() + payload).digest()).rstrip(b"=")
    assert (line, link) == (payload + b',"sum":"' + expected + b'"}\n', expected)


def test_a_line_is_read_back_as_the_event_it_was() -> None:
    line, link = ev.encode_line(0, "x.note", 5, {"text": 'a","sum":"b"}'}, START, LIMIT)
    event = ev.decode_line(line[:-1], START)
    assert event == ev.Event(0, "x.note", 5, {"text": 'a","sum":"b"}'}, link)


def test_the_payload_ends_before_the_last_sum() -> None:
    line, link = ev.encode_line(0, "x.note", 5, {"a": ',"sum":"'}, START, LIMIT)
    assert ev.payload_of(line[:-1]) == line[: line.rindex(b',"sum":')]
    assert ev.chain(START, ev.payload_of(line[:-1])) == link


def test_any_changed_byte_is_found() -> None:
    line, _ = ev.encode_line(3, "message.appended", 1764428400123, {"messageDelta": "abc"}, START, LIMIT)
    whole = line[:-1]
    for at in range(len(whole)):
        damaged = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        with pytest.raises(ValueError, match=r"whole|chain"):
            ev.decode_line(damaged, START)


def test_a_line_cut_short_anywhere_is_not_whole() -> None:
    line, _ = ev.encode_line(3, "message.appended", 1764428400123, {"messageDelta": "ab\ncd"}, START, LIMIT)
    for size in range(len(line) - 1):
        with pytest.raises(ValueError, match="whole"):
            ev.decode_line(line[:size], START)


def test_a_line_after_another_line_does_not_fit() -> None:
    line, _ = ev.encode_line(0, "x.a", 1, {}, START, LIMIT)
    with pytest.raises(ValueError, match="chain"):
        ev.decode_line(line[:-1], ev.chain_start("ses_another"))


@pytest.mark.parametrize(
    "data", [b'{"a":NaN}', b'{"a":1,}', b'{"a":"\xff"}', b'{"a":"\\ud800"}', b"{" * 2000 + b"}" * 2000]
)
def test_data_that_is_not_json_is_said_to_be_so(data: bytes) -> None:
    payload = b'{"index":0,"type":"x.a","timestamp":1,"data":' + data
    line = payload + b',"sum":"' + ev.chain(START, payload) + b'"}'
    with pytest.raises(ValueError, match="JSON"):
        ev.decode_line(line, START)


def test_a_line_over_the_limit_is_refused_and_one_at_it_is_not() -> None:
    line, _ = ev.encode_line(0, "x.a", 1, {"a": "b" * 500}, START, LIMIT)
    assert ev.encode_line(0, "x.a", 1, {"a": "b" * 500}, START, len(line))[0] == line
    with pytest.raises(EventTooLarge) as refused:
        ev.encode_line(0, "x.a", 1, {"a": "b" * 500}, START, len(line) - 1)
    assert refused.value.size_bytes == len(line)


@pytest.mark.parametrize(
    ("kind", "is_own"),
    [
        ("x.a", True),
        ("x.A-b_c.9", True),
        ("x." + "a" * 64, True),
        ("x." + "a" * 65, False),
        ("x.", False),
        ("x.a b", False),
        ("y.a", False),
        ("x.a\n", False),
        ("step.started", False),
    ],
)
def test_own_types_begin_with_x_and_are_short_and_plain(kind: str, is_own: bool) -> None:  # noqa: FBT001
    assert ev.is_own_type(kind) is is_own


def test_every_type_says_what_it_requires() -> None:
    assert set(ev.REQUIRED) == set(ev.VOCABULARY)
    assert ev.REQUIRED[ev.TURN_FAILED] == ("turnId", "code", "message", "recoverable")
    assert set(ev.TURN_ENDS | ev.SESSION_ENDS | ev.REQUESTS | ev.ANSWERS) <= set(ev.VOCABULARY)


def test_a_digest_names_its_kind() -> None:
    assert ev.digest(b"{}") == "sha256:" + hashlib.sha256(b"{}").hexdigest()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(codec=None, exclude_categories=()))
    | st.binary()
    | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.integers(0, 10**14), st.integers(1, 10**14))
def test_whatever_is_written_is_read_back_in_its_form(
    data: dict[str, Any], index: int, timestamp_ms: int
) -> None:
    line, link = ev.encode_line(index, "x.any", timestamp_ms, data, START, LIMIT)
    assert line.count(b"\n") == 1
    assert len(line.decode().splitlines()) == 1
    event = ev.decode_line(line[:-1], START)
    assert (event.index, event.timestamp_ms, event.sum) == (index, timestamp_ms, link)
    assert event.data == ev.json_form(data)
    again, _ = ev.encode_line(index, "x.any", timestamp_ms, event.data, START, LIMIT)
    assert ev.decode_line(again[:-1], START).data == event.data
