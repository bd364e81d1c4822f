"""Names: which files of a directory are a session's, by their names alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from zhin_host.clock import SESSION_ID_PATTERN, SessionId, is_session_id
from zhin_host.errors import SessionNotFound

LOG: Final = ".ndjson"
SNAPSHOT: Final = ".json"
MARK: Final = ".open"
TORN: Final = ".torn"

_FILE: Final = re.compile(rf"({SESSION_ID_PATTERN})(\.ndjson|\.json|\.open|\.torn)")
_KINDS: Final = {
    suffix: re.compile(rf"\0({SESSION_ID_PATTERN}){re.escape(suffix)}(?=\0)")
    for suffix in (LOG, SNAPSHOT, MARK, TORN)
}
_OTHER: Final = re.compile(
    r"\.lock|\.holder|\.tmp-[A-Za-z0-9_-]+|repair-\d{8}T\d{6}Z"
)  # of repair: a folder of copies


def checked(session_id: str) -> str:
    """The id itself, fit to be a file's name.

    Raises:
        SessionNotFound: It is no session's id; the disk was not asked.
    """
    if not is_session_id(session_id):
        raise SessionNotFound(session_id)
    return session_id


def sessions_of(names: Iterable[str], *suffixes: str) -> list[set[SessionId]]:
    """For each suffix the sessions that have a file of that kind among the names, which may be very many."""
    text = "\0".join(("", *names, ""))  # no name holds a NUL, so one search finds all of a kind
    return [set(map(SessionId, _KINDS[suffix].findall(text))) for suffix in suffixes]


def is_ours(name: str) -> bool:
    """Whether a host, or a repair, makes files of this name."""
    return _FILE.fullmatch(name) is not None or _OTHER.fullmatch(name) is not None
