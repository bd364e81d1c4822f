"""The running host as the commands take it that speak to one: its address, and who calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from zhin_host.cli.serve import DEFAULT_PORT
from zhin_host.cli.terminal import Refusal

DEFAULT_URL: Final = f"http://127.0.0.1:{DEFAULT_PORT}"
_TOKEN_BYTES_MAX: Final = 1 << 16

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Remote:
    """A host, and the token to call it with, which is never shown."""

    url: str
    bearer: str | None = field(default=None, repr=False)

    @property
    def more_options(self) -> str:
        """What a command line must say beside its own words to speak to the same host."""
        return "" if self.url == DEFAULT_URL else f" --url {self.url}"


_OPTIONS: Final = (
    click.option(
        "--url",
        default=DEFAULT_URL,
        envvar="ZHIN_URL",
        show_default=True,
        show_envvar=True,
        help="The address of the running host.",
    ),
    click.option(
        "--token",
        envvar="ZHIN_TOKEN",
        show_envvar=True,
        help="The bearer token to call with. Other users see command lines: rather use the variable or a file.",
    ),
    click.option(
        "--token-file",
        metavar="FILE",
        help="A file with the token alone in it, or one line of the host's token file.",
    ),
)


def options(command: Command) -> Command:
    """--url, --token and --token-file; the command is given `remote`."""
    return _with_remote(command, _OPTIONS)


def optional_options(command: Command) -> Command:
    """The same for a command that reads files unless --url is written: `remote` is None without it."""
    url = click.option("--url", help="Ask the host at this address, in place of the files.")
    return _with_remote(command, (url, *_OPTIONS[1:]))


def _with_remote(command: Command, given: Iterable[Callable[[Command], Command]]) -> Command:
    @wraps(command)
    def with_remote(
        *args: Any, url: str | None, token: str | None, token_file: str | None, **arguments: Any
    ) -> Any:
        remote = None if url is None else remote_of(url, token, token_file)
        return command(*args, remote=remote, **arguments)

    decorated: Command = with_remote
    for option in reversed(list(given)):
        decorated = option(decorated)
    return decorated


def remote_of(url: str, token: str | None, token_file: str | None) -> Remote:
    """The host that the options name.

    Raises:
        Refusal: They cannot be used; the token is not in the sentence.
    """
    if not url.startswith(("http://", "https://")):
        raise Refusal(f"--url {url!r:.80} is no address; write one such as {DEFAULT_URL}.")
    bearer = token if token_file is None else _token_in(token_file)
    if bearer is not None and not (
        bearer and bearer.isascii() and bearer.isprintable() and " " not in bearer
    ):
        raise Refusal("The token is not of visible ASCII characters; see where it comes from.")
    return Remote(url.rstrip("/"), bearer)


def _token_in(path: str) -> str:
    """The last word of the only line that says something."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(_TOKEN_BYTES_MAX).decode("utf-8", "replace")
    except OSError as error:
        raise Refusal(f"The file of --token-file, {path}, cannot be read: {error.strerror}.") from None
    lines = [line.split() for line in text.splitlines()]
    told = [words for words in lines if words and not words[0].startswith("#")]
    if len(told) != 1:
        raise Refusal(
            f"The file of --token-file, {path}, has {len(told)} lines; give it one, with the token."
        )
    return told[0][-1]


@contextlib.contextmanager
def client_needed() -> Iterator[None]:
    """A block that imports what speaks to a host: it needs httpx, and time that the other commands do not lose.

    Raises:
        Refusal: httpx is missing; the sentence says how it is installed.
    """
    try:
        yield
    except ImportError as error:
        raise Refusal(str(error)) from None
