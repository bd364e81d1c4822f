"""PydanticAIAgent: an agent of Pydantic AI as the host calls it, one run a turn."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic_ai import Agent, UsageLimits

from zhin_host import Retry, Tool, Turn
from zhin_host.agents.pydantic_ai.calls import Calls
from zhin_host.agents.pydantic_ai.capability import Hosted
from zhin_host.agents.pydantic_ai.declared import declared_tools
from zhin_host.agents.pydantic_ai.memory import ended_run, has_ended, messages_of
from zhin_host.agents.pydantic_ai.model import ModelUnavailable
from zhin_host.agents.pydantic_ai.voice import Voice, answers_in_text

RETRY: Final = Retry(on=(ModelUnavailable,))
HISTORY_BYTES_MAX: Final = 256 * 1024


class PydanticAIAgent:
    """An agent of Pydantic AI, hosted: its model's answers and its tools' results are in the log of the turn.

    One instance serves any number of turns at once.

    Args:
        agent: The agent as it is; nothing in it needs to know of the host.
        deps: What its tools find in `RunContext.deps`: a value for all turns, or a function of the Turn, async or not,
            that makes it for each attempt of one.
        retry: When a model's request that failed is sent again; ModelUnavailable is a failure that may pass (408,
            409, 425, 429, 5xx, no connection). None: never.
        version: Said in turn.started, so that a changed agent is known; "" says none.
        usage_limits: What one turn may use; None: as the library has it.
        history_bytes_max: The most that the messages saved for the next turn take as JSON; the oldest whole exchanges
            go first.

    Attributes:
        name: The agent's own name, or "agent".
        version: As given.
        tools: Those that are known before a run, for GET /info.
    """

    def __init__(
        self,
        agent: Agent[Any, Any],
        *,
        deps: Any = None,
        retry: Retry | None = RETRY,
        version: str = "",
        usage_limits: UsageLimits | None = None,
        history_bytes_max: int = HISTORY_BYTES_MAX,
    ) -> None:
        self.name = agent.name or "agent"
        self.version = version
        self.tools: tuple[Tool, ...] = declared_tools(agent)
        self._agent = agent
        self._deps = deps
        self._retry = retry
        self._usage_limits = usage_limits
        self._history_bytes_max = history_bytes_max

    async def __call__(self, turn: Turn) -> None:
        """Run the agent on the turn's message, with the messages of the turns before."""
        saved = turn.state
        if has_ended(saved, turn.turn_id):  # the host died between the checkpoint and the turn's end
            await _finish(turn, saved)
            return
        voice = Voice(turn, is_heard=answers_in_text(self._agent))
        calls = Calls(turn)
        try:
            run = await self._agent.run(
                turn.message,
                deps=await self._deps_of(turn),
                message_history=messages_of(saved) or None,
                conversation_id=turn.session_id,
                run_id=turn.turn_id,
                usage_limits=self._usage_limits,
                infer_name=False,
                capabilities=[Hosted(turn, calls, voice, self._retry)],
            )
        finally:
            await calls.close()
        await voice.conclude(run.output)
        ended = ended_run(turn.turn_id, run, self._history_bytes_max)
        await _finish(turn, ended)
        await turn.checkpoint(ended)

    async def _deps_of(self, turn: Turn) -> Any:
        if not inspect.isroutine(self._deps):
            return self._deps
        make: Callable[[Turn], Any] = self._deps
        made = make(turn)
        return await made if inspect.isawaitable(made) else made


async def _finish(turn: Turn, ended: Mapping[str, Any]) -> None:
    await turn.finish(ended["finishReason"], usage=ended["usage"])
