"""Verdict: what the audit says of one session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from zhin_host.clock import SessionId

FAULTS_MAX: Final = 100
"""Faults that are listed of a session; one fault often calls forth many."""

CHAIN_BROKEN: Final = "the chain is broken here: its sum does not match"


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken promise.

    Attributes:
        index: Of the event concerned; the next one's where the end of the log is concerned.
        byte: Where that event begins in the log.
        message: What is wrong, in one sentence.
    """

    index: int
    byte: int
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the audit found in one session.

    Attributes:
        events: Whole lines that were read.
        bytes: Their size.
        last_sum: The chain's last link there; kept elsewhere, it proves that nothing before was changed.
        faults: What is wrong, in the order of the log, at most FAULTS_MAX.
    """

    session_id: SessionId
    events: int
    bytes: int
    last_sum: str
    faults: tuple[Fault, ...]

    @property
    def unchained(self) -> tuple[int, int] | None:
        """Index and byte of the first event that the chain does not hold, None when it holds all."""
        found = (fault for fault in self.faults if fault.message == CHAIN_BROKEN)
        return next(((fault.index, fault.byte) for fault in found), None)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        """The wire form, camelCase."""
        return {
            "ok": self.ok,
            "sessionId": self.session_id,
            "events": self.events,
            "bytes": self.bytes,
            "lastSum": self.last_sum,
            "faults": [{"index": row.index, "byte": row.byte, "message": row.message} for row in self.faults],
        }
