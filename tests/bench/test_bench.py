"""The benchmark at a tiny size, and what it says of good and of bad."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvloop
from click.testing import CliRunner
from rich.console import Console

from tests.bench import datasets, report
from tests.bench.__main__ import main
from tests.bench.bench import Bench, difference, without_heartbeats
from tests.bench.calls import Reading
from tests.bench.client import Connection
from tests.bench.figures import FIGURES, take
from tests.bench.rows import Row, at_least, below, number, percentile, ratios
from tests.bench.sizes import FULL, QUICK, Sizes
from tests.bench.verdicts import judge
from tests.builders import LogBuilder, session_id_of
from tests.conftest import check_directory

TINY = Sizes(
    runs=1,
    hellos=40,
    disk_s=0.01,
    files=10,
    lines=200,
    clients=3,
    turns=12,
    turn_chunks=5,
    lone_turns=5,
    stream_turns=((20, 2), (100, 1), (300, 1)),
    yielding_chunks=50,
    readers=4,
    readers_chunks=20,
    replay_events=1_200,
    replays=1,
    joins=3,
    followups=12,
    followups_edge=3,
    followups_runs=1,
    stored=60,
    stored_bytes=20_000,
    cut=3,
    parked=60,
    passed=10,
    subscribers=5,
    parked_left=3,
    approvals=3,
    settle_s=0.1,
    append_events=500,
    audited=40,
    audited_bytes=500_000,
)


# -- the whole -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_every_figure_is_taken_and_nothing_is_wrong(tmp_path: Path) -> None:
    bench, done = Bench(tmp_path / "bench", TINY), list[str]()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(take(bench, list(FIGURES), done.append))
    judged = judge(bench)
    assert bench.wrong == []
    assert done == list(FIGURES)
    assert len(judged) >= len(bench.directories)
    told = orjson.loads(orjson.dumps(report.document(bench, is_quick=True, took_s=1.0, judged=judged)))
    assert {row["figure"] for row in told["rows"]} == set(FIGURES)
    assert all(row["values"] and row["min"] <= row["median"] <= row["max"] for row in told["rows"])
    assert len({(row["figure"], row["what"]) for row in told["rows"]}) == len(told["rows"])
    assert {row["figure"] for row in told["rows"] if row["target"]} == set(FIGURES) - {"limits"}
    assert told["sizes"]["turns"] == TINY.turns
    assert told["fileSystem"] != "unknown"


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, figure: Any, *arguments: str) -> tuple[int, str]:
    """The command with one figure instead of all; its exit code and what it said."""
    for module in ("__main__", "figures"):
        monkeypatch.setattr(f"tests.bench.{module}.FIGURES", {"one": figure})
    done = CliRunner().invoke(main, ["--quick", "--data-dir", str(folder), *arguments])
    return done.exit_code, done.output


def test_a_target_that_is_missed_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def slow(bench: Bench) -> None:
        bench.add("one", "slow thing", [1.0, 3.0, 2.0], unit="ms", target=below(1.0))

    json_file = tmp_path / "out.json"
    code, said = run(monkeypatch, tmp_path / "bench", slow, "--json", str(json_file))
    assert code == 0, said
    assert "slow thing" in said
    assert "< 1 ms" in said
    [row] = orjson.loads(json_file.read_bytes())["rows"]
    assert (row["values"], row["median"], row["min"], row["max"]) == ([1.0, 3.0, 2.0], 2.0, 1.0, 3.0)
    assert row["met"] is False


def test_the_json_may_go_to_stdout_and_has_it_for_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def quick(bench: Bench) -> None:
        bench.add_ratio("one", "ratio", [1.0], [4.0])

    monkeypatch.setattr("tests.bench.__main__.FIGURES", {"one": quick})
    monkeypatch.setattr("tests.bench.figures.FIGURES", {"one": quick})
    done = CliRunner().invoke(main, ["--quick", "--data-dir", str(tmp_path / "bench"), "--json", "-"])
    [row] = orjson.loads(done.stdout)["rows"]
    assert (row["values"], row["limits"]) == ([0.25], [4.0])
    assert "ratio" in done.stderr


def test_a_reader_whose_bytes_differ_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def lying(bench: Bench) -> None:
        await asyncio.to_thread(_keep, tmp_path)
        body = LogBuilder().start().content.replace(b"Hello", b"Hullo")
        bench.compare(tmp_path, [Reading(session_id_of(1), body)])

    code, said = run(monkeypatch, tmp_path / "bench", lying)
    assert code == 1
    assert "differ from the file's" in said


def test_a_figure_that_fails_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def broken(bench: Bench) -> None:
        raise ConnectionError("the server closed")

    code, said = run(monkeypatch, tmp_path / "bench", broken)
    assert code == 1
    assert "one: ConnectionError: the server closed" in said


def test_a_fault_that_the_audit_finds_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def forging(bench: Bench) -> None:
        await asyncio.to_thread(_keep, bench.data_dir("forged"), b"Hullo")

    code, said = run(monkeypatch, tmp_path / "bench", forging)
    assert code == 1
    assert "audit of forged" in said


def test_a_folder_that_holds_something_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    code, said = run(monkeypatch, tmp_path, None)
    assert code == 2
    assert "is not empty" in said


def test_an_unknown_figure_is_refused_and_the_known_are_named() -> None:
    done = CliRunner().invoke(main, ["--only", "turns,tunes"])
    assert done.exit_code == 2
    assert "tunes; there are limits, turns" in done.output


def _keep(directory: Path, hello: bytes = b"Hello") -> None:
    """A log in its file, with one word of it changed."""
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / f"{session_id_of(1)}.ndjson"
    path.touch(mode=0o600)
    path.write_bytes(LogBuilder().start().say("a").finish("a").content.replace(b"Hello", hello))


# -- what readers got ----------------------------------------------------------------------------------------------


def test_what_a_reader_got_is_held_against_the_file(tmp_path: Path) -> None:
    _keep(tmp_path)
    session_id = session_id_of(1)
    whole = (tmp_path / f"{session_id}.ndjson").read_bytes()
    first = whole.index(b"\n") + 1
    assert difference(tmp_path, Reading(session_id, whole)) is None
    assert difference(tmp_path, Reading(session_id, b"\n" + whole.replace(b"\n", b"\n\n", 2))) is None
    assert difference(tmp_path, Reading(session_id, whole[first:], first)) is None
    assert difference(tmp_path, Reading(session_id, whole[-50:], -50)) is None
    assert difference(tmp_path, Reading(session_id, whole[:first], is_whole=False)) is None
    assert "got nothing" in str(difference(tmp_path, Reading(session_id, b"\n\n")))
    assert f"got {first} bytes of {len(whole)}" in str(
        difference(tmp_path, Reading(session_id, whole[:first]))
    )
    assert "differ" in str(difference(tmp_path, Reading(session_id, whole[first:])))
    assert "differ" in str(difference(tmp_path, Reading(session_id, whole + b"more\n")))


def test_heartbeats_are_blank_lines() -> None:
    assert without_heartbeats(b"\n\na\n\n\nb\n\n") == b"a\nb\n"
    assert without_heartbeats(b"a\nb\n") == b"a\nb\n"


@pytest.mark.parametrize("piece", [*range(1, 60), 200, 2_000])
async def test_the_client_reads_a_response_however_it_is_cut(piece: int) -> None:
    body = b"".join(b"%d of some bytes\r\n" % at for at in range(40))
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    parts = [body[:1], body[1:3], body[3:10], body[10:11], body[11:300], body[300:]]
    chunked = b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n"
    chunked += b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in [*parts, b""])
    connection = Connection()
    connection.connection_made(_Deaf())
    for response, status in ((whole, 200), (chunked, 404), (chunked, 404), (whole, 200)):
        reading = asyncio.create_task(connection.call(b"GET"))
        await asyncio.sleep(0)
        for begin in range(0, len(response), piece):
            assert not reading.done()
            connection.data_received(response[begin : begin + piece])
        assert await reading == body
        assert connection.status == status
        assert connection.first_byte_s > 0


async def test_the_client_says_when_the_server_closes() -> None:
    connection = Connection()
    connection.connection_made(_Deaf())
    reading = asyncio.create_task(connection.call(b"GET"))
    await asyncio.sleep(0)
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
    connection.connection_lost(None)
    with pytest.raises(ConnectionError, match="closed"):
        await reading


class _Deaf(asyncio.Transport):
    def write(self, data: Any) -> None:
        pass


# -- data sets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "amount"), [("whole", 50_000), ("long", 3_000), ("parked", 0), ("cut", 20)])
def test_what_the_generator_makes_passes_the_audit(kind: str, amount: int, tmp_path: Path) -> None:
    directory = tmp_path / "sessions"
    directory.mkdir(mode=0o700)
    for at in (1, 2):
        datasets.KINDS[kind](directory, at, amount)
    logs = sorted(directory.glob("*.ndjson"))
    assert [log.stem for log in logs] == [session_id_of(1), session_id_of(2)]
    check_directory(directory, is_refereed=kind != "cut")  # it judges no turn that a killed host left open
    marks = {path.read_text() for path in directory.glob("*.open")}
    assert marks == {"parked": {"parked 0"}, "cut": {"running"}}.get(kind, set())
    if kind == "whole":
        assert 0.9 * amount < logs[0].stat().st_size < 1.1 * amount


def test_the_generator_shares_its_work_out() -> None:
    assert datasets.shares(5, 7, 2) == [(5, 7)]
    assert datasets.shares(1, 1_001, 2) == [(1, 501), (502, 500)]
    assert datasets.shares(3, 250, 4) == [(3, 100), (103, 100), (203, 50)]


async def test_a_generator_that_fails_is_told(tmp_path: Path) -> None:
    datasets.KINDS["cut"](tmp_path, 5, 2)
    with pytest.raises(RuntimeError, match="generator of cut sessions"):
        await datasets.generate("cut", tmp_path, 5, 1, 2)  # it is there


# -- numbers -------------------------------------------------------------------------------------------------------


def test_a_row_has_median_spread_and_verdict() -> None:
    row = Row("one", "what", "ms", (3.0, 1.0, 2.0), below(2.5))
    assert (row.median, row.spread, row.is_met) == (2.0, (1.0, 3.0), True)
    assert Row("one", "what", "", (1.0, 2.0)).median == 1.5
    assert Row("one", "what", "", (1.0,)).is_met is None
    assert Row("one", "what", "", (0.7,), at_least(0.7)).is_met is True
    assert Row("one", "what", "", (0.69,), at_least(0.7)).is_met is False
    assert Row("one", "what", "", (0.7,), below(0.7)).is_met is False


def test_a_ratio_is_of_values_of_one_moment() -> None:
    assert ratios([1.0, 4.0, 3.0], [10.0, 20.0, 10.0]) == [0.1, 0.2, 0.3]
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0], [])


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 0.99) == 99.0
    assert percentile(values, 0.5) == 50.0
    assert percentile(values, 1.0) == 100.0
    assert percentile([7.0], 0.99) == 7.0


def test_numbers_are_short() -> None:
    assert [number(value) for value in (1234567.8, 99.94, 9.999, 0.12345, 0)] == [
        "1,234,568",
        "99.9",
        "10",
        "0.123",
        "0",
    ]


def test_the_table_shows_what_is_missed() -> None:
    console = Console(width=200, record=True, file=None, quiet=False)
    rows = [
        Row("turns", "good", "ms", (1.0, 2.0), below(5)),
        Row("turns", "bad", "", (0.1,), at_least(0.12, 0.16), "3 turns"),
    ]
    with console.capture() as capture:
        console.print(report.table(rows, "title"))
    good, bad = (line for line in capture.get().splitlines() if "good" in line or "bad" in line)
    assert "yes" in good
    assert "1 - 2" in good
    assert all(words in bad for words in (">= 0.12 (0.16)", "one run", "no", "3 turns"))


def test_sizes_have_what_the_figures_need() -> None:
    for sizes in (FULL, QUICK, TINY):
        assert len(sizes.stream_turns) >= 2
        assert sizes.replay_events > 1_000
        assert sizes.followups >= 2 * sizes.followups_edge
        assert sizes.stored >= 50 <= sizes.parked
