"""Power that is cut at any file operation: any subset of unsynced writes and names is gone (contract section 4).

What was promised with 2xx under boundary and always is there; under always what readers saw, too. A session whose
unsynced middle is gone answers 503 and says from which index on; everything else works.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.crash.conftest import IS_EVERYTHING
from tests.crash.house import House, plainly
from tests.crash.order import Order
from tests.crash.player import Lost, Player
from tests.crash.plays import Stage
from tests.crash.scripts import SCRIPTS
from tests.crash.verdict import faults_of, judge, referee_of

SAMPLE: Final = 1_500 if IS_EVERYTHING else 40
AT_ONCE: Final = 6


class Cut:
    """One power cut under one script.

    Attributes:
        outcome: "whole", or what was lost: "session" or "middle".
        untold: Sessions with a lost middle that nobody had been told of.
        faults: What must not be.
    """

    def __init__(self, stage: Stage, name: str, fsync: str, at: int, seed: int) -> None:
        self.outcome = "whole"
        self.untold = 0
        self.where = f"{name} under {fsync}, power cut at {at} with seed {seed}"
        self.faults: list[str] = []
        self._stage = stage
        self._name = name
        self._fsync = fsync
        self._at = at
        self._seed = seed

    async def play(self) -> None:
        """The script over the cut, then the same script once more, to see that the rest works."""
        house = self._stage.house(self._plan, fsync=self._fsync)
        expected, script = await self._stage.expected(self._name), SCRIPTS[self._name]
        first = self._stage.cast(house, self._name, forgets=self._fsync != "always", may_be_lost=True)
        house.when_dead(first.look_after_death)
        try:
            async with house.open():
                if self._fsync == "never":
                    await self._play_until_cut(house, first)
                else:
                    await self._play_over(first)
                await self._live_again(house)
                await self._clear_away(house)
                second = self._stage.cast(house, self._name, number=1)
                house.when_dead(second.look_after_death)
                await script.play(second)
            judge(second, script, expected)
            if self.outcome == "whole" and self._fsync != "never":
                judge(first, script, expected)
            house.faults += faults_of(house.directory)
        except Exception as error:  # noqa: BLE001 - told with its place and seed
            house.faults.append(repr(error))
        self.faults = [f"{self.where}: {fault}" for fault in house.faults]

    def _plan(self, life: int, order: Order) -> Order:
        return plainly(order, stop_at=self._at, power_seed=self._seed) if life == 0 else order

    async def _play_over(self, player: Player) -> None:
        try:
            await SCRIPTS[self._name].play(player)
        except Lost as lost:
            await self._bury(player, lost)

    async def _play_until_cut(self, house: House, player: Player) -> None:
        """Nothing is promised but that the host starts, and that the session ends, is gone or says where it broke."""
        died = asyncio.Event()
        house.when_dead(died.set)
        playing = asyncio.create_task(SCRIPTS[self._name].play(player), name="play")
        dying = asyncio.create_task(died.wait(), name="death")
        await asyncio.wait({playing, dying}, return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if not died.is_set():
            await playing
            return
        playing.cancel()
        with contextlib.suppress(asyncio.CancelledError, Lost, AssertionError):
            await playing
        if player.session_id:
            try:
                if player.agent == "sleeping":  # it ends no other way
                    await house.request("POST", f"/session/{player.session_id}/cancel")
                await player.settle()
            except Lost as lost:
                await self._bury(player, lost)

    async def _live_again(self, house: House) -> None:
        """Where power is not cut yet, it is now or never."""
        if not house.deaths:
            await house.restart()

    async def _clear_away(self, house: House) -> None:
        """Have every session that is left read, so that damaged snapshots are made anew, and broken ones deleted."""
        for log in sorted(house.directory.glob("*.ndjson")):
            answer = await house.request("GET", f"/session/{log.stem}")
            if answer.status_code == httpx.codes.OK and "brokenAt" in answer.json():
                self.untold += 1  # one that somebody was told of has been deleted before
                await house.request("DELETE", f"/session/{log.stem}")

    async def _bury(self, player: Player, lost: Lost) -> None:
        """See that the loss is one that may be, and delete what is left of the session."""
        if lost.status == httpx.codes.NOT_FOUND:
            self.outcome = "session"
            if self._fsync != "never":
                player.fault(f"the session was promised and is gone: {lost}")
            return
        self.outcome = "middle"
        if not isinstance(lost.body.get("index"), int) or lost.body["error"] != "STORAGE_UNAVAILABLE":
            player.fault(f"it does not say where it is broken: {lost}")
        answer = await player.house.request("DELETE", f"/session/{player.session_id}")
        if answer.status_code != httpx.codes.OK:
            player.fault(f"a broken session cannot be deleted: {answer.text}")


@pytest.mark.timeout(7200 if IS_EVERYTHING else 120)
@pytest.mark.parametrize("fsync", ["boundary", "always", "never"])
async def test_a_power_cut_takes_nothing_that_was_promised(tmp_path: Path, seed: str, fsync: str) -> None:
    chance = random.Random(f"{seed} {fsync}")
    async with Stage.open(tmp_path) as stage:
        cuts = [
            Cut(stage, chance.choice(list(SCRIPTS)), fsync, chance.randrange(12, 100), chance.getrandbits(32))
            for _ in range(SAMPLE)
        ]
        for first in range(0, len(cuts), AT_ONCE):
            await asyncio.gather(*(cut.play() for cut in cuts[first : first + AT_ONCE]))
    untold = sum(cut.untold for cut in cuts)
    sys.stderr.write(
        f"{fsync}: {dict(Counter(cut.outcome for cut in cuts))}, {untold} broken and never told of\n"
    )
    assert [fault for cut in cuts for fault in cut.faults] == []
    assert referee_of(tmp_path) == []
