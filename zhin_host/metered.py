"""MeteredLog: the writes and syncs of a session's log, with how long each took (ADR 0009 D2)."""

from __future__ import annotations

from zhin_host.clock import Clock
from zhin_host.errors import StorageUnavailable
from zhin_host.meters import Meters
from zhin_host.ports import SessionLog


class MeteredLog:
    """What the journal writes to: one observation for each batch and each sync, whatever is in them."""

    __slots__ = ("_clock", "_log", "_meters")

    def __init__(self, log: SessionLog, clock: Clock, meters: Meters) -> None:
        self._log = log
        self._clock = clock
        self._meters = meters

    def append(self, lines: bytes, *, expected_bytes: int) -> None:
        """As SessionLog.append."""
        began_s = self._clock.monotonic_s()
        try:
            self._log.append(lines, expected_bytes=expected_bytes)
        except StorageUnavailable:
            self._meters.storage_errors["append"] += 1
            raise
        self._meters.appends.observe(self._clock.monotonic_s() - began_s)

    async def sync(self) -> None:
        """As SessionLog.sync."""
        began_s = self._clock.monotonic_s()
        try:
            await self._log.sync()
        except StorageUnavailable:
            self._meters.storage_errors["sync"] += 1
            raise
        self._meters.syncs.observe(self._clock.monotonic_s() - began_s)
