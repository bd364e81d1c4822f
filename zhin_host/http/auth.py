"""Auth: who calls. Everybody alike, bearer tokens in the Authorization header, or what an app around the host says."""

from __future__ import annotations

import hashlib
import hmac
import inspect
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, cast

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import Scope

from zhin_host.actions import is_async
from zhin_host.errors import Forbidden, StartupError, Unauthorized
from zhin_host.ports import OWN_SCOPES, SCOPES, Authenticator, Principal

_logger = logging.getLogger("zhin_host.http")

_TOKEN_CHARACTERS_MIN: Final = 16
_FILE_BYTES_MAX: Final = 1 << 20
_LINE_FORM: Final = "a name, a space and a token"

CallerOf = Callable[[HTTPConnection], Awaitable[Principal]]
"""Says who calls, from the request as the app around the host has it: its user, state, session, cookies, headers.

What holds for an Authenticator holds for it. It may also raise Starlette's HTTPException, as dependencies do.
"""


class AllowAll:
    """Nobody is told apart: every caller is the principal without a name."""

    def __init__(self) -> None:
        self._principal = Principal(None)

    async def authenticate(self, headers: Mapping[bytes, bytes]) -> Principal:  # noqa: ARG002 - the seam's signature
        """The one principal there is."""
        return self._principal


class OuterLogin:
    """Who calls is what a function of the app around the host says."""

    def __init__(self, caller_of: CallerOf) -> None:
        self._caller_of = caller_of

    async def caller(self, scope: Scope) -> Principal:
        """The caller of a request.

        Raises:
            Unauthorized, Forbidden: It said so, or raised an HTTPException of 401 or 403.
        """
        try:
            return await self._caller_of(HTTPConnection(scope))
        except HTTPException as error:
            detail: object = error.detail  # FastAPI's may be any JSON
            told = detail if isinstance(detail, str) else str(detail)
            refusal = {401: Unauthorized, 403: Forbidden}.get(error.status_code)
            if refusal is None:
                raise HTTPException(error.status_code, told, error.headers) from error
            raise refusal(told) from error


def login_of(given: Authenticator | CallerOf) -> Authenticator | OuterLogin:
    """See at the start, not at the first request, that somebody's authenticator is one.

    Raises:
        StartupError: It is none; a class of them is none either.
    """
    if isinstance(given, type):
        kind = "class"
    elif inspect.iscoroutinefunction(getattr(given, "authenticate", None)):
        return cast("Authenticator", given)
    elif is_async(given) and _takes_one(given):
        return OuterLogin(cast("CallerOf", given))
    else:
        kind = type(given).__qualname__
    raise StartupError(
        f"The authenticator is a {kind:.80}; give an object with async def authenticate(headers), or an async function "
        "of one argument, the connection; either returns a Principal."
    )


def _takes_one(function: Any) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    return True


class BearerTokens:
    """A principal for each token (RFC 6750, in the header only); one name may have several, with scopes of their own.

    Only the tokens' SHA-256 is kept. A token is compared with all of them, each in constant time, so that the
    time of an answer says nothing about a token or about whose it is.
    """

    def __init__(self, tokens: Mapping[str, str] | Mapping[str, Principal]) -> None:
        """Take the tokens.

        Args:
            tokens: Name of the principal to its token, good for everything in its own sessions; or token to principal.
        """
        pairs = [
            (Principal(left), right) if isinstance(right, str) else (right, left)
            for left, right in tokens.items()
        ]
        self._principals = [(_digest(token.encode()), principal) for principal, token in pairs]

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> BearerTokens:
        """The tokens of a file: `name token [scope,…]` a line; blank lines and lines that begin with # say nothing.

        Raises:
            StartupError: It cannot be read, or a line is wrong; the line is named, never the token.
        """
        text, is_open = read_token_file(path)
        if is_open:
            _logger.warning("The token file %s may be read by others; chmod 600 it.", os.fspath(path))
        return cls(parse_tokens(text, os.fspath(path)))

    async def authenticate(self, headers: Mapping[bytes, bytes]) -> Principal:
        """The principal whose token the Authorization header bears.

        Raises:
            Unauthorized: There is no such header, it is of another scheme, or nobody has this token.
        """
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            raise Unauthorized("Say who you are: send the header Authorization: Bearer TOKEN.")
        presented = _digest(token.strip(b" "))
        found: Principal | None = None
        for digest, principal in self._principals:
            if hmac.compare_digest(digest, presented):
                found = principal
        if found is None:
            raise Unauthorized("Nobody has this token; send one from the host's token file.")
        return found


def read_token_file(path: str | os.PathLike[str]) -> tuple[str, bool]:
    """A token file's text, and whether others than its owner may read it.

    Raises:
        StartupError: It cannot be read, is too large to be one, or is not UTF-8 text.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - its descriptor is asked about its mode
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise StartupError(f"The token file {os.fspath(path)} cannot be read: {error.strerror}.") from None
    if len(data) > _FILE_BYTES_MAX:
        raise StartupError(
            f"The token file {os.fspath(path)} is over {_FILE_BYTES_MAX} bytes; is it the right one?"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise StartupError(f"The token file {os.fspath(path)} is not UTF-8 text.") from None
    return text, os.name == "posix" and bool(mode & (stat.S_IRWXG | stat.S_IRWXO))


def parse_tokens(text: str, path: str) -> dict[str, Principal]:
    """The tokens that a token file's text holds, and whose each is; `path` is for the messages.

    Raises:
        StartupError: As `BearerTokens.from_file`.
    """
    tokens: dict[str, Principal] = {}
    names: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"The token file {path}, line {number}:"
        if not 2 <= len(words) <= 3:  # noqa: PLR2004 - name, token and perhaps scopes
            raise StartupError(f"{where} write {_LINE_FORM}, perhaps a space and scopes, and nothing else.")
        name, token, *given = words
        if name in names and not given:
            raise StartupError(
                f"{where} the name {name!r:.80} was there before; a further token of it says its scopes."
            )
        _check_token(token, name, where)
        if token in tokens:
            raise StartupError(f"{where} the token of {name!r:.80} is another one's too; make a new one.")
        try:
            tokens[token] = Principal(name, _scopes_of(given))
        except ValueError as error:
            raise StartupError(f"{where} {error}.") from None
        names.add(name)
    if not tokens:
        raise StartupError(f"The token file {path} names nobody; write a line with {_LINE_FORM}.")
    return tokens


def _check_token(token: str, name: str, where: str) -> None:
    if len(token) < _TOKEN_CHARACTERS_MIN:
        raise StartupError(f"{where} the token of {name!r:.80} is under {_TOKEN_CHARACTERS_MIN} characters.")
    if not token.isascii() or not token.isprintable():
        raise StartupError(f"{where} the token of {name!r:.80} is not of visible ASCII characters.")


def _scopes_of(given: Iterable[str]) -> frozenset[str]:
    """The scopes of a line's third column; everything in one's own sessions where there is none.

    Raises:
        ValueError: One is unknown. It is not shown: who swaps columns must not find a token in the log.
    """
    scopes = frozenset(word for column in given for word in column.split(","))
    if not scopes <= SCOPES.keys():
        raise ValueError(f"the scopes are of {', '.join(SCOPES)}, with commas and without spaces")
    return scopes or OWN_SCOPES


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
