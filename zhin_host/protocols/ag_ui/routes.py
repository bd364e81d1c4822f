"""Routes of AG-UI: a run begins, is answered, is read again or is cancelled; each makes one stream of a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from starlette.types import ASGIApp

from zhin_host.errors import SessionNotFound
from zhin_host.events import digest, json_bytes
from zhin_host.http.door import Call, Door, Endpoint, Handler
from zhin_host.http.reply import SESSION_ID, ok
from zhin_host.http.schema import required_text_of
from zhin_host.http.streaming import StreamReply
from zhin_host.ports import Principal, Right
from zhin_host.protocols.ag_ui.answers import Resumption
from zhin_host.protocols.ag_ui.framing import RunFraming
from zhin_host.protocols.ag_ui.request import Request, asked_of, request_of, said_of
from zhin_host.protocols.ag_ui.transcript import Row, Transcript
from zhin_host.protocols.ag_ui.translation import Translation
from zhin_host.protocols.threads import Threads
from zhin_host.subscriptions import Subscription

BASE: Final = "/ag-ui"
SETTLE_S: Final = 0.1
"""How long a run that waits for a person stays open for another request: each waits for its own sync."""


class AgUi:
    """AG-UI 1.0 over HTTP and server-sent events: `POST /ag-ui/{agent}` takes a RunAgentInput."""

    def routes(self, door: Door) -> Mapping[str, Mapping[str, tuple[Endpoint, Handler]]]:
        """What a thread's client asks for."""
        threads = _Runs(door)
        return {
            f"{BASE}/{{agent}}": {"POST": (Endpoint("ag_ui.run"), threads.run)},
            f"{BASE}/{{agent}}/connect": {"POST": (Endpoint("ag_ui.connect", "read"), threads.connect)},
            f"{BASE}/{{agent}}/cancel": {"POST": (Endpoint("ag_ui.cancel", "write"), threads.cancel)},
        }


class _Runs:
    def __init__(self, door: Door) -> None:
        self._door = door
        self._store = door.store
        self._threads = Threads(door.store, "ag-ui")

    async def run(self, call: Call) -> ASGIApp:
        """POST /ag-ui/{agent}: answers in `resume` bring the open turn on; else the last message begins one."""
        request = request_of(await self._door.conversation(call))
        asked = None if request.resume else asked_of(request.held)
        who = await self._door.who(call)
        who.check("read")
        if request.resume:
            who.check("approve")
            reply = await self._resumed(call, who, request)
            if reply is not None:
                return reply
            asked = asked_of(request.held)
        if asked is None:
            return await self._whole(who, request, await self._session(call, who, "read", request.thread_id))
        who.check("write")
        return await self._sent(call, who, request, asked)

    async def connect(self, call: Call) -> ASGIApp:
        """POST /ag-ui/{agent}/connect: the whole conversation as snapshots, then what the open run still brings."""
        request = request_of(await self._door.conversation(call))
        who = await self._door.who(call)
        session_id = await self._session(call, who, "read", request.thread_id)
        return await self._whole(who, request, session_id)

    async def cancel(self, call: Call) -> ASGIApp:
        """POST /ag-ui/{agent}/cancel: end the open turn of a thread; its stream tells of it."""
        thread_id = required_text_of(await self._door.body(call), "threadId")
        who = await self._door.who(call)
        session_id = await self._session(call, who, "write", thread_id)
        status = await self._store.cancel(who, session_id, None)
        return ok({"ok": True, "threadId": thread_id, "status": status}, session_id)

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _sent(self, call: Call, who: Principal, request: Request, asked: Row) -> ASGIApp:
        """A message of the thread; one that was received before begins no second turn, whatever run it comes with."""
        agent, said = call.scope["path_params"]["agent"], said_of(asked)
        session_id = await self._threads.find(who, "write", agent, request.thread_id)
        cursor = 0 if session_id is None else (await self._store.view(who, session_id))["cursor"]
        what = digest(json_bytes(said))
        accepted = await self._threads.send(who, agent, request.thread_id, asked["id"], said, what)
        _note(call, accepted.session_id)
        if accepted.start_index < cursor:
            return await self._whole(who, request, accepted.session_id)
        return await self._turn(who, request, accepted.session_id, accepted.start_index)

    async def _resumed(self, call: Call, who: Principal, request: Request) -> ASGIApp | None:
        """Give the answers; None when all of them give up what is open no more: the message is what is left."""
        session_id = await self._session(call, who, "approve", request.thread_id)
        view = await self._store.view(who, session_id)
        resumption = Resumption(self._store, who, session_id, view["pendingRequests"])
        answered = await resumption.give(request.resume)
        if answered:
            start_index, restate_at = view["turn"]["startIndex"], view["cursor"] - 1
            return await self._turn(
                who, request, session_id, start_index, restate_at=restate_at, answered=answered
            )
        if all(entry.status == "cancelled" for entry in request.resume):
            return None
        return await self._whole(who, request, session_id)

    async def _session(self, call: Call, who: Principal, right: Right, thread_id: str) -> str:
        session_id = await self._threads.find(who, right, call.scope["path_params"]["agent"], thread_id)
        if session_id is None:
            raise SessionNotFound(thread_id)
        _note(call, session_id)
        return session_id

    async def _whole(self, who: Principal, request: Request, session_id: str) -> StreamReply:
        """From the log's first line: all that is there, restated, and what the open turn still brings."""
        view = await self._store.view(who, session_id)
        transcript = Transcript(request.held, keeps=False)
        subscription = await self._store.subscribe(who, session_id, 0, "never")
        translation = Translation(request.thread_id, None, transcript)
        framing = RunFraming(translation, settle=_settling(subscription), restate_at=view["cursor"] - 1)
        return StreamReply(subscription, framing)

    async def _turn(
        self,
        who: Principal,
        request: Request,
        session_id: str,
        start_index: int,
        *,
        restate_at: int = -1,
        answered: Collection[str] = (),
    ) -> StreamReply:
        """From the turn's first line: told, or restated up to where the client was."""
        transcript = Transcript(request.held, keeps=True)
        translation = Translation(request.thread_id, request.run_id, transcript)
        subscription = await self._store.subscribe(who, session_id, start_index, "never")
        settle = _settling(subscription)
        framing = RunFraming(translation, settle=settle, restate_at=restate_at, answered=answered)
        return StreamReply(subscription, framing)


def _settling(subscription: Subscription) -> Callable[[], object]:
    loop = asyncio.get_running_loop()
    return lambda: loop.call_later(SETTLE_S, subscription.rouse)


def _note(call: Call, session_id: str) -> None:
    call.session_id = call.scope[SESSION_ID] = session_id
