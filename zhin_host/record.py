"""Record: what a turn's log already holds, so that driving its agent again does nothing twice.

The record of a turn is its action.result, input.completed, authorization.completed and checkpoint.saved events, by
callId; what was cancelled is not part of it. A turn that resumes a failed one goes on with that one's record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from zhin_host import events as ev
from zhin_host.identity import Like, like_of_authorization, like_of_call, like_of_question
from zhin_host.ports import SessionLog

_BLOCK_BYTES: Final = 1 << 20

Asker = tuple[str | None, str | None]
"""An agent's version and the digest of its tools, None where it says none."""


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """An answer in the log.

    Attributes:
        kind: "approval", "question", "retry" or "authorization".
        data: The event's data.
        index: Its index.
        is_live: Whether an attempt was waiting for it, so that the tool may have begun at once.
        asker: The agent that asked.
    """

    kind: str
    data: Mapping[str, Any]
    index: int
    is_live: bool
    asker: Asker

    @property
    def is_approval(self) -> bool:
        """Whether a person allowed something; a second try after a crash is none."""
        return self.kind == "approval" and bool(self.data["outcome"] == "approved")


def asker_of(data: Mapping[str, Any]) -> Asker:
    """The agent of which an event says agentVersion and toolsDigest, or nothing."""
    return data.get("agentVersion"), data.get("toolsDigest")


@dataclass(slots=True)
class Record:
    """One turn's record, with what else a re-drive must know.

    Attributes:
        message: What the turn received, None when message.received is not in the log.
        state: The last checkpoint's state; meaningful when `has_state`.
        has_state: Whether the turn saved a checkpoint.
        results: callId -> data of the action.result that counts.
        answers: callId -> its answers that count, oldest first.
        order: The callIds that the record knows, in the order they were first asked for.
        has_overlap: Whether two of its calls were ever open at once.
        again: callIds that are tried again, having ended a turn of the chain or lost their approval: the record is not
            used up before the agent comes to them.
        given_up: callIds that were cancelled and may come again anywhere.
        counts: How many calls like each were asked for before the last checkpoint.
        said: The text that counts.
        asked_at: callId -> index of its first actions.requested, voided ones too.
        gated: callIds for which a person was asked.
        retries: callId -> the highest attempt that action.retrying told of.
        attempts: Indexes at which an attempt began, oldest first.
        names: callId -> what to call it when paths differ.
        carried: callId -> data of the requests of its own that were open at the last checkpoint.
        begun: callIds that may have begun under an approval that is forgotten.
    """

    message: Any = None
    state: Any = None
    has_state: bool = False
    results: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    answers: dict[str, list[GivenAnswer]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    has_overlap: bool = False
    again: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    counts: Counter[Like] = field(default_factory=Counter)
    said: str = ""
    asked_at: dict[str, int] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    retries: dict[str, int] = field(default_factory=dict)
    attempts: list[int] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    carried: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)

    def may_have_begun(self, call_id: str) -> bool:
        """Whether an attempt that ended with its host may have begun to run this call, which has no result.

        The call has passed its gate now. Without one, it began when it was asked for in an earlier attempt. With
        one, when it was approved in an earlier attempt: one that was waiting for the answer, or one begun after it.
        """
        if not self.attempts:  # the first attempt: nothing came before
            return False
        now = self.attempts[-1]
        answers = [row for row in self.answers.get(call_id, ()) if row.kind in ("approval", "retry")]
        if call_id in self.begun:
            return True
        if not answers:
            return self.asked_at.get(call_id, now) < now
        return self._was_acted_on(answers[-1])

    def _was_acted_on(self, answer: GivenAnswer) -> bool:
        """Whether an attempt that ended with its host may have begun a call with this answer."""
        return answer.is_live or sum(1 for index in self.attempts if index > answer.index) > 1

    def forget_unused_approvals(self, asker: Asker, *, is_changed: bool) -> None:
        """An approval that another agent asked for, and whose call has no result yet, is asked for again.

        One that the agent asked for itself, without a tool, counts as used when anything was recorded behind it.

        Args:
            asker: The agent as it is now.
            is_changed: Whether another one began the turn.
        """
        if is_changed:  # whether a call needed an approval then, nobody can tell
            ungated = self.asked_at.keys() - self.results.keys() - self.gated
            self.begun.update(filter(self.may_have_begun, ungated))
        for call_id, given in tuple(self.answers.items()):
            is_used = call_id in self.results if call_id in self.gated else call_id not in self.order[-1:]
            kept = [row for row in given if not row.is_approval or row.asker == asker]
            if is_used or len(kept) == len(given):
                continue
            before = [row for row in given if row.kind == "retry" or row not in kept]
            if self._was_acted_on(before[-1]):  # whatever the agent as it is now was answered meanwhile
                self.begun.add(call_id)
            self.answers[call_id] = kept
            self.again.add(call_id)


def read_record(log: SessionLog, root_index: int) -> Record:
    """The record of the turn whose chain begins with the event `root_index`, as the log stands. Blocks."""
    reader = _Reader()
    for index, kind, data in _events(log, root_index):
        reader.take(index, kind, data)
    record = reader.record
    record.said = "".join(delta for _, delta in reader.text)
    known = record.results.keys() | record.answers.keys() | record.again
    record.order = [call_id for call_id in reader.asked if call_id in known]
    return record


class _Reader:
    """The fold that makes a Record."""

    def __init__(self) -> None:
        self.record = Record()
        self.text: list[tuple[int, str]] = []
        self.asked: dict[str, int] = {}  # callId -> index, calls and requests of their own, while they count
        self._likes: dict[str, tuple[int, Like]] = {}  # callId -> where and what it is like, while it counts
        self._open: set[str] = set()
        self._requests: dict[str, tuple[str, str, Asker]] = {}  # requestId -> (callId, kind, who asked)
        self._own: dict[
            str, Mapping[str, Any]
        ] = {}  # callId -> data of its last request, of requests of their own
        self._ended_by: str | None = None

    def take(self, index: int, kind: str, data: Mapping[str, Any]) -> None:  # noqa: C901 - a case an event
        match kind:
            case ev.TURN_STARTED:
                self._begin(index, data)
            case ev.STEP_RESUMED:
                self._resume(index, data)
            case ev.MESSAGE_RECEIVED:
                self.record.message = data["message"]
            case ev.MESSAGE_APPENDED:
                self.text.append((index, data["messageDelta"]))
            case ev.ACTIONS_REQUESTED:
                self.record.asked_at.setdefault(data["callId"], index)
                self._ask(
                    index, data["callId"], data["toolName"], like_of_call(data["toolName"], data["input"])
                )
            case ev.ACTION_RETRYING:
                tried = max(self.record.retries.get(data["callId"], 0), data["attempt"])
                self.record.retries[data["callId"]] = tried
            case ev.ACTION_RESULT:
                self._result(data)
            case ev.INPUT_REQUESTED | ev.AUTHORIZATION_REQUIRED:
                self._request(index, kind, data)
            case ev.INPUT_COMPLETED | ev.AUTHORIZATION_COMPLETED:
                self._answer(index, data)
            case ev.CHECKPOINT_SAVED:
                self._checkpoint(data)
            case ev.TURN_FAILED:
                self._ended_by = data.get("callId")
            case _:
                pass

    def _begin(self, index: int, data: Mapping[str, Any]) -> None:
        """A turn of the chain: what ended the one before is tried again, its result or outcome does not count."""
        self.record.attempts.append(index)
        if "resumes" not in data:
            return
        ended, self._ended_by = self._ended_by, None
        if ended is not None:
            self._try_again(index, ended)
        self._attempt_number = 0
        self._open.clear()
        self._discard(data.get("discardFrom"))

    def _try_again(self, index: int, call_id: str) -> None:
        """What ended the last turn is not part of the record; an approval given for it stands."""
        record = self.record
        record.again.add(call_id)
        result = record.results.pop(call_id, None)
        given = record.answers.pop(call_id, [])
        kept = [row for row in given if row.is_approval]
        if result is not None and result["status"] == "failed":
            # Whoever resumes has decided that it may run again: only an attempt that begins now may have begun it.
            kept = [replace(row, index=index - 1, is_live=False) for row in kept]
            record.asked_at[call_id] = index
        if kept:
            record.answers[call_id] = kept

    def _resume(self, index: int, data: Mapping[str, Any]) -> None:
        if data["attempt"] > 1 and (not self._attempt_number or data["attempt"] > self._attempt_number):
            self.record.attempts.append(index)
            self._discard(data.get("discardFrom"))
        self._attempt_number = data["attempt"]

    _attempt_number = 0

    def _discard(self, at: int | None) -> None:
        """What stands at `at` and behind it does not count any more."""
        if at is None:
            return
        self.text = [row for row in self.text if row[0] < at]
        self.asked = {call_id: index for call_id, index in self.asked.items() if index < at}
        self._likes = {call_id: row for call_id, row in self._likes.items() if row[0] < at}
        self._open &= self.asked.keys()

    def _ask(self, index: int, call_id: str, name: str, like: Like) -> None:
        if self._open - {call_id}:
            self.record.has_overlap = True
        self._open.add(call_id)
        self.record.names[call_id] = name
        self.asked.setdefault(call_id, index)
        self._likes.setdefault(call_id, (index, like))

    def _result(self, data: Mapping[str, Any]) -> None:
        call_id = data["callId"]
        self._open.discard(call_id)
        if data["status"] == "cancelled":
            self._give_up(call_id)
        else:
            self.record.results[call_id] = data
            self.record.again.discard(call_id)

    def _request(self, index: int, kind: str, data: Mapping[str, Any]) -> None:
        call_id = data["callId"]
        self._requests[data["requestId"]] = (call_id, data.get("kind", "authorization"), asker_of(data))
        if data.get("toolName"):
            self.record.gated.add(call_id)
            return
        self._own[call_id] = data
        if kind == ev.AUTHORIZATION_REQUIRED:
            like = like_of_authorization(data["connection"], data.get("authUrl"), data.get("scope"))
            self._ask(index, call_id, "authorize", like)
        else:
            name = "ask" if data["kind"] == "question" else "approve"
            detail = data.get("options") if name == "ask" else data.get("args", {})
            self._ask(index, call_id, name, like_of_question(name, data["prompt"], detail))

    def _answer(self, index: int, data: Mapping[str, Any]) -> None:
        call_id, kind, asker = self._requests.pop(data["requestId"])
        is_own = call_id not in self.record.gated
        if is_own:
            self._open.discard(call_id)
        if data.get("outcome") == "cancelled" or data.get("error") == "cancelled":
            if is_own:
                self._give_up(call_id)
            return
        answer = GivenAnswer(kind, data, index, "attempt" in data, asker)
        self.record.answers.setdefault(call_id, []).append(answer)

    def _give_up(self, call_id: str) -> None:
        self.record.given_up.add(call_id)
        self.asked.pop(call_id, None)

    def _checkpoint(self, data: Mapping[str, Any]) -> None:
        """The record before it is closed; a request that is still open is answered behind it."""
        record = self.record
        record.state, record.has_state = data["state"], True
        record.results.clear()
        record.answers.clear()
        record.counts = Counter(like for _, like in self._likes.values())
        waiting = {call_id for call_id, _, _ in self._requests.values()}
        record.carried = {call_id: self._own[call_id] for call_id in self._own if call_id in waiting}
        self.asked = {call_id: index for call_id, index in self.asked.items() if call_id in waiting}
        record.has_overlap = False
        record.given_up.clear()
        record.again.clear()


def _events(log: SessionLog, first: int) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Index, type and data of every event from `first` on; what a record never needs has an empty data."""
    offset, rest, index = log.offset_of(first), b"", first
    while block := log.read(offset, _BLOCK_BYTES):
        offset += len(block)
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            document = orjson.loads(line)
            yield index, document["type"], document["data"]
            index += 1
