"""App: the table of routes, and the ASGI app made of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from zhin_host.config import Config
from zhin_host.errors import RequestError, RouteNotFound
from zhin_host.gauges import Gauges
from zhin_host.http.auth import OuterLogin
from zhin_host.http.door import Call, Dialect, Door, Endpoint, Handler
from zhin_host.http.guard import Guard
from zhin_host.http.routes import Routes
from zhin_host.logline import tell
from zhin_host.meters import Meters
from zhin_host.ports import Authenticator
from zhin_host.store import HttpAgentSessionStore

_logger = logging.getLogger("zhin_host.http")

BASE: Final = "/zhin/v1"


# Matched from the top, so the busiest come first. All but GET may change state; refused, they are logged by name.
ROUTES: Final[Mapping[str, Mapping[str, Endpoint]]] = {
    "/session": {"POST": Endpoint("start", "write")},
    "/session/{session_id}": {
        "POST": Endpoint("proceed", "write"),
        "GET": Endpoint("view", "read"),
        "DELETE": Endpoint("delete", "write"),
    },
    "/session/{session_id}/stream": {"GET": Endpoint("stream", "read")},
    "/session/{session_id}/input": {"POST": Endpoint("answer", "approve")},
    "/session/{session_id}/cancel": {"POST": Endpoint("cancel", "write")},
    "/session/{session_id}/audit": {"GET": Endpoint("audit", "read")},
    "/session/{session_id}/end": {"POST": Endpoint("end", "write")},
    "/session/{session_id}/resume": {"POST": Endpoint("resume", "write")},
    "/sessions": {"GET": Endpoint("page", "read")},
    "/authorization/{request_id}/complete": {"POST": Endpoint("authorize", "approve")},
    "/resume": {"POST": Endpoint("answer_relayed", "approve")},
    "/health": {"GET": Endpoint("health", is_open=True)},
    "/ready": {"GET": Endpoint("ready", is_open=True)},
    "/info": {"GET": Endpoint("info")},
    "/openapi.json": {"GET": Endpoint("openapi", is_open=True)},
}
ROOT_ROUTES: Final[Mapping[str, Mapping[str, Endpoint]]] = {"/metrics": {"GET": Endpoint("metrics")}}
"""Those that stand at the root and not below BASE: where scrapers look."""


def create_app(
    store: HttpAgentSessionStore,
    *,
    authenticator: Authenticator | OuterLogin,
    config: Config,
    info: Callable[[], dict[str, Any]],
    meters: Meters,
    gauges: Callable[[], Gauges],
    begin: Callable[[], Awaitable[None]],
    allowed_hosts: Iterable[str] = (),
    allowed_origins: Iterable[str] = (),
    any_host: bool = False,
    lifespan: Lifespan[Any] | None = None,
    pages: Mapping[str, ASGIApp] | None = None,
    dialects: Iterable[Dialect] = (),
) -> ASGIApp:
    """The ASGI app of a host, with everything of contract section 2 under /zhin/v1.

    Args:
        store: Who carries the commands out.
        authenticator: Says who calls.
        config: The limits of bodies and streams.
        info: Makes the fields of GET /info.
        meters: What GET /metrics exposes; refusals are counted in them.
        gauges: Reads the rest of it.
        begin: Awaited before each request: it returns at once, once the host has started.
        allowed_hosts: Values of Host beside the loopback ones; without a port, any port.
        allowed_origins: Values of Origin beside the host's own.
        any_host: Let any Host pass: tokens guard an address that is not loopback, and no host is named.
        lifespan: What starts and stops the host in a server that speaks lifespan, as Starlette takes it.
        pages: More apps behind the same guard, by the path they stand at; each gets what lies below it too, with
            the rest as `file` in the path's parameters. They see requests before anybody is authenticated.
        dialects: Other protocols that clients speak to the same sessions.
    """
    door = Door(store, authenticator, config)
    routes = Routes(door, info=info, meters=meters, gauges=gauges)
    below_base = {BASE + path: methods for path, methods in ROUTES.items()}
    table = [
        Route(path, Resource({method: (row, getattr(routes, row.name)) for method, row in methods.items()}))
        for path, methods in {**below_base, **ROOT_ROUTES}.items()
    ]
    for dialect in dialects:
        table += [Route(path, Resource(methods)) for path, methods in dialect.routes(door).items()]
    for path, page in (pages or {}).items():
        table += [Route(path, page), Route(path + "/{file:path}", page)]
    router = Router(table, redirect_slashes=False, default=_not_found, lifespan=lifespan)
    return Guard(
        _behind(begin, router),
        allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins,
        any_host=any_host,
        refusals=meters.refusals,
    )


def _behind(begin: Callable[[], Awaitable[None]], app: ASGIApp) -> ASGIApp:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await begin()
        await app(scope, receive, send)

    return serve


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - ASGI's signature
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    raise RouteNotFound(
        f"There is nothing at {scope['path']!r:.120}; GET {BASE}/openapi.json lists the routes."
    )


class Resource:
    """One path: a handler for each method, and a line in the log for each call that might have changed something."""

    def __init__(self, handlers: Mapping[str, tuple[Endpoint, Handler]]) -> None:
        """Take the handlers.

        Args:
            handlers: Method to (what it is, its handler). HEAD goes where GET does.
        """
        self._handlers = dict(handlers)
        if "GET" in handlers:
            self._handlers["HEAD"] = handlers["GET"]
        self._allow = ", ".join(sorted(self._handlers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request for this path."""
        method = scope["method"]
        if method not in self._handlers:
            detail = f"{method:.20} is not for this path; use {self._allow}."
            raise HTTPException(405, detail, headers={"Allow": self._allow})
        endpoint, handler = self._handlers[method]
        call = Call(scope, receive, endpoint.right)
        if method in {"GET", "HEAD"}:
            reply = await handler(call)
        else:
            reply = await _logged(endpoint.name, handler, call)
        await reply(scope, receive, send)


async def _logged(name: str, handler: Handler, call: Call) -> ASGIApp:
    """Tell of a call that was refused; what one that succeeds has changed is told where it is written."""
    try:
        return await handler(call)
    except RequestError as error:
        by = None if call.who is None else call.who.name
        session_id = call.session_id
        tell(_logger, logging.INFO, "call.refused", what=name, sessionId=session_id, by=by, code=error.code)
        raise
