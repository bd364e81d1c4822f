"""Inbox: every open request of every session at a host, as one list that is kept up to date."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click
from rich.live import Live
from rich.table import Table
from rich.text import Text

from zhin_host.cli.live.connection import LONG, SHORT, Watch, connected
from zhin_host.cli.remote import Remote
from zhin_host.cli.sessions import age
from zhin_host.cli.terminal import console, json_text, visible
from zhin_host.client import NotFound, SyncClient
from zhin_host.clock import SystemClock

_PAGE: Final = 200
_CHARACTERS_MAX: Final = 300
_HINT: Final = "zhin-host approve REQUEST · deny REQUEST · answer REQUEST ANSWER"
Row = Mapping[str, Any]
"""A request as GET /session/{id} has it, with sessionId, agent, and `since`: the time of the session's last event."""


class Inbox:
    """The open requests as they were when the host was last asked."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client
        self._by_session: dict[
            str, tuple[int, list[Row]]
        ] = {}  # the time of its last event, what was open then

    def rows(self) -> list[Row]:
        """Ask the host; what is open now, the longest waiting first. Only sessions that have changed are read again."""
        found: dict[str, tuple[int, list[Row]]] = {}
        for session in self._parked():
            session_id, at = session["sessionId"], session["updatedAt"]
            known = self._by_session.get(session_id)
            found[session_id] = known if known is not None and known[0] == at else (at, self._read(session))
        self._by_session = found
        return sorted((row for _, rows in found.values() for row in rows), key=lambda row: row["since"])

    def _parked(self) -> Iterator[Row]:
        before: str | None = None
        while True:
            page = self._client.sessions(status="waiting", limit=_PAGE, before=before)
            yield from (session for session in page["sessions"] if session["parked"])
            before = page.get("nextBefore")
            if before is None:
                return

    def _read(self, session: Row) -> list[Row]:
        try:
            view = self._client.open(session["sessionId"]).refresh()
        except NotFound:  # deleted meanwhile
            return []
        more = {"sessionId": session["sessionId"], "agent": session["agent"], "since": session["updatedAt"]}
        return [{**more, **request} for request in view["pendingRequests"]]


def watch(remote: Remote, *, is_once: bool, every_s: float, as_json: bool) -> None:
    """Show the list and keep it up to date until Ctrl-C.

    A terminal shows a table that changes in its place; one that cannot, or a pipe, a line for each request that opens.

    Args:
        remote: The host.
        is_once: Show it as it is now, and end.
        every_s: How long to wait before asking again.
        as_json: JSON lines: each request when it opens (`change` "opened") and when it does not any more ("closed").

    Raises:
        Failure: The host refused or is not reached.
    """
    with connected(remote, Watch(SHORT)) as client:
        rows = Inbox(client).rows()
        if is_once:
            _print_once(rows, as_json=as_json)
            return
    away = Watch(LONG)
    with connected(remote, away) as client:
        try:
            if console().is_terminal and not console().is_dumb_terminal and not as_json:
                _show_live(Inbox(client), away, every_s)
            else:
                _print_changes(Inbox(client), away, every_s, as_json=as_json)
        except KeyboardInterrupt:  # how it is meant to end
            return


def table_of(rows: list[Row], now_ms: int) -> Table:
    """The list for people; nothing in it is markup, or obeyed by a terminal. Ids are whole in 80 columns."""
    table = Table(
        box=None, pad_edge=False, header_style="bold", expand=True, caption=_HINT, caption_justify="left"
    )
    table.add_column("waits", justify="right", no_wrap=True)
    table.add_column("request, and what it asks", ratio=1, overflow="fold")
    for row in rows:
        asked = f"{row['requestId']}\n{row['kind']}, {visible(row['agent'])}: {_asks(row)}"
        table.add_row(Text(age(now_ms - row["since"])), Text(asked))
    return table


def _asks(row: Row) -> str:
    what = visible(str(row.get("prompt") or row.get("connection", "")))
    args = f" {json_text(row['args'])}" if "args" in row else ""
    text = what + args
    return text if len(text) <= _CHARACTERS_MAX else text[:_CHARACTERS_MAX] + "…"


def _print_once(rows: list[Row], *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            click.echo(json_text(row))
    elif rows:
        console().print(table_of(rows, SystemClock().now_ms()))
    else:
        click.echo("Nothing waits for a person.")


def _show_live(inbox: Inbox, away: Watch, every_s: float) -> None:
    screen = console()
    with Live(console=screen, auto_refresh=False) as live:
        while True:
            rows = inbox.rows()
            away.heard()
            none = Text("Nothing waits for a person. Ctrl-C leaves.")
            live.update(table_of(rows, SystemClock().now_ms()) if rows else none, refresh=True)
            time.sleep(every_s)


def _print_changes(inbox: Inbox, away: Watch, every_s: float, *, as_json: bool) -> None:
    known: dict[str, Row] = {}
    while True:
        now = {row["requestId"]: row for row in inbox.rows()}
        away.heard()
        for request_id, row in now.items():
            if request_id not in known:
                line = f"{row['requestId']}  {visible(row['kind'])}  {visible(row['agent'])}  {_asks(row)}"
                click.echo(json_text({"change": "opened", **row}) if as_json else line)
        for request_id, row in known.items():
            if request_id not in now and as_json:
                closed = {"change": "closed", "sessionId": row["sessionId"], "requestId": request_id}
                click.echo(json_text(closed))
        known = now
        time.sleep(every_s)
