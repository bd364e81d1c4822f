"""Checks: what `zhin-host doctor` looks at outside of sessions: versions, limits, the agent, tokens, the disk."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final, Literal

from zhin_host import __version__
from zhin_host.agent import Agent
from zhin_host.cli.amounts import size_text
from zhin_host.cli.loading import add_agents, load, named_place
from zhin_host.errors import StartupError
from zhin_host.events import LOG_VERSION
from zhin_host.http.auth import parse_tokens, read_token_file
from zhin_host.server import raise_descriptor_limit
from zhin_host.snapshot import SNAPSHOT_VERSION
from zhin_host.storage.kernel import takes_syncs

State = Literal["ok", "warning", "fault"]

_DESCRIPTORS_FAIR: Final = 4_096  # each session in memory and each connection takes one
_DESCRIPTORS_LEAST: Final = 128  # 64 are kept for logs, snapshots and the loop
_FREE_FAIR: Final = 1 << 30
_FREE_LEAST: Final = 16 << 20
_INODES_FAIR: Final = 10_000  # a session takes two or three
_INODES_LEAST: Final = 100
_NETWORK: Final = re.compile(r"nfs\d?|cifs|smb\w*|9p|afs|ceph|glusterfs|lustre|ncpfs|virtiofs|fuse(\..+)?")
_FLEETING: Final = {
    "tmpfs": "it is gone with the machine's power",
    "ramfs": "it is gone with the machine's power",
    "overlay": "in a container it is gone with the container",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: one sentence, and what to do when it is not ok."""

    check: str
    state: State
    message: str


def versions() -> Iterator[Finding]:
    """What runs here, and on what."""
    names = sorted(
        re.split(r"[^\w.-]", row)[0] for row in metadata.requires("zhin-host") or [] if ";" not in row
    )
    installed = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    formats = f"logs of version {LOG_VERSION}, snapshots of version {SNAPSHOT_VERSION}"
    told = f"zhin-host {__version__} ({formats}), {python}, {platform.system()} {platform.release()}"
    yield Finding("versions", "ok", f"{told}; {installed}.")


def descriptors() -> Iterator[Finding]:
    """How many files and connections may be open; `serve` raises the soft limit to the hard one, as this does."""
    limit = raise_descriptor_limit()
    if limit >= _DESCRIPTORS_FAIR:
        told = "unlimited" if limit == sys.maxsize else str(limit)
        yield Finding("descriptors", "ok", f"Open files: {told}.")
        return
    state: State = "fault" if limit < _DESCRIPTORS_LEAST else "warning"
    told = f"Only {limit} files may be open, connections included; raise the hard limit (ulimit -Hn, LimitNOFILE=)."
    yield Finding("descriptors", state, told)


def agents(references: Iterable[str]) -> Iterator[Finding]:
    """Whether each of them can be imported and hosted beside those before it."""
    found: dict[str, Agent] = {}
    for reference in references:
        try:
            name, place = named_place(reference)
            names = add_agents(found, name, load(place, "agent"))
        except StartupError as error:
            yield Finding("agent", "fault", str(error))
            continue
        yield from (_told_of(reference, name, found[name]) for name in names)


def _told_of(reference: str, name: str, one: Agent) -> Finding:
    if one.is_resumable:
        return Finding("agent", "ok", f"{reference} has agent {name!r}; its turns go on after a restart.")
    told = f"{reference} has agent {name!r}, not resumable; its open turns end as failed at every restart."
    return Finding("agent", "warning", told)


def token_file(path: str) -> Iterator[Finding]:
    """Whether it can be read, by its owner alone, and says who may call."""
    try:
        text, is_open = read_token_file(path)
        count = len(parse_tokens(text, path))
    except StartupError as error:
        yield Finding("tokens", "fault", str(error))
        return
    if is_open:
        told = f"The token file {path} may be read by others; chmod 600 it."
        yield Finding("tokens", "warning", told)
    else:
        yield Finding("tokens", "ok", f"The token file {path} is its owner's alone; tokens in it: {count}.")


def disk(directory: str) -> Iterator[Finding]:
    """Space, inodes and the kind of the file system."""
    facts = os.statvfs(directory)
    if facts.f_flag & os.ST_RDONLY:
        yield Finding("disk", "fault", "The file system is read-only; mount it for writing.")
    free = (facts.f_bfree if os.geteuid() == 0 else facts.f_bavail) * facts.f_frsize
    yield _enough("space", free, size_text(free), _FREE_FAIR, _FREE_LEAST)
    if facts.f_files:  # some file systems do not count them
        yield _enough("inodes", facts.f_favail, str(facts.f_favail), _INODES_FAIR, _INODES_LEAST)
    yield _file_system(directory)


def _enough(check: str, free: int, told: str, fair: int, least: int) -> Finding:
    if free >= fair:
        return Finding(check, "ok", f"Free: {told}.")
    remedy = "prune old sessions (`zhin-host prune`) or make room"
    return Finding(check, "fault" if free < least else "warning", f"Free: {told} only; {remedy}.")


def _file_system(directory: str) -> Finding:
    try:
        kind = kind_of(directory, Path("/proc/self/mounts").read_text("utf-8", "surrogateescape"))
    except OSError:
        return Finding("filesystem", "ok", "Its kind is not told by this system.")
    if _NETWORK.fullmatch(kind):
        told = f"It is {kind}: a network's locks and appends may not hold; use a local disk."
        return Finding("filesystem", "warning", told)
    if kind in _FLEETING:
        return Finding("filesystem", "warning", f"It is {kind}: {_FLEETING[kind]}; use a disk or a volume.")
    return Finding("filesystem", "ok", f"It is {kind}.")


def kind_of(directory: str, mounts: str) -> str:
    """The kind of the file system that a directory is on, by a table as /proc/mounts has it; the last line wins."""
    found, length = "unknown", -1
    for row in mounts.splitlines():
        _, point, kind, *_ = row.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point).rstrip("/")
        if (directory == point or directory.startswith(point + "/")) and len(point) >= length:
            found, length = kind, len(point)
    return found


def syncs(directory: str) -> Iterator[Finding]:
    """Whether the kernel syncs without a thread."""
    if asyncio.run(takes_syncs(directory)):
        yield Finding("syncs", "ok", "The kernel syncs without a thread.")
    else:
        told = "Syncs go to threads, which is slower; allow io_submit and its kin in the sandbox, if there is one."
        yield Finding("syncs", "warning", told)
