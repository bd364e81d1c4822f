"""Data sets: logs that a host might have written, made by its own journal in memory and then put into files.

`python -m tests.bench.datasets KIND DIRECTORY FIRST COUNT AMOUNT` makes sessions number FIRST and on.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.bench.agents import CHUNK, clock
from tests.bench.bench import PRINCIPAL, ROOT
from tests.bench.server import environment
from tests.builders import session_id_of
from zhin_host import events as ev
from zhin_host.clock import SystemClock, new_request_id, new_token, new_turn_id
from zhin_host.config import Config
from zhin_host.journal import SessionJournal
from zhin_host.ports import MARK_PARKED, MARK_RUNNING
from zhin_host.snapshot import encode_snapshot
from zhin_host.state import new_state
from zhin_host.storage.memory import MemoryLog
from zhin_host.text import SaidText

_CLOCK: Final = SystemClock()
_CONFIG: Final = Config(fsync="never")
_DELTAS: Final = 16  # of a whole session; few and long, since it is the bytes and the files that count
_LONG_DELTA: Final = CHUNK * 5  # a line of it has about 200 bytes
_BATCH: Final = 1_000
_SHARE_LEAST: Final = 100  # sessions: fewer are made before another process has begun


class Author:
    """Writes one session's log in memory.

    Args:
        number: Makes its id; a higher one sorts behind.
        agent: Whose it is.
        message: What its first turn received.
    """

    def __init__(self, number: int, agent: str, message: str) -> None:
        self.session_id = session_id_of(number)
        self._log = MemoryLog(self.session_id, bytearray())
        self._journal = SessionJournal(new_state(self.session_id), self._log, _CLOCK, _CONFIG)
        self._turn_id, self._said = new_turn_id(_CLOCK), SaidText("message", _CONFIG.line_bytes_max)
        token = new_token(_CLOCK)
        started = {
            "sessionId": self.session_id,
            "agent": agent,
            "logVersion": ev.LOG_VERSION,
            "continuationToken": token,
            "owner": PRINCIPAL,
        }
        self._put(
            (ev.SESSION_STARTED, started),
            (ev.TURN_STARTED, {"turnId": self._turn_id, "continuationToken": token}),
            (ev.MESSAGE_RECEIVED, {"turnId": self._turn_id, "message": message}),
        )

    def say(self, deltas: Iterable[str]) -> None:
        """Text of the turn."""
        drafts = []
        for delta in deltas:
            self._said.add(delta)
            drafts.append(ev.Draft(ev.MESSAGE_APPENDED, {"messageDelta": delta}))
        self._journal.write(drafts)

    def finish(self) -> None:
        """End the turn well; the session rests."""
        self._put(
            (ev.MESSAGE_COMPLETED, {**self._said.fields(), "finishReason": "stop"}),
            (ev.TURN_COMPLETED, {"turnId": self._turn_id}),
        )

    def ask(self) -> None:
        """Call the clock; the session parks."""
        call_id = f"call_{self._turn_id.removeprefix('turn_')}"
        request = {
            "requestId": new_request_id(_CLOCK, self.session_id),
            "kind": "approval",
            "callId": call_id,
            "prompt": "Run clock?",
            "toolName": clock.name,
            "args": {},
            "argsDigest": ev.digest(ev.json_bytes({})),
        }
        self._put(
            (ev.ACTIONS_REQUESTED, {"callId": call_id, "toolName": clock.name, "input": {}}),
            (ev.INPUT_REQUESTED, request),
        )

    def store(self, directory: Path, *, has_snapshot: bool, mark: str | None = None) -> None:
        """Write its files, as a host would have left them."""
        stem = str(directory / self.session_id)
        _write(f"{stem}.ndjson", self._log.read(0, self._log.size_bytes))
        if has_snapshot:
            _write(f"{stem}.json", encode_snapshot(self._journal.state))
        if mark is not None:
            _write(f"{stem}.open", mark.encode("ascii"))

    def _put(self, *drafts: tuple[str, Mapping[str, Any]]) -> None:
        self._journal.write([ev.Draft(kind, data) for kind, data in drafts])


def _write(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        while content:
            content = content[os.write(fd, content) :]
    finally:
        os.close(fd)


# -- kinds of sessions; `amount` is what the kind makes of it ------------------------------------------------------


def whole(directory: Path, number: int, amount: int) -> None:
    """A session at rest whose log has about `amount` bytes: half of them deltas, half the message again."""
    author = Author(number, "tight", str(_DELTAS))
    delta = "x" * max(1, amount // 2 // _DELTAS - 130)
    author.say([delta] * _DELTAS)
    author.finish()
    author.store(directory, has_snapshot=True)


def long(directory: Path, number: int, amount: int) -> None:
    """A session at rest that said `amount` deltas, of 200 bytes a line."""
    author = Author(number, "tight", str(amount))
    for done in range(0, amount, _BATCH):
        author.say([_LONG_DELTA] * min(_BATCH, amount - done))
    author.finish()
    author.store(directory, has_snapshot=True)


def cut(directory: Path, number: int, amount: int) -> None:
    """A session whose host was killed in the midst of a turn of `amount` chunks."""
    author = Author(number, "tight", str(amount))
    author.say([CHUNK] * (amount // 2))
    author.store(directory, has_snapshot=False, mark=MARK_RUNNING)


def parked(directory: Path, number: int, _amount: int) -> None:
    """A session that waits for a person and has left memory."""
    author = Author(number, "asking", "ask")
    author.ask()
    author.store(directory, has_snapshot=True, mark=f"{MARK_PARKED} 0")


KINDS: Final[dict[str, Callable[[Path, int, int], None]]] = {
    "whole": whole,
    "long": long,
    "cut": cut,
    "parked": parked,
}


async def generate(kind: str, directory: Path, first: int, count: int, amount: int = 0) -> None:
    """Make so many sessions from number `first` on, on every processor.

    They are still on their way to the disk then: `os.sync` before anything is measured.

    Raises:
        RuntimeError: It failed; the error went to stderr.
    """
    await asyncio.to_thread(directory.mkdir, mode=0o700, exist_ok=True)
    parts = shares(first, count, os.cpu_count() or 1)
    arguments = [map(str, (kind, directory, at, size, amount)) for at, size in parts]
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench.datasets", *given), cwd=ROOT, env=environment()
        )
        for given in arguments
    ]
    codes = await asyncio.gather(*(process.wait() for process in processes))
    if any(codes):
        raise RuntimeError(f"the generator of {kind} sessions ended with codes {codes}")


def shares(first: int, count: int, processes: int) -> list[tuple[int, int]]:
    """First number and count of what each process makes; fewer processes where there is little to do."""
    share = max(_SHARE_LEAST, -(-count // processes))
    return [(at, min(share, first + count - at)) for at in range(first, first + count, share)]


if __name__ == "__main__":
    made, folder, begin, how_many, of_what = sys.argv[1:]
    for at_number in range(int(begin), int(begin) + int(how_many)):
        KINDS[made](Path(folder), at_number, int(of_what))
