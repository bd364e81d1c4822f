"""Answers: an open request found and answered, a turn cancelled, a session ended."""

from __future__ import annotations

from typing import Any

import click

from zhin_host.cli.exits import Failure
from zhin_host.cli.live.connection import SHORT, Watch, connected
from zhin_host.cli.remote import Remote
from zhin_host.cli.terminal import json_text, visible
from zhin_host.client.session import Outcome
from zhin_host.clock import session_of_request

_KINDS = {"approved": ("approval", "retry"), "success": ("authorization",), "response": ("question",)}


def answer(
    remote: Remote, target: str, request_id: str | None, given: dict[str, Any], *, as_json: bool
) -> None:
    """Answer a request.

    Args:
        remote: The host.
        target: The request's id, or a session's.
        request_id: The request's id where the session came first.
        given: `approved` (of an authorization it counts as success) or `response`, and `comment`.
        as_json: Whether the answer is printed as a JSON object.

    Raises:
        Failure: There is no such request, it is of another kind, or the host is not reached.
        Otherwise: Somebody answered otherwise first.
    """
    with connected(remote, Watch(SHORT)) as client:
        if target.startswith("req_"):
            session, request_id = client.open(session_of_request(target)), target
        else:
            session = client.open(target)
        view = session.refresh()
        request = _request_of(view, request_id)
        answered = session.answer(request["requestId"], **_fitting(request, given))
        if as_json:
            told = {
                "sessionId": session.session_id,
                "requestId": answered.request_id,
                "answer": answered.value,
                "alreadyAnswered": answered.is_repeated,
            }
            click.echo(json_text(told))
        else:
            again = ", as it had been before" if answered.is_repeated else ""
            click.echo(f"{_told(answered.value)}{again}: {visible(_what(request))} in {session.session_id}")


def cancel(remote: Remote, session_id: str, turn_id: str | None, *, as_json: bool) -> None:
    """Cancel the open turn of a session, or this turn if it is the open one.

    Raises:
        Failure: The host refused or is not reached.
    """
    with connected(remote, Watch(SHORT)) as client:
        is_accepted = client.open(session_id).cancel(turn_id)
    if as_json:
        status = "accepted" if is_accepted else "no_active_turn"
        click.echo(json_text({"sessionId": session_id, "status": status}))
    else:
        what = "The turn is being cancelled" if is_accepted else "No such turn is open"
        click.echo(f"{what}: {session_id}")


def end(remote: Remote, session_id: str, outcome: Outcome, message: str | None, *, as_json: bool) -> None:
    """End a session.

    Raises:
        Failure: The host refused or is not reached.
    """
    with connected(remote, Watch(SHORT)) as client:
        client.open(session_id).end(outcome, message)
    if as_json:
        click.echo(json_text({"sessionId": session_id, "status": outcome}))
    else:
        click.echo(f"The session has ended as {outcome}: {session_id}")


def _request_of(view: dict[str, Any], request_id: str | None) -> dict[str, Any]:
    """The open request meant. One that is open no more is answered all the same: the host knows how it ended."""
    requests: list[dict[str, Any]] = view["pendingRequests"]
    if request_id is None:
        if len(requests) == 1:
            return requests[0]
        if not requests:
            raise Failure(f"Nothing waits for a person in {view['sessionId']}.")
        ids = ", ".join(row["requestId"] for row in requests)
        raise Failure(f"{len(requests)} requests are open in {view['sessionId']}; name one: {ids}.")
    for row in requests:
        if row["requestId"] == request_id:
            return row
    return {"requestId": request_id}


def _fitting(request: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The answer in the form that the request's kind takes."""
    kind = request.get("kind")
    if kind is None or (kind == "question") == ("response" in given):
        if kind == "authorization":
            return {"success": given["approved"], "error": given["comment"]}
        return given
    command = "answer" if kind == "question" else "approve` or `zhin-host deny"
    raise Failure(
        f"{request['requestId']} is of kind {kind}: {_what(request):.200} Use `zhin-host {command}`."
    )


def _told(value: Any) -> str:
    return {True: "Approved", False: "Denied"}[value] if isinstance(value, bool) else "Answered"


def _what(request: dict[str, Any]) -> str:
    return str(request.get("prompt") or request.get("connection") or request["requestId"])
