"""Block: a fenced block of a page, and what its language says is done with it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"

SHELL: Final = "sh"  # pasted into one bash, whose folder and variables last for the page
PROGRAMS: Final = {
    "python": ("python -W error", "py"),
    "javascript": ("node --no-warnings --experimental-eventsource", "mjs"),
}
OUTPUTS: Final = (
    "output",
    "json",
)  # what the block before it printed, to the letter but for ids, times and …
PLAIN: Final = "text"  # for reading only
LANGUAGES: Final = {SHELL, *PROGRAMS, *OUTPUTS, PLAIN}

_TITLE: Final = ' title="'


class Block(NamedTuple):
    """One block.

    Attributes:
        line: Where its fence stands in the page, from 1.
        language: The first word behind the fence; "" for an indented block.
        file: The file that a reader is told to put it into, "" where it has no title.
    """

    line: int
    language: str
    file: str
    text: str


def pages() -> list[str]:
    """The names of all pages, those below docs/ included."""
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def blocks_of(page: str) -> list[Block]:
    """All blocks of a page, indented ones too, as a Markdown parser sees them."""
    found = []
    for token in MarkdownIt().parse((DOCS / page).read_text()):
        if token.type in {"fence", "code_block"} and token.map is not None:
            language, _, title = token.info.strip().partition(_TITLE)
            found.append(Block(token.map[0] + 1, language, title.removesuffix('"'), token.content))
    return found
