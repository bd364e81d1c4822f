"""Session: a conversation at a host, as one client holds it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from zhin_host import events as ev
from zhin_host.client.errors import Refused, SessionTerminal
from zhin_host.client.reading import Reading
from zhin_host.client.state import Message, SavedState, Unanswered
from zhin_host.client.stream import EventStream, Until
from zhin_host.client.turn import Turn
from zhin_host.client.view import Request
from zhin_host.client.wire import Wire, authorization_path, session_path

OnBusy = Literal["reject", "queue", "interrupt"]
Outcome = Literal["completed", "failed"]

_UNSET: Any = object()  # None is an answer


@dataclass(frozen=True, slots=True)
class Answer:
    """A request was answered.

    Attributes:
        value: The answer that stands.
        is_repeated: The same answer had been given before; perhaps by this very call, whose first reply was lost.
    """

    request_id: str
    value: Any
    is_repeated: bool


class Session:
    """One session. Made by `Client.start`, `Client.open` and `Client.restore`.

    Nothing here ever begins another session. Its methods may run side by side: an answer needs no stream closed.

    Attributes:
        session_id: For life.
        cursor: Index of the event after the last one handed out. A turn, which leaves out what is not its own, does
            not move it over what nobody was given; `events`, begun at a later start, does.
        continuation_token: The one in force, as far as this client has seen.
    """

    def __init__(self, wire: Wire, state: SavedState) -> None:
        self._wire = wire
        self.session_id = state["sessionId"]
        self.continuation_token = state["continuationToken"]
        self.cursor = state["cursor"]
        link = state["sum"]
        self._link = None if link is None else link.encode("ascii")
        self._token_index = state["tokenIndex"]
        self._turn: Turn | None = None
        if state["turn"] is not None:
            self._turn = Turn(self, wire, state["turn"]["turnId"], state["turn"]["startIndex"])
        self._unanswered = state["unanswered"]

    @property
    def state(self) -> SavedState:
        """What `Client.restore` goes on from, in this process or another: a JSON object without credentials.

        Save it when an event has been dealt with: `cursor` is behind the last one that was handed out.
        """
        turn = self._turn
        return {
            "version": 1,
            "sessionId": self.session_id,
            "continuationToken": self.continuation_token,
            "tokenIndex": self._token_index,
            "cursor": self.cursor,
            "sum": None if self._link is None else self._link.decode("ascii"),
            "turn": None if turn is None else {"turnId": turn.turn_id, "startIndex": turn.start_index},
            "unanswered": self._unanswered,
        }

    @property
    def turn(self) -> Turn:
        """The last turn that this client began.

        Raises:
            LookupError: It has begun none.
        """
        if self._turn is None:
            raise LookupError(f"This client has begun no turn in session {self.session_id}; send a message.")
        return self._turn

    async def send(self, message: Message, *, on_busy: OnBusy = "reject", key: str | None = None) -> Turn:
        """Go on with a message: its turn, which has begun or is queued, durably.

        However often the message has to be sent until an answer arrives, it begins one turn.

        Args:
            message: Text, or a list of text parts.
            on_busy: What happens while a turn is open: "reject" (SessionBusy), "queue", or "interrupt" it.
            key: `GaveUp.key`, to go on with a message whose answer never came; None: the client makes one.

        Raises:
            ContinuationTokenStale: Somebody else went on with the session meanwhile.
            SessionBusy: A turn is open, or too many messages are queued.
            SessionTerminal: The session is over.
            GaveUp: No answer came; the message may have arrived.
        """
        sending = self._unanswered = self._sending(message, on_busy, key)
        try:
            answer = await self._call("POST", "", sending["body"].encode(), key=sending["key"])
        except Refused as error:
            if error.status < 500:  # noqa: PLR2004 - a host that failed may have written it
                self._answered(sending)
            raise
        self._answered(sending)
        return self._begun(answer)

    async def resume(self) -> Turn:
        """Try the failed last turn again, from its record.

        A lost answer is not asked for again, since this request has no key: GaveUp says so, and the events tell.

        Raises:
            NothingToResume: The last turn did not fail, or not so that it can be tried again.
        """
        body = ev.json_bytes({"continuationToken": self.continuation_token})
        return self._begun(await self._call("POST", "/resume", body, is_repeatable=False))

    def events(self, start: int | None = None, until: Until = "boundary") -> Reading:
        """The session's events, each once and in order, over any number of broken connections.

        Waiting for the next one raises SessionNotFound when the session was deleted, GaveUp when the host could not
        be reached for as long as patience lasts (asked again, it goes on), and HistoryChanged when the host has lost
        or changed events (`cursor` is 0 again).

        Args:
            start: Index of the first one, negative from the tail; None: the session's cursor.
            until: "boundary": end where the session is at rest or waits for a person; "tail": at what is there now;
                "never": when the session is over.
        """
        start = self.cursor if start is None else start
        link = self._link if start == self.cursor else None
        return Reading(EventStream(self._wire, self.session_id, start, until, link), self)

    async def answer(
        self,
        request: str | ev.Event | Request,
        *,
        approved: bool | None = None,
        response: Any = _UNSET,
        success: bool | None = None,
        error: str | None = None,
        comment: str | None = None,
    ) -> Answer:
        """Answer an open request: exactly one of `approved`, `response` and `success`.

        Args:
            request: Its id, its event, or what a View holds of it.
            approved: Of an approval or a retry.
            response: Of a question: any JSON.
            success: Of an authorization.
            error: Why an authorization did not succeed.
            comment: A note for the log; not of an authorization.

        Raises:
            RequestNotFound: It was cancelled, has expired or never was.
            RequestAlreadyAnswered: Somebody answered otherwise first.
        """
        request_id = _request_id(request)
        given: dict[str, Any] = {"approved": approved, "success": success}
        given = {name: value for name, value in given.items() if value is not None}
        if response is not _UNSET:
            given["response"] = response
        if len(given) != 1:
            raise TypeError("answer takes exactly one of approved, response and success")
        [(name, value)] = given.items()
        if name == "success":
            path, more = authorization_path(request_id), {"sessionId": self.session_id, "error": error}
        else:
            path = session_path(self.session_id, "/input")
            more = {"requestId": request_id, "comment": comment}
        body = ev.json_bytes({**given, **{field: told for field, told in more.items() if told is not None}})
        # The same answer again is no second one (contract section 2), so it may be repeated.
        answer = await self._wire.call("POST", path, body, session_id=self.session_id, cursor=self.cursor)
        return Answer(request_id, answer.get(name, value), answer.get("alreadyAnswered") is True)

    async def cancel(self, turn_id: str | None = None) -> bool:
        """Cancel the open turn, whoever began it, or this one if it is the open one; whether there was one.

        The turn's events tell when it has ended. Messages that are queued stay so.
        """
        if turn_id is None:
            turn = (await self.refresh())["turn"]
            if turn is None:
                return False
            turn_id = turn["turnId"]  # named, so that a repeated request cannot hit the next turn
        answer = await self._call("POST", "/cancel", ev.json_bytes({"turnId": turn_id}))
        return bool(answer["status"] == "accepted")

    async def end(self, outcome: Outcome = "completed", message: str | None = None) -> None:
        """End the session for good: no turn follows. One that has ended so already is left as it is.

        Args:
            outcome: How it ended.
            message: Why, for the log.

        Raises:
            SessionBusy: A turn is open: let it end, or cancel it.
            SessionTerminal: It has ended otherwise.
        """
        given = {"outcome": outcome} if message is None else {"outcome": outcome, "message": message}
        try:
            await self._call("POST", "/end", ev.json_bytes(given))
        except SessionTerminal:  # perhaps by this call, whose first answer was lost
            if (await self.refresh())["status"] != outcome:
                raise

    async def refresh(self) -> dict[str, Any]:
        """The snapshot of GET /session/{id} as of now; its token is the session's from here on."""
        view = await self._call("GET", "")
        self._take_token(view["continuationToken"], view["cursor"] - 1)
        return view

    # -- what turns and streams tell -----------------------------------------------------------------------------------

    def saw(self, event: ev.Event) -> None:
        """Take the token from an event, whether or not it is handed out."""
        token = event.data.get("continuationToken")
        if token is not None and not ev.is_own_type(event.type):
            self._take_token(token, event.index)

    def handed_out(self, event: ev.Event, *, may_skip: bool) -> None:
        """Move the cursor behind an event; it never goes back."""
        if event.index == self.cursor or (may_skip and event.index > self.cursor):
            self.cursor, self._link = event.index + 1, event.sum

    def forget(self) -> None:
        """The log is another one: what was read says nothing any more."""
        self.cursor, self._link, self._token_index = 0, None, -1

    # -- inside --------------------------------------------------------------------------------------------------------

    def _take_token(self, token: str, index: int) -> None:
        if index >= self._token_index:
            self.continuation_token, self._token_index = token, index

    def _sending(self, message: Message, on_busy: OnBusy, key: str | None) -> Unanswered:
        """What is sent under the key: of a message that was sent before, the very same bytes.

        The token is part of them, and the one in force may be another by now: the host knows the key by the old.
        """
        fields = {"continuationToken": self.continuation_token, "message": message, "onBusy": on_busy}
        body, before = ev.json_bytes(fields).decode(), self._unanswered
        if key is not None and before is not None and before["key"] == key:
            sent, now = orjson.loads(before["body"]), orjson.loads(body)
            if (sent["message"], sent["onBusy"]) == (now["message"], now["onBusy"]):
                return before
        return {"key": key or new_key(), "body": body}

    def _answered(self, sending: Unanswered) -> None:
        if self._unanswered is sending:
            self._unanswered = None

    def _begun(self, answer: Mapping[str, Any]) -> Turn:
        self._take_token(answer["continuationToken"], answer["startIndex"])
        is_queued = answer.get("queued") is True
        self._turn = Turn(self, self._wire, answer["turnId"], answer["startIndex"], is_queued=is_queued)
        return self._turn

    async def _call(
        self,
        method: str,
        rest: str,
        body: bytes | None = None,
        *,
        key: str | None = None,
        is_repeatable: bool = True,
    ) -> dict[str, Any]:
        return await self._wire.call(
            method,
            session_path(self.session_id, rest),
            body,
            key=key,
            is_repeatable=is_repeatable,
            session_id=self.session_id,
            cursor=self.cursor,
        )


def new_key() -> str:
    """An Idempotency-Key that nobody else makes."""
    return uuid.uuid4().hex


def _request_id(request: str | ev.Event | Request) -> str:
    if isinstance(request, ev.Event):
        return str(request.data["requestId"])
    return request if isinstance(request, str) else request.request_id
