"""View: what a person is shown of a session, as its events have told it so far. Frozen; `fold` makes the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from zhin_host.client.pieces import Pieces
from zhin_host.events import Event

TurnStatus = Literal["running", "cancelling", "completed", "failed", "cancelled"]
SessionStatus = Literal["running", "waiting", "completed", "failed"]


@dataclass(frozen=True, slots=True)
class Call:
    """An action or a tool call.

    Attributes:
        index: Of its actions.requested.
        status: "running", then "completed", "failed", "denied" or "cancelled".
        attempt: Which try of it runs, from 1.
        error: Why it failed, or what the last try that will be repeated failed with.
    """

    call_id: str
    tool_name: str
    input: Any
    index: int
    status: str = "running"
    output: Any = None
    error: Any = None
    duration_ms: int | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Request:
    """Something that waits for a person, or did.

    Attributes:
        kind: "approval", "question", "retry" or "authorization".
        data: All of its event: prompt, toolName, args, options, expiresAt, connection, authUrl, …
        outcome: None while it is open; then "approved", "denied", "answered", "expired", "cancelled", of an
            authorization "success" or "failure".
        answer: All of the event that closed it.
    """

    request_id: str
    kind: str
    call_id: str
    index: int
    data: Mapping[str, Any]
    outcome: str | None = None
    answer: Mapping[str, Any] | None = None

    @property
    def is_open(self) -> bool:
        return self.outcome is None

    @property
    def prompt(self) -> str:
        """What it asks; of an authorization the name of the connection."""
        return str(self.data.get("prompt") or self.data.get("connection", ""))


@dataclass(frozen=True, slots=True)
class Queued:
    """A message that waits for its turn."""

    turn_id: str
    message: Any


@dataclass(frozen=True, slots=True)
class TurnView:
    """One turn: only what counts, after every discardFrom so far.

    Attributes:
        message: What was said to the agent: text, or its parts.
        status: How it stands or ended.
        attempt: Which attempt of the agent runs, from 1.
        said: The deltas of its text.
        thought: The deltas of its reasoning.
        final: Index and text of the message.completed that counts, when it holds the whole text.
        calls: In the order in which they were asked for.
        requests: Open and closed ones, oldest first.
        own: Events of types of the agent's own, `x.…`.
        usage: As the agent told it.
        code: Why it failed, one of the codes of turn.failed.
        reason: That in a sentence; of a cancelled turn, why.
        is_recoverable: Whether a person may try it again (`Session.resume`).
        failed_call_id: The call or request whose failure ended it.
        resumes: The failed turn that this one tries again; what counts of that one is in this one.
        resumed_by: The turn that tried this one again, and is to be shown in its place.
    """

    turn_id: str
    message: Any = None
    status: TurnStatus = "running"
    attempt: int = 1
    said: Pieces = field(default=Pieces(), repr=False)
    thought: Pieces = field(default=Pieces(), repr=False)
    final: tuple[int, str] | None = None
    calls: tuple[Call, ...] = ()
    requests: tuple[Request, ...] = ()
    own: tuple[Event, ...] = ()
    usage: Any = None
    code: str | None = None
    reason: str | None = None
    is_recoverable: bool = False
    failed_call_id: str | None = None
    resumes: str | None = None
    resumed_by: str | None = None

    @property
    def text(self) -> str:
        """What the agent has said."""
        return self.said.text if self.final is None else self.final[1]

    @property
    def reasoning(self) -> str:
        """What the agent has thought."""
        return self.thought.text

    @property
    def is_open(self) -> bool:
        return self.status in ("running", "cancelling")

    @property
    def open_requests(self) -> tuple[Request, ...]:
        """What waits for a person."""
        return tuple(request for request in self.requests if request.is_open)


@dataclass(frozen=True, slots=True)
class View:
    """A session.

    Attributes:
        cursor: Index of the next event. `View(cursor=n)` begins with event n, and knows only what comes from there.
        continuation_token: The one in force.
        turns: Every turn, oldest first; at most the last is open.
        queue: Messages that wait for their turn.
        outcome: "completed" or "failed" once the session is over.
        failure: Code and message of a failed session.
        updated_at_ms: Time of the last event, milliseconds since the epoch.
    """

    cursor: int = 0
    session_id: str = ""
    agent: str = ""
    metadata: Mapping[str, Any] | None = None
    continuation_token: str = ""
    turns: tuple[TurnView, ...] = ()
    queue: tuple[Queued, ...] = ()
    outcome: Literal["completed", "failed"] | None = None
    failure: tuple[str, str] | None = None
    updated_at_ms: int = 0

    @property
    def turn(self) -> TurnView | None:
        """The last turn."""
        return self.turns[-1] if self.turns else None

    @property
    def open_requests(self) -> tuple[Request, ...]:
        """What waits for a person."""
        return self.turns[-1].open_requests if self.turns else ()

    @property
    def is_parked(self) -> bool:
        """Whether a person is waited for."""
        return bool(self.open_requests)

    @property
    def status(self) -> SessionStatus:
        """As GET /session/{id} says it: waiting is parked or at rest."""
        if self.outcome is not None:
            return self.outcome
        is_busy = self.queue or (self.turns and self.turns[-1].is_open)
        return "waiting" if self.is_parked or not is_busy else "running"

    def turn_of(self, turn_id: str) -> TurnView:
        """The turn of this id.

        Raises:
            KeyError: None has it.
        """
        for turn in reversed(self.turns):
            if turn.turn_id == turn_id:
                return turn
        raise KeyError(turn_id)
