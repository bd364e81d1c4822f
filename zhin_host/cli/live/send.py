"""Send: one message, and what becomes of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import click

from zhin_host import events as ev
from zhin_host.cli.exits import Asked, Failure
from zhin_host.cli.live.asking import how_to_answer
from zhin_host.cli.live.connection import LONG, SHORT, Watch, connected, is_person_here
from zhin_host.cli.live.eventjson import event_json
from zhin_host.cli.live.screen import Screen
from zhin_host.cli.remote import Remote
from zhin_host.cli.terminal import json_text
from zhin_host.client import GaveUp, SyncClient, SyncSession, TurnView, View, fold
from zhin_host.client.session import OnBusy


@dataclass(frozen=True, slots=True)
class Sending:
    """What is sent, and what is printed of it.

    Attributes:
        session_id: Where it goes on; None: in a new session.
        agent: Who a new session is with; None: the host's first agent.
        key: The Idempotency-Key; None: the client makes one.
        is_waited_for: Whether the turn's end is.
        form: "text", "json" (one object at the end), or "events" (a JSON line each, as they come).
    """

    message: str
    session_id: str | None
    agent: str | None
    on_busy: OnBusy
    key: str | None
    is_waited_for: bool
    form: str


def send(remote: Remote, sending: Sending) -> None:
    """Send it, and print what becomes of it until the turn ends or asks a person.

    Raises:
        Failure: The host refused or is not reached; the turn failed or was cancelled.
        Asked: The turn waits for a person.
    """
    with connected(remote, Watch(SHORT)) as client:
        session = _begun(client, sending)
    with connected(remote, watch := Watch(LONG)) as client:
        session = client.restore(session.state)
        if not sending.is_waited_for:
            _print_begun(session, sending.form)
            return
        click.echo(f"Session {session.session_id}", err=True)
        _print_end(_followed(session, watch, sending.form), session.session_id, sending.form)


def _begun(client: SyncClient, sending: Sending) -> SyncSession:
    """The session, its turn being the message's."""
    try:
        if sending.session_id is None:
            return client.start(sending.message, agent=sending.agent, key=sending.key)
        session = client.open(sending.session_id)
        session.send(sending.message, on_busy=sending.on_busy, key=sending.key)
        return session
    except GaveUp as error:
        if error.key is not None:
            click.echo(
                f"It may have arrived; the same command with --key {error.key} sends it once.", err=True
            )
        raise


def _print_begun(session: SyncSession, form: str) -> None:
    turn = session.turn
    if form == "text":
        click.echo(session.session_id)
        return
    begun = {"sessionId": session.session_id, "turnId": turn.turn_id, "startIndex": turn.start_index}
    click.echo(json_text(begun))


def _followed(session: SyncSession, watch: Watch, form: str) -> TurnView:
    """The turn at its end, or where it asks."""
    screen, view = Screen(is_person=is_person_here()), View()
    turn_id = session.turn.turn_id
    with session.turn.events() as events:
        for event in events:
            watch.heard()
            view = fold(view, event)
            if form == "events":
                click.echo(event_json(event))
            elif form == "text":
                screen.show(event)
            if event.type == ev.SESSION_WAITING and event.data["parked"]:
                break
    screen.end_line()
    return view.turn_of(turn_id)


def _print_end(turn: TurnView, session_id: str, form: str) -> None:
    if form == "json":
        click.echo(json_text({"sessionId": session_id, **result_of(turn)}))
    if turn.open_requests:
        request = turn.open_requests[0]
        raise Asked(f"The agent asks: {request.prompt:.200} {how_to_answer(request)}")
    if turn.status != "completed":
        why = f", {turn.code}: {turn.reason}" if turn.code else ""
        raise Failure(
            f"The turn {'failed' if turn.status == 'failed' else 'was cancelled'}{why}.".replace("..", ".")
        )


def result_of(turn: TurnView) -> dict[str, Any]:
    """The turn as one JSON object, camelCase: what counts of it."""
    return {
        "turnId": turn.turn_id,
        "status": "waiting" if turn.open_requests else turn.status,
        "text": turn.text,
        "reasoning": turn.reasoning,
        "calls": [_camel(call) for call in turn.calls],
        "requests": [
            {**request.data, "kind": request.kind, "outcome": request.outcome} for request in turn.requests
        ],
        "usage": turn.usage,
        "code": turn.code,
        "reason": turn.reason,
        "recoverable": turn.is_recoverable,
    }


def _camel(row: Any) -> dict[str, Any]:
    """The fields of a dataclass under the names of the wire."""
    named = {}
    for field in dataclasses.fields(row):
        first, *rest = field.name.split("_")
        named[first + "".join(word.capitalize() for word in rest)] = getattr(row, field.name)
    return named
