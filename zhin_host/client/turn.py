"""Turn: what became of one message; its end, and no other turn's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from zhin_host import events as ev
from zhin_host.client.errors import HistoryChanged, TurnDropped
from zhin_host.client.reducer import fold
from zhin_host.client.stream import EventStream
from zhin_host.client.view import TurnView, View
from zhin_host.client.wire import Wire

if TYPE_CHECKING:
    from zhin_host.client.session import Session


class Turn:
    """One turn that this client began. Iterate it for its events.

    Attributes:
        turn_id: As every event that names its turn has it.
        start_index: Index of its turn.started, or of its message.queued; 0 in a new session.
        is_queued: Whether it waited for another turn when it was accepted.
    """

    def __init__(
        self, session: Session, wire: Wire, turn_id: str, start_index: int, *, is_queued: bool = False
    ) -> None:
        self._session = session
        self._wire = wire
        self.turn_id = turn_id
        self.start_index = start_index
        self.is_queued = is_queued

    def __aiter__(self) -> AsyncIterator[ev.Event]:
        """Its events, from its beginning."""
        return self.events()

    async def events(self, since: int = 0) -> AsyncGenerator[ev.Event, None]:
        """The turn's events from its beginning to its end and the session's next event of rest.

        What belongs to other turns, before it in the queue or sent by others, is left out. When the turn asks a
        person, its request comes and the next event only once it is answered: here, or by anybody else.

        Args:
            since: Events before this index are left out; `session.cursor` goes on where a saved state was.

        Raises:
            TurnDropped: The session ended without it.
            SessionNotFound: The session was deleted.
            GaveUp: The host could not be reached for as long as patience lasts.
            HistoryChanged: The host has lost or changed events.
        """
        stream = EventStream(self._wire, self._session.session_id, self.start_index, "never")
        try:
            async with aclosing(stream.events()) as events, aclosing(self._own(events)) as own:
                async for event in own:
                    if event.index >= since:
                        self._session.handed_out(event)
                        yield event
        except HistoryChanged:
            self._session.forget()
            raise

    async def result(self) -> TurnView:
        """Wait for the turn's end, over every request that it makes: what it said and did.

        Raises:
            TurnDropped: The session ended without it.
            GaveUp: The host could not be reached for as long as patience lasts.
        """
        view = View()
        async with aclosing(self.events()) as events:
            async for event in events:
                view = fold(view, event)
        return view.turn_of(self.turn_id)

    async def cancel(self) -> bool:
        """Cancel it; whether it was open. One that is still queued is not."""
        return await self._session.cancel(self.turn_id)

    async def _own(self, events: AsyncIterator[ev.Event]) -> AsyncGenerator[ev.Event, None]:
        """Those of this turn, to its end."""
        is_open = is_ended = False
        async for event in events:
            self._session.saw(event)
            names_it = event.data.get("turnId") == self.turn_id
            is_open = is_open or (event.type == ev.TURN_STARTED and names_it) or event.index == 0
            is_others = event.type == ev.MESSAGE_QUEUED and not names_it
            if (is_open and not is_others) or (event.type == ev.MESSAGE_QUEUED and names_it):
                yield event
            is_ended = is_ended or (event.type in ev.TURN_ENDS and names_it)
            if is_ended and (event.type == ev.SESSION_WAITING or event.type in ev.SESSION_ENDS):
                return
        raise TurnDropped(self._session.session_id, self.turn_id)
