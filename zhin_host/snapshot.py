"""The step snapshot: a session's state as JSON, and back (contract.md section 3). A cache: the log is the truth."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, TypedDict, cast

import orjson

from zhin_host.clock import SessionId
from zhin_host.events import SUM_BYTES, json_bytes
from zhin_host.state import (
    Answer,
    FailedTurn,
    KeyedTurn,
    OpenCall,
    OpenTurn,
    PendingRequest,
    SessionState,
)

SNAPSHOT_VERSION: Final = 1
_DIGEST_KEY: Final = b',"digest":"'
_LIST_FIELDS: Final = (
    "sessionId", "agent", "status", "parked", "pendingRequestIds", "createdAt", "updatedAt", "metadata", "owner",
)  # fmt: skip


class SnapshotError(ValueError):
    """The bytes are not a snapshot this version reads; the log is folded from its start instead."""


class LogCursor(TypedDict):
    """How far of the log a snapshot holds: the next index, the byte it begins at, the chain's last link."""

    nextIndex: int
    offset: int
    sum: str


def public_view(state: SessionState) -> dict[str, Any]:
    """What anyone who may read the session sees: the snapshot without agentState, log and the fold's own needs."""
    view: dict[str, Any] = {
        "sessionId": state.session_id,
        "agent": state.agent,
        "continuationToken": state.token,
        "status": state.status,
        "parked": state.is_parked,
        "pendingRequestIds": list(state.pending),
        "pendingRequests": [_request_view(request) for request in state.pending.values()],
        "turn": _open_turn_view(state.turn),
        "steps": list(state.steps),
        "grants": list(state.grants),
        "metadata": state.metadata,
        "createdAt": state.created_at_ms,
        "updatedAt": state.updated_at_ms,
    }
    if state.owner is not None:
        view["owner"] = state.owner
    return view


def _open_turn_view(turn: OpenTurn | None) -> dict[str, Any] | None:
    if turn is None:
        return None
    cancelling = {"cancelling": True} if turn.is_cancelling else {}
    return {"turnId": turn.turn_id, "startIndex": turn.started_index, "attempt": turn.attempt, **cancelling}


def list_view(state: SessionState, broken_at: int | None = None) -> dict[str, Any]:
    """The row of a list of sessions; `brokenAt` is the index of the first event of its log that cannot be read."""
    view = public_view(state)
    row: dict[str, Any] = {name: view[name] for name in _LIST_FIELDS if name in view}
    return row if broken_at is None else {**row, "brokenAt": broken_at}


def encode_snapshot(state: SessionState) -> bytes:
    """The snapshot's bytes; the last key is a digest of all before it, so that any damage is seen."""
    document = {
        "snapshotVersion": SNAPSHOT_VERSION,
        **public_view(state),
        "agentState": state.agent_state,
        "fold": {
            "turnState": state.turn_state,
            "turn": _turn_out(state.turn),
            "pending": [[request.kind, request.index, request.data] for request in state.pending.values()],
            "answers": [[name, row.kind, row.outcome, row.digest] for name, row in state.answers.items()],
            "queue": list(state.queue),
            "made": None if state.made is None else [state.made[0], _row_out(state.made[1])],
            "keys": {key: _row_out(row) for key, row in state.keys.items()},
            "failed": None if state.failed is None else _failed_out(state.failed),
            "terminal": state.terminal,
            "owes": list(state.owes),
            "interrupt": state.interrupt,
        },
        "log": LogCursor(nextIndex=state.next_index, offset=state.offset, sum=state.sum.decode("ascii")),
    }
    body = json_bytes(document)[:-1]
    return b'%b%b%b"}' % (body, _DIGEST_KEY, hashlib.sha256(body).hexdigest().encode("ascii"))


def decode_snapshot(raw: bytes, session_id: SessionId) -> SessionState:
    """The state a snapshot holds.

    Raises:
        SnapshotError: Damaged, of another version, or another session's.
    """
    body, key, rest = raw.rpartition(_DIGEST_KEY)
    if not key or rest != hashlib.sha256(body).hexdigest().encode("ascii") + b'"}':
        raise SnapshotError("its digest does not match")
    try:
        return _state_in(orjson.loads(raw), session_id)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise SnapshotError(f"not a snapshot of this version: {error!r}") from error


def cursor_of(raw: bytes) -> LogCursor | None:
    """The log cursor of a snapshot, damaged or not, as far as one can be read: what the audit reports of."""
    try:
        cursor = orjson.loads(raw)["log"]
        if (
            isinstance(cursor["nextIndex"], int)
            and isinstance(cursor["offset"], int)
            and isinstance(cursor["sum"], str)
        ):
            return cast("LogCursor", cursor)
    except (KeyError, TypeError, ValueError):
        pass
    return None


def _request_view(request: PendingRequest) -> dict[str, Any]:
    return {"kind": request.kind, **request.data, "index": request.index}


def _turn_out(turn: OpenTurn | None) -> dict[str, Any] | None:
    if turn is None:
        return None
    return {
        "turnId": turn.turn_id,
        "startedIndex": turn.started_index,
        "rootTurnId": turn.root_turn_id,
        "rootIndex": turn.root_index,
        "agentVersion": turn.agent_version,
        "toolsDigest": turn.tools_digest,
        "key": turn.key,
        "message": turn.message,
        "received": turn.is_received,
        "cancelling": turn.cancelling,
        "attempt": turn.attempt,
        "crashes": turn.crashes,
        "fruitless": turn.is_fruitless,
        "looseIndex": turn.loose_index,
        "failure": turn.failure,
        "completions": list(turn.completions),
        "calls": _calls_out(turn.calls),
        "unlucky": _calls_out(turn.unlucky),
    }


def _turn_in(row: dict[str, Any] | None) -> OpenTurn | None:
    if row is None:
        return None
    return OpenTurn(
        turn_id=row["turnId"],
        started_index=row["startedIndex"],
        root_turn_id=row["rootTurnId"],
        root_index=row["rootIndex"],
        agent_version=row["agentVersion"],
        tools_digest=row["toolsDigest"],
        key=row["key"],
        message=row["message"],
        is_received=row["received"],
        cancelling=row["cancelling"],
        attempt=row["attempt"],
        crashes=row["crashes"],
        is_fruitless=row["fruitless"],
        loose_index=row["looseIndex"],
        failure=None if row["failure"] is None else (row["failure"][0], row["failure"][1]),
        completions=tuple(row["completions"]),
        calls=_calls_in(row["calls"]),
        unlucky=_calls_in(row["unlucky"]),
    )


def _calls_out(calls: Mapping[str, OpenCall]) -> dict[str, list[Any]]:
    return {call_id: [call.tool_name, call.index] for call_id, call in calls.items()}


def _calls_in(rows: dict[str, list[Any]]) -> dict[str, OpenCall]:
    return {call_id: OpenCall(name, index) for call_id, (name, index) in rows.items()}


def _row_out(row: KeyedTurn) -> list[Any]:
    return [row.digest, row.turn_id, row.token, row.index, row.is_queued]


def _failed_out(failed: FailedTurn) -> list[Any]:
    calls = _calls_out(failed.calls)
    whose = [failed.turn_id, failed.root_turn_id, failed.root_index]
    return [*whose, failed.discard_from, failed.call_id, calls, failed.message]


def _failed_in(row: list[Any] | None) -> FailedTurn | None:
    if row is None:
        return None
    turn_id, root_turn_id, root_index, discard_from, call_id, calls, message = row
    return FailedTurn(turn_id, root_turn_id, root_index, discard_from, call_id, _calls_in(calls), message)


def _state_in(document: dict[str, Any], session_id: SessionId) -> SessionState:
    if document["snapshotVersion"] != SNAPSHOT_VERSION:
        raise SnapshotError(f"version {document['snapshotVersion']!r}")
    if document["sessionId"] != session_id:
        raise SnapshotError("another session's")
    fold, log = document["fold"], document["log"]
    if len(log["sum"]) != SUM_BYTES:
        raise SnapshotError("its chain link is no sum")
    return SessionState(
        session_id=session_id,
        sum=log["sum"].encode("ascii"),
        next_index=log["nextIndex"],
        offset=log["offset"],
        agent=document["agent"],
        owner=document.get("owner"),
        metadata=document["metadata"],
        token=document["continuationToken"],
        created_at_ms=document["createdAt"],
        updated_at_ms=document["updatedAt"],
        turn=_turn_in(fold["turn"]),
        steps=tuple(document["steps"]),
        pending={
            data["requestId"]: PendingRequest(data["requestId"], kind, at, data)
            for kind, at, data in fold["pending"]
        },
        answers={name: Answer(kind, outcome, named) for name, kind, outcome, named in fold["answers"]},
        made=None if fold["made"] is None else (fold["made"][0], KeyedTurn(*fold["made"][1])),
        keys={key: KeyedTurn(*row) for key, row in fold["keys"].items()},
        failed=_failed_in(fold["failed"]),
        grants=tuple(document["grants"]),
        queue=tuple(fold["queue"]),
        agent_state=document["agentState"],
        turn_state=fold["turnState"],
        terminal=fold["terminal"],
        owes=tuple(fold["owes"]),
        interrupt=None if fold["interrupt"] is None else (fold["interrupt"][0], fold["interrupt"][1]),
    )
