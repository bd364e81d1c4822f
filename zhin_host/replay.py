"""Replay: how one attempt uses up the record of the attempts before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zhin_host.identity import Identities, Like
from zhin_host.record import GivenAnswer, Record


class Diverged(Exception):
    """The agent takes another path than its record; the message names both."""


class Replay:
    """What the record still holds for this attempt. A first attempt has an empty one and is live from its start.

    Attributes:
        record: What is replayed.
    """

    def __init__(self, turn_id: str, record: Record | None = None) -> None:
        self.record = record or Record()
        self._identities = Identities(turn_id, self.record.counts)
        self._unused = dict.fromkeys(self.record.order)
        self._answers = {call_id: list(rows) for call_id, rows in self.record.answers.items()}

    @property
    def is_used_up(self) -> bool:
        """Whether the agent is heard again: everything it did before has been asked for."""
        return not self._unused

    def call_id(self, like: Like) -> str:
        """The id of the next call of the agent that is like this.

        Raises:
            Diverged: The recorded calls never overlapped, and another one comes next in the record.
        """
        call_id = self._identities.call_id(like)
        expected = next(iter(self._unused), call_id)
        if call_id != expected and not self.record.has_overlap and call_id not in self.record.given_up:
            raise Diverged(
                f"The record goes on with {self._name(expected)}; the agent asked for {like[0]} ({call_id}). "
                "An agent must take the same path from the same record: put what varies into an action."
            )
        if call_id in self.record.again:
            self._unused.pop(call_id, None)  # what it did is not known any more; from here on it is live
        return call_id

    def result(self, call_id: str) -> Mapping[str, Any] | None:
        """The recorded action.result of this call, which is used up with that; None when there is none."""
        result = self.record.results.get(call_id)
        if result is not None:
            self._unused.pop(call_id, None)
        return result

    def answer(self, call_id: str, kind: str) -> GivenAnswer | None:
        """The newest recorded answer of this kind to a request of this call, used up with that."""
        rows = self._answers.get(call_id, [])
        found = next((row for row in reversed(rows) if row.kind == kind), None)
        if found is not None:
            self._answers[call_id] = [row for row in rows if row.kind != kind]
            self._unused.pop(call_id, None)
        return found

    def check_used_up(self) -> None:
        """Raise Diverged when the agent has ended and never asked for what it did before."""
        if self._unused:
            missing = ", ".join(self._name(call_id) for call_id in self._unused)
            raise Diverged(f"The record holds {missing}; the agent ended and never asked for it again.")

    def _name(self, call_id: str) -> str:
        return f"{self.record.names.get(call_id, 'an action')} ({call_id})"
