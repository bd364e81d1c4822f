"""RecordedModel: a model whose every answer is an action of the turn: asked for once, streamed, paid for once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import (
    CompletedStreamedResponse,
    Model,
    ModelRequestParameters,
    StreamedResponse,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_json

from zhin_host import Retry, Turn
from zhin_host.agents.pydantic_ai.voice import Voice

ACTION: Final = "model"

_RESPONSE: Final = TypeAdapter(ModelResponse)
_PASSING: Final = frozenset({408, 409, 425, 429})


class ModelUnavailable(ModelAPIError):
    """A model's request failed in a way that may pass: its service is away, too busy, or had an error of its own."""


class RecordedModel(WrapperModel):
    """A model whose answers are in the log of the turn.

    Args:
        model: Who answers.
        turn: Whose record has the answers.
        voice: Who says them while they stream.
        retry: When a request that failed is sent again.
    """

    def __init__(self, model: Model, turn: Turn, voice: Voice, retry: Retry | None) -> None:
        super().__init__(model)
        self._turn = turn
        self._voice = voice
        self._retry = retry

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return await self._recorded(messages, model_settings, model_request_parameters, None)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        # Asked for where somebody listens to the run's events: they get each part at once, from the record.
        response = await self._recorded(messages, model_settings, model_request_parameters, run_context)
        yield CompletedStreamedResponse(
            response, model_request_parameters=model_request_parameters, replay_events=True
        )

    async def _recorded(
        self,
        sent: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None,
    ) -> ModelResponse:
        # Without arguments: another model, or more room for history, is no other path for a turn that is under way.
        async def ask() -> Any:
            self._voice.begin()
            try:
                response = await self._answer(sent, settings, parameters, run_context)
            except Exception as error:
                if _may_pass(error):
                    raise ModelUnavailable(self.model_name, str(error)) from error
                raise
            return _RESPONSE.dump_python(response, mode="json")

        recorded = await self._turn.run(ACTION, ask, retry=self._retry)
        response = _RESPONSE.validate_json(to_json(recorded))
        self._voice.remember(response)
        return response

    async def _answer(
        self,
        sent: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None,
    ) -> ModelResponse:
        """The whole answer, said as it comes."""
        if _streams(self.wrapped):
            is_open = False
            try:
                async with self.wrapped.request_stream(sent, settings, parameters, run_context) as stream:
                    is_open = True
                    async for event in stream:
                        await self._voice.hear(event)
                return stream.get()
            except NotImplementedError:  # so the library's Model says that a model has no stream
                if is_open:
                    raise
        response = await self.wrapped.request(sent, settings, parameters)
        await self._voice.tell(response)
        return response


def _streams(model: Model) -> bool:
    """Whether the model can be asked for a stream; only a FunctionModel without one asserts that it is not."""
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return not (isinstance(model, FunctionModel) and model.stream_function is None)


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):  # a FallbackModel's: each of its models failed
        return any(map(_may_pass, error.exceptions))
    if isinstance(error, ModelHTTPError):
        return error.status_code in _PASSING or error.status_code >= 500  # noqa: PLR2004 - errors of the server
    return isinstance(error, ModelAPIError)  # no status: no connection, or it was cut
