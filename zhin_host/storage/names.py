"""Names: which files of a directory are a session's, by their names alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from zhin_host.clock import SessionId
from zhin_host.errors import SessionNotFound

LOG: Final = ".ndjson"
SNAPSHOT: Final = ".json"
MARK: Final = ".open"
TORN: Final = ".torn"

_SESSION: Final = r"ses_[0-9a-hjkmnp-tv-z]{26}"  # `ses_` and a lower-case ULID (contract section 3)
_SESSION_ID: Final = re.compile(_SESSION)
_FILE: Final = re.compile(rf"({_SESSION})(\.ndjson|\.json|\.open|\.torn)")
_KINDS: Final = {
    suffix: re.compile(rf"\0({_SESSION}){re.escape(suffix)}(?=\0)") for suffix in (LOG, SNAPSHOT, MARK, TORN)
}
_OTHER: Final = re.compile(
    r"\.lock|\.holder|\.tmp-[A-Za-z0-9_-]+|repair-\d{8}T\d{6}Z"
)  # of repair: a folder of copies


def checked(session_id: str) -> str:
    """The id itself, fit to be a file's name.

    Raises:
        SessionNotFound: It is no session's id; the disk was not asked.
    """
    if _SESSION_ID.fullmatch(session_id) is None:
        raise SessionNotFound(session_id)
    return session_id


def sessions_of(names: Iterable[str], *suffixes: str) -> list[set[SessionId]]:
    """For each suffix the sessions that have a file of that kind among the names, which may be very many."""
    text = "\0".join(("", *names, ""))  # no name holds a NUL, so one search finds all of a kind
    return [set(map(SessionId, _KINDS[suffix].findall(text))) for suffix in suffixes]


def is_ours(name: str) -> bool:
    """Whether a host, or a repair, makes files of this name."""
    return _FILE.fullmatch(name) is not None or _OTHER.fullmatch(name) is not None


def is_session_id(text: str) -> bool:
    """Whether it has the shape of a session's id."""
    return _SESSION_ID.fullmatch(text) is not None
