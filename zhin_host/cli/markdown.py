"""Markdown: a session as one document for people. What others wrote is text in it, never markup.

Two ways hold that. A text is a quote whose every line begins with `> ` and has every character escaped that could mean
something. A value is a fenced block, its fence longer than any run of backticks in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import orjson

from zhin_host import events as ev
from zhin_host.cli.terminal import moment, visible, visible_lines
from zhin_host.history import text_of

_SPECIAL: Final = re.compile(
    r"[!#$&()*+.:<=>@\[\\\]^_`{|}~-]"
)  # a backslash before each keeps it a character
_LOOSE: Final = frozenset(  # what a re-drive can void (contract section 4, step.resumed)
    {
        ev.MESSAGE_APPENDED,
        ev.MESSAGE_COMPLETED,
        ev.REASONING_APPENDED,
        ev.REASONING_COMPLETED,
        ev.ACTIONS_REQUESTED,
    }
)
Row = Mapping[str, Any]
"""An event as it stands in a line: index, type, timestamp, data."""


def escaped(text: str) -> str:
    """The text on one line, as text: nothing in it is markup, HTML, a link or obeyed by a terminal."""
    return _SPECIAL.sub(r"\\\g<0>", visible(text))


def quoted(text: str, *, is_struck: bool = False) -> str:
    """The text as a quote, its lines kept."""
    shown = [_quoted_line(line, is_struck=is_struck) for line in text.split("\n")]
    ends = [
        "\\" if line and following else "" for line, following in pairwise([*shown, ""])
    ]  # keeps a line's end
    return "\n".join(f"> {line}{end}".rstrip() for line, end in zip(shown, ends, strict=True))


def fenced(value: Any) -> str:
    """A value in a block of its own: a string as it is, anything else as JSON."""
    is_text = isinstance(value, str)
    shown = value if is_text else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    content = visible_lines(shown.replace("\r\n", "\n").replace("\t", "    "))
    longest = max(map(len, re.findall("`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{'text' if is_text else 'json'}\n{content}\n{fence}"


def _quoted_line(line: str, *, is_struck: bool) -> str:
    line = line.removesuffix("\r").replace("\t", "    ").rstrip()
    text = line.lstrip(" ")
    if not text:
        return ""
    indent = "&nbsp;" * (len(line) - len(text))  # spaces would be dropped, and four of them begin code
    return indent + (f"~~{escaped(text)}~~" if is_struck else escaped(text))


def void_spans(rows: Iterable[Row]) -> list[range]:
    """The indexes of what a re-drive or a resumed turn voided; of them only events of the loose types do not count."""
    return [
        range(row["data"]["discardFrom"], row["index"])
        for row in rows
        if row["type"] in (ev.STEP_RESUMED, ev.TURN_STARTED)
        and isinstance(row["data"].get("discardFrom"), int)
    ]


def is_void(row: Row, spans: Iterable[range]) -> bool:
    """Whether the event does not count."""
    is_loose = row["type"] in _LOOSE or ev.is_own_type(row["type"])
    return is_loose and any(row["index"] in span for span in spans)


class Document:
    """Makes the parts of the document, event after event.

    Args:
        spans: As `void_spans` gives them.
        shows_void: Whether what does not count is shown, struck out.
    """

    def __init__(self, spans: list[range], *, shows_void: bool) -> None:
        self._spans = spans
        self._shows_void = shows_void
        self._pieces: list[str] = []
        self._pieces_of: tuple[str, bool, int] = ("", False, 0)  # type, whether void, time
        self._has_said = False
        self._turns = 0
        self._agent = "agent"

    def parts(self, rows: Iterable[Row]) -> Iterator[str]:
        """The document's paragraphs; a blank line belongs between them."""
        for row in rows:
            is_row_void = is_void(row, self._spans)
            if is_row_void and not self._shows_void:
                continue
            data, kind = row["data"], row["type"]
            if kind in (ev.MESSAGE_APPENDED, ev.REASONING_APPENDED):
                if self._pieces_of[:2] != (kind, is_row_void):
                    yield from self._text_said()
                    self._pieces_of = (kind, is_row_void, row["timestamp"])
                self._pieces.append(
                    data["messageDelta"] if kind == ev.MESSAGE_APPENDED else data["reasoningDelta"]
                )
                self._has_said = self._has_said or (kind == ev.MESSAGE_APPENDED and not is_row_void)
                continue
            yield from self._text_said()
            make = Document._own if ev.is_own_type(kind) else _PARTS.get(kind)
            if make is not None:
                yield from make(self, row, data, "*\\[discarded\\]* " if is_row_void else "")
        yield from self._text_said()

    def _text_said(self) -> Iterator[str]:
        text, self._pieces = "".join(self._pieces), []
        kind, is_struck, at = self._pieces_of
        self._pieces_of = ("", False, 0)
        if not text:
            return
        void = " *\\[discarded after a restart\\]*" if is_struck else ""
        what = " *thinks*" if kind == ev.REASONING_APPENDED else ""
        yield f"**{self._agent}**{what}, {clock(at)}{void}"
        yield quoted(text, is_struck=is_struck)

    def _session_started(self, row: Row, data: Row, _void: str) -> Iterator[str]:
        self._agent = escaped(data["agent"])
        yield f"# Session {escaped(data['sessionId'])}"
        facts = [f"- agent: {self._agent}", f"- begun: {moment(row['timestamp'])}"]
        if "owner" in data:
            facts.append(f"- owner: {escaped(str(data['owner']))}")
        yield "\n".join(facts)
        if data.get("metadata") is not None:
            yield "Metadata:"
            yield fenced(data["metadata"])

    def _turn_started(self, row: Row, data: Row, _void: str) -> Iterator[str]:
        self._turns += 1
        self._has_said = False
        again = ", which tries the failed one again" if "resumes" in data else ""
        yield f"## Turn {self._turns}{again}"
        yield f"{moment(row['timestamp'])}, {escaped(data['turnId'])}"

    def _received(self, row: Row, data: Row, _void: str) -> Iterator[str]:
        yield f"**person**, {clock(row['timestamp'])}"
        yield quoted(text_of(data["message"]))

    def _queued(self, row: Row, data: Row, _void: str) -> Iterator[str]:
        yield f"**person**, {clock(row['timestamp'])}, while a turn was open: queued"
        yield quoted(text_of(data["message"]))

    def _completed(self, row: Row, data: Row, void: str) -> Iterator[str]:
        """The text of a message that was not said in pieces; else it was shown."""
        if not self._has_said and not void and data["message"]:
            yield f"**{self._agent}**, {clock(row['timestamp'])}"
            yield quoted(data["message"])

    def _requested(self, row: Row, data: Row, void: str) -> Iterator[str]:
        yield f"{void}**tool {escaped(data['toolName'])}**, {clock(row['timestamp'])}, {escaped(data['callId'])}"
        yield fenced(data["input"])

    def _retrying(self, row: Row, data: Row, _void: str) -> Iterator[str]:
        yield (
            f"**tool {escaped(data['toolName'])}** failed, try {data['attempt']} follows, "
            f"{clock(row['timestamp'])}"
        )
        yield fenced(data["error"])

    def _result(self, row: Row, data: Row, _void: str) -> Iterator[str]:
        yield (
            f"**tool {escaped(data['toolName'])}** {escaped(data['status'])} after {data['durationMs']} ms, "
            f"{clock(row['timestamp'])}, {escaped(data['callId'])}"
        )
        for name in ("output", "error"):
            if data.get(name) is not None:
                yield fenced(data[name])

    def _asked(self, row: Row, data: Row, _void: str) -> Iterator[str]:
        what = data.get("kind", "authorization")
        yield f"**{self._agent} asks** ({escaped(what)}), {clock(row['timestamp'])}, {escaped(data['requestId'])}"
        yield quoted(str(data.get("prompt") or data.get("connection") or ""))
        if "toolName" in data:
            yield f"for **tool {escaped(data['toolName'])}** with"
            yield fenced(data.get("args"))
        for name in ("options", "authUrl"):
            if data.get(name) is not None:
                yield fenced(data[name])

    def _answered(self, row: Row, data: Row, _void: str) -> Iterator[str]:
        outcome = data.get("outcome") or ("authorized" if data.get("success") else "not authorized")
        who = f" by {escaped(data['by'])}" if data.get("by") else ""
        yield f"**{escaped(outcome)}**{who}, {clock(row['timestamp'])}, {escaped(data['requestId'])}"
        if data.get("response") is not None:
            yield fenced(data["response"])
        why = data.get("comment") or data.get("error")
        if why:
            yield quoted(str(why))

    def _resumed(self, row: Row, data: Row, _void: str) -> Iterator[str]:
        if "discardFrom" in data:
            yield f"*The host was restarted; attempt {data['attempt']} goes on, {clock(row['timestamp'])}.*"

    def _failed(self, row: Row, data: Row, _void: str) -> Iterator[str]:
        yield f"**The turn failed**, {escaped(data['code'])}, {clock(row['timestamp'])}"
        yield quoted(data["message"])

    def _cancelled(self, row: Row, data: Row, _void: str) -> Iterator[str]:
        who = f" by {escaped(data['by'])}" if data.get("by") else ""
        yield f"**The turn was cancelled**{who}, {clock(row['timestamp'])}: {escaped(data['reason'])}"

    def _session_completed(self, row: Row, _data: Row, _void: str) -> Iterator[str]:
        yield f"**The session is over**, {moment(row['timestamp'])}"

    def _session_failed(self, row: Row, data: Row, _void: str) -> Iterator[str]:
        yield f"**The session failed**, {escaped(data['code'])}, {moment(row['timestamp'])}"
        yield quoted(data["message"])

    def _own(self, row: Row, data: Row, void: str) -> Iterator[str]:
        yield f"{void}**{escaped(row['type'])}**, {clock(row['timestamp'])}"
        yield fenced(data)


def clock(timestamp_ms: int) -> str:
    """The time of day, UTC; the turn says the date."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%H:%M:%S")


_PARTS: Final[Mapping[str, Callable[[Document, Row, Row, str], Iterator[str]]]] = {
    ev.SESSION_STARTED: Document._session_started,  # noqa: SLF001 - the class's own table
    ev.TURN_STARTED: Document._turn_started,  # noqa: SLF001
    ev.MESSAGE_RECEIVED: Document._received,  # noqa: SLF001
    ev.MESSAGE_QUEUED: Document._queued,  # noqa: SLF001
    ev.MESSAGE_COMPLETED: Document._completed,  # noqa: SLF001
    ev.ACTIONS_REQUESTED: Document._requested,  # noqa: SLF001
    ev.ACTION_RETRYING: Document._retrying,  # noqa: SLF001
    ev.ACTION_RESULT: Document._result,  # noqa: SLF001
    ev.INPUT_REQUESTED: Document._asked,  # noqa: SLF001
    ev.AUTHORIZATION_REQUIRED: Document._asked,  # noqa: SLF001
    ev.INPUT_COMPLETED: Document._answered,  # noqa: SLF001
    ev.AUTHORIZATION_COMPLETED: Document._answered,  # noqa: SLF001
    ev.STEP_RESUMED: Document._resumed,  # noqa: SLF001
    ev.TURN_FAILED: Document._failed,  # noqa: SLF001
    ev.TURN_CANCELLED: Document._cancelled,  # noqa: SLF001
    ev.SESSION_COMPLETED: Document._session_completed,  # noqa: SLF001
    ev.SESSION_FAILED: Document._session_failed,  # noqa: SLF001
}
