"""host: what wires the parts, starts them, runs beside the requests and stops."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.hosting import NOBODY, hosting, one
from tests.scripted_log import UnsteadyPersistence
from zhin_host import Turn, create_agent_session_host, tool
from zhin_host.agent import hosted
from zhin_host.config import SETTINGS, Config
from zhin_host.errors import DirectoryInUse, ShuttingDown, StartupError, StorageUnavailable
from zhin_host.storage.memory import MemorySessionPersistence

GONE = StorageUnavailable("the disk is gone")
FAST: dict[str, Any] = {"heartbeat_s": 0.05}  # the ticker looks every 12 ms; time is the fake clock's


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


async def obedient(turn: Turn) -> None:
    if turn.message == "ask":
        await turn.say(str(await turn.ask("What?")))
    elif turn.message == "wait":
        await asyncio.Event().wait()
    await turn.say("ok")


@tool(approval="once", repeatable=False)
async def publish(page: str) -> str:
    """Put a page online."""
    return page


# -- what is hosted --------------------------------------------------------------------------------------------


async def test_an_agent_is_hosted_under_its_own_name_and_several_under_theirs() -> None:
    class Worker:
        name = "worker"
        version = 7
        resumable = False
        tools = (publish,)

        async def __call__(self, turn: Turn) -> None:
            await turn.say("ok")

    assert create_agent_session_host(obedient).info()["agents"][0]["name"] == "obedient"
    (agent,) = create_agent_session_host(Worker()).info()["agents"]
    assert (agent["name"], agent["version"], agent["resumable"]) == ("worker", "7", False)
    (told,) = agent["tools"]
    assert told["name"] == "publish"
    assert (told["approval"], told["repeatable"], told["description"]) == (
        "once",
        False,
        "Put a page online.",
    )
    assert told["inputSchema"]["required"] == ["page"]
    several = create_agent_session_host({"one": obedient, "two": Worker()}).info()["agents"]
    assert [row["name"] for row in several] == ["one", "two"]
    given = create_agent_session_host(obedient, tools=[publish]).info()["agents"][0]["tools"]
    assert [row["name"] for row in given] == ["publish"]


async def test_what_an_agent_says_of_itself_stands_in_turn_started() -> None:
    async def agent(turn: Turn) -> None: ...

    vars(agent)["version"] = "2026-01"
    async with hosting(agent, tools=[publish]) as host:
        started = one(await host.run(), "turn.started")
    assert started["agentVersion"] == "2026-01"
    assert started["toolsDigest"].startswith("sha256:")
    async with hosting(obedient) as host:
        assert not {"agentVersion", "toolsDigest"} & set(one(await host.run(), "turn.started"))


def test_an_agent_that_is_hosted_already_stays_what_it_is() -> None:
    one_agent = hosted(obedient, "named")
    assert hosted(one_agent, "other") is one_agent
    assert create_agent_session_host({"named": one_agent}).info()["agents"][0]["name"] == "named"


class Once:
    def step(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"type": "done", "text": "ok"}]


@pytest.mark.parametrize("agent", [obedient, Once()])
async def test_in_a_mapping_the_key_is_the_name_also_of_an_agent_that_has_another(agent: Any) -> None:
    """It is looked up by the key, so a session that recorded another name would never find it again."""
    named = hosted(agent, "named")
    persistence = MemorySessionPersistence()
    for _ in range(2):
        async with hosting({"other": named, "third": named}, persistence=persistence) as host:
            assert [row["name"] for row in host.host.info()["agents"]] == ["other", "third"]
            for name in ("other", "third"):
                accepted = await host.start(agent=name)
                events = await host.idle(accepted.session_id)
                assert one(events, "session.started")["agent"] == name
                assert one(events, "message.completed")["message"] == "ok"
    assert named.name == "named"


class Quiet:
    async def __call__(self, turn: Turn) -> None: ...


@pytest.mark.parametrize("agent", [None, "module:agent", print, object(), Quiet, publish])
def test_what_is_no_agent_is_refused_with_a_sentence(agent: Any) -> None:
    with pytest.raises(StartupError, match="give a function"):
        create_agent_session_host(agent)


async def careless() -> None: ...


async def greedy(turn: Turn, more: str) -> None: ...


@pytest.mark.parametrize("agent", [careless, greedy])
def test_an_agent_that_does_not_take_the_turn_alone_is_refused_at_the_start(agent: Any) -> None:
    with pytest.raises(StartupError, match=r"one argument, the Turn; write `async def \w+\(turn\)`"):
        create_agent_session_host(agent)


def test_an_agent_whose_name_cannot_be_written_is_refused_at_the_start() -> None:
    with pytest.raises(StartupError, match="lone surrogate"):
        create_agent_session_host({"main": obedient, "s\ud800": obedient})


def test_a_host_of_no_agents_is_refused_and_not_first_when_a_turn_asks_for_one() -> None:
    with pytest.raises(StartupError, match="at least one"):
        create_agent_session_host({})


def test_settings_are_given_one_by_one_or_as_a_whole() -> None:
    assert create_agent_session_host(obedient, streams_max=3).config.streams_max == 3
    config = Config(streams_max=4)
    host = create_agent_session_host(obedient, config=config)
    assert host.config is config
    assert host.info()["limits"]["streams_max"] == 4
    assert set(host.info()["limits"]) == {setting.name for setting in SETTINGS} - {"redact"}
    with pytest.raises(StartupError, match="streams_max"):
        create_agent_session_host(obedient, streams_max=0)


# -- starting and stopping -------------------------------------------------------------------------------------


async def test_a_host_starts_once_and_stops_once_however_often_it_is_told() -> None:
    class Counting(MemorySessionPersistence):
        starts = stops = 0

        def start(self) -> None:
            self.starts += 1

        def stop(self) -> None:
            self.stops += 1

    persistence = Counting()
    host = create_agent_session_host(obedient, persistence=persistence)
    await host.stop()  # it never ran
    await asyncio.gather(host.start(), host.start())
    async with host:
        pass
    await host.stop()
    assert (persistence.starts, persistence.stops) == (1, 1)


async def test_a_host_that_could_not_start_says_why_each_time_and_can_be_stopped(data_dir: Path) -> None:
    async with hosting(obedient, data_dir=data_dir):
        second = create_agent_session_host(obedient, data_dir=data_dir)
        for _ in range(2):
            with pytest.raises(DirectoryInUse):
                await second.start()
        await second.stop()


async def test_a_directory_that_cannot_be_read_is_let_go_again() -> None:
    class Unreadable(MemorySessionPersistence):
        stops = 0

        def session_ids(self) -> Any:
            raise GONE

        def stop(self) -> None:
            self.stops += 1

    persistence = Unreadable()
    host = create_agent_session_host(obedient, persistence=persistence)
    with pytest.raises(StartupError, match="the disk is gone"):
        await host.start()
    assert persistence.stops == 1


async def test_the_app_starts_its_host_with_the_first_request_where_nobody_says_lifespan() -> None:
    host = create_agent_session_host(obedient)
    transport = httpx.ASGITransport(app=host.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost/zhin/v1") as client:
        answer = (await client.post("/session", json={"message": "Hello"})).json()
        body = (await client.get(f"/session/{answer['sessionId']}/stream")).text
        assert body.count("\n") >= 8
        assert (await client.get("/ready")).status_code == 200
    await host.stop()
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost/zhin/v1") as client:
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/ready")).status_code == 503
        assert (await client.post("/session", json={"message": "Hello"})).status_code == 503


async def test_requests_that_come_while_the_host_starts_wait_until_it_has() -> None:
    class Slow(MemorySessionPersistence):
        is_started = False

        def start(self) -> None:
            has_begun.set()
            may_go.wait(20)
            self.is_started = True

        async def create_log(self, *given: Any) -> Any:
            assert self.is_started
            return await super().create_log(*given)

    has_begun, may_go = threading.Event(), threading.Event()
    host = create_agent_session_host(obedient, persistence=Slow())
    transport = httpx.ASGITransport(app=host.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost/zhin/v1") as client:
        asking = [asyncio.create_task(client.post("/session", json={"message": "Hello"})) for _ in range(3)]
        assert await asyncio.to_thread(has_begun.wait, 20)
        assert not any(task.done() for task in asking)
        may_go.set()
        assert [(await task).status_code for task in asking] == [200, 200, 200]
        assert (await client.get("/ready")).status_code == 200
    await host.stop()


async def test_a_host_that_cannot_start_answers_each_request_so_and_says_why_in_its_log_alone(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with hosting(obedient, data_dir=data_dir):
        second = create_agent_session_host(obedient, data_dir=data_dir)
        transport = httpx.ASGITransport(app=second.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost/zhin/v1") as client:
            for _ in range(2):
                answer = await client.post("/session", json={"message": "Hello"})
                assert (answer.status_code, answer.json()["error"]) == (503, "STORAGE_UNAVAILABLE")
                assert str(data_dir) not in answer.text
            strange = await client.get("/health", headers={"Host": "attacker.example"})
            assert strange.status_code == 403
        await second.stop()
    (record,) = [one for one in caplog.records if "could not start" in one.message]
    assert "is held by another host" in record.message


async def test_a_server_that_speaks_lifespan_starts_and_stops_the_host() -> None:
    host = create_agent_session_host(obedient)
    incoming: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    sent: list[str] = []
    said = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message["type"])
        said.set()

    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    app: Any = host.app
    serving: asyncio.Task[None] = asyncio.create_task(app(scope, incoming.get, send))
    incoming.put_nowait({"type": "lifespan.startup"})
    await said.wait()
    await host.store.check_ready()
    incoming.put_nowait({"type": "lifespan.shutdown"})
    await serving
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    with pytest.raises(ShuttingDown):
        await host.store.check_ready()


async def test_a_stopped_host_has_ended_every_stream_after_the_bytes_already_written() -> None:
    async with hosting(obedient) as host:
        accepted = await host.start("ask")
        await host.asked(accepted.session_id)
        reading = [asyncio.create_task(host.content(accepted.session_id, until="never")) for _ in range(10)]
        await asyncio.sleep(0)
        await host.host.stop()
        log = host.log(accepted.session_id)
        assert [await content for content in reading] == [log] * 10


# -- what runs beside the requests -----------------------------------------------------------------------------


class Pulse:
    """Counts the heartbeats of a stream."""

    def __init__(self, blocks: AsyncIterator[bytes]) -> None:
        self._blocks = blocks
        self.count = 0
        self._beat = asyncio.Event()
        self.task = asyncio.create_task(self._read(), name="pulse")

    async def _read(self) -> None:
        async for block in self._blocks:
            if not block:
                self.count += 1
                self._beat.set()

    async def beats(self, count: int) -> None:
        async with asyncio.timeout(10):
            while self.count < count:
                self._beat.clear()
                await self._beat.wait()


async def test_a_silent_stream_has_its_heartbeats_while_storage_hangs() -> None:
    """Scenario A8: a session that cannot leave memory now is no reason for a proxy to cut the streams of others."""
    persistence = UnsteadyPersistence()
    async with hosting(obedient, persistence=persistence, idle_s=10.0, **FAST) as host:
        idle = await host.start()
        await host.idle(idle.session_id)
        watched = await host.start("ask")
        await host.asked(watched.session_id)
        view = await host.store.view(NOBODY, watched.session_id)
        reader = await host.store.subscribe(NOBODY, watched.session_id, view["cursor"], "never")
        pulse = Pulse(aiter(reader))
        await pulse.beats(1)
        persistence.hold_snapshots()
        for beat in range(2, 6):
            host.clock.advance(15)
            await pulse.beats(beat)
        assert host.is_in_memory(idle.session_id)  # it waits for its snapshot
        persistence.let_snapshots_go()
        pulse.task.cancel()
        await asyncio.wait([pulse.task])
        await reader.aclose()
        await host.cancel(watched.session_id)
        await host.idle(watched.session_id)


async def test_time_lets_requests_expire_marks_go_and_sessions_leave_without_anybody_asking() -> None:
    async with hosting(obedient, request_expires_s=60.0, idle_s=30.0, **FAST) as host:
        accepted = await host.start("ask")
        await host.asked(accepted.session_id)
        host.clock.advance(60)
        events = await host.idle(accepted.session_id)
        assert one(events, "turn.failed")["code"] == "REQUEST_EXPIRED"
        host.clock.advance(60)
        async with asyncio.timeout(10):
            while host.is_in_memory(accepted.session_id):  # noqa: ASYNC110 - the ticker is what is waited for
                await asyncio.sleep(0.01)
        assert host.persistence.marks() == {}


async def test_what_could_not_be_recovered_is_tried_again_without_anybody_asking() -> None:
    persistence = UnsteadyPersistence()
    async with hosting(obedient, persistence=persistence, stop_grace_s=0.0) as host:
        accepted = await host.start("wait")
        await host.seen(accepted.session_id, "message.received")
    persistence.append_error = GONE
    async with hosting(obedient, persistence=persistence, **FAST) as host:
        async with asyncio.timeout(10):
            while host.host._sessions.unsorted:  # noqa: ASYNC110 - threads read the logs
                await asyncio.sleep(0.001)
        assert not host.is_in_memory(accepted.session_id)
        persistence.append_error = None
        async with asyncio.timeout(10):
            while not host.is_in_memory(accepted.session_id):  # noqa: ASYNC110 - the ticker is what is waited for
                await asyncio.sleep(0.01)
        await host.seen(accepted.session_id, "step.resumed")
        await host.cancel(accepted.session_id)
        await host.idle(accepted.session_id)


async def test_the_host_drains_when_the_server_it_is_mounted_in_has_got_its_signal() -> None:
    class Server:
        """As uvicorn: its handler notes the signal, and the app hears of it when every response is done."""

        should_exit = False

        def handle_exit(self, *_: object) -> None:
            self.should_exit = True

    server = Server()
    before = signal.signal(signal.SIGTERM, server.handle_exit)
    try:
        async with hosting(obedient, **FAST) as host:
            accepted = await host.start("ask")
            await host.asked(accepted.session_id)
            reading = asyncio.create_task(host.content(accepted.session_id, until="never"))
            await asyncio.sleep(0)
            server.should_exit = True
            async with asyncio.timeout(10):
                assert await reading == host.log(accepted.session_id)
            with pytest.raises(ShuttingDown):
                await host.start()
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_a_task_of_the_host_that_dies_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with hosting(obedient, **FAST) as host:

        def die() -> None:
            raise RuntimeError("a bug")

        vars(host.host._sessions)["sweep"] = die
        async with asyncio.timeout(10):
            while not caplog.records:  # noqa: ASYNC110 - the ticker is what is waited for
                await asyncio.sleep(0.01)
        del vars(host.host._sessions)["sweep"]
    (record,) = caplog.records
    assert "died; restart the host" in record.message
