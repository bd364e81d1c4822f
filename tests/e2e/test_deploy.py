"""A host takes over from another one: nobody who reads through a client loses or doubles a byte (docs/deploy.md)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.e2e.process import COMMAND, DEADLINE_S, Host, environment
from tests.e2e.test_client import Seen, Watched
from tests.integration.test_client import as_logged, logged
from zhin_host import events as ev
from zhin_host.client import Client


class Successor:
    """`zhin-host serve --take-over`, begun while the other host still runs.

    Attributes:
        process: The process.
    """

    def __init__(self, folder: Path, data_dir: Path, url: str, seconds: float) -> None:
        port = url.rsplit(":", 1)[1]
        arguments = ["--data-dir", str(data_dir), "--port", port, "--take-over", str(seconds)]
        self.process = subprocess.Popen(
            [COMMAND, "serve", *arguments],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def waits(self) -> str:
        """The line that says that it waits."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "host.waiting" in line:
                return line
        raise AssertionError(f"it ended with {self.process.wait()}")

    def serves(self) -> None:
        """Wait until it accepts requests."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("Listening on "), self.process.communicate()

    def ends(self) -> tuple[int, str]:
        """Its exit code, and what it still said."""
        _, said = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, said


@contextmanager
def successor(folder: Path, data_dir: Path, url: str, seconds: float = 30) -> Iterator[Successor]:
    following = Successor(folder, data_dir, url, seconds)
    try:
        yield following
    finally:
        if following.process.poll() is None:
            following.process.kill()
        following.process.communicate()


@pytest.fixture
def first(tmp_path: Path, data_dir: Path) -> Iterator[Host]:
    with Host(tmp_path, "--data-dir", data_dir) as host:
        yield host


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_readers_go_on_from_their_cursors_when_the_next_host_has_taken_over(
    tmp_path: Path, data_dir: Path, first: Host, number: signal.Signals
) -> None:
    watched, talk, parked = Watched(), Seen(), Seen()
    with successor(tmp_path, data_dir, first.url) as second:
        assert f"pid {first.process.pid} " in await asyncio.to_thread(second.waits)
        async with Client(first.url, patience=watched.patience) as client:
            asking = await client.start("write a note shopping: milk")
            readings = [asyncio.create_task(parked.take(asking.turn))]
            await parked.has(ev.SESSION_WAITING)
            waited = logged(data_dir, asking.session_id)
            talking = await client.start("hello")
            readings.append(asyncio.create_task(talk.take(talking.turn)))
            await talk.has(ev.MESSAGE_APPENDED, 5)
            if number == signal.SIGTERM:
                await asyncio.to_thread(first.stop)
            else:
                await asyncio.to_thread(first.kill)
            assert logged(data_dir, asking.session_id) == waited  # a parked turn is not touched
            await asyncio.to_thread(second.serves)
            await asking.answer(parked.view.open_requests[0], approved=True)
            await asyncio.gather(*readings)
        second.process.terminate()
        code, said = await asyncio.to_thread(second.ends)
        assert code == 0, said
    for got, session in ((parked, asking), (talk, talking)):
        assert as_logged(got.events) == logged(data_dir, session.session_id)
        [turn] = got.view.turns
        assert turn.status == "completed"
    assert talk.view.turns[0].attempt == 2
    assert talk.view.turns[0].text == talk.view.turns[0].said.text


def test_the_streams_of_both_hosts_are_together_the_bytes_of_the_file(
    tmp_path: Path, data_dir: Path, first: Host
) -> None:
    with successor(tmp_path, data_dir, first.url) as second, httpx.Client(base_url=first.url) as client:
        second.waits()
        accepted = first.say("hello")
        path = f"/zhin/v1/session/{accepted['sessionId']}/stream"
        with client.stream("GET", path, params={"until": "never"}) as response:
            parts = response.iter_raw()
            before = next(parts)
            first.process.terminate()
            before += b"".join(parts)
        assert first.process.wait(DEADLINE_S) == 0
        second.serves()
        lines = [line for line in before.split(b"\n") if line]
        after = client.get(path, params={"startIndex": len(lines)}, timeout=DEADLINE_S).content
        log = (data_dir / f"{accepted['sessionId']}.ndjson").read_bytes()
        assert b"\n".join([*lines, after.lstrip(b"\n")]) == log
        assert b"turn.completed" not in before
        second.process.terminate()
        assert second.ends()[0] == 0


def test_one_that_waits_in_vain_says_who_holds_the_directory(
    tmp_path: Path, data_dir: Path, first: Host
) -> None:
    with successor(tmp_path, data_dir, "http://127.0.0.1:0", seconds=0.2) as second:
        second.waits()
        code, said = second.ends()
    assert code == 2
    assert f"is held by another host (pid {first.process.pid} on " in said
    first.stop()


def test_one_that_waits_only_for_the_port_takes_it_when_it_is_free(tmp_path: Path, first: Host) -> None:
    with successor(tmp_path, tmp_path / "other", first.url) as second:
        second.waits()
        first.stop()
        second.serves()
        second.process.terminate()
        assert second.ends()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_that_waits_leaves_at_the_first_signal(
    tmp_path: Path, data_dir: Path, first: Host, number: signal.Signals
) -> None:
    with successor(tmp_path, data_dir, first.url) as second:
        second.waits()
        second.process.send_signal(number)
        assert second.ends() == (0, "")
    first.stop()
