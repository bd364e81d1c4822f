"""Taking over: a host that is to follow another one waits until that one has let go (ADR 0009 D8)."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Final, NoReturn

from zhin_host import server
from zhin_host.errors import PortInUse
from zhin_host.logline import tell
from zhin_host.storage.fs import FileSystem
from zhin_host.storage.place import in_use, is_held, read_holder

_logger = logging.getLogger("zhin_host.cli")

_ASK_AGAIN_S: Final = 0.1  # no kernel lock rings a bell for those who would rather not hold it


def wait_for_predecessor(data_dir: str | None, host: str, port: int, wait_s: float) -> None:
    """Return when nobody holds the directory or the port, or when the time is up: then the start says who does.

    Nothing is held while it waits, so the first SIGTERM or SIGINT ends the process, with exit code 0.

    Args:
        data_dir: None: there is none to wait for.
        host: Where the host is to listen.
        port: 0: any free one; there is none to wait for.
        wait_s: How long, seconds.
    """
    deadline_s = time.monotonic() + wait_s
    is_told = False
    with _leaving_at_signals():
        while _is_taken(data_dir, host, port) and time.monotonic() < deadline_s:
            if not is_told:
                is_told = True
                holder = "" if data_dir is None else read_holder(os.path.realpath(data_dir), FileSystem())
                tell(_logger, logging.INFO, "host.waiting", holder=holder or None, waitS=wait_s)
            time.sleep(_ASK_AGAIN_S)


def refuse_held(data_dir: str) -> None:
    """Refuse a directory that another host holds before its port, taken too, is what is named.

    Raises:
        DirectoryInUse: It is held.
    """
    if _is_held(data_dir):
        raise in_use(os.path.realpath(data_dir), FileSystem())


def _is_held(data_dir: str) -> bool:
    """Whether a host holds it; what is wrong with the directory otherwise, the start says."""
    try:
        return is_held(os.path.realpath(data_dir), FileSystem())
    except OSError:
        return False


def _is_taken(data_dir: str | None, host: str, port: int) -> bool:
    if data_dir is not None and _is_held(data_dir):
        return True
    try:
        for listener in server.bind(host, port):
            listener.close()
    except PortInUse:
        return True
    return False


@contextlib.contextmanager
def _leaving_at_signals() -> Iterator[None]:
    """The first process of a container has no default action for a signal: it would go on waiting."""
    before = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)
