"""Shell: a bash that is given blocks as a person would paste them, in a folder that looks like the checkout."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.conftest import check_directory
from tests.docs.blocks import ROOT
from tests.e2e.process import DEADLINE_S, environment

PORT: Final = "8787"
MODEL_PORT: Final = "8788"  # of the stand-in for a model
_END: Final = "the block has ended"


@contextmanager
def checkout_in(folder: Path) -> Iterator[Path]:
    """The folder with the scripts, the environment and the examples of the checkout, and data of its own."""
    scripts = folder / "scripts"
    scripts.mkdir()
    for name in ("serve", "test"):
        script = scripts / name
        is_made = (ROOT / ".venv").exists() and (ROOT / ".venv").samefile(sys.prefix)
        command = str(ROOT / "scripts" / name) if is_made else f"{sys.prefix}/bin/zhin-host {name}"
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o755)
    (folder / "data").mkdir()
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "examples").symlink_to(ROOT / "examples")
    yield folder
    for directory in (folder / "data").iterdir():
        if directory.is_dir():
            check_directory(directory)


class Shell:
    """One bash. A host that a block starts in the background has its process id in `$host`, and is ended with it."""

    def __init__(self, cwd: Path, port: int) -> None:
        self._ports = {PORT: str(port), MODEL_PORT: str(free_port())}
        address = f"http://127.0.0.1:{port}"
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=cwd,
            env=environment(
                ZHIN_PORT=str(port),
                ZHIN_URL=address,
                PYTHONDONTWRITEBYTECODE="",  # pages start many short processes; no page writes a module twice
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        try:
            if kind is None:
                self.paste("kill -9 $host 2>/dev/null; wait $host 2>/dev/null\n")
        finally:
            os.killpg(
                self._shell.pid, signal.SIGKILL
            )  # the bash and what it started, in a session of their own
        self._shell.stdin.close()
        self._shell.stdout.close()
        self._shell.wait(DEADLINE_S)

    def paste(self, block: str) -> str:
        """Run a block in the shell as it is after the blocks before, and give what it printed."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(self.here(block) + f"\necho; echo {_END}\n")
        self._shell.stdin.flush()
        said = ""
        while not said.endswith(f"\n{_END}\n"):
            line = self._shell.stdout.readline()
            assert line, said
            said += line
        return said.removesuffix(f"\n{_END}\n")

    def here(self, text: str) -> str:
        """The text with the ports that are used here in place of the documents'."""
        for told, used in self._ports.items():
            text = text.replace(told, used)
        return text


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
