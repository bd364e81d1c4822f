"""Agents of the OpenAI Agents SDK as agents of a host. Needs the extra: `pip install 'zhin-host[openai-agents]'`.

from zhin_host.agents.openai_agents import OpenAIAgent
agent = OpenAIAgent(Agent(name="assistant", tools=[...]))   # zhin-host serve --agent my_module:agent
"""

from zhin_host.agents.openai_agents.agent import OpenAIAgent
from zhin_host.agents.openai_agents.question import ask_person

__all__ = ["OpenAIAgent", "ask_person"]
