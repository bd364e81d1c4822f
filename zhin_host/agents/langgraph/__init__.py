"""LangGraph: a compiled graph as an agent of the host.

from zhin_host.agents.langgraph import LangGraphAgent

agent = LangGraphAgent(graph)

Every node's run is an action of the turn, every call of a tool in a ToolNode is one of that tool, and what the graph
interrupts for is asked of a person. docs/langgraph.md says what is once and what may be twice.
"""

from zhin_host.agents.langgraph.agent import LangGraphAgent
from zhin_host.agents.langgraph.rules import ToolRules

__all__ = ["LangGraphAgent", "ToolRules"]
