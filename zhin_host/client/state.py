"""State: what a session is gone on from, as a JSON object that its holder saves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, cast

Message = str | list[dict[str, str]]


class SavedTurn(TypedDict):
    """The last turn that this client began, and the index its events begin at."""

    turnId: str
    startIndex: int


class Unanswered(TypedDict):
    """A message that was sent and whose answer has not come: its key and the very body that was sent."""

    key: str
    body: str


class SavedState(TypedDict):
    """A session as a client holds it.

    `cursor` is the index of the next event and `sum` the link of the chain before it, so that a log that was changed
    meanwhile is noticed. `tokenIndex` is where the token came in force: no older one comes back.
    """

    version: int
    sessionId: str
    continuationToken: str
    tokenIndex: int
    cursor: int
    sum: str | None
    turn: SavedTurn | None
    unanswered: Unanswered | None


def new_saved_state(session_id: str, token: str, token_index: int) -> SavedState:
    """Of a session of which nothing was read."""
    return {
        "version": 1,
        "sessionId": session_id,
        "continuationToken": token,
        "tokenIndex": token_index,
        "cursor": 0,
        "sum": None,
        "turn": None,
        "unanswered": None,
    }


def checked_state(state: Mapping[str, Any]) -> SavedState:
    """The state as it was saved; what a later version added is left out.

    Raises:
        ValueError: It is none.
    """
    try:
        if state["version"] != 1:
            raise ValueError(f"a state of version {state['version']!r:.20}; this client reads version 1")
        token, token_index = str(state["continuationToken"]), int(state["tokenIndex"])
        saved = new_saved_state(str(state["sessionId"]), token, token_index)
        saved["cursor"] = int(state["cursor"])
        saved["sum"] = None if state.get("sum") is None else str(state["sum"])
        saved["turn"] = cast("SavedTurn | None", state.get("turn"))
        saved["unanswered"] = cast("Unanswered | None", state.get("unanswered"))
    except (KeyError, TypeError) as error:
        raise ValueError(f"This is no saved state of a session: {error!r}.") from error
    return saved
