"""Exit codes: what a script learns without reading what was said. 2, click's own, is for what was not even tried."""

from __future__ import annotations

from typing import Final

import click

from zhin_host.cli.terminal import visible

FAILED: Final = 1
ANSWERED_OTHERWISE: Final = 3
ASKED: Final = 4


class Failure(click.ClickException):
    """What was tried and did not succeed, in one sentence that says what to do next; it may hold what others wrote."""

    exit_code = FAILED

    def __init__(self, sentence: str) -> None:
        super().__init__(visible(sentence))


class Otherwise(Failure):
    """Somebody else answered first, and otherwise."""

    exit_code = ANSWERED_OTHERWISE


class Asked(Failure):
    """A person has to answer before it goes on."""

    exit_code = ASKED
