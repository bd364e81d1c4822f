"""Connection: the client of a running host, and its errors as sentences with exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from typing import Final

import click

from zhin_host.cli.exits import Failure, Otherwise
from zhin_host.cli.remote import Remote
from zhin_host.cli.terminal import Refusal
from zhin_host.client import (
    BadResponse,
    ClientError,
    ConnectionLost,
    Forbidden,
    GaveUp,
    Patience,
    Refused,
    RequestAlreadyAnswered,
    SyncClient,
    Unauthorized,
)

SHORT: Final = Patience(tries=4, total_s=6.0)
"""Of a command that does one thing: a person waits for it."""
LONG: Final = Patience()
"""Of a conversation: the host may be restarted meanwhile."""
_TOLD_S: Final = 0.5  # a pause shorter than this is not worth a word


class Watch:
    """Says on stderr that the host is away, once each time, and that it is back.

    Attributes:
        is_away: Whether it was said to be, and nothing has come since.
    """

    def __init__(self, patience: Patience) -> None:
        self.is_away = False
        self.patience = Patience(patience.tries, patience.total_s, sleep=self._sleep)
        self._paused_s = 0.0

    async def _sleep(self, seconds: float) -> None:
        self._paused_s += seconds
        if not self.is_away and self._paused_s >= _TOLD_S:
            self.is_away = True
            click.echo("\nThe host is not reached; trying again. Nothing is lost.", err=True)
        await asyncio.sleep(seconds)

    def heard(self) -> None:
        """Something came from the host."""
        self._paused_s = 0.0
        if self.is_away:
            self.is_away = False
            click.echo("The host is back.", err=True)


@contextlib.contextmanager
def connected(remote: Remote, watch: Watch) -> Iterator[SyncClient]:
    """A client of the host; closing it touches no turn.

    Raises:
        Failure: The host refused or was not reached: the sentence says which, and what to do.
    """
    with explained(remote), SyncClient(remote.url, bearer=remote.bearer, patience=watch.patience) as client:
        yield client


@contextlib.contextmanager
def explained(remote: Remote) -> Iterator[None]:
    """Errors of the client as a Failure with its exit code."""
    try:
        yield
    except ClientError as error:
        raise failure_of(error, remote) from None


def failure_of(error: ClientError, remote: Remote) -> click.ClickException:
    """One sentence, and the exit code of the kind of error."""
    match error:
        case RequestAlreadyAnswered():
            return Otherwise(str(error))
        case Unauthorized():
            return Refusal(f"{error} Give it with ZHIN_TOKEN or --token-file.")
        case Forbidden() | BadResponse():
            return Refusal(str(error))
        case Refused():
            return Failure(error.message)
        case GaveUp() if isinstance(error.__cause__, ConnectionLost) and error.session_id is None:
            return Failure(
                f"No host answers at {remote.url}: {error.__cause__} Start one with `zhin-host serve`, or name "
                "another with --url."
            )
        case GaveUp():
            return Failure(f"{error} {error.__cause__}")
        case _:
            return Failure(str(error))


def is_person_here() -> bool:
    """Whether somebody sits at a terminal, to be asked and to read."""
    return sys.stdin.isatty() and sys.stdout.isatty()
