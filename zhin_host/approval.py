"""HttpApprovalWaiter, which parks a turn until a person has answered, and the gate before a tool (ADR 0040, D3).

The request is an event first and the answer is an event first; what waits here is only a bell. So an answer cannot
come too early, and nothing is lost with the process but the waiting itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from zhin_host import events as ev
from zhin_host.actions import Actions
from zhin_host.attempt import Attempt
from zhin_host.clock import new_request_id
from zhin_host.errors import RequestExpired, SessionBusy, ToolDenied
from zhin_host.tools import Scope, Tool

_log = logging.getLogger("zhin_host.approval")

_PROMPT_MARGIN_BYTES = 1_024


class HttpApprovalWaiter:
    """The bells of one session's open requests: exactly one outcome per request."""

    def __init__(self) -> None:
        self._bells: dict[str, tuple[Attempt, asyncio.Future[Mapping[str, Any]]]] = {}

    async def wait(self, attempt: Attempt, request: ev.Draft, *after: ev.Draft) -> Mapping[str, Any]:
        """Make the request and wait for its answer, as long as it takes unless the request expires.

        Args:
            attempt: Who asks.
            request: input.requested or authorization.required.
            after: What stands in the same batch behind it.

        Returns:
            The data of the event that answered it.

        Raises:
            asyncio.CancelledError: The agent gave the waiting up, and the request is closed; or the attempt is over,
                and whoever ended it closes the request.
        """
        request_id = request.data["requestId"]
        bell: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._bells[request_id] = (attempt, bell)
        try:
            await attempt.commit(request, *after)
            return await bell
        except asyncio.CancelledError:
            if not attempt.is_over and (bell.cancelled() or not bell.done()):
                attempt.hand_over(given_up(request.data, request.type))
            raise
        finally:
            del self._bells[request_id]

    def ring(self, request_id: str, answer: Mapping[str, Any]) -> None:
        """Tell whoever waits that the answer is in the log; nobody may wait, after a restart for one."""
        _, bell = self._bells.get(request_id, (None, None))
        if bell is not None and not bell.done():
            bell.set_result(answer)

    def release(self, attempt: Attempt) -> None:
        """Cancel whatever still waits in an attempt that is over; nobody rings for it any more."""
        for waiting, bell in self._bells.values():
            if waiting is attempt:
                bell.cancel()


def given_up(request: Mapping[str, Any], request_type: str) -> ev.Draft:
    """The event that closes a request which nobody waits for any more."""
    if request_type == ev.AUTHORIZATION_REQUIRED:
        data = {"requestId": request["requestId"], "connection": request["connection"]}
        return ev.Draft(ev.AUTHORIZATION_COMPLETED, {**data, "success": False, "error": "cancelled"})
    data = {"requestId": request["requestId"], "kind": request["kind"], "outcome": "cancelled"}
    return ev.Draft(ev.INPUT_COMPLETED, data)


class Gate:
    """Asks people on behalf of one attempt: questions, approvals, and the approval before a tool runs."""

    def __init__(self, attempt: Attempt, actions: Actions, waiter: HttpApprovalWaiter) -> None:
        self._attempt = attempt
        self._actions = actions
        self._waiter = waiter

    async def pass_tool(self, tool: Tool, call_id: str, shown: Mapping[str, Any]) -> bytes:
        """Return when the call may run.

        Args:
            tool: Whose policy says whether to ask.
            call_id: The call, already asked for in the log.
            shown: The bound arguments.

        Returns:
            The arguments with which it may run, as JSON bytes: those that were shown.

        Raises:
            ToolDenied, RequestExpired: A person refused, or nobody answered in time; the result is recorded.
        """
        try:
            may_have_begun, raw = await self._approved(tool, call_id, shown)
            await self._retried(tool, call_id, shown, raw, may_have_begun=may_have_begun)
            if not tool.is_repeatable:  # after a power cut too, the log must say that it may have begun
                await self._attempt.journal.sync_when_possible()
            return raw
        except asyncio.CancelledError:
            if not self._attempt.is_over:
                await self._actions.record(call_id, tool.name, "cancelled", 0)
            raise

    async def ask(
        self, kind: str, call_id: str, prompt: str, *after: ev.Draft, **more: Any
    ) -> Mapping[str, Any]:
        """Ask a person; the data of the input.completed, from the record when it is there.

        Raises:
            RequestExpired: Nobody answered in time.
        """
        given = self._attempt.replay.answer(call_id, kind)
        answer = await self._wait(kind, call_id, prompt, None, more, *after) if given is None else given.data
        if answer["outcome"] == "expired":
            raise RequestExpired(f"nobody answered in time: {prompt:.200}", call_id)
        return answer

    async def authorize(self, call_id: str, connection: str, more: Mapping[str, Any]) -> Mapping[str, Any]:
        """Wait for an authorization; the data of the authorization.completed, from the record when it is there."""
        given = self._attempt.replay.answer(call_id, "authorization")
        if given is not None:
            return given.data
        data = {"requestId": self._new_request(), "callId": call_id, "connection": connection, **more}
        self._attempt.check_size(ev.AUTHORIZATION_REQUIRED, data)
        return await self._waiter.wait(self._attempt, ev.Draft(ev.AUTHORIZATION_REQUIRED, data))

    async def _approved(self, tool: Tool, call_id: str, shown: Mapping[str, Any]) -> tuple[bool, bytes]:
        """Have the policy satisfied; whether the call may have begun in an attempt that ended with its host.

        And the arguments it is satisfied of, as JSON bytes.
        """
        replay, raw = self._attempt.replay, ev.json_bytes(shown)
        given = replay.answer(call_id, "approval")
        if given is not None:
            if given.data["outcome"] != "approved":
                await self._refuse(tool, call_id, given.data["outcome"])
            return replay.record.may_have_begun(call_id), raw
        while True:
            scope = await tool.scope_to_ask(raw, self._attempt.journal.state.grants)
            if scope is None:
                return replay.record.may_have_begun(call_id), raw
            prompt = (
                f"Allow {tool.name}?"
                if scope == "call"
                else f"Allow {tool.name} for the rest of the session?"
            )
            answer = await self._wait(
                "approval", call_id, prompt, tool.expires_s, _shown(tool, shown, raw, scope)
            )
            if answer["outcome"] != "approved":
                await self._refuse(tool, call_id, answer["outcome"])
            if ev.json_bytes(shown) == raw:  # digested again, just before it runs
                return self._began_before(tool, call_id), raw
            _log.warning("the arguments of call %s changed while it waited; a person is asked again", call_id)
            raw = ev.json_bytes(shown)

    def _began_before(self, tool: Tool, call_id: str) -> bool:
        """Whether the call may have begun before it needed this approval: the policy or the agent was another then."""
        record = self._attempt.replay.record
        if call_id in record.begun or any(row.kind == "retry" for row in record.answers.get(call_id, ())):
            return True
        return callable(tool.approval) and call_id not in record.gated and record.may_have_begun(call_id)

    async def _retried(
        self, tool: Tool, call_id: str, shown: Mapping[str, Any], raw: bytes, *, may_have_begun: bool
    ) -> None:
        """Ask whether a call that may have begun may run a second time; each yes is good for one attempt.

        An answer that is in the record is used up in any case, and a no in it is a no.
        """
        replay = self._attempt.replay
        given = replay.answer(call_id, "retry")
        answer = None if given is None else given.data
        if answer is None or answer["outcome"] == "approved":
            is_begun = may_have_begun if answer is None else replay.record.may_have_begun(call_id)
            if not is_begun or tool.is_repeatable:
                return
            prompt = f"The host stopped while {tool.name} may have been running. Run it again?"
            answer = await self._wait(
                "retry", call_id, prompt, tool.expires_s, _shown(tool, shown, raw, "call")
            )
        if answer["outcome"] != "approved":
            await self._refuse(tool, call_id, answer["outcome"])

    async def _refuse(self, tool: Tool, call_id: str, outcome: str) -> None:
        if outcome == "expired":
            error: ToolDenied | RequestExpired = RequestExpired(
                f"nobody allowed {tool.name} in time", call_id
            )
            code = "REQUEST_EXPIRED"
        else:
            error, code = ToolDenied(f"a person refused {tool.name}", call_id), "TOOL_DENIED"
        await self._actions.record(
            call_id, tool.name, "denied", 0, error={"code": code, "message": str(error)}
        )
        raise error

    async def _wait(
        self,
        kind: str,
        call_id: str,
        prompt: str,
        expires_s: float | None,
        more: Mapping[str, Any],
        *after: ev.Draft,
    ) -> Mapping[str, Any]:
        services = self._attempt.services
        data = {
            "requestId": self._new_request(),
            "kind": kind,
            "callId": call_id,
            "prompt": ev.text_form(prompt),
            **more,
            **(self._attempt.agent if kind == "approval" else {}),  # an approval is of what this agent does
        }
        expires_s = services.config.request_expires_s if expires_s is None else expires_s
        if expires_s > 0:
            data["expiresAt"] = services.clock.now_ms() + round(expires_s * 1000)
        self._attempt.check_size(ev.INPUT_REQUESTED, data, margin_bytes=_PROMPT_MARGIN_BYTES)
        return await self._waiter.wait(self._attempt, ev.Draft(ev.INPUT_REQUESTED, data), *after)

    def _new_request(self) -> str:
        attempt = self._attempt
        attempt.check()
        limit = attempt.services.config.open_requests_max
        if len(attempt.journal.state.pending) >= limit:
            raise SessionBusy(
                f"{limit} requests of this session are open already; wait for answers before asking more."
            )
        return new_request_id(attempt.services.clock, attempt.session_id)


def _shown(tool: Tool, shown: Mapping[str, Any], raw: bytes, scope: Scope) -> dict[str, Any]:
    """What a request about a tool call shows of it."""
    return {"toolName": tool.name, "args": shown, "argsDigest": ev.digest(raw), "scope": scope}
