"""Door: who a request comes from and what it brings, found out the same way on every route, of whatever protocol."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, Protocol

from starlette.types import ASGIApp, Receive, Scope

from zhin_host.clock import is_session_id
from zhin_host.config import Config
from zhin_host.errors import SessionNotFound
from zhin_host.events import digest
from zhin_host.http import schema
from zhin_host.http.auth import AllowAll, OuterLogin
from zhin_host.http.reply import SESSION_ID
from zhin_host.intake import Key
from zhin_host.ports import Authenticator, Principal, Right
from zhin_host.store import HttpAgentSessionStore

CONVERSATION_BODIES: Final = 8
"""How many times body_bytes_max a body may be that holds a conversation."""


class Call:
    """One request on its way through a handler.

    Attributes:
        headers: Lower-case names; of a repeated header the last value.
        right: What the route asks of its caller; None: that it is somebody.
        who: The caller, None until it is authenticated.
        session_id: The session that it is about; None while none is known.
    """

    __slots__ = ("headers", "receive", "right", "scope", "session_id", "who")

    def __init__(self, scope: Scope, receive: Receive, right: Right | None = None) -> None:
        self.scope = scope
        self.receive = receive
        self.right = right
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.who: Principal | None = None
        self.session_id: str | None = None
        in_path = scope["path_params"].get("session_id")
        if in_path is not None and is_session_id(in_path):
            self.session_id = scope[SESSION_ID] = in_path

    def known_session(self) -> str:
        """The sessionId of the path.

        Raises:
            SessionNotFound: It cannot be one.
        """
        if self.session_id is None:
            raise SessionNotFound(self.scope["path_params"]["session_id"])
        return self.session_id


Handler = Callable[[Call], Awaitable[ASGIApp]]


class Endpoint(NamedTuple):
    """One method of one path.

    Attributes:
        name: Its handler in Routes, and what the log calls it.
        right: What its caller must be allowed; None: it must be known, or, where `is_open`, not even that.
    """

    name: str
    right: Right | None = None
    is_open: bool = False


class Door:
    """What a handler of any protocol gets: the caller and the body within the limits, and the commands.

    Attributes:
        store: The commands.
        config: The limits.
    """

    def __init__(
        self, store: HttpAgentSessionStore, authenticator: Authenticator | OuterLogin, config: Config
    ) -> None:
        self.store = store
        self.config = config
        self._authenticator = authenticator

    @property
    def is_guarded(self) -> bool:
        """Whether callers are told apart."""
        return not isinstance(self._authenticator, AllowAll)

    async def who(self, call: Call) -> Principal:
        """The caller, who may do what the route does, in some session at least: 401, then 403."""
        login = self._authenticator
        if isinstance(login, OuterLogin):
            who = await login.caller(call.scope)
        else:
            who = await login.authenticate(call.headers)
        if not isinstance(who, Principal):  # somebody's authenticator forgot to refuse: nobody gets in
            raise TypeError(f"the authenticator returned a {type(who).__qualname__}, not a Principal")
        call.who = who
        if call.right is not None:
            who.check(call.right)
        return who

    async def body(self, call: Call) -> schema.Body:
        return await schema.read_object(call.headers, call.receive, self.config)

    async def conversation(self, call: Call) -> schema.Body:
        """The body of a client that sends its copy of the conversation with each message: it may be larger."""
        size_max = self.config.body_bytes_max * CONVERSATION_BODIES
        return await schema.read_object(
            call.headers, call.receive, dataclasses.replace(self.config, body_bytes_max=size_max)
        )

    async def keyed(self, call: Call) -> tuple[schema.Body, Key | None]:
        """The body's object, and the Idempotency-Key with the digest of the body's bytes."""
        key = schema.key_of(call.headers)
        raw = await schema.read_bytes(call.headers, call.receive, self.config)
        body = schema.parse_object(raw, self.config.body_depth_max) if raw else {}
        return body, None if key is None else Key(key, digest(raw))


class Dialect(Protocol):
    """Another protocol that clients speak to the same sessions, behind the same guard, authentication and limits."""

    def routes(self, door: Door) -> Mapping[str, Mapping[str, tuple[Endpoint, Handler]]]:
        """Its paths, as Starlette writes them, and for each method what it is and its handler.

        A handler raises RequestError for a refusal, after `door.who` and before it sends anything.
        """
