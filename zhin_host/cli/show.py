"""`zhin-host show`: one session as it is now: its state, what waits for a person, what was said last."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from zhin_host.cli import directory
from zhin_host.cli.sessions import status_text
from zhin_host.cli.terminal import console, is_for_programs, json_text, moment, visible, visible_lines
from zhin_host.errors import SessionNotFound, StorageUnavailable
from zhin_host.history import read_history
from zhin_host.recovery import Hydrated
from zhin_host.snapshot import public_view
from zhin_host.storage.files import FileHttpSessionPersistence

_MESSAGES_MAX: Final = 6
_MESSAGE_CHARACTERS: Final = 2_000


@click.command()
@click.argument("session_id", metavar="ID", shell_complete=directory.complete_ids)
@directory.option
@directory.json_option
def show(*, session_id: str, data_dir: str, as_json: bool | None) -> None:
    """Show one session: status, continuation token, open requests, the last messages."""
    persistence = directory.opened(data_dir)
    found = directory.read_session(persistence, session_id)
    view = {**public_view(found.state), "cursor": found.state.next_index, **directory.broken_at(found)}
    if is_for_programs(as_json):
        click.echo(json_text(view))
        return
    screen = console()
    _print_facts(screen, view, found)
    _print_requests(screen, view["pendingRequests"])
    _print_messages(screen, _messages(persistence, found))


def _print_facts(screen: Console, view: dict[str, Any], found: Hydrated) -> None:
    facts = {
        "session": view["sessionId"],
        "status": "parked, it waits for an answer" if view["parked"] else status_text(view),
        "broken": "" if found.fault is None else f"at byte {found.fault.offset}: {found.fault.reason}",
        "agent": view["agent"],
        "owner": view.get("owner", ""),
        "created": moment(view["createdAt"]),
        "last event": moment(view["updatedAt"]),
        "events": f"{view['cursor']}, {found.state.offset} bytes",
        "last step": view["steps"][-1]["status"] if view["steps"] else "",
        "token": view["continuationToken"],
        "metadata": "" if view["metadata"] is None else json_text(view["metadata"]),
    }
    _print_rows(screen, {name: visible(text) for name, text in facts.items() if text})


def _print_requests(screen: Console, requests: list[dict[str, Any]]) -> None:
    for request in requests:
        call = f"{request['toolName']} " if "toolName" in request else ""
        facts = {
            "asks": request.get("prompt") or f"authorization of {request.get('connection', '')}",
            "request": request["requestId"],
            "kind": request["kind"],
            "for": call + (json_text(request["args"]) if "args" in request else ""),
            "options": json_text(request["options"]) if "options" in request else "",
            "expires": moment(request["expiresAt"]) if "expiresAt" in request else "",
        }
        screen.print()
        _print_rows(screen, {name: visible(text) for name, text in facts.items() if text})


def _messages(persistence: FileHttpSessionPersistence, found: Hydrated) -> list[dict[str, str]]:
    """The messages of the readable part of the log, oldest first; none where they cannot be read."""
    with contextlib.suppress(SessionNotFound, StorageUnavailable, ValueError, KeyError):
        log = persistence.peek_log(found.state.session_id)
        try:
            return read_history(log, found.state.next_index)
        finally:
            log.close()
    return []


def _print_messages(screen: Console, messages: list[dict[str, str]]) -> None:
    left_out = len(messages) - _MESSAGES_MAX
    if left_out > 0:
        screen.print(Text(f"\n{left_out} earlier messages are left out; `zhin-host tail` has all."))
    for row in messages[-_MESSAGES_MAX:]:
        text = row["content"]
        more = "…" if len(text) > _MESSAGE_CHARACTERS else ""
        screen.print()
        _print_rows(screen, {row["role"]: visible_lines(text[:_MESSAGE_CHARACTERS]) + more})


def _print_rows(screen: Console, rows: dict[str, str]) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=10, style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in rows.items():
        grid.add_row(Text(name), Text(text))
    screen.print(grid)
