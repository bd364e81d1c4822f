"""The client over kill -9 and restarts of the host it speaks to: what it saw is the log, whole and in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable, Callable, Iterator
from functools import reduce
from pathlib import Path

import httpx
import pytest

from tests.e2e.process import Host
from tests.integration.test_client import as_logged, logged
from zhin_host import events as ev
from zhin_host.client import Client, Event, GaveUp, Patience, SyncClient, View, fold


class Bell:
    """Rings at every change of what it belongs to."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        self._event.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until it is so."""
        while not is_so():
            self._event.clear()
            await self._event.wait()


class Watched(Bell):
    """Patience that tells how often it was needed."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses = 0
        self.patience = Patience(first_s=0.02, longest_s=0.2, tries=500, sleep=self._sleep)

    async def _sleep(self, pause_s: float) -> None:
        self.pauses += 1
        self.ring()
        await asyncio.sleep(pause_s)

    async def some(self) -> None:
        """Wait until the client has tried in vain a few times more."""
        enough = self.pauses + 4
        await self.until(lambda: self.pauses >= enough)


class Seen(Bell):
    """What a reader has got so far."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    @property
    def view(self) -> View:
        return reduce(fold, self.events, View())

    async def take(self, source: AsyncIterable[Event]) -> None:
        async for event in source:
            self.events.append(event)
            self.ring()

    async def has(self, kind: str, count: int = 1) -> None:
        """Wait until so many events of this type came."""
        await self.until(lambda: sum(event.type == kind for event in self.events) >= count)


class House:
    """One address and one folder, at which hosts come and go."""

    def __init__(self, folder: Path, data_dir: Path) -> None:
        self._folder = folder
        self._data_dir = data_dir
        self.host = Host(folder, "--data-dir", data_dir)
        self.url = self.host.url

    async def kill(self) -> None:
        await asyncio.to_thread(self.host.kill)

    async def stop(self) -> None:
        await asyncio.to_thread(self.host.stop)

    async def start(self) -> None:
        self.host.__exit__(None, None, None)
        port = self.url.rsplit(":", 1)[1]
        self.host = await asyncio.to_thread(Host, self._folder, "--data-dir", self._data_dir, "--port", port)


@pytest.fixture
def house(tmp_path: Path, data_dir: Path) -> Iterator[House]:
    house = House(tmp_path, data_dir)
    yield house
    house.host.__exit__(None, None, None)


async def test_kill_9_in_the_middle_of_an_answer_costs_the_reader_nothing(
    house: House, data_dir: Path
) -> None:
    watched, got = Watched(), Seen()
    async with Client(house.url, patience=watched.patience) as client:
        session = await client.start("hello")
        reading = asyncio.create_task(got.take(session.turn))
        for count in (5, 20):
            await got.has(ev.MESSAGE_APPENDED, count)
            await house.kill()
            assert not reading.done()
            await watched.some()
            await house.start()
        await reading
    assert as_logged(got.events) == logged(data_dir, session.session_id)
    resumed = [event for event in got.events if event.type == ev.STEP_RESUMED]
    assert [event.data["attempt"] for event in resumed] == [2, 3]
    [turn] = got.view.turns
    assert (turn.status, turn.attempt) == ("completed", 3)
    assert turn.text == turn.said.text
    assert turn.text.startswith("Hello! I keep notes for you.")


async def test_an_approval_is_answered_after_a_restart_and_the_turn_goes_on(
    house: House, data_dir: Path
) -> None:
    watched, got = Watched(), Seen()
    async with Client(house.url, patience=watched.patience) as client:
        session = await client.start("write a note shopping: milk")
        reading = asyncio.create_task(got.take(session.turn))
        await got.has(ev.SESSION_WAITING)
        await house.kill()
        [request] = got.view.open_requests
        answering = asyncio.create_task(session.answer(request, approved=True))
        await watched.some()
        await house.start()
        assert (await answering).value is True
        await reading
    assert as_logged(got.events) == logged(data_dir, session.session_id)
    assert got.view.turns[0].text.endswith("to see it.")


async def test_two_clients_read_a_session_through_a_clean_restart(house: House, data_dir: Path) -> None:
    watched = Watched()
    async with (
        Client(house.url, patience=watched.patience) as one,
        Client(house.url, patience=watched.patience) as two,
    ):
        mine = await one.start("delete shopping")
        theirs = await two.open(mine.session_id)
        seen = (Seen(), Seen())
        readings = [
            asyncio.create_task(seen[0].take(mine.turn)),
            asyncio.create_task(seen[1].take(theirs.events(until="never"))),
        ]
        for got in seen:
            await got.has(ev.SESSION_WAITING)
        await house.stop()
        await watched.some()
        await house.start()
        await theirs.answer(seen[1].view.open_requests[0], approved=False)
        await readings[0]
        bye = await theirs.send("goodbye")
        await readings[1]
        assert (await bye.result()).status == "completed"
    log = logged(data_dir, mine.session_id)
    assert as_logged(seen[1].events) == log
    assert as_logged(seen[0].events) == log[: len(seen[0].events)]
    assert seen[0].events[-1].type == ev.SESSION_WAITING
    assert log[-1]["type"] == ev.SESSION_COMPLETED


async def test_a_message_sent_while_the_host_is_away_begins_one_turn_when_it_is_back(
    house: House, data_dir: Path
) -> None:
    watched = Watched()
    async with Client(house.url, patience=watched.patience) as client:
        session = await client.start("hello")
        await session.turn.result()
        await house.kill()
        sending = asyncio.create_task(session.send("what did I say before?"))
        await watched.some()
        await house.start()
        assert "- hello" in (await (await sending).result()).text
    started = [row for row in logged(data_dir, session.session_id) if row["type"] == ev.TURN_STARTED]
    assert len(started) == 2


async def test_a_client_that_gives_up_goes_on_later_from_what_it_saved(house: House, data_dir: Path) -> None:
    got = Seen()
    async with Client(house.url, patience=Patience(tries=3, first_s=0.01)) as client:
        session = await client.start("hello")
        reading = asyncio.create_task(got.take(session.turn))
        await got.has(ev.MESSAGE_APPENDED, 5)
        await house.kill()
        with pytest.raises(GaveUp) as caught:
            await reading
        assert (caught.value.session_id, caught.value.cursor) == (session.session_id, len(got.events))
        saved = json.dumps(session.state)
    await house.start()
    async with Client(house.url) as client:
        session = client.restore(json.loads(saved))
        await got.take(session.turn.events(since=session.cursor))
    assert as_logged(got.events) == logged(data_dir, session.session_id)
    async with httpx.AsyncClient(base_url=f"{house.url}/zhin/v1") as http:
        assert len((await http.get("/sessions")).json()["sessions"]) == 1


def test_the_sync_face_reads_on_after_kill_9(house: House, data_dir: Path) -> None:
    got: list[Event] = []
    with SyncClient(house.url, patience=Watched().patience) as client:
        session = client.start("hello")
        for event in session.turn:
            got.append(event)
            if (
                sum(event.type == ev.MESSAGE_APPENDED for event in got) == 5
                and house.host.process.poll() is None
            ):
                house.host.kill()
                asyncio.run(house.start())
    assert as_logged(got) == logged(data_dir, session.session_id)
    assert any(event.type == ev.STEP_RESUMED for event in got)
