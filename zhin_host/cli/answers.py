"""`zhin-host approve`, `deny`, `answer`, `cancel` and `end`: what a person decides, from any terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click
import orjson

from zhin_host.cli import remote as hosts
from zhin_host.cli.remote import Remote
from zhin_host.clock import is_session_id

_CODES: Final = (
    "Exit codes: 0 done, or answered so before; 1 not open, or not reached; 3 answered otherwise before."
)

_json: Final = click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
_comment: Final = click.option("--comment", metavar="TEXT", help="A note for the log.")


def _targets(command: Callable[..., Any]) -> Callable[..., Any]:
    request = click.argument("request_id", metavar="[REQUEST]", required=False)
    return click.argument("target", metavar="REQUEST|ID")(request(command))


@click.command(epilog=_CODES)
@_targets
@_comment
@_json
@hosts.options
def approve(
    *, remote: Remote, target: str, request_id: str | None, comment: str | None, as_json: bool
) -> None:
    """Approve a request: by its own id, or by its session's ID when only one is open there.

    That is an approval, or a call to be tried again; of an authorization it says that it is done.
    """
    _decide(remote, target, request_id, {"approved": True, "comment": comment}, as_json=as_json)


@click.command(epilog=_CODES)
@_targets
@_comment
@_json
@hosts.options
def deny(*, remote: Remote, target: str, request_id: str | None, comment: str | None, as_json: bool) -> None:
    """Refuse a request: by its own id, or by its session's ID when only one is open there."""
    _decide(remote, target, request_id, {"approved": False, "comment": comment}, as_json=as_json)


@click.command(epilog=_CODES)
@click.argument("target", metavar="REQUEST|ID")
@click.argument("words", metavar="ANSWER")
@click.option("--as-value", is_flag=True, help="The answer is JSON: a number, a list, an object.")
@_comment
@_json
@hosts.options
def answer(
    *, remote: Remote, target: str, words: str, as_value: bool, comment: str | None, as_json: bool
) -> None:
    """Answer a question: by its own id, or by its session's ID when only one request is open there."""
    try:
        response = orjson.loads(words) if as_value else words
    except orjson.JSONDecodeError:
        raise click.UsageError(f"{words!r:.80} is not JSON; leave --as-value out for plain words.") from None
    _decide(remote, target, None, {"response": response, "comment": comment}, as_json=as_json)


@click.command()
@click.argument("session_id", metavar="ID")
@click.option("--turn", "turn_id", metavar="TURN", help="Only if this turn is the open one.")
@_json
@hosts.options
def cancel(*, remote: Remote, session_id: str, turn_id: str | None, as_json: bool) -> None:
    """Cancel the open turn of a session. Messages that are queued stay so."""
    with hosts.client_needed():
        from zhin_host.cli.live import answers  # noqa: PLC0415 - needs httpx
    answers.cancel(remote, session_id, turn_id, as_json=as_json)


@click.command()
@click.argument("session_id", metavar="ID")
@click.option("--failed", is_flag=True, help="It ended as failed; as completed when not given.")
@click.option("--message", metavar="TEXT", help="Why, for the log.")
@_json
@hosts.options
def end(*, remote: Remote, session_id: str, failed: bool, message: str | None, as_json: bool) -> None:
    """End a session for good: it takes no message any more. An open turn must have ended, or been cancelled, before."""
    with hosts.client_needed():
        from zhin_host.cli.live import answers  # noqa: PLC0415 - needs httpx
    answers.end(remote, session_id, "failed" if failed else "completed", message, as_json=as_json)


def _decide(
    remote: Remote, target: str, request_id: str | None, given: dict[str, Any], *, as_json: bool
) -> None:
    if request_id is not None and not is_session_id(target):
        raise click.UsageError("Write the request's id alone, or the session's id before it.")
    with hosts.client_needed():
        from zhin_host.cli.live import answers  # noqa: PLC0415 - needs httpx
    answers.answer(remote, target, request_id, given, as_json=as_json)
