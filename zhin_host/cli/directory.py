"""The data directory as the reading commands take it: files alone, no lock, nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from zhin_host.cli.terminal import Refusal
from zhin_host.clock import SessionId
from zhin_host.errors import SessionNotFound, ZhinError
from zhin_host.recovery import Hydrated, peek
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.place import LOCK_NAME

DEFAULT: Final = "data/http-agent-sessions"

option: Final = click.option(
    "--data-dir",
    default=DEFAULT,
    envvar="ZHIN_DATA_DIR",
    show_default=True,
    show_envvar=True,
    metavar="DIR",
    help="The folder of the sessions' files.",
)

json_option: Final = click.option(
    "--json/--text",
    "as_json",
    default=None,
    help="JSON lines or text; by default text on a terminal, else JSON lines.",
)


def opened(data_dir: str) -> FileHttpSessionPersistence:
    """The directory, for reading.

    Raises:
        Refusal: There is none.
    """
    if not Path(data_dir).is_dir():
        raise Refusal(
            f"There is no data directory {Path(data_dir).absolute()}; name one with --data-dir, "
            "or make one with `zhin-host serve`."
        )
    return FileHttpSessionPersistence(data_dir)


def held_once(data_dir: str) -> FileHttpSessionPersistence:
    """As `opened`, for a verdict on the whole: a folder that has never been a data directory gets none.

    Raises:
        Refusal: There is none, or no session is in it and no host was ever on it.
    """
    persistence = opened(data_dir)
    if not persistence.session_ids() and not (Path(data_dir) / LOCK_NAME).exists():
        raise Refusal(
            f"{persistence.directory} is no data directory: no session is in it, and no host has ever used it; "
            "name the right one with --data-dir."
        )
    return persistence


def read_session(persistence: FileHttpSessionPersistence, session_id: str) -> Hydrated:
    """One session as its files say it now.

    Raises:
        Refusal: There is no such session in the directory.
        StorageUnavailable: Its files cannot be read.
    """
    try:
        return peek(persistence, SessionId(session_id))
    except SessionNotFound:
        raise unknown(persistence, session_id) from None


def unknown(persistence: FileHttpSessionPersistence, session_id: str) -> Refusal:
    """The sentence for an id that no session has."""
    return Refusal(
        f"There is no session {session_id!r:.80} in {persistence.directory}; `zhin-host sessions` lists them."
    )


def broken_at(found: Hydrated) -> dict[str, Any]:
    """What is said beside a session whose log cannot be read to its end; nothing when it can."""
    return {} if found.fault is None else {"brokenAt": found.fault.index}


def complete_ids(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: the ids of the sessions in the directory that begin so, newest first."""
    persistence = FileHttpSessionPersistence(ctx.params.get("data_dir") or DEFAULT)
    try:
        ids = persistence.session_ids()
    except ZhinError:
        return []
    return [session_id for session_id in reversed(ids) if session_id.startswith(incomplete)]
