"""What the commands that speak to a host print and understand, without a host."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import click
import pytest

from zhin_host.cli.exits import Otherwise
from zhin_host.cli.live.asking import answer_of, question_of, request_rows
from zhin_host.cli.live.connection import failure_of
from zhin_host.cli.live.inbox import table_of
from zhin_host.cli.live.interrupts import Interrupts
from zhin_host.cli.live.screen import Screen
from zhin_host.cli.remote import Remote, remote_of
from zhin_host.cli.terminal import Refusal, console
from zhin_host.client import (
    BadResponse,
    ConnectionLost,
    GaveUp,
    Request,
    RequestAlreadyAnswered,
    SessionBusy,
    TurnView,
    Unauthorized,
)
from zhin_host.client.pieces import Pieces
from zhin_host.events import Event

HOSTILE = "[bold]x[/] \x1b[2Jgone \u202egnp.exe \x9b31m"
SHOWN = "[bold]x[/] \\x1b[2Jgone \\u202egnp.exe \\x9b31m"


def event(index: int, kind: str, **data: Any) -> Event:
    return Event(index, kind, 1_764_428_400_000, data, b"x" * 43)


def asked(kind: str = "approval", **data: Any) -> Request:
    return Request("req_1", kind, "call_1", 3, {"requestId": "req_1", "prompt": "Allow it?", **data})


# -- the screen ----------------------------------------------------------------------------------------------------


def test_a_pipe_gets_what_is_said_and_the_rest_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(is_person=False)
    for one in (
        event(1, "turn.started", turnId="t"),
        event(2, "reasoning.appended", reasoningDelta="hm"),
        event(3, "message.appended", messageDelta="a\tb\r\n" + HOSTILE),
        event(4, "actions.requested", callId="c", toolName=HOSTILE, input={"x": HOSTILE}),
        event(5, "action.retrying", callId="c", toolName="f", attempt=2, error={"m": 1}, delayMs=1500),
        event(6, "action.result", callId="c", toolName=HOSTILE, status="failed", error=HOSTILE, durationMs=3),
        event(7, "message.appended", messageDelta="end"),
        event(8, "message.completed", message="…", finishReason="stop"),
        event(9, "turn.failed", turnId="t", code="AGENT_FAILED", message=HOSTILE, recoverable=True),
        event(10, "session.failed", sessionId="s", code="X", message=HOSTILE),
    ):
        screen.show(one)
    told = capsys.readouterr()
    assert told.out == f"a    b\n{SHOWN}\nend\n"
    assert f"• {SHOWN} " in told.err
    assert "f failed" in told.err
    assert "✗ failed" in told.err
    assert f"The turn failed, AGENT_FAILED: {SHOWN}" in told.err
    for text in (told.out, told.err):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_a_call_is_one_line_and_a_person_sees_thoughts(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(is_person=True)
    screen.show(event(1, "reasoning.appended", reasoningDelta="hm"))
    screen.show(event(2, "actions.requested", callId="c", toolName="fetch", input={"page": 1}))
    screen.show(
        event(3, "action.result", callId="c", toolName="fetch", status="completed", output=[1], durationMs=3)
    )
    screen.show(event(4, "action.result", callId="d", toolName="other", status="denied", durationMs=0))
    told = click.unstyle(capsys.readouterr().out)
    assert told == 'hm\n• fetch {"page":1} ✓ [1] (3 ms)\n• other ✗ denied  (0 ms)\n'


def test_what_a_restart_voids_is_marked_by_how_it_began(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(is_person=False)
    screen.show(event(3, "message.appended", messageDelta="kept "))
    screen.show(event(5, "message.appended", messageDelta="void "))
    screen.show(event(6, "message.appended", messageDelta="text"))
    screen.show(event(7, "step.resumed", attempt=2, discardFrom=5))
    screen.show(event(8, "message.appended", messageDelta="anew"))
    screen.show(event(9, "step.resumed", attempt=2))
    screen.end_line()
    told = capsys.readouterr()
    assert told.out == "kept void text\nanew\n"
    assert told.err.count("[discarded: ") == 1
    assert "what it said from 'void text' on does not count" in told.err


def test_what_was_said_before_the_command_came_is_marked_too(capsys: pytest.CaptureFixture[str]) -> None:
    turn = TurnView("t", message=HOSTILE, said=Pieces().add(3, "kept ").add(5, "void"))
    screen = Screen(is_person=False)
    screen.show_before(turn)
    screen.show(event(7, "step.resumed", attempt=2, discardFrom=5))
    told = capsys.readouterr()
    assert told.out == "kept void\n"
    assert f"you: {SHOWN}\n" in told.err
    assert "what it said from 'void' on" in told.err


# -- asking --------------------------------------------------------------------------------------------------------


def test_an_approval_shows_tool_arguments_and_risk_as_text() -> None:
    request = asked(
        toolName="publish",
        args={"page": HOSTILE, "text": "one\n  risk       none", "n": [1]},
        scope="session",
    )
    tools = {"publish": {"name": "publish", "description": HOSTILE, "repeatable": False}}
    rows = request_rows(request, tools)
    assert rows[:2] == ["? Allow it?", f"  tool       publish - {SHOWN}"]
    assert f"  page       {SHOWN}" in rows
    assert "               risk       none" in rows
    assert "  risk       none" not in rows
    assert [row for row in rows if row.startswith("  risk ")] == [
        "  risk       it is not safe to repeat; after a crash you are asked before it runs again",
        "  risk       a yes holds for the rest of the session, whatever the arguments",
    ]
    retry = request_rows(asked("retry", toolName="publish"), tools)
    assert "  risk       it may have run already, wholly or in part: a yes may do it a second time" in retry


def test_a_long_argument_is_said_to_be_longer() -> None:
    rows = request_rows(asked(args={"text": "x\n" * 100}), {})
    assert len(rows) == 42
    assert rows[-1] == "             … 61 more lines; `zhin-host show` has all"


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y", {"approved": True, "comment": None}),
        ("YES, looks good ", {"approved": True, "comment": "looks good"}),
        ("n not now", {"approved": False, "comment": "not now"}),
        ("", None),
        ("perhaps", None),
        ("yesterday", None),
    ],
)
def test_an_approval_takes_a_yes_or_a_no_and_a_comment(line: str, answer: dict[str, Any] | None) -> None:
    assert answer_of(asked(), line) == answer
    assert answer_of(asked("retry"), line) == answer


def test_a_question_takes_an_option_by_its_number_or_words() -> None:
    request = asked("question", options=["tea", {"name": "coffee"}])
    assert '  2. {"name":"coffee"}' in request_rows(request, {})
    assert answer_of(request, "2") == {"response": {"name": "coffee"}}
    assert answer_of(request, "3") == {"response": "3"}
    assert answer_of(request, "tea, please") == {"response": "tea, please"}
    assert answer_of(request, " ") is None
    assert "a number" in question_of(request)
    assert answer_of(asked("authorization"), "n too much") == {"success": False, "error": "too much"}


# -- Ctrl-C --------------------------------------------------------------------------------------------------------


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0)  # the interpreter looks for signals between two steps


def test_ctrl_c_calls_once_without_raising_and_raises_the_second_time() -> None:
    called = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    with Interrupts(called.set):
        press_ctrl_c()
        assert called.wait(10)
        with pytest.raises(KeyboardInterrupt):
            press_ctrl_c()
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_where_the_person_is_asked_raises_at_once_and_calls_nothing() -> None:
    called = threading.Event()
    with Interrupts(called.set) as interrupts, interrupts.asking(), pytest.raises(KeyboardInterrupt):
        press_ctrl_c()
    assert not called.is_set()


# -- the host, and what it refuses ---------------------------------------------------------------------------------


def test_a_token_comes_from_a_file_with_one_line_and_is_not_in_any_text(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for text, told in (("secret-token\n", "secret-token"), ("# x\n\nann secret-token", "secret-token")):
        file.write_text(text)
        remote = remote_of("http://h/", None, str(file))
        assert remote.bearer == told
        assert "secret" not in repr(remote)
    for text in ("", "ann secret-one\nbob secret-two\n", "sécret"):
        file.write_text(text)
        with pytest.raises(Refusal) as refused:
            remote_of("http://h", None, str(file))
        assert "cret" not in refused.value.message


def test_errors_are_sentences_with_exit_codes() -> None:
    remote = Remote("http://h")
    busy = failure_of(SessionBusy("SESSION_BUSY", 409, HOSTILE), remote)
    assert (busy.exit_code, busy.message) == (1, SHOWN)
    otherwise = failure_of(RequestAlreadyAnswered("REQUEST_ALREADY_ANSWERED", 409, "Too late."), remote)
    assert (type(otherwise), otherwise.exit_code) == (Otherwise, 3)
    assert failure_of(Unauthorized("UNAUTHORIZED", 401, "Who?"), remote).exit_code == 2
    assert failure_of(BadResponse("No host."), remote).exit_code == 2
    gone = GaveUp(None, 0, 4)
    gone.__cause__ = ConnectionLost("The connection to the host is lost: refused.")
    assert failure_of(gone, remote).message.startswith("No host answers at http://h: The connection")
    assert failure_of(GaveUp("ses_1", 7, 4), remote).message.startswith("Gave up on session ses_1 at event 7")


def test_the_inbox_obeys_nothing_and_parses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"sessionId": "s", "agent": HOSTILE, "since": 0, "requestId": "req_1", "kind": "approval"}
    console().print(table_of([{**row, "prompt": HOSTILE, "args": {"x": HOSTILE}}], 60_000))
    told = capsys.readouterr().out
    assert "1 min" in told
    assert "[bold]x[/] \\x1b[2Jgone" in told
    assert "\x1b" not in told
