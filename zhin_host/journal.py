"""SessionJournal: the one write path of a session: stamp, derive, check, persist, apply, ring (design.md)."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from zhin_host import events as ev
from zhin_host.changes import TOLD, Change, report
from zhin_host.clock import Clock
from zhin_host.config import Config
from zhin_host.errors import EventRefused, StorageUnavailable
from zhin_host.fold import apply
from zhin_host.metered import MeteredLog
from zhin_host.meters import Meters
from zhin_host.moves import check
from zhin_host.ports import SessionLog
from zhin_host.projector import HttpStepProjector
from zhin_host.redaction import redactor_of
from zhin_host.state import SessionState
from zhin_host.subscriptions import Feed

_log = logging.getLogger("zhin_host.journal")

Drafts = Sequence[ev.Draft] | Callable[[SessionState], Sequence[ev.Draft]]
"""What to write: drafts, or a function that makes them of the state behind everything queued."""

_FOREIGN: Final = {  # type -> its fields that hold what clients, agents and tools said; all of an x. type's do
    ev.SESSION_STARTED: ("metadata",),
    ev.SESSION_COMPLETED: ("message",),
    ev.SESSION_FAILED: ("message",),
    ev.TURN_COMPLETED: ("usage",),
    ev.TURN_FAILED: ("message",),
    ev.MESSAGE_QUEUED: ("message",),
    ev.MESSAGE_RECEIVED: ("message",),
    ev.MESSAGE_COMPLETED: ("finishReason", "usage"),  # its text is of deltas, as reasoning.completed's is
    ev.ACTIONS_REQUESTED: ("input",),
    ev.ACTION_RETRYING: ("error",),
    ev.ACTION_RESULT: ("output", "error"),
    ev.INPUT_REQUESTED: ("prompt", "args", "options"),
    ev.INPUT_COMPLETED: ("response", "comment"),
    ev.AUTHORIZATION_COMPLETED: ("error",),
    ev.CHECKPOINT_SAVED: ("state",),
}
_GATHER_S: Final = 0.001
_READERS_A_GATHER: Final = 16  # as many take about as long to send to
_RETRY_FIRST_S: Final = 0.05
_RETRY_MOST_S: Final = 1.0
_BOUNDARIES: Final = frozenset({ev.SESSION_WAITING}) | ev.SESSION_ENDS


class SessionJournal:
    """Appends events to one session's log. Everything but the waiting runs on the loop, without an await.

    A batch is folded into a copy of the state while it is encoded, since session.waiting needs the state after its
    trigger. The copy becomes the state only when the batch is in the log, so a failed write needs no undoing.

    Attributes:
        state: The fold of the log; replaced, never changed, with each batch.
        feed: What the session's readers see.
    """

    def __init__(
        self,
        state: SessionState,
        log: SessionLog,
        clock: Clock,
        config: Config,
        meters: Meters | None = None,
    ) -> None:
        self.state = state
        self.feed = Feed(
            log,
            offset=state.offset,
            next_index=state.next_index,
            is_at_rest=state.is_at_rest,
            is_over=state.terminal is not None,
            tail_bytes_max=config.tail_bytes_max,
        )
        self._meters = meters or Meters()
        self._log = MeteredLog(log, clock, self._meters)
        self._clock = clock
        self._config = config
        self._line_bytes_max = config.line_bytes_max
        self._batch_events_max = config.batch_events_max
        self._project = HttpStepProjector()
        self._redactor = redactor_of(config.redact)
        self._queued: list[ev.Draft] = []
        self._changes: list[Change] = []  # what the batch under way will have changed
        self._is_flush_planned = False
        self._written_at_s = -_GATHER_S  # by the monotonic clock
        self._is_stalled = False
        self._is_sync_owed = False
        self._unseen: list[
            tuple[bytes, int, int | None, bool, bool]
        ] = []  # --fsync always: written, not yet synced
        self._publisher: asyncio.Task[None] | None = None

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, drafts: Drafts, *, is_live: bool = True) -> None:
        """Put what is queued, then `drafts`, then what follows of them into the log, as one batch and one write.

        On return the batch is with the operating system and its readers are told. On an error nothing is written and
        what was queued stays queued, but for an event that can never be written: that would keep out all later ones.

        Raises:
            StorageUnavailable, StorageFull: The log cannot be written now.
            EventTooLarge, Unserializable: A draft cannot be a line.
            IllegalMove: The order of events forbids one.
        """
        if self._is_sync_owed:
            raise StorageUnavailable(
                "The last sync of this session's log failed; it is tried again before any write."
            )
        state = copy.copy(self.state)
        lines: list[bytes] = []
        self._changes = []
        given = () if callable(drafts) else drafts
        try:
            rest_offset = self._fold(state, lines, [*self._queued, *given], is_live=is_live)
            if callable(drafts):
                rest_offset = self._fold(state, lines, drafts(state), is_live=is_live) or rest_offset
        except EventRefused:
            self._drop_refused(is_live=is_live)
            raise
        if not lines:
            return
        batch = b"".join(lines)
        self._log.append(batch, expected_bytes=self.state.offset)
        self.state = state
        self._queued.clear()
        self._written_at_s = self._clock.monotonic_s()
        self._is_stalled = False
        self._show(batch, rest_offset)
        if self._changes:
            changes, self._changes = self._changes, []
            report(state, changes, self._meters)

    def queue(self, kind: str, data: Mapping[str, Any]) -> bool:
        """Add an event to what the next write takes along.

        That is after this iteration of the loop or, where the last write was under a millisecond ago (more with many
        readers), so much later.

        Returns:
            Whether the caller must await `flush` before it queues more: the batch is full or storage has failed.
        """
        self._queued.append(ev.Draft(kind, data))
        if len(self._queued) >= self._batch_events_max or self._is_stalled:
            return True
        if not self._is_flush_planned:
            self._is_flush_planned = True
            loop = asyncio.get_running_loop()
            gather_s = _GATHER_S * (1 + self.feed.readers // _READERS_A_GATHER)
            if self._clock.monotonic_s() - self._written_at_s >= gather_s:
                loop.call_soon(self._flush_soon)
            else:  # words come fast: a write, and a send to each reader, for each would cost more than the words
                loop.call_later(gather_s, self._flush_soon)
        return False

    async def flush(self) -> None:
        """Write what is queued, waiting for storage as long as it takes, and let the loop run once."""
        await self.write_when_possible(())
        await asyncio.sleep(0)

    async def write_when_possible(self, drafts: Drafts) -> None:
        """`write`, tried again until storage takes it; only a turn's own task may wait so (design.md)."""
        delay_s = _RETRY_FIRST_S
        while True:
            try:
                if self._is_sync_owed:
                    await self.sync()
                self.write(drafts)
            except StorageUnavailable as error:
                if delay_s == _RETRY_FIRST_S:
                    _log.warning("session %s waits for storage: %s", self.state.session_id, error)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_MOST_S)
            else:
                return

    async def commit(self, drafts: Drafts) -> None:
        """`write_when_possible`, then wait until it survives a power cut."""
        await self.write_when_possible(drafts)
        await self.sync_when_possible()

    # -- syncing ---------------------------------------------------------------------------------------------------

    async def sync(self) -> None:
        """Wait until everything written survives a power cut (not under --fsync never).

        Raises:
            StorageUnavailable: It failed; the session takes no write until a later call succeeds.
        """
        while self._publisher is not None:  # --fsync always: it syncs all there is before it ends
            await asyncio.shield(self._publisher)
        if self._config.fsync == "always" and not self._unseen:
            return
        end = self.state.next_index
        try:
            await self._log.sync()
        except StorageUnavailable:
            self._is_sync_owed = True
            raise
        self._is_sync_owed = False
        self._publish_unseen(end)

    async def sync_when_possible(self) -> None:
        """`sync`, tried again until it succeeds."""
        delay_s = _RETRY_FIRST_S
        while True:
            try:
                await self.sync()
            except StorageUnavailable as error:
                if delay_s == _RETRY_FIRST_S:
                    _log.warning("session %s waits for a sync: %s", self.state.session_id, error)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_MOST_S)
            else:
                return

    async def shown(self) -> None:
        """Wait until readers may see all that is written: under --fsync always when it is synced.

        Raises:
            StorageUnavailable: The sync failed.
        """
        if self._config.fsync == "always":
            await self.sync()

    async def usable(self) -> None:
        """Mend a failed sync before a command goes on.

        Raises:
            StorageUnavailable: It still fails.
        """
        if self._is_sync_owed:
            await self.sync()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _fold(
        self, state: SessionState, lines: list[bytes], todo: Sequence[ev.Draft], *, is_live: bool
    ) -> int | None:
        """Put drafts and what each calls for; the offset behind the first boundary at rest among them."""
        rest_offset: int | None = None
        if state.owes:
            rest_offset = self._pay(state, lines, [draft.type for draft in todo], is_live=is_live)
        at = 0
        while at < len(todo):
            kind, data = todo[at]
            check(state, kind, data)
            if kind == ev.MESSAGE_APPENDED:  # what allows one delta allows the next
                first, at = at, at + 1
                while at < len(todo) and todo[at].type == ev.MESSAGE_APPENDED:
                    at += 1
                self._put_run(state, todo[first:at], lines)
                continue
            self._put_run(state, [ev.Draft(kind, self._redacted(kind, data))], lines)
            at += 1
            if kind in _BOUNDARIES:
                rest_offset = rest_offset or self._boundary(state, kind)
            if state.owes:
                coming = [later.type for later in todo[at:]]
                paid = self._pay(state, lines, coming, is_live=is_live)
                rest_offset = rest_offset or paid
        return rest_offset

    def _redacted(self, kind: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The data without what must not be written: nothing gets past this but deltas, which `HeldText` has seen.

        What was redacted before, by whoever had to know what would be recorded, stays as it is.
        """
        if not self._redactor.is_on:
            return data
        for name in _FOREIGN.get(kind, ()) if not kind.startswith("x.") else tuple(data):
            value = data.get(name)
            form = self._redactor.form(value)
            if form is not value:
                data = {**data, name: form}
        return data

    def _drop_refused(self, *, is_live: bool) -> None:
        """Take out of the queue what can never be written; its writer was not told of it in time: a bug."""
        state = copy.copy(self.state)
        kept: list[ev.Draft] = []
        for draft in self._queued:
            trial = copy.copy(state)
            try:
                self._fold(trial, [], [draft], is_live=is_live)
            except EventRefused as error:
                _log.error("session %s: an event is dropped: %s", state.session_id, error)
            else:
                state = trial
                kept.append(draft)
        self._queued = kept

    def _pay(
        self, state: SessionState, lines: list[bytes], coming: Iterable[str], *, is_live: bool
    ) -> int | None:
        """Put what the state owes; the offset behind the first boundary at rest among it."""
        rest_offset: int | None = None
        after = tuple(coming)
        while state.owes:
            owed = self._project(state, after, is_live=is_live)
            if owed is None:
                break
            check(state, *owed)
            self._put_run(state, [owed], lines)
            rest_offset = rest_offset or self._boundary(state, owed.type)
        return rest_offset

    def _boundary(self, state: SessionState, kind: str) -> int | None:
        return state.offset if kind in _BOUNDARIES and state.is_at_rest else None

    def _put_run(self, state: SessionState, run: Sequence[ev.Draft], lines: list[bytes]) -> None:
        """Stamp, encode and fold events of one type, the first of them checked; more than one: deltas.

        The host's hottest path: a delta changes nothing in the state that the next one does not change again.
        """
        kind, data = run[0]
        if kind in TOLD:
            self._changes.append(Change(kind, data, None if state.turn is None else state.turn.turn_id))
        timestamp_ms = max(self._clock.now_ms(), state.updated_at_ms)
        datas = [draft.data for draft in run]
        new, link = ev.encode_run(
            state.next_index, kind, timestamp_ms, datas, state.sum, self._line_bytes_max
        )
        apply(state, kind, data, timestamp_ms)
        state.next_index += len(run) - 1
        state.offset += sum(map(len, new))
        state.sum = link
        lines += new

    def _flush_soon(self) -> None:
        self._is_flush_planned = False
        if not self._queued:
            return
        count = len(self._queued)
        try:
            self.write(())
        except StorageUnavailable as error:
            self._is_stalled = True  # the next call of the turn waits for storage, and these drafts with it
            _log.warning("session %s could not be written: %s", self.state.session_id, error)
        except EventRefused:  # logged and dropped; the others go on
            if len(self._queued) < count:
                self._flush_soon()

    def _show(self, batch: bytes, rest_offset: int | None) -> None:
        """Let readers see the batch; under --fsync always not before it is synced (contract section 4)."""
        state = self.state
        seen = (batch, state.next_index, rest_offset, state.is_at_rest, state.terminal is not None)
        if self._config.fsync != "always":
            self._publish(seen)
            return
        self._unseen.append(seen)
        if self._publisher is None:
            name = f"publish {state.session_id}"
            self._publisher = asyncio.get_running_loop().create_task(self._publish_synced(), name=name)

    async def _publish_synced(self) -> None:
        """One at a time per session: sync, then show, until everything written is shown."""
        try:
            while self._unseen and not self._is_sync_owed:
                end = self.state.next_index
                await self._log.sync()
                self._publish_unseen(end)
        except StorageUnavailable as error:
            self._is_sync_owed = True
            _log.warning("session %s could not be synced: %s", self.state.session_id, error)
        finally:
            self._publisher = None

    def _publish_unseen(self, end: int) -> None:
        """Show the batches before event `end`; another caller's sync may have shown some of them meanwhile."""
        while self._unseen and self._unseen[0][1] <= end:
            self._publish(self._unseen.pop(0))

    def _publish(self, seen: tuple[bytes, int, int | None, bool, bool]) -> None:
        batch, next_index, rest_offset, is_at_rest, is_over = seen
        self.feed.publish(batch, next_index, rest_offset, is_at_rest=is_at_rest, is_over=is_over)
