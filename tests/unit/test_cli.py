"""The command line over a data directory that a host made, in this process: what is printed, and what is refused."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.builders import LogBuilder, rechained, session_id_of
from tests.hosting import Hosting, hosting
from zhin_host import Turn, __version__, tool
from zhin_host.cli import logs, main
from zhin_host.cli.eventline import _SHOWN, event_text
from zhin_host.cli.sessions import age
from zhin_host.cli.tail import GrowingLog, wake_ups
from zhin_host.cli.terminal import json_text, visible, visible_lines
from zhin_host.config import SETTINGS
from zhin_host.errors import SessionNotFound
from zhin_host.events import VOCABULARY
from zhin_host.storage.files import FileHttpSessionPersistence

HOSTILE = "[bold red]x[/] :smile: \x1b[2Jgone \u202egnp.exe\u2066 \x9b31m \u2028 end"
SHOWN = "[bold red]x[/] :smile: \\x1b[2Jgone \\u202egnp.exe\\u2066 \\x9b31m \\u2028 end"
UNKNOWN = session_id_of(99)

Invoke = Callable[..., Result]


@tool(approval="always")
async def publish(page: str) -> str:
    """Publish a page."""
    return f"/{page}"


async def agent(turn: Turn) -> None:
    """What the message says: publish, end, or an echo."""
    if turn.message.startswith("publish "):
        await turn.call_tool(publish, page=turn.message.removeprefix("publish "))
    elif turn.message == "end":
        await turn.end_session()
    await turn.say(f"You said {turn.message}")


@pytest.fixture
def invoke() -> Iterator[Invoke]:
    """`zhin-host …`, with the logging of this process as it was before."""
    root = logging.getLogger()
    handlers, level, own = root.handlers[:], root.level, logging.getLogger("zhin_host").level

    def run(*arguments: object, env: dict[str, str] | None = None) -> Result:
        return CliRunner().invoke(main, [str(one) for one in arguments], env=env, prog_name="zhin-host")

    path = sys.path[:]
    yield run
    sys.path[:] = path
    root.handlers[:], root.level = handlers, level
    logging.getLogger("zhin_host").setLevel(own)
    logging.captureWarnings(capture=False)


@pytest.fixture
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
async def running(data_dir: Path) -> AsyncIterator[Hosting]:
    """A host with three sessions: one idle after two turns, one parked, one completed (the newest)."""
    async with hosting(agent, data_dir=data_dir, tools=[publish], leaves_tasks=True) as host:
        yield host


@pytest.fixture
async def ids(running: Hosting) -> list[str]:
    made = []
    for message in (HOSTILE, f"publish {HOSTILE}", "end"):
        running.clock.advance(1)
        accepted = await running.start(message)
        await running.events(accepted.session_id)
        made.append(accepted.session_id)
    await running.follow_up(made[0], "again")
    await running.events(made[0])
    await running.settled(made[0])
    return made


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


# -- sessions ---------------------------------------------------------------------------------------------------


async def test_sessions_are_listed_newest_first_as_json_lines(
    invoke: Invoke, ids: list[str], running: Hosting, data_dir: Path
) -> None:
    listed = rows(await asyncio.to_thread(invoke, "sessions", "--data-dir", data_dir))
    assert [row["sessionId"] for row in listed] == ids[::-1]
    assert [row["status"] for row in listed] == ["completed", "waiting", "waiting"]
    async with running.client() as client:
        assert listed == (await client.get("/sessions")).json()["sessions"]
    some = invoke("sessions", "--data-dir", data_dir, "--status", "waiting", "--limit", 1)
    assert [row["sessionId"] for row in rows(some)] == [ids[1]]


async def test_sessions_are_a_table_for_people_with_nothing_in_it_that_a_terminal_obeys(
    invoke: Invoke, ids: list[str], data_dir: Path
) -> None:
    result = invoke("sessions", "--data-dir", data_dir, "--text")
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["session", "status", "agent", "events", "age", "first", "message"]
    assert [line.split()[0] for line in lines] == ids[::-1]
    assert lines[1].split()[1:4] == ["parked", "agent", "8"]
    assert SHOWN[:40] in lines[2]
    assert "\x1b" not in result.stdout


def test_an_empty_directory_has_no_sessions(invoke: Invoke, data_dir: Path) -> None:
    data_dir.mkdir(mode=0o700)
    assert invoke("sessions", "--data-dir", data_dir).stdout == ""
    assert invoke("sessions", "--data-dir", data_dir, "--text").stdout.startswith("No such sessions in")
    (data_dir / ".lock").touch(mode=0o600)  # a host has been here
    assert invoke("audit", "--data-dir", data_dir).stdout == "Sessions audited: 0, with faults: none.\n"
    assert invoke("verify", "--data-dir", data_dir).exit_code == 0


@pytest.mark.parametrize("command", ["audit", "verify"])
def test_a_folder_that_is_no_data_directory_gets_no_verdict(
    invoke: Invoke, tmp_path: Path, command: str
) -> None:
    (tmp_path / "http-agent-sessions").mkdir()
    result = invoke(command, "--data-dir", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{tmp_path} is no data directory" in result.stderr


def test_those_that_wait_for_a_person_can_be_listed_alone(invoke: Invoke, data_dir: Path) -> None:
    write_log(data_dir, LogBuilder(session_id_of(1)).start().finish(""))
    parked = LogBuilder(session_id_of(2)).start().ask_approval("c1")
    write_log(data_dir, parked)
    (data_dir / f"{session_id_of(2)}.open").touch(mode=0o600)
    (data_dir / f"{session_id_of(2)}.open").write_bytes(b"running")
    found = rows(invoke("sessions", "--data-dir", data_dir, "--status", "parked"))
    assert [row["sessionId"] for row in found] == [session_id_of(2)]
    waiting = rows(invoke("sessions", "--data-dir", data_dir, "--status", "waiting"))
    assert [row["sessionId"] for row in waiting] == [session_id_of(2), session_id_of(1)]


@pytest.mark.damaged(reason="a log that cannot be opened")
def test_a_session_that_cannot_be_read_is_named_and_the_others_are_listed(
    invoke: Invoke, data_dir: Path
) -> None:
    write_log(data_dir, LogBuilder(session_id_of(1)).start())
    (data_dir / f"{session_id_of(2)}.ndjson").mkdir()
    result = invoke("sessions", "--data-dir", data_dir)
    assert [row["sessionId"] for row in rows(result)] == [session_id_of(1)]
    assert session_id_of(2) in result.stderr


# -- show -------------------------------------------------------------------------------------------------------


async def test_show_says_what_get_session_says(
    invoke: Invoke, ids: list[str], running: Hosting, data_dir: Path
) -> None:
    async with running.client() as client:
        for session_id in ids:
            [shown] = rows(invoke("show", session_id, "--data-dir", data_dir))
            view = (await client.get(f"/session/{session_id}")).json()
            assert {"ok": True, **shown} == view


async def test_show_tells_a_person_what_is_asked_and_what_was_said(
    invoke: Invoke, ids: list[str], running: Hosting, data_dir: Path
) -> None:
    parked = invoke("show", ids[1], "--data-dir", data_dir, "--text").stdout
    [request] = running.live(ids[1]).state.pending.values()
    for told in (
        ids[1],
        "parked, it waits for an answer",
        "Allow publish?",
        request.request_id,
        "publish {",
        "zhin:",
    ):
        assert told in parked
    idle = invoke("show", ids[0], "--data-dir", data_dir, "--text").stdout
    assert idle.split("last step")[1].split()[0] == "completed"
    assert f"You said {SHOWN}" in idle
    assert "You said again" in idle
    assert "\x1b" not in parked + idle


@pytest.mark.damaged(reason="a log that is broken in its middle")
def test_show_and_sessions_say_where_a_log_is_broken(invoke: Invoke, data_dir: Path) -> None:
    log = LogBuilder().start().say("Hello").finish("Hello").follow_up()
    broken = bytearray(log.content)
    broken[log.content.index(b"And then?")] ^= 1
    write_log(data_dir, log, bytes(broken))
    [row] = rows(invoke("sessions", "--data-dir", data_dir))
    [shown] = rows(invoke("show", log.session_id, "--data-dir", data_dir))
    assert row["brokenAt"] == shown["brokenAt"] == shown["cursor"]
    text = invoke("show", log.session_id, "--data-dir", data_dir, "--text").stdout
    assert "the chain is broken here" in text
    assert f"broken at {row['brokenAt']}" in text


# -- tail -------------------------------------------------------------------------------------------------------


async def test_tail_gives_programs_the_bytes_of_the_file(
    invoke: Invoke, ids: list[str], running: Hosting, data_dir: Path
) -> None:
    log = running.log(ids[0])
    lines = log.splitlines(keepends=True)
    for since, wanted in ((0, lines), (3, lines[3:]), (-2, lines[-2:]), (-999, lines), (len(lines), [])):
        result = invoke("tail", ids[0], "--data-dir", data_dir, "--since", since)
        assert result.exit_code == 0
        assert result.stdout_bytes == b"".join(wanted)


async def test_tail_gives_people_one_line_an_event_and_obeys_none(
    invoke: Invoke, ids: list[str], running: Hosting, data_dir: Path
) -> None:
    text = invoke("tail", ids[1], "--data-dir", data_dir, "--text").stdout
    lines = text.splitlines()
    assert len(lines) == running.live(ids[1]).state.next_index
    assert [line.split()[0] for line in lines] == [str(index) for index in range(len(lines))]
    assert any("message.received" in line and SHOWN in line for line in lines)
    assert "\x1b" not in text
    assert "\u202e" not in text


async def test_tail_that_follows_ends_with_the_session(
    invoke: Invoke, ids: list[str], running: Hosting, data_dir: Path
) -> None:
    result = invoke("tail", ids[2], "--data-dir", data_dir, "--follow")
    assert result.stdout_bytes == running.log(ids[2])


@pytest.mark.damaged(reason="a line that is none")
def test_tail_ends_before_a_broken_line(invoke: Invoke, data_dir: Path) -> None:
    log = LogBuilder().start()
    lines = log.lines
    write_log(data_dir, log, b"".join([*lines[:2], b"{}\n", *lines[2:]]))
    result = invoke("tail", log.session_id, "--data-dir", data_dir)
    assert result.exit_code == 1
    assert result.stdout_bytes == b"".join(lines[:2])
    assert "broken at event 2" in result.stderr


def write_log(data_dir: Path, log: LogBuilder, content: bytes | None = None) -> Path:
    """The log's file, marked as a host marks one with an open turn."""
    data_dir.mkdir(mode=0o700, exist_ok=True)
    path = data_dir / f"{log.session_id}.ndjson"
    for file, data in (
        (path, log.content if content is None else content),
        (path.with_suffix(".open"), b"running"),
    ):
        file.touch(mode=0o600)
        file.write_bytes(data)
    return path


def test_a_growing_log_gives_each_line_once_and_waits_for_whole_ones(data_dir: Path) -> None:
    log = LogBuilder().start()
    first, second, *rest = log.lines
    path = write_log(data_dir, log, first + second[:20])
    growing = GrowingLog(FileHttpSessionPersistence(data_dir), log.session_id, 0)
    assert list(growing.new_lines()) == [first]
    assert list(growing.new_lines()) == []
    path.write_bytes(log.content)
    assert list(growing.new_lines()) == [second, *rest]
    path.unlink()
    with pytest.raises(SessionNotFound):
        list(growing.new_lines())


def test_a_growing_log_waits_for_the_index_asked_for(data_dir: Path) -> None:
    log = LogBuilder().start()
    path = write_log(data_dir, log, b"".join(log.lines[:1]))
    growing = GrowingLog(FileHttpSessionPersistence(data_dir), log.session_id, 3)
    assert list(growing.new_lines()) == []
    path.write_bytes(log.content)
    assert list(growing.new_lines()) == log.lines[3:]


def test_lines_of_many_megabytes_come_whole(data_dir: Path) -> None:
    log = LogBuilder().start("x" * 900_000)
    content = rechained(log.session_id, [line.replace(b"xxx", b"yyyy" * 3) for line in log.lines])
    path = write_log(data_dir, log, content)
    growing = GrowingLog(FileHttpSessionPersistence(data_dir), log.session_id, 0)
    assert b"".join(growing.new_lines()) == content
    path.write_bytes(log.content)  # the audit at the end knows the limit of a line


def test_wake_ups_go_on_where_nothing_can_be_watched(tmp_path: Path) -> None:
    wakes = wake_ups(tmp_path / "missing")
    next(wakes)
    next(wakes)


# -- audit ------------------------------------------------------------------------------------------------------


async def test_audit_passes_whole_sessions(invoke: Invoke, ids: list[str], data_dir: Path) -> None:
    result = invoke("audit", "--data-dir", data_dir)
    assert result.exit_code == 0, result.output
    *lines, total = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ids
    assert total == "Sessions audited: 3, with faults: none."
    [verdict] = rows(invoke("audit", ids[1], "--data-dir", data_dir, "--json"))
    assert (verdict["ok"], verdict["sessionId"], verdict["faults"]) == (True, ids[1], [])


@pytest.mark.damaged(reason="two broken logs")
def test_audit_names_each_fault_on_a_line_and_exits_1(invoke: Invoke, data_dir: Path) -> None:
    good, bad = LogBuilder(session_id_of(1)).start(), LogBuilder(session_id_of(2)).start()
    write_log(data_dir, good)
    at = bad.content.index(b"Hello")
    write_log(data_dir, bad, bad.content[:at] + b"J" + bad.content[at + 1 :])
    (data_dir / f"{session_id_of(3)}.ndjson").mkdir()
    result = invoke("audit", "--data-dir", data_dir)
    assert result.exit_code == 1
    whole, *faults, total = result.stdout.splitlines()
    assert whole.startswith(f"{good.session_id}  whole")
    start = sum(map(len, bad.lines[:3]))
    assert faults[0].startswith(f"{bad.session_id}  event 3, byte {start}: the chain is broken")
    assert faults[-1].startswith(f"{session_id_of(3)}  event 0, byte 0: Cannot open")
    assert total == "Sessions audited: 3, with faults: 2."
    as_json = invoke("audit", "--data-dir", data_dir, "--json")
    assert as_json.exit_code == 1
    assert [json.loads(line)["ok"] for line in as_json.stdout.splitlines()] == [True, False, False]


def test_audit_takes_the_line_limit_from_the_environment(invoke: Invoke, data_dir: Path) -> None:
    log = LogBuilder().start("x" * 9_000)
    write_log(data_dir, log)
    assert invoke("audit", "--data-dir", data_dir).exit_code == 0
    result = invoke("audit", "--data-dir", data_dir, env={"ZHIN_LINE_BYTES_MAX": "8192"})
    assert result.exit_code == 1
    assert "over the limit of 8192" in result.stdout


# -- all that read ----------------------------------------------------------------------------------------------


def state_of(directory: Path) -> dict[str, tuple[int, int, int]]:
    return {
        path.name: (path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_mode)
        for path in directory.iterdir()
    }


async def test_reading_beside_a_live_host_changes_nothing(
    invoke: Invoke, ids: list[str], data_dir: Path
) -> None:
    before = state_of(data_dir)
    for command in (["sessions"], ["sessions", "--text"], ["show", ids[1]], ["tail", ids[0]], ["audit"]):
        assert invoke(*command, "--data-dir", data_dir).exit_code == 0
    assert state_of(data_dir) == before


@pytest.mark.parametrize("command", ["show", "tail", "audit"])
@pytest.mark.parametrize("session_id", [UNKNOWN, "nonsense", "../../etc/passwd", "x\x1b[2J"])
def test_an_unknown_session_is_one_sentence(
    invoke: Invoke, data_dir: Path, command: str, session_id: str
) -> None:
    data_dir.mkdir(mode=0o700)
    result = invoke(command, session_id, "--data-dir", data_dir)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: There is no session '")
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize("command", [["sessions"], ["show", UNKNOWN], ["tail", UNKNOWN], ["audit"]])
def test_a_directory_that_is_not_there_is_one_sentence(
    invoke: Invoke, tmp_path: Path, command: list[str]
) -> None:
    result = invoke(*command, "--data-dir", tmp_path / "nowhere")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"Error: There is no data directory {tmp_path / 'nowhere'}; name one with --data-dir, or make one with "
        "`zhin-host serve`.\n"
    )
    assert not (tmp_path / "nowhere").exists()


# -- serve: what it refuses before it begins ---------------------------------------------------------------------


def refused(result: Result) -> str:
    """The one sentence of a refusal."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr.removeprefix("Error: ").strip()


def test_serve_takes_every_setting_as_a_flag(invoke: Invoke) -> None:
    told = " ".join(invoke("serve", "--help").stdout.split())
    for setting in SETTINGS:
        assert f"{setting.flag} " in told
        assert setting.environment in told
        assert f"default {setting.default_text};" in told


@pytest.mark.parametrize("name", ["WEB_CONCURRENCY", "UVICORN_WORKERS"])
def test_serve_refuses_several_workers(invoke: Invoke, name: str) -> None:
    assert refused(invoke("serve", "--memory", env={name: "2"})).startswith(
        f"{name}=2 asks for several workers"
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - what must be refused
def test_serve_refuses_other_machines_without_tokens(invoke: Invoke, host: str) -> None:
    assert "without --token-file" in refused(invoke("serve", "--memory", "--host", host))


def test_serve_refuses_a_name_that_is_no_address(invoke: Invoke) -> None:
    assert refused(invoke("serve", "--memory", "--host", "nowhere.invalid")).startswith(
        "There is no address 'nowhere."
    )


def test_serve_refuses_an_empty_address(invoke: Invoke) -> None:
    assert refused(invoke("serve", "--memory", "--host", "")).startswith("There is no address to listen on")


def test_serve_refuses_a_port_in_use(invoke: Invoke) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = refused(invoke("serve", "--memory", "--port", port))
    assert (
        sentence == f"Port {port} of 127.0.0.1 is in use; stop what listens there, or choose another --port."
    )


def test_serve_refuses_a_data_directory_with_memory(invoke: Invoke, data_dir: Path) -> None:
    assert "--memory keeps no files" in refused(invoke("serve", "--memory", "--data-dir", data_dir))


@pytest.mark.parametrize(
    ("arguments", "environment", "told"),
    [
        (["--idle-s", "-1"], {}, "idle_s is a number of seconds, at least 0"),
        ([], {"ZHIN_IDLE_S": "soon"}, "ZHIN_IDLE_S is a number of seconds, not 'soon'"),
        ([], {"ZHIN_FSYNC": "sometimes"}, "fsync is one of boundary, always, never"),
        (["--token-file", "/nowhere"], {}, "The token file /nowhere cannot be read"),
    ],
)
def test_serve_refuses_settings_that_are_none(
    invoke: Invoke, arguments: list[str], environment: dict[str, str], told: str
) -> None:
    assert refused(invoke("serve", "--memory", *arguments, env=environment)).startswith(told)


@pytest.mark.parametrize(
    ("reference", "source", "told"),
    [
        ("nocolon", None, "'nocolon' is not of the form module:attribute"),
        ("missing_module:agent", None, "there is no module 'missing_module' in"),
        ("mine:agent", "x = 1", "mine has no attribute 'agent'"),
        ("mine:agent", "agent = 1", "is a int; give a function"),
        ("mine:agent", "import missing_dependency", "No module named 'missing_dependency' ("),
        ("mine:agent", "\nraise ValueError('\\x1b[2J')", "ValueError: \\x1b[2J ("),
        ("mine:agent", "def f(:", "SyntaxError: "),
        ("mine:agent", "raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_serve_says_what_is_wrong_with_an_agent(
    invoke: Invoke, in_tmp_path: Path, reference: str, source: str | None, told: str
) -> None:
    tmp_path = in_tmp_path
    if source is not None:
        (tmp_path / "mine.py").write_text(source)
    sentence = refused(invoke("serve", "--memory", "--agent", reference))
    sys.modules.pop("mine", None)
    assert told in sentence
    if source is not None and "(" in told:
        assert str(tmp_path / "mine.py") in sentence


DEMO = "zhin_host.agents.demo:agent"


@pytest.mark.parametrize(
    ("references", "told"),
    [
        (
            (DEMO, DEMO),
            "Two agents are named 'demo'; name one of them otherwise: --agent NAME=MODULE:ATTRIBUTE.",
        ),
        ((f"a={DEMO}", DEMO, f"a={DEMO}"), "Two agents are named 'a'; "),
        ((DEMO, "mine:several", f"one={DEMO}"), "Two agents are named 'one'; "),
        (("names=mine:several",), "gives one name to several agents, which have their own; leave it out."),
        ((f"={DEMO}",), "has no name before the =; write one, or leave the = out."),
        (("a=",), "--agent '' is not of the form module:attribute"),
        (("a=mine:nothing",), "The agent 'a' is a int; give a function"),
    ],
)
def test_serve_refuses_several_agents_that_are_not_told_apart(
    invoke: Invoke, in_tmp_path: Path, references: tuple[str, ...], told: str
) -> None:
    (in_tmp_path / "mine.py").write_text(
        f"from {DEMO.replace(':', ' import ')}\nseveral = {{'one': agent, 'two': agent}}\nnothing = 1\n"
    )
    sentence = refused(
        invoke("serve", "--memory", *(word for one in references for word in ("--agent", one)))
    )
    sys.modules.pop("mine", None)
    assert told in sentence


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").stdout == f"zhin-host {__version__}\n"


# -- what is printed ---------------------------------------------------------------------------------------------


def test_what_a_terminal_would_obey_is_escaped() -> None:
    assert visible(HOSTILE) == SHOWN
    assert (
        visible("a\tb\r\nc\x7f\u200b\ufeff\U000e0041\ud800")
        == "a\\tb\\r\\nc\\x7f\\u200b\\ufeff\\U000e0041\\ud800"
    )
    assert visible("Grüße\u00a0👩\u200d🚀 日本") == "Grüße\u00a0👩\u200d🚀 日本"
    assert visible_lines("a\n\x1bb") == "a\n\\x1bb"


def test_an_age_is_told_in_its_largest_unit() -> None:
    ages = [-5, 999, 59_999, 60_000, 3_599_999, 3_600_000, 172_800_000]
    assert [age(ms) for ms in ages] == ["0 s", "0 s", "59 s", "1 min", "59 min", "1 h", "2 d"]


def test_json_for_people_and_programs_is_json_still() -> None:
    value = {HOSTILE: "\U000e0041\x9b"}
    text = json_text(value)
    assert text.isprintable()
    assert json.loads(text) == value


def test_every_type_of_event_has_its_line() -> None:
    assert _SHOWN.keys() == VOCABULARY.keys()
    for kind, fields in _SHOWN.items():
        assert set(fields) <= {name.rstrip("?") for name in VOCABULARY[kind].split()} | {"message", "by"}


def test_an_event_of_ones_own_is_shown_whole_and_a_long_one_cut() -> None:
    line = b'{"index":7,"type":"x.own","timestamp":1764428400123,"data":{"a":[1],"b":"\\u001b"},"sum":"?"}'
    assert event_text(line) == "     7  15:00:00  x.own                   [1]  \\x1b"
    long = line.replace(b'"b":"', b'"b":"' + b"z" * 2_000)
    assert len(event_text(long)) < 600
    parts = b'{"index":0,"type":"message.received","timestamp":1,"data":{"message":[{"type":"text","text":"hi"}]}}'
    assert event_text(parts).endswith("message.received        hi")


def test_a_line_of_the_hosts_log_is_one_line_and_a_traceback_is_indented() -> None:
    record = logging.LogRecord("zhin_host.x", logging.INFO, __file__, 1, "said %s", ("a\n\x1b[2J",), None)
    assert logs.LineFormatter().format(record).endswith("Z INFO zhin_host.x: said a\\n\\x1b[2J")
    try:
        raise ValueError("a\n2026-01-01T00:00:00.000Z INFO zhin_host.x: forged")
    except ValueError:
        record.exc_info = sys.exc_info()
    first, *rest = logs.LineFormatter().format(record).split("\n")
    assert first.endswith("[2J")
    assert all(row.startswith("    ") for row in rest)
    assert os.linesep not in first
