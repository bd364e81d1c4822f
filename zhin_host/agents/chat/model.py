"""Model: one streamed answer of an endpoint that speaks OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, Protocol, cast

import openai

_CONNECT_TIMEOUT_S: Final = 10.0
_TRANSIENT: Final = (openai.APIConnectionError, openai.RateLimitError, openai.InternalServerError)
_REASONING: Final = ("reasoning_content", "reasoning")  # what servers call it; OpenAI's own API sends none


class ModelUnavailable(Exception):
    """The model could not answer now: no connection, 429, 5xx, or a stream that broke off; worth another try.

    Attributes:
        retry_after_s: The pause that the server asked for, seconds; None when it asked for none.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for; `arguments` is the text it wrote, JSON if it did well."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the model, whole.

    Attributes:
        model: The model that gave it, as the server names it.
        text: What it said.
        tool_calls: What it asks for, in its order.
        finish_reason: "stop", "length", "tool_calls", "content_filter" or another word of the server's.
        usage: {"inputTokens", "outputTokens"} as the server counted them; {} when it told nothing.
    """

    model: str
    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    usage: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "text": self.text,
            "toolCalls": [asdict(call) for call in self.tool_calls],
            "finishReason": self.finish_reason,
            "usage": self.usage,
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Answer:
        calls = tuple(ToolCall(**call) for call in form["toolCalls"])
        return cls(form["model"], form["text"], calls, form["finishReason"], form["usage"])


class Listener(Protocol):
    """Who hears an answer while it comes: the turn."""

    async def say(self, text: str) -> None: ...

    async def think(self, text: str) -> None: ...


class Model:
    """A model of an endpoint.

    Args:
        name: The model's name, as the endpoint has it.
        base_url: The endpoint; None: OPENAI_BASE_URL, else OpenAI's own.
        api_key: Its key; None: OPENAI_API_KEY. An endpoint that is named may do without.
        silence_s: The longest wait for the next piece of an answer, seconds.
        characters_max: Where an answer that does not end is cut off ("length"), characters.
        parameters: What else goes into each request: temperature, max_completion_tokens, …
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None,
        api_key: str | None,
        silence_s: float,
        characters_max: int,
        parameters: Mapping[str, Any],
    ) -> None:
        self.name = name
        self._characters_max = characters_max
        self._parameters = dict(parameters)
        self._connect = partial(
            openai.AsyncOpenAI,
            base_url=base_url,
            api_key=api_key,
            timeout=openai.Timeout(silence_s, connect=_CONNECT_TIMEOUT_S),
            max_retries=0,  # tries are the turn's: each is in the log
        )
        self._client = self._connect()

    async def aclose(self) -> None:
        """Close its connections. It may be asked again: the next answer opens new ones."""
        client, self._client = self._client, self._connect()
        await client.close()

    async def answer(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], listener: Listener
    ) -> Answer:
        """Ask for one answer, and tell the listener of it while it comes.

        Raises:
            ModelUnavailable: Another try may succeed.
            openai.APIStatusError: None will: the request is refused (400, 401, 404, …).
        """
        request: dict[str, Any] = {"model": self.name, "messages": list(messages), **self._parameters}
        if tools:
            request["tools"] = list(tools)
        try:
            stream = await self._client.chat.completions.create(
                **request, stream=True, stream_options={"include_usage": True}
            )
        except _TRANSIENT as error:
            raise ModelUnavailable(_sentence(error), _retry_after_s(error)) from error
        pieces = _Pieces(self.name, self._characters_max)
        try:
            async with aclosing(_chunks(stream)) as chunks:
                async for chunk in chunks:
                    await pieces.take(chunk, listener)
                    if pieces.is_too_long:
                        break
        finally:
            await stream.close()
        return pieces.answer()


class _Pieces:
    """Puts an answer together from the pieces it comes in."""

    def __init__(self, model: str, characters_max: int) -> None:
        self._model = model
        self._room = characters_max
        self._text: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}
        self._finish_reason: str | None = None
        self._usage: dict[str, int] = {}

    @property
    def is_too_long(self) -> bool:
        return self._room < 0

    async def take(self, chunk: Any, listener: Listener) -> None:
        self._model = chunk.model or self._model
        if chunk.usage is not None:
            self._usage = {
                "inputTokens": chunk.usage.prompt_tokens,
                "outputTokens": chunk.usage.completion_tokens,
            }
        for choice in chunk.choices[:1]:
            delta = choice.delta
            for name in _REASONING:
                if isinstance(thought := getattr(delta, name, None), str) and thought:
                    self._room -= len(thought)
                    await listener.think(thought)
                    break
            if text := delta.content or delta.refusal:
                self._room -= len(text)
                self._text.append(text)
                await listener.say(text)
            for call in delta.tool_calls or ():
                self._take_call(call)
            self._finish_reason = choice.finish_reason or self._finish_reason

    def _take_call(self, piece: Any) -> None:
        call = self._calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
        call["id"] = piece.id or call["id"]
        if piece.function is not None:
            call["name"] = piece.function.name or call["name"]
            call["arguments"] += piece.function.arguments or ""
            self._room -= len(piece.function.arguments or "")

    def answer(self) -> Answer:
        """The whole answer.

        Raises:
            ModelUnavailable: The stream ended before it did.
        """
        if self.is_too_long:  # calls that are not whole are not made
            return Answer(self._model, "".join(self._text), (), "length", self._usage)
        if self._finish_reason is None:
            raise ModelUnavailable("The model's stream ended in the middle of its answer.")
        calls = tuple(
            ToolCall(call["id"] or f"call_{at}", call["name"], call["arguments"])
            for at, call in sorted(self._calls.items())
        )
        return Answer(self._model, "".join(self._text), calls, self._finish_reason, self._usage)


async def _chunks(stream: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    """The stream's chunks; whatever goes wrong while they come, the stream has broken off."""
    try:
        async for chunk in stream:
            yield chunk
    except Exception as error:
        raise ModelUnavailable(f"The model's stream broke off: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    if isinstance(error, openai.APIStatusError):
        return f"{error.status_code}: {error.message}"
    cause = error.__cause__
    return f"{error}" if cause is None else f"{error} ({type(cause).__name__}: {cause})"


def _retry_after_s(error: Exception) -> float | None:
    """The Retry-After of a refusal, in seconds; a date, which few send, is not read."""
    if not isinstance(error, openai.APIStatusError):
        return None
    text = cast("str", error.response.headers.get("retry-after", ""))
    return float(text) if text.replace(".", "", 1).isdecimal() and text.isascii() else None
