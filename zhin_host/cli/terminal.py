"""The terminal: what may be printed of text that others wrote, and who reads it, a person or a program."""

from __future__ import annotations

import json
import sys
import unicodedata
from datetime import UTC, datetime
from typing import Final

import click
from rich.console import Console

from zhin_host.events import json_bytes

_JOINERS: Final = frozenset("\u200c\u200d")  # invisible, harmless, and part of words and of emojis
_PIPED_COLUMNS: Final = 160  # where no terminal says how wide it is


class Refusal(click.ClickException):
    """What is not done, in one sentence that says what to do instead."""

    exit_code = 2

    def __init__(self, sentence: str) -> None:
        super().__init__(visible(sentence))


def visible(text: str) -> str:
    """The text on one line, with what a terminal would obey or hide shown as an escape.

    That is: control characters, bidirectional and other invisible marks, separators of lines, lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(one if _is_shown(one) else one.encode("unicode_escape").decode("ascii") for one in text)


def visible_lines(text: str) -> str:
    """The same, its lines kept apart."""
    return "\n".join(visible(line) for line in text.split("\n"))


def json_text(value: object) -> str:
    """A value as JSON on one line, with what `visible` escapes escaped in JSON's way."""
    text = json_bytes(value).decode()
    if text.isprintable():
        return text
    return "".join(one if _is_shown(one) else json.dumps(one)[1:-1] for one in text)


def _is_shown(character: str) -> bool:
    return character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs"


def moment(timestamp_ms: int) -> str:
    """A time as a person reads it, UTC."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def console() -> Console:
    """Where text for people goes. Markup, emoji codes and highlighting are off: nobody's text is parsed."""
    width = None if sys.stdout.isatty() else _PIPED_COLUMNS
    return Console(file=sys.stdout, markup=False, emoji=False, highlight=False, width=width)


def is_for_programs(wanted: bool | None) -> bool:  # noqa: FBT001 - what --json/--text said
    """Whether to print JSON lines: as the flag says, else when no terminal is there to show a table."""
    return not sys.stdout.isatty() if wanted is None else wanted
