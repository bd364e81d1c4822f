"""TurnDriver: which turns run, and how each begins: new, queued, resumed, or driven again from its record."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Mapping, Sequence
from functools import partial

from zhin_host import events as ev
from zhin_host.agent import Agent
from zhin_host.attempt import Services
from zhin_host.clock import SessionId
from zhin_host.fold import apply
from zhin_host.meters import Recovery
from zhin_host.record import Record, asker_of, read_record
from zhin_host.recovery import AGENT_CHANGED, after_restart, ending_after_restart, has_changed
from zhin_host.replay import Diverged
from zhin_host.session import LiveSession
from zhin_host.turns import HttpTurnRunner, next_turn, said_of

_log = logging.getLogger("zhin_host.driver")


class TurnDriver:
    """Owns the runner of every turn that runs or is parked in memory.

    Args:
        agents: The hosted agents by name; the first is the default.
        services: Clock, settings and worker threads.
    """

    def __init__(self, agents: Mapping[str, Agent], services: Services) -> None:
        self.agents = agents
        self._services = services
        self._runners: dict[SessionId, HttpTurnRunner] = {}
        self._left: set[HttpTurnRunner] = set()
        self._is_stopping = False

    def has_room(self, limit: int) -> bool:
        """Whether fewer turns than `limit` are open; one whose end is in the log and not yet durable is not."""
        if len(self._runners) < limit:
            return True
        return sum(not runner.has_ended for runner in self._runners.values()) < limit

    def runner(self, session_id: SessionId) -> HttpTurnRunner | None:
        """Who runs the session's open turn; None when nobody does (a restart, or it left memory while parked)."""
        return self._runners.get(session_id)

    def is_resumable(self, live: LiveSession) -> bool:
        """Whether the session's agent is hosted here and can be driven again."""
        agent = self.agents.get(live.state.agent)
        return agent is not None and agent.is_resumable

    def stays_parked(self, live: LiveSession) -> bool:
        """Whether the open turn waits for a person and needs nobody to run it meanwhile."""
        turn = live.state.turn
        is_waiting = bool(live.state.pending) and turn is not None and not turn.is_cancelling
        return is_waiting and self.is_resumable(live)

    def begin(self, live: LiveSession) -> None:
        """Run the open turn, whose message has just been received; one that resumes another, from that one's record."""
        turn = live.state.open_turn
        self._run(live, is_new=turn.root_turn_id == turn.turn_id)

    def drive_again(self, live: LiveSession) -> None:
        """Run the open turn from its record; step.resumed has counted the attempt."""
        self._run(live, is_new=False)

    async def recover(self, live: LiveSession, *, was_crash: bool) -> Recovery:
        """Pay what a cut batch owes, then end the open turn, leave it parked, or drive it again.

        Args:
            live: A session just read back, that nobody else has yet.
            was_crash: Whether the last host ended without a clean stop.

        Returns:
            What became of it.

        Raises:
            StorageUnavailable: The log cannot be written now.
        """
        agent, turn = self.agents.get(live.state.agent), live.state.turn
        if live.fault is not None:
            return "broken"
        if (
            agent is None
        ):  # an open turn goes on when the agent is back; to end a cancelled one nobody is needed
            is_cancelling = turn is not None and turn.is_cancelling
            live.journal.write(ending_after_restart(live.state) if is_cancelling else ())
            await live.journal.sync()
            return "ended" if live.is_done else "waiting_for_agent"
        plan = after_restart(live.state, agent, self._services.config.on_agent_change, was_crash=was_crash)
        live.journal.write(plan.drafts)
        await live.journal.sync()  # the attempt is counted on disk before it begins
        if plan.is_driven:
            self._run(live, is_new=False)
        elif live.state.turn is None and live.state.queue:
            self.start_queued(live)
        elif live.state.turn is None:
            return "ended"
        else:
            return "parked"
        return "redriven"

    def start_queued(self, live: LiveSession) -> None:
        """Start the turn of the next queued message.

        Raises:
            StorageUnavailable: The log cannot be written now.
        """
        live.journal.write(next_turn(live.state, self.agents[live.state.agent]))
        self.begin(live)

    def cancel(self, live: LiveSession, drafts: Sequence[ev.Draft]) -> None:
        """Append turn.cancelling (with what stands beside it) and stop the work, wherever the turn is.

        Raises:
            StorageUnavailable: It was not written.
        """
        runner, turn = self._runners.get(live.session_id), live.state.turn
        if runner is not None:
            live.journal.write(drafts)
            runner.cancel()
            return
        agent, after = self.agents[live.state.agent], copy.copy(live.state)
        for draft in drafts:
            apply(after, *draft, after.updated_at_ms)
        # In one write: nobody would end the turn if only the first part of it were in the log.
        live.journal.write([*drafts, *ending_after_restart(after), *next_turn(after, agent)])
        self._go_on(live, None if turn is None else turn.turn_id)

    async def abandon(self, live: LiveSession) -> None:
        """Let go of a parked turn: it stays open in the log and goes on from there when it is answered."""
        runner = self._runners.pop(live.session_id, None)
        if runner is not None:
            await runner.stop(0)

    async def stop(self) -> None:
        """Let running actions end within the grace time, and leave every turn open in the log."""
        self._is_stopping = True
        grace_s = self._services.config.stop_grace_s
        await asyncio.gather(*(runner.stop(grace_s) for runner in self._runners.values()))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _run(self, live: LiveSession, *, is_new: bool) -> None:
        if self._is_stopping:
            return  # it stays open in the log, and the next host takes it up
        agent = self.agents[live.state.agent]
        read = partial(self._read, live, agent)
        runner = HttpTurnRunner(live, agent, self._services, read, self._ended, is_new=is_new)
        self._runners[live.session_id] = runner
        runner.start()

    def _read(self, live: LiveSession, agent: Agent) -> Record:
        """The record of the open turn; the policy for a changed agent holds for an answer after a restart too.

        Raises:
            Diverged: The agent is another now, and the policy is "fail".
        """
        turn, policy = live.state.turn, self._services.config.on_agent_change
        is_changed = turn is not None and has_changed(turn, agent)
        if is_changed and policy == "fail":
            raise Diverged(AGENT_CHANGED)
        record = read_record(live.log, 0 if turn is None else turn.root_index)
        if policy == "ask":
            record.forget_unused_approvals(asker_of(said_of(agent)), is_changed=is_changed)
        return record

    def _ended(self, runner: HttpTurnRunner) -> None:
        live = runner.live
        if self._runners.get(live.session_id) is runner:
            del self._runners[live.session_id]
        if not runner.has_settled:  # it was left behind: somebody must hold it until it is done
            self._left.add(runner)
            runner.when_settled(self._left.discard)
        self._go_on(live, runner.turn_id)

    def _go_on(self, live: LiveSession, ended_turn_id: str | None) -> None:
        """After a turn's end: run the one that began in the same batch, or let the session come to rest."""
        turn = live.state.turn
        if turn is not None and turn.turn_id != ended_turn_id and live.session_id not in self._runners:
            self.begin(live)
            runner = self._runners.get(live.session_id)
            if runner is not None and turn.is_cancelling:  # before it had a runner that could be told
                runner.cancel()
        live.at_rest()
