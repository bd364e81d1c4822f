"""`zhin-host send`: one message to an agent, for scripts and for people in a hurry."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from zhin_host.cli import remote as hosts
from zhin_host.cli.remote import Remote
from zhin_host.clock import is_session_id

_BUSY: Final = ("reject", "queue", "interrupt")


@click.command()
@click.argument("words", metavar="[ID] MESSAGE", nargs=-1, required=True)
@click.option(
    "--session", "session_id", metavar="ID", help="Go on with this session; also as the first word."
)
@click.option("--agent", metavar="NAME", help="Who a new session is with; the host's first agent by default.")
@click.option(
    "--on-busy",
    type=click.Choice(_BUSY),
    default="reject",
    show_default=True,
    help="What happens while a turn is open.",
)
@click.option(
    "--key", metavar="KEY", help="An idempotency key: however often it is sent, it begins one turn."
)
@click.option(
    "--wait/--no-wait", "is_waited_for", default=True, help="Wait for the turn's end (the default)."
)
@click.option("--json", "form", flag_value="json", help="Print the turn as one JSON object at its end.")
@click.option("--events", "form", flag_value="events", help="Print its events as JSON lines, as they come.")
@hosts.options
def send(
    *,
    remote: Remote,
    words: tuple[str, ...],
    session_id: str | None,
    form: str | None,
    **how: Any,
) -> None:
    """Send a message: a new session, or one more turn of the session ID. `-` reads the message from stdin.

    Prints what the agent says, and the session's id on stderr. Exit codes: 0 the turn completed, 1 it failed, was
    cancelled or refused, 4 it waits for a person.
    """
    if len(words) == 2 and session_id is None and is_session_id(words[0]):  # noqa: PLR2004 - ID and MESSAGE
        session_id, words = words[0], words[1:]
    if len(words) != 1 or is_session_id(words[0]):
        raise click.UsageError(
            "Write one message, in quotes; before it the id of the session it goes on with."
        )
    message = sys.stdin.buffer.read().decode("utf-8", "replace") if words[0] == "-" else words[0]
    if session_id is not None and how["agent"] is not None:
        raise click.UsageError("--agent is for a new session; a session keeps its agent.")
    with hosts.client_needed():
        from zhin_host.cli.live import send as live  # noqa: PLC0415 - needs httpx
    live.send(remote, live.Sending(message=message, session_id=session_id, form=form or "text", **how))
