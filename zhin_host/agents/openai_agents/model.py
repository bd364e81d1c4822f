"""RecordedModel: a model of the SDK whose answers are actions of the turn, said while they stream."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from agents import Model, ModelBehaviorError, ModelProvider, ModelResponse, ModelRetryAdvice
from agents.models.fake_id import FAKE_RESPONSES_ID
from openai.types.responses import Response, ResponseCompletedEvent

from zhin_host.agents.openai_agents.answer import Answer, answer_of, form_of, response_of, text_of
from zhin_host.agents.openai_agents.run import HostedRun, current_run


class RecordedModel(Model):
    """Asks another model, unless the turn's record has the answer. Outside of a turn it only passes on.

    Args:
        inner: The model that answers.
    """

    def __init__(self, inner: Model) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)  # what the SDK asks of some models beside their interface

    async def close(self) -> None:
        await self.inner.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self.inner._cleanup_on_run_end(owner)  # noqa: SLF001 - the interface names it so

    def get_retry_advice(self, request: Any) -> ModelRetryAdvice | None:
        if current_run() is None:
            return self.inner.get_retry_advice(request)
        # The turn has tried again already; and another request from here would be another action.
        return ModelRetryAdvice(suggested=False, replay_safety="unsafe")

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        run = current_run()
        if run is None:
            return await self.inner.get_response(*args, **kwargs)
        return await self._answered(run, args, kwargs)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        run = current_run()
        if run is None:
            async with _closing(self.inner.stream_response(*args, **kwargs)) as events:
                async for event in events:
                    yield event
        else:
            yield _completed(await self._answered(run, args, kwargs))

    async def _answered(self, run: HostedRun, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ModelResponse:
        run.works()
        if not run.within:
            await run.approvals.close_unused()  # the step before is over
        given = kwargs["input"] if "input" in kwargs else args[1]

        async def ask(messages: int, within: str = "") -> dict[str, Any]:  # noqa: ARG001 - for the log
            return {"model": self._name, **form_of(await self._streamed(run, args, kwargs))}

        # Calls of agents as tools run side by side: `within` keeps their requests apart in every attempt. The model's
        # name is in the answer: a turn that waits for a person goes on when another model was put in its place.
        within = {"within": run.within} if run.within else {}
        messages = len(given) if isinstance(given, list) else 1
        form = await run.turn.run("model", ask, retry=run.retry, messages=messages, **within)
        response = response_of(form)
        if not run.within:
            run.has_said(text_of(response.output))
        return response

    async def _streamed(self, run: HostedRun, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer:
        """The whole answer, having said its words as they came.

        Raises:
            ModelBehaviorError: The stream ended without one.
        """
        speaker = _Speaker(run)
        items: list[Any] = []
        ended: Response | None = None
        async with _closing(self.inner.stream_response(*args, **kwargs)) as events:
            async for event in events:
                await speaker.hear(event)
                match event.type:
                    case "response.output_item.done":
                        items.append(event.item)
                    case "response.completed":
                        ended = event.response
                    case "response.failed" | "response.incomplete" | "error":
                        raise ModelBehaviorError(
                            f"the model's answer ended as {event.type}: {_why(event):.500}"
                        )
                    case _:
                        pass
        if ended is None:
            raise ModelBehaviorError("the model's stream ended without an answer")
        answer = answer_of(ended, items)
        await speaker.say_unheard(answer.output)
        return answer

    @property
    def _name(self) -> str:
        name = getattr(self.inner, "model", None)
        return str(name) if isinstance(name, str) and name else type(self.inner).__name__


class RecordedProvider(ModelProvider):
    """Finds models by name, as another one does, and records what they answer."""

    def __init__(self, inner: ModelProvider) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def get_model(self, model_name: str | None) -> Model:
        return recorded_model(self.inner.get_model(model_name))

    async def aclose(self) -> None:
        await self.inner.aclose()


def recorded_model(model: Model) -> RecordedModel:
    """The model, recorded; one that is recorded already as it is."""
    return model if isinstance(model, RecordedModel) else RecordedModel(model)


def recorded_provider(provider: ModelProvider) -> RecordedProvider:
    """The provider, its models recorded; one that does so already as it is."""
    return provider if isinstance(provider, RecordedProvider) else RecordedProvider(provider)


class _Speaker:
    """Says what a stream tells: text, refusals, reasoning, and tools that the model's own service has run."""

    _SAID = frozenset({"response.output_text.delta", "response.refusal.delta"})
    _THOUGHT = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
    _OURS = frozenset({"message", "reasoning", "function_call", "custom_tool_call", "mcp_approval_request"})

    def __init__(self, run: HostedRun) -> None:
        self._run = run
        self._is_answer = not run.within
        self._said: set[Any] = set()  # which items of the answer

    async def hear(self, event: Any) -> None:
        if event.type == "response.output_item.done" and event.item.type not in self._OURS:
            item = event.item
            told = {
                "type": item.type,
                "id": getattr(item, "id", None),
                "status": getattr(item, "status", None),
            }
            await self._run.turn.emit("x.openai.hosted_tool", told)
        elif not self._is_answer:
            return
        elif event.type in self._SAID:
            await self._say(event.item_id, event.delta)
        elif event.type in self._THOUGHT:
            await self._run.think(event.delta)

    async def say_unheard(self, output: list[Any]) -> None:
        """Say the text of an answer that came without deltas, as a model that does not stream gives it."""
        if self._is_answer and not self._said:
            await self._run.say(text_of(output))

    async def _say(self, item: Any, delta: str) -> None:
        await self._run.say(delta, begins=item not in self._said)
        self._said.add(item)


@contextlib.asynccontextmanager
async def _closing(events: AsyncIterator[Any]) -> AsyncIterator[AsyncIterator[Any]]:
    """The stream, closed behind the block: its connection is not left to the garbage collector."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


def _completed(response: ModelResponse) -> ResponseCompletedEvent:
    """The end of a stream, as the SDK reads it, with a whole answer."""
    usage = response.usage
    whole = Response.construct(
        id=response.response_id or FAKE_RESPONSES_ID,
        created_at=0,
        model="",
        object="response",
        output=response.output,
        tool_choice="auto",
        tools=[],
        parallel_tool_calls=True,
        usage={
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "input_tokens_details": usage.input_tokens_details,
            "output_tokens_details": usage.output_tokens_details,
        },
    )
    return ResponseCompletedEvent.construct(type="response.completed", response=whole, sequence_number=0)


def _why(event: Any) -> str:
    response = getattr(event, "response", None)
    for told in (getattr(response, "error", None), getattr(response, "incomplete_details", None)):
        if told is not None:
            return str(getattr(told, "message", None) or getattr(told, "reason", None) or told)
    return str(getattr(event, "message", "") or "it gave no reason")
