"""Starts: where the turns of a session begin, read off its log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import orjson

from zhin_host.ports import Principal
from zhin_host.store import HttpAgentSessionStore

_START: Final = re.compile(rb'^\{"index":[0-9]+,"type":"turn\.started".*$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TurnStart:
    """A turn.started.

    Attributes:
        key: The Idempotency-Key that its message came with.
        resumes: The failed turn that it tries again.
    """

    index: int
    turn_id: str
    key: str | None
    resumes: str | None


class Starts:
    """The turns of a session from some event on, oldest first."""

    def __init__(self, starts: Mapping[str, TurnStart]) -> None:
        self._starts = starts

    @classmethod
    async def read(
        cls,
        store: HttpAgentSessionStore,
        who: Principal,
        session_id: str,
        start_index: int = 0,
        *,
        is_one_enough: bool = False,
    ) -> Starts:
        """Those that are in the log now: a search through the bytes of all that it holds from `start_index` on.

        Args:
            store: The host's commands.
            who: The caller.
            session_id: The session.
            start_index: Where to begin.
            is_one_enough: Stop at the first block in which one is found.

        Raises:
            RequestError: As GET /session/{id}/stream says.
        """
        subscription = await store.subscribe(who, session_id, start_index, "tail")
        found: list[TurnStart] = []
        try:
            async with aclosing(aiter(subscription)) as blocks:
                async for block in blocks:
                    found += [_start(orjson.loads(line)) for line in _START.findall(block)]
                    if found and is_one_enough:
                        break
        finally:
            await subscription.aclose()
        return cls({start.turn_id: start for start in found})

    @property
    def last(self) -> TurnStart | None:
        return next(reversed(list(self._starts.values())), None)

    def root(self, turn_id: str) -> TurnStart | None:
        """Where the record of a turn begins: with itself, or with the first of the failed turns that it tries again.

        None when the turn, or one that it tries again, is not among these.
        """
        start = self._starts.get(turn_id)
        while start is not None and start.resumes is not None:
            start = self._starts.get(start.resumes)
        return start


def _start(event: Mapping[str, Any]) -> TurnStart:
    data = event["data"]
    return TurnStart(event["index"], data["turnId"], data.get("idempotencyKey"), data.get("resumes"))
