"""`zhin-host verify`: the audit of a whole directory, summed up."""

from __future__ import annotations

from pathlib import Path

import click

from zhin_host.cli import directory
from zhin_host.cli.amounts import size_text
from zhin_host.cli.audit import FAULTY, line_limit_option, text_of_verdict, verdicts_of
from zhin_host.cli.progress import counted
from zhin_host.cli.terminal import json_text
from zhin_host.storage import names
from zhin_host.storage.fs import TEMPORARY_PREFIX


@click.command()
@directory.option
@line_limit_option
@click.option("--json/--text", "as_json", default=False, help="JSON lines, or text (the default).")
@click.pass_context
def verify(ctx: click.Context, /, *, data_dir: str, line_bytes_max: int, as_json: bool) -> None:
    """Verify a data directory: `audit` of all its sessions, of which only the faulty ones are told, and a summary.

    Also counts what lies there and belongs to no session. Nothing is written; a host may run beside it. Exit code 1
    on faults: `zhin-host repair` says what of them can be mended.
    """
    persistence = directory.held_once(data_dir)
    ids = persistence.session_ids()
    count = events = size_bytes = faulty = 0
    for session_id in counted(ids, "Verifying"):
        for verdict in verdicts_of(persistence, [session_id], line_bytes_max):
            count, events, size_bytes = count + 1, events + verdict["events"], size_bytes + verdict["bytes"]
            if not verdict["ok"]:
                faulty += 1
                click.echo(json_text(verdict) if as_json else text_of_verdict(verdict))
    left_over = leftovers(persistence.directory)
    if as_json:
        total = {
            "sessions": count,
            "faulty": faulty,
            "events": events,
            "bytes": size_bytes,
            "leftovers": left_over,
        }
        click.echo(json_text(total))
    else:
        click.echo(
            f"Sessions: {count}, with faults: {faulty or 'none'}; {events} events, {size_text(size_bytes)}."
        )
        if left_over:
            click.echo(
                f"Left over, of no session: {', '.join(left_over)}; harmless, `zhin-host repair` sweeps it."
            )
    if faulty:
        ctx.exit(FAULTY)


def leftovers(data_dir: str) -> list[str]:
    """Files that no session has: snapshots and marks without a log, files that were not finished.

    Of a running host one that it makes at this very moment may be among them.
    """
    found = sorted(path.name for path in Path(data_dir).iterdir())
    logs, snapshots, marks = names.sessions_of(found, names.LOG, names.SNAPSHOT, names.MARK)
    orphans = {one + names.SNAPSHOT for one in snapshots - logs} | {one + names.MARK for one in marks - logs}
    return [name for name in found if name in orphans or name.startswith(TEMPORARY_PREFIX)]
