"""`zhin-host sessions`: which sessions there are, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click
import orjson
from rich.table import Table
from rich.text import Text

from zhin_host import events as ev
from zhin_host.cli import directory
from zhin_host.cli.terminal import console, is_for_programs, json_text, visible
from zhin_host.clock import SessionId, SystemClock
from zhin_host.errors import SessionNotFound, StorageUnavailable
from zhin_host.history import text_of
from zhin_host.recovery import Hydrated, peek
from zhin_host.snapshot import list_view
from zhin_host.storage.files import FileHttpSessionPersistence

STATUSES: Final = ("running", "waiting", "parked", "completed", "failed")
_HEAD_BYTES: Final = 16 * 1024  # of a log are looked at for its first message
_MESSAGE_CHARACTERS: Final = 200


@click.command()
@directory.option
@click.option(
    "--status",
    type=click.Choice(STATUSES),
    help="Only these; parked: those of the waiting that wait for a person.",
)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@directory.json_option
def sessions(*, data_dir: str, status: str | None, limit: int, as_json: bool | None) -> None:
    """List the sessions of a data directory, newest first."""
    persistence = directory.opened(data_dir)
    found = _newest(persistence, status, limit)
    if is_for_programs(as_json):
        for row, _ in found:
            click.echo(json_text(row))
    else:
        _print_table(persistence, found)


def status_text(view: dict[str, Any]) -> str:
    """The status of a session in a word for a person."""
    if "brokenAt" in view:
        return f"broken at {view['brokenAt']}"
    return "parked" if view["parked"] else str(view["status"])


def age(ms: int) -> str:
    """How long ago, in the largest unit that fits."""
    seconds = max(0, ms) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _newest(
    persistence: FileHttpSessionPersistence, status: str | None, limit: int
) -> Iterator[tuple[dict[str, Any], Hydrated]]:
    for session_id in reversed(persistence.session_ids()):
        try:
            found = peek(persistence, session_id)
        except SessionNotFound:  # deleted meanwhile
            continue
        except StorageUnavailable as error:
            click.echo(f"Session {session_id} is left out: {visible(str(error))}", err=True)
            continue
        row = list_view(found.state, None if found.fault is None else found.fault.index)
        if status in (None, row["status"]) or (status == "parked" and row["parked"]):
            yield row, found
            limit -= 1
            if not limit:
                return


def _print_table(
    persistence: FileHttpSessionPersistence, found: Iterator[tuple[dict[str, Any], Hydrated]]
) -> None:
    now_ms = SystemClock().now_ms()
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    table.add_column("session", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("agent", no_wrap=True, max_width=20)
    table.add_column("events", justify="right", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("first message", no_wrap=True, overflow="ellipsis", ratio=1)  # what is left
    for row, one in found:
        cells = (
            row["sessionId"],
            status_text(row),
            visible(row["agent"]),
            str(one.state.next_index),
            age(now_ms - row["updatedAt"]),
            visible(_first_message(persistence, one.state.session_id)),
        )
        table.add_row(*map(Text, cells))
    if table.row_count:
        console().print(table)
    else:
        click.echo(f"No such sessions in {visible(persistence.directory)}.")


def _first_message(persistence: FileHttpSessionPersistence, session_id: SessionId) -> str:
    """The beginning of what the session began with; "" where it cannot be told quickly."""
    try:
        log = persistence.peek_log(session_id)
    except (SessionNotFound, StorageUnavailable):
        return ""
    try:
        head = log.read(0, _HEAD_BYTES)
    except StorageUnavailable:
        return ""
    finally:
        log.close()
    for line in head.split(b"\n")[:-1]:
        parts = ev.split_line(line)
        if parts is None:
            break
        if parts.type == ev.MESSAGE_RECEIVED:
            return text_of(orjson.loads(parts.data)["message"])[:_MESSAGE_CHARACTERS]
    return ""
