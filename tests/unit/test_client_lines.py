"""Lines are split at 0x0A and nowhere else, wherever the network cut them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import LogBuilder
from zhin_host.client.lines import Lines, LineTooLong


@settings(deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=20))
def test_bytes_cut_anywhere_give_the_same_lines(content: bytes, cuts: list[int]) -> None:
    at = [0, *sorted(cut for cut in cuts if cut <= len(content)), len(content)]
    lines = Lines()
    got = [line for start, end in itertools.pairwise(at) for line in lines.feed(content[start:end])]
    *whole, rest = content.split(b"\n")
    assert got == whole
    assert lines.has_part == bool(rest)


@settings(deadline=None)
@given(st.lists(st.text(), max_size=8), st.integers(1, 7))
def test_no_cut_within_a_character_changes_a_line(texts: list[str], size_bytes: int) -> None:
    wanted = [text.encode("utf-8", "replace").replace(b"\n", b"") for text in texts]
    content = b"".join(line + b"\n" for line in wanted)
    lines = Lines()
    parts = [content[at : at + size_bytes] for at in range(0, len(content), size_bytes)]
    assert [line for part in parts for line in lines.feed(part)] == wanted


def test_what_other_line_readers_split_on_stays_within_its_line() -> None:
    raw = "a\r\u2028b\u2029c\u0085d\x0b\x0ce".encode()
    assert Lines().feed(raw + b"\n") == [raw]


def test_a_heartbeat_is_an_empty_line() -> None:
    assert Lines().feed(b"\n{}\n\n") == [b"", b"{}", b""]


def test_a_line_of_twenty_megabytes_comes_whole_in_small_parts() -> None:
    lines, part = Lines(), b"x" * 65_536
    for _ in range(320):
        assert lines.feed(part) == []
    assert lines.feed(b"\n") == [part * 320]


def test_a_line_without_end_is_refused_at_the_bound() -> None:
    lines = Lines(line_bytes_max=100)
    assert lines.feed(b"x" * 100) == []
    with pytest.raises(LineTooLong):
        lines.feed(b"x")


def test_every_line_of_a_log_cut_at_every_byte_is_one_line() -> None:
    content = LogBuilder().start("é€😀").say("ü").finish("ü").content
    for cut in range(len(content)):
        lines = Lines()
        assert lines.feed(content[:cut]) + lines.feed(content[cut:]) == content.split(b"\n")[:-1]
