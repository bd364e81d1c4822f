"""HttpStepProjector: the step.* and session.waiting events that follow what has happened (ADR 0040, D2 and D3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zhin_host import events as ev
from zhin_host.state import SessionState


class HttpStepProjector:
    """A pure function of the state: what the log owes next.

    A step is the durable segment of one turn, so its id follows from the turn's. The same function pays what a live
    event calls for and what a crash cut off a batch: the state says what is owed, whoever asks.
    """

    def __call__(
        self, state: SessionState, coming: Sequence[str] = (), *, is_live: bool = True
    ) -> ev.Draft | None:
        """The next event that follows of itself, or None when nothing is owed or what is `coming` pays it.

        Args:
            state: The fold of everything before.
            coming: Types of the events that the same batch still holds.
            is_live: Whether an attempt of the turn is running; False when one must be begun anew, so that
                step.resumed counts a further attempt and says from where on events do not count.
        """
        if not state.owes:
            return None
        match state.owes[0]:
            case ev.STEP_STARTED:
                return _step(state, ev.STEP_STARTED, "running")
            case ev.STEP_COMPLETED:
                return _step(state, ev.STEP_COMPLETED, "completed")
            case ev.STEP_INTERRUPTED:
                return _interrupted(state)
            case ev.STEP_RESUMED:
                is_cancelling = state.turn is not None and state.turn.is_cancelling
                if is_cancelling or ev.STEP_RESUMED in coming:
                    return None
                gives_up = len(state.owes) > 1
                if gives_up and any(kind in ev.TURN_ENDS for kind in coming):
                    return None
                return projected_resume(state, is_live=is_live)
            case ev.SESSION_WAITING:
                return None if any(kind in ev.SESSION_ENDS for kind in coming) else _waiting(state)
            case _:
                return None


def step_id_of(turn_id: str) -> str:
    """The step of a turn."""
    return "step_" + turn_id.removeprefix("turn_")


def _turn_id(state: SessionState) -> str:
    turn_id: str = state.turn.turn_id if state.turn is not None else state.steps[-1]["turnId"]
    return turn_id


def _step(state: SessionState, kind: str, status: str, **more: Any) -> ev.Draft:
    turn_id = _turn_id(state)
    return ev.Draft(kind, {"stepId": step_id_of(turn_id), "turnId": turn_id, "status": status, **more})


def _interrupted(state: SessionState) -> ev.Draft:
    kind, request_id = state.interrupt or ("failure", None)
    more = {} if request_id is None else {"requestId": request_id}
    return _step(state, ev.STEP_INTERRUPTED, "interrupted", interruptKind=kind, **more)


def projected_resume(state: SessionState, *, is_live: bool = False) -> ev.Draft:
    """step.resumed: of the attempt that waits (live), or of a further one, with the first event that does not count."""
    turn_id = _turn_id(state)
    attempt = state.steps[-1]["attempt"]
    data: dict[str, Any] = {"stepId": step_id_of(turn_id), "turnId": turn_id}
    if is_live:
        return ev.Draft(ev.STEP_RESUMED, {**data, "attempt": attempt})
    data["attempt"] = attempt + 1
    if state.turn is not None and state.turn.loose_index is not None:
        data["discardFrom"] = state.turn.loose_index
    return ev.Draft(ev.STEP_RESUMED, data)


def _waiting(state: SessionState) -> ev.Draft:
    """The boundary: why the session waits, for whom, and with which token it goes on."""
    if state.pending:
        reason = "parked"
    else:
        reason = "interrupted" if state.steps[-1].get("interruptKind") == "restart" else "idle"
    data: dict[str, Any] = {
        "sessionId": state.session_id,
        "continuationToken": state.token,
        "parked": bool(state.pending),
        "reason": reason,
        "pendingRequestIds": list(state.pending),
        "steps": list(state.steps),
    }
    if state.queue:
        data["queued"] = len(state.queue)
    return ev.Draft(ev.SESSION_WAITING, data)
