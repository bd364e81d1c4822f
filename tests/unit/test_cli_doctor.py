"""`zhin-host doctor`: what it finds in a good place and in bad ones, and that it changes nothing."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import time
from collections import namedtuple
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.builders import LogBuilder, session_id_of
from tests.hosting import hosting
from tests.integration.live import Script
from zhin_host import cli
from zhin_host.cli import checks
from zhin_host.clock import SystemClock, new_session_id
from zhin_host.errors import StartupError
from zhin_host.http.auth import BearerTokens
from zhin_host.storage.files import FileHttpSessionPersistence

TOKENS = "ada a-token-of-sixteen-characters\n"


def examined(data_dir: Path, *arguments: object, code: int = 0) -> dict[str, tuple[str, str]]:
    """What doctor says of each check: its state and its sentence."""
    done = CliRunner().invoke(
        cli.main,
        ["doctor", "--json", "--data-dir", str(data_dir), *map(str, arguments)],
        env={"ZHIN_AGENT": ""},
    )
    assert done.exit_code == code, done.output
    rows = [json.loads(line) for line in done.output.splitlines() if line.startswith('{"check"')]
    return {row["check"]: (row["state"], row["message"]) for row in rows}


def names_and_times(directory: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in directory.iterdir()}


async def test_a_directory_that_a_host_holds_is_well_and_stays_as_it_is(data_dir: Path) -> None:
    async with hosting(Script(), data_dir=data_dir, clock=None) as bench:
        await bench.events((await bench.start("approve")).session_id)
        before = names_and_times(data_dir)
        found = await asyncio.to_thread(examined, data_dir)
        assert names_and_times(data_dir) == before
    assert found["lock"][0] == "ok"
    assert found["lock"][1].startswith(f"A host runs on it: pid {os.getpid()} on ")
    assert found["sessions"][1].startswith("1; marked as running: 1, as stopped in a turn: 0, as parked: 0;")
    assert {state for state, _ in found.values()} <= {"ok", "warning"}
    assert found["directory"] == ("ok", f"{data_dir} is its owner's alone (mode 700).")
    after = await asyncio.to_thread(examined, data_dir)
    assert after["lock"] == ("ok", "No host runs on it.")
    assert "as parked: 1;" in after["sessions"][1]
    assert after["logs"][1].startswith("The 1 newest and marked ones that were looked at are whole")


def test_a_host_that_was_killed_is_named(data_dir: Path) -> None:
    persistence = FileHttpSessionPersistence(data_dir)
    persistence.start()
    holder = (data_dir / ".holder").read_bytes()
    persistence.stop()
    (data_dir / ".holder").write_bytes(holder)
    assert f"the last one was killed: pid {os.getpid()} on " in examined(data_dir)["lock"][1]


def test_a_directory_that_is_not_there_yet_is_no_fault(tmp_path: Path) -> None:
    found = examined(tmp_path / "a" / "b")
    assert found["directory"][0] == "warning"
    assert f"makes it in {tmp_path}." in found["directory"][1]
    assert not (tmp_path / "a").exists()
    assert "sessions" not in found


def test_a_file_in_its_place_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert examined(tmp_path / "file", code=1)["directory"][0] == "fault"
    assert examined(tmp_path / "file" / "below", code=1)["directory"][0] == "fault"


@pytest.mark.parametrize(("names", "code", "state"), [((), 0, "warning"), (("holiday.jpg",), 1, "fault")])
def test_a_directory_open_to_others_is_refused_only_where_serve_would_refuse_it(
    tmp_path: Path, names: tuple[str, ...], code: int, state: str
) -> None:
    tmp_path.chmod(0o755)
    for name in names:
        (tmp_path / name).write_text("")
    found = examined(tmp_path, code=code)
    assert found["directory"][0] == state
    assert "chmod 700" in found["directory"][1]
    if state == "fault":
        with pytest.raises(StartupError) as refused:
            FileHttpSessionPersistence(tmp_path).start()
        assert found["directory"][1] == str(refused.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_a_directory_of_somebody_else_is_a_fault_for_whom_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    state, message = examined(tmp_path, code=1)["directory"]
    assert state == "fault"
    assert "belongs to uid 0 and this host runs as uid 12345" in message


@pytest.mark.damaged("a log is broken in its middle")
def test_a_broken_log_is_named(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o700)
    builder = LogBuilder(session_id_of(1)).start().say("one").finish("one")
    (data_dir / f"{builder.session_id}.ndjson").write_bytes(builder.content.replace(b'"one"', b'"two"', 1))
    state, message = examined(data_dir, code=1)["logs"]
    assert state == "fault"
    assert builder.session_id in message


async def test_of_many_sessions_only_some_are_read(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    plain = FileHttpSessionPersistence.peek_log

    def peek_log(self: FileHttpSessionPersistence, session_id: Any) -> Any:
        read.append(session_id)
        return plain(self, session_id)

    async with hosting(Script(), data_dir=data_dir) as bench:
        for _ in range(60):
            await bench.run("hello")
    monkeypatch.setattr(FileHttpSessionPersistence, "peek_log", peek_log)
    found = await asyncio.to_thread(examined, data_dir)
    assert found["sessions"][1].startswith("60;")
    assert len(read) == 20


def test_a_clock_behind_the_newest_event_is_a_fault(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_dir.mkdir(mode=0o700)
    session_id = new_session_id(SystemClock())
    builder = LogBuilder(session_id).start().finish("")
    log = data_dir / f"{session_id}.ndjson"
    log.write_bytes(builder.content)
    log.chmod(0o600)
    assert examined(data_dir)["clock"][0] == "ok"
    real = time.time_ns()
    for back_s, state, code in ((30, "warning", 0), (3_600, "fault", 1), (40 * 365 * 86_400, "fault", 1)):
        monkeypatch.setattr(time, "time_ns", lambda back_s=back_s: real - back_s * 10**9)
        found, message = examined(data_dir, code=code)["clock"]
        assert found == state
        assert message.endswith("set the clock.")


Facts = namedtuple("Facts", "f_flag f_bfree f_bavail f_frsize f_files f_favail")  # noqa: PYI024


@pytest.mark.parametrize(
    ("facts", "check", "state"),
    [
        (Facts(os.ST_RDONLY, 1 << 30, 1 << 30, 4096, 1000, 10**6), "disk", "fault"),
        (Facts(0, 100, 100, 4096, 0, 0), "space", "fault"),
        (Facts(0, 100_000, 100_000, 4096, 0, 0), "space", "warning"),
        (Facts(0, 1 << 30, 1 << 30, 4096, 1000, 50), "inodes", "fault"),
        (Facts(0, 1 << 30, 1 << 30, 4096, 10**6, 500), "inodes", "warning"),
    ],
)
def test_a_disk_that_is_full_or_closed_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: Facts, check: str, state: str
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: facts)
    found = {finding.check: finding.state for finding in checks.disk(str(tmp_path))}
    assert found[check] == state


MOUNTS = """\
/dev/root / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/x /srv/with\\040space nfs4 rw 0 0
/dev/sdb /srv/with\\040space/disk xfs rw 0 0
/dev/sdc /srv/over ext4 rw 0 0
overlay /srv/over overlay rw 0 0
"""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/", "ext4"),
        ("/var/lib", "ext4"),
        ("/tmp", "tmpfs"),
        ("/tmp/a", "tmpfs"),
        ("/tmpfile", "ext4"),
        ("/srv/with space/a", "nfs4"),
        ("/srv/with space/disk/a", "xfs"),
        ("/srv/over", "overlay"),
    ],
)
def test_the_file_system_of_a_directory_is_that_of_its_nearest_mount(directory: str, kind: str) -> None:
    assert checks.kind_of(directory, MOUNTS) == kind


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("ext4", "ok"),
        ("xfs", "ok"),
        ("zfs", "ok"),
        ("nfs", "warning"),
        ("nfs4", "warning"),
        ("cifs", "warning"),
        ("smb3", "warning"),
        ("9p", "warning"),
        ("fuse.sshfs", "warning"),
        ("tmpfs", "warning"),
        ("overlay", "warning"),
    ],
)
def test_a_network_or_a_fleeting_file_system_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, state: str
) -> None:
    monkeypatch.setattr(checks, "kind_of", lambda *_: kind)
    [finding] = [one for one in checks.disk(str(tmp_path)) if one.check == "filesystem"]
    assert finding.state == state
    assert kind in finding.message


@pytest.mark.parametrize(
    ("limit", "state"), [(resource.RLIM_INFINITY, "ok"), (1_024, "warning"), (64, "fault")]
)
def test_the_limit_of_descriptors_is_judged_as_serve_will_have_it(
    monkeypatch: pytest.MonkeyPatch, limit: int, state: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    [finding] = checks.descriptors()
    assert finding.state == state


def test_an_agent_that_cannot_be_imported_is_a_fault(tmp_path: Path) -> None:
    assert examined(tmp_path, "--agent", "zhin_host.agents.demo:agent")["agent"][0] == "ok"
    state, message = examined(tmp_path, "--agent", "nothing_here:agent", code=1)["agent"]
    assert state == "fault"
    assert "nothing_here" in message
    assert examined(tmp_path, "--agent", "os:sep", code=1)["agent"][0] == "fault"


def test_each_of_several_agents_has_its_line_and_none_at_all_is_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Fleeting(Script):
        resumable = False

    loaded: dict[str, object] = {"first": Script(), "second": Fleeting()}
    monkeypatch.setattr(checks, "load", lambda *_: loaded)
    assert [(one.state, one.message.split(";")[0]) for one in checks.agents(["my:agents"])] == [
        ("ok", "my:agents has agent 'first'"),
        ("warning", "my:agents has agent 'second', not resumable"),
    ]
    loaded["third"] = "none"
    [finding] = checks.agents(["my:agents"])
    assert finding.state == "fault"
    assert "'third' is a str" in finding.message
    loaded.clear()
    [finding] = checks.agents(["my:agents"])
    assert (finding.state, "no agent" in finding.message) == ("fault", True)


def test_two_agents_of_one_name_are_a_fault_of_the_second_and_the_environment_may_name_several(
    tmp_path: Path,
) -> None:
    demo = "zhin_host.agents.demo:agent"
    states = [one.state for one in checks.agents([demo, f"second={demo}", demo])]
    assert states == ["ok", "ok", "fault"]
    done = CliRunner().invoke(
        cli.main,
        ["doctor", "--data-dir", str(tmp_path / "data")],
        env={"ZHIN_AGENT": f"one={demo} two={demo}"},
    )
    assert f"one={demo} has agent 'one'" in done.stdout
    assert f"two={demo} has agent 'two'" in done.stdout


def test_a_token_file_is_read_as_serve_reads_it_and_no_token_is_shown(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    assert examined(tmp_path, "--token-file", tokens, code=1)["tokens"][0] == "fault"
    tokens.write_text(TOKENS)
    tokens.chmod(0o640)
    assert examined(tmp_path, "--token-file", tokens)["tokens"][0] == "warning"
    tokens.chmod(0o600)
    found = examined(tmp_path, "--token-file", tokens)["tokens"]
    assert found == ("ok", f"The token file {tokens} is its owner's alone; tokens in it: 1.")
    tokens.write_text(TOKENS * 2)
    state, message = examined(tmp_path, "--token-file", tokens, code=1)["tokens"]
    assert state == "fault"
    assert "a-token-of-sixteen-characters" not in message
    for content in (b"\xff\xfe", TOKENS.encode() + b"#" * (1 << 20)):
        tokens.write_bytes(content)
        with pytest.raises(StartupError) as refused:
            BearerTokens.from_file(tokens)
        found = examined(tmp_path, "--token-file", tokens, code=1)["tokens"]
        assert found == ("fault", str(refused.value))


def test_the_versions_of_what_it_depends_on_are_listed() -> None:
    [finding] = checks.versions()
    assert finding.state == "ok"
    for name in ("caio", "starlette", "uvicorn"):
        assert f" {name} {metadata.version(name)}" in finding.message


def test_where_the_kernel_takes_no_syncs_it_says_that_threads_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zhin_host.storage.kernel._kernel", None)
    [finding] = checks.syncs(str(tmp_path))
    assert (finding.check, finding.state) == ("syncs", "warning")


def test_text_is_a_line_for_each_check(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.main, ["doctor", "--data-dir", str(tmp_path)])
    words = [line.split()[:2] for line in done.output.splitlines()]
    assert ["ok", "versions"] in words
    assert all(state in {"ok", "warning", "fault"} for state, _ in words)
