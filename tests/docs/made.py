"""Parts of documents that are made from the code: compared, or written where ZHIN_WRITE_DOCS=1 asks for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from tests.docs.blocks import ROOT


def table(head: str, rows: Iterable[tuple[object, ...]]) -> str:
    """A table in Markdown; columns are parted by a bar in the head."""
    columns = head.count("|") + 1
    lines = [f"| {head} |", "|" + "---|" * columns]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def check_part(document: str, name: str, made: str) -> None:
    """Fail unless the part between `<!-- name: … -->` and `<!-- /name -->` is what was made; or write it."""
    path = ROOT / document
    text = path.read_text()
    part = re.compile(rf"(<!-- {name}: [^\n]*-->\n)(.*?)(<!-- /{name} -->\n)", re.DOTALL)
    found = part.search(text)
    assert found is not None, f"{document} has no part {name}"
    if os.environ.get("ZHIN_WRITE_DOCS"):
        path.write_text(text.replace(found[0], f"{found[1]}\n{made.strip()}\n\n{found[3]}"))
    else:
        assert found[2].strip() == made.strip(), "run the tests of the documents with ZHIN_WRITE_DOCS=1"
