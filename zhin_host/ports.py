"""The seams: what the runtime asks of storage and of whoever authenticates (the agent's is in agent.py).

Errors of storage are `StorageUnavailable` and `StorageFull` (errors.py) everywhere: no OSError passes a port.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from zhin_host.clock import SessionId
from zhin_host.errors import Forbidden

MARK_RUNNING: Final = "running"
MARK_STOPPED: Final = "stopped"
MARK_PARKED: Final = "parked"


def parked_until(mark: str) -> int | None:
    """When the first request of a parked session out of memory expires, ms; 0: never; None: no such mark."""
    word, _, until_ms = mark.partition(" ")
    return int(until_ms) if word == MARK_PARKED and until_ms.isdecimal() and until_ms.isascii() else None


class SessionLog(Protocol):
    """One session's log, held by its one owner. All calls come from one thread at a time, except `read`."""

    session_id: SessionId

    @property
    def size_bytes(self) -> int:
        """Bytes appended so far; always ends with a whole line."""

    def append(self, lines: bytes, *, expected_bytes: int) -> None:
        """Append whole lines in one write: all of them, or none and an error.

        On return they are with the operating system (kill -9 keeps them); only `sync` makes them survive a power cut.

        Args:
            lines: One or more lines, each with its newline.
            expected_bytes: The size the caller believes the log has.

        Raises:
            StorageFull: No space; the log is as it was.
            StorageUnavailable: Not writable, or the size is another: somebody else appended. The log is as it was.
        """

    def read(self, offset: int, limit_bytes: int) -> bytes:
        """Up to `limit_bytes` bytes from `offset` on, in any thread; b"" at the end. May end within a line.

        Raises:
            StorageUnavailable: The bytes cannot be read.
        """

    def offset_of(self, index: int) -> int:
        """The byte at which event `index` begins; the size when there is no such event yet.

        Found by bisection: some twenty short reads, whatever the length.

        Raises:
            StorageUnavailable: The bytes cannot be read, or are no event lines where it looked.
        """

    async def sync(self) -> None:
        """Wait until all that is appended now survives a power cut (under --fsync never: return at once).

        Calls of many sessions share one sync.

        Raises:
            StorageUnavailable: The sync failed. The bytes since the last good one are written again before the next.
        """

    def close(self) -> None:
        """Give the descriptor back; the log itself stays."""


class SessionPersistence(Protocol):
    """Where sessions live. One host at a time; an instance is started once and stopped once."""

    def start(self) -> None:
        """Make the place ready and take it for this host; sweep what an interrupted write left.

        Raises:
            StartupError: It cannot be used; DirectoryInUse when another host holds it.
        """

    def stop(self) -> None:
        """Let the place go. Everything appended and synced before stays."""

    def check_writable(self) -> None:
        """Raise StorageUnavailable or StorageFull, with the reason, when a write would fail now."""

    def session_ids(self) -> list[SessionId]:
        """Every session that has a log, oldest first. Reads names, not files."""

    def marks(self) -> dict[SessionId, str]:
        """The sessions that may have an open turn or queued message, with what their .open file says."""

    def last_written_ms(self, session_id: SessionId) -> int:
        """When its log was last appended to, ms since the epoch, as far as the place knows; 0: it does not."""

    async def create_log(self, session_id: SessionId, instead_of: SessionId | None = None) -> SessionLog:
        """A new, empty log, marked MARK_RUNNING; both names survive a power cut on return (not under never).

        Args:
            session_id: The new session's.
            instead_of: A session whose mark is due to be removed: it may become the new one's, in this call's first
                step. When the call fails, it is gone or a stale one.
        """

    def open_log(self, session_id: SessionId) -> SessionLog:
        """The log of a session, its tail mended (contract section 4): ready to be appended to.

        Raises:
            SessionNotFound: There is none, or no whole first line (the bytes are then in .torn).
            StorageUnavailable: It cannot be opened, or is no regular file with one link.
        """

    def peek_log(self, session_id: SessionId) -> SessionLog:
        """The log as it lies there, for reading only: its size ends with the last whole line, nothing is mended.

        Raises:
            SessionNotFound: There is none.
            StorageUnavailable: It cannot be opened, or is no regular file with one link.
        """

    def discard_log(self, log: SessionLog) -> None:
        """Move all of a log's bytes to .torn and forget the session: nobody was told of it."""

    def read_snapshot(self, session_id: SessionId) -> bytes | None:
        """The snapshot's bytes; None when there is none or it cannot be read."""

    async def write_snapshot(self, session_id: SessionId, snapshot: bytes) -> None:
        """Replace the snapshot as a whole, away from the loop. A cache: it need not survive a power cut.

        Raises:
            StorageUnavailable: It was not written; the old one stays.
        """

    async def mark(self, session_id: SessionId, text: str) -> None:
        """Set the .open file to `text`; it survives a power cut on return (not under never)."""

    def unmark(self, session_ids: Iterable[SessionId]) -> None:
        """Remove .open files. A stale one is harmless, so nothing waits for this and no error is raised."""

    async def delete(self, session_id: SessionId) -> None:
        """Remove every byte of a session: log, snapshot, mark and torn bytes, the log first."""


Right = Literal["read", "write", "approve"]
"""What a route asks of its caller."""

SCOPES: Final = {  # ADR 0008 D2
    "read": "sees one's own sessions",
    "write": "starts sessions; sends to, cancels, resumes, ends and deletes one's own",
    "approve": "answers the open requests of one's own sessions",
    "read:all": "sees everybody's sessions",
    "approve:all": "answers the open requests of everybody's sessions",
    "admin": "all of it, in everybody's sessions",
}
"""What a caller may be given, and what each is good for."""

OWN_SCOPES: Final = frozenset({"read", "write", "approve"})
"""Everything in one's own sessions: what a caller has of whom nothing else is said."""

_NAME_CHARACTERS_MAX: Final = 200  # it stands beside everything in an event


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls, as the authentication says.

    Attributes:
        name: Whose the sessions are that it starts, and who `by` says it was: 1 to 200 printable characters. None
            where nobody is told apart (no token file): such a caller owns what has no owner.
        scopes: What it may do, of SCOPES.

    Raises:
        ValueError: The name or a scope is none.
    """

    name: str | None = None
    scopes: frozenset[str] = OWN_SCOPES

    def __post_init__(self) -> None:
        if self.name is not None and not (
            0 < len(self.name) <= _NAME_CHARACTERS_MAX and self.name.isprintable()
        ):
            raise ValueError(
                f"a principal's name is 1 to {_NAME_CHARACTERS_MAX} printable characters, not {self.name!r:.80}"
            )
        unknown = sorted(self.scopes - SCOPES.keys())
        if unknown:
            raise ValueError(f"a scope is one of {', '.join(SCOPES)}, not {unknown[0]!r:.40}")

    def check(self, right: Right) -> None:
        """Raise Forbidden when it may do this in no session at all."""
        if right not in self.scopes and not self.reaches_all(right):
            raise Forbidden(f"This needs the scope {right}, which your credentials do not have; ask for it.")

    def reaches_all(self, right: Right) -> bool:
        """Whether it may do this in everybody's sessions."""
        return "admin" in self.scopes or f"{right}:all" in self.scopes

    def reaches(self, right: Right, owner: str | None) -> bool:
        """Whether it may do this in a session of `owner`."""
        return (right in self.scopes and owner == self.name) or self.reaches_all(right)


class Authenticator(Protocol):
    """Says who calls: the seam for one's own (docs/access.md)."""

    async def authenticate(self, headers: Mapping[bytes, bytes]) -> Principal:
        """The caller. Called once for each request but those of the open routes, many at the same time.

        It runs on the host's loop: what takes long or blocks goes to a thread or an async client. What it raises
        beside Unauthorized is answered 500 and lets nobody in.

        Args:
            headers: Lower-case names; of a repeated header the last value. Credentials are taken from `authorization`
                only: a cookie goes along with requests that its owner did not make.

        Raises:
            Unauthorized: The credentials are missing or wrong; the sentence goes to the caller.
        """
