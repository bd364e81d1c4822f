"""Leash: runs a server of tools as its child, and ends it when whoever started this is gone, however it went.

The protocol ends a server by ending its standard input. One that is busy, or does not care, would outlive a host that
was killed. This stays beside it, in the same process group, and sees that end too. It is started by its path with
`python -I -S`, so it imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Final

_GRACE_S: Final = 2.0  # as long as the client of the protocol waits before each of its signals
_NOT_STARTED: Final = 127  # what a shell exits with for a command that it cannot run


def main(command: list[str]) -> int:
    """Run the command with this process's standard streams; its exit code, as a shell would give it."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # what it ends is its own group and nobody else's
    signal.signal(signal.SIGTERM, _stay)
    try:
        child = subprocess.Popen(command)  # noqa: S603 - the command that the host was configured with
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return _NOT_STARTED
    threading.Thread(target=_end_with_input, daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _stay(*_: object) -> None:
    """The group's SIGTERM is for the server. A handler, unlike SIG_IGN, is not handed on to it."""


def _end_with_input() -> None:
    """Wait until the other end of the standard input is closed, then end the group unless the server ends first."""
    hang_up = select.poll()
    hang_up.register(0, 0)  # asks for nothing that can be read: that is the server's
    hang_up.poll()
    for number in (signal.SIGTERM, signal.SIGKILL):
        time.sleep(_GRACE_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(0, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
