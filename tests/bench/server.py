"""Server: a process that listens, from its start to its stop, and what the system says of it."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

STOP_TIMEOUT_S = 60.0
_LEFT_OUT = frozenset({"WEB_CONCURRENCY", "UVICORN_WORKERS", "PYTHONDONTWRITEBYTECODE"})
_LINE = re.compile(r"Listening on http://127\.0\.0\.1:(\d+)")


class DidNotStart(Exception):
    """A server ended before it listened."""


class Server:
    """A child process that prints `Listening on http://127.0.0.1:PORT`; it listens when this returns.

    Args:
        command: What is run.
        errors: File that takes its stderr.
        cwd: The folder it is started in.

    Attributes:
        port: Where it listens.
        began_s: When it was started, by time.perf_counter.

    Raises:
        DidNotStart: It ended before.
    """

    def __init__(self, command: Sequence[str], errors: Path, cwd: Path) -> None:
        self.began_s = time.perf_counter()
        with errors.open("ab") as file:
            self._process = subprocess.Popen(
                command, cwd=cwd, stdout=subprocess.PIPE, stderr=file, text=True, env=environment()
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        match = _LINE.match(line)
        if match is None:
            self._process.kill()
            self._process.wait()
            raise DidNotStart(f"{' '.join(command)} said {line!r}; its errors are in {errors}")
        self.port = int(match[1])

    @property
    def rss_bytes(self) -> int:
        """Memory that is resident now."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    @property
    def cpu_s(self) -> float:
        """Processor time it has used, its system calls included."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> int:
        """Have it end cleanly; its exit code. A second call does nothing."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return self._process.returncode

    def kill(self) -> None:
        """`kill -9`."""
        self._process.kill()
        self._process.wait()


def host_command(agent: str, data_dir: Path, token_file: Path, *flags: str) -> list[str]:
    """`zhin-host serve` of this environment, on a free port."""
    command = str(Path(sys.executable).with_name("zhin-host"))
    given = ("--agent", agent, "--data-dir", str(data_dir), "--token-file", str(token_file))
    return [command, "serve", "--port", "0", *given, *flags]


def limits_command(folder: Path, *, is_stock: bool) -> list[str]:
    """The server of the limits, and of the files of a folder; on uvicorn as it comes, or as the host runs it."""
    return [sys.executable, "-m", "tests.bench.plain", "stock" if is_stock else "ours", str(folder)]


def environment() -> dict[str, str]:
    """The environment without what would set a host up otherwise, or have each process compile its modules anew."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ZHIN_") and name not in _LEFT_OUT
    }
