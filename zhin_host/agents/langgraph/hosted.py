"""Hosted: a copy of a compiled graph whose nodes and tools ask the turn's run before they do anything.

A node runs as one action. A ToolNode and a graph that is a node are no actions themselves: their tools and nodes are.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, Protocol, cast

from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.constants import START
from langgraph.errors import GraphInterrupt
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from langgraph.types import Interrupt, RetryPolicy

from zhin_host import Retry
from zhin_host.agents.langgraph.retries import retry_of
from zhin_host.agents.langgraph.voice import messages_in

Execute = Callable[[Any], Awaitable[Any]]
"""Runs a tool call: a ToolCallRequest in, a ToolMessage, a Command or a list of them out."""

# The middleware whose approvals are asked for where the tool runs (see questions.py), and the node it makes.
REVIEWING_NODE: Final = "HumanInTheLoopMiddleware.after_model"


class Run(Protocol):
    """What the hosted graph asks: one turn's run of it."""

    async def node(self, node: RecordedNode, given: Any, config: RunnableConfig) -> Any:
        """What the node returns, from its record where it has one."""

    async def tool(self, request: Any, execute: Execute) -> Any:
        """What the tool call gives, from its record where it has one."""

    def reviews(self, interrupts: tuple[Interrupt, ...], calls: Sequence[Mapping[str, Any]]) -> None:
        """Know that these were raised by what reviews these calls of tools, or some of them, before they run."""


current_run: ContextVar[Run] = ContextVar("zhin_host_langgraph_run")


class RecordedNode(Runnable[Any, Any]):
    """A node whose run is an action.

    Attributes:
        path: Its name, behind those of the graphs it stands in: "research/model".
        bound: What the developer wrote.
        retry: When it is tried again; None: as the agent says.
    """

    def __init__(self, path: str, bound: Runnable[Any, Any], retry: Retry | None) -> None:
        self.path = path
        self.bound = bound
        self.retry = retry

    @property
    def node_name(self) -> str:
        """Its name in its own graph."""
        return self.path.rpartition("/")[2]

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        """Not used: a hosted graph runs on the host's loop only."""
        raise NotImplementedError

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        """Run it as an action of the turn."""
        run, given = current_run.get(), input
        try:
            return await run.node(self, given, config or {})
        except GraphInterrupt as interrupted:
            if self.node_name == REVIEWING_NODE:
                last = next(
                    (row for row in reversed(list(messages_in(given))) if isinstance(row, AIMessage)), None
                )
                run.reviews(interrupted.args[0], last.tool_calls if last else ())
            raise


def hosted(graph: Pregel[Any, Any, Any, Any], retry: Retry | None = None, path: str = "") -> Any:
    """A copy of the graph for the host; the graph itself stays as it is.

    Args:
        graph: What the developer compiled.
        retry: When a node without a policy of its own is tried again.
        path: The names of the graphs it stands in, each with a slash.
    """
    of_all = _policies(graph.retry_policy)
    nodes = {}
    for name, node in graph.nodes.items():
        update: dict[str, Any] = {"retry_policy": None, "cache_policy": None}
        inner = node.bound
        if name != START:
            policies = _policies(node.retry_policy) or of_all
            own = retry_of(policies[0]) if policies else retry
            update["bound"] = _hosted_bound(inner, own, retry, path + name)
            if isinstance(inner, Pregel):
                update["subgraphs"] = [update["bound"]]
        nodes[name] = node.copy(update)
    return graph.copy({"nodes": nodes, "retry_policy": (), "cache": None, "cache_policy": None})


def tools_of(graph: Pregel[Any, Any, Any, Any]) -> Iterator[BaseTool]:
    """The tools of its ToolNodes and of those of the graphs that are its nodes."""
    for node in graph.nodes.values():
        if isinstance(node.bound, ToolNode):
            yield from node.bound.tools_by_name.values()
        elif isinstance(node.bound, Pregel):
            yield from tools_of(node.bound)


def _hosted_bound(bound: Any, own: Retry | None, retry: Retry | None, path: str) -> Any:
    if isinstance(bound, ToolNode):
        return _hosted_tool_node(bound)
    if isinstance(bound, Pregel):
        return hosted(bound, retry, path + "/")
    return RecordedNode(path, bound, own)


def _hosted_tool_node(node: ToolNode) -> ToolNode:
    """The ToolNode with the turn's run next to each tool: what wraps the calls already, wraps that."""
    outer, plain = node._awrap_tool_call, node._wrap_tool_call  # noqa: SLF001 - there is no public way to add one

    async def call(request: Any, execute: Execute) -> Any:
        run, own = current_run.get(), list[GraphInterrupt]()

        async def recorded(inner: Any) -> Any:
            try:
                return await run.tool(inner, execute)
            except GraphInterrupt as interrupted:
                own.append(interrupted)
                raise

        if outer is None:
            return await recorded(request)
        try:
            return await cast("Any", outer)(request, recorded)
        except GraphInterrupt as interrupted:
            if interrupted not in own:  # not the tool asks, but what looks at the call before it
                run.reviews(interrupted.args[0], [request.tool_call])
            raise

    if outer is None and plain is not None:
        raise TypeError(
            f"the ToolNode {node.name} has wrap_tool_call only; give it awrap_tool_call, as the host runs it on a loop"
        )
    made = copy.copy(node)
    made._awrap_tool_call = call  # noqa: SLF001
    made.func, made.afunc = made._func, made._afunc  # noqa: SLF001 - of the copy, whose wrapper they look for
    return made


def _policies(given: Any) -> tuple[RetryPolicy, ...]:
    """Those of a node or a graph; RetryPolicy is a named tuple itself."""
    return (given,) if isinstance(given, RetryPolicy) else tuple(given or ())
