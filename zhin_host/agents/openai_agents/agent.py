"""OpenAIAgent: an agent of the OpenAI Agents SDK, and those it hands over to, as one agent of a host."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, cast

import openai
from agents import Agent, FunctionTool, RunConfig, RunHooks, Runner, RunResult, RunState, ToolCallOutputItem
from agents.run import DEFAULT_MAX_TURNS

from zhin_host import Retry, Tool, Turn
from zhin_host.agents.openai_agents.history import HISTORY_BYTES, exchanges_within
from zhin_host.agents.openai_agents.model import recorded_model, recorded_provider
from zhin_host.agents.openai_agents.prepared import agents_of, prepare, servers_of
from zhin_host.agents.openai_agents.run import HostedRun, hosting
from zhin_host.agents.openai_agents.servers import Servers
from zhin_host.agents.openai_agents.tools import described

RETRY: Final = Retry(
    attempts=3,
    on=(openai.APIConnectionError, openai.RateLimitError, openai.InternalServerError),
)


class OpenAIAgent:
    """Runs an agent of the SDK once for each turn: what it asks its model and what its tools do are actions.

    The agent, the agents it knows and their tools are prepared in place: their models and tools look whether a turn of
    a host runs. Without one they do what they did before. Their MCP servers are connected while turns run.

    Args:
        agent: Who answers a session's first message. Later ones go to the agent that answered last.
        run_config: For each run of the SDK. Without one, tracing is off; one of your own decides that itself.
        context: Makes the context that tools and hooks get as `context.context`, from the turn; None: it is None.
        max_turns: How often one message may lead to the model, as the SDK counts; None: without end.
        retry: When a request to the model that failed is sent again; None: never.
        history_bytes: How much of the conversation is kept for the next turn, as JSON; whole exchanges.
        unrepeatable: Names of tools that must not run again when a crash cut them off: a person is asked first.
        version: Says when the agent was changed; shown in turn.started.

    Attributes:
        name: The agent's.
        tools: The function tools of the agent and of those it hands over to; MCP servers tell theirs later.

    Raises:
        TypeError: The agent is none, or has a tool that cannot be recorded.
    """

    def __init__(
        self,
        agent: Agent[Any],
        *,
        run_config: RunConfig | None = None,
        context: Callable[[Turn], Any] | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        retry: Retry | None = RETRY,
        history_bytes: int = HISTORY_BYTES,
        unrepeatable: Collection[str] = (),
        version: str = "",
    ) -> None:
        prepare(agent)
        self.name = agent.name
        self.version = version
        self.tools = tuple(_tools_of(agent))
        self._agent = agent
        self._config = _recorded_config(run_config or RunConfig(tracing_disabled=True))
        self._context = context
        self._max_turns = max_turns
        self._retry = retry
        self._history_bytes = history_bytes
        self._unrepeatable = frozenset(unrepeatable)
        self._servers = Servers()

    async def __call__(self, turn: Turn) -> None:
        """Answer the turn's message, with what was said in the turns before."""
        saved = turn.state or {}
        if saved.get("turnId") == turn.turn_id:  # a crash came between this turn's last line and its end
            await turn.finish(usage=saved["usage"])
            return
        run = HostedRun(turn, self._retry, self._unrepeatable)
        async with self._servers.connected(servers_of(self._agent)), hosting(run):
            result = await self._result(run, saved)
            last = result.new_items[-1] if result.new_items else None
            if isinstance(last, ToolCallOutputItem):  # a tool's output is the answer; no model has said it
                await run.say(_text_of(result.final_output))
        usage = _usage_of(result)
        await turn.finish(usage=usage)
        items = exchanges_within(self._history_bytes, cast("list[Any]", result.to_input_list()))
        state = {"turnId": turn.turn_id, "agent": result.last_agent.name, "input": items, "usage": usage}
        await turn.checkpoint(state)

    async def _result(self, run: HostedRun, saved: Mapping[str, Any]) -> RunResult:
        """Run, and whenever the SDK stops for approvals, go on once a person has decided one of them."""
        turn = run.turn
        given: Any = [*saved.get("input", ()), {"role": "user", "content": turn.message}]
        agent = self._named(saved.get("agent"))
        context = None if self._context is None else self._context(turn)
        result = await self._run(run, agent, given, context)
        while result.interruptions:
            state = result.to_state()
            await run.approvals.decide(state, result.interruptions)
            result = await self._run(run, agent, state, context)
            await run.approvals.close_unused()
        return result

    async def _run(
        self, run: HostedRun, agent: Agent[Any], given: list[Any] | RunState[Any], context: Any
    ) -> RunResult:
        config = dataclasses.replace(self._config, group_id=self._config.group_id or run.turn.session_id)
        try:
            return await Runner.run(
                agent,
                given,
                context=context,
                max_turns=self._max_turns,
                hooks=_Preparing(),
                run_config=config,
            )
        except Exception as error:
            failure = run.failure_behind(error)
            if failure is None or failure is error:
                raise
            raise failure from error  # it names the action, which a person may then have tried again

    def _named(self, name: str | None) -> Agent[Any]:
        """Who answered last, if this agent still knows one of that name."""
        return next((agent for agent in agents_of(self._agent) if agent.name == name), self._agent)


class _Preparing(RunHooks[Any]):
    """Prepares agents that nobody knew beforehand, before they ask their model."""

    async def on_agent_start(self, context: Any, agent: Any) -> None:  # noqa: ARG002 - the SDK's signature
        prepare(agent)


def _recorded_config(config: RunConfig) -> RunConfig:
    model = (
        config.model
        if config.model is None or isinstance(config.model, str)
        else recorded_model(config.model)
    )
    return dataclasses.replace(config, model=model, model_provider=recorded_provider(config.model_provider))


def _tools_of(agent: Agent[Any]) -> Iterator[Tool]:
    """The function tools of all agents, each name once."""
    named: dict[str, Tool] = {}
    for one in agents_of(agent):
        for tool in one.tools:
            if isinstance(tool, FunctionTool):
                shown = described(tool)
                named.setdefault(shown.name, shown)
    yield from named.values()


def _text_of(output: Any) -> str:
    return output if isinstance(output, str) else str(output)


def _usage_of(result: RunResult) -> dict[str, int]:
    usage = result.context_wrapper.usage
    return {
        "requests": usage.requests,
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
    }
