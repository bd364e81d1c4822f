"""Scripts: what a client does with each agent. Written as if nothing ever went wrong."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from tests.crash.player import Player


@dataclass(frozen=True, slots=True)
class Script:
    """A client's way through one session.

    Attributes:
        agent: Which agent it is of.
        play: The way.
        is_told_beside: Text is said beside other actions, so that it may be repeated or missing after a crash.
        says_again: A turn that ended with its host is sent again.
    """

    agent: str
    play: Callable[[Player], Coroutine[Any, Any, None]]
    is_told_beside: bool = False
    says_again: bool = False


async def _twice(player: Player) -> None:
    await player.say("go")
    await player.settle()
    await player.say("again")
    await player.settle()


async def _once(player: Player) -> None:
    await player.say("go")
    await player.settle()


async def _queued(player: Player) -> None:
    await player.say("go")
    await player.until_parked()
    await player.say("second", on_busy="queue")
    await player.say("third", on_busy="queue")
    await player.settle()


async def _interrupted(player: Player) -> None:
    await player.say("go")
    await player.until_parked()
    await player.say("instead", on_busy="interrupt")
    await player.settle()


async def _forgotten(player: Player) -> None:
    await player.say("go")
    await player.until_parked()
    await player.until_forgotten()
    await player.settle()


async def _cancelled_parked(player: Player) -> None:
    await player.say("go")
    await player.until_parked()
    await player.cancel()
    await player.settle()
    await player.say("again")
    await player.settle()


async def _cancelled_running(player: Player) -> None:
    await player.say("sleep")
    await player.until_seen("actions.requested")
    await player.cancel()
    await player.settle()
    await player.say("wake")
    await player.settle()


async def _resumed(player: Player) -> None:
    await player.say("go")
    await player.settle()
    player.change_the_world()
    await player.resume()
    await player.settle()


async def _refused(player: Player) -> None:
    player.answers["Allow refund?"] = player.answers["Sure?"] = False
    await _once(player)


SCRIPTS: Final[dict[str, Script]] = {
    "plain": Script("plain", _twice),
    "talking": Script("talking", _once),
    "gathering": Script("gathering", _twice, is_told_beside=True),
    "side by side": Script("side_by_side", _once, is_told_beside=True),
    "answers": Script("approving", _refused),
    "granted": Script("granted", _twice),
    "queued": Script("granted", _queued),
    "interrupted": Script("side_by_side", _interrupted, is_told_beside=True),
    "forgotten": Script("side_by_side", _forgotten, is_told_beside=True),
    "cancelled while parked": Script("granted", _cancelled_parked),
    "cancelled while running": Script("sleeping", _cancelled_running),
    "resumed": Script("breaking", _resumed),
    "retried": Script("trying", _once),
    "not repeatable": Script("paying", _twice),
    "checkpoints": Script("checkpointing", _twice),
    "steps": Script("stepping", _twice),
    "not resumable": Script("mortal", _twice, says_again=True),
    "ending": Script("ending", _once),
}
