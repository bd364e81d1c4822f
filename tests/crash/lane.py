"""Lane: one process's share of a soak: rounds of many clients in one house, its hosts killed at random moments."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
import shutil
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import click
import orjson

from tests.crash.house import plainly
from tests.crash.log import whole_events
from tests.crash.order import Order
from tests.crash.player import Player
from tests.crash.plays import Stage
from tests.crash.scripts import SCRIPTS
from tests.crash.verdict import faults_of, judge, referee_of

CLIENTS: Final = 6
KILLS_A_ROUND: Final = 40
PACE_S: Final = 0.02


@dataclass
class Counts:
    """What a soak has done.

    Attributes:
        kills: SIGKILLs of a host.
        found_open: Kills that left a turn running or parked, by the logs before the next start.
        found_running: Kills that left one running.
        found_parked: Kills that left one parked.
        stops: Clean stops (SIGTERM) in between; a kill may have come into one.
        sessions: Sessions whose script came to its end.
        turns: Their turns, those that resume another counted.
        actions: Results in their logs.
        repeated: Actions that began more than once, their result not having been recorded.
        faults: What must not be, in words.
    """

    kills: int = 0
    found_open: int = 0
    found_running: int = 0
    found_parked: int = 0
    stops: int = 0
    rounds: int = 0
    sessions: int = 0
    turns: int = 0
    actions: int = 0
    repeated: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, other: Counts) -> Self:
        """Both together, in this one."""
        for row in dataclasses.fields(self):
            setattr(self, row.name, getattr(self, row.name) + getattr(other, row.name))
        return self


class Round:
    """Clients in one house until so many hosts were killed; then they finish, and all is judged."""

    def __init__(self, stage: Stage, chance: random.Random, ends_at_s: float) -> None:
        self.counts = Counts(rounds=1)
        self._stage = stage
        self._chance = chance
        self._ends_at_s = ends_at_s
        self._players: set[Player] = set()
        self._numbers = itertools.count()
        self._is_over = False
        fsync = chance.choice(["boundary", "boundary", "always", "never"])
        self._house = stage.house(self._order, fsync=fsync)

    async def play(self) -> Counts:
        """The whole round."""
        house = self._house
        house.when_dead(self._look)
        try:
            async with house.open(), asyncio.TaskGroup() as group:
                group.create_task(self._kill(), name="killer")
                for number in range(CLIENTS):
                    group.create_task(self._client(), name=f"client {number}")
            house.faults += faults_of(house.directory) + referee_of(house.directory)
        except Exception:  # noqa: BLE001 - told with the seed, like any other fault
            house.faults.append(traceback.format_exc())
        self.counts.faults += house.faults
        if not house.faults:
            shutil.rmtree(house.directory.parent)
        return self.counts

    def _order(self, life: int, order: Order) -> Order:
        """One host in four is started as a person starts it."""
        return plainly(order, command_line=life % 4 == 0)

    async def _kill(self) -> None:
        chance, house = self._chance, self._house
        while self.counts.kills < KILLS_A_ROUND and time.monotonic() < self._ends_at_s:
            if chance.random() > 0.1:  # else while it starts
                await house.up()
            await asyncio.sleep(chance.uniform(0, 0.4))
            life = house.life
            if life is None or life.ended.done():
                continue
            if chance.random() < 0.15 and life.ready.done():
                self.counts.stops += 1
                house.terminate()
                await asyncio.wait({life.ended}, timeout=chance.choice([0.01, 0.05, 60]))
                if life.ended.done():
                    continue
            house.kill()
            await life.ended
            self.counts.kills += life.ended.result() == -9
        self._is_over = True

    def _look(self) -> None:
        """After a death, before the next start: what did it find?"""
        found = [player.look_after_death() for player in self._players]
        is_running, is_parked = any(row[0] for row in found), any(row[1] for row in found)
        self.counts.found_running += is_running
        self.counts.found_parked += is_parked
        self.counts.found_open += is_running or is_parked

    async def _client(self) -> None:
        while not self._is_over:
            name = self._chance.choice(list(SCRIPTS))
            expected, script = await self._stage.expected(name), SCRIPTS[name]
            player = self._stage.cast(self._house, name, number=next(self._numbers))
            player.thinks_s = lambda: self._chance.uniform(0, 0.2)
            self._players.add(player)
            try:
                await script.play(player)
                judge(player, script, expected)
            except Exception:  # noqa: BLE001 - told with the seed; the others go on
                player.fault(traceback.format_exc())
            self._players.discard(player)
            self._count(player)

    def _count(self, player: Player) -> None:
        counts = self.counts
        counts.sessions += 1
        if not player.session_id or not player.log.exists():
            return
        types = [event["type"] for event in whole_events(player.log)]
        counts.turns += types.count("turn.started")
        counts.actions += types.count("action.result")
        counts.repeated += player.repeated


async def run(folder: Path, seed: str, seconds: float) -> None:
    """Rounds until the time is over; each one's counts are a line on stdout."""
    chance = random.Random(seed)
    ends_at_s = time.monotonic() + seconds
    async with Stage.open(folder, ZHIN_CRASH_PACE_S=str(PACE_S)) as stage:
        while time.monotonic() < ends_at_s:
            counts = await Round(stage, chance, ends_at_s).play()
            sys.stdout.buffer.write(orjson.dumps(dataclasses.asdict(counts)) + b"\n")
            sys.stdout.buffer.flush()


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("seed")
@click.argument("seconds", type=float)
def main(folder: Path, seed: str, seconds: float) -> None:
    """Run one lane of a soak; `tests.crash.soak` starts these."""
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(run(folder, seed, seconds))


if __name__ == "__main__":
    main()
