"""`zhin-host prune`: remove old sessions from a data directory, by age, count or size."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

import click

from zhin_host.cli import directory
from zhin_host.cli.amounts import AGE_MS, SIZE_BYTES, size_text
from zhin_host.cli.exits import Failure
from zhin_host.cli.progress import counted
from zhin_host.cli.pruning import Found, Rules, chosen, find, remove
from zhin_host.cli.sessions import age
from zhin_host.cli.terminal import json_text
from zhin_host.clock import SystemClock
from zhin_host.errors import StorageUnavailable
from zhin_host.storage.files import FileHttpSessionPersistence

_AT_A_TIME: Final = 64  # removals that share one sync of the directory


@click.command()
@directory.option
@click.option(
    "--older-than", type=AGE_MS, metavar="AGE", help="Those whose last event is older: 30d, 12h, 2w."
)
@click.option(
    "--keep", type=click.IntRange(min=0), metavar="N", help="All but the N with the newest last event."
)
@click.option(
    "--max-size",
    type=SIZE_BYTES,
    metavar="SIZE",
    help="The oldest ones, until the rest is no larger: 5GB, 500MiB.",
)
@click.option("--yes", "is_meant", is_flag=True, help="Remove them; without it they are only named.")
@click.option("--json/--text", "as_json", default=False, help="JSON lines, or text (the default).")
def prune(
    *,
    data_dir: str,
    older_than: int | None,
    keep: int | None,
    max_size: int | None,
    is_meant: bool,
    as_json: bool,
) -> None:
    """Remove sessions for good: those that any of the rules given takes. Without --yes nothing is removed.

    Never one with an open turn, a queued message or a log that cannot be judged to its end. With --yes no host may
    hold the directory; a dry run may be made beside one.
    """
    rules = Rules(older_than, keep, max_size)
    if rules == Rules():
        raise click.UsageError("Say which sessions may go: --older-than, --keep or --max-size.")
    persistence = directory.opened(data_dir)
    with _held(persistence) if is_meant else contextlib.nullcontext():
        found = list(find(persistence, counted(persistence.session_ids(), "Looking")))
        taken = chosen(found, rules, SystemClock().now_ms())
        going = [one for one in taken if not one.held]
        if is_meant:
            asyncio.run(_remove(persistence, going))
    _print(found, taken, is_meant=is_meant, as_json=as_json)


@contextlib.contextmanager
def _held(persistence: FileHttpSessionPersistence) -> Iterator[None]:
    """A block in which no host can begin, since the directory is ours.

    Raises:
        DirectoryInUse: A host runs on it.
    """
    persistence.start()
    try:
        yield
    finally:
        persistence.stop()


async def _remove(persistence: FileHttpSessionPersistence, going: list[Found]) -> None:
    """Remove them, so many at a time.

    Raises:
        Failure: One cannot be removed.
    """
    parts = [going[at : at + _AT_A_TIME] for at in range(0, len(going), _AT_A_TIME)]
    for part in counted(parts, "Removing"):
        try:
            await remove(persistence, part)
        except StorageUnavailable as error:
            raise Failure(f"{error} Others may have been removed before; run it again.") from None


def _print(found: list[Found], taken: list[Found], *, is_meant: bool, as_json: bool) -> None:
    now_ms = SystemClock().now_ms()
    going = [one for one in taken if not one.held]
    for one in taken:
        if as_json:
            row = {
                "sessionId": one.session_id,
                "action": "kept" if one.held else "removed" if is_meant else "would be removed",
                "bytes": one.size_bytes,
                "updatedAt": one.updated_at_ms,
                **({"reason": one.held} if one.held else {}),
            }
            click.echo(json_text(row))
        else:
            what = f"kept: {one.held}" if one.held else "removed" if is_meant else "would be removed"
            idle = age(now_ms - one.updated_at_ms) if one.updated_at_ms else "?"
            click.echo(f"{one.session_id}  idle {idle:>6}  {size_text(one.size_bytes):>8}  {what}")
    total = {
        "sessions": len(found),
        "removed": len(going) if is_meant else 0,
        "wouldBeRemoved": 0 if is_meant else len(going),
        "bytes": sum(one.size_bytes for one in going),
        "bytesBefore": sum(one.size_bytes for one in found),
    }
    if as_json:
        click.echo(json_text(total))
        return
    click.echo(
        f"{len(going)} of {len(found)} sessions, {size_text(total['bytes'])} of {size_text(total['bytesBefore'])}, "
        + ("were removed." if is_meant else "would be removed; --yes does it.")
    )
