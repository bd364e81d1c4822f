"""Clock: the only reader of time and of randomness, so that both can be faked."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from typing import Final, NewType, Protocol

SessionId = NewType("SessionId", str)
"""`ses_` and a lower-case ULID: 26 characters of Crockford's base 32, the first ten of them the time in ms."""

ULID_PATTERN: Final = "[0-9a-hjkmnp-tv-z]{26}"
SESSION_ID_PATTERN: Final = f"ses_{ULID_PATTERN}"
_SESSION_ID: Final = re.compile(SESSION_ID_PATTERN)
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"  # https://github.com/ulid/spec, lower case
_PAIRS: Final = [first + second for first in _CROCKFORD for second in _CROCKFORD]


class Clock(Protocol):
    """Time and fresh names. Ids made later sort after ids made in an earlier millisecond."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; may jump either way."""

    def monotonic_s(self) -> float:
        """Seconds since some moment; never goes back."""

    def random_bits(self, count: int) -> int:
        """A whole number of `count` unpredictable bits."""


class SystemClock:
    """The machine's clock and its cryptographic random source."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def random_bits(self, count: int) -> int:
        return secrets.randbits(count)


def base32(value: int, length: int) -> str:
    """`value` in `length` characters of Crockford's base 32, most significant first; higher bits are dropped.

    Args:
        value: Not negative.
        length: An even number: two characters are made at a time.
    """
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(5 * length - 10, -1, -10)])


def new_ulid(clock: Clock) -> str:
    """A lower-case ULID: 48 bits of time, 80 random bits."""
    return base32(clock.now_ms(), 10) + base32(clock.random_bits(80), 16)


def new_session_id(clock: Clock) -> SessionId:
    """A session's id; it sorts by the millisecond of its making."""
    return SessionId("ses_" + new_ulid(clock))


def id_between(clock: Clock, low: SessionId, high: SessionId) -> SessionId:
    """An unpredictable id above `low` and not above `high`: it says where a list goes on and names no session."""
    first, last = (_number(session_id[4:]) for session_id in (low, high))
    return SessionId("ses_" + base32(first + 1 + clock.random_bits(130) % (last - first), 26))


def _number(ulid: str) -> int:
    number = 0
    for character in ulid:
        number = number * 32 + _CROCKFORD.index(character)
    return number


def time_of(session_id: SessionId) -> int:
    """When the session was made, milliseconds since the epoch."""
    return _number(session_id[4:14])


def is_session_id(text: str) -> bool:
    """Whether the text has the shape of a sessionId (contract section 3): nothing else reaches the store."""
    return _SESSION_ID.fullmatch(text) is not None


def new_turn_id(clock: Clock) -> str:
    """`turn_` and a ULID."""
    return "turn_" + new_ulid(clock)


def new_request_id(clock: Clock, session_id: SessionId) -> str:
    """`req_<the session's ULID>_<26 random characters>`: unguessable (130 bits), and it finds its session."""
    return f"req_{session_id[4:]}_{base32(clock.random_bits(130), 26)}"


def session_of_request(request_id: str) -> SessionId:
    """The session a requestId names, well formed or not: the caller checks the shape of what it gets."""
    return SessionId("ses_" + request_id[4:30])


def new_token(clock: Clock) -> str:
    """A continuation token: `zhin:` and 130 random bits. It is a version, not a permission."""
    return "zhin:" + base32(clock.random_bits(130), 26)


def fingerprint(secret: str) -> str:
    """The first eight hex digits of a secret's SHA-256: enough to tell two apart in a log line, no more."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()[:8]
