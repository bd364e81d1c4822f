"""Order: how one host is to be started, and what is to go wrong in it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import orjson


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One life of a host.

    Attributes:
        directory: Its data directory.
        ledger: Where its tools write.
        settings: Those of Config that differ.
        stop_at: The file operation, from 0, at which the process exits; None: it lives.
        stop_bytes: How many bytes that operation, where it is a write, takes before.
        power_seed: The operation is a power cut; what of the unsynced survives follows from this seed.
        fail_at: The file operation, from 0, that fails; None: none does.
        fail_error: With which errno.
        fail_count: How many fail from there on.
        command_line: Start it as `zhin-host serve` does, with its parsing and its own persistence.
    """

    directory: str
    ledger: str
    settings: dict[str, Any] = field(default_factory=dict)
    stop_at: int | None = None
    stop_bytes: int = 0
    power_seed: int | None = None
    fail_at: int | None = None
    fail_error: int = 0
    fail_count: int = 1
    command_line: bool = False

    def encode(self) -> bytes:
        """One line of JSON."""
        return orjson.dumps(dataclasses.asdict(self)) + b"\n"

    @staticmethod
    def decode(line: bytes) -> Order:
        """The order that `encode` has written."""
        return Order(**orjson.loads(line))
