"""`zhin-host export`: a session as one file: the log's own bytes, or a document for people."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, BinaryIO, Final

import click
import orjson
from click.core import ParameterSource

from zhin_host.cli import directory
from zhin_host.cli import remote as hosts
from zhin_host.cli.exits import Failure
from zhin_host.cli.markdown import Document, void_spans
from zhin_host.cli.remote import Remote
from zhin_host.cli.tail import GrowingLog
from zhin_host.cli.terminal import Refusal
from zhin_host.clock import SessionId
from zhin_host.errors import SessionNotFound
from zhin_host.events import chain, chain_start, payload_of

_MADE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
Lines = Callable[[], Iterator[bytes]]
"""The log's whole lines from the first on, each with its newline. Called again: at least those."""


@click.command()
@click.argument("session_id", metavar="ID", shell_complete=directory.complete_ids)
@directory.option
@hosts.optional_options
@click.option(
    "--format",
    "form",
    type=click.Choice(("ndjson", "markdown")),
    default="ndjson",
    show_default=True,
    help="The log's own lines, byte for byte, or one document for people.",
)
@click.option("--all", "shows_void", is_flag=True, help="In Markdown: what a restart voided too, struck out.")
@click.option("--output", "-o", metavar="FILE", help="A new file, for you alone; by default stdout.")
@click.pass_context
def export(
    ctx: click.Context,
    /,
    *,
    session_id: str,
    data_dir: str,
    remote: Remote | None,
    form: str,
    shows_void: bool,
    output: str | None,
) -> None:
    """Export a session: every event as NDJSON, or a Markdown document of who said and did what, and when.

    Reads the files, beside a host or without one, or with --url a running host. Exit code 1: the log is broken, and
    what stands before the break was written; or it was changed afterwards, and all of it was.
    """
    if remote is not None and ctx.get_parameter_source("data_dir") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--url reads a host and --data-dir its files; leave one of them out.")
    if shows_void and form != "markdown":
        raise click.UsageError("--all is for --format markdown; NDJSON has every event as it is.")
    source = _FileSource(data_dir, session_id) if remote is None else _HostSource(remote, session_id)
    parts = source.lines() if form == "ndjson" else _markdown(source.lines, shows_void=shows_void)
    first = next(parts, b"")  # what cannot be read is refused before a file is made
    _write(output, itertools.chain([first], parts))
    if source.fault is not None:
        raise Failure(source.fault)


class _Source:
    """Where lines come from.

    Attributes:
        fault: What is wrong with the log, known when its lines have been read.
    """

    def __init__(self, session_id: str) -> None:
        self.fault: str | None = None
        self._session_id = session_id

    def _chained(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """The lines as they are; a first one that the chain does not hold is a fault."""
        link = chain_start(SessionId(self._session_id))
        for index, line in enumerate(lines):
            if self.fault is None:
                link = chain(link, payload_of(line[:-1]))
                if not line.endswith(b',"sum":"%b"}\n' % link):
                    self.fault = f"The log was changed at event {index}; `zhin-host audit {self._session_id}` says how."
            yield line


class _FileSource(_Source):
    """The lines of a log that lies in a directory."""

    def __init__(self, data_dir: str, session_id: str) -> None:
        super().__init__(session_id)
        self._persistence = directory.opened(data_dir)

    def lines(self) -> Iterator[bytes]:
        log = GrowingLog(self._persistence, SessionId(self._session_id), 0)
        try:
            yield from self._chained(log.new_lines())
        except SessionNotFound:
            raise directory.unknown(self._persistence, self._session_id) from None
        self.fault = log.fault or self.fault


class _HostSource(_Source):
    """The lines that a host streams; they are read once and kept."""

    def __init__(self, remote: Remote, session_id: str) -> None:
        with hosts.client_needed():
            from zhin_host.cli.live.lines import log_lines  # noqa: PLC0415 - needs httpx
        super().__init__(session_id)
        self._lines = log_lines(remote, session_id)

    def lines(self) -> Iterator[bytes]:
        yield from self._chained(iter(self._lines))


def _markdown(lines: Lines, *, shows_void: bool) -> Iterator[bytes]:
    """The document; the log is read twice, first for what later events void, and both times up to the same event."""
    count = 0

    def rows_counted() -> Iterator[dict[str, Any]]:
        nonlocal count
        for line in lines():
            count += 1
            yield orjson.loads(line)

    document = Document(void_spans(rows_counted()), shows_void=shows_void)
    for part in document.parts(map(orjson.loads, islice(lines(), count))):
        yield part.encode() + b"\n\n"


def _write(output: str | None, parts: Iterator[bytes]) -> None:
    if output is None:
        sys.stdout.buffer.writelines(parts)
        sys.stdout.buffer.flush()
        return
    try:
        with _made(output) as file:
            file.writelines(parts)
    except OSError as error:
        raise Failure(f"{output} could not be written to its end: {error.strerror}; remove it.") from None


def _made(output: str) -> BinaryIO:
    try:
        return os.fdopen(os.open(output, _MADE, 0o600), "wb")
    except FileExistsError:
        raise Refusal(f"{output} is there already; name another --output, or remove it.") from None
    except OSError as error:
        raise Refusal(f"{output} cannot be written: {error.strerror}.") from None
