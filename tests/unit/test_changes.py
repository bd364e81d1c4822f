"""The host's log: one line for each change, with named fields and without anybody's words."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from tests.budget.counting import Calls
from tests.fakes import FakeClock
from tests.hosting import NOBODY, crashing, hosting
from tests.integration.live import Script
from zhin_host import events as ev
from zhin_host.changes import TOLD
from zhin_host.cli.logs import JsonFormatter, LineFormatter
from zhin_host.errors import EventTooLarge
from zhin_host.intake import Key
from zhin_host.logline import LogLine, tell
from zhin_host.ports import Principal
from zhin_host.storage.memory import MemorySessionPersistence

ADA = Principal("ada")


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "zhin_host")
    return caplog


def lines(told: pytest.LogCaptureFixture) -> list[LogLine]:
    return [record.msg for record in told.records if isinstance(record.msg, LogLine)]


def names(told: pytest.LogCaptureFixture) -> list[str]:
    return [line.event for line in lines(told)]


def test_every_field_that_is_told_is_one_of_its_event() -> None:
    for kind, fields in TOLD.items():
        known = {name.rstrip("?") for name in ev.VOCABULARY[kind].split()} | {"by"}
        assert set(fields) <= known, kind


async def test_a_session_with_an_approval_is_told_line_by_line(told: pytest.LogCaptureFixture) -> None:
    async with hosting(Script()) as bench:
        accepted = await bench.store.start(ADA, "approve secret words", {"secret": "metadata"}, None, None)
        session_id, turn_id = accepted.session_id, accepted.turn_id
        reader = await bench.store.subscribe(ADA, session_id, 0, "boundary")
        async for _ in reader:
            pass
        await reader.aclose()
        [request] = bench.live(session_id).state.pending
        approver = Principal("bob", frozenset({"approve:all"}))
        await bench.store.answer(approver, session_id, request, {"approved": True}, "a secret comment")
        await bench.settled(session_id)
        await bench.store.end(ADA, session_id, "completed", "a secret note")
        await bench.store.delete(ADA, session_id)
    at = {"sessionId": session_id}
    turn = {**at, "turnId": turn_id, "agent": "scripted"}
    asked = {"requestId": request, "kind": "approval"}
    shown = [(line.event, dict(line.fields)) for line in lines(told) if not line.event.startswith("host.")]
    assert shown == [
        ("session.started", {**at, "agent": "scripted", "by": "ada"}),
        ("turn.started", {**turn, "by": "ada"}),
        ("input.requested", {**turn, **asked}),
        ("input.completed", {**turn, **asked, "outcome": "approved", "by": "bob"}),
        ("step.resumed", {**turn, "attempt": 1}),
        ("turn.completed", turn),
        ("session.completed", {**at, "agent": "scripted", "by": "ada"}),
        ("session.deleted", {**at, "by": "ada"}),
    ]
    assert "secret" not in told.text
    assert accepted.token not in told.text


async def test_a_turn_that_fails_or_is_cancelled_says_how_and_not_in_whose_words(
    told: pytest.LogCaptureFixture,
) -> None:
    async with hosting(Script()) as bench:
        failed = await bench.start("fail with secret words")
        await bench.idle(failed.session_id)
        held = await bench.start("hold")
        await bench.cancel(held.session_id)
        await bench.idle(held.session_id)
    by_event = {line.event: line.fields for line in lines(told)}
    assert by_event["turn.failed"]["code"] == "AGENT_FAILED"
    assert by_event["turn.failed"]["recoverable"] is True
    assert by_event["turn.cancelling"]["reason"] == "requested"
    assert by_event["turn.cancelled"]["turnId"] == held.turn_id
    assert all("secret" not in str(line) for line in lines(told))


async def test_a_host_tells_that_it_is_ready_draining_and_stopped(told: pytest.LogCaptureFixture) -> None:
    async with hosting(Script()) as bench:
        parked = await bench.start("approve")
        await bench.events(parked.session_id)
        await bench.host._tasks[0]
    host = [(line.event, line.fields) for line in lines(told) if line.event.startswith("host.")]
    assert [event for event, _ in host] == ["host.ready", "host.draining", "host.stopped"]
    assert host[1][1] == {"running": 0, "parked": 1, "readers": 0}


async def test_an_expired_request_says_so(told: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    async with hosting(Script(), clock=clock, request_expires_s=5) as bench:
        accepted = await bench.start("approve")
        await bench.events(accepted.session_id)
        clock.advance(6)
        await bench.store.expire()
        await bench.idle(accepted.session_id)
    [completed] = [line for line in lines(told) if line.event == "input.completed"]
    assert completed.fields["outcome"] == "expired"
    assert completed.fields["turnId"] == accepted.turn_id


async def test_a_request_that_its_turns_end_closes_still_names_its_turn(
    told: pytest.LogCaptureFixture,
) -> None:
    async with hosting(Script()) as bench:
        accepted = await bench.start("approve")
        await bench.events(accepted.session_id)
        await bench.cancel(accepted.session_id)
        await bench.idle(accepted.session_id)
    [closed] = [line for line in lines(told) if line.event == "input.completed"]
    assert (closed.fields["outcome"], closed.fields["turnId"]) == ("cancelled", accepted.turn_id)


async def test_what_recovery_decided_is_told(told: pytest.LogCaptureFixture) -> None:
    persistence, agent = MemorySessionPersistence(), Script()
    async with crashing(agent, persistence=persistence) as bench:
        held = await bench.start("hold")
        await bench.content(held.session_id, until="tail")
    told.clear()
    agent.go.set()
    async with hosting(agent, persistence=persistence) as bench:
        await bench.idle(held.session_id)
        await bench.host._tasks[0]
    [recovered] = [line for line in lines(told) if line.event == "session.recovered"]
    assert recovered.fields == {
        "sessionId": held.session_id,
        "outcome": "redriven",
        "turnId": held.turn_id,
        "attempt": 2,
    }
    assert names(told).index("session.recovered") < names(told).index("host.ready")


async def test_an_answer_given_twice_and_a_twin_change_nothing_and_have_no_line(
    told: pytest.LogCaptureFixture,
) -> None:
    async with hosting(Script()) as bench:
        key = Key("once", "sha256:x")
        first = await bench.store.start(NOBODY, "approve", None, None, key)
        await bench.events(first.session_id)
        [request] = bench.live(first.session_id).state.pending
        await bench.approve(first.session_id, request)
        await bench.settled(first.session_id)
        told.clear()
        await bench.approve(first.session_id, request)
        assert await bench.store.start(NOBODY, "approve", None, None, key) == first
        assert names(told) == []


async def test_a_batch_that_was_not_written_is_not_told(
    told: pytest.LogCaptureFixture, data_dir: Path
) -> None:
    async with hosting(Script(), data_dir=data_dir) as bench:
        accepted = await bench.start("hello")
        await bench.idle(accepted.session_id)
        await bench.settled(accepted.session_id)
        told.clear()
        journal = bench.live(accepted.session_id).journal
        with pytest.raises(EventTooLarge):
            journal.write(
                [ev.Draft(ev.SESSION_FAILED, {"sessionId": "x", "code": "X", "message": "x" * (1 << 21)})]
            )
        assert names(told) == []
        journal.write([])
        assert names(told) == []


async def test_with_logging_off_a_batch_asks_once_whether_it_is_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.CRITICAL, "zhin_host")
    asked = Calls(logging.getLogger("zhin_host.changes").isEnabledFor)
    monkeypatch.setattr(logging.getLogger("zhin_host.changes"), "isEnabledFor", asked)
    async with hosting(Script()) as bench:
        await bench.run("many 1000")
        assert asked.count == 2  # the batch of the POST and that of the end


def test_a_line_shows_its_fields_so_that_each_is_told_from_the_next(told: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("zhin_host.test")
    tell(logger, logging.INFO, "x.happened", a="plain", b='a "b" c=d', c=None, d=7, e=True, f="")
    tell(logger, logging.INFO, "x.listed", g=[1, 2], h={"i": 'j" k=l'})
    assert told.messages == [
        r'x.happened a=plain b="a \"b\" c=d" d=7 e=true f=""',
        r'x.listed g=[1, 2] h={"i": "j\" k=l"}',
    ]


def made(message: object, *args: object) -> logging.LogRecord:
    record = logging.LogRecord("zhin_host.x", logging.WARNING, __file__, 1, message, args, None)
    record.created, record.msecs = 1764428400.0069, 6.9
    return record


def test_a_line_as_json_is_an_object_with_its_fields() -> None:
    line = LogLine("turn.failed", {"sessionId": "ses_1", "code": "AGENT_FAILED", "recoverable": True})
    text = JsonFormatter().format(made(line))
    assert text == (
        '{"time":"2025-11-29T15:00:00.006Z","level":"warning","logger":"zhin_host.x","event":"turn.failed",'
        '"sessionId":"ses_1","code":"AGENT_FAILED","recoverable":true}'
    )
    assert LineFormatter().format(made(line)) == (
        "2025-11-29T15:00:00.006Z WARNING zhin_host.x: turn.failed sessionId=ses_1 code=AGENT_FAILED recoverable=true"
    )


def test_what_a_terminal_would_obey_is_escaped_in_json_too() -> None:
    hostile = 'a\n{"event":"forged"}\x1b[2J\u202e\x7f\x9b\u2028\ud800'
    text = JsonFormatter().format(made("said %s", hostile))
    assert text.isprintable()
    row = json.loads(text)
    assert row["event"] == "log"
    assert row["message"].startswith('said a\n{"event":"forged"}\x1b[2J\u202e')


def test_a_traceback_as_json_stays_on_its_line() -> None:
    record = made("it failed")
    try:
        raise ValueError("a\nb")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    row = json.loads(JsonFormatter().format(record))
    assert row["traceback"].startswith("Traceback")
    assert row["traceback"].endswith("ValueError: a\nb")
