"""Story: a page's blocks, run from top to bottom in one shell, as a reader who follows the page would."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from tests.docs.blocks import DOCS, OUTPUTS, PLAIN, PROGRAMS, SHELL, Block
from tests.docs.expected import is_as_shown
from tests.docs.shell import Shell

_SERVING: Final = re.compile(r"(\w+=\S+ )*(scripts/serve|zhin-host serve)\b(.*[^&])?")
_TRAP: Final = "trap 'echo \"ended with $?: $BASH_COMMAND\"' ERR"
_FAILED: Final = "ended with "

# A command that serves is meant for a terminal of its own: the host before it is stopped, and the story goes on when
# this one says that it listens.
_SERVE: Final = """
[ -z "${{host:-}}" ] || {{ kill $host && wait $host; }} 2>/dev/null || true
exec {{listening}}< <(exec env {command} 2>>data/host.log); host=$!
read -r line <&$listening && echo "$line" || {{ cat data/host.log; false; }}
"""


class Story:
    """Runs the blocks of one page, one after another."""

    def __init__(self, page: str, folder: Path, shell: Shell) -> None:
        self._page = page
        self._folder = folder
        self._shell = shell
        self._printed: str | None = None
        shell.paste(f'{_TRAP}\nPATH="$PWD/.venv/bin:$PATH"')

    def tell(self, block: Block, shown: Block | None) -> None:
        """Run a block; `shown` is the block of output that follows it, if one does.

        Raises:
            AssertionError: A command failed, a request was refused and the page does not show it, or what was printed
                is not what is shown.
        """
        place = f"{DOCS.name}/{self._page}:{block.line}"
        if block.language in OUTPUTS:
            assert self._printed is not None, f"{place}: nothing was run that could have printed this"
            self._printed = None
        elif block.file:
            (self._folder / block.file).write_text(self._shell.here(block.text))
            self._printed = None
        elif block.language == PLAIN:
            self._printed = None
        else:
            self._printed = self._run(block)
            _check(f"{place} printed\n{self._printed}", self._printed, shown)

    def _run(self, block: Block) -> str:
        if block.language == SHELL:
            *before, last = block.text.rstrip("\n").split("\n")
            if _SERVING.fullmatch(last):
                return self._shell.paste("\n".join([*before, _SERVE.format(command=last)]))
            return self._shell.paste(block.text)
        command, ending = PROGRAMS[block.language]
        name = f"block_{block.line}.{ending}"
        (self._folder / name).write_text(self._shell.here(block.text))
        return self._shell.paste(f"{command} {name}")


def _check(told: str, printed: str, shown: Block | None) -> None:
    """Whether what was printed is what is shown; a failure that is not shown is none that was meant."""
    if shown is not None:
        if shown.language == "json":
            for line in shown.text.splitlines():
                json.loads(line)
        assert is_as_shown(shown.text, printed), f"{told}\nnot\n{shown.text}"
    for failure in (_FAILED, '"ok":false', "Traceback"):
        assert failure not in printed or (shown is not None and failure in shown.text), told
