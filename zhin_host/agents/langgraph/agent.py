"""LangGraphAgent: a compiled graph as an agent, one run of it a turn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from typing import Any, Final

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel

from zhin_host import Retry, Turn
from zhin_host.agents.langgraph.forms import json_of
from zhin_host.agents.langgraph.hosted import current_run, hosted, tools_of
from zhin_host.agents.langgraph.questions import resumed
from zhin_host.agents.langgraph.rules import ToolRules, checked_rules, hosted_tool
from zhin_host.agents.langgraph.run import GraphRun
from zhin_host.agents.langgraph.thread import OwnThread, SessionThread, Thread

_CUSTOM: Final = "x.langgraph"
_MESSAGES: Final = "messages"


class LangGraphAgent:
    """Hosts a compiled LangGraph graph.

    Args:
        graph: What `StateGraph.compile`, `create_agent` or `@entrypoint` gives. With a checkpointer of its own it keeps
            its state there, in the thread of the session's id; without one the session keeps it.
        name: What sessions record; it must stay the same for them to go on.
        version: Said in turn.started, so that a changed agent is known.
        input: Makes the graph's input of a turn; None: `{"messages": [the message]}`.
        answer: Makes text of the graph's last state, said at the end; None: what its models and nodes say is all.
        context: Makes the graph's runtime context of a turn.
        speakers: The nodes whose models speak to the user; None: all. A model tagged "nostream" is never heard.
        rules: What is said of tools, by name.
        retry: When a node without a RetryPolicy is tried again; None: never, since chat models try again themselves.
        state_bytes_max: How long the graph's state may be as JSON in the session; the oldest exchanges go first.

    Attributes:
        tools: The tools of the graph's ToolNodes.

    Raises:
        TypeError: The graph is not compiled, or a ToolNode of it cannot be hosted.
        ValueError: The graph takes no messages and no `input` says what it takes, or a rule is of no tool.
    """

    def __init__(
        self,
        graph: Pregel[Any, Any, Any, Any],
        *,
        name: str = "langgraph",
        version: str = "",
        input: Callable[[Turn], Any] | None = None,  # noqa: A002 - LangGraph's word for it
        answer: Callable[[Any], str] | None = None,
        context: Callable[[Turn], Any] | None = None,
        speakers: Collection[str] | None = None,
        rules: Mapping[str, ToolRules] | None = None,
        retry: Retry | None = None,
        state_bytes_max: int = 512 * 1024,
    ) -> None:
        if not isinstance(graph, Pregel):
            raise TypeError(f"{type(graph).__name__} is no compiled graph; give what compile() returns")
        if input is None and _MESSAGES not in graph.channels:
            raise ValueError('the graph has no "messages"; say with input= what it takes of a turn')
        self.name = name
        self.version = version
        self._rules = checked_rules(rules, tools_of(graph))
        self.tools = tuple(
            hosted_tool(tool, self._rules.get(tool.name, {}), tool.ainvoke) for tool in tools_of(graph)
        )
        self._graph = hosted(graph, retry)
        own = graph.checkpointer
        self._saver = own if isinstance(own, BaseCheckpointSaver) else None
        _check_channels(graph, has_saver=self._saver is not None)
        self._input = input or _message_of
        self._answer = answer
        self._context = context
        self._speakers = speakers
        self._state_bytes_max = state_bytes_max

    async def __call__(self, turn: Turn) -> None:
        """Run the graph on the turn's message, as often as its interrupts are answered, and keep its state."""
        run = GraphRun(turn, self._rules, self._speakers)
        token = current_run.set(run)
        try:
            await self._work(turn, run)
        except Exception:
            if run.ended is not None:  # LangGraph's own error for a node that was cancelled from inside
                raise run.ended from None
            raise
        finally:
            current_run.reset(token)
            await run.close()

    async def _work(self, turn: Turn, run: GraphRun) -> None:
        if isinstance(turn.state, dict) and turn.state["turnId"] == turn.turn_id:
            # A crash between the state that was saved and the turn's end: the graph has done its work.
            run.told.add(turn.state["told"])
            await turn.finish(run.told.reason or "stop", usage=run.told.usage)
            return
        thread = await self._thread(turn)
        graph = self._graph.copy({"checkpointer": thread.saver})
        given, config = self._input(turn), thread.start
        while True:
            await self._pass(turn, run, graph, given, config)
            config = thread.head
            snapshot = await graph.aget_state(config)
            interrupts = [row for task in snapshot.tasks for row in task.interrupts]
            if interrupts:
                given = await resumed(turn, run, interrupts)
            elif not snapshot.next:
                break
            elif await turn.approve(f"Go on with {', '.join(snapshot.next)}?", nodes=list(snapshot.next)):
                given = None  # a breakpoint of interrupt_before or interrupt_after
            else:
                return  # the next turn begins where this one began
        if self._answer is not None:
            await turn.say(self._answer(snapshot.values))
        await turn.finish(run.told.reason or "stop", usage=run.told.usage)
        kept = {
            "turnId": turn.turn_id,
            "told": run.told.form(),
            "thread": await thread.state(snapshot.config),
        }
        await turn.checkpoint(kept)

    async def _thread(self, turn: Turn) -> Thread:
        thread: Thread
        if self._saver is None:
            thread = SessionThread(turn.session_id, self._state_bytes_max)
        else:
            thread = OwnThread(self._saver, turn.session_id)
        if turn.state is None:
            await thread.begin()
        else:
            await thread.go_on(turn.state["thread"])
        return thread

    async def _pass(self, turn: Turn, run: GraphRun, graph: Any, given: Any, config: RunnableConfig) -> None:
        """Run the graph until it ends or is interrupted.

        "messages" is asked for since LangGraph then has chat models stream; what they say is heard where they run.
        """
        run.begin_pass()
        context = None if self._context is None else self._context(turn)
        stream = graph.astream(
            given, config, context=context, stream_mode=["custom", _MESSAGES], subgraphs=True
        )
        async with aclosing(stream) as parts:
            async for namespace, mode, part in parts:
                if mode == "custom":
                    path = "/".join(name.partition(":")[0] for name in namespace)
                    await turn.emit(_CUSTOM, {**({"graph": path} if path else {}), "data": json_of(part)})
        if run.ended is not None:
            raise run.ended


def _message_of(turn: Turn) -> dict[str, list[HumanMessage]]:
    return {_MESSAGES: [HumanMessage(turn.message, id=turn.turn_id)]}


def _check_channels(graph: Pregel[Any, Any, Any, Any], *, has_saver: bool) -> None:
    """Raise TypeError for state that only the graph's own checkpointer can put together again."""
    deltas = [name for name, row in graph.channels.items() if type(row).__name__ == "DeltaChannel"]
    if deltas and not has_saver:
        raise TypeError(
            f"{deltas[0]} is a DeltaChannel, whose state is spread over checkpoints; "
            "compile the graph with a checkpointer of its own"
        )
