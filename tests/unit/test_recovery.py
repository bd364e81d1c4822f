"""recovery: a session read back from its files, whole, cut or broken, and what its log still owes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import LogBuilder, chained, rechained, session_id_of, token_of
from tests.hosting import NOBODY, decoded, hosting, one, types
from tests.stories import STORIES, answer, ask, cancelled, cancelling
from zhin_host import Turn
from zhin_host import events as ev
from zhin_host.agent import hosted
from zhin_host.errors import AgentUnavailable, SessionNotFound, StorageUnavailable
from zhin_host.fold import apply
from zhin_host.recovery import after_restart, ending_after_restart, hydrate, peek, read_owner
from zhin_host.snapshot import encode_snapshot
from zhin_host.state import new_state
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.memory import MemorySessionPersistence

SESSION = session_id_of(1)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def kept(content: bytes, snapshot: bytes | None = None) -> MemorySessionPersistence:
    """A session's files, as a host that crashed has left them."""
    persistence = MemorySessionPersistence()
    persistence._logs[SESSION] = bytearray(content)
    persistence._marks[SESSION] = "running"
    if snapshot is not None:
        persistence._snapshots[SESSION] = snapshot
    return persistence


# -- reading back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("story", STORIES)
def test_a_whole_log_is_read_back_with_and_without_a_snapshot_of_any_moment(story: str) -> None:
    builder = STORIES[story]()
    snapshots: list[bytes | None] = [None]
    state = new_state(SESSION)
    for line in builder.lines:
        event = ev.decode_line(line[:-1], state.sum)
        apply(state, event.type, event.data, event.timestamp_ms)
        state.offset += len(line)
        state.sum = event.sum
        snapshots.append(encode_snapshot(state))
    for snapshot in snapshots:
        found = peek(kept(builder.content, snapshot), SESSION)
        assert found.state == builder.state
        assert found.fault is None
        assert found.snapshot_bytes == len(snapshot or b"")
        assert (found.snapshot_offset > 0) == (snapshot is not None)


def other_log() -> LogBuilder:
    """A log of the same session id that tells another story."""
    return LogBuilder().start("Something else entirely").say("x" * 400).finish("x" * 400)


SNAPSHOTS: dict[str, Callable[[LogBuilder], bytes]] = {
    "damaged": lambda builder: builder.snapshot.replace(b"waiting", b"running"),
    "empty": lambda _: b"",
    "of another session": lambda _: LogBuilder(session_id_of(2)).start().snapshot,
    "ahead of the log": lambda _: STORIES["follow_ups"]().snapshot,
    "of another log": lambda _: LogBuilder().start("Another").snapshot,
    "of nothing": lambda _: encode_snapshot(new_state(SESSION)),
}


@pytest.mark.parametrize("what", SNAPSHOTS)
def test_a_snapshot_that_does_not_fit_is_not_used_and_the_log_is_folded_from_its_start(what: str) -> None:
    builder = LogBuilder().start().finish("")
    found = peek(kept(builder.content, SNAPSHOTS[what](builder)), SESSION)
    assert found.state == builder.state
    assert (found.snapshot_bytes, found.snapshot_offset) == (0, 0)


def test_a_snapshot_ahead_of_its_log_is_reported_for_it_proves_lost_events(
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = STORIES["follow_ups"]()
    with caplog.at_level(logging.ERROR, "zhin_host.recovery"):
        peek(kept(b"".join(whole.lines[:10]), whole.snapshot), SESSION)
    assert "events were lost" in caplog.text


def test_a_log_longer_than_a_block_is_folded_whole() -> None:
    builder = LogBuilder().start()
    builder.say(*["x" * 30_000] * 80)
    assert peek(kept(builder.content), SESSION).state == builder.state


def test_looking_changes_nothing() -> None:
    builder = LogBuilder().start()
    persistence = kept(builder.content)
    peek(persistence, SESSION)
    assert persistence._logs[SESSION] == builder.content
    with pytest.raises(SessionNotFound):
        peek(persistence, session_id_of(2))


# -- broken lines ----------------------------------------------------------------------------------------------


def replaced(lines: list[bytes], at: int, old: bytes, new: bytes) -> bytes:
    assert old in lines[at]
    return b"".join([*lines[:at], lines[at].replace(old, new, 1), *lines[at + 1 :]])


def rechain(lines: list[bytes], at: int, old: bytes, new: bytes) -> bytes:
    """A careful forger's change: the chain holds."""
    return rechained(SESSION, replaced(lines, at, old, new).splitlines())


DAMAGES: dict[str, tuple[int, Any]] = {
    "a changed byte": (3, lambda lines: replaced(lines, 3, b"Hello", b"Hallo")),
    "a broken shape": (3, lambda lines: replaced(lines, 3, b'"data"', b'"date"')),
    "a missing line": (4, lambda lines: b"".join(lines[:4] + lines[5:])),
    "a doubled line": (5, lambda lines: b"".join(lines[:5] + lines[4:])),
    "two lines exchanged": (4, lambda lines: b"".join([*lines[:4], lines[5], lines[4], *lines[6:]])),
    "a foreign line": (4, lambda lines: b"".join(lines[:4] + other_log().lines[4:])),
    "a line that is not JSON": (3, lambda lines: rechain(lines, 3, b'"Hello"', b'"Hel"lo"')),
    "an index that jumps": (3, lambda lines: rechain(lines, 3, b'"index":3', b'"index":4')),
    "a timestamp that falls": (3, lambda lines: rechain(lines, 3, b'"timestamp":1764', b'"timestamp":1763')),
    "an illegal move": (4, lambda lines: rechain(lines, 4, b"message.appended", b"message.received")),
    "an unknown type": (4, lambda lines: rechain(lines, 4, b"message.appended", b"message.apqended")),
    "a missing field": (4, lambda lines: rechain(lines, 3, b'"message"', b'"massage"')),
    "a value of a wrong type": (1, lambda lines: rechain(lines, 1, b'"turnId":"', b'"turnId":["')),
    "another version": (0, lambda lines: rechain(lines, 0, b'"logVersion":1', b'"logVersion":2')),
    "another session's": (0, lambda lines: rechain(lines, 0, b"0001", b"0002")),
    "NUL bytes": (4, lambda lines: b"".join(lines[:4]) + b"\0" * 40 + b"\n" + lines[4]),
    "an empty line": (4, lambda lines: b"".join(lines[:4]) + b"\n" + b"".join(lines[4:])),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_the_first_line_that_is_broken_is_found_and_nothing_behind_it_is_read(what: str) -> None:
    at, damage = DAMAGES[what]
    lines = LogBuilder().start().say("one", "two").finish("onetwo").lines
    found = peek(kept(damage(lines)), SESSION)
    assert found.fault is not None
    assert found.fault.index <= at
    assert found.fault.offset == found.state.offset == sum(len(line) for line in lines[: found.fault.index])
    assert found.state.next_index == found.fault.index
    if what not in {"a missing field", "a value of a wrong type"}:
        assert found.fault.index == at


def test_a_line_that_cannot_be_folded_leaves_the_state_as_it_was_before_it() -> None:
    """What anyone may see of a broken session is the fold of what stands before the fault."""
    lines = LogBuilder().start().finish("").follow_up().lines
    at = 8
    assert b'"type":"turn.started"' in lines[at]
    content = rechain(lines, at, b'"turnId"', b'"turnIt"')
    whole = peek(kept(b"".join(lines[:at])), SESSION)
    broken = peek(kept(content), SESSION)
    assert broken.fault is not None
    assert broken.fault.index == at
    assert broken.state == whole.state


async def test_a_broken_session_is_readable_up_to_there_and_takes_nothing_more() -> None:
    builder = LogBuilder().start("Hello", agent="agent").say("one", "two").finish("onetwo")
    content = replaced(builder.lines, 5, b"two", b"tow")
    persistence = kept(content)

    async def agent(turn: Turn) -> None: ...

    async with hosting(agent, persistence=persistence, is_audited=False) as host:
        assert await host.content(SESSION) == b"".join(builder.lines[:5])
        assert await host.content(SESSION, -2) == b"".join(builder.lines[3:5])
        view = await host.store.view(NOBODY, SESSION)
        assert (view["cursor"], view["brokenAt"]) == (5, 5)
        for command in (
            host.store.proceed(NOBODY, SESSION, view["continuationToken"], "again"),
            host.store.cancel(NOBODY, SESSION, None),
            host.store.end(NOBODY, SESSION, "completed", None),
            host.store.resume(NOBODY, SESSION),
            host.store.answer(NOBODY, SESSION, "req_x", {"approved": True}, None),
        ):
            with pytest.raises(StorageUnavailable) as caught:
                await command
            assert caught.value.index == 5
            assert caught.value.extra() == {"index": 5}
        verdict = await host.store.audit(NOBODY, SESSION)
        assert (verdict["ok"], verdict["faults"][0]["index"]) == (False, 5)
        (row,) = (await host.store.page(NOBODY, None, 10, None)).sessions
        assert row["brokenAt"] == 5
        accepted = await host.start()
        assert "turn.completed" in types(await host.idle(accepted.session_id))
        assert persistence._logs[SESSION] == content
        await host.store.delete(NOBODY, SESSION)
        assert persistence.session_ids() == [accepted.session_id]


# -- what nobody was told of -----------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [0, 1])
async def test_a_session_that_nobody_was_told_of_is_none(lines: int) -> None:
    persistence = kept(b"".join(LogBuilder().start().lines[:lines]))
    with pytest.raises(SessionNotFound):
        hydrate(persistence, SESSION)
    assert persistence.session_ids() == []


def test_the_bytes_of_a_session_that_nobody_was_told_of_are_kept_aside(data_dir: Path) -> None:
    whole = LogBuilder().start().lines
    content = whole[0] + whole[1][:30]
    put(data_dir, f"{SESSION}.ndjson", content)
    persistence = FileHttpSessionPersistence(data_dir)
    persistence.start()
    with pytest.raises(SessionNotFound):
        hydrate(persistence, SESSION)
    persistence.stop()
    assert [path.name for path in data_dir.iterdir() if SESSION in path.name] == [f"{SESSION}.torn"]
    torn = (data_dir / f"{SESSION}.torn").read_bytes()
    assert whole[0] in torn
    assert whole[1][:30] in torn


def put(directory: Path, name: str, content: bytes) -> None:
    directory.mkdir(mode=0o700, exist_ok=True)
    (directory / name).write_bytes(content)
    (directory / name).chmod(0o600)


async def test_a_log_that_begins_with_another_event_is_broken_and_not_forgotten() -> None:
    """It is no session that nobody was told of: something has happened to it."""
    (line,) = chained(SESSION, [(ev.MESSAGE_APPENDED, {"messageDelta": "a"})])
    found = hydrate(kept(line), SESSION)
    assert found.fault is not None
    assert found.fault.index == 0


# -- what a cut log owes ---------------------------------------------------------------------------------------


async def plain(turn: Turn) -> None:
    await turn.say("ok")


async def gives_up(turn: Turn) -> None:
    await turn.say("ok")


gives_up.resumable = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("agent", [plain, gives_up], ids=["resumable", "not resumable"])
@pytest.mark.parametrize("story", STORIES)
async def test_a_log_cut_after_any_event_comes_to_rest_and_takes_a_follow_up(story: str, agent: Any) -> None:
    """The scripted agent takes another path than most stories: that ends the turn, and nothing else."""
    builder = STORIES[story]()
    for cut in range(2, len(builder.lines) + 1):
        before = b"".join(builder.lines[:cut])
        async with hosting({"demo": agent}, persistence=kept(before)) as host:
            view = await host.store.view(NOBODY, SESSION)
            if view["parked"]:
                assert view["pendingRequestIds"]
                assert agent is plain
                await host.cancel(SESSION)
            events = await host.idle(SESSION)
            assert host.log(SESSION).startswith(before)
            state = host.live(SESSION).state
            assert not state.owes
            if state.terminal is not None:
                continue
            assert types(events)[-1] == "session.waiting", cut
            view = await host.store.view(NOBODY, SESSION)
            accepted = await host.store.proceed(NOBODY, SESSION, view["continuationToken"], "and now?")
            events = await host.idle(SESSION, accepted.start_index)
            assert types(events)[-3:] == ["turn.completed", "step.completed", "session.waiting"], cut


@pytest.mark.parametrize("story", STORIES)
async def test_a_log_cut_after_any_event_whose_agent_is_gone_waits_for_it(story: str) -> None:
    builder = STORIES[story]()
    for cut in range(2, len(builder.lines) + 1):
        before = b"".join(builder.lines[:cut])
        async with hosting({"other": plain}, persistence=kept(before)) as host:
            view = await host.store.view(NOBODY, SESSION)
            if view["status"] in {"completed", "failed"}:
                continue
            with pytest.raises(AgentUnavailable):
                await host.store.proceed(NOBODY, SESSION, view["continuationToken"], "and now?")
            assert host.log(SESSION).startswith(before)
            turn, state = peek(kept(before), SESSION).state.turn, host.live(SESSION).state
            if turn is not None and turn.is_cancelling:
                assert state.turn is None
                continue
            owed = types(decoded(SESSION, host.log(SESSION))[cut:])
            assert all(kind.startswith("step.") or kind == "session.waiting" for kind in owed)
            assert (state.turn is None) == (turn is None)
            assert not state.owes


def cut_in_the_closing_of_a_cancelled_turn() -> bytes:
    builder = LogBuilder().start().call("call_1").put(ask("r1"))
    builder.put(cancelling(builder))
    builder.put(answer("r1", "cancelled"), cancelled(builder))
    at = next(index for index, line in enumerate(builder.lines) if b'"type":"input.completed"' in line)
    return b"".join(builder.lines[: at + 1])


async def test_a_cancelled_turn_cut_between_its_request_and_its_end_ends_as_cancelled() -> None:
    async with hosting({"demo": plain}, persistence=kept(cut_in_the_closing_of_a_cancelled_turn())) as host:
        events = await host.idle(SESSION)
    assert types(events)[-4:] == ["action.result", "turn.cancelled", "step.interrupted", "session.waiting"]
    assert one(events, "turn.cancelled") == {
        "turnId": LogBuilder().start().turn_id,
        "reason": "requested",
        "by": "ann",
    }


async def test_a_turn_that_never_received_its_message_fails_and_can_be_sent_again() -> None:
    builder = LogBuilder().start("Hello", agent="demo")
    async with hosting({"demo": plain}, persistence=kept(b"".join(builder.lines[:2]))) as host:
        events = await host.idle(SESSION)
        assert types(events)[2:] == ["step.started", "turn.failed", "step.interrupted", "session.waiting"]
        failed = one(events, "turn.failed")
        assert (failed["code"], failed["recoverable"]) == ("HOST_RESTARTED", False)
        assert events[-1].data["reason"] == "interrupted"
        assert events[-1].data["continuationToken"] == token_of(1)
        await host.follow_up(SESSION)
        assert "turn.completed" in types(await host.idle(SESSION))


async def test_an_agent_that_cannot_be_driven_again_has_its_requests_closed_and_its_turn_failed() -> None:
    builder = LogBuilder().start().put(ask("r1"), ask("r2"))
    async with hosting({"demo": gives_up}, persistence=kept(builder.content)) as host:
        events = await host.idle(SESSION)
    assert types(events)[-5:] == [
        "input.completed",
        "input.completed",
        "turn.failed",
        "step.interrupted",
        "session.waiting",
    ]
    assert one(events, "turn.failed")["code"] == "HOST_RESTARTED"
    assert one(events, "step.interrupted", 2)["interruptKind"] == "restart"
    assert events[-1].data["reason"] == "interrupted"


def test_a_session_at_rest_needs_nothing() -> None:
    state = LogBuilder().start().finish("").state
    plan = after_restart(state, hosted(plain, "demo"), "ask", was_crash=True)
    assert (list(plan.drafts), plan.is_driven) == ([], False)
    assert ending_after_restart(state) == []


async def test_what_recovery_wrote_is_written_once_however_often_the_host_starts() -> None:
    persistence = kept(LogBuilder().start().put(ask("r1")).content)
    logs: list[bytes] = []
    for _ in range(3):
        async with hosting({"demo": gives_up}, persistence=persistence) as host:
            await host.idle(SESSION)
            logs.append(host.log(SESSION))
    assert logs[0] == logs[1] == logs[2]
    assert decoded(SESSION, logs[0])


# -- whose it is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "owner"),
    [
        (lambda lines: lines, "ada"),
        (lambda lines: lines[:1], "ada"),
        (lambda lines: [lines[0].replace(b'"owner":"ada"', b'"owner":7')], None),
        (lambda lines: [lines[0].replace(b'"owner":"ada"', b'"owner"')], None),
        (lambda lines: [b"\0" * 70 + b"\n", *lines[1:]], None),
    ],
    ids=["whole", "alone", "a number", "no JSON", "no event"],
)
def test_whose_a_session_is_stands_in_its_first_line(
    damage: Callable[[list[bytes]], list[bytes]], owner: str | None
) -> None:
    data = {
        "sessionId": SESSION,
        "agent": "a",
        "logVersion": 1,
        "continuationToken": token_of(1),
        "owner": "ada",
    }
    long = {**data, "metadata": {"text": "x" * 200_000}}
    for started in (data, long):
        line, link = ev.encode_line(0, ev.SESSION_STARTED, 1, started, ev.chain_start(SESSION), 1 << 20)
        turn = {"turnId": "turn_1", "continuationToken": token_of(1)}
        after, _ = ev.encode_line(1, ev.TURN_STARTED, 1, turn, link, 1 << 20)
        assert read_owner(kept(b"".join(damage([line, after]))), SESSION) == owner


def test_whose_a_session_is_that_is_not_there_is_not_found() -> None:
    with pytest.raises(SessionNotFound):
        read_owner(kept(b""), session_id_of(2))
