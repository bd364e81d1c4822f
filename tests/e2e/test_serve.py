"""`zhin-host serve` from outside: how it starts, works, stops, is killed and comes back, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.e2e.process import COMMAND, DEADLINE_S, Host, environment, run, spoken, types

ROOT = Path(__file__).parents[2]

AGENT = '''
import asyncio

async def agent(turn):
    """Fail in a way that a terminal would obey, hang until the host ends, or answer."""
    if turn.message == "fail":
        raise ValueError("bad \\x1b[2J \\u202e thing\\nforged line")
    if turn.message == "hang":
        await turn.say("waiting ")
        if turn.attempt == 1:
            await asyncio.Event().wait()
    await turn.say("mine: " + turn.message)

class Once:
    name = "once"
    resumable = False

    async def __call__(self, turn):
        await agent(turn)

once = Once()
'''


@pytest.fixture
def own_agent(tmp_path: Path) -> str:
    (tmp_path / "my_agent.py").write_text(AGENT)
    return "my_agent:agent"


# -- starting ---------------------------------------------------------------------------------------------------


def test_it_prints_one_line_when_it_accepts_requests(tmp_path: Path) -> None:
    with Host(tmp_path) as host:
        expected = f"Listening on {host.url}, sessions in {tmp_path}/data/http-agent-sessions (0 found)\n"
        assert host.line == expected
        assert host.client.get("/health").json() == {"ok": True, "service": "zhin-agent-session"}
        host.events(host.say("hello")["sessionId"])
        assert "no --token-file: every process on this machine may" in host.errors
        assert host.stop() == ""
    with Host(tmp_path) as host:
        assert host.sessions_found == 1
        host.stop()


def test_it_keeps_nothing_in_memory_mode(tmp_path: Path) -> None:
    with Host(tmp_path, "--memory") as host:
        assert "sessions in memory only (0 found)" in host.line
        assert "message.completed" in types(host.events(host.say("hello")["sessionId"]))
        host.stop()
    assert [path.name for path in tmp_path.iterdir()] == ["stderr.txt"]


def test_an_agent_of_ones_own_is_found_in_the_working_directory(
    tmp_path: Path, own_agent: str, data_dir: Path
) -> None:
    with Host(tmp_path, "--agent", own_agent, "--data-dir", data_dir) as host:
        assert spoken(host.events(host.say("hi")["sessionId"])) == "mine: hi"
        host.stop()


def test_settings_come_from_flags_before_the_environment(tmp_path: Path) -> None:
    with Host(tmp_path, "--memory", "--idle-s", "7", ZHIN_IDLE_S="8", ZHIN_STREAMS_MAX="9") as host:
        limits = host.client.get("/info").json()["limits"]
        assert (limits["idle_s"], limits["streams_max"]) == (7, 9)


# -- working ----------------------------------------------------------------------------------------------------


def test_a_turn_with_an_approval_runs_end_to_end(tmp_path: Path, data_dir: Path) -> None:
    notes = tmp_path / "notes"
    with Host(tmp_path, "--data-dir", data_dir, ZHIN_DEMO_WORKSPACE=str(notes)) as host:
        accepted, request_id = host.parked("write a note shopping: milk, eggs")
        assert not notes.exists()
        at = len(host.events(accepted["sessionId"]))
        path = f"/session/{accepted['sessionId']}/input"
        assert host.post(path, requestId=request_id, approved=True)["approved"] is True
        events = host.events(accepted["sessionId"], at)
        assert events[-1]["data"]["reason"] == "idle"
        assert (notes / "shopping.txt").read_text() == "milk, eggs"
        log = (data_dir / f"{accepted['sessionId']}.ndjson").read_bytes()
        assert log == host.client.get(f"/session/{accepted['sessionId']}/stream").content
        host.stop()


def test_tokens_guard_an_address_that_others_reach(tmp_path: Path, data_dir: Path) -> None:
    secret = "s3cret-token-of-ada-0123456789"
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# who may call\nada {secret}\n")
    tokens.chmod(0o600)
    with Host(tmp_path, "--host", "0.0.0.0", "--token-file", tokens, "--data-dir", data_dir) as host:  # noqa: S104
        port = host.url.rsplit(":", 1)[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/zhin/v1", timeout=DEADLINE_S) as client:
            assert client.get("/sessions").status_code == 401
            assert client.get("/health").status_code == 200
            bearer = {"Authorization": f"Bearer {secret}"}
            started = client.post("/session", json={"message": "hello"}, headers=bearer).json()
            path = f"/session/{started['sessionId']}"
            assert client.get(f"{path}/stream", headers=bearer).status_code == 200
            assert client.get(path).status_code == 401
            view = client.get(path, headers=bearer).json()
        assert view["owner"] == "ada"
        host.stop()
        assert "no --token-file" not in host.errors
        assert f"session.started sessionId={started['sessionId']} agent=demo by=ada" in host.errors
        for hidden in (secret, view["continuationToken"]):
            assert hidden not in host.errors


def test_a_token_file_says_who_may_do_what(tmp_path: Path, data_dir: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(
        "ada ada-0123456789abcdef\n"
        "ada ada-phone-0123456789abcdef read,approve\n"
        "bob bob-0123456789abcdef read:all,approve:all\n"
        "ops ops-0123456789abcdef admin\n"
    )
    tokens.chmod(0o600)
    with Host(tmp_path, "--token-file", tokens, "--data-dir", data_dir) as host:
        bearers = {
            name: {"authorization": f"Bearer {name}-0123456789abcdef"}
            for name in ("ada", "ada-phone", "bob", "ops")
        }
        host.client.headers.update(bearers["ada"])
        session, request_id = host.parked("write a note tea: buy some")
        path = f"/session/{session['sessionId']}"
        write = {"message": "hello", "continuationToken": session["continuationToken"]}
        for name in ("ada-phone", "bob"):
            assert host.client.get(path, headers=bearers[name]).status_code == 200
            refused = host.client.post(path, json=write, headers=bearers[name])
            assert (refused.status_code, refused.json()["error"]) == (403, "FORBIDDEN")
        answer = {"requestId": request_id, "approved": True}
        assert host.client.post(f"{path}/input", json=answer, headers=bearers["bob"]).status_code == 200
        [completed] = [
            row["data"] for row in host.events(session["sessionId"]) if row["type"] == "input.completed"
        ]
        assert completed["by"] == "bob"
        assert host.client.delete(path, headers=bearers["ops"]).status_code == 200
        host.stop()
        assert re.search(r"input\.completed .* outcome=approved by=bob\n", host.errors)


def test_what_an_agent_says_is_escaped_in_the_log(tmp_path: Path, own_agent: str, data_dir: Path) -> None:
    with Host(tmp_path, "--agent", own_agent, "--data-dir", data_dir) as host:
        events = host.events(host.say("fail")["sessionId"])
        assert "turn.failed" in types(events)
        assert host.say("hi")["ok"]
        assert "\\x1b[2J \\u202e thing" in host.errors
        assert "\x1b" not in host.errors
        assert "\u202e" not in host.errors
        assert not any(line.startswith("forged") for line in host.errors.splitlines())


LOGIN = """
from zhin_host import Principal, Unauthorized

class Login:
    async def authenticate(self, headers):
        if headers.get(b"authorization") == b"Bearer of-ada":
            return Principal("ada", frozenset({"read", "write"}))
        raise Unauthorized("Log in.")

login = Login()
"""


def test_an_authenticator_of_ones_own_guards_an_address_that_others_reach(
    tmp_path: Path, data_dir: Path
) -> None:
    (tmp_path / "my_login.py").write_text(LOGIN)
    arguments = ("--host", "0.0.0.0", "--data-dir", data_dir)  # noqa: S104
    with Host(tmp_path, *arguments, ZHIN_AUTHENTICATOR="my_login:login") as host:
        host.client.base_url = host.client.base_url.copy_with(host="127.0.0.1")
        assert host.client.get("/sessions").json()["message"] == "Log in."
        host.client.headers["authorization"] = "Bearer of-ada"
        session = host.say("hello")
        assert host.client.get(f"/session/{session['sessionId']}").json()["owner"] == "ada"
        answer = {"requestId": "req_x", "approved": True}
        assert host.client.post(f"/session/{session['sessionId']}/input", json=answer).status_code == 403
        host.stop()
        assert "no --token-file" not in host.errors


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("my_login", "--authenticator 'my_login' is not of the form module:attribute"),
        ("my_logout:login", "The authenticator 'my_logout:login' cannot be imported"),
        ("my_login:Login", "The authenticator is a class"),
        ("my_login:Principal", "The authenticator is a class"),
    ],
)
def test_what_is_no_authenticator_stops_the_start(tmp_path: Path, reference: str, sentence: str) -> None:
    (tmp_path / "my_login.py").write_text(LOGIN)
    refused = run("serve", "--memory", "--port", "0", "--authenticator", reference, cwd=tmp_path)
    assert refused.returncode == 2
    assert sentence in " ".join(refused.stderr.split())


def test_two_who_say_who_may_call_are_one_too_many(tmp_path: Path) -> None:
    (tmp_path / "my_login.py").write_text(LOGIN)
    both = ("--authenticator", "my_login:login", "--token-file", "tokens")
    refused = run("serve", "--memory", "--port", "0", *both, cwd=tmp_path)
    assert (refused.returncode, "leave one of them out" in refused.stderr) == (2, True)


@pytest.mark.parametrize("line", ["ada ada-0123456789abcdef reed", "ada ada-0123456789abcdef read write"])
def test_a_token_file_with_a_scope_that_means_nothing_stops_the_start(tmp_path: Path, line: str) -> None:
    (tmp_path / "tokens").write_text(line + "\n")
    refused = run("serve", "--memory", "--port", "0", "--token-file", "tokens", cwd=tmp_path)
    assert refused.returncode == 2
    assert "The token file tokens, line 1:" in refused.stderr
    assert "0123456789abcdef" not in refused.stderr


# -- stopping ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_streams_after_their_last_line_and_leaves_what_is_open_on_disk(
    tmp_path: Path, data_dir: Path, own_agent: str, number: signal.Signals
) -> None:
    with Host(tmp_path, "--data-dir", data_dir, "--agent", own_agent) as host:
        hanging = host.say("hang")
        ended: list[bytes] = []
        with ExitStack() as stack:
            idle = host.say("hi")
            host.events(idle["sessionId"])
            streams = [
                stack.enter_context(host.stream(session["sessionId"])) for session in [hanging, idle] * 5
            ]
            content = [next(stream) for stream in streams]
            readers = [
                threading.Thread(
                    target=lambda at=at, stream=stream: ended.append(content[at] + b"".join(stream))
                )
                for at, stream in enumerate(streams)
            ]
            for reader in readers:
                reader.start()
            host.stop(number)
            for reader in readers:
                reader.join(DEADLINE_S)
        logs = {(data_dir / f"{session['sessionId']}.ndjson").read_bytes() for session in (hanging, idle)}
        assert len(ended) == 10  # none was broken off: iter_raw raises then
        assert {content.replace(b"\n\n", b"\n").lstrip(b"\n") for content in ended} == logs
        assert (data_dir / f"{hanging['sessionId']}.open").read_text() == "stopped"
        assert sorted(path.suffix for path in data_dir.glob(f"{idle['sessionId']}.*")) == [".json", ".ndjson"]
    with Host(tmp_path, "--data-dir", data_dir, "--agent", own_agent) as host:
        assert spoken(host.events(hanging["sessionId"])) == "waiting mine: hang"
        host.stop()


def test_a_stop_with_a_parked_turn_is_clean_and_the_turn_is_found_again(
    tmp_path: Path, data_dir: Path
) -> None:
    with Host(tmp_path, "--data-dir", data_dir) as host:
        parked, request_id = host.parked("write a note a: b")
        with host.stream(parked["sessionId"]) as stream:
            assert next(stream)
            host.stop()
            assert all(part.endswith(b"\n") for part in stream)
    log = (data_dir / f"{parked['sessionId']}.ndjson").read_text()
    assert request_id in log.splitlines()[-1]
    with Host(tmp_path, "--data-dir", data_dir) as host:
        assert request_id in json.dumps(host.events(parked["sessionId"]))
        at = host.client.get(f"/session/{parked['sessionId']}").json()["cursor"]
        host.post(f"/session/{parked['sessionId']}/input", requestId=request_id, approved=False)
        assert spoken(host.events(parked["sessionId"], at)).endswith("I left everything as it is.")
        host.stop()


def test_a_stop_at_once_after_the_start_is_clean(tmp_path: Path) -> None:
    with Host(tmp_path) as host:
        host.stop(signal.SIGINT)


# -- killed and back --------------------------------------------------------------------------------------------


def test_after_kill_9_the_history_is_there_and_a_follow_up_with_the_token_goes_on(
    tmp_path: Path, data_dir: Path
) -> None:
    with Host(tmp_path, "--data-dir", data_dir) as host:
        accepted = host.say("hello")
        before = host.events(accepted["sessionId"])
        host.kill()
    with Host(tmp_path, "--data-dir", data_dir) as host:
        assert host.sessions_found == 1
        after = host.events(accepted["sessionId"])
        assert after == before
        token = after[-1]["data"]["continuationToken"]
        more = host.say("what did I say before?", {**accepted, "continuationToken": token})
        assert more["startIndex"] == len(before)
        events = host.events(accepted["sessionId"], more["startIndex"])
        assert spoken(events) == "You said before:\n- hello"
        assert host.client.get(f"/session/{accepted['sessionId']}/audit").json()["ok"] is True
        host.stop()


def test_an_approval_open_at_kill_9_is_answered_after_the_restart_and_the_turn_goes_on(
    tmp_path: Path, data_dir: Path
) -> None:
    notes = tmp_path / "data" / "demo-workspace"
    with Host(tmp_path, "--data-dir", data_dir) as host:
        accepted, request_id = host.parked("write a note shopping: milk, eggs")
        host.kill()
    with Host(tmp_path, "--data-dir", data_dir) as host:
        view = host.client.get(f"/session/{accepted['sessionId']}").json()
        assert [row["requestId"] for row in view["pendingRequests"]] == [request_id]
        assert view["pendingRequests"][0]["args"] == {"name": "shopping", "text": "milk, eggs"}
        assert not notes.exists()
        host.post(f"/session/{accepted['sessionId']}/input", requestId=request_id, approved=True)
        assert spoken(host.events(accepted["sessionId"], view["cursor"])).endswith("to see it.")
        assert (notes / "shopping.txt").read_text() == "milk, eggs"
        host.stop()


@pytest.mark.parametrize("attribute", ["agent", "once"])
def test_a_turn_that_kill_9_cut_down_goes_on_or_ends_and_the_session_takes_the_next(
    tmp_path: Path, data_dir: Path, own_agent: str, attribute: str
) -> None:
    agent = own_agent.replace(":agent", f":{attribute}")
    with Host(tmp_path, "--data-dir", data_dir, "--agent", agent) as host:
        accepted = host.say("hang")
        with host.stream(accepted["sessionId"]) as stream:
            seen = b""
            while b"waiting " not in seen:
                seen += next(stream)
            host.kill()
    with Host(tmp_path, "--data-dir", data_dir, "--agent", agent) as host:
        events = host.events(accepted["sessionId"])
        if attribute == "agent":
            assert spoken(events) == "waiting mine: hang"
        else:
            assert types(events)[-3:] == ["turn.failed", "step.interrupted", "session.waiting"]
            assert events[-3]["data"]["code"] == "HOST_RESTARTED"
            assert events[-1]["data"]["reason"] == "interrupted"
        more = host.say("hi", {**accepted, "continuationToken": events[-1]["data"]["continuationToken"]})
        assert spoken(host.events(accepted["sessionId"], more["startIndex"])) == "mine: hi"
        host.stop()


# -- beside it --------------------------------------------------------------------------------------------------


def test_tail_that_follows_a_live_host_sees_every_event_and_ends_at_ctrl_c(
    tmp_path: Path, data_dir: Path
) -> None:
    with Host(tmp_path, "--data-dir", data_dir) as host:
        accepted = host.say("hello")
        host.events(accepted["sessionId"])
        command = [COMMAND, "tail", accepted["sessionId"], "--follow", "--data-dir", str(data_dir)]
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as tail:
            try:
                assert tail.stdout is not None
                seen = [tail.stdout.readline()]
                host.say("help", accepted)
                while json.loads(seen[-1])["type"] != "session.waiting" or len(seen) < 100:
                    seen.append(tail.stdout.readline())
                tail.send_signal(signal.SIGINT)
                rest, errors = tail.communicate(timeout=DEADLINE_S)
            finally:
                tail.kill()
        assert (tail.returncode, rest, errors) == (0, b"", b"")
        assert b"".join(seen) == (data_dir / f"{accepted['sessionId']}.ndjson").read_bytes()
        host.stop()


def test_tail_that_follows_ends_when_the_session_is_deleted_or_over(tmp_path: Path, data_dir: Path) -> None:
    with Host(tmp_path, "--data-dir", data_dir) as host:
        gone, over = host.say("hello"), host.say("hello")
        for session in (gone, over):
            host.events(session["sessionId"])
        command = [COMMAND, "tail", "--follow", "--data-dir", str(data_dir)]
        tails = [
            subprocess.Popen(
                [*command, session["sessionId"]],
                cwd=tmp_path,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for session in (gone, over)
        ]
        try:
            for tail in tails:
                assert tail.stdout is not None
                tail.stdout.readline()
            assert host.client.delete(f"/session/{gone['sessionId']}").status_code == 200
            host.say("goodbye", over)
            (_, told), (last, nothing) = (tail.communicate(timeout=DEADLINE_S) for tail in tails)
        finally:
            for tail in tails:
                tail.kill()
        assert [tail.returncode for tail in tails] == [0, 0]
        assert told == "The session was deleted.\n"
        assert (json.loads(last.splitlines()[-1])["type"], nothing) == ("session.completed", "")
        host.stop()


def test_a_second_host_on_the_directory_is_refused_and_told_who_holds_it(
    tmp_path: Path, data_dir: Path
) -> None:
    with Host(tmp_path, "--data-dir", data_dir) as host:
        for port in (0, host.url.rpartition(":")[2]):  # the holder is named where the port is its own, too
            second = run("serve", "--port", port, "--data-dir", data_dir, cwd=tmp_path)
            assert refused(second).startswith(
                f"Error: {data_dir} is held by another host (pid {host.process.pid} on {socket.gethostname()} since 2"
            )
        host.kill()
    with Host(tmp_path, "--data-dir", data_dir) as host:  # a dead one holds nothing
        host.stop()


# -- what it refuses --------------------------------------------------------------------------------------------


def refused(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stdout) == (2, ""), done
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_a_port_in_use_is_refused_and_the_directory_is_not_touched(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--port", port, cwd=tmp_path)
    assert refused(done).startswith(f"Error: Port {port} of 127.0.0.1 is in use")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "more", "told"),
    [
        (["--agent", "nothing_here:agent"], {}, "there is no module 'nothing_here'"),
        ([], {"WEB_CONCURRENCY": "2"}, "WEB_CONCURRENCY=2 asks for several workers"),
        (["--host", "0.0.0.0"], {}, "without --token-file"),  # noqa: S104 - what must be refused
        (["--data-dir", "/dev/null/x"], {}, "/dev/null/x"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_sentence(
    tmp_path: Path, arguments: list[str], more: dict[str, str], told: str
) -> None:
    assert told in refused(run("serve", "--port", 0, *arguments, cwd=tmp_path, **more))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_of_somebody_else_is_refused_with_path_user_and_remedy(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    sentence = refused(run("serve", "--port", 0, "--data-dir", closed / "sessions", cwd=tmp_path))
    for told in (str(closed), f"uid {os.geteuid()}", "--data-dir"):
        assert told in sentence


# -- installed --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_wheel_installed_alone_in_a_new_environment_serves(tmp_path: Path, data_dir: Path) -> None:
    uv = str(Path(COMMAND).with_name("uv"))
    python = tmp_path / "venv" / "bin" / "python"
    for step in (
        [uv, "build", "--quiet", "--wheel", "--out-dir", str(tmp_path / "dist"), str(ROOT)],
        [uv, "venv", "--quiet", "--python", str(Path(COMMAND).with_name("python")), str(tmp_path / "venv")],
    ):
        subprocess.run(step, cwd=tmp_path, check=True, timeout=120)
    [wheel] = (tmp_path / "dist").glob("*.whl")
    install = [uv, "pip", "install", "--quiet", "--python", str(python), str(wheel)]
    subprocess.run(install, cwd=tmp_path, check=True, timeout=240)
    with Host(tmp_path, "--data-dir", data_dir, command=[str(python.with_name("zhin-host"))]) as host:
        assert "message.completed" in types(host.events(host.say("hello")["sessionId"]))
        host.stop()
    audited = subprocess.run(
        [str(python), "-m", "zhin_host", "audit", "--data-dir", str(data_dir)],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (audited.returncode, audited.stdout.splitlines()[-1]) == (
        0,
        "Sessions audited: 1, with faults: none.",
    )


# -- what is never written --------------------------------------------------------------------------------------

KEYS_AGENT = '''
KEY = "sk-" + "aB3dE6gH9" * 3

def fetch(word):
    return {"key": KEY, "word": word}

async def agent(turn):
    """Say a key character by character, and one's own word, and get both back from an action."""
    for character in KEY:
        await turn.say(character)
    found = await turn.run("fetch", fetch, turn.message)
    await turn.say(f" {found}")
'''


def test_keys_stand_in_no_file_whatever_kills_the_host(tmp_path: Path, data_dir: Path) -> None:
    (tmp_path / "my_agent.py").write_text(KEYS_AGENT)
    key = "sk-" + "aB3dE6gH9" * 3
    arguments = ("--agent", "my_agent:agent", "--data-dir", data_dir)
    with Host(tmp_path, *arguments, "--redact", "hunter[0-9]", "--redact", r"(?i)PIN:\d{4}") as host:
        session = host.say(f"hunter2 pin:1234 {key}")["sessionId"]
        said = spoken(host.events(session))
        assert said == "[redacted] {'key': '[redacted]', 'word': '[redacted] [redacted] [redacted]'}"
        host.kill()
    with Host(tmp_path, *arguments, ZHIN_REDACT="hunter[0-9]\n(?i)PIN:\\d{4}") as host:
        assert spoken(host.events(session)) == said
        assert spoken(host.events(host.say("hunter2 PIN:1234")["sessionId"])).endswith(
            "'[redacted] [redacted]'}"
        )
        host.stop()
    for path in data_dir.iterdir():
        written = path.read_bytes() if path.is_file() else b""
        assert [word for word in (key[6:].encode(), b"hunter2", b":1234") if word in written] == [], path
    with Host(tmp_path, "--memory", "--agent", "my_agent:agent", "--redact", "off") as host:
        assert key in spoken(host.events(host.say("x")["sessionId"]))


def test_a_pattern_that_is_none_stops_the_start(tmp_path: Path) -> None:
    refused = run("serve", "--memory", "--port", "0", "--redact", "fine", "--redact", "(", cwd=tmp_path)
    assert refused.returncode == 2
    assert "Pattern 2 of redact is no regular expression" in refused.stderr
