"""Story: a log's lines one after another: their bytes, their chain, their order, their promises."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import orjson

from zhin_host import events as ev
from zhin_host.audit.turns import TurnRules
from zhin_host.audit.verdict import CHAIN_BROKEN, FAULTS_MAX, Fault
from zhin_host.audit.work import WorkRules
from zhin_host.clock import SessionId
from zhin_host.errors import IllegalMove
from zhin_host.fold import apply
from zhin_host.moves import check
from zhin_host.snapshot import encode_snapshot
from zhin_host.state import new_state

_SEPARATORS: Final = (b"\xe2\x80\xa8", b"\xe2\x80\xa9", b"\xc2\x85")
_WRONG_TYPE: Final = (
    KeyError,
    TypeError,
    AttributeError,
    ValueError,
    IndexError,
)  # what a value of a wrong type causes


class Story:
    """Takes lines in order and collects faults.

    Attributes:
        faults: In the order of the log, at most FAULTS_MAX.
        state: The fold of the lines taken.
        is_readable: False after bytes that are no event line: nothing behind them is judged.
        wanted: The snapshot that the state would make after `stop_at` events, once they were taken.
    """

    def __init__(self, session_id: SessionId, *, line_bytes_max: int, stop_at: int | None = None) -> None:
        self.state = new_state(session_id)
        self.faults: list[Fault] = []
        self.is_readable = True
        self.wanted: bytes | None = None
        self._stop_at = stop_at
        self._line_bytes_max = line_bytes_max
        self._turns = TurnRules()
        self._work = WorkRules()
        self._is_folding = True
        self._keep_wanted()

    def fault(self, message: str) -> None:
        """Note a fault at the event that comes next."""
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(Fault(self.state.next_index, self.state.offset, message))

    def take(self, line: bytes) -> None:
        """Judge one line, given without its newline."""
        parts = ev.split_line(line)
        if parts is None:
            self.fault(f"no whole event line: {line[:80]!r}; nothing behind it was checked")
            self.is_readable = False
            return
        self._judge_bytes(line, parts)
        data = self._data_of(parts)
        if data is not None:
            self._judge_order(parts, data)
        self._advance(line, parts, data)

    def _judge_bytes(self, line: bytes, parts: ev.Parts) -> None:
        state = self.state
        if len(line) + 1 > self._line_bytes_max:
            self.fault(f"a line of {len(line) + 1} bytes is over the limit of {self._line_bytes_max}")
        if parts.index != state.next_index:
            self.fault(f"its index is {parts.index} and not {state.next_index}")
        if parts.timestamp_ms < state.updated_at_ms:
            self.fault(f"its timestamp {parts.timestamp_ms} is lower than {state.updated_at_ms} before it")
        if not line.isascii() and any(separator in line for separator in _SEPARATORS):
            self.fault("U+2028, U+2029 or U+0085 stands unescaped")
        if ev.chain(state.sum, ev.payload_of(line)) != parts.sum:
            self.fault(CHAIN_BROKEN)

    def _data_of(self, parts: ev.Parts) -> dict[str, Any] | None:
        try:
            data: dict[str, Any] = orjson.loads(parts.data)
        except orjson.JSONDecodeError as error:
            self.fault(f"its data is not JSON: {error}")
            return None
        lacking = [name for name in ev.REQUIRED.get(parts.type, ()) if name not in data]
        if lacking:
            self.fault(f"{parts.type} lacks {', '.join(lacking)}")
            return None
        return data

    def _judge_order(self, parts: ev.Parts, data: dict[str, Any]) -> None:
        """Against the table of moves, then against what the table does not say."""
        if not self._is_folding:
            return
        self._guarded(parts.type, lambda: check(self.state, parts.type, data))
        self._guarded(parts.type, lambda: self._rules(parts, data))

    def _rules(self, parts: ev.Parts, data: dict[str, Any]) -> None:
        for message in self._turns.broken(self.state, parts.type, data):
            self.fault(message)
        for message in self._work.broken(self.state, parts.type, data, parts.data):
            self.fault(message)

    def _guarded(self, kind: str, judge: Callable[[], None]) -> None:
        try:
            judge()
        except IllegalMove as error:
            self.fault(str(error))
        except _WRONG_TYPE as error:
            self.fault(f"{kind} holds a value of a wrong type: {error!r}")

    def _advance(self, line: bytes, parts: ev.Parts, data: dict[str, Any] | None) -> None:
        """Fold the line, legal or not: one fault should not hide the next."""
        state = self.state
        before = copy.copy(state)
        if self._is_folding and data is not None:
            try:
                apply(state, parts.type, data, parts.timestamp_ms)
            except _WRONG_TYPE:
                self.state = state = before
                self.fault("the order of what follows cannot be judged")
                self._is_folding = False
        state.next_index = before.next_index + 1
        state.updated_at_ms = max(parts.timestamp_ms, before.updated_at_ms)
        state.offset = before.offset + len(line) + 1
        state.sum = parts.sum
        self._keep_wanted()

    def _keep_wanted(self) -> None:
        if self.state.next_index == self._stop_at and self._is_folding:
            self.wanted = encode_snapshot(self.state)

    def end(self, *, is_being_made: bool) -> None:
        """Judge how the log ends. Before its first line was written, a session is neither whole nor broken."""
        if not self.is_readable:
            return
        if self.state.next_index == 0:
            if is_being_made:
                return
            self.fault("the log has no whole first line")
        elif self.state.owes:
            self.fault(f"the log ends where {' or '.join(self.state.owes)} must follow")
