"""Screen: a session's events as a person reads them while they come, with nothing in them that a terminal obeys."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from zhin_host import events as ev
from zhin_host.cli.terminal import json_text, visible, visible_lines
from zhin_host.client import TurnView
from zhin_host.history import text_of

_SHOWN_MAX: Final = 160  # characters of arguments, outputs and errors on a line
_BEGINNING: Final = 40  # characters that remind of a text that does not count any more


class Screen:
    """Prints: what is said to stdout; thoughts, calls and notes there too for a person, else to stderr.

    Args:
        is_person: Whether somebody looks at a terminal.
    """

    def __init__(self, *, is_person: bool) -> None:
        self._is_person = is_person
        self._open = ""  # what the line is of that has not ended yet: "text", "thought", a callId
        self._said: list[tuple[int, str]] = []  # index and beginning of each piece of the turn
        self._styles = is_person and "NO_COLOR" not in os.environ

    def show(self, event: ev.Event) -> None:
        """Print what the event tells; of most types nothing."""
        show = _SHOWN.get(event.type)
        if show is not None:
            show(self, event.index, event.data)

    def note(self, text: str, color: str | None = None) -> None:
        """A line of the command's own."""
        self.end_line()
        self._write(visible(text) + "\n", is_note=True, fg=color, dim=color is None)

    def rows(self, *rows: str) -> None:
        """Lines that belong together, shown as they are."""
        self.end_line()
        for row in rows:
            self._write(row + "\n", is_note=True)

    def end_line(self) -> None:
        """End the line that is open."""
        if self._open:
            self._write("\n", is_note=self._open != "text")
            self._open = ""

    def show_before(self, turn: TurnView) -> None:
        """What was said in a turn before this command came to the session."""
        self.note(f"you: {text_of(turn.message or '')}")
        if turn.text:
            self._write(_text(turn.text), is_note=False)
            self._open = "text"
            pieces = (row for block in turn.said.blocks for row in block)
            self._said = [(index, text[:_BEGINNING]) for index, text in pieces]
        if turn.status == "failed":
            self.note(f"The turn failed, {turn.code}: {turn.reason}", "red")

    # -- the turn ------------------------------------------------------------------------------------------------------

    def _turn_started(self, _index: int, data: Mapping[str, Any]) -> None:
        self._said = []
        if "resumes" in data:
            self.note("The failed turn is tried again; what it had done counts.")

    def _said_more(self, index: int, data: Mapping[str, Any]) -> None:
        self._say(index, data["messageDelta"])

    def _thought_more(self, _index: int, data: Mapping[str, Any]) -> None:
        if not self._is_person:
            return
        if self._open != "thought":
            self.end_line()
        self._write(_text(data["reasoningDelta"]), is_note=True, dim=True, italic=True)
        self._open = "thought"

    def _said_all(self, index: int, data: Mapping[str, Any]) -> None:
        if not self._said and not data.get("truncated"):  # nothing was said in pieces
            self._say(index, data["message"])
        self.end_line()

    def _say(self, index: int, text: str) -> None:
        if not text:
            return
        if self._open != "text":
            self.end_line()
        self._said.append((index, text[:_BEGINNING]))
        self._write(_text(text), is_note=False)
        self._open = "text"

    def _resumed(self, _index: int, data: Mapping[str, Any]) -> None:
        """What a re-drive voids is marked: a terminal takes nothing back."""
        at = data.get("discardFrom")
        if at is None:
            return
        void = "".join(text for index, text in self._said if index >= at)[:_BEGINNING]
        self._said = [row for row in self._said if row[0] < at]
        if void:
            self.note(
                f"[discarded: the host stopped and began again; what it said from {void!r} on does not count]",
                "yellow",
            )

    def _turn_failed(self, _index: int, data: Mapping[str, Any]) -> None:
        self.note(f"The turn failed, {data['code']}: {data['message']}", "red")

    def _turn_cancelling(self, _index: int, data: Mapping[str, Any]) -> None:
        self.note(f"The turn is being cancelled ({data['reason']}).")

    def _turn_cancelled(self, _index: int, _data: Mapping[str, Any]) -> None:
        self.note("The turn was cancelled.", "yellow")

    # -- calls and answers ---------------------------------------------------------------------------------------------

    def _call(self, _index: int, data: Mapping[str, Any]) -> None:
        self.end_line()
        self._write(f"• {_cut(data['toolName'])} {_cut(data['input'])}", is_note=True, fg="cyan")
        self._open = str(data["callId"])

    def _retrying(self, _index: int, data: Mapping[str, Any]) -> None:
        self.note(
            f"  {data['toolName']} failed ({_cut(data['error'])}); try {data['attempt']} follows in "
            f"{data['delayMs'] / 1000:.1f} s"
        )

    def _result(self, _index: int, data: Mapping[str, Any]) -> None:
        """The end of the call's line; a line of its own when something else came between."""
        if self._open != data["callId"]:
            self.end_line()
            self._write(f"• {_cut(data['toolName'])}", is_note=True, fg="cyan")
        is_good = data["status"] == "completed"
        told = _cut(data.get("output")) if is_good else _cut(data.get("error"))
        self._write(
            f" {'✓' if is_good else '✗ ' + visible(data['status'])} {told} ({data['durationMs']} ms)\n",
            is_note=True,
            fg="green" if is_good else "red",
        )
        self._open = ""

    def _answered(self, _index: int, data: Mapping[str, Any]) -> None:
        who = f" by {data['by']}" if data.get("by") else ""
        why = f": {data['comment']}" if data.get("comment") else ""
        self.note(f"  {data['outcome']}{who}{why}")

    def _authorized(self, _index: int, data: Mapping[str, Any]) -> None:
        self.note(f"  {data['connection']}: {'authorized' if data['success'] else 'not authorized'}")

    # -- the session ---------------------------------------------------------------------------------------------------

    def _completed(self, _index: int, _data: Mapping[str, Any]) -> None:
        self.note("The session is over.")

    def _failed(self, _index: int, data: Mapping[str, Any]) -> None:
        self.note(f"The session failed, {data['code']}: {data['message']}", "red")

    def _write(self, text: str, *, is_note: bool, **style: Any) -> None:
        if self._styles and style:
            text = click.style(text, **style)
        click.echo(text, nl=False, err=is_note and not self._is_person)


def said_by_somebody(event: ev.Event) -> str:
    """The line for a message that was sent from elsewhere."""
    return f"Somebody else said: {text_of(event.data['message'])}"


def _text(text: str) -> str:
    return visible_lines(text.replace("\r\n", "\n").replace("\t", "    "))


def _cut(value: Any) -> str:
    if value is None:
        return ""
    text = visible(value) if isinstance(value, str) else json_text(value)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"


_SHOWN: Final[Mapping[str, Callable[[Screen, int, Mapping[str, Any]], None]]] = {
    ev.TURN_STARTED: Screen._turn_started,  # noqa: SLF001 - the class's own table
    ev.TURN_FAILED: Screen._turn_failed,  # noqa: SLF001
    ev.TURN_CANCELLING: Screen._turn_cancelling,  # noqa: SLF001
    ev.TURN_CANCELLED: Screen._turn_cancelled,  # noqa: SLF001
    ev.STEP_RESUMED: Screen._resumed,  # noqa: SLF001
    ev.MESSAGE_APPENDED: Screen._said_more,  # noqa: SLF001
    ev.MESSAGE_COMPLETED: Screen._said_all,  # noqa: SLF001
    ev.REASONING_APPENDED: Screen._thought_more,  # noqa: SLF001
    ev.ACTIONS_REQUESTED: Screen._call,  # noqa: SLF001
    ev.ACTION_RETRYING: Screen._retrying,  # noqa: SLF001
    ev.ACTION_RESULT: Screen._result,  # noqa: SLF001
    ev.INPUT_COMPLETED: Screen._answered,  # noqa: SLF001
    ev.AUTHORIZATION_COMPLETED: Screen._authorized,  # noqa: SLF001
    ev.SESSION_COMPLETED: Screen._completed,  # noqa: SLF001
    ev.SESSION_FAILED: Screen._failed,  # noqa: SLF001
}
