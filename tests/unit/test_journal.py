"""journal: one way through: stamp, derive, check, persist, apply, ring."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import session_id_of, token_of
from tests.fakes import START_MS, FakeClock
from tests.hosting import decoded, types
from tests.scripted_log import ScriptedLog
from tests.stories import answer, ask
from zhin_host import events as ev
from zhin_host import journal
from zhin_host.config import Config
from zhin_host.errors import (
    EventRefused,
    EventTooLarge,
    IllegalMove,
    StorageFull,
    StorageUnavailable,
    Unserializable,
)
from zhin_host.journal import _FOREIGN, SessionJournal
from zhin_host.redaction import MARK
from zhin_host.state import SessionState, new_state

TURN = "turn_1"
DELTA = {"messageDelta": "word "}
STARTED: dict[str, Any] = {
    "sessionId": session_id_of(1),
    "agent": "demo",
    "logVersion": 1,
    "continuationToken": token_of(1),
}
FIRST = [
    ev.Draft(ev.SESSION_STARTED, STARTED),
    ev.Draft(ev.TURN_STARTED, {"turnId": TURN, "continuationToken": token_of(1)}),
    ev.Draft(ev.MESSAGE_RECEIVED, {"turnId": TURN, "message": "Hello"}),
]
END = [
    ev.Draft(ev.MESSAGE_COMPLETED, {"message": "", "finishReason": "stop"}),
    ev.Draft(ev.TURN_COMPLETED, {"turnId": TURN}),
]
GONE = StorageUnavailable("the disk is gone")


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the last write were always long ago."""
    monkeypatch.setattr(journal, "_GATHER_S", -1)


class Bench:
    """A journal over a scripted log, one turn open unless `is_empty`."""

    def __init__(self, *, is_empty: bool = False, **settings: Any) -> None:
        self.clock = FakeClock()
        self.log = ScriptedLog()
        self.journal = SessionJournal(
            new_state(self.log.session_id), self.log, self.clock, Config(**settings)
        )
        if not is_empty:
            self.journal.write(FIRST)
            self.log.batches.clear()
            self.log.tried = 0

    @property
    def events(self) -> list[ev.Event]:
        return decoded(self.log.session_id, self.log.read(0, 1 << 30))

    @property
    def shown(self) -> int:
        """How many events readers may see."""
        return self.journal.feed.next_index

    def say(self, text: str = "word ") -> bool:
        return self.journal.queue(ev.MESSAGE_APPENDED, {"messageDelta": text})


async def turns_of_the_loop(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# -- one batch, one write --------------------------------------------------------------------------------------


async def test_a_batch_and_all_that_follows_of_it_is_one_write() -> None:
    bench = Bench(is_empty=True)
    bench.journal.write(FIRST)
    assert len(bench.log.batches) == 1
    assert types(bench.events) == ["session.started", "turn.started", "step.started", "message.received"]
    bench.journal.write(END)
    assert len(bench.log.batches) == 2
    assert types(bench.events)[4:] == [
        "message.completed",
        "turn.completed",
        "step.completed",
        "session.waiting",
    ]


async def test_what_was_queued_goes_first_and_in_the_same_write() -> None:
    bench = Bench()
    for word in ("one", "two", "three"):
        assert bench.say(word) is False
    bench.journal.write([ev.Draft(*ask("r1"))])
    assert len(bench.log.batches) == 1
    assert [event.data.get("messageDelta") for event in bench.events[4:7]] == ["one", "two", "three"]
    assert types(bench.events)[7:] == ["input.requested", "step.interrupted", "session.waiting"]
    await turns_of_the_loop()
    assert bench.log.tried == 1  # nothing is left for the flush that was planned


async def test_what_is_queued_in_one_iteration_of_the_loop_is_written_together_after_it() -> None:
    bench = Bench()
    bench.say("one")
    bench.say("two")
    assert bench.log.tried == 0
    await turns_of_the_loop()
    assert len(bench.log.batches) == 1
    bench.say("three")
    await turns_of_the_loop()
    assert len(bench.log.batches) == 2
    assert [event.data.get("messageDelta") for event in bench.events[4:]] == ["one", "two", "three"]


async def test_words_that_come_fast_after_a_write_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    monkeypatch.setattr(journal, "_GATHER_S", 3_600)
    bench.say("one")
    await turns_of_the_loop()
    bench.say("two")
    await turns_of_the_loop()
    assert bench.log.tried == 0
    bench.journal.write(())  # whatever has to be in the log takes them along
    assert len(bench.log.batches) == 1


async def test_words_that_wait_for_each_other_are_written_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    loop = asyncio.get_running_loop()
    later: list[tuple[float, Callable[[], None]]] = []
    monkeypatch.setattr(journal, "_GATHER_S", 3_600)
    monkeypatch.setattr(loop, "call_later", lambda delay_s, then: later.append((delay_s, then)))
    bench.say("one")
    await turns_of_the_loop()
    bench.say("two")
    ((delay_s, then),) = later  # one timer, however many words
    assert (delay_s, bench.log.tried) == (3_600, 0)
    then()
    assert [event.data.get("messageDelta") for event in bench.events[4:]] == ["one", "two"]
    assert len(bench.log.batches) == 1


async def test_with_many_readers_words_wait_longer_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    loop = asyncio.get_running_loop()
    delays_s: list[float] = []
    monkeypatch.setattr(journal, "_GATHER_S", 3_600)
    monkeypatch.setattr(type(bench.journal.feed), "readers", 50)
    monkeypatch.setattr(loop, "call_later", lambda delay_s, _then: delays_s.append(delay_s))
    bench.say("one")
    assert delays_s == [4 * 3_600]


async def test_a_full_batch_tells_its_writer_to_flush_first() -> None:
    bench = Bench(batch_events_max=3)
    assert [bench.say(), bench.say(), bench.say(), bench.say()] == [False, False, True, True]
    await bench.journal.flush()
    assert len(bench.log.batches) == 1
    assert bench.say() is False
    await turns_of_the_loop()


async def test_nothing_to_write_is_no_write() -> None:
    bench = Bench()
    bench.journal.write(())
    bench.journal.write(lambda _state: ())
    await bench.journal.flush()
    assert bench.log.tried == 0


async def test_drafts_made_of_the_state_see_all_that_was_queued() -> None:
    bench = Bench()
    bench.journal.queue(*ask("r1"))
    seen: list[list[str]] = []

    def compose(state: SessionState) -> list[ev.Draft]:
        seen.append(list(state.pending))
        return [ev.Draft(*answer(name)) for name in state.pending]

    bench.journal.write(compose)
    assert seen == [["r1"]]
    assert types(bench.events)[4:] == [
        "input.requested",
        "step.interrupted",
        "session.waiting",
        "input.completed",
        "step.resumed",
    ]
    assert len(bench.log.batches) == 1


async def test_what_an_earlier_batch_still_owes_is_paid_first() -> None:
    bench = Bench(is_empty=True)
    bench.journal.write(FIRST)
    cut = copy.copy(bench.journal.state)
    cut.owes = (ev.STEP_RESUMED,)  # as after an answer whose batch was cut
    journal = SessionJournal(cut, bench.log, bench.clock, Config())
    journal.write([ev.Draft(ev.MESSAGE_APPENDED, DELTA)], is_live=False)
    assert types(bench.events)[4:] == ["step.resumed", "message.appended"]
    assert bench.events[4].data["attempt"] == 2


@pytest.mark.parametrize(("redact", "is_told"), [((), False), (("off",), True)], ids=["on", "off"])
async def test_a_key_that_nobody_has_taken_out_before_is_taken_out_here_unless_told_not_to(
    redact: tuple[str, ...], *, is_told: bool
) -> None:
    bench, key = Bench(redact=redact), "sk-" + "aB3dE6gH9" * 3
    call = {"callId": "call_1", "toolName": "fetch", "input": {"key": key, "page": "home"}}
    bench.journal.write([ev.Draft(ev.ACTIONS_REQUESTED, call), ev.Draft("x.note", {"said": key})])
    shown = key if is_told else MARK
    assert [event.data for event in bench.events[4:]] == [
        {**call, "input": {"key": shown, "page": "home"}},
        {"said": shown},
    ]


# -- writes that fail ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [GONE, StorageFull("no space")], ids=["gone", "full"])
async def test_a_failed_write_leaves_state_and_readers_as_they_were(error: StorageUnavailable) -> None:
    bench = Bench()
    bench.say("kept")
    before = copy.deepcopy(bench.journal.state)
    bench.log.append_error = error
    with pytest.raises(type(error)):
        bench.journal.write([ev.Draft(*ask("r1"))])
    assert bench.journal.state == before
    assert bench.shown == before.next_index
    bench.log.append_error = None
    bench.journal.write([ev.Draft(*ask("r2"))])
    assert [event.data.get("messageDelta") for event in bench.events[4:5]] == ["kept"]
    assert list(bench.journal.state.pending) == ["r2"]
    assert len(bench.log.batches) == 1


async def test_what_could_not_be_flushed_waits_and_tells_its_writer_to_wait_too() -> None:
    bench = Bench()
    bench.log.append_error = GONE
    assert bench.say("one") is False
    await turns_of_the_loop()
    assert bench.log.tried == 1
    assert bench.say("two") is True
    bench.log.append_error = None
    await bench.journal.flush()
    assert [event.data["messageDelta"] for event in bench.events[4:]] == ["one", "two"]
    assert bench.say("three") is False
    await turns_of_the_loop()
    assert bench.log.tried == 3


async def test_a_turns_own_write_waits_until_storage_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    delays = record_sleeps(monkeypatch, bench, back_after=7)
    bench.log.append_error = GONE
    await bench.journal.write_when_possible([ev.Draft(*ask("r1"))])
    assert delays == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert list(bench.journal.state.pending) == ["r1"]


def record_sleeps(monkeypatch: pytest.MonkeyPatch, bench: Bench, *, back_after: int) -> list[float]:
    """Take the waiting out of the journal; storage is back after so many waits."""
    delays: list[float] = []
    sleep = asyncio.sleep

    async def note(delay_s: float) -> None:
        if delay_s:
            delays.append(delay_s)
        if len(delays) >= back_after:
            bench.log.append_error = bench.log.sync_error = None
        await sleep(0)

    monkeypatch.setattr("zhin_host.journal.asyncio.sleep", note)
    return delays


async def test_a_wait_for_storage_can_be_cancelled_and_what_was_queued_stays() -> None:
    bench = Bench()
    bench.log.append_error = GONE
    bench.say("kept")
    waiting = asyncio.create_task(bench.journal.flush())
    await turns_of_the_loop()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    bench.log.append_error = None
    bench.journal.write(())
    assert bench.events[-1].data == {"messageDelta": "kept"}


@pytest.mark.parametrize(
    ("draft", "error"),
    [
        (ev.Draft(ev.MESSAGE_APPENDED, {"messageDelta": "x" * 9000}), EventTooLarge),
        (ev.Draft("x.odd", {"value": object()}), Unserializable),
        (ev.Draft(ev.TURN_STARTED, {"turnId": "turn_2", "continuationToken": token_of(2)}), IllegalMove),
        (ev.Draft("unknown", {}), IllegalMove),
    ],
    ids=["too large", "no form", "illegal", "unknown"],
)
async def test_a_draft_that_is_no_line_changes_nothing_and_the_next_one_is_written(
    draft: ev.Draft, error: type[Exception]
) -> None:
    bench = Bench(line_bytes_max=8192)
    before = copy.deepcopy(bench.journal.state)
    with pytest.raises(error):
        bench.journal.write([ev.Draft(ev.MESSAGE_APPENDED, DELTA), draft])
    assert (bench.log.tried, bench.journal.state, bench.shown) == (0, before, before.next_index)
    bench.journal.write([ev.Draft(ev.MESSAGE_APPENDED, DELTA)])
    assert types(bench.events)[4:] == ["message.appended"]


BAD = [
    ev.Draft(ev.ACTIONS_REQUESTED, {"callId": "call_1", "toolName": "x" * 9000, "input": {}}),
    ev.Draft(ev.ACTION_RESULT, {"callId": "call_7", "toolName": "", "status": "failed", "durationMs": 0}),
]


@pytest.mark.parametrize("bad", BAD, ids=["too large", "illegal"])
async def test_a_queued_event_that_can_never_be_written_keeps_out_none_of_the_others(bad: ev.Draft) -> None:
    bench = Bench(line_bytes_max=8192)
    bench.say("one")
    bench.journal.queue(*bad)
    bench.say("two")
    with pytest.raises(EventRefused):
        bench.journal.write([ev.Draft(*ask("r1"))])
    assert bench.log.tried == 0
    bench.journal.write([ev.Draft(*ask("r1"))])
    assert [event.data.get("messageDelta") for event in bench.events[4:6]] == ["one", "two"]
    assert types(bench.events)[6] == "input.requested"


async def test_the_flush_of_a_queue_writes_what_can_be_written() -> None:
    bench = Bench(line_bytes_max=8192)
    for draft in (*BAD, ev.Draft(ev.MESSAGE_APPENDED, DELTA), *BAD):
        bench.journal.queue(*draft)
    await turns_of_the_loop()
    assert types(bench.events)[4:] == ["message.appended"]


async def test_a_refusal_that_no_queued_event_alone_is_to_blame_for_is_told_and_not_tried_for_ever() -> None:
    bench = Bench()
    bench.journal.write([ev.Draft(*ask("r1"))])
    bench.log.tried = 0
    drafts = [  # each is legal where the one before stands alone; together the turn's end leaves no step.resumed
        ev.Draft(*answer("r1", "cancelled")),
        ev.Draft(ev.MESSAGE_APPENDED, DELTA),
        ev.Draft(
            ev.TURN_FAILED, {"turnId": TURN, "code": "AGENT_FAILED", "message": "no", "recoverable": True}
        ),
    ]
    for draft in drafts:
        bench.journal.queue(*draft)
    await turns_of_the_loop()
    assert bench.journal._queued == drafts
    with pytest.raises(IllegalMove):
        bench.journal.write(())
    assert bench.log.tried == 0


async def test_another_writer_of_the_same_log_is_refused_and_not_overwritten() -> None:
    bench = Bench()
    stranger = copy.copy(bench.journal.state)
    stranger.offset -= 1
    journal = SessionJournal(stranger, bench.log, bench.clock, Config())
    with pytest.raises(StorageUnavailable):
        journal.write([ev.Draft(ev.MESSAGE_APPENDED, DELTA)])
    assert len(bench.events) == 4


# -- stamps ----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(min_value=-(10**6), max_value=10**6), max_size=20))
def test_no_timestamp_is_lower_than_the_one_before_however_the_clock_jumps(jumps_s: list[int]) -> None:
    bench = Bench()
    for jump_s in jumps_s:
        bench.clock.advance(jump_s)
        bench.journal.write([ev.Draft(ev.MESSAGE_APPENDED, DELTA)])
    stamps = [event.timestamp_ms for event in bench.events]
    assert stamps == sorted(stamps)
    assert [event.index for event in bench.events] == list(range(len(stamps)))


async def test_a_clock_that_jumped_ahead_pins_the_time_until_it_has_caught_up() -> None:
    bench = Bench()
    for advance_s in (100, -50, 40, 20):
        bench.clock.advance(advance_s)
        bench.journal.write([ev.Draft(ev.MESSAGE_APPENDED, DELTA)])
    seconds = [(event.timestamp_ms - START_MS) / 1000 for event in bench.events[4:]]
    assert seconds == [100, 100, 100, 110]


# -- boundaries ------------------------------------------------------------------------------------------------


class Ends:
    """Stands in for the feed: notes where batches come to rest."""

    def __init__(self) -> None:
        self.rests: list[int | None] = []

    def publish(
        self, lines: bytes, next_index: int, rest_offset: int | None, *, is_at_rest: bool, is_over: bool
    ) -> None:
        self.rests.append(rest_offset)


def rests(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    ends = Ends()
    monkeypatch.setattr(bench.journal.feed, "publish", ends.publish)
    return ends.rests


async def test_a_batch_that_comes_to_rest_says_behind_which_event(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    noted = rests(bench, monkeypatch)
    bench.journal.write([ev.Draft(ev.MESSAGE_APPENDED, DELTA)])
    bench.journal.write(END)
    assert noted == [None, bench.journal.state.offset]


async def test_the_first_of_two_rests_in_a_batch_is_the_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    noted = rests(bench, monkeypatch)
    bench.journal.write([ev.Draft(*ask("r1")), ev.Draft(ev.MESSAGE_APPENDED, DELTA), ev.Draft(*ask("r2"))])
    lines = bench.log.read(0, 1 << 20).splitlines(keepends=True)
    assert types(bench.events)[6] == "session.waiting"
    assert noted == [sum(len(line) for line in lines[:7])]


async def test_a_session_that_is_over_is_at_its_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    noted = rests(bench, monkeypatch)
    bench.journal.write([*END, ev.Draft(ev.SESSION_COMPLETED, {"sessionId": session_id_of(1)})])
    assert types(bench.events)[-1] == "session.completed"
    assert noted == [bench.journal.state.offset]


async def test_a_wait_with_messages_queued_is_no_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    noted = rests(bench, monkeypatch)
    queued = {"turnId": "turn_2", "message": "m", "continuationToken": token_of(2)}
    bench.journal.write([ev.Draft(ev.MESSAGE_QUEUED, queued), *END])
    assert types(bench.events)[-1] == "session.waiting"
    assert noted == [None]


# -- syncing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fsync", ["boundary", "never"])
async def test_readers_see_a_batch_as_soon_as_it_is_written(fsync: Any) -> None:
    bench = Bench(fsync=fsync)
    bench.log.hold_syncs()
    bench.say()
    await turns_of_the_loop()
    assert bench.shown == 5


async def test_a_commit_waits_for_the_sync_and_readers_do_not() -> None:
    bench = Bench()
    bench.log.hold_syncs()
    task = asyncio.create_task(bench.journal.commit([ev.Draft(ev.MESSAGE_APPENDED, DELTA)]))
    await turns_of_the_loop()
    assert (bench.shown, task.done()) == (5, False)
    bench.log.let_go()
    await task
    assert bench.log.synced_bytes == bench.journal.state.offset


async def test_under_always_nothing_is_shown_before_its_sync() -> None:
    bench = Bench(is_empty=True, fsync="always")
    bench.log.hold_syncs()
    bench.journal.write(FIRST)
    await turns_of_the_loop()
    assert (bench.shown, bench.journal.state.next_index) == (0, 4)
    bench.journal.write([ev.Draft(ev.MESSAGE_APPENDED, DELTA)])
    bench.log.let_go()
    await turns_of_the_loop()
    assert bench.shown == 4  # the delta came after that sync had begun
    bench.log.let_go()
    await turns_of_the_loop()
    assert bench.shown == 5


async def test_under_always_what_is_written_while_a_sync_runs_shares_the_next_one() -> None:
    bench = Bench(is_empty=True, fsync="always")
    bench.log.hold_syncs()
    bench.journal.write(FIRST)
    await turns_of_the_loop()
    for _ in range(5):
        bench.journal.write([ev.Draft(ev.MESSAGE_APPENDED, DELTA)])
    bench.log.let_go()
    await turns_of_the_loop()
    assert bench.log.syncs_waiting == 1
    bench.log.let_go()
    await turns_of_the_loop()
    assert (bench.shown, bench.log.syncs) == (9, 2)


async def test_under_always_a_commit_returns_when_readers_may_see_it() -> None:
    bench = Bench(fsync="always")
    await turns_of_the_loop()
    bench.log.hold_syncs()
    task = asyncio.create_task(bench.journal.commit([ev.Draft(ev.MESSAGE_APPENDED, DELTA)]))
    await turns_of_the_loop()
    assert (bench.shown, task.done()) == (4, False)
    bench.log.let_go()
    await task
    assert bench.shown == 5
    await bench.journal.sync()
    assert bench.log.syncs_waiting == 0  # nothing new: nothing to wait for


@pytest.mark.parametrize("fsync", ["boundary", "always"])
async def test_after_a_failed_sync_nothing_is_written_until_one_succeeds(fsync: Any) -> None:
    bench = Bench(fsync=fsync)
    await turns_of_the_loop()
    bench.log.sync_error = GONE
    bench.journal.write([ev.Draft(ev.MESSAGE_APPENDED, DELTA)])
    with pytest.raises(StorageUnavailable):
        await bench.journal.sync()
    tried = bench.log.tried
    with pytest.raises(StorageUnavailable):
        bench.journal.write([ev.Draft(ev.MESSAGE_APPENDED, DELTA)])
    with pytest.raises(StorageUnavailable):
        await bench.journal.usable()
    assert bench.log.tried == tried
    bench.log.sync_error = None
    await bench.journal.usable()
    bench.journal.write([ev.Draft(ev.MESSAGE_APPENDED, DELTA)])
    await bench.journal.sync()
    assert bench.shown == len(bench.events) == 6


async def test_under_always_a_failed_sync_shows_nothing_and_the_next_good_one_shows_all() -> None:
    bench = Bench(fsync="always")
    await turns_of_the_loop()
    bench.log.sync_error = GONE
    bench.journal.write([ev.Draft(ev.MESSAGE_APPENDED, DELTA)])
    await turns_of_the_loop()
    assert bench.shown == 4
    with pytest.raises(StorageUnavailable):
        bench.journal.write(())
    bench.log.sync_error = None
    await bench.journal.usable()
    assert bench.shown == 5


async def test_under_always_a_repair_shows_only_what_its_own_sync_covered() -> None:
    """Two callers repair at once; what one of them lets be written meanwhile is not synced by the other."""
    bench = Bench(fsync="always")
    await turns_of_the_loop()
    bench.log.sync_error = GONE
    bench.journal.write([ev.Draft(ev.MESSAGE_APPENDED, DELTA)])
    await turns_of_the_loop()
    bench.log.sync_error = None
    bench.log.hold_syncs()
    first = asyncio.create_task(bench.journal.usable())
    second = asyncio.create_task(bench.journal.usable())
    await turns_of_the_loop()
    assert bench.log.syncs_waiting == 2
    bench.log.let_go()
    await first
    assert bench.shown == 5
    bench.journal.write([ev.Draft(ev.MESSAGE_APPENDED, DELTA)])
    bench.log.let_go()  # the second repair's, begun before this delta was written
    await second
    assert bench.shown == 5
    bench.log.let_all_go()
    await turns_of_the_loop()
    assert bench.shown == 6


async def test_a_turns_own_sync_waits_until_it_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    delays = record_sleeps(monkeypatch, bench, back_after=3)
    bench.log.sync_error = GONE
    await bench.journal.commit([ev.Draft(ev.MESSAGE_APPENDED, DELTA)])
    assert delays == [0.05, 0.1, 0.2]
    assert bench.log.synced_bytes == bench.journal.state.offset


async def test_a_turns_own_write_repairs_a_failed_sync_first(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.log.sync_error = GONE
    with pytest.raises(StorageUnavailable):
        await bench.journal.sync()
    delays = record_sleeps(monkeypatch, bench, back_after=2)
    await bench.journal.write_when_possible([ev.Draft(ev.MESSAGE_APPENDED, DELTA)])
    assert delays == [0.05, 0.1]
    assert bench.shown == 5


async def test_a_usable_journal_syncs_nothing() -> None:
    bench = Bench()
    await bench.journal.usable()
    assert bench.log.syncs == 0


async def test_one_caller_who_leaves_takes_the_publishing_of_others_not_along() -> None:
    bench = Bench(is_empty=True, fsync="always")
    bench.log.hold_syncs()
    bench.journal.write(FIRST)
    waiting = asyncio.create_task(bench.journal.sync())
    await turns_of_the_loop()
    waiting.cancel()
    await asyncio.wait([waiting])
    bench.log.let_go()
    await turns_of_the_loop()
    assert bench.shown == 4


# -- redaction -------------------------------------------------------------------------------------------------

STRUCTURAL = {  # what the host alone says, and deltas, which are redacted where they are said
    ev.SESSION_WAITING,
    ev.TURN_STARTED,
    ev.TURN_CANCELLING,
    ev.TURN_CANCELLED,
    ev.STEP_STARTED,
    ev.STEP_COMPLETED,
    ev.STEP_INTERRUPTED,
    ev.STEP_RESUMED,
    ev.MESSAGE_APPENDED,
    ev.REASONING_APPENDED,
    ev.REASONING_COMPLETED,
    ev.AUTHORIZATION_REQUIRED,  # names, and a link that a person must open
}


def test_of_every_event_it_is_said_what_in_it_may_hold_a_key() -> None:
    assert _FOREIGN.keys() | STRUCTURAL == ev.VOCABULARY.keys()
    assert not _FOREIGN.keys() & STRUCTURAL
    for kind, fields in _FOREIGN.items():
        known = {name.rstrip("?") for name in ev.VOCABULARY[kind].split()}
        assert set(fields) <= known | {"message"}, kind
