"""Attempt: one try at one turn, as far as it may write: over, it writes nothing more."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from zhin_host import events as ev
from zhin_host.clock import Clock, SessionId
from zhin_host.config import Config
from zhin_host.errors import AttemptEnded, EventTooLarge, StorageUnavailable
from zhin_host.identity import Like
from zhin_host.journal import SessionJournal
from zhin_host.meters import Meters
from zhin_host.record import Record
from zhin_host.redaction import HELD_MAX, HeldText, redactor_of
from zhin_host.replay import Diverged, Replay
from zhin_host.text import SaidText
from zhin_host.workers import Workers

_log = logging.getLogger("zhin_host.attempt")

Read = TypeVar("Read")

_RETRY_FIRST_S: Final = 0.05
_RETRY_MOST_S: Final = 1.0
_LINE_OVERHEAD_BYTES: Final = 256  # index, type, timestamp and sum of a line, at their longest


@dataclass(slots=True)
class Trial:
    """One try of an action that is tried again when it fails: whether readers heard anything of it."""

    was_heard: bool = False


trial_here: contextvars.ContextVar[Trial | None] = contextvars.ContextVar("zhin_host_trial", default=None)
"""The try that runs here, in its task and those it began."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the host gives to every turn."""

    clock: Clock
    config: Config
    workers: Workers
    meters: Meters


class Attempt:
    """The write side of a Turn, shared by its actions and its gate.

    What is handed to `append` or `commit` is queued at once and written before anything later, so a cancelled caller
    loses nothing it has already handed over.

    Attributes:
        agent: agentVersion and toolsDigest of the agent that runs it, where it has them.
        number: 1, then one more with every re-drive.
        replay: The record of the attempts before, as far as it is not used up.
        divergence: How the agent left its record's path, None while it has not.
        is_over: Whether the attempt has ended: every call from then on raises AttemptEnded.
        is_resumable: Whether the turn may be driven again.
        wants_another: Whether it is over because the turn is to be driven again, here and now.
        said: What the turn has said and what of it counts, as the log has it.
        redactor: What must not be written.
    """

    def __init__(
        self,
        session_id: SessionId,
        turn_id: str,
        journal: SessionJournal,
        services: Services,
        agent: Mapping[str, str] | None = None,
        *,
        is_resumable: bool = True,
    ) -> None:
        self.is_resumable = is_resumable
        self.wants_another = False
        self.session_id = session_id
        self.turn_id = turn_id
        self.journal = journal
        self.services = services
        self.agent = agent or {}
        turn = journal.state.turn
        self.number = 1 if turn is None else turn.attempt
        self._root_turn_id = turn_id if turn is None else turn.root_turn_id
        self.replay = Replay(self._root_turn_id)
        self.divergence: str | None = None
        self.is_over = False
        # That many fit a line whatever they are: the longest is a control character's escape of 6 bytes.
        self._characters_safe = (services.config.line_bytes_max - _LINE_OVERHEAD_BYTES) // 6
        self._running = 0  # actions whose functions run now
        self._is_quiet = asyncio.Event()
        self._thought = self._new_thought()
        self.said = SaidText("message", services.config.line_bytes_max)
        self.redactor = redactor_of(services.config.redact)
        self._words = HeldText(self.redactor)
        self._thinking = HeldText(self.redactor)

    def go_on_from(self, record: Record) -> None:
        """Begin behind what earlier attempts recorded; before the agent is called."""
        self.replay = Replay(self._root_turn_id, record)
        self.said.add(record.said)
        if record.has_state:  # what was said before the checkpoint is not heard again
            self._words.skip(record.said[-HELD_MAX:])

    def recorded(self, form: Any) -> Any:
        """A value in its JSON form as the log will have it: what the agent gets, and what ids and digests are of."""
        return self.redactor.form(form)

    def check(self) -> None:
        """Raise AttemptEnded when the attempt is over."""
        if self.is_over:
            raise AttemptEnded("this attempt of the turn is over")

    def call_id(self, like: Like) -> str:
        """The id of the agent's next call that is like this.

        Raises:
            AttemptEnded: The agent has left its record's path; the turn ends as TURN_DIVERGED.
        """
        self.check()
        try:
            return self.replay.call_id(like)
        except Diverged as error:
            self.divergence, self.is_over = str(error), True
            raise AttemptEnded(str(error)) from None

    @property
    def is_working(self) -> bool:
        """Whether an action's function runs now."""
        return self._running > 0

    def begin_work(self) -> None:
        """An action's function is about to run."""
        self._running += 1
        self._is_quiet.clear()

    def end_work(self) -> None:
        """It has ended; in this same step of the loop what it returned is handed over."""
        self._running -= 1
        if not self._running:
            self._is_quiet.set()

    async def quiet(self) -> None:
        """Wait until no action's function runs; what each has returned is then queued for the log."""
        if self._running:
            await self._is_quiet.wait()

    def is_open(self, call_id: str) -> bool:
        """Whether the log still waits for the result of this call of this turn."""
        turn = self.journal.state.turn
        return turn is not None and turn.turn_id == self.turn_id and call_id in turn.calls

    def say(self, text: str) -> bool:
        """Queue a message.appended, for the next batch; whether `journal.flush` must be awaited now.

        What was said in an earlier attempt is not said again.
        """
        if not self.replay.is_used_up:
            self._words.skip(text)
            return False
        self._heard()
        if self._thought or self._thinking:
            self._queue_all(self._completed_thought())
        words = self._words.add(text)
        if len(words) > self._characters_safe:
            return self._queue_all(self._appended(words))
        if not words:
            return False
        self.said.add(words)  # as `_appended`, in fewer steps: nothing is done as often
        return self.journal.queue(ev.MESSAGE_APPENDED, {"messageDelta": words})

    def think(self, text: str) -> bool:
        """Queue a reasoning.appended, as `say`; reasoning.completed comes before whatever else comes next."""
        if not self.replay.is_used_up:
            self._thinking.skip(text)
            return False
        self._heard()
        words = self._thinking.add(text)
        return bool(words) and self._queue_all(self._reasoned(words))

    async def emit(self, kind: str, form: Any) -> None:
        """Write an event of the agent's own, unless an earlier attempt did."""
        if self.replay.is_used_up:
            self._heard()
            await self.append(ev.Draft(kind, form))

    def _heard(self) -> None:
        if (trial := trial_here.get()) is not None:
            trial.was_heard = True

    def end_for_another(self) -> AttemptEnded:
        """End the attempt: the turn is driven again from its record, so that what was said since does not count."""
        self.wants_another = self.is_over = True
        return AttemptEnded(
            "the turn is driven again, since what an action said before it failed may not stand"
        )

    def hand_over(self, *drafts: ev.Draft) -> None:
        """Queue drafts, and before them what is due: words that were held back and reasoning.completed."""
        self._queue_all((*self.last_words(), *drafts))

    def last_words(self) -> list[ev.Draft]:
        """What is due before anything but a delta: the end of what was thought and said, and reasoning.completed."""
        return [*self._completed_thought(), *self._appended(self._words.flush())]

    def _queue_all(self, drafts: Iterable[ev.Draft]) -> bool:
        must_flush = False
        for draft in drafts:
            must_flush = self.journal.queue(*draft)
        return must_flush

    def _appended(self, words: str) -> list[ev.Draft]:
        if words:
            self.said.add(words)
        return [ev.Draft(ev.MESSAGE_APPENDED, {"messageDelta": piece}) for piece in self._pieces(words)]

    def _reasoned(self, words: str) -> list[ev.Draft]:
        if words:
            self._thought.add(words)
        return [ev.Draft(ev.REASONING_APPENDED, {"reasoningDelta": piece}) for piece in self._pieces(words)]

    def _pieces(self, words: str) -> list[str]:
        """The words in as few pieces as fit a line each: what was held back may make a text too long that was not."""
        if len(words) <= self._characters_safe:
            return [words] if words else []
        limit = self.services.config.line_bytes_max - _LINE_OVERHEAD_BYTES
        if len(ev.json_bytes(words)) <= limit:
            return [words]
        middle = len(words) // 2
        return [*self._pieces(words[:middle]), *self._pieces(words[middle:])]

    async def read_when_possible(self, read: Callable[[], Read]) -> Read:
        """What `read` gives in a thread, tried again until storage lets it.

        Raises:
            AttemptEnded: The attempt is over.
        """
        delay_s = _RETRY_FIRST_S
        while True:
            try:
                return await asyncio.to_thread(read)
            except StorageUnavailable as error:
                _log.warning("turn %s waits for storage: %s", self.turn_id, error)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _RETRY_MOST_S)
            self.check()

    async def append(self, *drafts: ev.Draft) -> None:
        """Write drafts; readers see them on return."""
        self.hand_over(*drafts)
        await self.journal.write_when_possible(())

    async def commit(self, *drafts: ev.Draft) -> None:
        """Write drafts and wait until they survive a power cut."""
        self.hand_over(*drafts)
        await self.journal.commit(())

    def _completed_thought(self) -> list[ev.Draft]:
        """The reasoning.completed that is due, if one is, with what of the reasoning was held back."""
        if not (self._thought or self._thinking):
            return []
        last = self._reasoned(self._thinking.flush())
        thought, self._thought = self._thought, self._new_thought()
        return [*last, ev.Draft(ev.REASONING_COMPLETED, thought.fields())]

    def check_size(self, kind: str, data: object, *, margin_bytes: int = 0) -> None:
        """Raise EventTooLarge when an event of `data` and `margin_bytes` beside it would not fit a line."""
        limit = self.services.config.line_bytes_max
        size = len(ev.json_bytes(data)) + margin_bytes + _LINE_OVERHEAD_BYTES
        if size > limit:
            raise EventTooLarge(kind, size, limit)

    def fitting_text(self, kind: str, text: str) -> str:
        """The text in its JSON form.

        Raises:
            EventTooLarge: It does not fit a line.
        """
        if not isinstance(text, str):
            raise TypeError(f"what is said or thought is text, a str, not {type(text).__name__}")
        if not text.isascii():
            text = ev.text_form(text)
        if len(text) > self._characters_safe:
            self.check_size(kind, text)
        return text

    def _new_thought(self) -> SaidText:
        return SaidText("reasoning", self.services.config.line_bytes_max)
