"""Sync: the same client for code without an event loop. It runs in a loop of its own, in one thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, Self, TypeVar

from zhin_host.client.client import Client
from zhin_host.client.reading import Reading
from zhin_host.client.session import Answer, OnBusy, Outcome, Session
from zhin_host.client.state import Message, SavedState
from zhin_host.client.stream import Until
from zhin_host.client.turn import Turn
from zhin_host.client.view import TurnView
from zhin_host.events import Event

T = TypeVar("T")


class Loop:
    """An event loop in a thread of its own. Any number of threads may run things in it at the same time."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="zhin-client", daemon=True)
        self._thread.start()
        self._lock = threading.Lock()  # nothing is given to the loop behind what ends it
        self._is_closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it to its end and give what it gives. An interrupted wait (Ctrl-C) cancels it.

        Raises:
            RuntimeError: The loop is closed.
        """
        with self._lock:
            if self._is_closed:
                work.close()
                raise RuntimeError("This client is closed; make a new one.")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Cancel what still runs, run this as the last thing, and end the thread. Once is enough."""
        with self._lock:
            if self._is_closed:
                last.close()
                return
            self._is_closed = True
            future = asyncio.run_coroutine_threadsafe(_end_others(last), self._loop)
        try:
            future.result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _end_others(last: Coroutine[Any, Any, None]) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await last
    await asyncio.get_running_loop().shutdown_asyncgens()


class SyncEvents(Iterator[Event]):
    """Events as they come. `close` it, or leave its `with` block, to leave before their end."""

    def __init__(self, loop: Loop, events: Reading) -> None:
        self._loop = loop
        self._events = events

    def __next__(self) -> Event:
        event = self._loop.run(self._next())
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; no turn is touched."""
        self._loop.run(self._close())

    async def _next(self) -> Event | None:
        return await anext(self._events, None)

    async def _close(self) -> None:
        await self._events.aclose()


class SyncTurn:
    """A `zhin_host.client.Turn`; what is said there holds here."""

    def __init__(self, loop: Loop, turn: Turn) -> None:
        self._loop = loop
        self._turn = turn
        self.turn_id = turn.turn_id
        self.start_index = turn.start_index
        self.is_queued = turn.is_queued

    def __iter__(self) -> SyncEvents:
        return self.events()

    def events(self, since: int = 0) -> SyncEvents:
        return SyncEvents(self._loop, self._turn.events(since))

    def result(self) -> TurnView:
        return self._loop.run(self._turn.result())

    def cancel(self) -> bool:
        return self._loop.run(self._turn.cancel())


class SyncSession:
    """A `zhin_host.client.Session`; what is said there holds here. Threads may share it: one reads, one answers."""

    def __init__(self, loop: Loop, session: Session) -> None:
        self._loop = loop
        self._session = session
        self.session_id = session.session_id

    @property
    def cursor(self) -> int:
        return self._session.cursor

    @property
    def continuation_token(self) -> str:
        return self._session.continuation_token

    @property
    def state(self) -> SavedState:
        return self._session.state

    @property
    def turn(self) -> SyncTurn:
        return SyncTurn(self._loop, self._session.turn)

    def send(self, message: Message, *, on_busy: OnBusy = "reject", key: str | None = None) -> SyncTurn:
        return SyncTurn(self._loop, self._loop.run(self._session.send(message, on_busy=on_busy, key=key)))

    def resume(self) -> SyncTurn:
        return SyncTurn(self._loop, self._loop.run(self._session.resume()))

    def events(self, start: int | None = None, until: Until = "boundary") -> SyncEvents:
        return SyncEvents(self._loop, self._session.events(start, until))

    def answer(self, request: Any, **answer: Any) -> Answer:
        return self._loop.run(self._session.answer(request, **answer))

    def cancel(self, turn_id: str | None = None) -> bool:
        return self._loop.run(self._session.cancel(turn_id))

    def end(self, outcome: Outcome = "completed", message: str | None = None) -> None:
        self._loop.run(self._session.end(outcome, message))

    def refresh(self) -> dict[str, Any]:
        return self._loop.run(self._session.refresh())


class SyncClient:
    """A `zhin_host.client.Client`; what is said there holds here. Use it as `with SyncClient(url) as client:`.

    Args:
        url: The host's address.
        settings: As Client takes them.
    """

    def __init__(self, url: str, **settings: Any) -> None:
        self._client = Client(url, **settings)
        self._loop = Loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection and end the thread. Turns go on: closing never cancels."""
        self._loop.close(self._client.aclose())

    def start(
        self,
        message: Message,
        *,
        agent: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> SyncSession:
        starting = self._client.start(message, agent=agent, metadata=metadata, key=key)
        return SyncSession(self._loop, self._loop.run(starting))

    def open(self, session_id: str) -> SyncSession:
        return SyncSession(self._loop, self._loop.run(self._client.open(session_id)))

    def restore(self, state: Mapping[str, Any]) -> SyncSession:
        return SyncSession(self._loop, self._client.restore(state))

    def info(self) -> dict[str, Any]:
        return self._loop.run(self._client.info())

    def sessions(
        self, *, status: str | None = None, limit: int = 50, before: str | None = None
    ) -> dict[str, Any]:
        return self._loop.run(self._client.sessions(status=status, limit=limit, before=before))
