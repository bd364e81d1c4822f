"""What must never be written: found in whole values, and in text however it is cut into pieces."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zhin_host.config import Config, from_environment
from zhin_host.errors import StartupError
from zhin_host.redaction import HELD_MAX, MARK, HeldText, Redactor, redactor_of

BODY = "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xYz0"
KEYS = {
    "bearer": "Bearer abc123DEF456._~+/-==",
    "bearer in lower case": "bearer 0123456789abcdef",
    "OpenAI": "sk-proj-" + BODY,
    "GitHub": "ghp_" + BODY,
    "GitHub, of an app": "ghs_" + BODY,
    "GitHub, fine-grained": "github_pat_11A_" + BODY,
    "GitLab": "glpat-_" + BODY,
    "AWS": "AKIA" + "IOSFODNN7EXAMPLE",
    "AWS, for a time": "ASIA" + "IOSFODNN7EXAMPLE",
    "Google": "AIza_-q" + BODY,
    "Slack": "xoxb-" + "123456789012-abcDEF",
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl-_x",
    "JWE": "eyJhbGciOiJSU0EifQ.a2V5.aXY.Y2lwaGVy.dGFn",
    "PEM": "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBg+/kq\n" * 26 + "-----END PRIVATE KEY-----",
    "PEM of a kind": "-----BEGIN RSA PRIVATE KEY-----\\nMIIE\\n-----END RSA PRIVATE KEY-----",
    "PGP": "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: x\n\nabc=\n-----END PGP PRIVATE KEY BLOCK-----",
    "a PEM that has no end": "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE",
}
ORDINARY = [
    "",
    "s",
    "The bearer of good news, and a bearer internationalization.",
    "task-management-systems-of-the-world and a desk-1234567890123456",
    "eyJhbGciOiJIUzI1NiJ9 is half a token, eyJhbGciOiJIUzI1NiJ9.too",
    "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
    "AKIA is a prefix; sk- too, and ghp_ and xoxb-.",
    "ses_01jdq3v2k0000000000000000z req_01jdq3v2k0000000000000000z_0123456789abcdefghjkmnpqrs zhin:0123456789abcdef",
    f"{MARK}, said already",
]
DEFAULT = redactor_of(())


@pytest.mark.parametrize("kind", KEYS)
def test_a_common_key_is_replaced_as_a_whole_and_what_stands_around_it_is_not(kind: str) -> None:
    key = KEYS[kind]
    ending = "" if kind == "a PEM that has no end" else ", and\n"
    assert DEFAULT.text(f"My key: {key}{ending}") == f"My key: {MARK}{ending}"
    assert DEFAULT.text(f'"{key}') == f'"{MARK}'
    assert DEFAULT.text(f"a\\n{key}") == f"a\\n{MARK}"


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert DEFAULT.text(text) == text
    assert _in_pieces(DEFAULT, [*text]) == text


def test_two_keys_without_anything_between_are_both_replaced() -> None:
    text = KEYS["AWS"] + KEYS["GitHub"]
    assert DEFAULT.text(text) == _in_pieces(DEFAULT, [*text]) == MARK * 2


# -- whole values ----------------------------------------------------------------------------------------------


def test_every_string_of_a_value_is_looked_at_and_nothing_else_changes() -> None:
    key = KEYS["GitHub"]
    value = {"a": [1, None, True, 1.5, f"x {key}"], key: {"b": key}, "c": "fine"}
    assert DEFAULT.form(value) == {"a": [1, None, True, 1.5, f"x {MARK}"], MARK: {"b": MARK}, "c": "fine"}
    assert value[key] == {"b": key}  # the value that was given is not touched
    assert DEFAULT.form(key) == MARK


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "x", [], {}, {"a": [{"b": "sk-"}]}])
def test_a_value_in_which_nothing_is_found_is_the_same_one(value: Any) -> None:
    assert DEFAULT.form(value) is value


def test_no_two_keys_of_an_object_become_one() -> None:
    first, second, third = (f"ghp_{letter * 20}" for letter in "abc")
    form = DEFAULT.form({f"{MARK}": 0, first: 1, f"{MARK}2": 2, second: 3, third: 4})
    assert sorted(form.values()) == [0, 1, 2, 3, 4]
    assert DEFAULT.form(form) is form


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(max_size=9)
    | st.sampled_from([*KEYS.values(), *ORDINARY]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.sampled_from([*KEYS.values()]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_values)
def test_redacting_twice_changes_nothing_more_and_hides_every_key(value: Any) -> None:
    form = DEFAULT.form(value)
    assert DEFAULT.form(form) is form
    written = orjson.dumps(form).decode()
    for key in KEYS.values():
        assert orjson.dumps(key).decode()[1:-1] not in written
    assert written.count("bearer of good news") == orjson.dumps(value).decode().count("bearer of good news")


# -- pieces ----------------------------------------------------------------------------------------------------


def _in_pieces(redactor: Redactor, pieces: list[str]) -> str:
    held = HeldText(redactor)
    return "".join([*[held.add(piece) for piece in pieces], held.flush()])


fragments = st.sampled_from(
    [
        *KEYS.values(),
        *(key[:9] for key in KEYS.values()),
        "s",
        "sk-",
        "-",
        " ",
        "\n",
        "é",
        "gh",
        ".",
        "[",
        MARK,
    ]
)
texts = st.lists(fragments | st.text(max_size=6), max_size=8).map("".join)


@st.composite
def split_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    text = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return text, [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@settings(max_examples=200)
@given(split_texts())
def test_text_in_pieces_is_redacted_as_if_it_had_come_as_one(split: tuple[str, list[str]]) -> None:
    text, pieces = split
    assert _in_pieces(DEFAULT, pieces) == DEFAULT.text(text)


@settings(max_examples=200)
@given(split_texts(), st.integers(0, 12))
def test_of_a_key_that_a_flush_cuts_only_what_was_told_before_is_told(
    split: tuple[str, list[str]], at: int
) -> None:
    text, pieces = split
    held = HeldText(DEFAULT)
    told = [held.add(piece) for piece in pieces[:at]]
    told.append(held.flush())
    assert not held
    told += [held.add(piece) for piece in pieces[at:]]
    told.append(held.flush())
    whole, hidden = "".join(told), DEFAULT.text(text)
    for key in KEYS.values():
        assert key[-8:] not in whole or key[-8:] in hidden


def test_a_key_is_held_from_its_first_character_and_nothing_else_is() -> None:
    held = HeldText(DEFAULT)
    assert held.add("The words") == "The words"
    assert held.add(" of a s") == " of a "
    assert held.add("ong") == "song"
    assert held.add(", s") == ", "
    assert held.add("k") == ""
    assert held.add(f"-{'x' * 30}") == ""
    assert bool(held)
    assert held.add(". ") == f"{MARK}. "
    assert not held
    assert held.flush() == ""


def test_what_a_flush_told_of_a_key_is_not_told_again_and_its_rest_never() -> None:
    held = HeldText(DEFAULT)
    key = KEYS["OpenAI"]
    assert held.add(key[:7]) + held.flush() == key[:7]
    assert held.add(key[7:]) == ""
    assert held.flush() == MARK
    assert held.add("moreofit") + held.flush() == ""
    assert held.add(" end") == " end"
    assert held.add(f" {key[:7]}") + held.flush() == f" {key[:7]}"
    assert held.add("! No key.") == "! No key."


def test_what_is_skipped_counts_as_told() -> None:
    held = HeldText(DEFAULT)
    held.skip(f"It is {KEYS['OpenAI'][:7]}")
    assert held.add(f"{KEYS['OpenAI'][7:]}.") == f"{MARK}."


def test_a_beginning_that_is_too_long_is_told_and_the_key_that_it_becomes_is_not() -> None:
    held = HeldText(DEFAULT)
    head = "eyJ" + "a" * 400
    told = held.add(head)
    assert told == head[: len(head) - HELD_MAX]
    assert held.add(".cGF5bG9hZA.c2ln") == ""
    assert held.add(" end") == f"{MARK} end"


@pytest.mark.parametrize("size", [10, 1_000, 70_000])
def test_a_candidate_that_never_ends_is_bounded(size: int) -> None:
    endless, key = "eyJ" + "a" * 40, "sk-" + "x" * 40
    for begins, is_key in [(endless, False), (key, True)]:
        held = HeldText(DEFAULT)
        told = held.add(begins)
        for _ in range(200_000 // size):
            told += held.add("a" * size)
            assert len(held._text) < 300_000
        told += held.flush()
        if is_key:
            assert told.startswith(MARK)
            assert len(told) < 200_000
        else:
            assert told == begins + "a" * (200_000 // size * size)


def test_a_long_key_in_many_pieces_does_not_take_for_ever() -> None:
    held, key = HeldText(DEFAULT), KEYS["PEM"].replace("MIIE", "MIIE" * 100)
    began = time.perf_counter()
    told = "".join(held.add(character) for character in key) + held.flush()
    assert told == MARK
    assert time.perf_counter() - began < 20


# -- settings --------------------------------------------------------------------------------------------------


def test_off_looks_for_nothing() -> None:
    nothing = redactor_of(("off",))
    assert not nothing.is_on
    for key in KEYS.values():
        assert nothing.text(key) is key
        assert nothing.form([key]) == [key]
        assert _in_pieces(nothing, [*key]) == key
    assert HeldText(nothing).flush() == ""


def test_ones_own_patterns_are_looked_for_beside_those_of_keys_or_instead() -> None:
    text = f"hunter22 and {KEYS['AWS']}"
    assert redactor_of(("hunter[0-9]+",)).text(text) == f"{MARK} and {MARK}"
    assert redactor_of(("off", "hunter[0-9]+")).text(text) == f"{MARK} and {KEYS['AWS']}"


OWN = (
    r"(['\"])secret\1",
    r"(?i)passw(or)d\1?=\S+",
    r"(?x) pin \s* : \s* [0-9]{4} # four digits",
    r"(?P<n>a)b(?P=n)z",
    r"(?<=id )\d{3}-\d{2}",
    r"\bcustomer-\d+",
    r"(?=looking)",
    r"é{3}x",
)


def test_patterns_of_ones_own_do_not_get_into_each_others_way() -> None:
    own = redactor_of(OWN)
    text = (
        "'secret' \"secret\" 'secret\" PASSWORDor=x pin: 1234 abaz id 123-45 xid 9 customer-77 looking éééx"
    )
    hidden = f"{MARK} {MARK} 'secret\" {MARK} {MARK} {MARK} id {MARK} xid 9 {MARK} looking {MARK}"
    assert own.text(text) == hidden
    assert _in_pieces(own, [*text]) == hidden
    for size in range(2, 12):
        assert _in_pieces(own, [text[at : at + size] for at in range(0, len(text), size)]) == hidden


def test_a_pattern_that_finds_what_stands_for_what_was_found_ends_all_the_same() -> None:
    letters = redactor_of(("off", r"\w+"))
    assert letters.text("a b") == f"{MARK} {MARK}"
    assert letters.text(f"{MARK} c {MARK}") == f"{MARK} {MARK} {MARK}"
    chain = redactor_of(("off", r"a(?=\[redacted\])|z"))
    assert chain.text(f"b{'a' * 20}z") == f"b{MARK * 21}"
    wide = redactor_of(("off", r"x.{20,}y|\w+"))
    assert _in_pieces(wide, [f"x {MARK}"]) == wide.text(f"x {MARK}") == f"{MARK} {MARK}"
    around = redactor_of(("off", "x.*y|z"))
    once = around.text("x z z z y x z")
    assert around.text(once) == once


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("(", "no regular expression"),
        ("[a", "no regular expression"),
        ("x*", "the empty text"),
        ("", "the empty text"),
    ],
)
def test_a_pattern_that_cannot_be_one_stops_the_start_and_is_not_told(pattern: str, sentence: str) -> None:
    with pytest.raises(StartupError, match=f"Pattern 2 of redact .*{sentence}"):
        Redactor(("hunter2", pattern))


@pytest.mark.parametrize("given", ["off", 1, None, [1], {"a": "b"}])
def test_the_setting_is_a_list_of_patterns(given: Any) -> None:
    with pytest.raises(StartupError, match="redact is a list"):
        Config(redact=given)


def test_patterns_stand_one_a_line_in_the_environment_and_flags_come_before_it() -> None:
    environment = {"ZHIN_REDACT": "hunter[0-9]\n\n(?i)pin\n"}
    assert from_environment(environment, redact=()).redact == ("hunter[0-9]", "(?i)pin")
    assert from_environment(environment, redact=("off",)).redact == ("off",)
    assert from_environment({}, redact=()).redact == Config().redact == ()
