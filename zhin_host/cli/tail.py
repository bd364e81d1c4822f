"""`zhin-host tail`: the events of one session, and with --follow those to come."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click
from watchfiles import watch

from zhin_host import events as ev
from zhin_host.cli import directory
from zhin_host.cli.eventline import event_text
from zhin_host.cli.terminal import is_for_programs
from zhin_host.clock import SessionId
from zhin_host.errors import SessionNotFound
from zhin_host.ports import SessionLog, SessionPersistence
from zhin_host.storage.lines import newline_before
from zhin_host.storage.names import LOG

_BLOCK_BYTES: Final = 1 << 20
_POLL_S: Final = 0.5
_WATCH_MS: Final = 500  # then looked at anyway: not every file system tells of changes


@click.command()
@click.argument("session_id", metavar="ID", shell_complete=directory.complete_ids)
@directory.option
@click.option("--follow", "-f", is_flag=True, help="Wait for more, until the session is over or Ctrl-C.")
@click.option(
    "--since", type=int, default=0, show_default=True, help="From this index on; -10: the last ten."
)
@directory.json_option
def tail(
    *,
    session_id: str,
    data_dir: str,
    follow: bool,
    since: int,
    as_json: bool | None,
) -> None:
    """Print the events of a session: the file's own bytes for programs, a line each for people."""
    persistence = directory.opened(data_dir)
    write = _write_bytes if is_for_programs(as_json) else _write_text
    log = GrowingLog(persistence, SessionId(session_id), since)
    try:
        try:
            _print_new(log, write)
        except SessionNotFound:
            raise directory.unknown(persistence, session_id) from None
        if follow:
            _follow(log, Path(persistence.directory, session_id + LOG), write)
    except KeyboardInterrupt:  # how --follow is meant to end
        return
    if log.fault is not None:
        raise click.ClickException(log.fault)


class GrowingLog:
    """The lines of a log that somebody else writes, each checked for its shape and its index.

    Args:
        persistence: Where the log is.
        session_id: Whose it is.
        since: The first index wanted; negative: counted from the end that there is at the first look.

    Attributes:
        is_over: Whether no more lines will come: the session has ended, or its log is broken.
        fault: Where it is broken.
    """

    def __init__(self, persistence: SessionPersistence, session_id: SessionId, since: int) -> None:
        self.is_over = False
        self.fault: str | None = None
        self._persistence = persistence
        self._session_id = session_id
        self._since = since
        self._offset: int | None = None
        self._next_index: int | None = None

    def new_lines(self) -> Iterator[bytes]:
        """The whole lines that came since the last call, with their newlines.

        Raises:
            SessionNotFound: There is no such session, or none any more.
            StorageUnavailable: Its log cannot be read.
        """
        log = self._persistence.peek_log(self._session_id)
        try:
            if self._offset is None:
                self._offset = self._find_start(log)
            while not self.is_over and (block := log.read(self._offset, _BLOCK_BYTES)):
                whole = block.rfind(b"\n") + 1
                while not whole:  # a line longer than a block
                    block += log.read(self._offset + len(block), _BLOCK_BYTES)
                    whole = block.rfind(b"\n") + 1
                self._offset += whole
                yield from filter(self._take, block[:whole].splitlines(keepends=True))
        finally:
            log.close()

    def _find_start(self, log: SessionLog) -> int:
        if self._since < 0:
            start = newline_before(log.read, log.size_bytes - 1)
            last = ev.split_line(log.read(start, log.size_bytes - start)[:-1])
            self._since = max(0, last.index + 1 + self._since) if last is not None else 0
        return log.offset_of(self._since)

    def _take(self, line: bytes) -> bool:
        """Whether the line is wanted; after a broken one none is."""
        if self.is_over:
            return False
        parts = ev.split_line(line[:-1])
        if parts is None or self._next_index not in (None, parts.index):
            at = "at its start" if self._next_index is None else f"at event {self._next_index}"
            self.fault = f"The log is broken {at}; `zhin-host audit {self._session_id}` says how."
            self.is_over = True
            return False
        self._next_index = parts.index + 1
        self.is_over = parts.type in ev.SESSION_ENDS
        return parts.index >= self._since


def wake_ups(path: Path) -> Iterator[None]:
    """Come back when the file has changed, and now and then all the same; without end."""
    try:
        for _ in watch(
            path, watch_filter=None, debounce=50, step=10, rust_timeout=_WATCH_MS, yield_on_timeout=True
        ):
            yield
    except (OSError, RuntimeError):  # no watch is left, the file system has none, or the file is gone
        pass
    while True:
        time.sleep(_POLL_S)
        yield


def _follow(log: GrowingLog, path: Path, write: Callable[[bytes], None]) -> None:
    for _ in wake_ups(path):
        if log.is_over:
            return
        try:
            _print_new(log, write)
        except SessionNotFound:
            click.echo("The session was deleted.", err=True)
            return


def _print_new(log: GrowingLog, write: Callable[[bytes], None]) -> None:
    for line in log.new_lines():
        write(line)
    sys.stdout.flush()


def _write_bytes(line: bytes) -> None:
    sys.stdout.buffer.write(line)


def _write_text(line: bytes) -> None:
    sys.stdout.write(event_text(line[:-1]) + "\n")
