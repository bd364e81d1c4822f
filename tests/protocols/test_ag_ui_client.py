"""The real AG-UI client, its schema checks on, against `zhin-host serve` as a process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import check_directory
from tests.e2e.process import DEADLINE_S, Host
from tests.protocols import apps
from tests.protocols.front import Front, folder_in, types

pytestmark = pytest.mark.timeout(120)  # several processes

Serve = Callable[..., AbstractContextManager[Host]]
Fronts = Callable[..., Front]


@contextmanager
def serving(folder: Path, data_dir: Path, *more: object) -> Iterator[Host]:
    """A host of the tests' agent; again on the same folder after it was killed."""
    shutil.copy(apps.__file__, folder / "apps.py")
    with Host(folder, "--data-dir", data_dir, "--protocol", "ag-ui", "--agent", "apps:agent", *more) as host:
        yield host
        if host.process.poll() is None:
            host.process.terminate()
            assert host.process.wait(DEADLINE_S) == 0
        assert "ERROR zhin_host.http" not in host.errors


@pytest.fixture
def serve(tmp_path: Path, data_dir: Path) -> Callable[..., AbstractContextManager[Host]]:
    """Starts a host of this test's own."""
    return partial(serving, tmp_path, data_dir)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host that outlives its tests, each of which has threads of its own."""
    folder = tmp_path_factory.mktemp("host")
    with serving(folder, folder / "sessions") as host:
        yield host
    check_directory(folder / "sessions")


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that the agent waits for."""
    return tmp_path / "gate"


@pytest.fixture
def front_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fronts]:
    """Makes clients, of a thread of this test's own if not said otherwise."""
    with ExitStack() as stack:
        folder = folder_in(tmp_path)

        def make(host: Host, thread: str = "", token: str | None = None) -> Front:
            front = Front(folder, url_of(host), request.node.name + thread, token)
            return stack.enter_context(front)

        yield make


@pytest.fixture
def front(host: Host, front_of: Fronts) -> Front:
    return front_of(host)


def url_of(host: Host) -> str:
    return f"{host.url}/ag-ui/agent"


def outcome_of(events: list[dict[str, Any]]) -> str:
    outcome: str = events[-1]["outcome"]["type"]
    return outcome


def test_an_answer_is_streamed_as_one_message(front: Front) -> None:
    events = front.say("hello there")
    assert types(events) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert [event["delta"] for event in events if "delta" in event] == ["hello ", "there "]
    assert outcome_of(events) == "success"
    assert front.text == ["user: hello there", "assistant: hello there "]


def test_a_follow_up_goes_on_with_the_thread_as_the_host_remembers_it(front: Front) -> None:
    front.say("hello")
    front.say("recall")
    assert front.text[-1] == "assistant: user: hello; assistant: hello ; "


def test_two_threads_know_nothing_of_each_other(host: Host, front_of: Fronts) -> None:
    one, other = front_of(host, " one"), front_of(host, " other")
    one.say("mine")
    other.say("recall")
    assert other.text == ["user: recall"]


def test_reasoning_calls_and_their_results_stand_in_order(front: Front) -> None:
    front.say("publish cats")
    front.resume({"approved": True})
    assert front.text == [
        "user: publish cats",
        "reasoning: Which page? This one.",
        "assistant: Looking. ",
        "assistant: (publish)",
        "tool: https://pages.example/cats",
        "assistant: Published at https://pages.example/cats.",
    ]


def test_an_approval_is_an_interrupt_that_the_next_run_answers(front: Front) -> None:
    events = front.say("publish cats")
    assert outcome_of(events) == "interrupt"
    [interrupt] = events[-1]["outcome"]["interrupts"]
    [start] = [event for event in events if event["type"] == "TOOL_CALL_START"]
    assert interrupt["reason"] == "tool_call"
    assert interrupt["toolCallId"] == start["toolCallId"]
    assert interrupt["metadata"]["zhin"]["args"] == {"page": "cats"}
    events = front.resume({"approved": True})
    assert types(events) == [
        "RUN_STARTED",
        "MESSAGES_SNAPSHOT",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert outcome_of(events) == "success"
    assert front.shown["pending"] == []


def test_an_approval_is_answered_after_kill_9_and_a_restart(
    serve: Serve, front_of: Fronts, data_dir: Path
) -> None:
    with serve() as host:
        front = front_of(host)
        front.say("publish cats")
        host.kill()
    with serve() as host:
        front.do("move", url=url_of(host))
        assert outcome_of(front.resume({"approved": True})) == "success"
        assert front.text[-2:] == [
            "tool: https://pages.example/cats",
            "assistant: Published at https://pages.example/cats.",
        ]
        front.say("and now")
        assert front.text[-1] == "assistant: and now "
    [log] = data_dir.glob("*.ndjson")
    assert log.read_text().count('"toolName":"publish","status":"completed"') == 1


def test_an_answer_that_was_cut_by_kill_9_is_read_on_and_is_whole(
    serve: Serve, front_of: Fronts, gate: Path
) -> None:
    with serve() as host:
        front = front_of(host)
        front.begin(f"wait {gate}")
        assert front.until("TEXT_MESSAGE_CONTENT")["delta"] == "one "
        host.kill()
        front.failed()
    assert front.text == [f"user: wait {gate}", "assistant: one "]
    with serve() as host:
        front.do("move", url=url_of(host))
        front.do("connect")
        front.until("MESSAGES_SNAPSHOT")
        gate.touch()
        assert outcome_of(front.ended()) == "success"
        assert front.text == [f"user: wait {gate}", "assistant: one two."]


def test_two_pieces_of_an_answer_join_to_what_another_reader_has_whole(
    host: Host, front_of: Fronts, gate: Path
) -> None:
    front, fresh = front_of(host), front_of(host)
    front.begin(f"wait {gate}")
    front.until("TEXT_MESSAGE_CONTENT")
    front.do("abort")
    assert front.line()["event"]["type"] == "RUN_ERROR"  # the client's own, of its abort
    front.ended()
    front.do("connect")
    assert front.until("TEXT_MESSAGE_START")  # the message goes on
    gate.touch()
    assert outcome_of(front.ended()) == "success"
    assert outcome_of(fresh.connect()) == "success"
    assert front.text == fresh.text == [f"user: wait {gate}", "assistant: one two."]
    assert front.shown["messages"][1:] == fresh.shown["messages"][1:]


def test_a_message_that_is_sent_again_begins_no_second_turn(
    serve: Serve, front_of: Fronts, gate: Path, data_dir: Path
) -> None:
    with serve() as host:
        front = front_of(host)
        front.begin(f"wait {gate}")
        front.until("TEXT_MESSAGE_CONTENT")
        front.do("abort")
        front.line()
        front.ended()
        front.do("run")  # the same messages under another run's name
        assert front.until("MESSAGES_SNAPSHOT")
        gate.touch()
        assert outcome_of(front.ended()) == "success"
        assert front.text == [f"user: wait {gate}", "assistant: one two."]
        [log] = data_dir.glob("*.ndjson")
        assert log.read_text().count('"type":"turn.started"') == 1


def test_a_reload_finds_the_conversation_and_what_waits_for_an_answer(host: Host, front_of: Fronts) -> None:
    front_of(host).say("publish cats")
    fresh = front_of(host)
    assert outcome_of(fresh.connect()) == "interrupt"
    assert fresh.text == [
        "user: publish cats",
        "reasoning: Which page? This one.",
        "assistant: Looking. ",
        "assistant: (publish)",
    ]
    fresh.resume({"approved": True})
    fresh.say("thanks")
    assert fresh.text[-3:] == [
        "assistant: Published at https://pages.example/cats.",
        "user: thanks",
        "assistant: thanks ",
    ]


def test_a_denial_that_the_agent_does_not_expect_fails_the_run_and_not_the_thread(front: Front) -> None:
    front.say("publish cats")
    events = front.resume({"approved": False, "comment": "not today"})
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "TOOL_DENIED")
    assert front.text[-1] == "tool: a person refused publish"
    front.do("forget")
    front.say("hello")
    assert front.text[-1] == "assistant: hello "


def test_after_a_failed_run_the_interrupts_it_had_are_given_up_with_the_next_message(front: Front) -> None:
    front.say("publish cats")
    front.resume(False)
    stale = front.answers(None)
    front.do("say", id="next", text="hello")
    front.failed()  # the client itself asks for an entry for each interrupt that it knows
    front.do("run", resume=stale)
    assert outcome_of(front.ended()) == "success"
    assert front.text[-2:] == ["user: hello", "assistant: hello "]


def test_two_approvals_side_by_side_are_asked_and_answered_together(front: Front) -> None:
    events = front.say("both")
    assert [row["message"] for row in events[-1]["outcome"]["interrupts"]] == [
        "Allow publish?",
        "Allow erase?",
    ]
    assert outcome_of(front.resume(True, True)) == "success"
    assert front.text[-1] == "assistant: https://pages.example/new old"


@pytest.mark.parametrize("first", [0, 1])
def test_two_approvals_side_by_side_may_be_answered_in_either_order(
    host: Host, front_of: Fronts, first: int
) -> None:
    front, other = front_of(host), front_of(host)
    waits = front.say("both")[-1]["outcome"]["interrupts"]
    other.do("run", resume=[{"interruptId": waits[first]["id"], "status": "resolved", "payload": True}])
    events = other.ended()
    assert [row["id"] for row in events[-1]["outcome"]["interrupts"]] == [waits[1 - first]["id"]]
    assert "TOOL_CALL_RESULT" in types(events)
    assert outcome_of(front.resume(True, True)) == "success"  # one of them again
    assert front.text[-1] == "assistant: https://pages.example/new old"


def test_one_of_two_approvals_is_answered_before_and_one_after_kill_9(serve: Serve, front_of: Fronts) -> None:
    with serve() as host:
        front = front_of(host)
        waits = front.say("both")[-1]["outcome"]["interrupts"]
        other = front_of(host)
        other.do("run", resume=[{"interruptId": waits[1]["id"], "status": "resolved", "payload": True}])
        other.ended()
        host.kill()
    with serve() as host:
        other.do("move", url=url_of(host))
        assert outcome_of(other.resume(True)) == "success"
        assert other.text[-1] == "assistant: https://pages.example/new old"


def test_a_question_is_answered_with_what_its_schema_allows(front: Front) -> None:
    [interrupt] = front.say("ask")[-1]["outcome"]["interrupts"]
    assert interrupt["reason"] == "input_required"
    assert interrupt["responseSchema"] == {"enum": ["tea", "coffee"]}
    front.resume("tea")
    assert front.text == ["user: ask", "assistant: You said tea."]


def test_a_question_that_is_given_up_cancels_the_turn(front: Front) -> None:
    front.say("ask")
    assert outcome_of(front.resume(None)) == "cancelled"
    front.say("hello")
    assert front.text[-1] == "assistant: hello "


def test_a_confirmation_and_an_authorization_are_interrupts_too(host: Host, front_of: Fronts) -> None:
    one, other = front_of(host, " one"), front_of(host, " other")
    [interrupt] = one.say("approve")[-1]["outcome"]["interrupts"]
    assert interrupt["reason"] == "confirmation"
    one.resume(True)
    assert one.text[-1] == "assistant: True"
    [interrupt] = other.say("authorize")[-1]["outcome"]["interrupts"]
    assert interrupt["reason"] == "zhin:authorization"
    assert interrupt["metadata"]["zhin"]["authUrl"] == "https://login.example"
    other.resume({"success": True})
    assert other.text[-1] == "assistant: True"


def test_an_agent_that_fails_is_the_runs_error_after_what_it_said(front: Front) -> None:
    events = front.say("fail")
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "AGENT_FAILED")
    assert front.text == ["user: fail", "assistant: Well. "]


def test_a_cancelled_turn_is_a_cancelled_run(front: Front, gate: Path) -> None:
    front.begin(f"wait {gate}")
    front.until("TEXT_MESSAGE_CONTENT")
    front.do("cancel")
    status, events = "", []
    for told in iter(front.line, None):
        status = told.get("status", status)
        events += [told["event"]] if "event" in told else []
        if status and events and events[-1]["type"] == "RUN_FINISHED":
            break
    assert status == "accepted"
    assert outcome_of(events) == "cancelled"


def test_leaving_an_answer_does_not_stop_the_turn(host: Host, front_of: Fronts, gate: Path) -> None:
    front = front_of(host)
    front.begin(f"wait {gate}")
    front.until("TEXT_MESSAGE_CONTENT")
    front.do("abort")
    front.line()
    front.ended()
    gate.touch()
    fresh = front_of(host)
    fresh.connect()
    assert fresh.text == [f"user: wait {gate}", "assistant: one two."]


def test_what_does_not_count_is_taken_back_while_it_is_read(front: Front, gate: Path) -> None:
    events = front.say(f"drop {gate}")
    assert types(events).count("MESSAGES_SNAPSHOT") == 1
    assert {event["name"] for event in events if event["type"] == "CUSTOM"} == {"action.retrying"}
    assert front.text[-2:] == ["tool: told", "assistant: Once upon a time."]
    assert "Once " not in [row.removeprefix("assistant: ") for row in front.text]


def test_saved_state_usage_and_events_of_the_agents_own_are_told(front: Front) -> None:
    events = front.say("state")
    assert front.shown["state"] == {"count": 1}
    [custom] = [event for event in events if event["type"] == "CUSTOM"]
    assert (custom["name"], custom["value"]) == ("x.progress", {"percent": 50})
    assert events[-1]["usage"] == [{"model": "none", "inputTokens": 3, "outputTokens": 4}]


def test_a_request_that_expired_cannot_be_allowed_any_more_and_is_given_up(
    front: Front,
) -> None:
    front.begin("hurry")
    events = front.ended()
    if events[-1]["type"] == "RUN_FINISHED":  # else it expired before the run could end
        stale = front.answers(None)
        front.do("run", resume=stale)
        events = front.ended()
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "REQUEST_EXPIRED")


def test_a_busy_thread_refuses_another_message(host: Host, front_of: Fronts) -> None:
    front_of(host).say("publish cats")
    other = front_of(host)
    other.begin("hello")
    failed = other.failed()
    assert (failed["status"], failed["payload"]["error"]) == (409, "SESSION_BUSY")
    assert len(failed["payload"]["pendingRequestIds"]) == 1


def test_somebody_elses_thread_is_not_found(serve: Serve, front_of: Fronts, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ada {'a' * 32}\nbob {'b' * 32}\n")
    tokens.chmod(0o600)
    with serve("--token-file", tokens) as host:
        ada, bob = (front_of(host, token=letter * 32) for letter in "ab")
        ada.say("publish cats")
        bob.do("connect")
        assert bob.failed()["status"] == 404
        bob.do("run", resume=ada.answers(True))
        assert bob.failed()["status"] == 404
        nobody = front_of(host)
        nobody.begin("hello")
        assert nobody.failed()["status"] == 401
        assert outcome_of(ada.resume(True)) == "success"
