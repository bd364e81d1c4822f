"""The page about AG-UI and its example: what they show is what happens."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast

import pytest

from tests.docs.blocks import DOCS, ROOT, blocks_of
from tests.docs.expected import is_as_shown
from tests.docs.shell import PORT
from tests.e2e.process import DEADLINE_S, Host
from tests.protocols import javascript
from tests.protocols.front import EXAMPLE, folder_in
from zhin_host import events as ev
from zhin_host.http.door import CONVERSATION_BODIES, Door
from zhin_host.protocols.ag_ui.routes import AgUi

pytestmark = pytest.mark.timeout(120)  # several processes

PAGE: Final = "ag-ui.md"
_TYPES: Final = [
    value
    for name, value in vars(ev).items()
    if name.isupper() and isinstance(value, str) and re.fullmatch(r"[a-z]+\.[a-z]+", value)
]


def serving(tmp_path: Path, data_dir: Path) -> Host:
    """The host that the page's block of shell starts."""
    [block] = [block for block in blocks_of(PAGE) if block.language == "sh"]
    command, serve, *arguments = shlex.split(block.text)
    assert (command, serve) == ("zhin-host", "serve")
    return Host(tmp_path, *arguments, "--data-dir", data_dir, ZHIN_DEMO_WORKSPACE=str(tmp_path / "notes"))


def node(folder: Path, *arguments: str, said: str = "") -> str:
    """What a script prints that was told this."""
    done = subprocess.run(
        [str(javascript.NODE), *arguments],
        cwd=folder,
        input=said,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def test_the_pages_client_is_streamed_to_and_answers_and_prints_what_is_shown(
    tmp_path: Path, data_dir: Path
) -> None:
    [program] = [block for block in blocks_of(PAGE) if block.language == "javascript" and not block.file]
    [shown] = [block for block in blocks_of(PAGE) if block.language == "output"]
    folder = folder_in(tmp_path)
    with serving(tmp_path, data_dir) as host:
        (folder / "page.mjs").write_text(program.text.replace(PORT, host.url.rsplit(":", 1)[1]))
        printed = node(folder, "page.mjs")
    assert is_as_shown(shown.text, printed), printed
    assert (tmp_path / "notes" / "shopping.txt").read_text() == "milk"


def test_the_pages_agent_is_the_examples() -> None:
    [block] = [block for block in blocks_of(PAGE) if block.file]
    assert block.text == (EXAMPLE / block.file).read_text()


def test_the_example_is_a_conversation_that_is_found_again(tmp_path: Path, data_dir: Path) -> None:
    folder = folder_in(tmp_path)
    with serving(tmp_path, data_dir) as host:
        url = f"{host.url}/ag-ui/demo"
        said = node(
            folder, "chat.mjs", url, "t", said="write a note a: b\ny\nask me something\ntea\ndelete a\n"
        )
        assert '[write_note {"name":"a","text":"b"}]' in said
        assert "? Allow write_note? " in said
        assert "Then tea it is." in said
        assert said.endswith('? Allow delete_note? {"name":"a"}\nallow? y/n: ')
        again = node(folder, "chat.mjs", url, "t", said="n\nbye\nanyone?\n")
    assert "user: write a note a: b\n" in again
    assert "You said no, so I left everything as it is." in again
    assert "Goodbye!" in again
    assert '! HTTP 409: {"ok":false,"error":"SESSION_TERMINAL"' in again


def test_the_page_names_every_type_of_event_and_every_route() -> None:
    page = (DOCS / PAGE).read_text()
    patterns = [
        re.escape(name).replace(r"\*", r"\w+").replace("…", ".*")
        for name in re.findall(r"`([a-z]+\.[a-z_*…]+)`", page)
    ]
    unnamed = [kind for kind in _TYPES if not any(re.fullmatch(row, kind) for row in patterns)]
    assert len(_TYPES) > 20
    assert not unnamed
    routes = AgUi().routes(cast("Door", SimpleNamespace(store=None)))  # none is called
    assert all(f"`POST {path}`" in page for path in routes)


def test_the_page_says_how_large_a_request_may_be() -> None:
    assert CONVERSATION_BODIES == 8
    assert "eight times as large as `body_bytes_max`" in re.sub(r"\s+", " ", (DOCS / PAGE).read_text())


def test_the_example_says_how_it_is_started() -> None:
    assert "zhin-host serve --protocol ag-ui" in (ROOT / "examples" / "ag_ui" / "chat.mjs").read_text()
