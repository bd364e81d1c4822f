"""Parameters: what may stand in a query or a header: rows that requests are read and documented by (ADR 0010)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, get_args

from zhin_host.clock import SESSION_ID_PATTERN
from zhin_host.errors import BadRequest
from zhin_host.subscriptions import Until

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,15}")
_MOST: Final = 10**15 - 1  # 15 digits: exact in every client's numbers

Place = Literal["query", "header"]
Status = Literal["running", "waiting", "completed", "failed"]
Name = TypeVar("Name", bound=str)
Default = TypeVar("Default", bound=int | None)


class WholeNumber(NamedTuple, Generic[Default]):
    """A number from `least` to `most`, in at most 15 decimal digits."""

    name: str
    place: Place
    told: str
    least: int
    most: int
    default: Default

    def of(self, query: Mapping[str, str]) -> int | Default:
        """What the query has of it, else the default."""
        return self.read(query[self.name]) if self.name in query else self.default

    def read(self, text: str) -> int:
        """The number that the text is; BadRequest when it is none."""
        if _WHOLE_NUMBER.fullmatch(text) and self.least <= int(text) <= self.most:
            return int(text)
        raise BadRequest(f"{self.name} is a whole number from {self.least} to {self.most}, not {text!r:.40}.")

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        default = {} if self.default is None else {"default": self.default}
        return {"type": "integer", "minimum": self.least, "maximum": self.most, **default}


class Choice(NamedTuple, Generic[Name]):
    """One of a few words."""

    name: str
    place: Place
    told: str
    words: tuple[Name, ...]

    def of(self, query: Mapping[str, str]) -> Name | None:
        """What the query has of it, else None."""
        return self.read(query[self.name]) if self.name in query else None

    def read(self, text: str) -> Name:
        """The word that the text is; BadRequest when it is none."""
        for word in self.words:
            if word == text:
                return word
        listed = f"{', '.join(self.words[:-1])} or {self.words[-1]}"
        raise BadRequest(f"{self.name} is {listed}, not {text!r:.40}.")

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        return {"type": "string", "enum": list(self.words)}


class Shaped(NamedTuple):
    """A text of a shape.

    Attributes:
        what: The shape in words, for the refusal.
        pattern: The shape; it is of the whole text.
    """

    name: str
    place: Place
    told: str
    what: str
    pattern: str

    def of(self, query: Mapping[str, str]) -> str | None:
        """What the query has of it, else None."""
        return self.read(query[self.name]) if self.name in query else None

    def read(self, text: str) -> str:
        """The text; BadRequest when it has another shape."""
        if re.fullmatch(self.pattern, text):
            return text
        raise BadRequest(f"{self.name} is {self.what}, not {text!r:.80}.")

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        return {"type": "string", "pattern": f"^{self.pattern}$"}


Parameter = WholeNumber[Any] | Choice[Any] | Shaped

START_INDEX: Final = WholeNumber(
    "startIndex",
    "query",
    "The event to begin at; a negative one counts from the tail, -1 being the last event.",
    -_MOST,
    _MOST,
    default=0,
)
LAST_EVENT_ID: Final = WholeNumber(
    "lastEventId",
    "query",
    "The last event seen: the stream begins after it. Counts before startIndex.",
    0,
    _MOST,
    None,
)
LAST_EVENT_ID_HEADER: Final = WholeNumber(
    "Last-Event-ID",
    "header",
    "As lastEventId, which it comes before: what a browser's EventSource sends when it connects again.",
    0,
    _MOST,
    None,
)
UNTIL: Final[Choice[Until]] = Choice(
    "until",
    "query",
    "How long to follow. boundary (the default of NDJSON): until the session is at rest; tail: to the last event there "
    "is; never (the default of SSE): until the session is over.",
    get_args(Until),
)
STATUS: Final[Choice[Status]] = Choice("status", "query", "Only sessions of this status.", get_args(Status))
LIMIT: Final = WholeNumber("limit", "query", "How many sessions a page has at most.", 1, 200, default=50)
BEFORE: Final = Shaped(
    "before",
    "query",
    "Only sessions older than this one: nextBefore of the page before.",
    "a sessionId",
    SESSION_ID_PATTERN,
)
IDEMPOTENCY_KEY: Final = Shaped(
    "Idempotency-Key",
    "header",
    "The same caller, route, key and body again get the same answer and do nothing twice, also after a restart.",
    "1 to 255 visible ASCII characters",
    "[!-~]{1,255}",
)
