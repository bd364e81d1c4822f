"""Ledger: what the tools of killed hosts really did, in a file for each session, outside the data directory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from zhin_host import current_action

_directory = Path()  # set once in each host's process, before it serves


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of it.

    Attributes:
        what: "begun", then "finished" or "raised".
        key: The idempotency key that the tool was given.
        life: The process that ran it.
        at: The byte at which the line begins.
    """

    what: str
    call_id: str
    key: str
    life: int
    at: int


def keep_in(directory: Path) -> None:
    """Say where this process's tools write."""
    global _directory  # noqa: PLW0603 - tools are plain functions and know nothing else of their host
    _directory = directory


def world_of(session_id: str) -> Path:
    """A file whose being there is how the world outside has changed for this session."""
    return _directory / f"{session_id}.world"


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """Note that the running action begins, and how it ends. A cancelled one notes no end."""
    _note("begun")
    try:
        yield
    except Exception:
        _note("raised")
        raise
    _note("finished")


def times_begun() -> int:
    """How often the running action has begun in all, in whichever process."""
    action = current_action()
    path = _directory / action.idempotency_key.partition(":")[0]
    return sum(entry.call_id == action.call_id and entry.what == "begun" for entry in read(path))


def _note(what: str) -> None:
    action = current_action()
    row = {"what": what, "call": action.call_id, "key": action.idempotency_key, "life": os.getpid()}
    path = _directory / action.idempotency_key.partition(":")[0]
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, orjson.dumps(row) + b"\n")
    finally:
        os.close(fd)


def read(path: Path) -> list[Entry]:
    """Every line of a session's file, none when there is no file."""
    entries: list[Entry] = []
    at = 0
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        row = orjson.loads(line)
        entries.append(Entry(row["what"], row["call"], row["key"], row["life"], at))
        at += len(line)
    return entries


def size_of(path: Path) -> int:
    """Its length in bytes, 0 when there is no file."""
    return path.stat().st_size if path.exists() else 0
