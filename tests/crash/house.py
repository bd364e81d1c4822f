"""House: one data directory and the hosts that live in it one after another; and the nursery they come from."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from tests.crash.cradle import REFUSED
from tests.crash.disk import STOPPED
from tests.crash.order import Order

DEADLINE_S: Final = 60.0
_KILLED: Final = -9
QUICK: Final[dict[str, Any]] = {  # so that what takes minutes elsewhere happens within a test
    "parked_s": 0.05,
    "idle_s": 0.1,
    "heartbeat_s": 0.2,
    "snapshot_bytes_min": 1_000,
    "cancel_grace_s": 1.0,
    "stop_grace_s": 1.0,
}


class Life:
    """One host's process.

    Attributes:
        ready: Its port, once it accepts requests.
        ended: Its exit code, a signal's number negative.
    """

    def __init__(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.ready: asyncio.Future[int] = loop.create_future()
        self.ended: asyncio.Future[int] = loop.create_future()


class Nursery:
    """Starts hosts in processes of their own, through one cradle."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._lives: dict[int, Life] = {}
        self._process: asyncio.subprocess.Process | None = None

    def bear(self, order: Order) -> Life:
        """Start a host; returns at once."""
        life = Life(next(self._numbers))
        self._lives[life.number] = life
        self._tell(b"order %d %b" % (life.number, order.encode()))
        return life

    def kill(self, life: Life) -> None:
        """`kill -9`."""
        self._tell(b"kill %d\n" % life.number)

    def terminate(self, life: Life) -> None:
        """SIGTERM: a clean stop."""
        self._tell(b"term %d\n" % life.number)

    def _tell(self, line: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line)

    async def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            word, number, value = line.split()
            life = self._lives[int(number)]
            if word == b"ready":
                life.ready.set_result(int(value))
            else:
                life.ended.set_result(int(value))
                del self._lives[int(number)]
        for life in self._lives.values():  # the cradle has ended, and they with it
            if not life.ended.done():
                life.ended.set_result(_KILLED)

    @classmethod
    @asynccontextmanager
    async def open(cls, **environment: str) -> AsyncIterator[Nursery]:
        """A nursery for the block; no host outlives it."""
        nursery = cls()
        nursery._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.crash.cradle",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**_environment(), **environment},
        )
        listening = asyncio.create_task(nursery._listen(), name="nursery")
        try:
            yield nursery
        finally:
            assert nursery._process.stdin is not None
            nursery._process.stdin.close()
            await asyncio.wait_for(nursery._process.wait(), DEADLINE_S)
            await listening


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("ZHIN_")}


class House:
    """A data directory in which, whenever a host ends, the next one is started.

    Args:
        nursery: Where hosts come from.
        home: A folder for the data directory and the ledger.
        http: Speaks to all of them.
        plan: The order of the n-th life, made from a plain one; None: all are plain.
        settings: Those of Config for every life.

    Attributes:
        directory: The data directory.
        ledger: The folder that the tools write in.
        faults: What went wrong that must not.
        refusals: (status, code) of every 503 and 507 that a request got.
        deaths: How many lives ended without being asked to.
    """

    def __init__(
        self,
        nursery: Nursery,
        home: Path,
        http: httpx.AsyncClient,
        plan: Callable[[int, Order], Order] | None = None,
        **settings: Any,
    ) -> None:
        self.directory = home / "sessions"
        self.ledger = home / "ledger"
        self.ledger.mkdir(parents=True)
        self.faults: list[str] = []
        self.refusals: list[tuple[int, str]] = []
        self.deaths = 0
        self.life: Life | None = None
        self._nursery = nursery
        self._http = http
        self._plan = plan or (lambda _, order: order)
        self._order = Order(
            directory=str(self.directory), ledger=str(self.ledger), settings={**QUICK, **settings}
        )
        self._lives = 0
        self._is_up = asyncio.Event()
        self._base_url = ""
        self._is_stopping = False
        self._was_asked = False
        self._on_death: list[Callable[[], object]] = []
        self._keeping: asyncio.Task[None] | None = None

    # -- hosts ---------------------------------------------------------------------------------------------

    def when_dead(self, look: Callable[[], object]) -> None:
        """Call `look` whenever a host has died, before the next one starts."""
        self._on_death.append(look)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[House]:
        """Hosts for the block; at its end the last one is stopped cleanly, and what it left is whole."""
        self._keeping = asyncio.create_task(self._keep(), name=f"house {self.directory}")
        try:
            yield self
            await self._stop()
        finally:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
            if self.life is not None and not self.life.ended.done():
                self._nursery.kill(self.life)
                await self.life.ended

    async def _keep(self) -> None:
        while True:
            code = await self._live()
            if code == 0 and self._was_asked:
                if self._is_stopping:
                    return
                self._was_asked = False
                continue
            self.deaths += 1
            if code not in (STOPPED, _KILLED) and not (code == REFUSED and self._may_be_refused):
                self.faults.append(f"a host ended with code {code}: {self._last_words()}")
            for look in tuple(self._on_death):
                look()

    async def _live(self) -> int:
        order = self._plan(self._lives, self._order)
        self._may_be_refused = order.fail_at is not None
        self._lives += 1
        life = self.life = self._nursery.bear(order)
        await asyncio.wait({life.ready, life.ended}, return_when=asyncio.FIRST_COMPLETED, timeout=DEADLINE_S)
        if life.ready.done():
            self._base_url = f"http://127.0.0.1:{life.ready.result()}/zhin/v1"
            self._is_up.set()
            if self._is_stopping:
                self.terminate()
        code = await life.ended
        self._is_up.clear()
        return code

    _may_be_refused = False

    async def _stop(self) -> None:
        """Stop cleanly; where the stop itself is cut down, once more."""
        self._is_stopping = True
        assert self.life is not None
        assert self._keeping is not None
        if self.life.ready.done():
            self.terminate()
        await asyncio.wait_for(asyncio.shield(self._keeping), DEADLINE_S)

    def kill(self) -> None:
        """`kill -9` whoever lives here now."""
        if self.life is not None and not self.life.ended.done():
            self._nursery.kill(self.life)

    def terminate(self) -> None:
        """SIGTERM: the host that lives here now stops cleanly, and the next one is started."""
        if self.life is not None and not self.life.ended.done():
            self._was_asked = True
            self._nursery.terminate(self.life)

    async def restart(self) -> None:
        """A clean stop, and the next host up."""
        life = await self.up()
        self.terminate()
        await life.ended
        await self.up()

    async def up(self) -> Life:
        """Wait until a host accepts requests."""
        return (await self._address())[1]

    def _last_words(self) -> str:
        path = self.ledger.with_name(f"{self.ledger.name}.stderr")
        return path.read_text()[-2_000:] if path.exists() else ""

    # -- requests ------------------------------------------------------------------------------------------

    async def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        """The answer of whichever host lives long enough to give one; storage that fails is asked again."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                url, life = await self._address()
                try:
                    response = await self._http.request(method, url + path, **more)
                except httpx.TransportError:
                    await self._after(life)
                    continue
                if response.status_code not in (503, 507):
                    return response
                body = response.json()
                self.refusals.append((response.status_code, body["error"]))
                if "index" in body:
                    return response
                await asyncio.sleep(0.01)

    async def parts(self, path: str, params: dict[str, Any]) -> AsyncGenerator[bytes]:
        """An open stream's parts; it ends early when the host does. The caller closes it."""
        url, life = await self._address()
        try:
            async with self._http.stream("GET", url + path, params=params) as response:
                if response.status_code == httpx.codes.OK:
                    async for part in response.aiter_raw():
                        yield part
                else:
                    await response.aread()
                    self.refusals.append((response.status_code, response.json()["error"]))
        except httpx.TransportError:
            await self._after(life)

    async def _address(self) -> tuple[str, Life]:
        async with asyncio.timeout(DEADLINE_S):
            await self._is_up.wait()
        assert self.life is not None
        return self._base_url, self.life

    async def _after(self, life: Life) -> None:
        """A connection broke: most often because its host is dead, which is known in a moment."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(life.ended), 0.05)


def plainly(order: Order, **more: Any) -> Order:
    """The order with something changed."""
    return dataclasses.replace(order, **more)
