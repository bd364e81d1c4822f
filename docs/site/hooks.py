"""What MkDocs is told beside its configuration: pages that live outside docs/ are part of the site too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
_OUTSIDE: Final = re.compile(r"\]\(\.\./(adr/|CHANGELOG\.md)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every decision into the navigation, in order."""
    decisions = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "adr").glob("*.md"))]
    config.nav = [
        {"Decisions": decisions} if part == {"Decisions": []} else part for part in config.nav or []
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the decisions and the changelog where they lie: no copy of them is kept."""
    for path in (*sorted((ROOT / "adr").glob("*.md")), ROOT / "CHANGELOG.md"):
        name = path.relative_to(ROOT).as_posix()
        files.append(File(name, str(ROOT), config.site_dir, use_directory_urls=config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs' names
    """In the repository these pages stand beside docs/, on the site below it."""
    return _OUTSIDE.sub(r"](\1", markdown)
