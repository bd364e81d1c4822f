"""The commands that speak to a running host, as a script uses them: `send`, `approve`, `deny`, `answer`, `cancel`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from click.testing import CliRunner

from tests.e2e.process import COMMAND, DEADLINE_S, Host, environment, run, types
from tests.e2e.terminal import CTRL_C, Terminal
from zhin_host.cli import main

pytestmark = pytest.mark.timeout(180)  # each may start several processes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[Host]:
    with Host(folder, "--data-dir", folder / "sessions") as host:
        yield host


def command(host: Host, folder: Path, *arguments: object) -> CompletedProcess[str]:
    """The command in this process, since starting one takes a moment; some tests start one all the same."""
    told = [str(one) for one in arguments]
    done = CliRunner().invoke(main, told, env={"ZHIN_URL": host.url}, prog_name="zhin-host")
    return CompletedProcess(told, done.exit_code, done.stdout, done.stderr)


def answered(host: Host, folder: Path, *arguments: object) -> dict[str, Any]:
    done = command(host, folder, *arguments)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_send_begins_a_session_and_goes_on_with_it(host: Host, folder: Path) -> None:
    done = run("send", "list my notes", cwd=folder, ZHIN_URL=host.url)
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert done.stdout.startswith("You have")
    [session_id] = re.findall(r"Session (ses_\w+)\n", done.stderr)
    result = answered(host, folder, "send", session_id, "what did I say before?", "--json")
    assert result["sessionId"] == session_id
    assert result["status"] == "completed"
    assert result["text"] == "You said before:\n- list my notes"
    listed = answered(host, folder, "send", "--session", session_id, "list my notes", "--json")
    assert [(call["toolName"], call["status"]) for call in listed["calls"]] == [("list_notes", "completed")]


def test_send_prints_events_as_they_stand_in_the_log(host: Host, folder: Path) -> None:
    done = command(host, folder, "send", "hello", "--events")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events == host.events(events[0]["data"]["sessionId"])


def test_send_without_waiting_says_where_to_read_on_and_a_key_begins_one_turn(
    host: Host, folder: Path
) -> None:
    first = answered(host, folder, "send", "hello", "--no-wait", "--json", "--key", "one-key")
    again = answered(host, folder, "send", "hello", "--no-wait", "--json", "--key", "one-key")
    assert first == again
    assert first["startIndex"] == 0
    assert types(host.events(first["sessionId"])).count("turn.started") == 1
    done = command(host, folder, "send", "hello", "--no-wait", "--key", "one-key")
    assert done.stdout == first["sessionId"] + "\n"


def test_what_is_asked_is_approved_by_its_id_or_by_its_session(host: Host, folder: Path) -> None:
    asked = command(host, folder, "send", "write a note one: x", "--json")
    assert asked.returncode == 4
    result = json.loads(asked.stdout)
    [request_id] = [row["requestId"] for row in result["requests"]]
    assert result["status"] == "waiting"
    assert f"Answer with `zhin-host approve {request_id}`, or `deny`." in asked.stderr
    approved = run("approve", request_id, "--comment", "fine", cwd=folder, ZHIN_URL=host.url)
    assert (approved.returncode, approved.stdout) == (
        0,
        f"Approved: Allow write_note? in {result['sessionId']}\n",
    )
    [told] = [row for row in host.events(result["sessionId"]) if row["type"] == "input.completed"]
    assert told["data"]["comment"] == "fine"
    again = answered(host, folder, "approve", result["sessionId"], request_id, "--json")
    assert again["alreadyAnswered"] is True
    otherwise = command(host, folder, "deny", request_id)
    assert otherwise.returncode == 3
    assert otherwise.stderr.startswith("Error: ")
    accepted, _ = host.parked("delete one")
    denied = answered(host, folder, "deny", accepted["sessionId"], "--json")
    assert denied["answer"] is False
    nothing = command(host, folder, "approve", accepted["sessionId"])
    assert (nothing.returncode, nothing.stderr) == (
        1,
        f"Error: Nothing waits for a person in {accepted['sessionId']}.\n",
    )


def test_a_question_is_answered_in_words_or_as_json_and_not_approved(host: Host, folder: Path) -> None:
    accepted, request_id = host.parked("ask me something")
    wrong = command(host, folder, "approve", request_id)
    assert wrong.returncode == 1
    assert "of kind question: Which do you like best? Use `zhin-host answer`." in wrong.stderr
    assert answered(host, folder, "answer", request_id, "tea", "--json")["answer"] == "tea"
    assert host.events(accepted["sessionId"])[-1]["type"] == "session.waiting"
    accepted, _ = host.parked("ask me something")
    many = answered(host, folder, "answer", accepted["sessionId"], '["tea", 2]', "--as-value", "--json")
    assert many["answer"] == ["tea", 2]
    assert command(host, folder, "answer", request_id, "{", "--as-value").returncode == 2


def test_a_session_is_exported_from_a_host_as_from_its_files(host: Host, folder: Path) -> None:
    accepted, _ = host.parked("write a note two: \u2028 1.0 \x85 ```")
    session_id = accepted["sessionId"]
    from_host = CliRunner().invoke(main, ["export", session_id, "--url", host.url])
    assert from_host.stdout_bytes == (folder / "sessions" / f"{session_id}.ndjson").read_bytes()
    forms = [
        command(host, folder, "export", session_id, "--format", "markdown", *where).stdout
        for where in (("--url", host.url), ("--data-dir", folder / "sessions"))
    ]
    assert forms[0] == forms[1]
    assert "**demo asks** (approval)" in forms[0]
    assert command(host, folder, "export", "ses_" + "0" * 26, "--url", host.url).returncode == 1


def test_cancel_ends_the_open_turn_only(host: Host, folder: Path) -> None:
    accepted, _ = host.parked("delete one")
    assert command(host, folder, "cancel", accepted["sessionId"], "--turn", "turn_other").stdout.startswith(
        "No such turn is open"
    )
    assert answered(host, folder, "cancel", accepted["sessionId"], "--json")["status"] == "accepted"
    assert "turn.cancelled" in types(host.events(accepted["sessionId"]))
    assert answered(host, folder, "cancel", accepted["sessionId"], "--json")["status"] == "no_active_turn"


def test_end_waits_for_nobody_and_ends_a_session_for_good(host: Host, folder: Path) -> None:
    accepted, _ = host.parked("delete one")
    session_id = accepted["sessionId"]
    busy = command(host, folder, "end", session_id)
    assert (busy.returncode, busy.stdout) == (1, "")
    assert "cancel" in busy.stderr
    command(host, folder, "cancel", session_id)
    with host.stream(session_id) as parts:
        assert any(b'"type":"turn.cancelled"' in part for part in parts)
    told = answered(host, folder, "end", session_id, "--failed", "--message", "No use.", "--json")
    assert told == {"sessionId": session_id, "status": "failed"}
    last = host.events(session_id)[-1]
    assert (last["type"], last["data"]["message"]) == ("session.failed", "No use.")
    assert command(host, folder, "end", session_id, "--failed").stdout == (
        f"The session has ended as failed: {session_id}\n"
    )
    assert command(host, folder, "end", session_id).returncode == 1
    assert command(host, folder, "send", session_id, "hello").returncode == 1


def test_what_is_refused_is_a_sentence_with_its_exit_code(host: Host, folder: Path) -> None:
    for arguments, code, told in (
        (("send", "a", "b"), 2, "Write one message, in quotes"),
        (("send", "ses_" + "0" * 26), 2, "Write one message, in quotes"),
        (("send", "ses_" + "0" * 26, "hello"), 1, "session"),
        (("approve", "req_" + "0" * 26 + "_x"), 1, "session"),
        (("approve", "nonsense", "nonsense"), 2, "Write the request's id alone"),
        (("cancel", "../etc"), 1, "session"),
        (("send", "hello", "--agent", "nobody"), 1, "agent"),
        (("send", "hello", "--url", "ftp://x"), 2, "--url 'ftp://x' is no address"),
        (("send", "hello", "--token-file", "missing"), 2, "missing, cannot be read"),
    ):
        done = command(host, folder, *arguments)
        assert (done.returncode, done.stdout) == (code, ""), (arguments, done.stderr)
        assert told in done.stderr
        assert "Traceback" not in done.stderr


def test_a_token_is_taken_from_a_file_or_a_variable_and_never_shown(tmp_path: Path) -> None:
    token = "t0ken-" + "x" * 40
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# who\nann {token}\n")
    tokens.chmod(0o600)
    with Host(tmp_path, "--data-dir", tmp_path / "d", "--token-file", tokens) as host:
        unknown = run("send", "hello", "--url", host.url, "--no-wait", cwd=tmp_path)
        assert unknown.returncode == 2
        assert unknown.stderr.endswith("Give it with ZHIN_TOKEN or --token-file.\n")
        by_file = run("send", "hello", "--url", host.url, "--no-wait", "--token-file", tokens, cwd=tmp_path)
        by_name = run("send", "hello", "--no-wait", cwd=tmp_path, ZHIN_URL=host.url, ZHIN_TOKEN=token)
        wrong = run("send", "hello", cwd=tmp_path, ZHIN_URL=host.url, ZHIN_TOKEN=token + "y")
        told = run("send", "--help", cwd=tmp_path, ZHIN_TOKEN=token)
        for done in (unknown, by_file, by_name, wrong, told):
            assert token not in done.stdout + done.stderr
        assert (by_file.returncode, by_name.returncode, wrong.returncode) == (0, 0, 2)


def test_watch_shows_what_waits_over_all_sessions(host: Host, folder: Path) -> None:
    _, hostile = host.parked("write a note watched: [red]x \u202e\x1b[2J")
    _, request_id = host.parked("delete watched")
    once = command(host, folder, "watch", "--once", "--text")
    assert once.returncode == 0
    lines = once.stdout.splitlines()  # an id has a line of its own, whole, and what it asks the next
    [at] = [at for at, line in enumerate(lines) if line.split()[-1:] == [request_id]]
    assert 'approval, demo: Allow delete_note? {"name":"watched"}' in lines[at + 1]
    [at] = [at for at, line in enumerate(lines) if line.split()[-1:] == [hostile]]
    assert '"[red]x \\u202e\\u001b[2J"' in "".join(line.strip() for line in lines[at + 1 : at + 3])
    assert "zhin-host approve REQUEST" in lines[-1]
    rows = [json.loads(line) for line in command(host, folder, "watch", "--once").stdout.splitlines()]
    assert request_id in [row["requestId"] for row in rows]
    for kind in ("dumb", "xterm"):  # a line for each that opens, and a table that changes in its place
        with Terminal(folder, "watch", "--every", "0.2", ZHIN_URL=host.url, TERM=kind) as person:
            person.expect(request_id)
            _, other = host.parked("delete more")
            person.expect(other)
            person.press(CTRL_C)
            assert person.end() == 0


def test_watch_as_json_tells_of_each_request_that_opens_and_closes(host: Host, folder: Path) -> None:
    watching = subprocess.Popen(
        [COMMAND, "watch", "--every", "0.2"],
        cwd=folder,
        env=environment(ZHIN_URL=host.url, PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    try:
        accepted, request_id = host.parked("delete other")

        def told(change: str) -> None:
            for line in watching.stdout or ():
                row = json.loads(line)
                if (row["change"], row["requestId"]) == (change, request_id):
                    return

        told("opened")
        host.post(f"/session/{accepted['sessionId']}/input", requestId=request_id, approved=False)
        told("closed")
    finally:
        watching.send_signal(signal.SIGINT)
        watching.stdout.close()
        assert watching.wait(DEADLINE_S) == 0
