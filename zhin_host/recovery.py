"""Recovery: read a session back from its files, and decide what its log still owes after a crash."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from zhin_host import events as ev
from zhin_host.agent import Agent
from zhin_host.clock import SessionId
from zhin_host.errors import IllegalMove, SessionNotFound
from zhin_host.fold import apply
from zhin_host.moves import check
from zhin_host.ports import SessionLog, SessionPersistence
from zhin_host.session import Fault
from zhin_host.snapshot import SnapshotError, decode_snapshot
from zhin_host.state import OpenTurn, SessionState, new_state
from zhin_host.turns import cancelled, closing, failed, received, redriven, said_of

_log = logging.getLogger("zhin_host.recovery")

AGENT_CHANGED: Final = (
    "The agent was changed while this turn was open; send the message again with the continuationToken."
)
_BLOCK_BYTES: Final = 1 << 20
_FIRST_BYTES: Final = 1 << 16
CRASHES_MAX: Final = 3
"""Re-driven attempts in a row that end with the host and add nothing to the record: then the turn fails."""


@dataclass(frozen=True, slots=True)
class Hydrated:
    """A session read back.

    Attributes:
        snapshot_bytes: Size of the snapshot it was read from, 0 when from the log alone.
        snapshot_offset: How far of the log that snapshot held.
        fault: Where the log is broken, None when it is whole.
    """

    state: SessionState
    log: SessionLog
    snapshot_bytes: int
    snapshot_offset: int
    fault: Fault | None


def hydrate(persistence: SessionPersistence, session_id: SessionId) -> Hydrated:
    """Read a session for its owner: the log's tail mended, the state folded. Blocks; run it in a thread.

    Raises:
        SessionNotFound: There is none, or nobody was ever told of it.
        StorageUnavailable: Its files cannot be read.
    """
    log = persistence.open_log(session_id)
    found = _fold(persistence, log)
    if found.fault is None and was_never_told(found.state):
        _log.warning("session %s began and no turn of it was written: its bytes go to .torn", session_id)
        persistence.discard_log(log)
        raise SessionNotFound(session_id)
    if found.fault is not None:
        _log.error(
            "the log of session %s is broken at event %d, byte %d: %s",
            session_id,
            found.fault.index,
            found.fault.offset,
            found.fault.reason,
        )
    return found


def peek(persistence: SessionPersistence, session_id: SessionId) -> Hydrated:
    """Read a session as it lies there and change nothing; the log is closed. Blocks.

    Raises:
        SessionNotFound: There is none.
        StorageUnavailable: Its files cannot be read.
    """
    log = persistence.peek_log(session_id)
    try:
        return _fold(persistence, log)
    finally:
        log.close()


def read_owner(persistence: SessionPersistence, session_id: SessionId) -> str | None:
    """Whose a session is, from the first line of its log alone; None: nobody's, or that line is broken. Blocks.

    Raises:
        SessionNotFound: There is none.
        StorageUnavailable: Its log cannot be read.
    """
    log = persistence.peek_log(session_id)
    try:
        line = b""
        while b"\n" not in line and (block := log.read(len(line), _FIRST_BYTES)):
            line += block
    finally:
        log.close()
    parts = ev.split_line(line.partition(b"\n")[0])
    try:
        owner = None if parts is None else orjson.loads(parts.data).get("owner")
    except orjson.JSONDecodeError:
        return None
    return owner if isinstance(owner, str) else None


def was_never_told(state: SessionState) -> bool:
    """No client was answered: session.started without its turn.started, or not even that (contract section 4)."""
    return state.next_index == 0 or state.owes == (ev.TURN_STARTED,)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a session that was read back needs.

    Attributes:
        drafts: What to append; what a cut batch owes comes before it by itself.
        is_driven: Whether the open turn is then run from its record.
    """

    drafts: Sequence[ev.Draft] = ()
    is_driven: bool = False


def after_restart(state: SessionState, agent: Agent, on_agent_change: str, *, was_crash: bool) -> Plan:
    """Decide from the log what its last turn needs (contract section 4).

    Args:
        state: The fold of the log.
        agent: The session's agent, as it is hosted now.
        on_agent_change: "ask", "continue" or "fail".
        was_crash: Whether the last host ended without a clean stop: then a fruitless attempt counts.
    """
    turn = state.turn
    if turn is None:
        return Plan()
    if turn.cancelling is not None:
        return Plan(ending_after_restart(state))
    missing = (
        [received(turn.turn_id, turn.message)] if not turn.is_received and turn.message is not None else []
    )
    if not agent.is_resumable or (not turn.is_received and not missing):
        return Plan([*missing, *ending_after_restart(state)])
    if missing:
        return Plan(missing, is_driven=True)
    if (
        turn.completions and turn.loose_index is None
    ):  # the last step of a stepped agent: only the end was cut off
        return Plan([*closing(state), ev.Draft(ev.TURN_COMPLETED, {"turnId": turn.turn_id})])
    if state.pending:
        return Plan()
    crashes = turn.crashes + 1 if turn.is_fruitless and was_crash else turn.crashes
    if crashes >= CRASHES_MAX:
        message = (
            f"The host ended {crashes} times in a row while it drove this turn, and nothing was recorded."
        )
        return Plan([failed(turn.turn_id, "RECOVERY_EXHAUSTED", message)])
    if on_agent_change == "fail" and has_changed(turn, agent):
        return Plan([failed(turn.turn_id, "TURN_DIVERGED", AGENT_CHANGED)])
    return Plan([redriven(state, crashes)], is_driven=True)


def has_changed(turn: OpenTurn, agent: Agent) -> bool:
    """Whether the agent is another than turn.started says."""
    told = said_of(agent)
    return (turn.agent_version, turn.tools_digest) != (told.get("agentVersion"), told.get("toolsDigest"))


def ending_after_restart(state: SessionState) -> list[ev.Draft]:
    """What ends an open turn that nobody runs and nobody can drive again."""
    turn = state.turn
    if turn is None:
        return []
    if turn.cancelling is not None:
        return [*closing(state), cancelled(turn)]
    message = (
        "The host was restarted while this turn was open; send the message again with the continuationToken."
    )
    return [*closing(state, with_calls=False), failed(turn.turn_id, "HOST_RESTARTED", message)]


def _fold(persistence: SessionPersistence, log: SessionLog) -> Hydrated:
    raw = persistence.read_snapshot(log.session_id)
    state = None if raw is None else _from_snapshot(raw, log)
    size, offset = (0, 0) if raw is None or state is None else (len(raw), state.offset)
    state, fault = fold_log(log, state or new_state(log.session_id))
    return Hydrated(state, log, size, offset, fault)


def _from_snapshot(raw: bytes, log: SessionLog) -> SessionState | None:
    """The snapshot's state when it fits the log, else None: the log is then folded from its start."""
    try:
        state = decode_snapshot(raw, log.session_id)
    except SnapshotError as error:
        _log.warning("the snapshot of session %s is not used: %s", log.session_id, error)
        return None
    if state.offset > log.size_bytes:
        _log.error(
            "the snapshot of session %s holds %d events and its log ends before them: events were lost",
            log.session_id,
            state.next_index,
        )
        return None
    link = b'"sum":"%b"}\n' % state.sum
    if state.offset < len(link) or log.read(state.offset - len(link), len(link)) != link:
        _log.warning("the snapshot of session %s is of another log and not used", log.session_id)
        return None
    return state


def fold_log(log: SessionLog, state: SessionState) -> tuple[SessionState, Fault | None]:
    """Fold every whole line of the log behind the state's cursor, chain and order checked, up to one that is broken."""
    start = copy.copy(state)
    fault = _fold_lines(log, state, log.size_bytes)
    if fault is None:
        return state, None
    _fold_lines(
        log, start, fault.offset
    )  # once more: what could not be folded may have changed a part of the state
    return start, fault


def _fold_lines(log: SessionLog, state: SessionState, end: int) -> Fault | None:
    for line in _lines(log, state.offset):
        if state.offset >= end:
            break
        try:
            event = ev.decode_line(line, state.sum)
            if event.index != state.next_index:
                raise ValueError(f"index {event.index}, expected {state.next_index}")
            if event.timestamp_ms < state.updated_at_ms:
                raise ValueError("its timestamp is lower than the one before it")
            if event.index == 0 and event.data.get("logVersion") != ev.LOG_VERSION:
                raise ValueError(
                    f"logVersion {event.data.get('logVersion')!r}, this host reads {ev.LOG_VERSION}"
                )
            check(state, event.type, event.data)
            apply(state, event.type, event.data, event.timestamp_ms)
        except (ValueError, IllegalMove, KeyError, TypeError, AttributeError) as error:
            return Fault(
                state.next_index, state.offset, str(error) if isinstance(error, ValueError) else repr(error)
            )
        state.offset += len(line) + 1
        state.sum = event.sum
    return None


def _lines(log: SessionLog, offset: int) -> Iterator[bytes]:
    """The whole lines from `offset` on, without their newlines."""
    rest = b""
    while block := log.read(offset, _BLOCK_BYTES):
        offset += len(block)
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
