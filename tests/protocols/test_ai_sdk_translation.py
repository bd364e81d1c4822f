"""The translation of a log to a UI message stream, line by line: pure, and the same from whatever cursor."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import orjson
import pytest

from zhin_host.protocols.ai_sdk.framing import HistoryFraming, TurnFraming
from zhin_host.protocols.ai_sdk.parts import assistant_message
from zhin_host.protocols.ai_sdk.translation import Translation
from zhin_host.protocols.counted import Counted, Line

SESSION: Final = "ses_01jdq3v2k0000000000000000z"
REQUEST: Final = "req_01jdq3v2k0000000000000000z_0123456789abcdefghjkmnpqrs"
Row = tuple[str, dict[str, Any]]

START: Final[list[Row]] = [
    ("turn.started", {"turnId": "turn_1", "continuationToken": "zhin:1"}),
    ("step.started", {"stepId": "step_1", "turnId": "turn_1", "status": "running"}),
    ("message.received", {"turnId": "turn_1", "message": "hello"}),
]
END: Final[list[Row]] = [
    ("message.completed", {"message": "…", "finishReason": "stop"}),
    ("turn.completed", {"turnId": "turn_1"}),
]


def said(text: str) -> Row:
    return ("message.appended", {"messageDelta": text})


def thought(text: str) -> Row:
    return ("reasoning.appended", {"reasoningDelta": text})


def called(call_id: str, name: str = "publish") -> Row:
    return ("actions.requested", {"callId": call_id, "toolName": name, "input": {"page": "a"}})


def result(call_id: str, status: str = "completed", **more: Any) -> Row:
    return (
        "action.result",
        {"callId": call_id, "toolName": "publish", "status": status, "durationMs": 1, **more},
    )


def asked(request_id: str, call_id: str, kind: str = "approval", **more: Any) -> Row:
    data = {"requestId": request_id, "kind": kind, "callId": call_id, "prompt": "May I?", **more}
    return ("input.requested", data)


def answered(request_id: str, outcome: str, kind: str = "approval", **more: Any) -> Row:
    return ("input.completed", {"requestId": request_id, "kind": kind, "outcome": outcome, **more})


def resumed(discard_from: int | None = None) -> Row:
    more = {} if discard_from is None else {"discardFrom": discard_from}
    return ("step.resumed", {"stepId": "step_1", "turnId": "turn_1", "attempt": 2, **more})


def lines(rows: Iterable[Row], first: int = 0) -> list[Line]:
    return [Line(at, kind, 1_764_428_400_000, data) for at, (kind, data) in enumerate(rows, first)]


def raw(rows: Iterable[Row]) -> list[bytes]:
    """The rows as lines of a log, whose chain nobody looks at here."""
    return [
        orjson.dumps({"index": at, "type": kind, "timestamp": 1, "data": data, "sum": "s"}) + b"\n"
        for at, (kind, data) in enumerate(rows)
    ]


def told(rows: Iterable[Row], cursor: int = 0) -> list[dict[str, Any]]:
    """The chunks of a turn, and what its stream ends with."""
    translation = Translation(SESSION, cursor)
    chunks = [chunk for event in lines(rows) for chunk in translation.feed(event)]
    return chunks + translation.finish()


def brief(chunks: list[dict[str, Any]]) -> list[str]:
    """Each chunk in a few words."""
    words = ("id", "delta", "toolCallId", "approvalId", "approved", "output", "errorText", "reason")
    return [" ".join([row["type"], *(str(row[word]) for word in words if word in row)]) for row in chunks]


def body(rows: list[Row], cursor: int = 0) -> list[str]:
    """The chunks in a few words, without the start and the finish that every stream has."""
    chunks = brief(told(rows, cursor))
    assert (chunks[0], chunks[-1]) == ("start", "finish")
    return chunks[1:-1]


def test_an_answer_is_one_message_of_its_turns_id() -> None:
    usage = {"inputTokens": 3}
    end = [("message.completed", {"message": "hi", "finishReason": "length", "usage": usage}), END[1]]
    chunks = told([*START, said("h"), said("i"), *end])
    assert chunks[0] == {
        "type": "start",
        "messageId": "turn_1",
        "messageMetadata": {"sessionId": SESSION, "turnId": "turn_1"},
    }
    assert brief(chunks[1:-1]) == [
        "start-step",
        "text-start text-3",
        "text-delta text-3 h",
        "text-delta text-3 i",
        "text-end text-3",
        "finish-step",
    ]
    metadata = {"cursor": 7, "usage": usage}
    assert chunks[-1] == {"type": "finish", "finishReason": "length", "messageMetadata": metadata}


def test_a_reason_to_finish_that_ai_does_not_know_is_another() -> None:
    end = [("message.completed", {"message": "", "finishReason": "bored"}), END[1]]
    assert told([*START, *end])[-1]["finishReason"] == "other"


def test_reasoning_ends_where_anything_else_comes() -> None:
    completed = ("reasoning.completed", {"reasoning": "hm"})
    assert body([*START, thought("h"), thought("m"), completed, said("hi"), *END])[1:6] == [
        "reasoning-start reasoning-3",
        "reasoning-delta reasoning-3 h",
        "reasoning-delta reasoning-3 m",
        "reasoning-end reasoning-3",
        "text-start text-6",
    ]


def test_a_call_is_a_tool_part_and_the_next_step_begins_behind_its_result() -> None:
    rows = [*START, said("a"), called("c"), result("c", output=None), said("b"), *END]
    assert body(rows)[3:] == [
        "text-end text-3",
        "tool-input-available c",
        "tool-output-available c None",
        "finish-step",
        "start-step",
        "text-start text-6",
        "text-delta text-6 b",
        "text-end text-6",
        "finish-step",
    ]


@pytest.mark.parametrize(
    ("ended", "becomes"),
    [
        (result("c", "failed", error={"code": "ACTION_FAILED", "message": "boom"}), "boom"),
        (result("c", "cancelled"), "The call was cancelled."),
    ],
)
def test_a_call_that_came_to_nothing_says_why(ended: Row, becomes: str) -> None:
    assert f"tool-output-error c {becomes}" in body([*START, called("c"), ended, *END])


def test_another_try_of_a_call_is_told_and_not_kept() -> None:
    data = {
        "callId": "c",
        "toolName": "publish",
        "attempt": 1,
        "error": {"message": "boom"},
        "delayMs": 5,
    }
    chunks = told([*START, called("c"), ("action.retrying", data), result("c"), *END])
    assert {"type": "data-action-retrying", "data": data, "transient": True} in chunks
    assert [part["type"] for part in assistant_message(chunks)["parts"]] == ["step-start", "tool-publish"]


def test_an_approval_is_asked_of_its_call_and_the_stream_ends_there() -> None:
    shown: dict[str, Any] = {
        "toolName": "publish",
        "args": {"page": "a"},
        "argsDigest": "sha256:0",
        "scope": "call",
    }
    chunks = told([*START, called("c"), asked("r", "c", **shown)])
    assert chunks[-4:] == [
        {
            "type": "tool-approval-request",
            "approvalId": "r",
            "toolCallId": "c",
            "reason": "May I?",
            "approvalDescriptor": {"kind": "approval", "scope": "call", "argsDigest": "sha256:0"},
        },
        {"type": "message-metadata", "messageMetadata": {"cursor": 5}},
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "tool-calls", "messageMetadata": {"cursor": 5}},
    ]


@pytest.mark.parametrize(
    ("answer", "response", "end"),
    [
        (answered("r", "approved"), "tool-approval-response r True", "tool-output-available c /a"),
        (
            answered("r", "denied", comment="no"),
            "tool-approval-response r False no",
            "tool-output-denied c",
        ),
        (
            answered("r", "expired"),
            "tool-approval-response r False Nobody answered in time.",
            "tool-output-denied c",
        ),
        (
            answered("r", "cancelled"),
            "tool-approval-response r False The request was given up.",
            "tool-output-denied c",
        ),
    ],
)
def test_what_a_person_answered_is_told_and_then_what_came_of_it(
    answer: Row, response: str, end: str
) -> None:
    status = {"approved": "completed", "cancelled": "cancelled"}.get(answer[1]["outcome"], "denied")
    more = {"output": "/a"} if status == "completed" else {"error": {"message": "not"}}
    rows = [*START, called("c"), asked("r", "c"), answer, result("c", status, **more), *END]
    assert [row for row in body(rows, cursor=5) if row.startswith("tool")] == [response, end]


@pytest.mark.parametrize(
    ("outcome", "ends"),
    [
        ("approved", ["tool-approval-response r True", "tool-output-available r {'approved': True}"]),
        ("denied", ["tool-approval-response r False", "tool-output-denied r"]),
    ],
)
def test_a_yes_or_no_without_a_call_has_a_part_of_its_own_that_ends_with_the_answer(
    outcome: str, ends: list[str]
) -> None:
    rows = [*START, asked("r", "c", args={"what": 1}), answered("r", outcome), *END]
    tools = [row for row in body(rows) if row.startswith("tool")]
    assert tools == [
        "tool-input-available r",
        "tool-approval-request r r May I?",
        *ends,
    ]


@pytest.mark.parametrize(
    ("outcome", "more", "end"),
    [
        ("answered", {"response": {"a": 1}}, "tool-output-available r {'a': 1}"),
        ("expired", {}, "tool-output-error r Nobody answered in time."),
        ("cancelled", {}, "tool-output-error r The request was given up."),
    ],
)
def test_a_question_is_a_tool_that_the_page_runs(outcome: str, more: dict[str, Any], end: str) -> None:
    question = asked("r", "c", "question", options=["a", "b"])
    chunks = told([*START, question, answered("r", outcome, "question", **more), *END])
    asked_for = next(row for row in chunks if row["type"] == "tool-input-available")
    assert asked_for == {
        "type": "tool-input-available",
        "toolCallId": "r",
        "toolName": "ask",
        "input": {"prompt": "May I?", "options": ["a", "b"]},
    }
    assert end in brief(chunks)


def test_no_step_begins_while_a_request_is_open_and_one_does_when_the_last_is_answered() -> None:
    rows = [
        *START,
        called("a"),
        asked("ra", "a"),
        called("b"),
        asked("rb", "b"),
        answered("ra", "approved"),
        result("a"),
        said("a is done"),
        answered("rb", "approved"),
        result("b"),
        said("b too"),
        *END,
    ]
    steps = [row.split()[0] for row in body(rows) if "step" in row or row.startswith("text-delta")]
    assert steps == ["start-step", "text-delta", "finish-step", "start-step", "text-delta", "finish-step"]


def test_a_message_that_ends_with_an_answered_question_ends_in_a_step_without_it() -> None:
    rows = [
        *START,
        asked("r", "c", "question"),
        answered("r", "answered", "question", response=1),
        *END,
    ]
    assert body(rows)[-3:] == ["finish-step", "start-step", "finish-step"]


def test_what_a_crash_voids_is_taken_back_with_its_step_and_nothing_else_is() -> None:
    rows = [
        *START,
        called("c"),
        result("c"),  # 4
        said("void"),  # 5
        called("d"),
        resumed(discard_from=5),
        said("valid"),
        *END,
    ]
    chunks = body(rows)
    assert chunks[chunks.index("reset-step") :] == [
        "reset-step",
        "text-start text-8",
        "text-delta text-8 valid",
        "text-end text-8",
        "finish-step",
    ]


def test_nothing_is_taken_back_when_nothing_stands_that_does_not_count() -> None:
    void = ("message.completed", {"message": "", "finishReason": "stop"})
    assert "reset-step" not in body([*START, called("c"), result("c"), resumed(), *END])
    assert "reset-step" not in body([*START, called("c"), result("c"), void, resumed(discard_from=5), *END])


def test_own_events_are_data_and_one_of_the_same_id_takes_the_place_of_the_other() -> None:
    rows: list[Row] = [
        ("x.bar", {"id": "b", "at": 1}),
        ("x.bar", {"id": "b", "at": 2}),
        ("x.bar", {"at": 3, "id": 7}),
    ]
    assert [row for row in told([*START, *rows, *END]) if row["type"].startswith("data-")] == [
        {"type": "data-bar", "id": "b", "data": {"id": "b", "at": 1}},
        {"type": "data-bar", "id": "b", "data": {"id": "b", "at": 2}},
        {"type": "data-bar", "id": "event-5", "data": {"at": 3, "id": 7}},
    ]


@pytest.mark.parametrize(
    ("success", "more", "status"), [(True, {}, "success"), (False, {"error": "no"}, "failure")]
)
def test_an_authorization_is_data_that_is_told_again_when_it_is_there(
    success: object, more: dict[str, Any], status: str
) -> None:
    required = {"requestId": "r", "callId": "c", "connection": "mail", "authUrl": "https://auth.example"}
    completed = {"requestId": "r", "connection": "mail", "success": success, **more}
    rows = [
        *START,
        ("authorization.required", required),
        ("authorization.completed", completed),
        *END,
    ]
    assert [row["data"] for row in told(rows) if row["type"] == "data-authorization"] == [
        {**required, "status": "required"},
        {**required, **completed, "status": status},
    ]


def test_a_turn_that_fails_is_an_error_behind_the_end_of_all_that_was_open() -> None:
    failed = (
        "turn.failed",
        {"turnId": "turn_1", "code": "AGENT_FAILED", "message": "boom", "recoverable": True},
    )
    chunks = told([*START, said("a"), called("c"), failed])
    assert brief(chunks[-6:]) == [
        "tool-input-available c",
        "tool-output-error c The turn ended before this was done.",
        "finish-step",
        "message-metadata",
        "error boom",
        "finish",
    ]
    failure = {"code": "AGENT_FAILED", "recoverable": True}
    assert assistant_message(chunks)["metadata"]["failure"] == failure
    assert chunks[-1]["finishReason"] == "error"


def test_a_cancelled_turn_is_an_abort() -> None:
    chunks = told([*START, said("a"), ("turn.cancelled", {"turnId": "turn_1", "reason": "requested"})])
    assert brief(chunks[-3:]) == ["finish-step", "abort requested", "finish"]
    assert chunks[-1]["finishReason"] == "interrupted"


# -- cursors, blocks and turns -------------------------------------------------------------------------------------

STORY: Final[list[Row]] = [
    ("session.started", {"sessionId": SESSION, "agent": "a", "logVersion": 1, "continuationToken": "zhin:0"}),
    *START,
    thought("hm"),
    ("reasoning.completed", {"reasoning": "hm"}),
    said("a"),
    ("x.note", {"n": 1}),
    said("b"),
    called("c"),
    asked(REQUEST, "c"),
    (
        "step.interrupted",
        {"stepId": "step_1", "turnId": "turn_1", "status": "waiting", "interruptKind": "approval"},
    ),
    answered(REQUEST, "approved"),
    resumed(),
    result("c", output="/a"),
    said("void"),
    resumed(discard_from=15),
    said("valid"),
    *END,
    ("session.waiting", {"sessionId": SESSION, "parked": False}),
    ("turn.started", {"turnId": "turn_2", "continuationToken": "zhin:2", "idempotencyKey": "m2"}),
    ("message.received", {"turnId": "turn_2", "message": [{"type": "text", "text": "and then?"}]}),
    said("nothing"),
]


def streamed(blocks: Iterable[bytes], cursor: int = 0, turn_id: str = "turn_1") -> bytes:
    """The body of a stream that is handed these blocks."""
    framing = TurnFraming(SESSION, turn_id, cursor, lambda: False)
    sent = framing.first()
    for block in blocks:
        sent += framing.frame(block)
        if framing.is_over:
            break
    return sent + (framing.last() or b"")


def chunks_in(body: bytes) -> list[dict[str, Any]]:
    assert body.endswith(b"data: [DONE]\n\n")
    return [json.loads(row.removeprefix(b"data: ")) for row in body.split(b"\n\n")[:-2]]


def test_the_same_bytes_are_sent_however_the_log_comes_in_blocks() -> None:
    log = raw(STORY)
    whole = streamed([b"".join(log)])
    assert streamed(log) == whole
    for at in range(1, len(log)):
        assert streamed([b"".join(log[:at]), b"".join(log[at:])]) == whole


def test_what_was_streamed_up_to_a_request_and_what_goes_on_from_its_cursor_are_the_whole_message() -> None:
    log = raw(STORY)
    whole = chunks_in(streamed(log))
    parked = TurnFraming(SESSION, "turn_1", 0, lambda: True)
    first = parked.frame(b"".join(log[:12]))
    assert parked.is_over
    before = chunks_in(first + (parked.last() or b""))
    cursor = assistant_message(before)["metadata"]["cursor"]
    after = chunks_in(streamed(log, cursor))
    joined = [row for row in before[:-2] + after[1:] if row["type"] != "message-metadata"]
    assert brief(joined) == brief([row for row in whole if row["type"] != "message-metadata"])


def test_a_stream_ends_with_its_turn_and_tells_nothing_of_the_next() -> None:
    framing = TurnFraming(SESSION, "turn_1", 0, lambda: False)
    sent = framing.frame(b"".join(raw(STORY)))
    assert framing.is_over
    assert b"nothing" not in sent


def test_a_stream_that_is_broken_off_has_no_end() -> None:
    framing = TurnFraming(SESSION, "turn_1", 0, lambda: True)
    framing.frame(b"".join(raw(STORY)[:8]))
    assert not framing.is_over
    assert framing.last() is None


def test_a_stream_does_not_end_at_a_request_that_was_answered_or_while_more_is_to_be_read() -> None:
    log = raw(STORY)
    framing = TurnFraming(SESSION, "turn_1", 0, lambda: False)
    framing.frame(b"".join(log[:11]))
    assert not framing.is_over
    caught_up = TurnFraming(SESSION, "turn_1", 0, lambda: True)
    caught_up.frame(b"".join(log[:13]))
    assert not caught_up.is_over


def test_a_stream_waits_for_what_runs_beside_a_request_until_there_is_silence() -> None:
    framing = TurnFraming(SESSION, "turn_1", 0, lambda: True)
    framing.frame(b"".join(raw([*START, called("c", "long"), called("d"), asked("r", "d")])))
    assert framing.last() is None
    assert framing.frame(b"") == b": keep-alive\n\n"
    assert framing.is_over
    told = brief(chunks_in(framing.last() or b""))
    unfinished = "Not finished yet: the turn waits for an answer."
    assert told == [f"tool-output-error c {unfinished}", "finish-step", "finish"]


def test_a_call_that_was_approved_and_runs_is_not_said_to_be_unfinished() -> None:
    rows = [
        *START,
        called("c"),
        asked("r", "c"),
        called("d"),
        asked("s", "d"),
        answered("r", "approved"),
    ]
    assert not any("unfinished" in row or "error" in row for row in body(rows))


def test_a_heartbeat_ends_no_stream_that_waits_for_nobody() -> None:
    framing = TurnFraming(SESSION, "turn_1", 0, lambda: True)
    framing.frame(b"".join(raw([*START, said("a")])))
    framing.frame(b"")
    assert not framing.is_over


def test_a_message_that_the_end_of_its_session_dropped_is_an_error() -> None:
    over = [*STORY[:4], *END, ("session.completed", {"sessionId": SESSION, "droppedTurnIds": ["turn_9"]})]
    [error] = chunks_in(streamed(raw(over), turn_id="turn_9"))
    assert error == {"type": "error", "errorText": "The session ended before this message had its turn."}


def history(rows: list[Row]) -> list[dict[str, Any]]:
    framing = HistoryFraming(SESSION)
    sent = framing.first() + framing.frame(b"") + b"".join(map(framing.frame, raw(rows))) + framing.last()
    return list(json.loads(sent))


def test_the_history_holds_what_counts_and_is_what_the_stream_makes() -> None:
    messages = history(STORY)
    assert [(row["role"], row["id"]) for row in messages] == [
        ("user", "user-turn_1"),
        ("assistant", "turn_1"),
        ("user", "m2"),
        ("assistant", "turn_2"),
    ]
    texts = [part["text"] for row in messages for part in row["parts"] if part["type"] == "text"]
    assert texts == ["hello", "ab", "valid", "and then?", "nothing"]
    assert messages[1]["metadata"]["cursor"] == 20


def test_the_first_message_has_the_id_that_began_the_thread() -> None:
    first = {**STORY[0][1], "metadata": {"runId": "m1"}}
    assert history([("session.started", first), *STORY[1:]])[0]["id"] == "m1"


def test_a_session_without_a_message_has_no_history() -> None:
    assert history(STORY[:2]) == []


FAILED: Final = {
    "turnId": "turn_1",
    "code": "TOOL_DENIED",
    "message": "no",
    "recoverable": True,
    "callId": "d",
}
AGAIN: Final = {"turnId": "turn_2", "continuationToken": "zhin:2", "resumes": "turn_1"}
TRIED_AGAIN: Final[list[Row]] = [
    *START,
    called("c"),
    result("c", output="/c"),
    called("d"),  # 5
    asked("rd", "d"),
    answered("rd", "approved"),
    called("e"),  # 8
    asked("re", "e"),
    answered("re", "denied"),
    result("d", "failed", error={"message": "boom"}),
    said("void"),  # 12
    ("turn.failed", FAILED),
    ("turn.started", {**AGAIN, "discardFrom": 12}),
    ("message.received", {"turnId": "turn_2", "message": "hello"}),
    result("d", output="/d"),
    said("valid"),
    ("message.completed", {"message": "valid", "finishReason": "stop"}),
    ("turn.completed", {"turnId": "turn_2"}),
]


def test_a_turn_that_tries_a_failed_one_again_begins_with_what_counts_of_it() -> None:
    chunks = brief(chunks_in(streamed(raw(TRIED_AGAIN), turn_id="turn_2")))
    assert [row for row in chunks if not row.endswith("-step")] == [
        "start",
        "tool-input-available c",
        "tool-output-available c /c",
        "tool-input-available d",
        "tool-approval-request d rd May I?",
        "message-metadata",
        "tool-approval-response rd True",
        "tool-input-available e",
        "tool-approval-request e re May I?",
        "message-metadata",
        "tool-approval-response re False",
        "tool-output-available d /d",
        "text-start text-17",
        "text-delta text-17 valid",
        "text-end text-17",
        "tool-output-denied e",
        "finish",
    ]


def test_the_failed_turn_itself_is_told_as_it_was() -> None:
    chunks = brief(chunks_in(streamed(raw(TRIED_AGAIN))))
    assert "tool-output-error d boom" in chunks
    assert "error no" in chunks


def test_of_a_turn_that_was_tried_again_the_history_has_the_last_try() -> None:
    messages = history(TRIED_AGAIN)
    assert [row["id"] for row in messages] == ["user-turn_2", "turn_2"]
    assert [part.get("output") for part in messages[1]["parts"] if "output" in part] == ["/c", "/d"]


def test_a_refused_request_of_the_call_that_failed_is_asked_anew() -> None:
    counted = Counted()
    rows = [
        *START,
        called("d"),
        asked("r", "d"),
        answered("r", "denied"),
        result("d", "denied"),
        ("turn.failed", FAILED),
    ]
    for event in lines([*rows, ("turn.started", AGAIN)]):
        counted.add(event)
    assert [row.type for row in counted.events] == [
        "step.started",
        "message.received",
        "actions.requested",
        "turn.started",
    ]


def test_a_turn_that_failed_by_itself_leaves_all_of_its_record_to_the_next_try() -> None:
    counted = Counted()
    failed = {name: value for name, value in FAILED.items() if name != "callId"}
    for event in lines([*START, called("d"), result("d"), ("turn.failed", failed), ("turn.started", AGAIN)]):
        counted.add(event)
    assert [row.type for row in counted.events][2:] == ["actions.requested", "action.result", "turn.started"]


def test_an_own_event_that_takes_the_place_of_another_does_so_in_the_history() -> None:
    bars: list[Row] = [("x.bar", {"id": "b", "at": 1}), ("x.bar", {"id": "b", "at": 2})]
    parts = history([STORY[0], *START, *bars, *END])[1]["parts"]
    assert parts[1:] == [{"type": "data-bar", "id": "b", "data": {"id": "b", "at": 2}}]


def test_keys_that_reach_a_prototype_are_left_out_of_streams_and_histories() -> None:
    given = [{"__proto__": 1, "a": {"constructor": {"prototype": 1}, "b": 2}}, {"constructor": {"c": 3}}]
    rows = [STORY[0], *START, called("c"), result("c", output=given), *END]
    kept = [{"a": {"b": 2}}, {"constructor": {"c": 3}}]
    [output] = [row["output"] for row in chunks_in(streamed(raw(rows))) if "output" in row]
    assert output == kept
    assert [part["output"] for part in history(rows)[1]["parts"] if "output" in part] == [kept]


def test_a_turn_that_resumes_none_forgets_the_one_before() -> None:
    counted = Counted()
    for event in lines(STORY):
        counted.add(event)
    assert counted.turn_id == "turn_2"
    assert len(counted.events) == 3
