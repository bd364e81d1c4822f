"""The page about access: its token file is one, and its Python blocks run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

from zhin_host.http.auth import parse_tokens
from zhin_host.ports import OWN_SCOPES

PAGE = Path(__file__).parents[2] / "docs" / "access.md"


def test_the_token_file_is_one() -> None:
    [text] = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found = parse_tokens(text, "tokens").values()
    assert [(who.name, who.scopes) for who in found] == [
        ("ada", OWN_SCOPES),
        ("ada", {"read", "approve"}),
        ("bob", {"read:all", "approve:all"}),
        ("ops", {"admin"}),
    ]
