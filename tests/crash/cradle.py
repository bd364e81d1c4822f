"""Cradle: a process that has imported everything once and forks a host for each order it reads.

`python -m tests.crash.cradle` reads lines `order NUMBER JSON`, `kill NUMBER`, `term NUMBER` on stdin. On stdout it
and its children say `ready NUMBER PORT` and `ended NUMBER CODE` (a signal's number negative). Each host is a real
process that serves real HTTP; forking only saves the half second that the imports take. stdin's end ends all.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn, TextIO

from tests.crash import ledger
from tests.crash.agents import AGENTS, TOOLS
from tests.crash.disk import PowerlessFileSystem, StoppingFileSystem
from tests.crash.order import Order
from zhin_host import FileHttpSessionPersistence, create_agent_session_host
from zhin_host.cli import main as command_line
from zhin_host.errors import StartupError
from zhin_host.server import Address, serve

REFUSED: Final = 3
_CHLD: Final = {signal.SIGCHLD}
_SIGNALS: Final = {"kill": signal.SIGKILL, "term": signal.SIGTERM}
_LISTENING: Final = re.compile(r"Listening on http://127\.0\.0\.1:([0-9]+),")


def _say(*words: object) -> None:
    """One write, so that the lines of many processes do not mix."""
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


class Cradle:
    """The children that live, by their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # pid -> number

    def run(self) -> None:
        """Obey until stdin ends."""
        signal.signal(signal.SIGCHLD, self._reap)
        for line in sys.stdin.buffer:
            word, number, *rest = line.split(b" ", 2)
            if word == b"order":
                self._bear(int(number), Order.decode(rest[0]))
            else:
                self._send(int(number), _SIGNALS[word.decode()])
        for number in list(self._numbers.values()):
            self._send(number, signal.SIGKILL)

    def _bear(self, number: int, order: Order) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _CHLD)  # its end must not be seen before its number is known
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _CHLD)
            _live(number, order)
        self._numbers[pid] = number
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _CHLD)

    def _send(self, number: int, which: signal.Signals) -> None:
        """To a child that has not been waited for, so that its pid is nobody else's."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _CHLD)
        for pid, its_number in self._numbers.items():
            if its_number == number:
                os.kill(pid, which)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _CHLD)

    def _reap(self, _signal: int, _frame: FrameType | None) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return  # none is left: this handler may be interrupted by itself, so no count of ours tells
            if pid == 0:
                return
            _say("ended", self._numbers.pop(pid), os.waitstatus_to_exitcode(status))


def _live(number: int, order: Order) -> NoReturn:
    """Be a host, to whichever end."""
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(f"{order.ledger}.stderr", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), 2)
        logging.basicConfig(level=logging.WARNING, stream=sys.stderr, force=True)
        ledger.keep_in(Path(order.ledger))
        code = _serve_command_line(number, order) if order.command_line else _serve(number, order)
    except StartupError as error:
        sys.stderr.write(f"refused: {error}\n")
        code = REFUSED
    except BaseException:  # noqa: BLE001 - the end of the process: nobody above may go on as a second cradle
        traceback.print_exc()
    finally:
        os._exit(code)


def _serve(number: int, order: Order) -> int:
    """A host on a disk that does what the order says."""
    fs: StoppingFileSystem
    wrong: dict[str, Any] = {
        "kill_at": order.stop_at,
        "kill_bytes": order.stop_bytes,
        "fail_at": order.fail_at,
        "fail_error": order.fail_error,
        "fail_count": order.fail_count,
    }
    if order.power_seed is None:
        fs = StoppingFileSystem(**wrong)
    else:
        fs = PowerlessFileSystem(Path(order.directory).resolve(), seed=order.power_seed, **wrong)
    fsync = order.settings.get("fsync", "boundary")
    persistence = FileHttpSessionPersistence(order.directory, fsync=fsync, fs=fs)
    host = create_agent_session_host(AGENTS, tools=TOOLS, persistence=persistence, **order.settings)

    def ready(addresses: Sequence[Address]) -> None:
        _say("ready", number, addresses[0][1])

    serve(host.app, host="127.0.0.1", port=0, start=host.start, drain=host.stop, ready=ready)
    return 0


class _Announcement:
    """A stdout that finds the port in what `zhin-host serve` says."""

    def __init__(self, number: int, behind: TextIO) -> None:
        self._number = number
        self._behind = behind

    def write(self, text: str) -> int:
        found = _LISTENING.search(text)
        if found is not None:
            _say("ready", self._number, found[1])
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


def _serve_command_line(number: int, order: Order) -> int:
    """`zhin-host serve`, as a person would start it."""
    sys.stdout = _Announcement(number, sys.stdout)  # as far as click asks
    settings = [
        word for name, value in order.settings.items() for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    where = ["--data-dir", order.directory, "--port", "0", "--log-level", "warning"]
    command_line(["serve", "--agent", "tests.crash.agents:AGENTS", *where, *settings], standalone_mode=False)
    return 0


def _warm_up() -> None:
    """Import and compile here what every host would for itself."""
    for name in ("encodings.idna", "uvloop", "uvicorn.lifespan.off", "uvicorn.loops.uvloop"):
        importlib.import_module(name)
    create_agent_session_host(AGENTS, tools=TOOLS)  # patterns and schemas are kept
    gc.collect()


if __name__ == "__main__":
    _warm_up()
    gc.freeze()
    Cradle().run()
