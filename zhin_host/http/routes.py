"""Routes: a handler for each route; it parses, makes one call of the store, and renders."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import orjson
from starlette.types import ASGIApp

from zhin_host.answers import Answered
from zhin_host.clock import is_session_id
from zhin_host.errors import AuthorizationRequestNotFound, RequestError, SessionNotFound
from zhin_host.gauges import Gauges
from zhin_host.http import schema
from zhin_host.http.door import Call, Door
from zhin_host.http.framing import SSE
from zhin_host.http.parameters import BEFORE, LIMIT, STATUS
from zhin_host.http.reply import SESSION_ID, Reply, error_reply, ok
from zhin_host.http.streaming import StreamReply, framing_of, query_of, start_index_of, until_of
from zhin_host.intake import Accepted
from zhin_host.meters import Meters


class Routes:
    """The handlers. Each raises RequestError for a refusal; the guard makes the answer of it."""

    def __init__(
        self,
        door: Door,
        *,
        info: Callable[[], dict[str, Any]],
        meters: Meters,
        gauges: Callable[[], Gauges],
    ) -> None:
        self._door = door
        self._store = door.store
        self._info = info
        self._document: tuple[str, bytes] | None = None  # and the prefix that it is for
        self._meters = meters
        self._gauges = gauges
        self._health = Reply(200, orjson.dumps({"ok": True, "service": "zhin-agent-session"}))

    async def health(self, call: Call) -> Reply:  # noqa: ARG002 - every handler takes the call
        """GET /health."""
        return self._health

    async def ready(self, call: Call) -> Reply:
        """GET /ready: any reason not to be ready is 503."""
        try:
            await self._store.check_ready()
        except RequestError as error:
            return error_reply(error, call.scope, status=503)
        return ok({"ok": True})

    async def info(self, call: Call) -> Reply:
        """GET /info."""
        await self._door.who(call)
        return ok({"ok": True, **self._info()})

    async def openapi(self, call: Call) -> Reply:
        """GET /openapi.json: made when it is first asked for, and away from the loop."""
        prefix = call.scope.get("root_path", "")
        if self._document is None or self._document[0] != prefix:
            self._document = (prefix, await asyncio.to_thread(self._make_document, prefix))
        return Reply(200, self._document[1])

    def _make_document(self, prefix: str) -> bytes:
        from zhin_host.http.openapi import document  # noqa: PLC0415 - no start pays for its tables

        is_authenticated = self._door.is_guarded
        return orjson.dumps(document(self._door.config, is_authenticated=is_authenticated, prefix=prefix))

    async def metrics(self, call: Call) -> Reply:
        """GET /metrics."""
        await self._door.who(call)
        accept = call.headers.get(b"accept", b"").decode("latin-1")
        text, content_type = await asyncio.to_thread(
            self._expose, copy.deepcopy(self._meters), self._gauges(), accept
        )
        return Reply(200, text, content_type=content_type)

    def _expose(self, meters: Meters, now: Gauges, accept: str) -> tuple[bytes, bytes]:
        from zhin_host.http.metrics import exposition  # noqa: PLC0415 - no start pays for its library

        return exposition(meters, now, accept)

    async def start(self, call: Call) -> Reply:
        """POST /session."""
        body, key = await self._door.keyed(call)
        start = schema.start_of(body, self._door.config)
        who = await self._door.who(call)
        return _accepted(await self._store.start(who, start.message, start.metadata, start.agent, key))

    async def proceed(self, call: Call) -> Reply:
        """POST /session/{id}."""
        body, key = await self._door.keyed(call)
        follow_up = schema.follow_up_of(body)
        who = await self._door.who(call)
        session_id = call.known_session()
        return _accepted(
            await self._store.proceed(
                who, session_id, follow_up.token, follow_up.message, follow_up.on_busy, key
            )
        )

    async def stream(self, call: Call) -> ASGIApp:
        """GET /session/{id}/stream."""
        query = query_of(call.scope["query_string"])
        framing = framing_of(call.headers)
        start_index = start_index_of(call.headers, query)
        until = until_of(query, framing)
        who = await self._door.who(call)
        session_id = call.known_session()
        subscription = await self._store.subscribe(who, session_id, start_index, until)
        if until == "never" and framing is SSE and subscription.has_nothing_left:
            await subscription.aclose()
            return Reply(204, b"", [(b"x-zhin-session-id", session_id.encode("ascii"))])
        return StreamReply(subscription, framing)

    async def answer(self, call: Call) -> Reply:
        """POST /session/{id}/input."""
        given = schema.answer_of(await self._door.body(call))
        who = await self._door.who(call)
        answered = await self._store.answer(
            who, call.known_session(), given.request_id, given.answer, given.comment
        )
        return _answered(answered, "approved" if "approved" in given.answer else "response")

    async def answer_relayed(self, call: Call) -> Reply:
        """POST /resume."""
        given = schema.relayed_of(await self._door.body(call))
        who = await self._door.who(call)
        if not is_session_id(given.session_id):
            raise SessionNotFound(given.session_id)
        call.session_id = call.scope[SESSION_ID] = given.session_id
        answered = await self._store.answer_relayed(who, given.session_id, given.request_id, given.response)
        return _answered(answered, "approved" if isinstance(answered.value, bool) else "response")

    async def authorize(self, call: Call) -> Reply:
        """POST /authorization/{requestId}/complete."""
        given = schema.authorization_of(await self._door.body(call))
        who = await self._door.who(call)
        request_id = call.scope["path_params"]["request_id"]
        if given.session_id is not None and not is_session_id(given.session_id):
            raise SessionNotFound(given.session_id)
        if not schema.is_request_id(request_id):
            raise AuthorizationRequestNotFound(request_id)
        answered = await self._store.authorize(who, request_id, given.success, given.error, given.session_id)
        return _answered(answered, "success")

    async def cancel(self, call: Call) -> Reply:
        """POST /session/{id}/cancel."""
        turn_id = schema.text_of(await self._door.body(call), "turnId")
        who = await self._door.who(call)
        session_id = call.known_session()
        status = await self._store.cancel(who, session_id, turn_id)
        return ok({"ok": True, "sessionId": session_id, "status": status}, session_id)

    async def resume(self, call: Call) -> Reply:
        """POST /session/{id}/resume."""
        token = schema.text_of(await self._door.body(call), "continuationToken")
        who = await self._door.who(call)
        return _accepted(await self._store.resume(who, call.known_session(), token))

    async def end(self, call: Call) -> Reply:
        """POST /session/{id}/end."""
        given = schema.end_of(await self._door.body(call))
        who = await self._door.who(call)
        session_id = call.known_session()
        await self._store.end(who, session_id, given.outcome, given.message)
        return ok({"ok": True, "sessionId": session_id, "status": given.outcome}, session_id)

    async def delete(self, call: Call) -> Reply:
        """DELETE /session/{id}."""
        who = await self._door.who(call)
        session_id = call.known_session()
        await self._store.delete(who, session_id)
        return ok({"ok": True, "sessionId": session_id}, session_id)

    async def view(self, call: Call) -> Reply:
        """GET /session/{id}."""
        who = await self._door.who(call)
        session_id = call.known_session()
        return ok({"ok": True, **await self._store.view(who, session_id)}, session_id)

    async def audit(self, call: Call) -> Reply:
        """GET /session/{id}/audit: the verdict; its own ok, when it has one, is what counts."""
        who = await self._door.who(call)
        session_id = call.known_session()
        return ok({"ok": True, **await self._store.audit(who, session_id)}, session_id)

    async def page(self, call: Call) -> Reply:
        """GET /sessions."""
        query = query_of(call.scope["query_string"])
        status, limit, before = STATUS.of(query), LIMIT.of(query), BEFORE.of(query)
        page = await self._store.page(await self._door.who(call), status, limit, before)
        fields: dict[str, Any] = {"ok": True, "sessions": page.sessions}
        if page.next_before is not None:
            fields["nextBefore"] = page.next_before
        return ok(fields)


def _accepted(accepted: Accepted) -> Reply:
    fields: dict[str, Any] = {
        "ok": True,
        "sessionId": accepted.session_id,
        "continuationToken": accepted.token,
        "turnId": accepted.turn_id,
        "startIndex": accepted.start_index,
    }
    if accepted.is_queued:
        fields["queued"] = True
    return ok(fields, accepted.session_id)


def _answered(answered: Answered, name: str) -> Reply:
    fields = {
        "ok": True,
        "sessionId": answered.session_id,
        "requestId": answered.request_id,
        name: answered.value,
        "alreadyAnswered": answered.already,
    }
    return ok(fields, answered.session_id)
