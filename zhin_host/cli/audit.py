"""`zhin-host audit`: whether the files of sessions keep every promise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import click

from zhin_host.audit import audit_session
from zhin_host.cli import directory
from zhin_host.cli.terminal import json_text, visible
from zhin_host.clock import SessionId
from zhin_host.config import SETTINGS
from zhin_host.errors import SessionNotFound, StorageUnavailable
from zhin_host.storage.files import FileHttpSessionPersistence

FAULTY: Final = 1
_LINE_LIMIT: Final = next(setting for setting in SETTINGS if setting.name == "line_bytes_max")


line_limit_option: Final = click.option(
    _LINE_LIMIT.flag,
    "line_bytes_max",
    type=click.IntRange(min=1),
    default=_LINE_LIMIT.default,
    envvar=_LINE_LIMIT.environment,
    show_default=True,
    help="The setting under which the logs were written.",
)


@click.command()
@click.argument("session_ids", metavar="[ID]...", nargs=-1, shell_complete=directory.complete_ids)
@directory.option
@line_limit_option
@click.option("--json/--text", "as_json", default=False, help="JSON lines, or text (the default).")
@click.pass_context
def audit(
    ctx: click.Context,
    /,
    *,
    session_ids: tuple[str, ...],
    data_dir: str,
    line_bytes_max: int,
    as_json: bool,
) -> None:
    """Audit the sessions named, or all: chain, order of events, snapshot, files. Exit code 1 on faults.

    Nothing is written and no lock is taken; a host may run beside it.
    """
    persistence = directory.opened(data_dir) if session_ids else directory.held_once(data_dir)
    verdicts = verdicts_of(persistence, session_ids or persistence.session_ids(), line_bytes_max)
    count = faulty = 0
    for verdict in verdicts:
        count += 1
        faulty += not verdict["ok"]
        click.echo(json_text(verdict) if as_json else text_of_verdict(verdict))
    if not as_json:
        click.echo(f"Sessions audited: {count}, with faults: {faulty or 'none'}.")
    if faulty:
        ctx.exit(FAULTY)


def verdicts_of(
    persistence: FileHttpSessionPersistence, session_ids: Iterable[str], line_bytes_max: int
) -> Iterator[dict[str, Any]]:
    """The verdict of each session, as JSON has it; one that cannot be read has that as its fault.

    Raises:
        Refusal: A session that was named is not there.
    """
    is_named = not isinstance(session_ids, list)
    for session_id in session_ids:
        try:
            yield audit_session(persistence, SessionId(session_id), line_bytes_max=line_bytes_max).to_json()
        except SessionNotFound:
            if is_named:
                raise directory.unknown(persistence, session_id) from None
        except StorageUnavailable as error:
            fault = {"index": 0, "byte": 0, "message": str(error)}
            yield {
                "ok": False,
                "sessionId": session_id,
                "events": 0,
                "bytes": 0,
                "lastSum": "",
                "faults": [fault],
            }


def text_of_verdict(verdict: dict[str, Any]) -> str:
    """A line that the session is whole, or a line for each of its faults."""
    session_id = verdict["sessionId"]
    if verdict["ok"]:
        return f"{session_id}  whole, {verdict['events']} events, last sum {verdict['lastSum']}"
    return "\n".join(
        f"{session_id}  event {row['index']}, byte {row['byte']}: {visible(row['message'])}"
        for row in verdict["faults"]
    )
