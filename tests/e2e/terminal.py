"""A person at a terminal: `zhin-host` in a pseudo-terminal, what it prints awaited, what a person presses sent."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.e2e.process import COMMAND, DEADLINE_S, environment

CTRL_C: Final = "\x03"
CTRL_D: Final = "\x04"
# The command's own terminal, so that Ctrl-C is a signal; done here, since no code may run between fork and exec.
_BEGIN: Final = (
    "import fcntl,os,sys,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """A command in a pseudo-terminal, until the block ends.

    Attributes:
        text: All it has printed so far, line ends as `\\n`.
        process: The process.
    """

    def __init__(self, cwd: Path, *arguments: object, **more: str) -> None:
        self.text = ""
        self._seen = 0
        self._screen, keyboard = pty.openpty()
        settings = environment(**{"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "200"} | more)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN, COMMAND, *map(str, arguments)],
            cwd=cwd,
            env=settings,
            stdin=keyboard,
            stdout=keyboard,
            stderr=keyboard,
            start_new_session=True,
        )
        os.close(keyboard)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._screen)

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._screen, keys.encode())

    def interrupt_at_prompt(self) -> None:
        """Press Ctrl-C once it waits for keys: what comes before that, readline sees with the next key only."""
        facts = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/stat")
        asleep, ends_s = 0, time.monotonic() + DEADLINE_S
        while facts.exists() and asleep < 3 and time.monotonic() < ends_s:
            asleep = asleep + 1 if facts.read_text().rpartition(")")[2].split()[0] == "S" else 0
            self._read(0.02)
        self.press(CTRL_C)

    def type(self, line: str) -> None:
        """Type a line and press Enter."""
        self.press(line + "\n")

    def expect(self, text: str) -> str:
        """Wait until it has printed the text, behind what was expected before; what came up to its end."""
        ends_s = time.monotonic() + DEADLINE_S
        while (at := self.text.find(text, self._seen)) < 0:
            left_s = ends_s - time.monotonic()
            assert left_s > 0 and self._read(left_s), f"{text!r} did not come:\n{self.text[self._seen :]}"  # noqa: PT018
        found = self.text[self._seen : at + len(text)]
        self._seen = at + len(text)
        return found

    def end(self) -> int:
        """Wait until the command has ended; its exit code."""
        while self._read(DEADLINE_S):
            pass
        return self.process.wait(DEADLINE_S)

    def _read(self, timeout_s: float) -> bool:
        """Take what has come; False when nothing comes any more."""
        ready, _, _ = select.select([self._screen], [], [], timeout_s)
        with contextlib.suppress(OSError):  # EIO: nobody holds the other side any more
            if ready and (part := os.read(self._screen, 1 << 16)):
                self.text += part.decode("utf-8", "replace").replace("\r\n", "\n")
                return True
        return False
