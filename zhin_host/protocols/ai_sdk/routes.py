"""Routes: the addresses that a chat of `ai` asks: each parses, makes its call of the store, and streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from starlette.types import ASGIApp

from zhin_host.errors import BadRequest, NothingToResume, SessionNotFound
from zhin_host.events import digest
from zhin_host.http.door import Call, Door, Endpoint, Handler
from zhin_host.http.reply import SESSION_ID, Reply, ok
from zhin_host.http.schema import text_of
from zhin_host.http.streaming import StreamReply, query_of
from zhin_host.ports import Principal, Right
from zhin_host.protocols.ai_sdk.asked import Again, Answers, Said, asked_of
from zhin_host.protocols.ai_sdk.framing import HistoryFraming, TurnFraming
from zhin_host.protocols.starts import Starts, TurnStart
from zhin_host.protocols.threads import Threads

_BASE: Final = "/ai-sdk/{agent}"
_CHAT: Final = _BASE + "/{chat_id:path}"
_REPLAY: Final = "replay"
_NOTHING: Final = Reply(204, b"")


class AiSdk:
    """The UI message stream of the AI SDK; `create_agent_session_host(agent, dialects=[AiSdk()])` serves it."""

    def routes(self, door: Door) -> Mapping[str, Mapping[str, tuple[Endpoint, Handler]]]:
        """What `DefaultChatTransport` with `api: "/ai-sdk/<agent>"` asks, and two addresses more."""
        chats = _Chats(door)
        return {
            _BASE: {"POST": (Endpoint("ai_sdk.send"), chats.send)},
            _CHAT + "/stream": {"GET": (Endpoint("ai_sdk.reconnect", "read"), chats.reconnect)},
            _CHAT + "/messages": {"GET": (Endpoint("ai_sdk.messages", "read"), chats.messages)},
            _CHAT + "/stop": {"POST": (Endpoint("ai_sdk.stop", "write"), chats.stop)},
        }


class _Chats:
    """The handlers. A chat is a session that is found by the chat's id, and its caller's own."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._store = door.store
        self._threads = Threads(door.store, "ai-sdk")

    async def send(self, call: Call) -> ASGIApp:
        """POST /ai-sdk/{agent}: a message, answers to open requests, or the failed last turn once more."""
        chat_id, asked = asked_of(await self._door.body(call))
        who = await self._door.who(call)
        who.check("read")
        match asked:
            case Said():
                return await self._say(call, who, chat_id, asked)
            case Again():
                return await self._try_again(call, who, chat_id, asked)
            case Answers():
                return await self._answer(call, who, chat_id, asked)

    async def reconnect(self, call: Call) -> ASGIApp:
        """GET …/{chat_id}/stream: the open turn from its start; 204 when none is open.

        With `?ended=replay` the last turn when it has ended, too: for a page whose connection broke and that may come
        back too late.
        """
        ended = query_of(call.scope["query_string"]).get("ended")
        if ended not in {None, _REPLAY}:
            raise BadRequest(f"ended is {_REPLAY}, or absent, not {ended!r:.40}.")
        who = await self._door.who(call)
        session_id = await self._find(call, who, "read")
        if session_id is None:
            return _NOTHING
        view = await self._store.view(who, session_id)
        if view["turn"] is not None:
            turn_id = view["turn"]["turnId"]
            root = await self._root(who, session_id, view, turn_id)
        elif ended == _REPLAY:
            starts = await Starts.read(self._store, who, session_id)
            turn_id = "" if starts.last is None else starts.last.turn_id
            root = starts.root(turn_id)
        else:
            return _NOTHING
        if root is None:  # the log is broken before it, as the audit says
            return _NOTHING
        return await self._stream(who, session_id, turn_id, root.index)

    async def messages(self, call: Call) -> ASGIApp:
        """GET …/{chat_id}/messages: the chat as UI messages; [] when there is none yet."""
        who = await self._door.who(call)
        session_id = await self._find(call, who, "read")
        if session_id is None:
            return Reply(200, b"[]")
        subscription = await self._store.subscribe(who, session_id, 0, "tail")
        return StreamReply(subscription, HistoryFraming(session_id))

    async def stop(self, call: Call) -> ASGIApp:
        """POST …/{chat_id}/stop: cancel the open turn, or `turnId` if that is the open one."""
        turn_id = text_of(await self._door.body(call), "turnId")
        who = await self._door.who(call)
        session_id = await self._found(call, who, "write")
        status = await self._store.cancel(who, session_id, turn_id)
        return ok({"ok": True, "sessionId": session_id, "status": status}, session_id)

    # -- what a POST asks for --------------------------------------------------------------------------------------

    async def _say(self, call: Call, who: Principal, chat_id: str, said: Said) -> ASGIApp:
        who.check("write")
        named = digest(orjson.dumps(said.message))
        agent = call.scope["path_params"]["agent"]
        accepted = await self._threads.send(
            who, agent, chat_id, said.message_id, said.message, named, said.on_busy
        )
        return await self._stream(who, accepted.session_id, accepted.turn_id, accepted.start_index)

    async def _try_again(self, call: Call, who: Principal, chat_id: str, again: Again) -> ASGIApp:
        who.check("write")
        session_id = await self._found(call, who, "write", chat_id)
        view = await self._store.view(who, session_id)
        starts = await Starts.read(self._store, who, session_id)
        root = None if starts.last is None else starts.root(starts.last.turn_id)
        if root is None or not self._threads.is_of_run(view, root.key, again.message_id):
            raise NothingToResume("Only the last message can be tried again; send it anew.")
        accepted = await self._store.resume(who, session_id)
        return await self._stream(who, session_id, accepted.turn_id, root.index)

    async def _answer(self, call: Call, who: Principal, chat_id: str, given: Answers) -> ASGIApp:
        """The answers, one after another; each that was taken stands when a later one is refused."""
        who.check("approve")
        session_id = await self._found(call, who, "approve", chat_id)
        view = await self._store.view(who, session_id)
        root = await self._root(who, session_id, view, given.turn_id)
        if root is None:
            raise BadRequest("The message's id is not the one that the host gave it; keep it as it came.")
        for answer in given.answers:
            # A question that is not open any more was answered before: its part goes on looking like an answer.
            if "approved" in answer.answer or answer.request_id in view["pendingRequestIds"]:
                await self._store.answer(who, session_id, answer.request_id, answer.answer, answer.comment)
        cursor = view["cursor"]
        if given.cursor is not None and root.index < given.cursor < cursor:
            cursor = given.cursor
        return await self._stream(who, session_id, given.turn_id, root.index, cursor)

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _stream(
        self, who: Principal, session_id: str, turn_id: str, start_index: int, cursor: int = 0
    ) -> ASGIApp:
        """The turn, read from `start_index` and told from `cursor` on."""
        subscription = await self._store.subscribe(who, session_id, start_index, "never")
        framing = TurnFraming(session_id, turn_id, cursor, lambda: subscription.lag == 0)
        return StreamReply(subscription, framing)

    async def _root(
        self, who: Principal, session_id: str, view: Mapping[str, Any], turn_id: str
    ) -> TurnStart | None:
        """Where the record of a turn begins. The whole log is searched only for one that is over or resumes one."""
        open_turn = view["turn"]
        if open_turn is not None and open_turn["turnId"] == turn_id:
            index = open_turn["startIndex"]
            starts = await Starts.read(self._store, who, session_id, index, is_one_enough=True)
            if (root := starts.root(turn_id)) is not None:
                return root
        return (await Starts.read(self._store, who, session_id)).root(turn_id)

    async def _find(self, call: Call, who: Principal, right: Right, chat_id: str | None = None) -> str | None:
        in_path = call.scope["path_params"]
        chat_id = in_path["chat_id"] if chat_id is None else chat_id
        session_id = await self._threads.find(who, right, in_path["agent"], chat_id)
        call.session_id = call.scope[SESSION_ID] = session_id
        return session_id

    async def _found(self, call: Call, who: Principal, right: Right, chat_id: str | None = None) -> str:
        """The chat's session.

        Raises:
            SessionNotFound: The caller has no such chat.
        """
        session_id = await self._find(call, who, right, chat_id)
        if session_id is None:
            raise SessionNotFound(call.scope["path_params"].get("chat_id", chat_id))
        return session_id
