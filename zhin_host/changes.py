"""Changes: what a batch changed, counted and told in the host's log, one line each (ADR 0009 D5)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from zhin_host import events as ev
from zhin_host.clock import SessionId
from zhin_host.logline import tell
from zhin_host.meters import End, Meters, Recovery
from zhin_host.state import OpenTurn, SessionState

_log = logging.getLogger("zhin_host.changes")

TOLD: Final[Mapping[str, tuple[str, ...]]] = {  # type -> which of its fields the line has
    ev.SESSION_STARTED: (),
    ev.SESSION_COMPLETED: ("by",),
    ev.SESSION_FAILED: ("code", "by"),
    ev.TURN_STARTED: ("resumes", "by"),
    ev.TURN_COMPLETED: (),
    ev.TURN_FAILED: ("code", "recoverable"),
    ev.TURN_CANCELLING: ("reason", "by"),
    ev.TURN_CANCELLED: ("reason", "by"),
    ev.STEP_RESUMED: ("attempt",),
    ev.MESSAGE_QUEUED: ("by",),
    ev.INPUT_REQUESTED: ("requestId", "kind"),
    ev.INPUT_COMPLETED: ("requestId", "kind", "outcome", "by"),
    ev.AUTHORIZATION_REQUIRED: ("requestId",),
    ev.AUTHORIZATION_COMPLETED: ("requestId", "success", "by"),
}
"""The events that are told; the others follow from these, or are what agents and people say."""

_BY_OWNER: Final = frozenset(
    {ev.SESSION_STARTED, ev.TURN_STARTED, ev.MESSAGE_QUEUED}
)  # where no other is named
_ENDS: Final[Mapping[str, End]] = {
    ev.TURN_COMPLETED: "completed",
    ev.TURN_FAILED: "failed",
    ev.TURN_CANCELLED: "cancelled",
}


class Change(NamedTuple):
    """An event of TOLD that stands in a batch; `turn_id` is of the turn that was open before it."""

    type: str
    data: Mapping[str, Any]
    turn_id: str | None


def report(state: SessionState, changes: Iterable[Change], meters: Meters) -> None:
    """Count and tell what a batch changed, now that it is in the log.

    Args:
        state: The session's after the batch.
        changes: In the order of the log.
        meters: The host's.
    """
    is_told = _log.isEnabledFor(logging.INFO)
    for change in changes:
        end = _ENDS.get(change.type)
        if end is not None:
            meters.turn_ended(state.agent, end)
        if is_told:
            _tell(state, change)


def _tell(state: SessionState, change: Change) -> None:
    kind, data, turn_id = change
    fields: dict[str, Any] = {"sessionId": state.session_id}
    if kind not in ev.SESSION_ENDS and kind != ev.SESSION_STARTED:
        fields["turnId"] = data.get("turnId", turn_id)
    fields["agent"] = state.agent
    fields.update((name, data[name]) for name in TOLD[kind] if name in data)
    if kind in _BY_OWNER:
        fields.setdefault("by", state.owner)
    tell(_log, logging.INFO, kind, **fields)


def report_recovery(session_id: SessionId, outcome: Recovery, turn: OpenTurn | None, meters: Meters) -> None:
    """Count and tell what became of a session that the last host left in the middle of a turn."""
    meters.recoveries[outcome] += 1
    told = {} if turn is None else {"turnId": turn.turn_id, "attempt": turn.attempt}
    tell(_log, logging.INFO, "session.recovered", sessionId=session_id, outcome=outcome, **told)
