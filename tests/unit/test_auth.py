"""Who calls: tokens from a file, and what is wrong with one."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from zhin_host.errors import StartupError, Unauthorized
from zhin_host.http.auth import AllowAll, BearerTokens, parse_tokens
from zhin_host.ports import Principal

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
    assert parse_tokens(text, "tokens") == {"alice": ALICE, "bob": BOB}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("alice", "a name, a space and a token"),
        (f"alice {ALICE} # hers", "nothing else"),
        (f"bob {ALICE}", "the name 'bob' was there before"),
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
    for word in line.split()[1:2]:
        assert word not in str(refusal.value)


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
