"""A client of a zhin host: it sends messages, reads events over broken connections, and answers what agents ask.

    async with Client("http://127.0.0.1:8787") as client:
        session = await client.start("write a note shopping: milk, eggs")
        async for event in session.turn:
            if event.type == "input.requested":
                await session.answer(event, approved=True)
        print((await session.turn.result()).text)

`session.send(message)` goes on, `session.events()` reads the whole session, `session.state` is what to save and
`client.restore(state)` goes on from it. `fold(view, event)` makes of events what a person is shown. SyncClient is the
same without `async`. docs/client.md tells the rest.
"""

try:
    import httpx as _httpx  # noqa: F401 - only to say what is missing
except ModuleNotFoundError as error:
    if error.name != "httpx":
        raise
    raise ImportError(
        "zhin_host.client needs httpx, which is not installed; install it with: pip install 'zhin-host[client]'"
    ) from None

from zhin_host.client.client import Client
from zhin_host.client.errors import (
    AgentNotFound,
    BadRequest,
    BadResponse,
    ClientError,
    Conflict,
    ConnectionLost,
    ContinuationTokenStale,
    Forbidden,
    GaveUp,
    HistoryChanged,
    IdempotencyConflict,
    NotFound,
    NothingToResume,
    Refused,
    RequestAlreadyAnswered,
    RequestNotFound,
    SessionBusy,
    SessionNotFound,
    SessionTerminal,
    StorageUnavailable,
    TooLarge,
    TooMany,
    TurnDropped,
    Unauthorized,
    Unavailable,
)
from zhin_host.client.patience import Patience
from zhin_host.client.reducer import fold
from zhin_host.client.session import Answer, Session
from zhin_host.client.state import SavedState
from zhin_host.client.sync import SyncClient, SyncSession, SyncTurn
from zhin_host.client.turn import Turn
from zhin_host.client.view import Call, Queued, Request, TurnView, View
from zhin_host.events import Event

__all__ = [
    "AgentNotFound",
    "Answer",
    "BadRequest",
    "BadResponse",
    "Call",
    "Client",
    "ClientError",
    "Conflict",
    "ConnectionLost",
    "ContinuationTokenStale",
    "Event",
    "Forbidden",
    "GaveUp",
    "HistoryChanged",
    "IdempotencyConflict",
    "NotFound",
    "NothingToResume",
    "Patience",
    "Queued",
    "Refused",
    "Request",
    "RequestAlreadyAnswered",
    "RequestNotFound",
    "SavedState",
    "Session",
    "SessionBusy",
    "SessionNotFound",
    "SessionTerminal",
    "StorageUnavailable",
    "SyncClient",
    "SyncSession",
    "SyncTurn",
    "TooLarge",
    "TooMany",
    "Turn",
    "TurnDropped",
    "TurnView",
    "Unauthorized",
    "Unavailable",
    "View",
    "fold",
]
