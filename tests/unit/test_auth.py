"""Who calls: tokens from a file, and what is wrong with one."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from pathlib import Path
from typing import get_args

import pytest

from zhin_host.errors import Forbidden, StartupError, Unauthorized
from zhin_host.http.auth import AllowAll, BearerTokens, parse_tokens
from zhin_host.ports import Principal, Right

ALICE = "alice-0123456789abcdef"
BOB = "bob-0123456789abcdef"


@pytest.fixture
def tokens() -> BearerTokens:
    return BearerTokens({"alice": ALICE, "bob": BOB})


async def test_without_tokens_everybody_is_nobody() -> None:
    assert await AllowAll().authenticate({b"authorization": b"Bearer x"}) == Principal(None)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_a_token_says_who_calls(tokens: BearerTokens, scheme: str) -> None:
    assert await tokens.authenticate({b"authorization": f"{scheme} {BOB}".encode()}) == Principal("bob")


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer ",
        ALICE.encode(),
        b"Basic " + ALICE.encode(),
        b"Bearer " + ALICE.encode()[:-1],
        b"Bearer " + ALICE.encode() + b"x",
        b"Bearer " + ALICE.upper().encode(),
        b"Bearer " + ALICE.encode() + b"," + BOB.encode(),
        b"Bearer \xff\xfe",
        b"Bearer " + b"x" * 100_000,
    ],
)
async def test_anything_else_is_unauthorized_without_saying_what_was_sent(
    tokens: BearerTokens, header: bytes | None
) -> None:
    with pytest.raises(Unauthorized) as refusal:
        await tokens.authenticate({} if header is None else {b"authorization": header})
    assert ALICE[:-1] not in str(refusal.value)


def test_a_token_file_has_a_name_and_a_token_a_line(tmp_path: Path) -> None:
    text = f"# who may call\n\nalice {ALICE}\n   bob\t{BOB}  \r\n#carol {ALICE}\n"
    assert parse_tokens(text, "tokens") == {ALICE: Principal("alice"), BOB: Principal("bob")}


def test_a_third_column_says_what_a_token_is_good_for() -> None:
    text = f"alice {ALICE} read,approve\nbob {BOB} admin\nalice {ALICE}-2 write\n"
    assert parse_tokens(text, "tokens") == {
        ALICE: Principal("alice", frozenset({"read", "approve"})),
        BOB: Principal("bob", frozenset({"admin"})),
        f"{ALICE}-2": Principal("alice", frozenset({"write"})),
    }


async def test_one_name_may_have_tokens_with_scopes_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"alice {ALICE}\nalice {BOB} read\n")
    path.chmod(0o600)
    tokens = BearerTokens.from_file(path)
    everything = await tokens.authenticate({b"authorization": b"Bearer " + ALICE.encode()})
    reading = await tokens.authenticate({b"authorization": b"Bearer " + BOB.encode()})
    assert (everything, reading) == (Principal("alice"), Principal("alice", frozenset({"read"})))


@pytest.mark.parametrize(
    ("scopes", "own", "all_of_them"),
    [
        ("read", {"read"}, set()),
        ("write", {"write"}, set()),
        ("approve", {"approve"}, set()),
        ("read,write,approve", {"read", "write", "approve"}, set()),
        ("read:all", {"read"}, {"read"}),
        ("read,approve:all", {"read", "approve"}, {"approve"}),
        ("admin", {"read", "write", "approve"}, {"read", "write", "approve"}),
        ("read,admin", {"read", "write", "approve"}, {"read", "write", "approve"}),
        ("", set(), set()),
    ],
)
def test_a_scope_reaches_as_far_as_it_says_and_more_scopes_never_take_away(
    scopes: str, own: set[Right], all_of_them: set[Right]
) -> None:
    who = Principal("alice", frozenset(scopes.split(",") if scopes else ()))
    for right in get_args(Right):
        assert who.reaches(right, "alice") == (right in own)
        assert who.reaches(right, "bob") == who.reaches(right, None) == (right in all_of_them)
        with nullcontext() if right in own else pytest.raises(Forbidden, match=f"scope {right},"):
            who.check(right)


@pytest.mark.parametrize("name", ["", "a" * 201, "a\nb", "\ud800", "\u202e"])
def test_a_principal_has_a_name_that_may_stand_in_a_log(name: str) -> None:
    with pytest.raises(ValueError, match="printable"):
        Principal(name)


def test_a_principal_has_no_scope_that_means_nothing() -> None:
    with pytest.raises(ValueError, match="'root'"):
        Principal("alice", frozenset({"read", "root"}))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("alice", "a name, a space and a token"),
        (f"alice {ALICE} read # hers", "nothing else"),
        (f"alice {ALICE} #", "the scopes are of read, write"),
        (f"alice {ALICE} read,", "the scopes are of read, write"),
        (f"alice {ALICE} read,Write", "the scopes are of read, write"),
        (f"alice read {ALICE}", "under 16 characters"),
        (f"\x07alice {ALICE}", "printable"),
        (f"bob {ALICE}", "the name 'bob' was there before; a further token of it says its scopes"),
        ("alice 123456789012345", "under 16 characters"),
        (f"alice {BOB}", "another one's too"),
        ("alice 0123456789abcdéf", "visible ASCII"),
    ],
)
def test_a_wrong_line_stops_the_start_and_is_named_without_its_token(line: str, sentence: str) -> None:
    text = f"bob {BOB}\n\n{line}\n"
    with pytest.raises(StartupError, match=sentence) as refusal:
        parse_tokens(text, "tokens")
    assert "tokens, line 3:" in str(refusal.value)
    for token in (ALICE, BOB, "0123456789"):
        assert token not in str(refusal.value)


def test_a_file_that_names_nobody_stops_the_start() -> None:
    with pytest.raises(StartupError, match="names nobody"):
        parse_tokens("# nobody yet\n", "tokens")


async def test_a_file_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"alice {ALICE}\n")
    path.chmod(0o600)
    tokens = BearerTokens.from_file(path)
    assert await tokens.authenticate({b"authorization": b"Bearer " + ALICE.encode()}) == Principal("alice")
    assert caplog.records == []


def test_a_file_that_others_may_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"alice {ALICE}\n")
    path.chmod(0o640)
    with caplog.at_level(logging.WARNING):
        BearerTokens.from_file(path)
    assert "chmod 600" in caplog.text
    assert ALICE not in caplog.text


def test_a_file_that_cannot_be_read_stops_the_start_and_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"alice \xff\xfe\n")
    large = tmp_path / "large"
    large.write_bytes(b"#" * (1 << 20) + b"\n")
    for path, sentence in [
        (tmp_path / "missing", "No such file"),
        (tmp_path, "directory"),
        (binary, "UTF-8"),
        (large, "over"),
    ]:
        with pytest.raises(StartupError, match=sentence) as refusal:
            BearerTokens.from_file(path)
        assert str(path) in str(refusal.value)
