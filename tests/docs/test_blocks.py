"""Every block of every page is run by a test, and does what the page says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.docs.blocks import LANGUAGES, OUTPUTS, PLAIN, ROOT, SHELL, Block, blocks_of, pages
from tests.docs.shell import Shell, checkout_in, free_port
from tests.docs.story import Story

# Pages whose blocks need more than a story: the test that runs them, and the kinds of blocks that it runs.
OWN: Final = {
    "ai-sdk.md": ("tests/protocols/test_ai_sdk_docs.py", {SHELL, "javascript", *OUTPUTS}),
    "ag-ui.md": ("tests/protocols/test_ag_ui_docs.py", {SHELL, "javascript", "output"}),
    "cli.md": ("tests/e2e/test_docs_cli.py", {SHELL}),
    "client.md": ("tests/e2e/test_docs_client.py", {"python"}),
    "deploy.md": ("tests/e2e/test_docs_deploy.py", {SHELL}),
}

# What a page takes for granted: blocks of shell before its first one.
BEFORE: Final = {
    "access.md": ("export LOGIN_KEY='a key of at least thirty-two bytes, for HS256'",),
    "turns.md": (  # a session whose last turn failed
        r"""printf 'async def agent(turn):\n    await turn.run("look up", lambda: 1 / 0)\n' >failing.py""",
        "zhin-host serve --agent failing:agent",
        r"""
curl -s $ZHIN_URL/zhin/v1/session -H 'content-type: application/json' -d '{"message":"tea"}' >started.json
session=$(sed 's/.*"sessionId":"\([^"]*\)".*/\1/' started.json)
curl -sN $ZHIN_URL/zhin/v1/session/$session/stream
""",
    ),
}

PROGRAM_OF: Final = {SHELL: "bash", "python": "bash", "javascript": "node"}
STORIES: Final = [page for page in pages() if page not in OWN and blocks_of(page)]


def test_every_block_is_of_a_kind_that_a_runner_knows() -> None:
    unknown = [
        f"{page}:{block.line} {block.language or 'indented'}"
        for page in pages()
        for block in blocks_of(page)
        if block.language not in (OWN[page][1] | {PLAIN} if page in OWN else LANGUAGES)
    ]
    assert not unknown, f"these have no runner; a block that cannot run is {PLAIN}"


def test_a_page_that_is_no_story_is_read_by_the_test_that_is_named() -> None:
    for page, (module, _) in OWN.items():
        assert page in pages()
        assert f'"{page}"' in (ROOT / module).read_text(), f"{module} does not read {page}"


@pytest.mark.timeout(120)  # several processes
@pytest.mark.parametrize("page", STORIES)
def test_a_reader_who_follows_the_page_gets_what_it_shows(page: str, tmp_path: Path) -> None:
    blocks = blocks_of(page)
    for program in (
        "curl",
        *{PROGRAM_OF[block.language] for block in blocks if block.language in PROGRAM_OF},
    ):
        if shutil.which(program) is None:
            pytest.skip(f"{page} needs {program}, which is not installed")
    with checkout_in(tmp_path) as folder, Shell(folder, free_port()) as shell:
        story = Story(page, folder, shell)
        for text in BEFORE.get(page, ()):
            story.tell(Block(0, SHELL, "", text), None)
        for block, after in zip(blocks, [*blocks[1:], None], strict=True):
            story.tell(block, after if after is not None and after.language in OUTPUTS else None)
    log = folder / "data" / "host.log"
    assert not log.exists() or "Traceback" not in log.read_text()
