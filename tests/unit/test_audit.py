"""audit: every kind of fault is planted in a good log and named; the referee, where there is one, sees it too."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.builders import LogBuilder, chained, rechained, session_id_of, token_of
from tests.conftest import referee
from zhin_host import events as ev
from zhin_host.audit import Verdict, audit_directory, audit_session
from zhin_host.audit.members import member_bytes
from zhin_host.audit.verdict import FAULTS_MAX
from zhin_host.clock import SessionId
from zhin_host.errors import SessionNotFound, StorageUnavailable
from zhin_host.ports import SessionLog
from zhin_host.storage.memory import MemorySessionPersistence

SESSION = session_id_of(1)


def story() -> LogBuilder:
    """A session that meets most of the vocabulary and ends at rest."""
    builder = LogBuilder(SESSION).start()
    turn_id = builder.turn_id
    builder.put(
        (ev.REASONING_APPENDED, {"reasoningDelta": "hm"}), (ev.REASONING_COMPLETED, {"reasoning": "hm"})
    )
    builder.say("Look", "ing. ").call("call_1", url="a").result("call_1").say("lost").ask_approval(
        "call_2", page="b"
    )
    builder.answer("call_2", "cancelled", is_live=False)  # a further attempt: "lost" and call_2 do not count
    builder.ask_approval("call_4", page="b").answer("call_4").result("call_4", tool_name="publish")
    builder.put((ev.CHECKPOINT_SAVED, {"turnId": turn_id, "state": {"step": 1}})).say("Done.")
    builder.put(("x.note", {"text": "a"})).finish("Looking. Done.")
    builder.follow_up().ask_approval("call_3", page="c")
    builder.put(
        (ev.MESSAGE_QUEUED, {"turnId": "turn_queued", "message": "Next", "continuationToken": token_of(900)}),
    )
    builder.answer("call_3", "denied").result("call_3", "denied", "publish")
    builder.put(
        (
            ev.TURN_FAILED,
            {"turnId": builder.turn_id, "code": "TOOL_DENIED", "message": "no", "recoverable": True},
        )
    )
    builder.put(
        (ev.TURN_STARTED, {"turnId": "turn_queued", "continuationToken": token_of(900)}),
        (ev.MESSAGE_RECEIVED, {"turnId": "turn_queued", "message": "Next"}),
    )
    return builder.put(
        (ev.MESSAGE_COMPLETED, {"message": "", "finishReason": "stop"}),
        (ev.TURN_COMPLETED, {"turnId": "turn_queued"}),
    )


def kept(directory: Path, content: bytes, snapshot: bytes | None = None, mark: bytes | None = None) -> None:
    directory.mkdir(mode=0o700, exist_ok=True)
    for suffix, data in ((".ndjson", content), (".json", snapshot), (".open", mark)):
        if data is not None:
            path = directory / f"{SESSION}{suffix}"
            path.touch(mode=0o600)
            path.write_bytes(data)


def verdict_of(directory: Path) -> Verdict:
    """The audit's verdict; it passes nothing that the referee finds wrong."""
    verdict = audit_session(directory, SESSION)
    assert not (verdict.ok and referee(directory))
    return verdict


def test_a_good_session_is_whole(data_dir: Path) -> None:
    builder = story()
    kept(data_dir, builder.content, builder.snapshot)
    verdict = verdict_of(data_dir)
    assert verdict.faults == ()
    assert verdict.to_json() == {
        "ok": True,
        "sessionId": SESSION,
        "events": len(builder.lines),
        "bytes": len(builder.content),
        "lastSum": builder.state.sum.decode(),
        "faults": [],
    }


def test_a_snapshot_of_any_moment_fits(data_dir: Path) -> None:
    builder = story()
    for length in range(1, len(builder.batches) + 1):
        part = LogBuilder.of(SESSION, b"".join(builder.batches[:length]))
        kept(data_dir, builder.content, part.snapshot)
        assert verdict_of(data_dir).ok


# -- faults in the log -----------------------------------------------------------------------------------------------

Plant = Callable[[list[bytes]], bytes]


def index_of(lines: list[bytes], kind: str, nth: int = 0) -> int:
    return [index for index, line in enumerate(lines) if b'"type":"%b"' % kind.encode() in line][nth]


def with_data(line: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    event = orjson.loads(line)
    change(event["data"])
    return b'{"index":%d,"type":"%b","timestamp":%d,"data":%b,"sum":"%b"}\n' % (
        event["index"],
        event["type"].encode(),
        event["timestamp"],
        ev.json_bytes(event["data"]),
        event["sum"].encode(),
    )


def forged(kind: str, change: Callable[[dict[str, Any]], object], nth: int = 0) -> Plant:
    """The data of one event is another, and the chain holds."""

    def plant(lines: list[bytes]) -> bytes:
        at = index_of(lines, kind, nth)
        return rechained(SESSION, [*lines[:at], with_data(lines[at], change), *lines[at + 1 :]])

    return plant


def replaced(old: bytes, new: bytes) -> Plant:
    """Bytes of the whole log are others, and the chain holds."""
    return lambda lines: rechained(SESSION, [line.replace(old, new) for line in lines])


def inserted(before: str, kind: str, data: dict[str, Any], nth: int = 0) -> Plant:
    """One event more, the later ones renumbered, and the chain holds."""

    def plant(lines: list[bytes]) -> bytes:
        events = [orjson.loads(line) for line in lines]
        pairs = [(event["type"], event["data"]) for event in events]
        at = index_of(lines, before, nth)
        return b"".join(chained(SESSION, [*pairs[:at], (kind, data), *pairs[at:]]))

    return plant


def dropped(kind: str, nth: int = 0) -> Plant:
    """One event less, the later ones renumbered, and the chain holds."""

    def plant(lines: list[bytes]) -> bytes:
        events = [orjson.loads(line) for line in lines]
        pairs = [(event["type"], event["data"]) for event in events]
        at = index_of(lines, kind, nth)
        return b"".join(chained(SESSION, [*pairs[:at], *pairs[at + 1 :]]))

    return plant


def setting(name: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda data: data.__setitem__(name, value)


def lacking(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda data: data.pop(name)


PLANTS: dict[str, tuple[Plant, str]] = {
    "a changed byte": (lambda lines: b"".join(lines).replace(b"Hello", b"Hallo"), "chain is broken"),
    "two lines in the other order": (
        lambda lines: b"".join([*lines[:5], lines[6], lines[5], *lines[7:]]),
        "index is 6 and not 5",
    ),
    "a line twice": (lambda lines: b"".join([*lines[:5], *lines[4:]]), "index is 4 and not 5"),
    "a missing line": (lambda lines: b"".join([*lines[:5], *lines[6:]]), "index is 6 and not 5"),
    "a missing start": (lambda lines: b"".join(lines[1:]), "index is 1 and not 0"),
    "another session's log": (
        lambda lines: LogBuilder(session_id_of(2)).start().finish("").content,
        "chain is broken",
    ),
    "bytes that are no line": (
        lambda lines: b"".join([*lines[:4], b"no event\n", *lines[4:]]),
        "no whole event line",
    ),
    "an empty line": (lambda lines: b"".join([*lines[:4], b"\n", *lines[4:]]), "no whole event line"),
    "zeros in the middle": (
        lambda lines: b"".join([*lines[:4], b"\0" * 99 + b"\n", *lines[5:]]),
        "no whole event line",
    ),
    "keys in another order": (
        lambda lines: lines[0].replace(b'{"index":0,"type"', b'{"type":"x","index":0,"type"'),
        "no whole event line",
    ),
    "a torn last line": (lambda lines: b"".join(lines) + b'{"index":77,"ty', "a torn last line of 15 bytes"),
    "a last line without newline": (lambda lines: b"".join(lines)[:-1], "a torn last line"),
    "an earlier timestamp": (
        lambda lines: rechained(
            SESSION, [*lines[:3], lines[3].replace(b'"timestamp":1', b'"timestamp":'), *lines[4:]]
        ),
        "is lower than",
    ),
    "an unescaped separator": (replaced(b"Hello", "Hel\u2028lo".encode()), "stands unescaped"),
    "a line over the limit": (
        forged(ev.MESSAGE_RECEIVED, setting("message", "x" * (1 << 20))),
        "over the limit",
    ),
    "NaN": (replaced(b'"step":1', b'"step":NaN'), "not JSON"),
    "a lone surrogate": (replaced(b'"Next"', b'"\\ud800"'), "not JSON"),
    "an unknown type": (inserted(ev.MESSAGE_APPENDED, "message.edited", {}), "unknown type"),
    "a version to come": (forged(ev.SESSION_STARTED, setting("logVersion", 2)), "logVersion"),
    "another session's name": (forged(ev.SESSION_STARTED, setting("sessionId", "ses_x")), "another session"),
    "a guessable token": (forged(ev.SESSION_STARTED, setting("continuationToken", "zhin:1")), "128 bits"),
    "a token that did not rotate": (
        forged(ev.TURN_STARTED, setting("continuationToken", token_of(1)), 1),
        "did not rotate",
    ),
    "a queued token that did not rotate": (
        forged(ev.MESSAGE_QUEUED, setting("continuationToken", token_of(2))),
        "did not rotate",
    ),
    "a first turn with another token": (
        forged(ev.TURN_STARTED, setting("continuationToken", token_of(77))),
        "not the one in force",
    ),
    "a turn's id again": (
        replaced(b'"turn_queued"', b'"' + b"turn_" + b"0" * 25 + b'1"'),
        "was there before",
    ),
    "a turn before the queued one": (
        forged(ev.TURN_STARTED, setting("turnId", "turn_other"), 2),
        "starts before the queued",
    ),
    "a turn in an open turn": (
        inserted(
            ev.MESSAGE_APPENDED, ev.TURN_STARTED, {"turnId": "turn_b", "continuationToken": token_of(99)}
        ),
        "turn.started while",
    ),
    "a turn that resumes nothing": (
        forged(ev.TURN_STARTED, setting("resumes", "turn_x"), 1),
        "which is not the last",
    ),
    "an event of another turn": (
        forged(ev.CHECKPOINT_SAVED, setting("turnId", "turn_x")),
        "an event of turn turn_x",
    ),
    "a step of another turn": (forged(ev.STEP_STARTED, setting("turnId", "turn_x"), 1), "a step of turn"),
    "a step's id again": (
        lambda lines: forged(ev.STEP_STARTED, setting("stepId", orjson.loads(lines[2])["data"]["stepId"]), 1)(
            lines
        ),
        "was there before",
    ),
    "another step": (forged(ev.STEP_COMPLETED, setting("stepId", "step_x")), "is not the open one"),
    "a step's wrong status": (forged(ev.STEP_COMPLETED, setting("status", "running")), "status is 'running'"),
    "a cut batch": (lambda lines: b"".join(lines[:2]), "must follow"),
    "a cut boundary": (lambda lines: b"".join(lines[:-1]), "the log ends where session.waiting"),
    "a step event too few": (dropped(ev.STEP_INTERRUPTED), "where step.interrupted must follow"),
    "a boundary too few": (dropped(ev.SESSION_WAITING), "where session.waiting must follow"),
    "a boundary that nothing calls for": (
        inserted(
            ev.TURN_STARTED,
            ev.SESSION_WAITING,
            {
                "sessionId": SESSION,
                "continuationToken": token_of(1),
                "parked": False,
                "reason": "idle",
                "pendingRequestIds": [],
                "steps": [],
            },
            1,
        ),
        "nothing calls for",
    ),
    "a boundary with another token": (
        forged(ev.SESSION_WAITING, setting("continuationToken", token_of(9))),
        "not the one in force",
    ),
    "a boundary that hides a request": (
        forged(ev.SESSION_WAITING, setting("pendingRequestIds", [])),
        "open are",
    ),
    "a boundary that says parked and idle": (
        forged(ev.SESSION_WAITING, setting("reason", "idle")),
        "reason 'idle'",
    ),
    "a boundary that is not parked": (forged(ev.SESSION_WAITING, setting("parked", False)), "open requests"),
    "a boundary that hides the queue": (forged(ev.SESSION_WAITING, lacking("queued"), 4), "messages wait"),
    "a boundary with other steps": (forged(ev.SESSION_WAITING, setting("steps", []), 1), "steps say"),
    "a field too few": (forged(ev.TURN_FAILED, lacking("code")), "turn.failed lacks code"),
    "a value of a wrong type": (forged(ev.MESSAGE_APPENDED, setting("messageDelta", 7)), "wrong type"),
    "recoverable said vaguely": (
        forged(ev.TURN_FAILED, setting("recoverable", "yes")),
        "neither true nor false",
    ),
    "another text": (
        forged(ev.MESSAGE_COMPLETED, setting("message", "Looking.")),
        "not the deltas that count",
    ),
    "a lost delta": (dropped(ev.MESSAGE_APPENDED), "not the deltas that count"),
    "a text said to be truncated": (
        forged(
            ev.MESSAGE_COMPLETED, lambda data: data.update(truncated=True, messageBytes=1, messageSha256="")
        ),
        "truncated",
    ),
    "two texts": (
        inserted(
            ev.MESSAGE_COMPLETED,
            ev.MESSAGE_COMPLETED,
            {"message": "Looking. Done.", "finishReason": "stop"},
        ),
        "2 message.completed",
    ),
    "no text": (dropped(ev.MESSAGE_COMPLETED), "0 message.completed"),
    "no message": (dropped(ev.MESSAGE_RECEIVED), "message.completed that count"),
    "a second message": (
        inserted(
            ev.CHECKPOINT_SAVED, ev.MESSAGE_RECEIVED, {"turnId": "turn_" + "0" * 25 + "1", "message": "b"}
        ),
        "second message.received",
    ),
    "another discardFrom": (forged(ev.STEP_RESUMED, setting("discardFrom", 6)), "is meant"),
    "a discardFrom of before the turn": (
        forged(ev.STEP_RESUMED, setting("discardFrom", 0)),
        "not inside this turn",
    ),
    "no discardFrom": (forged(ev.STEP_RESUMED, lacking("discardFrom")), "is meant"),
    "an attempt skipped": (forged(ev.STEP_RESUMED, setting("attempt", 3)), "after attempt 1"),
    "a call without a beginning": (forged(ev.ACTION_RESULT, setting("callId", "call_9")), "has a result"),
    "a call with two results": (
        inserted(
            ev.CHECKPOINT_SAVED,
            ev.ACTION_RESULT,
            {"callId": "call_1", "toolName": "fetch", "status": "completed", "durationMs": 1},
        ),
        "second result",
    ),
    "a call asked for again": (
        inserted(
            ev.CHECKPOINT_SAVED, ev.ACTIONS_REQUESTED, {"callId": "call_1", "toolName": "fetch", "input": {}}
        ),
        "asked for again",
    ),
    "an unfinished call": (
        inserted(
            ev.CHECKPOINT_SAVED, ev.ACTIONS_REQUESTED, {"callId": "call_8", "toolName": "fetch", "input": {}}
        ),
        "unfinished calls",
    ),
    "a refused call that ran": (
        forged(ev.ACTION_RESULT, setting("status", "completed"), 2),
        "was not approved",
    ),
    "a request's other arguments": (
        forged(ev.INPUT_REQUESTED, lambda data: data.update(args={"page": "z"})),
        "argsDigest is not",
    ),
    "a request's other arguments, digested": (
        forged(
            ev.INPUT_REQUESTED,
            lambda data: data.update(args={"page": "z"}, argsDigest=ev.digest(b'{"page":"z"}')),
        ),
        "other arguments than call",
    ),
    "a request for no call": (
        forged(ev.INPUT_REQUESTED, setting("callId", "call_9")),
        "which is not asked for",
    ),
    "a request of no kind": (forged(ev.INPUT_REQUESTED, setting("kind", "vote")), "of kind 'vote'"),
    "an interruption for nothing": (
        forged(ev.STEP_INTERRUPTED, setting("requestId", "req_x")),
        "which is not open",
    ),
    "an interruption of another kind": (
        forged(ev.STEP_INTERRUPTED, setting("interruptKind", "input")),
        "interruptKind",
    ),
    "a failure called a cancellation": (
        forged(ev.STEP_INTERRUPTED, setting("interruptKind", "cancelled"), 3),
        "interruptKind",
    ),
    "an answer to nothing": (forged(ev.INPUT_COMPLETED, setting("requestId", "req_x")), "not open"),
    "an answer of another kind": (forged(ev.INPUT_COMPLETED, setting("kind", "question")), "answered as"),
    "an outcome that does not fit": (
        forged(ev.INPUT_COMPLETED, setting("outcome", "answered"), 1),
        "outcome is",
    ),
    "an approval that says both": (
        forged(ev.INPUT_COMPLETED, setting("approved", False), 1),
        "approved False",
    ),
    "a result of no known status": (forged(ev.ACTION_RESULT, setting("status", "fine")), "status is 'fine'"),
    "a step resumed at rest": (
        inserted(ev.TURN_STARTED, ev.STEP_RESUMED, {"stepId": "step_a", "turnId": "turn_a", "attempt": 1}, 1),
        "step.resumed while",
    ),
    "an event after the end": (
        lambda lines: b"".join(
            chained(
                SESSION,
                [
                    *((event["type"], event["data"]) for event in map(orjson.loads, lines)),
                    (ev.MESSAGE_APPENDED, {"messageDelta": "a"}),
                ],
            )
        ),
        "while the session is rest",
    ),
}


@pytest.mark.damaged(reason="a fault is planted")
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_named(data_dir: Path, name: str) -> None:
    plant, message = PLANTS[name]
    kept(data_dir, plant(story().lines), mark=b"running")
    verdict = verdict_of(data_dir)
    assert not verdict.ok
    assert any(message in fault.message for fault in verdict.faults), verdict.faults


@pytest.mark.damaged(reason="a fault is planted")
def test_a_fault_says_at_which_event_and_byte(data_dir: Path) -> None:
    lines = story().lines
    at = index_of(lines, ev.MESSAGE_COMPLETED)
    kept(data_dir, forged(ev.MESSAGE_COMPLETED, setting("message", "x"))(lines))
    (fault,) = verdict_of(data_dir).faults
    assert (fault.index, fault.byte) == (at, sum(map(len, lines[:at])))
    assert audit_session(data_dir, SESSION).to_json()["faults"] == [
        {"index": fault.index, "byte": fault.byte, "message": fault.message}
    ]


@pytest.mark.damaged(reason="a fault is planted")
def test_a_changed_byte_is_one_fault_and_what_follows_is_judged(data_dir: Path) -> None:
    lines = story().lines
    kept(data_dir, b"".join(lines).replace(b"Hello", b"Hallo"))
    verdict = verdict_of(data_dir)
    assert [fault.index for fault in verdict.faults] == [3]
    assert verdict.events == len(lines)


@pytest.mark.damaged(reason="faults are planted")
def test_no_more_faults_are_listed_than_a_reader_bears(data_dir: Path) -> None:
    kept(data_dir, b"".join(chained(SESSION, [("no.such", {})] * (FAULTS_MAX + 50))))
    verdict = verdict_of(data_dir)
    assert (len(verdict.faults), verdict.events) == (FAULTS_MAX, FAULTS_MAX + 50)


def test_a_truncated_text_is_known_by_its_hash(data_dir: Path) -> None:
    text = "äx" * 2000
    builder = LogBuilder(SESSION).start().say(text)
    builder.put(
        (
            ev.MESSAGE_COMPLETED,
            {
                "message": text[:1000],
                "finishReason": "stop",
                "truncated": True,
                "messageBytes": len(text.encode()),
                "messageSha256": hashlib.sha256(text.encode()).hexdigest(),
            },
        ),
        (ev.TURN_COMPLETED, {"turnId": builder.turn_id}),
    )
    kept(data_dir, builder.content, builder.snapshot)
    assert verdict_of(data_dir).ok


def test_sessions_that_are_over_cancelled_or_authorised_are_whole(data_dir: Path) -> None:
    builder = LogBuilder(SESSION).start()
    builder.put(
        (ev.INPUT_REQUESTED, {"requestId": "req_q", "kind": "question", "callId": "call_q", "prompt": "?"})
    )
    builder.put(
        (ev.INPUT_COMPLETED, {"requestId": "req_q", "kind": "question", "outcome": "answered", "response": 7})
    )
    builder.put(
        (ev.AUTHORIZATION_REQUIRED, {"requestId": "req_a", "callId": "call_a", "connection": "mail"}),
    )
    builder.put(
        (ev.TURN_CANCELLING, {"turnId": builder.turn_id, "reason": "enough"}),
        (ev.MESSAGE_QUEUED, {"turnId": "turn_q", "message": "Next", "continuationToken": token_of(900)}),
    )
    builder.put(
        (
            ev.AUTHORIZATION_COMPLETED,
            {"requestId": "req_a", "connection": "mail", "success": False, "error": "cancelled"},
        ),
        (ev.TURN_CANCELLED, {"turnId": builder.turn_id, "reason": "enough"}),
        (ev.SESSION_COMPLETED, {"sessionId": SESSION, "droppedTurnIds": ["turn_q"]}),
    )
    kept(data_dir, builder.content, builder.snapshot)
    assert verdict_of(data_dir).ok


def failed(builder: LogBuilder, **more: Any) -> tuple[str, dict[str, Any]]:
    data = {"turnId": builder.turn_id, "code": "AGENT_FAILED", "message": "it broke", "recoverable": True}
    return ev.TURN_FAILED, {**data, **more}


def resumed(failed_turn: str, token: int, discard_from: int | None, turn_id: str = "turn_again") -> Any:
    data = {"turnId": turn_id, "continuationToken": token_of(token), "resumes": failed_turn}
    return ev.TURN_STARTED, data if discard_from is None else {**data, "discardFrom": discard_from}


def received(turn_id: str = "turn_again") -> tuple[str, dict[str, Any]]:
    return ev.MESSAGE_RECEIVED, {"turnId": turn_id, "message": "Hello"}


def completed(text: str, turn_id: str = "turn_again") -> list[tuple[str, dict[str, Any]]]:
    return [
        (ev.MESSAGE_COMPLETED, {"message": text, "finishReason": "stop"}),
        (ev.TURN_COMPLETED, {"turnId": turn_id}),
    ]


def test_a_resumed_turn_goes_on_with_what_counts_of_the_old_one(data_dir: Path) -> None:
    builder = LogBuilder(SESSION).start().say("Kept. ").call("call_1").result("call_1").say("lost")
    at = builder.state.next_index - 1
    old = builder.turn_id
    builder.put(failed(builder)).put(resumed(old, 50, at), received())
    builder.put((ev.MESSAGE_APPENDED, {"messageDelta": "New."}), *completed("Kept. New."))
    kept(data_dir, builder.content, builder.snapshot)
    assert verdict_of(data_dir).ok


def test_the_action_that_ended_a_resumed_turn_is_tried_again(data_dir: Path) -> None:
    builder = LogBuilder(SESSION).start().say("lost").call("call_1").result("call_1", "failed")
    old = builder.turn_id
    builder.put(failed(builder, code="ACTION_FAILED", callId="call_1")).put(resumed(old, 50, 4), received())
    builder.call("call_1").result("call_1").put(*completed(""))
    kept(data_dir, builder.content, builder.snapshot)
    assert verdict_of(data_dir).ok


def test_a_resumed_turn_with_nothing_to_discard_says_nothing_of_it(data_dir: Path) -> None:
    builder = LogBuilder(SESSION).start().call("call_1").result("call_1")
    old = builder.turn_id
    builder.put(failed(builder, callId="call_9")).put(resumed(old, 50, None), received()).put(*completed(""))
    kept(data_dir, builder.content, builder.snapshot)
    assert verdict_of(data_dir).ok


@pytest.mark.damaged(reason="a turn is resumed wrongly")
@pytest.mark.parametrize(
    ("code", "resumes", "at", "message"),
    [
        ("AGENT_FAILED", None, 5, "is meant"),
        ("AGENT_FAILED", None, None, "is meant"),
    ],
)
def test_a_turn_resumed_wrongly_is_named(
    data_dir: Path, code: str, resumes: str | None, at: int | None, message: str
) -> None:
    builder = LogBuilder(SESSION).start().say("lost")
    old = builder.turn_id
    builder.put(failed(builder, code=code, recoverable=code == "AGENT_FAILED")).put(
        resumed(resumes or old, 50, at), received()
    )
    builder.put(*completed("" if at == 4 else "lost"))
    kept(data_dir, builder.content)
    assert any(message in fault.message for fault in verdict_of(data_dir).faults)


@pytest.mark.damaged(reason="a turn resumes another than the last failed one")
@pytest.mark.parametrize(("code", "resumes"), [("AGENT_FAILED", "turn_x"), ("TURN_DIVERGED", None)])
def test_a_turn_that_resumes_what_cannot_be_resumed_is_named(
    data_dir: Path, code: str, resumes: str | None
) -> None:
    builder = LogBuilder(SESSION).start().say("lost")
    old = builder.turn_id
    builder.put(failed(builder, code=code, recoverable=code == "AGENT_FAILED"))
    events = [(event["type"], event["data"]) for event in map(orjson.loads, builder.lines)]
    kept(data_dir, b"".join(chained(SESSION, [*events, resumed(resumes or old, 50, 4)])))
    assert any("not the last turn" in fault.message for fault in verdict_of(data_dir).faults)


@pytest.mark.damaged(reason="a message is dropped")
def test_a_turn_that_never_received_the_message_it_was_made_for_is_named(data_dir: Path) -> None:
    builder = LogBuilder(SESSION).start()
    old = builder.turn_id
    builder.put(failed(builder)).put(resumed(old, 50, None))
    builder.put(failed(builder, turnId="turn_again", code="HOST_RESTARTED", recoverable=False))
    kept(data_dir, builder.content)
    assert "without having received it" in verdict_of(data_dir).faults[0].message


@pytest.mark.damaged(reason="a queued message is dropped silently")
def test_a_queue_that_the_end_hides_is_named(data_dir: Path) -> None:
    builder = LogBuilder(SESSION).start()
    builder.put(
        (ev.TURN_CANCELLING, {"turnId": builder.turn_id, "reason": "enough"}),
        (ev.MESSAGE_QUEUED, {"turnId": "turn_q", "message": "Next", "continuationToken": token_of(900)}),
    )
    builder.put(
        (ev.TURN_CANCELLED, {"turnId": builder.turn_id, "reason": "enough"}),
        (ev.SESSION_COMPLETED, {"sessionId": SESSION}),
    )
    kept(data_dir, builder.content, builder.snapshot)
    assert "droppedTurnIds" in verdict_of(data_dir).faults[0].message


@pytest.mark.damaged(reason="the end names another session")
def test_an_end_under_another_name_is_named(data_dir: Path) -> None:
    builder = LogBuilder(SESSION).start()
    builder.put(*completed("", builder.turn_id), (ev.SESSION_COMPLETED, {"sessionId": session_id_of(7)}))
    kept(data_dir, builder.content)
    (fault,) = verdict_of(data_dir).faults
    assert "sessionId is another's" in fault.message


@pytest.mark.damaged(reason="a log is empty")
def test_an_empty_log_is_a_session_being_made_where_there_is_a_mark(data_dir: Path) -> None:
    kept(data_dir, b"")
    assert "no whole first line" in audit_session(data_dir, SESSION).faults[0].message
    kept(data_dir, b"", mark=b"running")
    assert audit_session(data_dir, SESSION).ok


# -- beside the log --------------------------------------------------------------------------------------------------


@pytest.mark.damaged(reason="a turn is open and its mark is missing")
def test_an_open_turn_without_its_mark_is_named(data_dir: Path) -> None:
    builder = LogBuilder(SESSION).start()
    kept(data_dir, builder.content)
    assert "no .open file" in verdict_of(data_dir).faults[0].message
    kept(data_dir, builder.content, mark=b"")
    assert verdict_of(data_dir).ok


@pytest.mark.damaged(reason="the snapshot says what the log does not")
def test_a_snapshot_that_differs_is_named_with_what_differs(data_dir: Path) -> None:
    builder = story()
    for name, value in (
        ("status", "running"),
        ("agentState", {"step": 2}),
        ("grants", ["publish"]),
        ("owner", "eve"),
    ):
        forged_state = story()
        match name:
            case "agentState":
                forged_state.state.agent_state = value
            case "grants":
                forged_state.state.grants = ("publish",)
            case "owner":
                forged_state.state.owner = "eve"
            case _:
                forged_state.state.queue = ({"turnId": "turn_x"},)
        kept(data_dir, builder.content, forged_state.snapshot)
        verdict = verdict_of(data_dir)
        assert [name in fault.message for fault in verdict.faults] == [True]


@pytest.mark.damaged(reason="the log lost events that the snapshot has")
def test_a_snapshot_ahead_of_its_log_proves_lost_events(data_dir: Path) -> None:
    builder = story()
    lost = LogBuilder(SESSION).start().finish("")
    kept(data_dir, lost.content, builder.snapshot)
    (fault,) = verdict_of(data_dir).faults
    assert "proves lost events" in fault.message


@pytest.mark.damaged(reason="the snapshot is damaged")
@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"",
        lambda raw: b"{}",
        lambda raw: b"[]",
        lambda raw: raw[:-9],
        lambda raw: raw.replace(b'"snapshotVersion":1', b'"snapshotVersion":2'),
        lambda raw: LogBuilder(session_id_of(2)).start().finish("").snapshot,
    ],
    ids=["empty", "no snapshot", "a list", "cut", "another version", "another session's"],
)
def test_a_snapshot_that_cannot_be_used_is_named(data_dir: Path, damage: Callable[[bytes], bytes]) -> None:
    builder = story()
    kept(data_dir, builder.content, damage(builder.snapshot))
    assert "the snapshot cannot be used" in verdict_of(data_dir).faults[0].message


@pytest.mark.damaged(reason="others may read the files")
@pytest.mark.parametrize("suffix", [".ndjson", ".json", ".open", ".torn"])
def test_a_file_that_others_may_read_is_named(data_dir: Path, suffix: str) -> None:
    builder = story()
    kept(data_dir, builder.content, builder.snapshot, b"")
    path = data_dir / f"{SESSION}{suffix}"
    path.touch()
    path.chmod(0o640)
    (fault,) = verdict_of(data_dir).faults
    assert f"{SESSION}{suffix} has mode 0640, 0600 is promised" in fault.message


@pytest.mark.damaged(reason="others may read the directory")
def test_a_directory_that_others_may_read_is_named(data_dir: Path) -> None:
    kept(data_dir, story().content)
    data_dir.chmod(0o755)
    (fault,) = verdict_of(data_dir).faults
    assert "the directory has mode 0755, 0700 is promised" in fault.message


@pytest.mark.damaged(reason="the snapshot has a second name")
def test_a_file_with_a_second_name_is_named(data_dir: Path, tmp_path: Path) -> None:
    kept(data_dir, story().content, story().snapshot)
    (tmp_path / "second").hardlink_to(data_dir / f"{SESSION}.json")
    (fault,) = audit_session(data_dir, SESSION).faults
    assert "no regular file with one link" in fault.message


@pytest.mark.damaged(reason="the snapshot's digest is of other bytes")
def test_a_snapshot_changed_by_hand_is_named(data_dir: Path) -> None:
    builder = story()
    kept(data_dir, builder.content, builder.snapshot.replace(b'"agent":"demo"', b'"agent":"evil"'))
    faults = [fault.message for fault in audit_session(data_dir, SESSION).faults]
    assert faults == [
        "the snapshot cannot be used: its digest does not match",
        "the snapshot differs from the log in agent",
    ]


@pytest.mark.damaged(reason="a fault is planted before the snapshot's cursor")
def test_a_snapshot_behind_an_order_that_cannot_be_judged_is_not_compared(data_dir: Path) -> None:
    builder = story()
    plant, _ = PLANTS["an outcome that does not fit"]
    kept(data_dir, plant(builder.lines), builder.snapshot)
    messages = [fault.message for fault in verdict_of(data_dir).faults]
    assert "the order of what follows cannot be judged" in messages
    assert not any("snapshot" in message for message in messages)


# -- where and how far -----------------------------------------------------------------------------------------------


@pytest.mark.damaged(reason="a line is torn on purpose")
def test_a_live_log_is_judged_as_far_as_the_caller_says(data_dir: Path) -> None:
    builder = LogBuilder(SESSION).start().finish("")
    size_bytes = len(builder.content)
    builder.follow_up()
    kept(data_dir, builder.content + b"half a li", builder.snapshot)
    verdict = audit_session(data_dir, SESSION, limit_bytes=size_bytes)
    assert (verdict.faults, verdict.bytes) == ((), size_bytes)


@pytest.mark.damaged(reason="the directory holds a broken log")
def test_a_directory_s_verdicts_come_oldest_first(data_dir: Path) -> None:
    kept(data_dir, story().content)
    other = data_dir / f"{session_id_of(0)}.ndjson"
    other.touch(0o600)
    verdicts = audit_directory(data_dir)
    assert [(verdict.session_id, verdict.ok) for verdict in verdicts] == [
        (session_id_of(0), False),
        (SESSION, True),
    ]


async def test_a_log_that_a_host_writes_meanwhile_is_judged_again(data_dir: Path) -> None:
    """The first look falls between two writes of a batch; the second sees it whole."""
    builder = LogBuilder(SESSION).start().finish("")

    class Growing(MemorySessionPersistence):
        def peek_log(self, session_id: SessionId) -> SessionLog:
            log = super().peek_log(session_id)
            if log.size_bytes < len(builder.content):
                owner.append(builder.content[log.size_bytes :], expected_bytes=log.size_bytes)
            return log

    persistence = Growing()
    owner = await persistence.create_log(SESSION)
    owner.append(b"".join(builder.lines[:2]), expected_bytes=0)
    assert audit_session(persistence, SESSION).ok


async def test_a_log_that_is_never_seen_whole_is_judged_in_the_end() -> None:
    class Growing(MemorySessionPersistence):
        looks = 0

        def peek_log(self, session_id: SessionId) -> SessionLog:
            log = super().peek_log(session_id)
            self.looks += 1
            owner.append(b"no event\n", expected_bytes=log.size_bytes)
            return log

    persistence = Growing()
    owner = await persistence.create_log(SESSION)
    owner.append(b"no event\n", expected_bytes=0)
    assert not audit_session(persistence, SESSION).ok
    assert persistence.looks < 10


async def test_a_log_that_shrinks_while_it_is_read_cannot_be_judged() -> None:
    class Shrinking(MemorySessionPersistence):
        def peek_log(self, session_id: SessionId) -> SessionLog:
            log = super().peek_log(session_id)
            self._logs[session_id].clear()
            return log

    persistence = Shrinking()
    (await persistence.create_log(SESSION)).append(story().content, expected_bytes=0)
    with pytest.raises(StorageUnavailable):
        audit_session(persistence, SESSION)


@pytest.mark.damaged(reason="it is no log")
def test_a_line_that_never_ends_is_not_waited_for(data_dir: Path) -> None:
    kept(data_dir, story().content + b"x" * (70 << 20) + b"\n")
    verdict = audit_session(data_dir, SESSION)
    assert "no whole event line" in verdict.faults[0].message
    assert verdict.bytes == len(story().content)


async def test_a_session_in_memory_is_audited_too() -> None:
    persistence = MemorySessionPersistence()
    builder = story()
    log = await persistence.create_log(SESSION)
    log.append(builder.content, expected_bytes=0)
    await persistence.write_snapshot(SESSION, builder.snapshot)
    assert audit_session(persistence, SESSION).ok
    log.append(LogBuilder(SESSION).start().content, expected_bytes=log.size_bytes)
    assert not audit_session(persistence, SESSION).ok


def test_an_unknown_session_is_not_found(data_dir: Path) -> None:
    data_dir.mkdir()
    with pytest.raises(SessionNotFound):
        audit_session(data_dir, SESSION)


def test_a_log_longer_than_a_block_is_read_to_its_end(data_dir: Path) -> None:
    builder = LogBuilder(SESSION).start()
    for _ in range(40):
        builder.say("x" * 100_000)
    builder.put(
        (ev.TURN_CANCELLING, {"turnId": builder.turn_id, "reason": "enough"}),
        (ev.TURN_CANCELLED, {"turnId": builder.turn_id, "reason": "enough"}),
    )
    kept(data_dir, builder.content)
    assert audit_session(data_dir, SESSION).bytes == len(builder.content)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"args":{"a":[1,{"b":"}"}]},"c":1}', b'{"a":[1,{"b":"}"}]}'),
        (b'{"x":"args","args":5}', b"5"),
        (b'{"x":{"args":1},"args":[2]}', b"[2]"),
        (b'{"x":["args"],"args":"a\\"b"}', b'"a\\"b"'),
        (b'{"args":null}', b"null"),
        (b'{"arg":1}', b""),
        (b"{}", b""),
        (b'{"args', b""),
    ],
)
def test_a_member_s_bytes_are_found_as_they_stand(raw: bytes, value: bytes) -> None:
    assert member_bytes(raw, b"args") == value


def test_the_referee_is_asked_where_there_is_one() -> None:
    program = os.environ.get("ZHIN_REFEREE")
    assert program is None or Path(program).is_file()
