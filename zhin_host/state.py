"""SessionState: what a session's log says.

Everything the host knows of a session is read off its log (fold.py). No container in a state is ever changed in
place, so `copy.copy(state)` is a whole, independent state: the journal folds a copy and keeps it only when the batch
is written. What must come next (`owes`) is part of the state; the projector pays it, live and after a crash alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from zhin_host import events as ev
from zhin_host.clock import SessionId
from zhin_host.errors import IllegalMove

_NONE: Final[Mapping[str, Any]] = {}

UNLUCKY_MAX: Final = 64
"""Calls with a failed or denied result that a turn remembers; an older one is asked for again when it is resumed."""

REMEMBERED: Final = 1_000
"""Answers and keys a session remembers (contract section 2, bounds); older ones are REQUEST_NOT_FOUND and STALE."""


class Phase(StrEnum):
    """Where a session stands between two events."""

    NEW = "new"
    """Nothing is in the log."""
    REST = "rest"
    """No turn is open."""
    RUNNING = "running"
    """A turn is open, no request waits."""
    PARKED = "parked"
    """A turn is open and at least one request waits for a person."""
    CANCELLING = "cancelling"
    """turn.cancelling is in the log; the turn ends only as turn.cancelled."""
    OVER = "over"
    """session.completed or session.failed."""


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that was asked for (actions.requested, at `index`) and has no result."""

    tool_name: str
    index: int


class OpenTurn(NamedTuple):
    """The turn that is open.

    Attributes:
        started_index: Index of its turn.started.
        root_turn_id: The first turn of the chain that it resumes, itself when it resumes none: names its actions.
        root_index: Index of that turn's turn.started: where its record begins.
        agent_version: What turn.started said of the agent, and `tools_digest` of its tools.
        key: The Idempotency-Key it came with.
        message: What was queued for it or what the resumed turn received; None when only message.received has it.
        is_received: Whether its message.received is in the log.
        cancelling: Why and by whom it is being cancelled (reason, by), None while it is not.
        attempt: 1, then one more with every re-drive.
        crashes: Re-driven attempts in a row that ended with the host and added nothing to the record.
        is_fruitless: Whether this attempt is a re-drive that has added nothing to the record yet.
        loose_index: The first event that a re-drive would void, None when there is none.
        failure: callId of the newest record event when that is a failed action, and loose_index before its result.
        completions: Indexes of the message.completed that count.
        calls: callId -> the calls that were asked for and have no result.
        unlucky: callId -> the last calls whose result is failed or denied: one of them may be tried again.
    """

    turn_id: str
    started_index: int
    root_turn_id: str
    root_index: int
    agent_version: str | None = None
    tools_digest: str | None = None
    key: str | None = None
    message: Any = None
    is_received: bool = False
    cancelling: Mapping[str, Any] | None = None
    attempt: int = 1
    crashes: int = 0
    is_fruitless: bool = False
    loose_index: int | None = None
    failure: tuple[str, int | None] | None = None
    completions: tuple[int, ...] = ()
    calls: Mapping[str, OpenCall] = _NONE
    unlucky: Mapping[str, OpenCall] = _NONE

    @property
    def is_cancelling(self) -> bool:
        """Whether turn.cancelling is in the log."""
        return self.cancelling is not None


@dataclass(frozen=True, slots=True)
class FailedTurn:
    """The last turn, when it failed and may be resumed.

    Attributes:
        discard_from: The first of its events that does not count in the turn that resumes it, None when all do.
        call_id: The action or request whose failure ended it; it is tried again.
        calls: Its calls without a result, as they count then.
        message: What it received.
    """

    turn_id: str
    root_turn_id: str
    root_index: int
    discard_from: int | None
    call_id: str | None
    calls: Mapping[str, OpenCall]
    message: Any


@dataclass(frozen=True, slots=True)
class KeyedTurn:
    """What a POST with an Idempotency-Key was answered.

    Attributes:
        digest: requestDigest of its body.
        index: startIndex of the answer.
        is_queued: Whether the message was queued.
    """

    digest: str
    turn_id: str
    token: str
    index: int
    is_queued: bool


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request that waits for a person.

    Attributes:
        kind: "approval", "question", "retry" or "authorization".
        index: Index of the event that made it.
        data: That event's data.
    """

    request_id: str
    kind: str
    index: int
    data: Mapping[str, Any]

    @property
    def expires_at_ms(self) -> int | None:
        """When it expires, milliseconds since the epoch; None: never."""
        expires: int | None = self.data.get("expiresAt")
        return expires


@dataclass(frozen=True, slots=True)
class Answer:
    """How a request ended.

    Attributes:
        outcome: "approved", "denied", "answered", "expired", "cancelled"; of an authorization "success" or "failure".
        digest: Of the response, so that the same answer given twice is known; "" where the outcome says all.
    """

    kind: str
    outcome: str
    digest: str = ""


@dataclass
class SessionState:
    """What a session's log says after `next_index` events.

    Attributes:
        token: The continuation token in force.
        steps: The steps of the last turn, in their wire form.
        pending: Open requests by id, oldest first.
        answers: The last answers by request id, oldest first, at most REMEMBERED.
        made: The Idempotency-Key the session was made with: another route's, so the same key may be in `keys` too.
        keys: The last Idempotency-Keys of follow-ups, oldest first, at most REMEMBERED.
        failed: The last turn, when it failed and may be resumed.
        grants: Tools that a person allowed for the rest of the session.
        agent_state: `state` of the last checkpoint of the last completed turn.
        turn_state: `state` of the last checkpoint, of the open turn too.
        terminal: "completed" or "failed" once the session is over.
        owes: What must come next, the first being what the projector makes; empty when anything legal may.
        queue: Data of each message.queued that waits for its turn, oldest first.
        interrupt: interruptKind and requestId for the step.interrupted that is owed.
        offset: Bytes of the log up to here.
        sum: The chain's last link.
    """

    session_id: SessionId
    sum: bytes
    next_index: int = 0
    offset: int = 0
    agent: str = ""
    owner: str | None = None
    metadata: Mapping[str, Any] | None = None
    token: str = ""
    created_at_ms: int = 0
    updated_at_ms: int = 0
    turn: OpenTurn | None = None
    steps: tuple[Mapping[str, Any], ...] = ()
    pending: Mapping[str, PendingRequest] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    made: tuple[str, KeyedTurn] | None = None
    keys: Mapping[str, KeyedTurn] = field(default_factory=dict)
    failed: FailedTurn | None = None
    grants: tuple[str, ...] = ()
    queue: tuple[Mapping[str, Any], ...] = ()
    agent_state: Any = None
    turn_state: Any = None
    terminal: str | None = None
    owes: tuple[str, ...] = ()
    interrupt: tuple[str, str | None] | None = None

    def __copy__(self) -> SessionState:
        """A state of its own; the library's way to copy takes ten times as long, and every batch folds a copy."""
        twin = object.__new__(SessionState)
        twin.__dict__.update(self.__dict__)
        return twin

    @property
    def open_turn(self) -> OpenTurn:
        """The open turn, where there must be one.

        Raises:
            IllegalMove: There is none.
        """
        if self.turn is None:
            raise IllegalMove("no turn is open")
        return self.turn

    @property
    def phase(self) -> Phase:
        if self.terminal is not None:
            return Phase.OVER
        if self.turn is None:
            return Phase.REST if self.next_index else Phase.NEW
        if self.turn.is_cancelling:
            return Phase.CANCELLING
        return Phase.PARKED if self.pending else Phase.RUNNING

    @property
    def is_parked(self) -> bool:
        return bool(self.pending)

    @property
    def is_at_rest(self) -> bool:
        """Contract section 1: no turn is open and no message is queued, or at least one request is open."""
        return bool(self.pending) or (self.turn is None and not self.queue)

    @property
    def status(self) -> str:
        """running, waiting (parked or not), completed, failed."""
        if self.terminal is not None:
            return self.terminal
        return "waiting" if self.is_at_rest else "running"


def new_state(session_id: SessionId) -> SessionState:
    """The state of a session whose log is empty."""
    return SessionState(session_id, ev.chain_start(session_id))
