"""`zhin-host chat` as a person uses it: in a pseudo-terminal, against a host that is a process and may be killed."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.process import COMMAND, DEADLINE_S, Host, environment, run, types
from tests.e2e.terminal import CTRL_C, CTRL_D, Terminal

pytestmark = pytest.mark.timeout(180)  # each may start several processes

AGENT = '''
import asyncio
from zhin_host import ToolDenied, Turn, tool

@tool(approval="always", repeatable=False)
async def publish(page: str) -> str:
    """Publish a page for everybody to see."""
    if page == "slow":
        await asyncio.sleep(60)
    return "/" + page

async def agent(turn: Turn) -> None:
    word, _, rest = turn.message.partition(" ")
    if word == "publish":
        await turn.think("What does she want? ")
        await turn.say("One moment. ")
        try:
            await turn.say("It is at " + await turn.call_tool(publish, page=rest))
        except ToolDenied:
            await turn.say("Then not.")
    elif word == "both":
        calls = [turn.call_tool(publish, page=page) for page in ("one", "two")]
        await turn.say(" and ".join(await asyncio.gather(*calls)))
    elif word == "slow":
        for number in range(3000):
            await turn.say(f"word{number} ")
            await asyncio.sleep(0.02)
    elif word == "fail":
        raise ValueError(rest)
    else:
        await turn.say(f"You said {turn.message}\\nand that is all. \\x1b[31mred\\x07")

agent.tools = [publish]
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(AGENT)
    return tmp_path


@pytest.fixture
def host(folder: Path, data_dir: Path) -> Iterator[Host]:
    with Host(folder, "--data-dir", data_dir, "--agent", "own:agent") as host:
        yield host


def chat(folder: Path, host: Host, *arguments: object) -> Terminal:
    return Terminal(folder, "chat", "--url", host.url, *arguments)


def session_in(text: str) -> str:
    return str(re.findall(r"Session (ses_\w{26})", text)[-1])


def test_a_conversation_streams_and_says_how_to_go_on(folder: Path, host: Host) -> None:
    with chat(folder, host) as person:
        person.expect("> ")
        person.type("hello")
        person.expect("You said hello\nand that is all. \\x1b[31mred\\x07\n> ")
        person.type("")
        person.expect("> ")
        person.press(CTRL_D)
        assert person.end() == 0
        session_id = session_in(person.text)
        assert f"go on with: zhin-host chat --session {session_id} --url {host.url}" in person.text
    with chat(folder, host, "--session", session_id) as person:
        person.expect("1 turns so far")
        person.expect("you: hello")
        person.expect("You said hello")
        person.expect("> ")
        person.type("again")
        person.expect("You said again")
        person.expect("> ")
        person.interrupt_at_prompt()
        assert person.end() == 0
    assert types(host.events(session_id)).count("turn.started") == 2


def test_an_approval_is_asked_inline_with_tool_arguments_and_risk(folder: Path, host: Host) -> None:
    with chat(folder, host) as person:
        person.expect("> ")
        person.type("publish home")
        shown = person.expect("allow? y/n")
        for told in (
            "What does she want?",
            "One moment.",
            '• publish {"page":"home"}',
            "? Allow publish?",
            "tool       publish - Publish a page for everybody to see.",
            "page       home",
            "risk       it is not safe to repeat",
        ):
            assert told in shown
        person.type("perhaps")
        person.expect("allow? y/n")
        person.type("y looks good")
        person.expect("approved: looks good")
        person.expect("• publish ✓ /home")
        person.expect("It is at /home\n> ")
        person.type("publish away")
        person.expect("allow? y/n")
        person.type("n")
        person.expect("denied")
        person.expect("Then not.\n> ")
        person.press(CTRL_D)
        assert person.end() == 0


def test_ctrl_c_cancels_the_turn_and_returns_to_the_prompt(folder: Path, host: Host) -> None:
    with chat(folder, host) as person:
        person.expect("> ")
        person.type("slow")
        person.expect("word5 ")
        person.press(CTRL_C)
        person.expect("The turn was cancelled.\n")
        person.expect("> ")
        person.type("publish home")
        person.expect("then a comment if you like> ")
        person.interrupt_at_prompt()
        person.expect("The turn was cancelled.\n")
        person.expect("> ")
        person.type("hello")
        person.expect("You said hello")
        person.expect("> ")
        person.interrupt_at_prompt()
        assert person.end() == 0
    assert types(host.events(session_in(person.text))).count("turn.cancelled") == 2


def test_two_requests_are_asked_one_after_the_other_and_cancelled_together(folder: Path, host: Host) -> None:
    with chat(folder, host) as person:
        person.expect("> ")
        person.type("both")
        person.expect("page       one")
        person.expect("allow? y/n")
        person.type("y")
        person.expect("page       two")
        person.expect("allow? y/n")
        person.type("y")
        person.expect("/one and /two\n> ")
        person.type("both")
        person.expect("then a comment if you like> ")
        person.interrupt_at_prompt()
        assert "allow? y/n" not in person.expect("The turn was cancelled.\n")
        person.expect("> ")


def test_a_request_that_somebody_else_answers_is_told(folder: Path, host: Host) -> None:
    with chat(folder, host) as person:
        person.expect("> ")
        person.type("publish home")
        person.expect("allow? y/n")
        [row] = host.client.get("/sessions").json()["sessions"]
        [request_id] = row["pendingRequestIds"]
        host.post(f"/session/{row['sessionId']}/input", requestId=request_id, approved=False, comment="mine")
        person.type("y")
        person.expect("denied: mine")
        person.expect("Then not.\n> ")
        later = host.client.get(f"/session/{row['sessionId']}").json()
        host.say("from elsewhere", later)
        host.events(row["sessionId"])
        person.type("hello")
        person.expect("Somebody else went on with the session")
        person.expect("Somebody else said: from elsewhere")
        person.expect("You said from elsewhere")
        person.expect("> ")
        person.type("hello")
        person.expect("You said hello")


def test_leaving_at_an_approval_leaves_it_open_and_the_next_chat_asks_it(folder: Path, host: Host) -> None:
    with chat(folder, host) as person:
        person.expect("> ")
        person.type("publish home")
        person.expect("allow? y/n")
        person.press(CTRL_D)
        person.expect("It waits for an answer.")
        assert person.end() == 0
    with chat(folder, host, "--session", session_in(person.text)) as person:
        person.expect("page       home")
        person.expect("allow? y/n")
        person.type("y")
        person.expect("It is at /home")
        person.expect("> ")


def test_kill_9_of_the_host_is_told_and_what_it_voids_is_marked(
    folder: Path, host: Host, data_dir: Path
) -> None:
    with chat(folder, host) as person:
        person.expect("> ")
        person.type("publish slow")
        person.expect("allow? y/n")
        host.kill()
        port = host.url.rsplit(":", 1)[1]
        with Host(folder, "--data-dir", data_dir, "--agent", "own:agent", "--port", port) as again:
            person.type("y")
            person.expect("approved")
            again.kill()
            person.expect("The host is not reached; trying again.")
            with Host(folder, "--data-dir", data_dir, "--agent", "own:agent", "--port", port):
                person.expect("The host is back.")
                person.expect("it may have run already")
                person.expect("allow? y/n")
                person.type("n not again")
                person.expect("denied: not again")
                person.expect("Then not.\n> ")
                person.type("slow")
                person.expect("word9 ")
            with Host(folder, "--data-dir", data_dir, "--agent", "own:agent", "--port", port):
                person.expect("[discarded: the host stopped and began again; what it said from 'word0 word1")
                person.expect("word9 ")
                person.press(CTRL_C)
                person.expect("The turn was cancelled.")
                person.expect("> ")
                person.press(CTRL_D)
                assert person.end() == 0


def piped(folder: Path, host: Host, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "chat", "--url", host.url, *arguments],
        cwd=folder,
        env=environment(),
        input=text,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_from_a_pipe_each_line_is_a_message_and_only_what_is_said_is_on_stdout(
    folder: Path, host: Host
) -> None:
    done = piped(folder, host, "one\n\npublish home\nthree", "--yes")
    said = "You said {}\nand that is all. \\x1b[31mred\\x07\n"
    assert done.stdout == said.format("one") + "One moment. \nIt is at /home\n" + said.format("three")
    assert done.returncode == 0
    assert '• publish {"page":"home"}' in done.stderr
    refused = piped(folder, host, "publish home\n", "--no")
    assert (refused.returncode, refused.stdout) == (0, "One moment. \nThen not.\n")


def test_from_a_pipe_an_approval_that_nobody_can_answer_is_a_sentence(folder: Path, host: Host) -> None:
    done = piped(folder, host, "publish home\nnever sent\n")
    assert done.returncode == 4
    session_id = session_in(done.stderr)
    [request_id] = host.events(session_id)[-1]["data"]["pendingRequestIds"]
    assert (
        f"nobody is here to answer: Allow publish? Answer with `zhin-host approve {request_id}`"
        in done.stderr
    )
    failed = piped(folder, host, "fail now\n")
    assert failed.returncode == 1
    assert "The turn failed, AGENT_FAILED" in failed.stderr


def test_events_as_json_lines_are_those_of_the_log(folder: Path, host: Host) -> None:
    done = piped(folder, host, "one\ntwo\n", "--json")
    assert done.returncode == 0
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events == host.events(session_in(done.stderr))


def test_a_host_that_is_not_there_is_a_sentence(folder: Path) -> None:
    done = run("chat", "--url", "http://127.0.0.1:9", cwd=folder)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Error: No host answers at http://127.0.0.1:9: ")
    assert "`zhin-host serve`" in done.stderr
