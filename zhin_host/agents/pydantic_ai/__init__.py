"""Pydantic AI: an agent of that library, hosted.

    from zhin_host.agents.pydantic_ai import PydanticAIAgent

    agent = PydanticAIAgent(Agent("anthropic:…", tools=[…]))   # zhin-host serve --agent my_module:agent

docs/pydantic-ai.md tells what becomes what.
"""

try:
    import pydantic_ai as _pydantic_ai  # noqa: F401 - only to say what is missing
except ModuleNotFoundError as error:
    if error.name != "pydantic_ai":
        raise
    raise ImportError(
        "zhin_host.agents.pydantic_ai needs pydantic-ai-slim, which is not installed; install it with: "
        "pip install 'zhin-host[pydantic-ai]'"
    ) from None

from zhin_host.agents.pydantic_ai.agent import PydanticAIAgent
from zhin_host.agents.pydantic_ai.model import ModelUnavailable

__all__ = ["ModelUnavailable", "PydanticAIAgent"]
