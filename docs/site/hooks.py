"""What MkDocs is told beside its configuration: what lies outside docs/ is part of the site too; no copy is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
_OUTSIDE: Final = re.compile(r"\]\(\.\./(adr/|examples/|CHANGELOG\.md)")


def _decisions() -> list[Path]:
    return sorted((ROOT / "adr").glob("*.md"))


def _outside() -> Iterator[Path]:
    """The decisions, the changelog, and the examples, to which pages link."""
    yield from _decisions()
    yield ROOT / "CHANGELOG.md"
    for path in sorted((ROOT / "examples").rglob("*")):
        if path.is_file() and path.name != "__init__.py" and path.suffix != ".pyc":
            yield path


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every decision into the navigation, in order."""
    decisions = [path.relative_to(ROOT).as_posix() for path in _decisions()]
    config.nav = [
        {"Decisions": decisions} if part == {"Decisions": []} else part for part in config.nav or []
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside, from where it lies."""
    for path in _outside():
        name = path.relative_to(ROOT).as_posix()
        files.append(File(name, str(ROOT), config.site_dir, use_directory_urls=config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs' names
    """In the repository these stand beside docs/, on the site below it."""
    return _OUTSIDE.sub(r"](\1", markdown)
