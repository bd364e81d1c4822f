"""What a remote tool is called here: a name that every model takes, the same in every process."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final

_NAME_CHARACTERS: Final = 64  # what those who serve models take at most
_PREFIX_CHARACTERS: Final = 24
_DIGEST_CHARACTERS: Final = 8
_JOINT: Final = "__"
_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_-]")
_JOINTS: Final = re.compile(r"__+")


def prefix_of(server: str) -> str:
    """How the names of a server's tools begin: 1 to 24 of a-z A-Z 0-9 _ -, without `__` in it or `_` at its end.

    Raises:
        ValueError: Nothing is left of the name.
    """
    prefix = _JOINTS.sub("_", _FOREIGN.sub("-", server))[:_PREFIX_CHARACTERS].strip("_")
    if not prefix.strip("-"):
        raise ValueError(f"an MCP server's name has a letter or a digit in it, not {server!r:.80}")
    return prefix


def prefixes_of(servers: Iterable[str]) -> dict[str, str]:
    """Prefix -> server.

    Raises:
        ValueError: Two servers would be called alike, or one has no name.
    """
    prefixes: dict[str, str] = {}
    for server in servers:
        other = prefixes.setdefault(prefix_of(server), server)
        if other != server:
            raise ValueError(
                f"the tools of the MCP servers {other!r:.80} and {server!r:.80} would be called alike; "
                "rename one of the servers"
            )
    return prefixes


def name_of(server: str, tool: str) -> str:
    """`server__tool`; where that had to be changed or cut, a digest of both at its end keeps it apart from others.

    It follows from the two names alone, so that no other tool that comes or goes changes it.
    """
    whole = f"{prefix_of(server)}{_JOINT}{tool}"
    name = _FOREIGN.sub("_", whole)
    if name == whole and tool and len(name) <= _NAME_CHARACTERS:
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[: _NAME_CHARACTERS - _DIGEST_CHARACTERS - 1]}_{digest}"


def split_name(name: str) -> tuple[str, str]:
    """The prefix of the server and what stands behind it; two empty texts when it is no name of a remote tool."""
    prefix, joint, rest = name.partition(_JOINT)
    return (prefix, rest) if joint and rest else ("", "")
