"""`zhin-host repair`: mend what the contract allows to be mended, after the files were copied."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from zhin_host.cli import directory
from zhin_host.cli.audit import FAULTY, line_limit_option
from zhin_host.cli.mending import Mender, is_broken, stays
from zhin_host.cli.progress import counted
from zhin_host.cli.terminal import json_text, visible
from zhin_host.clock import SessionId
from zhin_host.errors import StorageUnavailable
from zhin_host.storage.fs import TEMPORARY_PREFIX, FileSystem, storage_error
from zhin_host.storage.place import Place


@click.command()
@click.argument("session_ids", metavar="[ID]...", nargs=-1, shell_complete=directory.complete_ids)
@directory.option
@line_limit_option
@click.option("--yes", "is_meant", is_flag=True, help="Mend it; without it is only said what would be done.")
@click.option("--json/--text", "as_json", default=False, help="JSON lines, or text (the default).")
@click.pass_context
def repair(
    ctx: click.Context,
    /,
    *,
    session_ids: tuple[str, ...],
    data_dir: str,
    line_bytes_max: int,
    is_meant: bool,
    as_json: bool,
) -> None:
    """Mend the sessions named, or all: torn ends, stale snapshots, modes, marks, and what a deletion left over.

    Each session's files are copied first, to repair-<time> in the directory. A line that is broken in the middle is
    never cut or skipped: it is told, and its session stays readable up to there. What a crash left unsaid at a log's
    end is left to the host, which appends it when it starts. With --yes no host may hold the directory. Exit code 1:
    something stays that is not mended, or without --yes something is wrong.
    """
    persistence = directory.opened(data_dir)
    for session_id in session_ids:
        directory.read_session(persistence, session_id)
    mender = Mender(persistence.directory, line_bytes_max=line_bytes_max)
    copies = Path(persistence.directory, f"repair-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    general = {"sessionId": None, "steps": _of_the_directory(persistence.directory), "stays": []}
    is_faulty = bool(general["steps"]) and not is_meant
    with _held(persistence.directory) if is_meant else contextlib.nullcontext():
        ids = [SessionId(one) for one in session_ids] or mender.session_ids()
        mended = 0
        if general["steps"]:
            _print(general, is_meant=is_meant, as_json=as_json)
        for session_id in counted(ids, "Mending" if is_meant else "Looking"):
            row = _mended(mender, session_id, copies if is_meant else None)
            mended += bool(row["steps"])
            is_faulty = is_faulty or bool(row["stays"]) or (bool(row["steps"]) and not is_meant)
            if row["steps"] or row["stays"]:
                _print(row, is_meant=is_meant, as_json=as_json)
    where = str(copies) if is_meant and copies.exists() else None
    _print_total(len(ids), mended, where, is_meant=is_meant, as_json=as_json)
    if is_faulty:
        ctx.exit(FAULTY)


@contextlib.contextmanager
def _held(data_dir: str) -> Iterator[None]:
    """A block in which no host can begin, since the directory is ours. Its mode is right, unfinished files are gone.

    Raises:
        DirectoryInUse: A host runs on it.
    """
    place = Place(data_dir, FileSystem())
    place.take()
    try:
        yield
    finally:
        place.let_go()


def _of_the_directory(data_dir: str) -> list[str]:
    """What taking the directory sets right, of no session: its mode, and files that were not finished."""
    mode = stat.S_IMODE(Path(data_dir).stat().st_mode)
    unfinished = sum(path.name.startswith(TEMPORARY_PREFIX) for path in Path(data_dir).iterdir())
    return [
        *([f"it gets mode 0700 in place of {mode:04o}"] if mode & 0o077 else []),
        *([f"{unfinished} files that were not finished are removed"] if unfinished else []),
    ]


def _mended(mender: Mender, session_id: SessionId, copies: Path | None) -> dict[str, Any]:
    """What is done, or with no `copies` would be, and what stays wrong."""
    steps: list[str] = []
    remaining: list[str] = []
    try:
        for step in mender.steps(session_id):
            if copies is not None:
                if not steps:
                    mender.copy(session_id, copies)
                _carry_out(step.carry_out, step.told)
            steps.append(step.told)
        faults = mender.faults(session_id)
        remaining = faults if copies is not None else [fault for fault in faults if stays(fault)]
    except StorageUnavailable as error:
        remaining.append(str(error))
    return {"sessionId": session_id, "steps": steps, "stays": remaining}


def _carry_out(work: Any, told: str) -> None:
    try:
        work()
    except OSError as error:
        raise storage_error(error, f"mend it: {told}") from error


def _print(row: dict[str, Any], *, is_meant: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json_text({**row, "isDone": is_meant}))
        return
    whose = row["sessionId"] or "the directory"
    for step in row["steps"]:
        click.echo(f"{whose}  {'mended' if is_meant else 'can be mended'}: {visible(step)}")
    for fault in row["stays"]:
        click.echo(f"{whose}  stays: {visible(fault)}{_hint(fault)}")


def _hint(fault: str) -> str:
    if "must follow" in fault:
        return " (a host appends it when it starts)"
    if is_broken(fault):
        return " (a log is never cut in its middle; it is readable up to there)"
    return ""


def _print_total(count: int, mended: int, copies: str | None, *, is_meant: bool, as_json: bool) -> None:
    if as_json:
        click.echo(
            json_text({"sessions": count, "mended" if is_meant else "canBeMended": mended, "copies": copies})
        )
        return
    what = "mended" if is_meant else "can be mended"
    click.echo(f"Sessions looked at: {count}, {what}: {mended or 'none'}.")
    if copies is not None:
        click.echo(f"Copies of the files as they were: {visible(copies)}")
    elif not is_meant:
        click.echo("Nothing was changed; --yes mends what can be, after copying the files.")
