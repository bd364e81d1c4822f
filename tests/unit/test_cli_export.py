"""`zhin-host export` and `prune` over a data directory, in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests.builders import LogBuilder, session_id_of
from zhin_host.audit import audit_directory
from zhin_host.cli import main
from zhin_host.cli.amounts import AGE_MS, SIZE_BYTES, size_text
from zhin_host.cli.pruning import Found, Rules, chosen
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.fs import FileSystem


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments], prog_name="zhin-host")


def write(data_dir: Path, log: LogBuilder, content: bytes | None = None, *, mark: str | None = None) -> Path:
    data_dir.mkdir(mode=0o700, exist_ok=True)
    path = data_dir / f"{log.session_id}.ndjson"
    for file, data in (
        (path, log.content if content is None else content),
        *(() if mark is None else ((path.with_suffix(".open"), mark.encode()),)),
    ):
        file.touch(mode=0o600)
        file.write_bytes(data)
    return path


def finished(number: int, text: str = "done") -> LogBuilder:
    return LogBuilder(session_id_of(number)).start(f"message {number}").say(text).finish(text)


# -- export --------------------------------------------------------------------------------------------------------


def test_the_default_is_the_log_byte_for_byte(data_dir: Path, tmp_path: Path) -> None:
    log = finished(1)
    write(data_dir, log)
    result = invoke("export", log.session_id, "--data-dir", data_dir)
    assert (result.exit_code, result.stdout_bytes) == (0, log.content)
    target = tmp_path / "out.ndjson"
    assert invoke("export", log.session_id, "--data-dir", data_dir, "-o", target).exit_code == 0
    assert target.read_bytes() == log.content
    assert target.stat().st_mode & 0o777 == 0o600
    again = invoke("export", log.session_id, "--data-dir", data_dir, "-o", target)
    assert again.exit_code == 2
    assert "is there already" in again.stderr
    nowhere = invoke("export", log.session_id, "--data-dir", data_dir, "-o", tmp_path / "none" / "out")
    assert nowhere.exit_code == 2
    assert "cannot be written: No such file" in nowhere.stderr


@pytest.mark.damaged("the middle of the log is broken")
def test_a_broken_log_is_exported_up_to_the_break_and_it_is_said(data_dir: Path) -> None:
    log = finished(1)
    lines = log.lines
    write(data_dir, log, b"".join([*lines[:3], b"rubbish\n", *lines[4:]]))
    result = invoke("export", log.session_id, "--data-dir", data_dir)
    assert result.exit_code == 1
    assert result.stdout_bytes == b"".join(lines[:3])
    assert "The log is broken at event 3" in result.stderr


@pytest.mark.damaged("an event was changed afterwards")
@pytest.mark.parametrize("form", ["ndjson", "markdown"])
def test_a_log_that_was_changed_is_exported_and_it_is_said(data_dir: Path, form: str) -> None:
    log = finished(1)
    lines = log.lines
    changed = [*lines[:2], lines[2].replace(b'"data":{', b'"data":{"more":1,'), *lines[3:]]
    assert changed != lines
    write(data_dir, log, b"".join(changed))
    result = invoke("export", log.session_id, "--data-dir", data_dir, "--format", form)
    assert result.exit_code == 1
    assert "The log was changed at event 2; `zhin-host audit" in result.stderr
    assert form == "markdown" or result.stdout_bytes == b"".join(changed)


def test_markdown_says_who_said_and_did_what_and_who_allowed_it(data_dir: Path) -> None:
    log = LogBuilder().start("please **publish**").say("Well. ").ask_approval("c1", page="a```b")
    log.answer("c1").result("c1", tool_name="publish").finish("Well. ")
    write(data_dir, log, mark="running")
    result = invoke("export", log.session_id, "--data-dir", data_dir, "--format", "markdown")
    assert result.exit_code == 0
    for told in (
        f"# Session ses\\_{log.session_id[4:]}\n",
        "> please \\*\\*publish\\*\\*\n",
        "> Well\\.\n",
        '````json\n{\n  "page": "a```b"\n}\n````\n',
        "**demo asks** (approval)",
        "> Run publish?\n",
        "**approved**",
        "**tool publish** completed after 1 ms",
    ):
        assert told in result.stdout, told
    assert result.stdout.count("Well") == 1


def test_export_refuses_what_makes_no_sense(data_dir: Path) -> None:
    log = finished(1)
    write(data_dir, log)
    both = invoke("export", log.session_id, "--data-dir", data_dir, "--url", "http://127.0.0.1:9")
    assert both.exit_code == 2
    assert invoke("export", log.session_id, "--data-dir", data_dir, "--all").exit_code == 2
    unknown = invoke("export", session_id_of(9), "--data-dir", data_dir)
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert unknown.stderr.startswith("Error: There is no session")


# -- prune ---------------------------------------------------------------------------------------------------------


def test_prune_is_dry_unless_meant_and_never_takes_what_is_open(data_dir: Path) -> None:
    write(data_dir, finished(1))
    write(data_dir, finished(2)).with_suffix(".torn").write_bytes(b"torn")
    os.chmod(data_dir / f"{session_id_of(2)}.torn", 0o600)  # noqa: PTH101
    write(data_dir, LogBuilder(session_id_of(3)).start(), mark="running")
    parked = LogBuilder(session_id_of(4)).start().ask_approval("c1")
    write(data_dir, parked, mark="parked 0")
    before = sorted(path.name for path in data_dir.iterdir())
    dry = invoke("prune", "--data-dir", data_dir, "--keep", 0, "--json")
    rows = [json.loads(line) for line in dry.stdout.splitlines()]
    assert sorted((row["sessionId"], row["action"], row.get("reason")) for row in rows[:-1]) == [
        (session_id_of(1), "would be removed", None),
        (session_id_of(2), "would be removed", None),
        (session_id_of(3), "kept", "a turn is open"),
        (session_id_of(4), "kept", "it waits for a person"),
    ]
    assert (rows[-1]["removed"], rows[-1]["wouldBeRemoved"]) == (0, 2)
    assert sorted(path.name for path in data_dir.iterdir()) == before
    meant = invoke("prune", "--data-dir", data_dir, "--keep", 0, "--yes")
    assert meant.exit_code == 0
    assert "2 of 4 sessions" in meant.stdout
    assert meant.stdout.endswith("were removed.\n")
    assert sorted(path.name for path in data_dir.iterdir()) == [
        ".lock",
        f"{session_id_of(3)}.ndjson",
        f"{session_id_of(3)}.open",
        f"{session_id_of(4)}.ndjson",
        f"{session_id_of(4)}.open",
    ]


def test_a_stale_mark_does_not_keep_a_session_and_a_missing_one_does_not_lose_it(data_dir: Path) -> None:
    write(data_dir, finished(1), mark="running")
    lost = write(data_dir, LogBuilder(session_id_of(2)).start())
    assert invoke("prune", "--data-dir", data_dir, "--keep", 0, "--yes").exit_code == 0
    assert [path.name for path in data_dir.glob("ses_*")] == [lost.name]
    lost.with_suffix(".open").touch(mode=0o600)  # the audit at the end asks for it


@pytest.mark.damaged("a log is broken, one is torn, one was cut within a batch")
def test_what_cannot_be_judged_to_its_end_stays(data_dir: Path) -> None:
    log = finished(1)
    write(data_dir, log, b"".join([*log.lines[:3], b"rubbish\n", *log.lines[4:]]))
    write(data_dir, finished(2), finished(2).content + b'{"index":99')
    write(data_dir, finished(3), b"".join(finished(3).lines[:-1]))
    write(data_dir, finished(4), b"")
    result = invoke("prune", "--data-dir", data_dir, "--keep", 0, "--yes")
    assert result.exit_code == 0
    assert "0 of 4 sessions" in result.stdout
    assert "broken at event 3" in result.stdout
    assert len(list(data_dir.glob("*.ndjson"))) == 4


KILLED = """
import os, sys
from zhin_host.cli import main
from zhin_host.storage.fs import FileSystem

unlink, left = FileSystem.unlink, int(sys.argv.pop(1))

def killed(fs, path):
    global left
    left -= "/ses_" in path
    if left < 0:
        os._exit(137)
    unlink(fs, path)

FileSystem.unlink = killed
main()
"""


@pytest.mark.parametrize("done", [0, 1, 3, 5])
def test_a_kill_between_two_removals_leaves_no_half_of_a_session(data_dir: Path, done: int) -> None:
    for at in (1, 2):
        path = write(data_dir, finished(at), mark="stopped")
        for suffix, content in ((".json", finished(at).snapshot), (".torn", b"torn")):
            path.with_suffix(suffix).touch(mode=0o600)
            path.with_suffix(suffix).write_bytes(content)
    command = [
        sys.executable,
        "-c",
        KILLED,
        str(done),
        "prune",
        "--data-dir",
        str(data_dir),
        "--keep",
        "0",
        "--yes",
    ]
    assert subprocess.run(command, check=False, timeout=50).returncode == 137
    assert [verdict for verdict in audit_directory(data_dir) if not verdict.ok] == []
    for path in data_dir.glob("*.ndjson"):
        assert all(path.with_suffix(suffix).exists() for suffix in (".json", ".open", ".torn"))
    assert invoke("prune", "--data-dir", data_dir, "--keep", 0, "--yes").exit_code == 0
    assert list(data_dir.glob("*.ndjson")) == []
    assert list(data_dir.glob("*.json")) == []


@pytest.mark.damaged("its log could not be removed, and is whole")
def test_what_cannot_be_removed_is_a_sentence(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(data_dir, finished(1))

    unlink = FileSystem.unlink

    def refused(fs: FileSystem, path: str) -> None:
        if path.endswith(".ndjson"):
            raise PermissionError(1, "Operation not permitted", path)
        unlink(fs, path)

    monkeypatch.setattr(FileSystem, "unlink", refused)
    result = invoke("prune", "--data-dir", data_dir, "--keep", 0, "--yes")
    assert result.exit_code == 1
    assert "Operation not permitted" in result.stderr
    assert len(list(data_dir.glob("*.ndjson"))) == 1


def test_rules_take_the_oldest_first_and_add_up() -> None:
    def found(number: int, size_bytes: int, held: str = "") -> Found:
        return Found(session_id_of(number), size_bytes, number * 1_000, held)

    rows = [found(3, 10), found(1, 10, held="open"), found(2, 10), found(4, 10)]

    def taken(**rules: Any) -> list[int]:
        return [one.updated_at_ms // 1_000 for one in chosen(rows, Rules(**rules), 5_000)]

    assert taken(older_than_ms=2_000) == [1, 2]
    assert taken(older_than_ms=1_000) == [1, 2, 3]
    assert taken(keep=1) == [1, 2, 3]
    assert taken(keep=9) == []
    assert taken(size_bytes_max=40) == []
    assert taken(size_bytes_max=25) == [2, 3]
    assert taken(size_bytes_max=0) == [2, 3, 4]
    assert taken(keep=3, size_bytes_max=30) == [1, 2]


def test_age_is_counted_from_the_last_event(data_dir: Path) -> None:
    write(data_dir, finished(1))  # of November 2025
    days = int(time.time() * 1000 - 1_764_428_400_000) // 86_400_000
    assert "1 of 1 sessions" in invoke("prune", "--data-dir", data_dir, "--older-than", f"{days - 1}d").stdout
    assert "0 of 1 sessions" in invoke("prune", "--data-dir", data_dir, "--older-than", f"{days + 2}d").stdout


def test_prune_refuses_without_a_rule_and_while_a_host_holds_the_directory(data_dir: Path) -> None:
    write(data_dir, finished(1))
    assert invoke("prune", "--data-dir", data_dir, "--yes").exit_code == 2
    host = FileHttpSessionPersistence(data_dir)
    host.start()
    try:
        refused = invoke("prune", "--data-dir", data_dir, "--keep", 0, "--yes")
        assert refused.exit_code == 2
        assert f"is held by another host (pid {os.getpid()} on " in refused.stderr
        assert invoke("prune", "--data-dir", data_dir, "--keep", 0).exit_code == 0
    finally:
        host.stop()
    assert len(list(data_dir.glob("*.ndjson"))) == 1


@pytest.mark.parametrize(
    ("kind", "text", "amount"),
    [
        (AGE_MS, "30d", 30 * 86_400_000),
        (AGE_MS, "12 h", 12 * 3_600_000),
        (AGE_MS, "90min", 90 * 60_000),
        (SIZE_BYTES, "5GB", 5 * 10**9),
        (SIZE_BYTES, "1GiB", 1 << 30),
        (SIZE_BYTES, "0B", 0),
    ],
)
def test_amounts_have_units(kind: click.ParamType[int], text: str, amount: int) -> None:
    assert kind.convert(text, None, None) == amount


@pytest.mark.parametrize("text", ["30", "d", "-1d", "1.5h", "30 days", "", "1" * 40 + "d"])
def test_an_amount_without_its_unit_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a number and one of"):
        AGE_MS.convert(text, None, None)


def test_sizes_are_short() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 1_234_567, 5 * 10**9)] == [
        "0 B", "999 B", "1 kB", "1.23 MB", "5 GB",
    ]  # fmt: skip
