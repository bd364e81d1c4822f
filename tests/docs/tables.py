"""Tables of the reference, made from the host's own tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.docs.made import table
from zhin_host import errors
from zhin_host.client.errors import refusal
from zhin_host.http.app import BASE, ROUTES

VIEW: Final = (
    "sessionId, agent, owner?, status, parked, pendingRequestIds, pendingRequests, continuationToken, cursor, turn, "
    "steps, grants, metadata, createdAt, updatedAt, brokenAt?"
)

# What each handler is for; what its body, or its query, holds; and what its answer holds beside `ok`. A question mark
# is for what may be missing. tests/docs/test_routes.py sends and gets it all.
TOLD: Final = {
    "start": (
        "a new session and its first turn",
        "message, metadata?, agent?",
        "sessionId, continuationToken, turnId, startIndex",
    ),
    "proceed": (
        "a follow-up",
        "continuationToken, message, onBusy?",
        "sessionId, continuationToken, turnId, startIndex, queued?",
    ),
    "view": (
        "how it stands now",
        "",
        VIEW,
    ),
    "delete": ("remove it, its streams ended and no byte left", "", "sessionId"),
    "stream": ("its events, NDJSON or SSE", "startIndex?, until?", "events"),
    "answer": (
        "answer a request",
        "requestId, approved or response, comment?",
        "sessionId, requestId, approved or response, alreadyAnswered",
    ),
    "cancel": ("cancel the open turn", "turnId?", "sessionId, status"),
    "audit": ("what the audit says of it", "", "sessionId, events, bytes, lastSum, faults"),
    "end": ("complete or fail a session at rest, for good", "outcome, message?", "sessionId, status"),
    "resume": (
        "try the failed last turn again, from its record",
        "continuationToken?",
        "sessionId, continuationToken, turnId, startIndex",
    ),
    "page": ("the caller's sessions, newest first", "status?, limit?, before?", "sessions, nextBefore?"),
    "authorize": (
        "say how an authorization went",
        "success, error?, sessionId?",
        "sessionId, requestId, success, alreadyAnswered",
    ),
    "answer_relayed": (
        "answer a request, in the words of ADR 0040's first clients",
        "traceId, promptId, response",
        "sessionId, requestId, approved or response, alreadyAnswered",
    ),
    "health": ("whether the process answers", "", "service"),
    "ready": ("whether it takes work; 503 with the reason if not", "", ""),
    "info": ("agents, their tools and policies, limits", "", "agents, limits"),
    "openapi": ("these routes as an OpenAPI 3.1 document", "", "openapi, info, servers, paths, components"),
}


def path_of(path: str) -> str:
    """A path of the table as people write it."""
    return (BASE + path).replace("{session_id}", "{id}").replace("{request_id}", "{requestId}")


def _fields(names: str) -> str:
    return ", ".join(
        " or ".join(f"`{word}`" for word in name.split(" or ")) for name in names.split(", ") if name
    )


def routes_told() -> str:
    """Every route with its purpose, scope, body and answer."""
    rows = [
        (
            f"`{method} {path_of(path).removeprefix(BASE)}`",
            told,
            "nothing" if row.is_open else "any" if row.right is None else f"`{row.right}`",
            _fields(body),
            _fields(answer),
        )
        for path, methods in ROUTES.items()
        for method, row in methods.items()
        for told, body, answer in [TOLD[row.name]]
    ]
    return table("route | what it does | scope | body or query | answer", rows)


def request_errors(
    kind: type[errors.RequestError] = errors.RequestError,
) -> Iterator[type[errors.RequestError]]:
    """The classes of refusals that are raised, each after what it is a kind of."""
    for below in kind.__subclasses__():
        if below not in {errors.Conflict, errors.NotFound}:  # only their kinds are raised
            yield below
        yield from request_errors(below)


def errors_told() -> str:
    """Every code with its status, its meaning and the class that the Python client raises."""
    rows = [
        (
            kind.status,
            f"`{kind.code}`",
            (kind.__doc__ or "").partition("\n")[0],
            f"`{type(refusal(kind.code, kind.status, '', {}, None)).__name__}`",
        )
        for kind in sorted(request_errors(), key=lambda kind: kind.status)
    ]
    return table("status | code | what it says | `zhin_host.client`", rows)
