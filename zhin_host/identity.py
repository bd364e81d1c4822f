"""Identity: what makes two calls of a turn the same call in every attempt."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from zhin_host.clock import base32
from zhin_host.events import json_bytes

Like = tuple[str, str]
"""A name and the hex SHA-256 of the arguments: what calls that are like each other share."""


def like_of(name: str, arguments: bytes) -> Like:
    """What a call of this name with these arguments (JSON bytes) is like."""
    return name, hashlib.sha256(arguments).hexdigest()


def like_of_call(name: str, arguments: Any) -> Like:
    """Of an action, from its `input` in the log."""
    return like_of(name, json_bytes(arguments))


def like_of_question(name: str, prompt: str, detail: Any) -> Like:
    """Of a request of its own: `name` is "approve" or "ask", `detail` what is shown or the options."""
    return like_of(name, json_bytes([prompt, detail]))


def like_of_authorization(connection: str, auth_url: str | None, scope: str | None) -> Like:
    """Of an authorization."""
    return like_of("authorize", json_bytes([connection, auth_url, scope]))


class Identities:
    """Names the actions and requests of one turn: the same call gets the same id in every attempt.

    An identity is what the call is like, and how many like it came before in the turn.

    Args:
        turn_id: The turn, or the first of the chain that it resumes.
        counts: How many like each came before, where an attempt begins behind a checkpoint.
    """

    def __init__(self, turn_id: str, counts: Mapping[Like, int] | None = None) -> None:
        self._turn_id = turn_id
        self._seen: dict[Like, int] = dict(counts or {})

    def call_id(self, like: Like) -> str:
        """`call_` and 26 characters."""
        count = self._seen.get(like, 0)
        self._seen[like] = count + 1
        named = hashlib.sha256(
            f"{self._turn_id}\n{like[0]}\n{like[1]}\n{count}".encode("utf-8", "replace")
        ).digest()
        return "call_" + base32(int.from_bytes(named, "big"), 26)
