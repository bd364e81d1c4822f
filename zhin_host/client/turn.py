"""Turn: what became of one message; its end, and no other turn's."""

from __future__ import annotations

from typing import Protocol

from zhin_host.client.reading import OwnEvents, Reader, Reading
from zhin_host.client.reducer import fold
from zhin_host.client.stream import EventStream
from zhin_host.client.view import TurnView, View
from zhin_host.client.wire import Wire


class Holder(Reader, Protocol):
    """The session a turn is in."""

    session_id: str

    async def cancel(self, turn_id: str | None = None) -> bool:
        """Cancel this turn if it is the open one; whether it was."""


class Turn:
    """One turn that this client began. Iterate it for its events.

    Attributes:
        turn_id: As every event that names its turn has it.
        start_index: Index of its turn.started, or of its message.queued; 0 in a new session.
        is_queued: Whether it waited for another turn when it was accepted.
    """

    def __init__(
        self, session: Holder, wire: Wire, turn_id: str, start_index: int, *, is_queued: bool = False
    ) -> None:
        self._session = session
        self._wire = wire
        self.turn_id = turn_id
        self.start_index = start_index
        self.is_queued = is_queued

    def __aiter__(self) -> Reading:
        """Its events, from its beginning."""
        return self.events()

    def events(self, since: int = 0) -> Reading:
        """The turn's events from its beginning to its end and the session's next event of rest.

        What belongs to other turns, before it in the queue or sent by others, is left out. When the turn asks a
        person, its request comes and the next event only once it is answered: here, or by anybody else.

        Waiting for the next one raises as `Session.events` says, and TurnDropped when the session ended without it.

        Args:
            since: Events before this index are left out; with `session.cursor` it goes on where a saved state was.
        """
        session_id = self._session.session_id
        stream = EventStream(self._wire, session_id, self.start_index, "never")
        return Reading(stream, self._session, OwnEvents(session_id, self.turn_id), since)

    async def result(self) -> TurnView:
        """Wait for the turn's end, over every request that it makes: what it said and did.

        Raises:
            TurnDropped: The session ended without it.
            GaveUp: The host could not be reached for as long as patience lasts.
        """
        view = View()
        async with self.events() as events:
            async for event in events:
                view = fold(view, event)
        return view.turn_of(self.turn_id)

    async def cancel(self) -> bool:
        """Cancel it; whether it was open. One that is still queued is not."""
        return await self._session.cancel(self.turn_id)
