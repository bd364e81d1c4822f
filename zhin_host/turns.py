"""HttpTurnRunner: one turn of one session, from its start to its end: run, park, cancel, stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from zhin_host import events as ev
from zhin_host.actions import error_form
from zhin_host.agent import Agent
from zhin_host.approval import given_up
from zhin_host.attempt import Attempt, Services
from zhin_host.errors import ActionFailed, AgentError, RequestExpired, ToolDenied
from zhin_host.session import LiveSession
from zhin_host.state import OpenTurn, SessionState
from zhin_host.turn import Turn

_log = logging.getLogger("zhin_host.turns")

RECOVERABLE: Final[dict[str, bool]] = {  # turn.failed codes (contract section 1, order)
    "AGENT_FAILED": True,
    "ACTION_FAILED": True,
    "TOOL_DENIED": True,
    "REQUEST_EXPIRED": True,
    "RECOVERY_EXHAUSTED": True,
    "TURN_DIVERGED": False,
    "HOST_RESTARTED": False,
}


class HttpTurnRunner:
    """Runs one turn in a task of its own and ends it in the log.

    Args:
        live: The session; its log has turn.started and message.received.
        agent: What works on the message.
        turn_id: The open turn.
        message: What was received.
        services: Clock, settings and worker threads.
        on_end: Called once the turn's end is in the log, or the runner has given the turn up.
    """

    def __init__(  # noqa: PLR0917 - a turn is its session, its agent and its message
        self,
        live: LiveSession,
        agent: Agent,
        turn_id: str,
        message: str | list[dict[str, str]],
        services: Services,
        on_end: Callable[[HttpTurnRunner], None],
    ) -> None:
        self.live = live
        self.turn_id = turn_id
        self._agent = agent
        self._attempt = Attempt(live.session_id, turn_id, live.journal, services)
        self._turn = Turn(self._attempt, live.waiter, live.log, message)
        self._services = services
        self._on_end = on_end
        self._task: asyncio.Task[None] | None = None
        self._left: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._is_ended = False

    def start(self) -> None:
        """Begin to run the turn; returns at once."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"turn {self.turn_id}")

    def cancel(self) -> None:
        """Stop the work; turn.cancelling is in the log. What has not stopped in the grace time is left behind."""
        self._attempt.is_over = True
        if self._task is not None:
            self._task.cancel("the turn was cancelled")
        grace_s = self._services.config.cancel_grace_s
        self._patience = asyncio.get_running_loop().call_later(grace_s, self._leave_behind)

    async def stop(self, grace_s: float) -> None:
        """End the attempt and leave the turn open in the log: after its running actions, or when the time is up."""
        self._is_stopped = True
        self._attempt.is_over = True
        task = self._task
        if task is None or task.done():
            return
        if self._attempt.running:
            await asyncio.wait({task}, timeout=grace_s)
        if not task.done():
            task.cancel("the host stops")
            await asyncio.wait({task}, timeout=max(0.1, grace_s / 10))
        if not task.done():
            _log.warning("turn %s does not stop; it is left behind", self.turn_id)

    async def settled(self) -> None:
        """Wait until the turn has ended in the log or was given up."""
        if self._task is not None:
            await asyncio.wait({self._task})
        if self._left is not None:
            await asyncio.wait({self._left})

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        error: BaseException | None = None
        try:
            await self._agent.run(self._turn)
        except BaseException as raised:  # noqa: BLE001 - the agent's boundary: SystemExit of an agent is a failure too
            error = raised
            if not isinstance(raised, asyncio.CancelledError | AgentError):
                _log.exception("the agent failed in turn %s of %s", self.turn_id, self.live.session_id)
        if self._is_stopped or self._is_ended:
            return
        self._attempt.is_over = True
        await self._end(error)

    async def _end(self, error: BaseException | None) -> None:
        """Write the turn's end, whatever it takes, and tell the owner."""
        self._is_ended = True
        if self._patience is not None:
            self._patience.cancel()
        turn, thought = self._turn, self._attempt.completed_thought()

        def compose(state: SessionState) -> Sequence[ev.Draft]:
            if state.turn is not None and state.turn.cancelling is not None:
                return [*thought, *closing(state), cancelled(state.turn)]
            if error is None:
                return [*thought, *closing(state), *_completed(turn)]
            return [*thought, *closing(state, with_calls=False), _failed(self.turn_id, error)]

        try:
            await self.live.journal.commit(compose)
        finally:
            self._on_end(self)

    def _leave_behind(self) -> None:
        """The cancelled work has not stopped in its time: end the turn without it; what it returns is dropped."""
        if self._is_ended or self._is_stopped:
            return
        _log.warning(
            "turn %s of %s did not stop in time; it is left behind", self.turn_id, self.live.session_id
        )
        self._left = asyncio.get_running_loop().create_task(
            self._end(None), name=f"end of turn {self.turn_id}"
        )


def closing(state: SessionState, *, with_calls: bool = True) -> list[ev.Draft]:
    """What closes a turn's open requests and, unless it failed, its unfinished calls before its end."""
    requests = [
        given_up(
            request.data, ev.AUTHORIZATION_REQUIRED if request.kind == "authorization" else ev.INPUT_REQUESTED
        )
        for request in state.pending.values()
    ]
    if not with_calls or state.turn is None:
        return requests
    calls: list[ev.Draft] = []
    for call_id, call in state.turn.calls.items():
        data: dict[str, Any] = {
            "callId": call_id,
            "toolName": call.tool_name,
            "status": "cancelled",
            "durationMs": 0,
        }
        calls.append(ev.Draft(ev.ACTION_RESULT, data))
    return [*requests, *calls]


def cancelled(turn: OpenTurn) -> ev.Draft:
    """turn.cancelled, with the reason and the name that turn.cancelling gave."""
    return ev.Draft(
        ev.TURN_CANCELLED, {"turnId": turn.turn_id, "reason": "cancelled", **(turn.cancelling or {})}
    )


def failed(turn_id: str, code: str, message: str, call_id: str | None = None) -> ev.Draft:
    """turn.failed of one of the RECOVERABLE codes."""
    data: dict[str, Any] = {
        "turnId": turn_id,
        "code": code,
        "message": message,
        "recoverable": RECOVERABLE[code],
    }
    if call_id is not None:
        data["callId"] = call_id
    return ev.Draft(ev.TURN_FAILED, data)


def _completed(turn: Turn) -> list[ev.Draft]:
    usage = {} if turn.usage is None else {"usage": turn.usage}
    drafts = [turn.completed_message(), ev.Draft(ev.TURN_COMPLETED, {"turnId": turn.turn_id, **usage})]
    if turn.ends_session:
        drafts.append(ev.Draft(ev.SESSION_COMPLETED, {"sessionId": turn.session_id}))
    return drafts


def _failed(turn_id: str, error: BaseException) -> ev.Draft:
    cause = _agent_error(error) or error
    match cause:
        case ActionFailed():
            code = "ACTION_FAILED"
        case ToolDenied():
            code = "TOOL_DENIED"
        case RequestExpired():
            code = "REQUEST_EXPIRED"
        case _:
            code = "AGENT_FAILED"
    form = error_form(code, cause)
    message = f"{form['type']}: {form['message']}" if "type" in form else str(form["message"])
    return failed(turn_id, code, message, cause.call_id if isinstance(cause, AgentError) else None)


def _agent_error(error: BaseException) -> AgentError | None:
    """The first error of an action or request in what the agent raised, a task group's bundle included."""
    if isinstance(error, AgentError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := _agent_error(inner)) is not None), None)
    return None
