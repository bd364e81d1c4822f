"""Reading: events handed out one by one. A wait may be cancelled at any moment; the next one goes on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol, Self

from zhin_host import events as ev
from zhin_host.client.errors import HistoryChanged, TurnDropped
from zhin_host.client.stream import EventStream


class Reader(Protocol):
    """Who is told of what was read: the session."""

    def saw(self, event: ev.Event) -> None:
        """An event came, whether or not it is handed out."""

    def handed_out(self, event: ev.Event, *, may_skip: bool) -> None:
        """An event is given to the caller, who has chosen to skip what is missing before it, or has not."""

    def forget(self) -> None:
        """The log is another one than was read."""


class Reading(AsyncIterator[ev.Event]):
    """An iterator of a session's events, all of them or one turn's.

    A wait that is cancelled (a time limit) or fails (GaveUp) ends only that wait: asked again, it goes on with the
    next event. Leave its `async with` block, or call `aclose`, to close its connection before the end.
    """

    def __init__(
        self, stream: EventStream, reader: Reader, own: OwnEvents | None = None, since: int = 0
    ) -> None:
        """Take the stream over.

        Args:
            stream: Not begun.
            reader: Is told of every event.
            own: Picks a turn's events; None: all.
            since: Events before this index are not handed out.
        """
        self._stream = stream
        self._reader = reader
        self._own = own
        self._since = since
        self._events: AsyncGenerator[ev.Event, None] | None = None
        self._is_over = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ev.Event:
        while not self._is_over:
            event = await self._next()
            self._reader.saw(event)
            is_picked = self._own is None or self._own.picks(event)
            self._is_over = self._own is not None and self._own.is_over
            if is_picked and event.index >= self._since:
                self._reader.handed_out(event, may_skip=self._own is None)
                return event
        await self.aclose()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Close the connection; no turn is touched."""
        self._is_over = True
        events, self._events = self._events, None
        if events is not None:
            await events.aclose()

    async def _next(self) -> ev.Event:
        if self._events is None:
            self._events = self._stream.events()
        try:
            return await anext(self._events)
        except StopAsyncIteration:
            self._is_over = True
            if self._own is not None:
                raise TurnDropped(self._own.session_id, self._own.turn_id) from None
            raise
        except BaseException as error:
            self._events = None  # it has ended, and its connection with it; the stream knows its cursor
            if isinstance(error, HistoryChanged):
                self._reader.forget()
            raise


class OwnEvents:
    """Picks the events of one turn, from its message.queued or turn.started to the session's rest after its end.

    Attributes:
        is_over: Whether all came.
    """

    def __init__(self, session_id: str, turn_id: str) -> None:
        self.session_id = session_id
        self.turn_id = turn_id
        self.is_over = False
        self._is_open = False
        self._has_ended = False

    def picks(self, event: ev.Event) -> bool:
        """Whether the event is the turn's; each is asked about once, in order."""
        names_it = event.data.get("turnId") == self.turn_id
        if event.type == ev.MESSAGE_QUEUED:
            return names_it  # others' messages wait beside the turn and are not of it
        self._is_open = self._is_open or (event.type == ev.TURN_STARTED and names_it) or event.index == 0
        self._has_ended = self._has_ended or (event.type in ev.TURN_ENDS and names_it)
        is_rest = event.type == ev.SESSION_WAITING or event.type in ev.SESSION_ENDS
        self.is_over = self._has_ended and is_rest
        return self._is_open
