"""What each line of a log becomes in AG-UI, and that a reader who comes back anywhere is told the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.hosting import hosting, stored
from tests.protocols import apps
from tests.protocols.reducer import Page, events_in
from zhin_host.protocols.ag_ui.framing import RunFraming
from zhin_host.protocols.ag_ui.transcript import SNAPSHOT_BYTES_MAX, Row, Text, Transcript, text_of
from zhin_host.protocols.ag_ui.translation import STATE_BYTES_MAX, Translation, interrupt_of

TURN = "turn_01m8n96wwpnh2tgtr4y5293q1a"
ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("turn.started", {"turnId": TURN}),
    ("step.started", {"stepId": "step_1", "turnId": TURN, "status": "running"}),
    ("message.received", {"turnId": TURN, "message": "hi"}),
)
CALL = ("actions.requested", {"callId": "call_1", "toolName": "publish", "input": {"page": "a"}})
OTHER_CALL = ("actions.requested", {"callId": "call_2", "toolName": "erase", "input": {}})
REQUEST = (
    "input.requested",
    {"requestId": "req_1", "kind": "approval", "callId": "call_1", "prompt": "Allow?", "toolName": "publish"},
)
WAITING = ("session.waiting", {"parked": True, "pendingRequestIds": ["req_1"]})
DONE = ("turn.completed", {"turnId": TURN})
FINISHED = {"type": "RUN_FINISHED", "threadId": "thread", "runId": "run", "outcome": {"type": "success"}}


class Reader:
    """Reads lines that the test makes, as one stream.

    Attributes:
        settled: How often a silence was asked for.
    """

    def __init__(self, *held: Row, restate_at: int = -1, answered: tuple[str, ...] = ()) -> None:
        self.settled = 0
        self.framing = RunFraming(
            Translation("thread", "run", Transcript(held, keeps=True)),
            settle=self._settle,
            restate_at=restate_at,
            answered=answered,
        )
        self._index = 0

    def _settle(self) -> None:
        self.settled += 1

    def read(self, *rows: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """What these lines become, as a block."""
        block = b""
        for kind, data in rows:
            line = {"index": self._index, "type": kind, "timestamp": 7, "data": data, "sum": "s"}
            block += orjson.dumps(line) + b"\n"
            self._index += 1
        events = events_in(self.framing.frame(block))
        assert {event.pop("timestamp") for event in events} <= {7}
        return events

    def silence(self) -> bytes:
        return self.framing.frame(b"")


def become(*rows: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """What the lines become behind those that begin a turn."""
    reader = Reader()
    reader.read(*ASKED)
    return reader.read(*rows)


def test_a_turn_that_starts_is_a_run_that_starts() -> None:
    assert Reader().read(*ASKED) == [
        {"type": "RUN_STARTED", "threadId": "thread", "runId": "run", "protocolVersion": "1.0"}
    ]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("step.completed", {"stepId": "step_1", "turnId": TURN, "status": "completed"}),
        ("message.completed", {"message": "hi", "finishReason": "stop"}),
        ("message.queued", {"turnId": "turn_2", "message": "more"}),
        ("turn.cancelling", {"turnId": TURN, "reason": "requested"}),
        ("step.resumed", {"stepId": "step_1", "turnId": TURN, "attempt": 2}),
        ("reasoning.completed", {"reasoning": ""}),
        ("session.waiting", {"parked": False}),
    ],
)
def test_what_only_the_host_needs_to_know_is_not_told(kind: str, data: dict[str, Any]) -> None:
    assert become((kind, data)) == []


def test_text_is_a_message_named_after_the_event_it_begins_with() -> None:
    said = (("message.appended", {"messageDelta": "a "}), ("message.appended", {"messageDelta": "b"}))
    message_id = f"{TURN}-3"
    assert become(*said, DONE) == [
        {"type": "TEXT_MESSAGE_START", "messageId": message_id},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": "a "},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": "b"},
        {"type": "TEXT_MESSAGE_END", "messageId": message_id},
        FINISHED,
    ]


def test_reasoning_is_closed_before_text_begins() -> None:
    events = become(
        ("reasoning.appended", {"reasoningDelta": "a"}), ("message.appended", {"messageDelta": "b"})
    )
    assert [event["type"] for event in events] == [
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
    ]


def test_an_action_is_a_call_with_its_arguments_as_json() -> None:
    assert become(CALL) == [
        {
            "type": "TOOL_CALL_START",
            "toolCallId": "call_1",
            "toolCallName": "publish",
            "parentMessageId": f"{TURN}-3",
        },
        {"type": "TOOL_CALL_ARGS", "toolCallId": "call_1", "delta": '{"page":"a"}'},
        {"type": "TOOL_CALL_END", "toolCallId": "call_1"},
    ]


@pytest.mark.parametrize(
    ("output", "content"),
    [("text", "text"), ({"a": [1, None]}, '{"a":[1,null]}'), (None, "null"), ("", ""), (0, "0")],
)
def test_a_result_is_text_as_it_is_and_anything_else_as_json(output: Any, content: str) -> None:
    result = {"callId": "call_1", "toolName": "publish", "status": "completed", "output": output}
    [event] = become(CALL, ("action.result", result))[3:]
    assert event == {
        "type": "TOOL_CALL_RESULT",
        "messageId": f"{TURN}-4",
        "toolCallId": "call_1",
        "content": content,
    }


def test_a_result_that_is_none_says_why() -> None:
    error = {"code": "TOOL_DENIED", "message": "a person refused publish"}
    result = {"callId": "call_1", "toolName": "publish", "status": "denied", "error": error}
    [event] = become(CALL, ("action.result", result))[3:]
    assert event["content"] == "a person refused publish"
    assert event["metadata"] == {"zhin": {"status": "denied", **error}}


def test_a_call_that_is_tried_again_has_its_new_result_in_place_of_the_old() -> None:
    row = {"callId": "call_1", "toolName": "publish", "status": "failed", "error": {"message": "no"}}
    again = {"callId": "call_1", "toolName": "publish", "status": "completed", "output": "yes"}
    [*_, event] = become(CALL, ("action.result", row), ("action.result", again))
    assert event["type"] == "MESSAGES_SNAPSHOT"
    assert [message.get("content") for message in event["messages"]] == ["hi", None, "yes"]


def test_events_that_have_no_word_in_the_protocol_are_custom() -> None:
    retrying = {"callId": "call_1", "toolName": "publish", "attempt": 1, "error": {}, "delayMs": 1}
    assert become(("action.retrying", retrying), ("x.progress", {"percent": 50})) == [
        {"type": "CUSTOM", "name": "action.retrying", "value": retrying},
        {"type": "CUSTOM", "name": "x.progress", "value": {"percent": 50}},
    ]


def test_saved_state_is_a_state_snapshot_unless_it_is_large() -> None:
    small, large = {"a": 1}, "b" * STATE_BYTES_MAX
    saved = [("checkpoint.saved", {"turnId": TURN, "state": state}) for state in (small, large)]
    assert become(*saved) == [{"type": "STATE_SNAPSHOT", "snapshot": small}]


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        ({"inputTokens": 1, "output_tokens": 2}, [{"inputTokens": 1, "outputTokens": 2}]),
        (
            {"inputTokens": 0, "model": "m", "provider": "p"},
            [{"provider": "p", "model": "m", "inputTokens": 0}],
        ),
        ({"inputTokens": True, "outputTokens": -1, "totalTokens": 2**60, "cost": "x"}, None),
        ({"model": "m"}, None),
        ([1], None),
        (None, None),
    ],
)
def test_usage_is_told_where_it_has_the_protocols_names(usage: Any, told: Any) -> None:
    [event] = become(("turn.completed", {"turnId": TURN, "usage": usage}))
    assert event.get("usage") == told


def test_a_turn_that_fails_is_the_runs_error() -> None:
    failed = {"turnId": TURN, "code": "AGENT_FAILED", "message": "no", "recoverable": True}
    assert become(("turn.failed", failed)) == [{"type": "RUN_ERROR", "message": "no", "code": "AGENT_FAILED"}]


def test_a_turn_that_was_cancelled_is_a_cancelled_run() -> None:
    [event] = become(("turn.cancelled", {"turnId": TURN, "reason": "requested"}))
    assert event["outcome"] == {"type": "cancelled"}


def test_nothing_is_told_behind_the_end_of_the_run() -> None:
    reader = Reader()
    rows = (DONE, ("session.waiting", {"parked": False}), ("turn.started", {"turnId": "turn_2"}))
    assert reader.read(*ASKED, *rows)[-1] == FINISHED
    assert reader.framing.is_over
    assert reader.framing.last() == b""


def test_a_stream_that_is_cut_off_says_nothing_of_an_end() -> None:
    reader = Reader()
    reader.read(*ASKED)
    assert not reader.framing.is_over
    assert reader.framing.last() == b""


# -- waiting for a person ------------------------------------------------------------------------------------------


def test_a_run_that_waits_ends_with_the_first_silence() -> None:
    reader = Reader()
    reader.read(*ASKED, CALL, REQUEST, WAITING)
    assert reader.settled == 1
    [event] = events_in(reader.silence())
    assert event["outcome"]["interrupts"] == [
        {
            "id": "req_1",
            "reason": "tool_call",
            "message": "Allow?",
            "toolCallId": "call_1",
            "responseSchema": {
                "type": "object",
                "properties": {"approved": {"type": "boolean"}, "comment": {"type": "string"}},
                "required": ["approved"],
            },
            "metadata": {"zhin": {"kind": "approval", "toolName": "publish"}},
        }
    ]
    assert reader.framing.is_over


def test_no_silence_is_asked_for_while_something_runs_beside_the_request() -> None:
    reader = Reader()
    reader.read(*ASKED, CALL, OTHER_CALL, REQUEST, WAITING)
    assert reader.settled == 0
    reader.read(
        ("action.result", {"callId": "call_2", "toolName": "erase", "status": "completed", "output": 1})
    )
    assert reader.settled == 1


def test_no_silence_is_asked_for_while_a_turn_is_being_cancelled() -> None:
    reader = Reader()
    reader.read(*ASKED, CALL, REQUEST, WAITING, ("turn.cancelling", {"turnId": TURN, "reason": "requested"}))
    assert reader.settled == 0


def test_a_silence_ends_a_run_that_waits_although_something_runs_beside_it() -> None:
    reader = Reader()
    reader.read(*ASKED, CALL, OTHER_CALL, REQUEST, WAITING)
    [event] = events_in(reader.silence())
    assert event["outcome"]["type"] == "interrupt"


def test_a_silence_while_nobody_is_asked_is_a_heartbeat() -> None:
    reader = Reader()
    assert reader.silence() == b": heartbeat\n\n"
    reader.read(*ASKED, CALL, REQUEST, WAITING)
    reader.read(("input.completed", {"requestId": "req_1", "kind": "approval", "outcome": "approved"}))
    assert reader.silence() == b": heartbeat\n\n"
    assert not reader.framing.is_over


@pytest.mark.parametrize(
    ("data", "reason", "schema"),
    [
        ({"kind": "approval", "prompt": "?", "args": {"n": 1}}, "confirmation", "approved"),
        ({"kind": "retry", "prompt": "?", "toolName": "publish"}, "zhin:retry", "approved"),
        ({"connection": "mail", "authUrl": "https://login.example"}, "zhin:authorization", "success"),
    ],
)
def test_every_kind_of_request_says_how_it_is_answered(
    data: dict[str, Any], reason: str, schema: str
) -> None:
    interrupt = interrupt_of({"requestId": "req_1", "callId": "call_1", **data})
    assert interrupt["reason"] == reason
    assert interrupt["message"]
    assert interrupt["responseSchema"]["required"] == [schema]
    assert ("toolCallId" in interrupt) == ("toolName" in data)


@pytest.mark.parametrize(
    ("options", "schema"), [(["a", 1], {"enum": ["a", 1]}), ([], {}), (None, {}), ("odd", {})]
)
def test_a_question_names_its_options(options: Any, schema: dict[str, Any]) -> None:
    more = {} if options is None else {"options": options}
    data = {"requestId": "req_1", "callId": "call_1", "kind": "question", "prompt": "?", **more}
    assert interrupt_of(data)["responseSchema"] == schema


def test_a_deadline_is_told_as_iso_8601() -> None:
    data = {
        "requestId": "r",
        "callId": "c",
        "kind": "question",
        "prompt": "?",
        "expiresAt": 1_764_428_400_123,
    }
    assert interrupt_of(data)["expiresAt"] == "2025-11-29T15:00:00.123000+00:00"


# -- what does not count -------------------------------------------------------------------------------------------


def test_what_does_not_count_is_taken_back_from_the_text_and_from_the_calls() -> None:
    reader = Reader({"id": "u", "role": "user", "content": "hi"})
    told = reader.read(
        *ASKED,
        ("message.appended", {"messageDelta": "kept"}),
        ("reasoning.appended", {"reasoningDelta": "kept too"}),
        ("reasoning.appended", {"reasoningDelta": ", not this"}),
        CALL,
        ("message.appended", {"messageDelta": "gone"}),
        ("step.resumed", {"stepId": "step_1", "turnId": TURN, "attempt": 2, "discardFrom": 5}),
        CALL,
        REQUEST,
        WAITING,
    )
    page = Page({"id": "u", "role": "user", "content": "hi"}).take(told)
    assert [row.get("content", "call") for row in page.messages] == ["hi", "kept", "kept too", "call"]
    assert reader.settled == 1


def test_reasoning_that_does_not_count_is_emptied_where_a_client_would_keep_it() -> None:
    discard = {"stepId": "step_1", "turnId": TURN, "attempt": 2, "discardFrom": 3}
    [*_, event] = become(("reasoning.appended", {"reasoningDelta": "gone"}), ("step.resumed", discard))
    assert [row["content"] for row in event["messages"] if row["role"] == "reasoning"] == [""]


# -- what a client holds -------------------------------------------------------------------------------------------


def test_a_persons_messages_keep_the_ids_of_the_clients_copies_the_newest_first() -> None:
    held = [
        {"id": str(at), "role": "user", "content": text}
        for at, text in enumerate(["yes", "no", "yes", "unsent"])
    ]
    transcript = Transcript(held, keeps=False)
    for turn, text in enumerate(["other", "no", "yes"]):
        transcript.ask(f"t{turn}", text)
    assert [row["id"] for row in transcript.messages()] == ["t0-message", "1", "2"]


def test_a_message_of_parts_is_known_by_its_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    transcript = Transcript([{"id": "u", "role": "user", "content": "ab"}], keeps=False)
    transcript.ask("t", parts)
    [row] = transcript.messages()
    assert row["id"] == "u"
    assert text_of(parts) == "ab"


def test_a_run_that_is_answered_keeps_what_the_client_holds_and_sets_right_what_the_turn_said() -> None:
    held = (
        {"id": "u", "role": "user", "content": "hi"},
        {"id": "own", "role": "assistant", "content": "a greeting of the page"},
        {"id": f"{TURN}-3", "role": "assistant", "content": "half"},
        {"id": f"{TURN}-99", "role": "assistant", "content": "does not count"},
    )
    reader = Reader(*held, restate_at=4)
    said = [("message.appended", {"messageDelta": text}) for text in ("half", " and half")]
    [_, snapshot, start] = reader.read(*ASKED, *said)
    assert [(row["id"], row["content"]) for row in snapshot["messages"]] == [
        ("u", "hi"),
        ("own", "a greeting of the page"),
        (f"{TURN}-3", "half and half"),
    ]
    assert start == {"type": "TEXT_MESSAGE_START", "messageId": f"{TURN}-3"}


def test_the_oldest_messages_are_left_out_of_a_snapshot_that_would_be_too_large_for_a_client() -> None:
    transcript = Transcript([], keeps=False)
    for at in range(9):
        transcript.begin(Text(str(at), "assistant", [(at, "x" * (SNAPSHOT_BYTES_MAX // 8))]))
    assert [row["id"] for row in transcript.messages()] == ["2", "3", "4", "5", "6", "7", "8"]


# -- real logs: whoever comes back, wherever -----------------------------------------------------------------------


async def _log_of(message: str, *answers: Any) -> list[bytes]:
    """The lines of a session that was asked this, its requests answered in order."""
    async with hosting(apps.agent) as hosted:
        session_id = (await hosted.start(message)).session_id
        for count, answer in enumerate(answers):
            [request] = await hosted.asked(session_id, count + 1)
            if isinstance(answer, bool):
                await hosted.approve(session_id, request.request_id, approved=answer)
            else:
                await hosted.respond(session_id, request.request_id, answer)
        await hosted.idle(session_id)
        return stored(hosted.persistence, session_id).splitlines(keepends=True)


def _told(log: list[bytes], *held: Row, keeps: bool, restate_at: int = -1) -> bytes:
    """What one stream tells of these lines."""
    translation = Translation("thread", None, Transcript(held, keeps=keeps))
    framing = RunFraming(translation, settle=int, restate_at=restate_at)
    told = b""
    for block in log:
        told += framing.frame(block)
        if framing.is_over:
            break
    return told


def _shown(page: Page) -> tuple[Any, ...]:
    """What a page shows: no empty reasoning, and each result at its call, wherever it stands."""
    rows = [row for row in page.messages if row["role"] != "reasoning" or row["content"]]
    results = {row["toolCallId"]: row for row in rows if row["role"] == "tool"}
    return [row for row in rows if row["role"] != "tool"], results, page.state, page.ending


@pytest.mark.parametrize(
    ("message", "answers"),
    [("hello there world", ()), ("publish cats", (True,)), ("ask", ("tea",)), ("drop", ()), ("state", ())],
)
async def test_a_reader_who_leaves_and_comes_back_at_any_line_has_what_one_who_never_left_has(
    message: str, answers: tuple[Any, ...], tmp_path: Path
) -> None:
    if message == "drop":
        message += f" {tmp_path / 'gate'}"
    log = await _log_of(message, *answers)
    asked = {"id": "u", "role": "user", "content": message}
    held = {"id": "u", "role": "user", "content": message}
    whole = Page(asked).take(events_in(_told(log, held, keeps=True)))
    assert whole.ending is not None
    assert len(whole.messages) > 1 or message == "state"
    begun = next(at for at, line in enumerate(log) if b'"type":"message.received"' in line)
    for left in range(begun + 1, len(log)):
        for back in range(left - 1, len(log)):
            page = Page(asked).take(events_in(_told(log[:left], held, keeps=True))).cut_off()
            page.take(events_in(_told(log, held, keeps=False, restate_at=back)))
            if page.ending is not None and page.ending["outcome"]["type"] == "interrupt":
                page.take(events_in(_told(log, held, keeps=False, restate_at=len(log) - 1)))
            assert page.ending is not None
            page.ending["timestamp"] = whole.ending["timestamp"]
            assert _shown(page) == _shown(whole), (left, back)


async def test_readers_who_begin_at_the_same_line_get_the_same_bytes_in_whatever_blocks_it_comes() -> None:
    log = await _log_of("publish cats", True)
    for cut in range(len(log)):
        assert _told([b"".join(log)], keeps=False, restate_at=cut) == _told(log, keeps=False, restate_at=cut)
