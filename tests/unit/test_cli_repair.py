"""`zhin-host verify` and `repair` over directories that are damaged in every way, in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.builders import LogBuilder, session_id_of
from tests.conftest import check_directory
from zhin_host.cli import main
from zhin_host.cli.mending import Mender
from zhin_host.storage.files import FileHttpSessionPersistence

SESSION = session_id_of(1)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments], prog_name="zhin-host")


def finished(number: int = 1) -> LogBuilder:
    return LogBuilder(session_id_of(number)).start().say("done").finish("done")


def opened(number: int = 1) -> LogBuilder:
    return LogBuilder(session_id_of(number)).start().say("do")


def put(data_dir: Path, name: str, content: bytes, mode: int = 0o600) -> Path:
    data_dir.mkdir(mode=0o700, exist_ok=True)
    path = data_dir / name
    path.touch()
    path.write_bytes(content)
    path.chmod(mode)
    return path


def log_of(data_dir: Path, content: bytes, mode: int = 0o600) -> Path:
    return put(data_dir, f"{SESSION}.ndjson", content, mode)


def files_of(data_dir: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.name: (path.read_bytes(), path.stat().st_mode & 0o777)
        for path in data_dir.iterdir()
        if path.is_file() and path.name != ".lock"
    }


def lacking_newline(data_dir: Path) -> None:
    log_of(data_dir, finished().content[:-1])


def torn_line(data_dir: Path) -> None:
    log_of(data_dir, finished().content + b'{"index":99,"type":"mess')


def torn_again(data_dir: Path) -> None:
    torn_line(data_dir)
    put(data_dir, f"{SESSION}.torn", b"torn before")


def zeros_at_the_end(data_dir: Path) -> None:
    log_of(data_dir, finished().content + b"\0" * 5000)


def no_first_line(data_dir: Path) -> None:
    log_of(data_dir, finished().lines[0][:40])
    put(data_dir, f"{SESSION}.open", b"running")
    put(data_dir, f"{SESSION}.json", finished().snapshot)


def empty_log(data_dir: Path) -> None:
    log_of(data_dir, b"")


def open_modes(data_dir: Path) -> None:
    log_of(data_dir, finished().content, 0o644)
    put(data_dir, f"{SESSION}.json", finished().snapshot, 0o664)
    put(data_dir, f"{SESSION}.torn", b"x", 0o666)
    data_dir.chmod(0o755)


def snapshot_of_rubbish(data_dir: Path) -> None:
    log_of(data_dir, finished().content)
    put(data_dir, f"{SESSION}.json", b"rubbish")


def snapshot_ahead(data_dir: Path) -> None:
    log_of(data_dir, finished().content)
    put(data_dir, f"{SESSION}.json", finished().follow_up().say("x").finish("x").snapshot)


def snapshot_of_another_story(data_dir: Path) -> None:
    log_of(data_dir, finished().content)
    put(data_dir, f"{SESSION}.json", LogBuilder(SESSION).start("other").say("b").snapshot)


def mark_is_missing(data_dir: Path) -> None:
    log_of(data_dir, opened().content)


def everything(data_dir: Path) -> None:
    log_of(data_dir, opened().content + b"torn", 0o640)
    put(data_dir, f"{SESSION}.json", b"{}", 0o640)
    put(data_dir, f"{session_id_of(2)}.json", b"orphan")
    put(data_dir, f"{session_id_of(3)}.open", b"running")
    put(data_dir, ".tmp-1234", b"unfinished")


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (lacking_newline, "the last line, whole but for its newline, gets it"),
    (torn_line, "24 bytes of a torn last line go to .torn"),
    (torn_again, "24 bytes of a torn last line go to .torn"),
    (zeros_at_the_end, "5000 bytes of a torn last line go to .torn"),
    (no_first_line, "40 bytes, no whole first line, go to .torn"),
    (empty_log, "0 bytes, no whole first line, go to .torn"),
    (open_modes, "gets mode 0600 in place of 0644"),
    (snapshot_of_rubbish, "the snapshot, which the log does not bear out, is removed"),
    (snapshot_ahead, "the snapshot, which the log does not bear out, is removed"),
    (snapshot_of_another_story, "the snapshot, which the log does not bear out, is removed"),
    (mark_is_missing, "the mark is made by which a host finds its open turn"),
    (everything, "the snapshot without a log is removed"),
]


@pytest.mark.parametrize(("damage", "told"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])
def test_what_the_contract_allows_is_mended_after_the_files_were_copied(
    data_dir: Path, damage: Callable[[Path], None], told: str
) -> None:
    damage(data_dir)
    before, mode = files_of(data_dir), data_dir.stat().st_mode
    dry = invoke("repair", "--data-dir", data_dir)
    assert (dry.exit_code, dry.exception and type(dry.exception)) == (1, SystemExit), dry.output
    assert f"can be mended: {told}" in dry.stdout or told in dry.stdout
    assert dry.stdout.endswith("Nothing was changed; --yes mends what can be, after copying the files.\n")
    assert (files_of(data_dir), data_dir.stat().st_mode) == (before, mode)
    meant = invoke("repair", "--data-dir", data_dir, "--yes")
    assert meant.exit_code == 0, meant.output
    assert told in meant.stdout
    check_directory(data_dir)
    [copies] = data_dir.glob("repair-*")
    kept = {path.name.removesuffix(".before"): path.read_bytes() for path in copies.iterdir()}
    assert kept.items() <= {name: content for name, (content, _) in before.items()}.items()
    assert f"{SESSION}.ndjson" in kept
    assert {path.stat().st_mode & 0o777 for path in copies.iterdir()} == {0o600}
    again = invoke("repair", "--data-dir", data_dir)
    assert (again.exit_code, "can be mended: none" in again.stdout) == (0, True)
    assert invoke("verify", "--data-dir", data_dir).exit_code == 0
    host = FileHttpSessionPersistence(data_dir)  # the copies lie in nobody's way
    data_dir.chmod(0o755)
    host.start()
    host.stop()


def test_the_directory_s_own_mode_and_what_was_not_finished_are_set_right(data_dir: Path) -> None:
    log_of(data_dir, finished().content)
    put(data_dir, ".tmp-1", b"x")
    data_dir.chmod(0o750)
    dry = invoke("repair", "--data-dir", data_dir)
    assert dry.exit_code == 1
    assert "the directory  can be mended: it gets mode 0700 in place of 0750\n" in dry.stdout
    assert "the directory  can be mended: 1 files that were not finished are removed\n" in dry.stdout
    assert invoke("repair", "--data-dir", data_dir, "--yes").exit_code == 0
    assert sorted(path.name for path in data_dir.iterdir()) == [".lock", f"{SESSION}.ndjson"]
    assert data_dir.stat().st_mode & 0o777 == 0o700


def test_no_byte_is_lost_by_cutting(data_dir: Path) -> None:
    torn_again(data_dir)
    log = finished().content
    assert invoke("repair", "--data-dir", data_dir, "--yes").exit_code == 0
    assert (data_dir / f"{SESSION}.ndjson").read_bytes() == log
    assert (data_dir / f"{SESSION}.torn").read_bytes() == b'torn before{"index":99,"type":"mess'


@pytest.mark.damaged("the middle of a log is never mended")
@pytest.mark.parametrize(
    "broken",
    [
        lambda lines: [*lines[:3], b"rubbish\n", *lines[4:]],
        lambda lines: [*lines[:3], *lines[4:]],
        lambda lines: [*lines[:3], lines[3].replace(b"done", b"d0ne"), *lines[4:]],
    ],
    ids=["rubbish", "a line is missing", "a line was changed"],
)
def test_a_line_that_is_broken_in_the_middle_is_never_cut(
    data_dir: Path, broken: Callable[[list[bytes]], list[bytes]]
) -> None:
    lines = LogBuilder(SESSION).start("done").say("done").finish("done").lines
    content = b"".join(broken(lines))
    assert content != b"".join(lines)
    path = log_of(data_dir, content)
    for arguments in ((), ("--yes",)):
        result = invoke("repair", "--data-dir", data_dir, *arguments)
        assert result.exit_code == 1
        assert "stays: event " in result.stdout
        assert "a log is never cut in its middle" in result.stdout
        assert path.read_bytes() == content
    assert list(data_dir.glob("repair-*")) == []


@pytest.mark.damaged("what a crash left unsaid is appended by the host")
def test_what_a_crash_left_unsaid_is_left_to_the_host(data_dir: Path) -> None:
    content = b"".join(finished().lines[:-1])
    path = log_of(data_dir, content)
    result = invoke("repair", "--data-dir", data_dir, "--yes")
    assert result.exit_code == 1
    assert "must follow (a host appends it when it starts)" in result.stdout
    assert path.read_bytes() == content


@pytest.mark.damaged("a link is nobody's log")
def test_a_link_is_not_followed_and_not_mended(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(finished().content + b"torn")
    data_dir.mkdir(mode=0o700)
    (data_dir / f"{SESSION}.ndjson").symlink_to(target)
    result = invoke("repair", "--data-dir", data_dir, "--yes")
    assert result.exit_code == 1
    assert "put a regular file in the place of the link" in result.stdout
    assert target.read_bytes() == finished().content + b"torn"


def test_a_session_may_be_named_and_the_others_stay(data_dir: Path) -> None:
    torn_line(data_dir)
    other = put(data_dir, f"{session_id_of(2)}.ndjson", finished(2).content + b"torn")
    result = invoke("repair", SESSION, "--data-dir", data_dir, "--yes", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert rows[0]["sessionId"] == SESSION
    assert rows[0]["isDone"] is True
    assert (rows[1]["sessions"], rows[1]["mended"]) == (1, 1)
    assert other.read_bytes().endswith(b"torn")
    assert invoke("repair", session_id_of(9), "--data-dir", data_dir).exit_code == 2
    assert invoke("repair", "--data-dir", data_dir, "--yes").exit_code == 0


def test_repair_refuses_while_a_host_holds_the_directory(data_dir: Path) -> None:
    torn_line(data_dir)
    before = files_of(data_dir)
    host = FileHttpSessionPersistence(data_dir)
    host.start()
    try:
        result = invoke("repair", "--data-dir", data_dir, "--yes")
        assert result.exit_code == 2
        assert f"is held by another host (pid {os.getpid()} on " in result.stderr
    finally:
        host.stop()
    assert files_of(data_dir) == before
    assert invoke("repair", "--data-dir", data_dir, "--yes").exit_code == 0


def test_nothing_is_mended_when_it_cannot_be_copied(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torn_line(data_dir)
    before = files_of(data_dir)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Mender, "_copy_file", full)
        result = invoke("repair", "--data-dir", data_dir, "--yes")
    assert result.exit_code == 1
    assert "No space left on device" in result.stdout
    assert files_of(data_dir) == before
    assert invoke("repair", "--data-dir", data_dir, "--yes").exit_code == 0


def test_verify_sums_up_and_names_only_what_is_wrong(data_dir: Path) -> None:
    put(data_dir, f"{session_id_of(4)}.ndjson", finished(4).content)
    everything(data_dir)
    result = invoke("verify", "--data-dir", data_dir)
    assert result.exit_code == 1
    assert "Sessions: 2, with faults: 1; " in result.stdout
    left_over = f".tmp-1234, {session_id_of(2)}.json, {session_id_of(3)}.open"
    assert f"Left over, of no session: {left_over}; harmless" in result.stdout
    rows = [
        json.loads(line) for line in invoke("verify", "--data-dir", data_dir, "--json").stdout.splitlines()
    ]
    assert [row["sessionId"] for row in rows[:-1]] == [SESSION]
    assert (rows[-1]["sessions"], rows[-1]["faulty"]) == (2, 1)
    assert invoke("repair", "--data-dir", data_dir, "--yes").exit_code == 0
    assert invoke("verify", "--data-dir", data_dir).stdout.startswith("Sessions: 2, with faults: none; ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_the_shell(shell: str) -> None:
    result = invoke("completion", shell)
    assert result.exit_code == 0
    assert "_ZHIN_HOST_COMPLETE" in result.stdout
    assert "zhin-host" in result.stdout


def test_ids_of_sessions_are_completed(data_dir: Path) -> None:
    log_of(data_dir, finished().content)
    words = {"COMP_WORDS": f"zhin-host show --data-dir {data_dir} ses_", "COMP_CWORD": "4"}
    result = CliRunner().invoke(
        main, [], prog_name="zhin-host", env={**words, "_ZHIN_HOST_COMPLETE": "bash_complete"}
    )
    assert SESSION in result.stdout
