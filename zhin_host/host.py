"""create_agent_session_host: wires every part of a host, and owns what runs beside the requests."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from starlette.types import ASGIApp

from zhin_host.agent import Agent, hosted_agents
from zhin_host.attempt import Services
from zhin_host.audit import audit_session
from zhin_host.clock import Clock, SessionId, SystemClock
from zhin_host.config import SETTINGS, Config
from zhin_host.driver import TurnDriver
from zhin_host.engine import Engine, TurnHandle
from zhin_host.errors import StartupError, StorageUnavailable
from zhin_host.gauges import Gauges, read_gauges
from zhin_host.http import AllowAll, CallerOf, Dialect, OuterLogin, create_app, login_of
from zhin_host.intake import Message
from zhin_host.logline import tell
from zhin_host.meters import Meters
from zhin_host.ports import Authenticator, Principal, SessionPersistence
from zhin_host.sessions import LiveSessions
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.memory import MemorySessionPersistence
from zhin_host.store import HttpAgentSessionStore
from zhin_host.subscriptions import Subscriptions, Until
from zhin_host.tools import Tool
from zhin_host.workers import Workers

_log = logging.getLogger("zhin_host.host")

_BEATS_TO_RECOVERY = 10


class AgentSessionHost:
    """One host: its app, its sessions and its tasks. Use `create_agent_session_host` to make one.

    Serve `app`, or mount it: a server that speaks lifespan starts and stops the host. Where nobody does, it starts
    with the first request, and `async with host:` around the server's life stops it cleanly.

    Attributes:
        app: The ASGI app.
        store: The commands, for use without HTTP.
        config: The settings in force.
        meters: What it counts about itself.
    """

    def __init__(  # noqa: PLR0917 - the place where everything is wired
        self,
        agents: Mapping[str, Agent],
        persistence: SessionPersistence,
        config: Config,
        clock: Clock,
        authenticator: Authenticator | OuterLogin,
        allowed_hosts: Iterable[str],
        allowed_origins: Iterable[str],
        *,
        any_host: bool,
        pages: Mapping[str, ASGIApp] | None,
        dialects: Iterable[Dialect],
    ) -> None:
        self.config = config
        self._agents = agents
        self._persistence = persistence
        self.meters = Meters(agents)
        services = Services(clock, config, Workers(config.worker_threads_max), self.meters)
        self._clock = clock
        self._hub = Subscriptions(
            clock,
            streams_max=config.streams_max,
            heartbeat_s=config.heartbeat_s,
            write_timeout_s=config.write_timeout_s,
        )
        driver = TurnDriver(agents, services)
        self._sessions = LiveSessions(persistence, services, driver)
        self.store = HttpAgentSessionStore(self._sessions, driver, services, self._hub, self._audit)
        self._engine = Engine(self.store, Principal())
        self._app = create_app(
            self.store,
            authenticator=authenticator,
            config=config,
            info=self.info,
            meters=self.meters,
            gauges=self.gauges,
            begin=self._begin,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            any_host=any_host,
            lifespan=self._lifespan,
            pages=pages,
            dialects=dialects,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._starting: asyncio.Task[None] | None = None
        self._has_started = False
        self._is_stopped = False
        self._is_draining = False

    @property
    def app(self) -> ASGIApp:
        """The ASGI app, to serve or to mount."""
        return self._app

    @property
    def sessions_found(self) -> int:
        """How many sessions there are."""
        return len(self._sessions.index)

    def gauges(self) -> Gauges:
        """What it holds at this moment."""
        return read_gauges(self._sessions, self._hub, self._clock)

    def info(self) -> dict[str, Any]:
        """GET /info: the agents, their tools with their approval policy, the settings."""
        return {
            "agents": [
                {
                    "name": agent.name,
                    "version": agent.version,
                    "resumable": agent.is_resumable,
                    "tools": [_tool_info(tool) for tool in agent.tools],
                }
                for agent in self._agents.values()
            ],
            "limits": {
                setting.name: getattr(self.config, setting.name)
                for setting in SETTINGS
                if not setting.is_list  # patterns may hold what they are to hide
            },
        }

    async def run(
        self,
        task: Message,
        *,
        session_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        agent: str | None = None,
    ) -> TurnHandle:
        """Begin a turn without HTTP: in a new session, or in the session at rest that is named.

        Raises:
            RequestError: As POST /session and POST /session/{id} say.
        """
        await self.start()
        return await self._engine.run(task, session_id, metadata, agent)

    async def resume(self, session_id: str) -> TurnHandle:
        """The handle of a session's turn: the open one (it goes on by itself), or the failed last one, tried again.

        Raises:
            NothingToResume: No turn is open, and the last one did not fail so that it can be tried again.
        """
        await self.start()
        return await self._engine.resume(session_id)

    async def stream(
        self, session_id: str, since: int = 0, until: Until = "boundary"
    ) -> AsyncIterator[dict[str, Any]]:
        """A session's events from index `since` on, as dicts. It only watches; `until` is as in GET …/stream."""
        await self.start()
        async for event in self._engine.stream(session_id, since, until):
            yield event

    async def start(self) -> None:
        """Take the data directory and begin to sort what the last host left open. Once; later calls wait for it.

        Raises:
            StartupError: The directory cannot be used; DirectoryInUse when another host holds it.
        """
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start(), name="start")
        await asyncio.shield(self._starting)

    async def stop(self) -> None:
        """Drain: refuse new work, end the streams, let actions end, sync, and let the data directory go. Once."""
        if self._starting is None or self._is_stopped:
            return
        self._is_stopped = True
        await self._drain()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sessions.stop()
        await asyncio.gather(*map(self._close, self._agents.values()))
        self._persistence.stop()
        tell(_log, logging.INFO, "host.stopped")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Start with the first request, mounted where nobody passes lifespan on; all that come meanwhile wait for it.

        Raises:
            StorageUnavailable: It could not start. Why is not for callers.
        """
        if self._has_started:
            return
        is_first = self._starting is None
        try:
            await self.start()
        except StartupError as error:
            if is_first:
                _log.critical("the host could not start: %s", error)
            raise StorageUnavailable("The host could not start; its log says why.") from None

    @asynccontextmanager
    async def _lifespan(self, _app: object) -> AsyncIterator[None]:
        async with self:
            yield

    async def _start(self) -> None:
        await asyncio.to_thread(self._persistence.start)
        try:
            await asyncio.to_thread(self._sessions.start)
        except StorageUnavailable as error:
            self._persistence.stop()
            raise StartupError(str(error)) from error
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._recover(), name="recovery"),
            loop.create_task(self._tick(), name="ticker"),
            loop.create_task(self._keep_house(), name="housekeeping"),
        ]
        for task in self._tasks:
            task.add_done_callback(_tell_of_death)
        self._has_started = True

    async def _recover(self) -> None:
        await self._sessions.recover()
        now = self.gauges()
        tell(_log, logging.INFO, "host.ready", sessions=now.sessions_known, parked=now.turns_parked)

    async def _drain(self) -> None:
        if not self._is_draining:
            self._is_draining = True
            now = self.gauges()
            tell(
                _log,
                logging.INFO,
                "host.draining",
                running=now.turns_running,
                parked=now.turns_parked,
                readers=now.readers,
            )
        await self.store.stop()

    async def _close(self, agent: Agent) -> None:
        """Have an agent let go of what it holds; one that fails at it, or takes too long, holds nothing up."""
        try:
            async with asyncio.timeout(self.config.stop_grace_s):
                await agent.aclose()
        except Exception:  # noqa: BLE001 - somebody's agent, and everything of ours is safe by now
            _log.exception("agent %s did not close", agent.name)

    async def _tick(self) -> None:
        """The one timer of all streams: heartbeats and slow readers. It waits for no storage."""
        while True:
            await asyncio.sleep(self._interval_s)
            if _is_server_stopping():
                await self._drain()  # it tells the app only when every response is done, ours being streams
                return
            self._hub.tick()

    async def _keep_house(self) -> None:
        """What time asks for of sessions: expired requests, stale marks, idle ones, and bad ones tried again."""
        beats = 0
        while True:
            await asyncio.sleep(self._interval_s)
            beats += 1
            if beats % _BEATS_TO_RECOVERY == 0:
                await self._sessions.recover_again()
            await self.store.expire()
            self._sessions.sweep()
            await self._sessions.drop_idle()

    @property
    def _interval_s(self) -> float:
        return min(1.0, self.config.heartbeat_s / 4, self.config.write_timeout_s / 4)

    def _audit(
        self, session_id: SessionId, limit_bytes: int | None
    ) -> tuple[dict[str, Any], tuple[int, int] | None]:
        verdict = audit_session(self._persistence, session_id, limit_bytes=limit_bytes)
        return verdict.to_json(), verdict.unchained


def _is_server_stopping() -> bool:
    """Whether somebody else's uvicorn got its signal: its handler belongs to it and says so. Nothing is patched."""
    handlers = (signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT))
    return any(
        getattr(getattr(handler, "__self__", None), "should_exit", False) is True for handler in handlers
    )


def _tell_of_death(task: asyncio.Task[None]) -> None:
    """A task of the host that died has its traceback in the log at once, not at the stop."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.critical("the host's task %s died; restart the host", task.get_name(), exc_info=error)


def create_agent_session_host(
    agent: object,
    *,
    data_dir: str | Path | None = None,
    tools: Iterable[Tool] = (),
    authenticator: Authenticator | CallerOf | None = None,
    allowed_hosts: Iterable[str] = (),
    allowed_origins: Iterable[str] = (),
    any_host: bool = False,
    clock: Clock | None = None,
    persistence: SessionPersistence | None = None,
    config: Config | None = None,
    pages: Mapping[str, ASGIApp] | None = None,
    dialects: Iterable[Dialect] = (),
    **settings: Any,
) -> AgentSessionHost:
    """A host for an agent, or for several: `{"name": agent, …}`, the first being the default.

    Args:
        agent: A function or generator of one argument, async (the Turn) or plain (the SyncTurn); or several by name.
        data_dir: The folder of plain files; None keeps everything in memory.
        tools: The agent's tools, for those who look at GET /info.
        authenticator: Says who calls (docs/access.md), or an async function of the request as an app around the host
            has it (docs/mounting.md); None tells nobody apart.
        allowed_hosts: Values of the Host header beside the loopback ones.
        allowed_origins: Values of the Origin header beside the host's own.
        any_host: Let any Host pass (for an address that tokens guard).
        clock: Time and randomness.
        persistence: Where sessions live instead of files or memory.
        config: The settings.
        pages: Apps for people beside the API, by path: `{PATH: Console()}` of zhin_host.console is the web console.
        dialects: Other protocols that clients speak to the same sessions, such as those of zhin_host.protocols.
        settings: Or the settings one by one, by their names in `zhin_host.config`.

    Raises:
        StartupError: The agent or the authenticator is none, or a setting is out of its range.
    """
    login = AllowAll() if authenticator is None else login_of(authenticator)
    config = config or Config(**settings)
    agents = hosted_agents(agent, tools)
    if persistence is None:
        persistence = (
            MemorySessionPersistence()
            if data_dir is None
            else FileHttpSessionPersistence(data_dir, fsync=config.fsync)
        )
    return AgentSessionHost(
        agents,
        persistence,
        config,
        clock or SystemClock(),
        login,
        allowed_hosts,
        allowed_origins,
        any_host=any_host,
        pages=pages,
        dialects=dialects,
    )


def _tool_info(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "approval": tool.policy_name,
        "repeatable": tool.is_repeatable,
        "inputSchema": tool.schema,
    }
