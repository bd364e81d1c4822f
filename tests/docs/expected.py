"""What a page says is printed, against what was: ids, times and the like may differ, and … stands for anything."""

from __future__ import annotations

import re
from typing import Final

# What is different in every run, and what is put in its place on both sides.
_VARYING: Final = (
    (re.compile(r"\b(ses|turn|step|msg|call|act|req)_[0-9a-z]{26}(_[0-9a-z]{26})?"), r"\1_…"),
    (re.compile(r"\bcall_[A-Za-z0-9_-]{16,}"), "call_…"),
    (re.compile(r"\bzhin:[A-Za-z0-9_-]+"), "zhin:…"),
    (re.compile(r'("timestamp":|"durationMs":|"createdAt":|"updatedAt":|"expiresAt":)\d+'), r"\1…"),
    (re.compile(r'("sum":")[A-Za-z0-9_-]{43}'), r"\1…"),
    (re.compile(r"\b[A-Za-z0-9_-]{43}\b(?!\")"), "…"),
    (re.compile(r"sha256:[0-9a-f]{64}"), "sha256:…"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?"), "…"),
    (re.compile(r"\(\d+(\.\d+)? m?s\)"), "(… ms)"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:…"),
)
_ELLIPSIS: Final = "…"


def settled(text: str) -> str:
    """The text without what is different in every run."""
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def is_as_shown(shown: str, printed: str) -> bool:
    """Whether the text printed is the one shown; a line of … alone stands for any lines, … elsewhere for any text."""
    pattern = r"\n".join(
        r"[\s\S]*?" if line == _ELLIPSIS else r"[^\n]*?".join(map(re.escape, line.split(_ELLIPSIS)))
        for line in settled(shown).splitlines()
    )
    return re.fullmatch(pattern, settled(printed)) is not None
