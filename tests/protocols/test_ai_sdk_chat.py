"""The chat of the npm package `ai`, its own parser and transport, against `zhin-host serve` as a process."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conftest import check_directory
from tests.e2e.process import DEADLINE_S, Host
from tests.protocols import javascript

ROOT: Final = Path(__file__).parents[2]
SCRIPT: Final = "ai_sdk_chat.mjs"
TOKENS: Final = "ada aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\nbob bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"
ADA, BOB = ({"authorization": f"Bearer {letter * 32}"} for letter in "ab")

pytestmark = pytest.mark.timeout(120)  # several processes


class Site:
    """A host that may be killed and started again, and pages that chat with it.

    Attributes:
        host: The one that runs now.
        gate: What a gated turn of the test waits for, a file.
        chat: The id of the test's chat.
    """

    def __init__(self, folder: Path, data_dir: Path) -> None:
        self.chat = "c"
        self.gate = folder / "gates" / "x"
        self.gate.parent.mkdir()
        self._folder = folder
        self._data_dir = data_dir
        self.host = self._started()

    def named(self, name: str) -> Site:
        """The same host, for a test of that name."""
        site = copy(self)
        site.chat, site.gate = name, self.gate.with_name(name)
        return site

    def restart(self) -> None:
        """`kill -9`, and a new process on the same directory."""
        self.host.kill()
        self.host.__exit__(None, None, None)
        self.host = self._started()

    def page(self, *steps: list[Any], chat: str | None = None, **more: Any) -> dict[str, Any]:
        """What a page shows that was opened, did these steps, and was closed."""
        return dict(json.loads(javascript.run(SCRIPT, self._given(chat or self.chat, steps, more))))

    def open_page(self, *steps: list[Any]) -> subprocess.Popen[str]:
        """A page that does these steps meanwhile."""
        command = [str(javascript.NODE), SCRIPT, self._given(self.chat, steps, {})]
        return subprocess.Popen(command, cwd=javascript.FOLDER, stdout=subprocess.PIPE, text=True)

    def _given(self, chat: str, steps: tuple[list[Any], ...], more: dict[str, Any]) -> str:
        url = f"{self.host.url}/ai-sdk/agent"
        return json.dumps({"url": url, "id": chat, "do": steps, **more})

    def _started(self) -> Host:
        return Host(
            self._folder,
            *(
                "--agent",
                "tests.protocols.ai_sdk_app:agent",
                "--protocol",
                "ai-sdk",
                "--data-dir",
                self._data_dir,
            ),
            *("--heartbeat-s", 1),
            PYTHONPATH=str(ROOT),
            ZHIN_TEST_GATES=str(self.gate.parent),
        )


@pytest.fixture
def own(tmp_path: Path, data_dir: Path) -> Iterator[Site]:
    """A host that is the test's alone."""
    site = Site(tmp_path, data_dir)
    try:
        yield site
    finally:
        site.host.__exit__(None, None, None)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("shared")
    site = Site(folder, folder / "sessions")
    try:
        yield site
    finally:
        site.host.__exit__(None, None, None)
        check_directory(folder / "sessions")


@pytest.fixture
def site(shared: Site, request: pytest.FixtureRequest) -> Site:
    """A host that goes on running, and a chat of the test's own."""
    return shared.named(hashlib.sha256(request.node.name.encode()).hexdigest()[:12])


def text_of(page: dict[str, Any]) -> str:
    """The text of the last message."""
    return "".join(part["text"] for part in page["messages"][-1]["parts"] if part["type"] == "text")


def states(page: dict[str, Any]) -> list[tuple[str, str]]:
    """The tool parts of the last message, and how each stands."""
    parts = page["messages"][-1]["parts"]
    return [(part["type"], part["state"]) for part in parts if part["type"].startswith("tool-")]


def reasons(page: dict[str, Any]) -> list[str | None]:
    """How each answer finished."""
    return [finish.get("finishReason") for finish in page["finishes"]]


def plain(messages: list[dict[str, Any]]) -> str:
    """The messages without what differs from chat to chat."""
    parts = [[{**part, "id": "", "toolCallId": ""} for part in row["parts"]] for row in messages]
    return json.dumps(parts, sort_keys=True)


def test_an_answer_is_streamed_and_a_follow_up_knows_what_was_said(site: Site) -> None:
    page = site.page(["send", "think"], ["send", "recall"])
    answer = page["messages"][1]
    kinds = [(part["type"], part.get("text")) for part in answer["parts"]]
    assert kinds == [("step-start", None), ("reasoning", "Let me see."), ("text", "I saw.")]
    assert answer["metadata"]["usage"] == {"inputTokens": 3, "outputTokens": 5}
    assert answer["id"] == answer["metadata"]["turnId"]
    assert (text_of(page), reasons(page), page["status"]) == ("think", ["length", "stop"], "ready")


def test_two_chats_are_two_sessions(site: Site) -> None:
    pages = [site.page(["send", f"hello {chat}"], ["send", "recall"], chat=chat) for chat in ("a/b c", "ä")]
    assert [text_of(page) for page in pages] == ["hello a/b c", "hello ä"]


def test_what_runs_on_the_host_is_a_tool_part_and_the_agents_own_events_are_data(site: Site) -> None:
    page = site.page(["send", "look tea"], ["send", "progress it"], ["load"])
    tool = page["messages"][1]["parts"][1]
    assert (tool["input"], tool["output"], tool["state"]) == (
        {"topic": "tea"},
        {"topic": "tea"},
        "output-available",
    )
    parts = page["messages"][3]["parts"]
    assert [(part["type"], part.get("data")) for part in parts[1:]] == [
        ("data-progress", {"id": "bar", "part": 2}),
        ("data-note", {"text": "it"}),
    ]


@pytest.mark.parametrize(
    ("odd", "shown"),
    [
        ('[{"__proto__": {"a": 1}, "b": 2}]', [{"b": 2}]),
        ('{"constructor": {"prototype": 1, "a": 2}, "b": 3}', {"b": 3}),
        ('{"constructor": {"a": 2}, "": ["\\u2028\\r\\n\\n: data: \\ufffd"]}', None),
    ],
)
def test_no_json_that_a_tool_returns_breaks_the_page(site: Site, odd: str, shown: object) -> None:
    page = site.page(["send", f"json {odd}"])
    [output] = [part["output"] for part in page["messages"][1]["parts"] if "output" in part]
    assert output == (json.loads(odd) if shown is None else shown)
    assert (text_of(page), page["status"]) == ("Read.", "ready")
    assert site.page(["load"])["messages"] == page["messages"]


def test_a_huge_output_comes_whole_and_goes_back_within_the_limit_of_a_body(site: Site) -> None:
    page = site.page(["send", "huge 500000"], ["send", "hello"], ["send", "huge 100000"], ["send", "hello"])
    outputs = [part["output"] for row in page["messages"] for part in row["parts"] if "output" in part]
    assert list(map(len, outputs)) == [500_000, 100_000]
    assert text_of({"messages": page["messages"][:4]}) == "hello"
    assert "BODY_TOO_LARGE" in page["error"]


def test_an_approval_is_given_after_kill_9_and_a_restart_on_the_page_as_it_was_left(own: Site) -> None:
    asked = own.page(["send", "publish cats"])
    assert (states(asked), asked["status"]) == ([("tool-publish", "approval-requested")], "ready")
    own.restart()
    done = own.page(["approve"], messages=asked["messages"])
    assert text_of(done) == "I will publish. It is at /cats."
    assert states(done) == [("tool-publish", "output-available")]
    assert (len(done["messages"]), done["requests"], done["status"]) == (2, 1, "ready")
    assert own.page(["load"])["messages"][1] == done["messages"][1]


@pytest.mark.parametrize("opening", ["resume", "load"])
def test_an_approval_is_refused_after_a_restart_on_a_page_that_is_opened_anew(
    own: Site, opening: str
) -> None:
    own.page(["send", "publish cats"])
    own.restart()
    done = own.page([opening], ["deny", 0, "not today"])
    assert text_of(done) == "I will publish. It stays here."
    assert states(done) == [("tool-publish", "output-denied")]
    approval = next(part["approval"] for part in done["messages"][-1]["parts"] if "approval" in part)
    assert (approval["approved"], approval["reason"]) == (False, "not today")


@pytest.mark.parametrize("order", [[0, 0], [1, 0]])
def test_two_approvals_side_by_side_are_answered_in_either_order(site: Site, order: list[int]) -> None:
    asked = site.page(["send", "both a b"])
    assert states(asked) == [("tool-publish", "approval-requested")] * 2
    done = site.page(*(["approve", at] for at in order), messages=asked["messages"])
    assert (text_of(done), done["requests"]) == ("At /a and /b.", 1)
    assert states(done) == [("tool-publish", "output-available")] * 2


def test_a_question_is_a_tool_part_that_the_page_gives_the_output_of(own: Site) -> None:
    asked = own.page(["send", "ask me"])
    [question] = [part for part in asked["messages"][-1]["parts"] if part["type"] == "tool-ask"]
    assert question["input"] == {"prompt": "Which?", "options": ["tea", "coffee"]}
    own.restart()
    done = own.page(["answer", "tea"], messages=asked["messages"])
    assert (text_of(done), done["requests"], done["status"]) == ("Gladly. Then tea.", 1, "ready")


def test_a_turn_that_says_nothing_after_an_answer_sends_nothing_by_itself(site: Site) -> None:
    done = site.page(["send", "ask me"], ["answer", "nothing"])
    assert (done["requests"], done["status"], states(done)) == (
        2,
        "ready",
        [("tool-ask", "output-available")],
    )


def test_an_agents_own_question_of_yes_or_no_is_an_approval(site: Site) -> None:
    done = site.page(["send", "approve it"], ["approve"])
    assert (text_of(done), done["requests"]) == ("approved: True", 2)
    assert states(done) == [("tool-approve", "output-available")]


def test_an_answer_that_breaks_off_is_whole_again_when_the_page_reconnects(site: Site) -> None:
    page = site.page(
        ["sendCut", f"gate {site.gate.name}", "Waiting"],
        ["beginResume"],
        ["streams"],
        ["touch", str(site.gate)],
        ["settle"],
    )
    assert page["finishes"][0]["isDisconnect"] is True
    assert (text_of(page), page["status"], len(page["messages"])) == ("Waiting. Through.", "ready", 2)
    whole = site.page(["send", f"gate {site.gate.name}"], chat=f"{site.chat}-whole")
    assert plain(page["messages"]) == plain(whole["messages"])


def test_a_page_that_reconnects_after_the_end_may_have_the_whole_answer_too(site: Site) -> None:
    cut = site.page(["sendCut", f"gate {site.gate.name}", "mark"])
    assert text_of(cut) == "Waiting. "
    site.gate.touch()
    site.host.events(cut["messages"][-1]["metadata"]["sessionId"])
    assert text_of(site.page(["resume"], messages=cut["messages"])) == "Waiting. "
    page = site.page(["resume"], messages=cut["messages"], reconnect="?ended=replay")
    assert (text_of(page), page["status"]) == ("Waiting. Through.", "ready")
    assert site.page(["load"])["messages"] == page["messages"]


def test_what_a_crash_voids_is_taken_back_and_what_counts_is_shown_once(own: Site) -> None:
    cut = own.page(["sendCut", f"loose {own.gate.name}", "mark"])
    assert text_of(cut) == "Waiting. "
    own.restart()
    page = own.page(
        ["beginResume"],
        ["streams"],
        ["touch", str(own.gate)],
        ["settle"],
        messages=cut["messages"],
    )
    assert (text_of(page), page["status"]) == ("Waiting. Through.", "ready")
    whole = own.page(["send", f"loose {own.gate.name}"], chat=f"{own.chat}-whole")
    assert plain(page["messages"]) == plain(whole["messages"])
    assert own.page(["load"])["messages"][1] == page["messages"][1]


def test_what_a_broken_try_has_said_is_taken_back_while_the_page_looks_on(site: Site) -> None:
    page = site.page(["send", f"drop {site.gate.name}"])
    assert (text_of(page), page["status"], page["requests"]) == ("First. Once upon a time.", "ready", 1)
    assert states(page) == [("tool-first", "output-available"), ("tool-model", "output-available")]
    assert page["data"][0]["type"] == "data-action-retrying"
    assert site.page(["load"])["messages"] == page["messages"]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_host_that_ends_breaks_the_answer_off_and_does_not_end_it(own: Site, how: str) -> None:
    with own.open_page(
        ["begin", f"loose {own.gate.name}"], ["see", "mark"], ["tell", "seen"], ["settle"]
    ) as page:
        assert page.stdout is not None
        assert page.stdout.readline() == "seen\n"
        getattr(own.host, how)()
        said, _ = page.communicate(timeout=DEADLINE_S)
    shown = json.loads(said)
    assert (shown["status"], shown["finishes"][0]["isError"]) == ("error", True)
    assert text_of(shown) == "Waiting. "
    own.gate.touch()
    own.restart()
    own.host.events(shown["messages"][-1]["metadata"]["sessionId"])
    assert text_of(own.page(["load"])) == "Waiting. Through."


def test_a_page_that_reconnects_when_nothing_runs_gets_nothing(site: Site) -> None:
    assert site.page(["resume"])["messages"] == []
    page = site.page(["send", "hello"], ["resume"])
    assert (page["status"], len(page["messages"]), page["requests"]) == ("ready", 2, 2)


def test_what_runs_beside_an_approval_is_waited_for_and_then_the_answer_is_sent(site: Site) -> None:
    page = site.page(
        ["begin", f"beside {site.gate.name}"],
        ["see", "approval-requested"],
        ["approveMeanwhile"],
        ["touch", str(site.gate)],
        ["settle"],
    )
    assert (text_of(page), page["requests"], page["status"]) == (
        f"gone through, /{site.gate.name}.",
        2,
        "ready",
    )


def test_what_a_crash_cut_off_beside_an_approval_keeps_no_answer_back(own: Site) -> None:
    page = own.open_page(["begin", "beside x"], ["see", "approval-requested"], ["tell", "seen"], ["settle"])
    with page:
        assert page.stdout is not None
        assert page.stdout.readline() == "seen\n"
        own.restart()
        page.communicate(timeout=DEADLINE_S)
    own.gate.touch()
    done = own.page(["resume"], ["approve"])
    assert (text_of(done), done["status"], done["requests"]) == ("gone through, /x.", "ready", 2)
    assert states(done) == [("tool-gate", "output-available"), ("tool-publish", "output-available")]


def test_a_failure_is_an_error_and_another_try_goes_on_from_the_record(site: Site) -> None:
    failed = site.page(["send", f"fail {site.gate.name}"])
    assert (failed["status"], failed["error"]) == ("error", "flaky failed: the gate is closed")
    assert failed["messages"][-1]["metadata"]["failure"] == {"code": "ACTION_FAILED", "recoverable": True}
    site.gate.touch()
    page = site.page(["regenerate"], ["load"], messages=failed["messages"])
    assert (text_of(page), page["status"]) == ("Trying. Then done.", "ready")
    assert len(page["messages"]) == 2
    assert states(page) == [("tool-first", "output-available"), ("tool-flaky", "output-available")]


def test_another_try_asks_again_for_what_was_refused(site: Site) -> None:
    refused = site.page(["send", "publish-uncaught cats"], ["deny"])
    assert (refused["status"], states(refused)) == ("error", [("tool-publish", "output-denied")])
    page = site.page(["regenerate"], ["approve"], messages=refused["messages"])
    assert (states(page), page["status"]) == ([("tool-publish", "output-available")], "ready")
    assert site.page(["load"])["messages"] == page["messages"]


def test_a_message_that_was_answered_cannot_be_answered_anew_nor_edited(site: Site) -> None:
    page = site.page(["send", "one"], ["send", "two"], ["regenerate"])
    assert "NOTHING_TO_RESUME" in page["error"]
    page = site.page(["edit", "three"], messages=site.page(["load"])["messages"])
    assert "cannot be edited" in page["error"]
    assert [row["parts"][0]["text"] for row in site.page(["load"])["messages"][::2]] == ["one", "two"]


def test_a_stop_cancels_the_turn_and_the_chat_goes_on(site: Site) -> None:
    page = site.page(
        ["begin", f"gate {site.gate.name}"], ["see", "Waiting"], ["stop"], ["settle"], ["send", "hello"]
    )
    stopped = page["messages"][1]["parts"]
    assert [part["state"] for part in stopped if part["type"] == "tool-gate"] == ["output-error"]
    assert (reasons(page), text_of(page)) == (["interrupted", "stop"], "hello")


def test_a_page_that_leaves_stops_nothing_and_its_next_message_may_interrupt(site: Site) -> None:
    left = site.page(["begin", f"gate {site.gate.name}"], ["see", "Waiting"], ["abort"], ["send", "hello"])
    assert "SESSION_BUSY" in left["error"]
    page = site.page(["send", "hello"], messages=left["messages"][:2], body={"onBusy": "interrupt"})
    assert (text_of(page), page["status"]) == ("hello", "ready")


def test_a_session_that_the_agent_ended_takes_no_more(site: Site) -> None:
    page = site.page(["send", "end"], ["send", "more"])
    assert text_of({"messages": page["messages"][:2]}) == "Goodbye."
    assert "SESSION_TERMINAL" in page["error"]


def test_an_authorization_is_data_and_the_page_goes_on_by_reconnecting(site: Site) -> None:
    asked = site.page(["send", "authorize mail"])
    [part] = [part for part in asked["messages"][-1]["parts"] if part["type"] == "data-authorization"]
    assert (part["data"]["authUrl"], part["data"]["status"]) == ("https://auth.example", "required")
    site.host.post(f"/authorization/{part['id']}/complete", success=True)
    site.host.events(asked["messages"][-1]["metadata"]["sessionId"])
    assert text_of(site.page(["load"])) == "authorized: True"


def test_the_chat_of_somebody_else_is_not_to_be_seen_answered_or_stopped(
    tmp_path: Path, data_dir: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKENS)
    tokens.chmod(0o600)
    with Host(
        tmp_path,
        *("--agent", "tests.protocols.ai_sdk_app:agent", "--protocol", "ai-sdk"),
        *("--data-dir", data_dir, "--token-file", tokens),
        PYTHONPATH=str(ROOT),
    ) as host:

        def page(*steps: list[Any], **more: Any) -> dict[str, Any]:
            given = {"url": f"{host.url}/ai-sdk/agent", "id": "c", "do": steps, **more}
            return dict(json.loads(javascript.run(SCRIPT, json.dumps(given))))

        asked = page(["send", "publish cats"], headers=ADA)
        assert states(asked) == [("tool-publish", "approval-requested")]
        assert page(["resume"], ["load"], headers=BOB)["messages"] == []
        assert "SESSION_NOT_FOUND" in page(["approve"], headers=BOB, messages=asked["messages"])["error"]
        assert "UNAUTHORIZED" in page(["send", "hello"])["error"]
        assert text_of(page(["send", "recall"], headers=BOB)) == ""
        stopped = host.client.post(f"{host.url}/ai-sdk/agent/d/stop", headers=BOB)
        assert (stopped.status_code, stopped.json()["error"]) == (404, "SESSION_NOT_FOUND")
        assert states(page(["approve"], headers=ADA, messages=asked["messages"])) == [
            ("tool-publish", "output-available")
        ]
