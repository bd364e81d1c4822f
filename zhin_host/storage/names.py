"""Names: which files of a directory are a session's, by their names alone."""

from __future__ import annotations

import re
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
_HIDDEN: Final = re.compile(r"\.lock|\.holder|\.tmp-[A-Za-z0-9_-]+")


def checked(session_id: str) -> str:
    """The id itself, fit to be a file's name.

    Raises:
        SessionNotFound: It is no session's id; the disk was not asked.
    """
    if _SESSION_ID.fullmatch(session_id) is None:
        raise SessionNotFound(session_id)
    return session_id


def session_of(name: str, suffix: str) -> SessionId | None:
    """The session whose file of that kind this is; None for everybody else's."""
    match = _FILE.fullmatch(name)
    return SessionId(match[1]) if match is not None and match[2] == suffix else None


def is_ours(name: str) -> bool:
    """Whether a host makes files of this name."""
    return _FILE.fullmatch(name) is not None or _HIDDEN.fullmatch(name) is not None
