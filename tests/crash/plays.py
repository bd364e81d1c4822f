"""Plays: one script in one house, once undisturbed and then with something going wrong."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.crash.house import DEADLINE_S, House, Nursery
from tests.crash.order import Order
from tests.crash.player import Player
from tests.crash.scripts import SCRIPTS
from tests.crash.verdict import faults_of, judge, outcome_of

Plan = Callable[[int, Order], Order]


@dataclass
class Played:
    """How it went.

    Attributes:
        deaths: How many hosts ended without being asked to.
        running: Deaths that found the turn running.
        parked: Deaths that found it parked.
        refusals: (status, code) of each 503 and 507.
        faults: What must not be.
    """

    deaths: int
    running: int
    parked: int
    refusals: list[tuple[int, str]]
    faults: list[str]


class Stage:
    """Plays scripts, and remembers how each goes undisturbed.

    Args:
        nursery: Where hosts come from.
        folder: Where each play gets a folder of its own.
        http: The client's connections.
    """

    def __init__(self, nursery: Nursery, folder: Path, http: httpx.AsyncClient) -> None:
        self._nursery = nursery
        self._folder = folder
        self._http = http
        self._expected: dict[str, asyncio.Task[list[tuple[Any, ...]]]] = {}
        self._plays = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path, **environment: str) -> AsyncIterator[Stage]:
        """A stage for the block."""
        limits = httpx.Limits(keepalive_expiry=2.0)
        async with (
            Nursery.open(**environment) as nursery,
            httpx.AsyncClient(timeout=DEADLINE_S, verify=False, limits=limits, trust_env=False) as http,  # noqa: S501 - no TLS
        ):
            yield cls(nursery, folder, http)

    def house(self, plan: Plan | None = None, **settings: Any) -> House:
        """An empty house."""
        self._plays += 1
        return House(self._nursery, self._folder / f"play{self._plays}", self._http, plan, **settings)

    async def expected(self, name: str) -> list[tuple[Any, ...]]:
        """What the script comes to when nothing goes wrong; played once."""
        if name not in self._expected:
            self._expected[name] = asyncio.create_task(self._undisturbed(name), name=f"undisturbed {name}")
        return await asyncio.shield(self._expected[name])

    async def _undisturbed(self, name: str) -> list[tuple[Any, ...]]:
        script = SCRIPTS[name]
        house = self.house()
        async with house.open():
            player = self.cast(house, name)
            await script.play(player)
        found = outcome_of(player.log, script)
        judge(player, script, found)
        wrong = [*house.faults, *faults_of(house.directory), *house.refusals]
        assert not wrong, f"undisturbed, {name} went wrong: {wrong}"
        return found

    def cast(self, house: House, name: str, *, number: int = 0, **losses: bool) -> Player:
        """A client for the script; `losses` as Player says them."""
        script = SCRIPTS[name]
        player = Player(house, script.agent, f"{name.replace(' ', '-')}-{number}", **losses)
        player.says_again = script.says_again
        return player

    async def play(self, name: str, plan: Plan, *, restarts: bool = False, **settings: Any) -> Played:
        """The script with something going wrong; judged.

        Args:
            name: Which script.
            plan: What goes wrong.
            restarts: Start once more behind it, so that what start-up sweeps is swept.
            settings: Those of Config.
        """
        script, expected = SCRIPTS[name], await self.expected(name)
        house = self.house(plan, **settings)
        player = self.cast(house, name)
        house.when_dead(player.look_after_death)
        try:
            async with house.open():
                await script.play(player)
                if restarts:
                    await house.restart()
            judge(player, script, expected)
            house.faults += faults_of(house.directory)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told with its script and its seed
            player.fault("".join(traceback.format_exception(error)))
        memory = player.memory
        return Played(house.deaths, memory.running, memory.parked, house.refusals, house.faults)
