"""HttpTurnRunner: one turn of one session, from its start to its end: run, park, cancel, stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from zhin_host import events as ev
from zhin_host.actions import error_form
from zhin_host.agent import Agent
from zhin_host.approval import given_up
from zhin_host.attempt import Attempt, Services
from zhin_host.errors import (
    ActionFailed,
    AgentError,
    EventRefused,
    RequestExpired,
    ToolDenied,
)
from zhin_host.projector import projected_resume
from zhin_host.record import Record
from zhin_host.redaction import Redactor
from zhin_host.replay import Diverged
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
        services: Clock, settings and worker threads.
        read: Reads the record of earlier attempts, in a thread.
        is_new: Whether there were none.
        on_end: Called once the turn's end is durable, or the runner has given the turn up.
    """

    def __init__(
        self,
        live: LiveSession,
        agent: Agent,
        services: Services,
        read: Callable[[], Record],
        on_end: Callable[[HttpTurnRunner], None],
        *,
        is_new: bool,
    ) -> None:
        turn = live.state.open_turn
        self.live = live
        self.turn_id = turn.turn_id
        self._message = turn.message
        self._agent = agent
        self._services = services
        self._attempt = self._new_attempt()
        self._turn: Turn | None = None
        self._is_new = is_new
        self._read = read
        self._on_end = on_end
        self._task: asyncio.Task[None] | None = None
        self._left: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._has_begun = False
        self._is_stopped = False
        self._is_ended = False
        self.has_ended = False  # in the log, whether it is durable yet or not

    @property
    def is_parked(self) -> bool:
        """Whether every action of the turn waits for an open request, so that it may leave memory."""
        return self._turn is not None and not self._attempt.is_working and bool(self.live.state.pending)

    def start(self) -> None:
        """Begin to run the turn; returns at once."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"turn {self.turn_id}")

    def cancel(self) -> None:
        """Stop the work; turn.cancelling is in the log. What has not stopped in the grace time is left behind."""
        if self._is_ended:  # its end waits for storage: when that is back, it ends as cancelled
            return
        self._end_attempt()
        if (
            self._task is not None and self._has_begun
        ):  # one cancelled before it begins would run nothing at all
            self._task.cancel("the turn was cancelled")
        grace_s = self._services.config.cancel_grace_s
        self._patience = asyncio.get_running_loop().call_later(grace_s, self._leave_behind)

    async def stop(self, grace_s: float) -> None:
        """End the attempt and leave the turn open in the log: after its running actions, or when the time is up."""
        self._is_stopped = True
        self._end_attempt()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._attempt.quiet()
        tasks = self._under_way
        for task in tasks:
            task.cancel("the host stops")
        if tasks:
            _, tasks = await asyncio.wait(tasks, timeout=max(0.1, grace_s / 10))
        if tasks:
            _log.warning("turn %s does not stop; it is left behind", self.turn_id)

    @property
    def has_settled(self) -> bool:
        """Whether the agent's task has ended, or is about to in this very step."""
        return not self._under_way - {asyncio.current_task()}

    async def settled(self) -> None:
        """Wait until the turn has ended in the log or was given up."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def when_settled(self, then: Callable[[HttpTurnRunner], None]) -> None:
        """Call `then` when the agent's task, which has not, has ended after all."""
        for task in self._under_way - {asyncio.current_task()}:
            task.add_done_callback(lambda _: then(self))

    # -- inside ----------------------------------------------------------------------------------------------------

    @property
    def _under_way(self) -> set[asyncio.Task[None]]:
        """The agent's task, and the one that ends the turn without it, as far as they have not ended."""
        return {task for task in (self._task, self._left) if task is not None and not task.done()}

    def _new_attempt(self) -> Attempt:
        live, agent = self.live, self._agent
        services, said = self._services, said_of(agent)
        return Attempt(
            live.session_id, self.turn_id, live.journal, services, said, is_resumable=agent.is_resumable
        )

    async def _run(self) -> None:
        self._has_begun = True
        error: BaseException | None
        try:
            error = await self._drive()
            while self._wants_another:
                if not await self._begin_again():
                    self._is_stopped = True
                    self._on_end(self)
                    return
                error = await self._drive()
        except asyncio.CancelledError as cancelled_between:
            error = cancelled_between
        self._end_attempt()
        if not self._is_stopped and not self._is_ended:
            await self._end(error)

    async def _drive(self) -> BaseException | None:
        """One attempt: call the agent from its top; what it raised."""
        attempt = self._attempt
        try:
            attempt.check()
            if not self._is_new:
                await (
                    self.live.journal.sync_when_possible()
                )  # the attempt is counted on disk before it begins
                attempt.go_on_from(await attempt.read_when_possible(self._read))
            self._turn = Turn(attempt, self.live.waiter, self.live.log, self._message)
            await self._agent.run(self._turn)
            attempt.replay.check_used_up()
        except Diverged as diverged:
            attempt.divergence = str(diverged)
        except BaseException as raised:
            if self._is_stopped and isinstance(
                raised, GeneratorExit
            ):  # the loop is gone and the agent never went
                raise
            if not isinstance(raised, asyncio.CancelledError | AgentError) and not attempt.wants_another:
                _log.exception("the agent failed in turn %s of %s", self.turn_id, self.live.session_id)
            return raised
        return None

    @property
    def _wants_another(self) -> bool:
        """Whether the attempt that is over ended for another one, and nothing came between."""
        turn = self.live.state.turn
        is_cancelling = turn is None or turn.is_cancelling
        return self._attempt.wants_another and not self._is_stopped and not is_cancelling

    async def _begin_again(self) -> bool:
        """Begin a further attempt when what runs beside has ended; not while a person is still to answer something.

        Returns:
            Whether it has begun. If not, the turn stays parked, and the last answer drives it again.
        """
        self._end_attempt()
        await self._attempt.quiet()
        if self.live.state.pending:
            return False
        crashes = self.live.state.open_turn.crashes
        await self.live.journal.write_when_possible(lambda state: [redriven(state, crashes)])
        self._attempt, self._is_new = self._new_attempt(), False
        return True

    def _end_attempt(self) -> None:
        """From now on the agent writes nothing; what still waits for an answer is woken."""
        self._attempt.is_over = True
        self.live.waiter.release(self._attempt)

    async def _end(self, error: BaseException | None) -> None:
        """Write the turn's end, and the start of the turn that is queued next, whatever it takes; tell the owner."""
        self._is_ended = True
        if self._patience is not None:
            self._patience.cancel()
        last_words, ended_by = self._attempt.last_words(), error

        def compose(state: SessionState) -> Sequence[ev.Draft]:
            ending = self._ending(state, ended_by)
            following = [] if ending[-1].type in ev.SESSION_ENDS else next_turn(state, self._agent)
            return [*last_words, *ending, *following]

        try:
            try:
                await self.live.journal.write_when_possible(compose)
            except EventRefused as refused:  # its last words fit no line: it ends all the same
                _log.exception("turn %s of %s cannot end as it should", self.turn_id, self.live.session_id)
                last_words, ended_by = [], refused
                await self.live.journal.write_when_possible(compose)
            self.has_ended = True
            await self.live.journal.sync_when_possible()
        finally:
            self._on_end(self)

    def _ending(self, state: SessionState, error: BaseException | None) -> list[ev.Draft]:
        if state.turn is not None and state.turn.cancelling is not None:
            return [*closing(state), cancelled(state.turn)]
        if self._attempt.divergence is not None:
            diverged = failed(self.turn_id, "TURN_DIVERGED", self._attempt.divergence)
            return [*closing(state, with_calls=False), diverged]
        if error is not None or self._turn is None:
            return [
                *closing(state, with_calls=False),
                _failed(self.turn_id, error or asyncio.CancelledError(), self._attempt.redactor),
            ]
        return [*closing(state), *_completed(self._turn, state)]

    def _leave_behind(self) -> None:
        """The cancelled work has not stopped in its time: end the turn without it; what it returns is dropped."""
        if self._is_ended or self._is_stopped:
            return
        _log.warning(
            "turn %s of %s did not stop in time; it is left behind", self.turn_id, self.live.session_id
        )
        name = f"end of turn {self.turn_id}"
        self._left = asyncio.get_running_loop().create_task(self._end(None), name=name)


def started(agent: Agent, turn_id: str, token: str, **more: Any) -> ev.Draft:
    """turn.started, with what it says of the agent."""
    data: dict[str, Any] = {"turnId": turn_id, "continuationToken": token, **said_of(agent)}
    return ev.Draft(ev.TURN_STARTED, {**data, **more})


def said_of(agent: Agent) -> dict[str, str]:
    """What events say of an agent, so that a changed one is known: agentVersion and toolsDigest, where it has them."""
    version = {"agentVersion": agent.version} if agent.version else {}
    return {**version, "toolsDigest": agent.tools_digest} if agent.tools else version


def received(turn_id: str, message: Any) -> ev.Draft:
    """message.received."""
    return ev.Draft(ev.MESSAGE_RECEIVED, {"turnId": turn_id, "message": message})


def redriven(state: SessionState, crashes: int) -> ev.Draft:
    """step.resumed of a further attempt: from where on events do not count, and how often the host died before."""
    draft = projected_resume(state)
    return ev.Draft(draft.type, {**draft.data, "crashes": crashes}) if crashes else draft


def next_turn(state: SessionState, agent: Agent) -> list[ev.Draft]:
    """The start of the turn that is queued next, with the token already in force; nothing when none is."""
    if not state.queue:
        return []
    queued = state.queue[0]
    return [started(agent, queued["turnId"], state.token), received(queued["turnId"], queued["message"])]


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


def _completed(turn: Turn, state: SessionState) -> list[ev.Draft]:
    usage = {} if turn.usage is None else {"usage": turn.usage}
    is_told = state.turn is not None and bool(state.turn.completions)  # a stepped agent's last step told it
    told = [] if is_told else [turn.completed_message()]
    drafts = [*told, ev.Draft(ev.TURN_COMPLETED, {"turnId": turn.turn_id, **usage})]
    if turn.ends_session:
        dropped = {"droppedTurnIds": [row["turnId"] for row in state.queue]} if state.queue else {}
        drafts.append(ev.Draft(ev.SESSION_COMPLETED, {"sessionId": turn.session_id, **dropped}))
    return drafts


def _failed(turn_id: str, error: BaseException, redactor: Redactor) -> ev.Draft:
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
    form = error_form(code, cause, redactor)
    message = f"{form['type']}: {form['message']}" if "type" in form else str(form["message"])
    return failed(turn_id, code, message, cause.call_id if isinstance(cause, AgentError) else None)


def _agent_error(error: BaseException) -> AgentError | None:
    """The first error of an action or request in what the agent raised, a task group's bundle included."""
    if isinstance(error, AgentError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := _agent_error(inner)) is not None), None)
    return None
