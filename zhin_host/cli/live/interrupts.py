"""Interrupts: what Ctrl-C does while events come: it cancels the turn, and leaves only when pressed again."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from types import FrameType
from typing import Any, Self

from zhin_host.client import ClientError


class Interrupts:
    """A block in which the first SIGINT calls something, in a thread of its own, and the second raises.

    Raised in the middle of reading, KeyboardInterrupt could lose an event that was read and not shown; and what is
    called speaks to the host, which no signal handler may wait for.

    Args:
        on_first: Is called once; its ClientErrors end it, the events tell what became of it.
    """

    def __init__(self, on_first: Callable[[], object]) -> None:
        self._on_first = on_first
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()  # its put is safe in a signal handler
        self._is_asking = False
        self._count = 0
        self._before: Any = None

    def __enter__(self) -> Self:
        threading.Thread(target=self._wait, name="zhin-cancel", daemon=True).start()
        self._before = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *exc_info: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        self._wanted.put(False)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """A block that waits for the person: there Ctrl-C raises KeyboardInterrupt at once."""
        self._is_asking = True
        try:
            yield
        finally:
            self._is_asking = False

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
        if self._is_asking or self._count > 1:
            raise KeyboardInterrupt
        self._wanted.put(True)

    def _wait(self) -> None:
        with contextlib.suppress(
            ClientError, RuntimeError, CancelledError
        ):  # or the command has ended meanwhile
            if self._wanted.get():
                self._on_first()
