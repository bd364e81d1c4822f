"""The page about the AI SDK and its example, run as a reader would, with the packages of the lock file."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.docs.blocks import DOCS, OUTPUTS, ROOT, SHELL, Block, blocks_of
from tests.docs.shell import Shell, checkout_in, free_port
from tests.docs.story import Story
from tests.e2e.process import Host
from tests.protocols import javascript
from zhin_host.events import VOCABULARY

PAGE: Final = "ai-sdk.md"
EXAMPLE: Final = "ai_sdk_chat.mjs"

pytestmark = pytest.mark.timeout(120)  # several processes


def test_a_reader_who_follows_the_page_gets_what_it_shows(tmp_path: Path) -> None:
    blocks = blocks_of(PAGE)
    with checkout_in(tmp_path) as folder, Shell(folder, free_port()) as shell:
        (folder / "node_modules").symlink_to(javascript.FOLDER / "node_modules")
        story = Story(PAGE, folder, shell)
        story.tell(Block(0, SHELL, "", f'PATH="{javascript.NODE.parent}:$PATH"'), None)
        for block, after in zip(blocks, [*blocks[1:], None], strict=True):
            story.tell(block, after if after is not None and after.language in OUTPUTS else None)
    assert "Traceback" not in (folder / "data" / "host.log").read_text()


def test_the_page_says_of_every_event_what_becomes_of_it() -> None:
    page = (DOCS / PAGE).read_text()
    assert [kind for kind in VOCABULARY if kind not in page] == []


def chatted(folder: Path, host: Host, typed: str) -> str:
    """What the example prints for what a person types."""
    done = subprocess.run(
        [str(javascript.NODE), folder / EXAMPLE, "c"],
        env={"CHAT_API": f"{host.url}/ai-sdk/demo"},
        input=typed,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_chats_and_goes_on_after_its_end_and_the_hosts(tmp_path: Path, data_dir: Path) -> None:
    (tmp_path / "node_modules").symlink_to(javascript.FOLDER / "node_modules")
    (tmp_path / EXAMPLE).write_text((ROOT / "examples" / EXAMPLE).read_text())
    serve = ("--protocol", "ai-sdk", "--data-dir", data_dir)
    with Host(tmp_path, *serve) as host:
        first = chatted(tmp_path, host, "write a note tea: green\n")
        assert first.endswith('Allow write_note? {"name":"tea","text":"green"} (y/n) ')
        host.kill()
    with Host(tmp_path, *serve) as host:
        second = chatted(tmp_path, host, "y\nask me something\ntea\n")
    assert "[write_note: output-available]\nassistant: Done." in second
    assert "Which do you like best? tea, coffee, water: " in second
    assert second.endswith("assistant: Then tea it is.\n> ")
