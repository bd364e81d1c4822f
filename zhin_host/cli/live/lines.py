"""Lines: the very bytes of a session's log, as a host streams them."""

from __future__ import annotations

import sys

import click

from zhin_host import events as ev
from zhin_host.cli.exits import Failure
from zhin_host.cli.live.connection import LONG, SHORT, Watch, connected
from zhin_host.cli.remote import Remote


def log_lines(remote: Remote, session_id: str) -> list[bytes]:
    """Every line that there is now, with its newline.

    The client gives events and not bytes. The sum of an event is of its line's bytes, so a line that is made anew and
    has the same sum is the same.

    Raises:
        Failure: The host refused or is not reached, or a line came out otherwise.
    """
    with connected(remote, Watch(SHORT)) as client:
        total = client.open(session_id).refresh()["cursor"]
    lines: list[bytes] = []
    link = ev.chain_start(session_id)
    with (
        connected(remote, watch := Watch(LONG)) as client,
        client.open(session_id).events(0, until="tail") as events,
        click.progressbar(
            length=total, label="Reading", file=sys.stderr, hidden=not sys.stderr.isatty(), show_pos=True
        ) as bar,
    ):
        for event in events:
            watch.heard()
            made, link = ev.encode_line(
                event.index, event.type, event.timestamp_ms, event.data, link, sys.maxsize
            )
            if link != event.sum:
                raise Failure(
                    f"Event {event.index} was not written by a host; export the session from its files."
                )
            lines.append(made)
            bar.update(1)
    return lines
