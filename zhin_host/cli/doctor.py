"""`zhin-host doctor`: whether a host can run here, and on what; it looks and changes nothing (ADR 0009 D7)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from zhin_host.cli import checks, directory
from zhin_host.cli.audit import FAULTY
from zhin_host.cli.checks import Finding
from zhin_host.cli.terminal import json_text, moment, visible
from zhin_host.clock import SessionId, time_of
from zhin_host.errors import NotFound, StartupError, StorageUnavailable
from zhin_host.ports import MARK_STOPPED, parked_until
from zhin_host.recovery import Hydrated, peek
from zhin_host.storage import names
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.fs import FileSystem
from zhin_host.storage.place import Place, is_held, read_holder

_LOOKED_AT_MAX: Final = 20
_LOG_BYTES_MAX: Final = 4 << 20
_AHEAD_FAIR_MS: Final = 60_000
_YEAR_2025_MS: Final = 1_735_689_600_000


@click.command()
@directory.option
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="[NAME=]MODULE:ATTRIBUTE",
    envvar="ZHIN_AGENT",
    help="Also see whether this one can be hosted.",
)
@click.option(
    "--token-file", metavar="FILE", envvar="ZHIN_TOKEN_FILE", help="Also see whether this one can be used."
)
@click.option("--json/--text", "as_json", default=False, help="JSON lines, or text (the default).")
@click.pass_context
def doctor(
    ctx: click.Context, /, *, data_dir: str, agents: tuple[str, ...], token_file: str | None, as_json: bool
) -> None:
    """See whether a host can run here: versions, limits, the data directory, its disk, its lock, its sessions.

    Nothing is written, and a host may run beside it. Each check is ok, a warning or a fault, with what to do about it.
    Exit code 1 on faults. Sessions are only counted and a few looked at: `zhin-host verify` looks at all.
    """
    has_fault = False
    for finding in _findings(os.path.realpath(data_dir), agents, token_file):
        has_fault = has_fault or finding.state == "fault"
        row = {"check": finding.check, "state": finding.state, "message": finding.message}
        text = f"{finding.state:<8} {finding.check:<12} {visible(finding.message)}"
        click.echo(json_text(row) if as_json else text)
    if has_fault:
        ctx.exit(FAULTY)


def _findings(data_dir: str, agents: tuple[str, ...], token_file: str | None) -> Iterator[Finding]:
    yield from checks.versions()
    yield from checks.descriptors()
    yield from checks.agents(agents)
    if token_file is not None:
        yield from checks.token_file(token_file)
    yield from _directory(data_dir)
    there = _nearest(data_dir)
    yield from checks.disk(there)
    yield from checks.syncs(there)
    if Path(data_dir).is_dir() and os.access(data_dir, os.R_OK | os.X_OK):
        yield from _lock(data_dir)
        yield from _sessions(FileHttpSessionPersistence(data_dir))


def _nearest(data_dir: str) -> str:
    """The directory, or what of its path is there and can be looked into."""
    path = Path(data_dir)
    while not (path.is_dir() and os.access(path, os.R_OK | os.X_OK)):
        path = path.parent
    return str(path)


def _directory(data_dir: str) -> Iterator[Finding]:
    """Whether it is there, ours, closed to others and writable: what `serve` asks for when it starts."""
    try:
        mode = Place(data_dir, FileSystem()).check()
    except StartupError as error:
        where = _nearest(data_dir)
        if isinstance(error.__cause__, FileNotFoundError) and os.access(where, os.W_OK | os.X_OK):
            told = f"There is none at {data_dir} yet; `zhin-host serve` makes it in {where}."
            yield Finding("directory", "warning", told)
        else:
            yield Finding("directory", "fault", str(error))
        return
    if not os.access(data_dir, os.R_OK | os.W_OK | os.X_OK):
        told = (
            f"{data_dir} cannot be read and written by uid {os.geteuid()}; chmod 700 it, on a writable disk."
        )
        yield Finding("directory", "fault", told)
    elif mode & 0o077:
        told = (
            f"{data_dir} is open to other users (mode {mode:03o}); chmod 700 it, as `zhin-host serve` does."
        )
        yield Finding("directory", "warning", told)
    else:
        yield Finding("directory", "ok", f"{data_dir} is its owner's alone (mode {mode:03o}).")


def _lock(data_dir: str) -> Iterator[Finding]:
    fs = FileSystem()
    holder = read_holder(data_dir, fs)
    try:
        held = is_held(data_dir, fs)
    except OSError as error:
        told = (
            f"Whether a host holds the directory cannot be told: {error.strerror}; see to {data_dir}/.lock."
        )
        yield Finding("lock", "fault", told)
        return
    if held:
        yield Finding("lock", "ok", f"A host runs on it: {holder or 'which, it does not say'}.")
    elif holder:
        yield Finding("lock", "ok", f"No host runs on it; the last one was killed: {holder}.")
    else:
        yield Finding("lock", "ok", "No host runs on it.")


def _sessions(persistence: FileHttpSessionPersistence) -> Iterator[Finding]:
    """How many there are, from names and marks; the newest are looked at, for damage and for the clock."""
    try:
        ids, marks = persistence.session_ids(), persistence.marks()
        torn = len(names.sessions_of(os.listdir(persistence.directory), names.TORN)[0])  # noqa: PTH208
    except StorageUnavailable as error:
        yield Finding("sessions", "fault", str(error))
        return
    parked = sum(parked_until(mark) is not None for mark in marks.values())
    stopped = sum(mark == MARK_STOPPED for mark in marks.values())
    running = len(marks) - parked - stopped
    told = f"{len(ids)}; marked as running: {running}, as stopped in a turn: {stopped}, as parked: {parked}"
    yield Finding("sessions", "ok", f"{told}; with a torn end that was cut off: {torn}.")
    recent = list(
        dict.fromkeys([*reversed(ids[-_LOOKED_AT_MAX:]), *sorted(marks, reverse=True)[:_LOOKED_AT_MAX]])
    )
    seen, broken = _looked_at(persistence, recent)
    if broken:
        told = f"{', '.join(broken)} cannot be read to the end; `zhin-host audit` says where, and `repair` mends."
        yield Finding("logs", "fault", told)
    else:
        told = f"The {len(seen)} newest and marked ones that were looked at are whole; `zhin-host verify` looks at all."
        yield Finding("logs", "ok", told)
    newest_ms = max([time_of(ids[-1]) if ids else 0, *(found.state.updated_at_ms for found in seen)])
    yield _clock(newest_ms)


def _looked_at(
    persistence: FileHttpSessionPersistence, ids: list[SessionId]
) -> tuple[list[Hydrated], list[SessionId]]:
    """What was read of these sessions, and which cannot be; long logs and those deleted meanwhile are left out."""
    seen: list[Hydrated] = []
    broken: list[SessionId] = []
    for session_id in ids:
        try:
            if (Path(persistence.directory) / f"{session_id}{names.LOG}").stat().st_size > _LOG_BYTES_MAX:
                continue
            found = peek(persistence, session_id)
        except (FileNotFoundError, NotFound):
            continue
        except StorageUnavailable:
            broken.append(session_id)
            continue
        seen.append(found)
        if found.fault is not None:
            broken.append(session_id)
    return seen, broken


def _clock(newest_ms: int) -> Finding:
    now_ms = time.time_ns() // 1_000_000
    ahead_ms = newest_ms - now_ms
    if now_ms < _YEAR_2025_MS:
        return Finding("clock", "fault", f"It is {moment(now_ms)} here; set the clock.")
    if ahead_ms > 0:
        told = f"It is {moment(now_ms)} here and the newest event is of {moment(newest_ms)}; set the clock."
        return Finding("clock", "fault" if ahead_ms > _AHEAD_FAIR_MS else "warning", told)
    return Finding("clock", "ok", f"It is {moment(now_ms)}, after every event that was looked at.")
