"""Hosted: the capability that one run is given, by which its models and tools are the turn's actions."""

from __future__ import annotations

from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.toolsets import AbstractToolset

from zhin_host import Retry, Turn
from zhin_host.agents.pydantic_ai.calls import Calls, RecordedToolset
from zhin_host.agents.pydantic_ai.model import RecordedModel
from zhin_host.agents.pydantic_ai.voice import Voice

_WRAPS_MODELS: Final = hasattr(AbstractCapability, "get_wrapper_model")  # since 2.62


class Hosted(AbstractCapability[Any]):
    """Records the answers of the run's models and the calls of its tools, and has people asked.

    Args:
        turn: Whose actions they are.
        calls: Its tool calls.
        voice: Who says what the models answer.
        retry: When a model's request that failed is sent again.
    """

    def __init__(self, turn: Turn, calls: Calls, voice: Voice, retry: Retry | None) -> None:
        self._turn = turn
        self._calls = calls
        self._voice = voice
        self._retry = retry

    def get_wrapper_model(self, model: Model) -> Model:
        return RecordedModel(model, self._turn, self._voice, self._retry)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        if not _WRAPS_MODELS:
            request_context.model = self.get_wrapper_model(request_context.model)
        return await super().before_model_request(ctx, request_context)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return RecordedToolset(toolset, self._calls)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults:
        return await self._calls.settle(ctx, requests)
