"""The runner of the pages notices what it is there for: a page that does not say what happens."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import Block
from tests.docs.expected import is_as_shown
from tests.docs.shell import Shell, checkout_in, free_port
from tests.docs.story import Story

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with checkout_in(tmp_path) as folder, Shell(folder, free_port()) as shell:
        yield Story("page.md", folder, shell)


def sh(text: str) -> Block:
    return Block(1, "sh", "", text)


def test_what_is_printed_otherwise_than_shown_is_told(story: Story) -> None:
    story.tell(sh("echo one\necho two\n"), Block(2, "output", "", "one\ntwo\n"))
    with pytest.raises(AssertionError, match="printed"):
        story.tell(sh("echo one\n"), Block(2, "output", "", "two\n"))
    with pytest.raises(AssertionError, match="printed"):
        story.tell(sh("echo one\necho two\n"), Block(2, "output", "", "one\n"))


def test_a_command_that_fails_anywhere_in_a_block_is_told_unless_it_is_expected(story: Story) -> None:
    with pytest.raises(AssertionError, match="ended with 1: false"):
        story.tell(sh("false\ntrue\n"), None)
    story.tell(sh("false || true\n"), None)


def test_a_refused_request_is_told_unless_it_is_shown(story: Story) -> None:
    refused = '{"ok":false,"error":"FORBIDDEN","message":"No."}'
    with pytest.raises(AssertionError, match="FORBIDDEN"):
        story.tell(sh(f"echo '{refused}'\n"), None)
    story.tell(sh(f"echo '{refused}'\n"), Block(2, "json", "", refused + "\n"))


def test_a_program_that_raises_is_told(story: Story) -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        story.tell(Block(1, "python", "", "1 / 0\n"), None)


def test_output_that_nothing_has_printed_is_told(story: Story) -> None:
    with pytest.raises(AssertionError, match="nothing was run"):
        story.tell(Block(1, "output", "", "one\n"), None)


def test_json_that_is_none_is_told(story: Story) -> None:
    with pytest.raises(ValueError, match="Expecting"):
        story.tell(sh("echo '{…}'\n"), Block(2, "json", "", '{"a":…}\n'))


def test_variables_and_files_last_from_block_to_block(story: Story) -> None:
    story.tell(sh("name=notes\n"), None)
    story.tell(Block(1, "python", "notes.py", "print('kept')\n"), None)
    story.tell(sh("python $name.py\n"), Block(3, "output", "", "kept\n"))


def test_a_block_that_serves_is_a_terminal_of_its_own_and_takes_the_place_of_the_one_before(
    story: Story,
) -> None:
    story.tell(sh("zhin-host serve\n"), Block(2, "output", "", "Listening on …\n"))
    story.tell(sh("ZHIN_STREAMS_MAX=7 zhin-host serve\n"), Block(2, "output", "", "Listening on …\n"))
    story.tell(sh("curl -s $ZHIN_URL/zhin/v1/info | grep -o '\"streams_max\":7'\n"), None)


def test_a_host_that_does_not_start_is_told(story: Story) -> None:
    with pytest.raises(AssertionError, match="cannot be imported"):
        story.tell(sh("zhin-host serve --agent nowhere:agent\n"), None)


@pytest.mark.parametrize(
    ("shown", "printed", "is_same"),
    [
        ("ses_01m8mxgnfwywrk7gt2y8212aca", "ses_01m8mxhe8r10evet6sb83zheas", True),
        ("ses_01m8mxgnfwywrk7gt2y8212aca", "turn_01m8mxhe8r10evet6sb83zheas", False),
        ('{"timestamp":1,"name":2}', '{"timestamp":3,"name":2}', True),
        ('{"timestamp":1,"name":2}', '{"timestamp":1,"name":3}', False),
        ("a…z", "a b c z", True),
        ("a…z", "a\nz", False),
        ("a\n…\nz", "a\nb\nc\nz", True),
        ("a\n…\nz", "a\nb\nc", False),
        ("a", "a\nb", False),
        ("a.c", "abc", False),
    ],
)
def test_only_what_varies_may_differ(shown: str, printed: str, is_same: object) -> None:
    assert is_as_shown(shown, printed) is is_same
