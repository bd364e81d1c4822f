"""Voice: what a node's models say while they run, told to the turn token by token, and what they used."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, LLMResult
from langchain_core.tracers.context import register_configure_hook
from langgraph.constants import TAG_NOSTREAM
from langgraph.types import Command
from pydantic import BaseModel

from zhin_host import Turn

_PARAGRAPH: Final = "\n\n"
_COUNTED: Final = ("input_tokens", "output_tokens", "total_tokens")


@dataclass(slots=True)
class Told:
    """What was said and used, by one node's run or by a whole turn.

    Attributes:
        has_spoken: Whether any text was said.
        usage: requests, input_tokens, output_tokens and total_tokens, as far as the models tell.
        reason: Why the last model's answer ended, in its provider's word; "" when it told none.
    """

    has_spoken: bool = False
    usage: Counter[str] = field(default_factory=Counter)
    reason: str = ""

    def form(self) -> dict[str, Any]:
        """As an action's result has it, {} when there is nothing to tell."""
        told = {"said": self.has_spoken, "usage": dict(self.usage), "reason": self.reason}
        return {name: value for name, value in told.items() if value}

    def add(self, form: Mapping[str, Any]) -> None:
        """Add what an action's result tells."""
        self.has_spoken |= form.get("said", False)
        self.usage.update(form.get("usage", {}))
        self.reason = form.get("reason") or self.reason


class Voice(AsyncCallbackHandler):
    """Listens to the models of one node's run.

    Args:
        turn: Who says it.
        is_heard: Whether what these models say is part of the answer.
        is_first: Whether nothing was said before in the turn: what comes later begins a paragraph.

    Attributes:
        told: What they have said and used so far.
    """

    raise_error = True  # an attempt that is over must stop the model, and not be a line in a log

    def __init__(self, turn: Turn, *, is_heard: bool, is_first: bool) -> None:
        self.told = Told()
        self._turn = turn
        self._is_heard = is_heard
        self._needs_paragraph = not is_first
        self._loop = asyncio.get_running_loop()
        self._speaking: dict[
            UUID, bool
        ] = {}  # a model's run that is heard -> whether it has streamed anything
        self._known: set[str] = set()  # ids of messages that were told, or are not to be

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear every model that is asked in this block, however deep."""
        token = _listening.set(self)
        try:
            yield
        finally:
            _listening.reset(token)

    # -- callbacks -------------------------------------------------------------------------------------------------

    async def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        tags: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """A model is asked; its tag may say that nobody is to hear it."""
        self.told.usage["requests"] += 1
        if self._is_heard and TAG_NOSTREAM not in (tags or ()):
            self._speaking[run_id] = False

    async def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **kwargs: Any) -> None:
        """It says the next piece."""
        if isinstance(chunk, ChatGenerationChunk) and run_id in self._speaking:
            self._speaking[run_id] = True
            await self._on_loop(self._tell(chunk.message))

    async def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """It has ended: one that does not stream is heard now."""
        has_streamed = self._speaking.pop(run_id, True)
        for message in _messages_of(response):
            self._count(message)
            if not has_streamed:
                await self._on_loop(self._tell(message))
            if message.id is not None:
                self._known.add(message.id)

    # -- what no model said ----------------------------------------------------------------------------------------

    async def say_what_is_new(self, given: Any, returned: Any) -> None:
        """Say the answers that the node returns and that neither a model nor its input had."""
        if not self._is_heard:
            return
        self._known.update(message.id for message in messages_in(given) if message.id is not None)
        for message in messages_in(returned):
            if isinstance(message, AIMessage) and message.id not in self._known:
                self._begin_paragraph()
                await self._tell(message)

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _tell(self, message: BaseMessage) -> None:
        if message.id is not None and message.id not in self._known:
            self._known.add(message.id)
            self._begin_paragraph()
        for block in message.content_blocks:
            match block:
                case {"type": "text", "text": str(text)} if text:
                    await self._say(text)
                case {"type": "reasoning", "reasoning": str(text)}:
                    await self._turn.think(text)
                case _:
                    pass

    async def _say(self, text: str) -> None:
        if self._needs_paragraph:
            self._needs_paragraph = False
            await self._turn.say(_PARAGRAPH)
        self.told.has_spoken = True
        await self._turn.say(text)

    def _begin_paragraph(self) -> None:
        self._needs_paragraph |= self.told.has_spoken

    def _count(self, message: BaseMessage) -> None:
        if isinstance(message, AIMessage):
            used: Mapping[str, Any] = message.usage_metadata or {}
            self.told.usage.update({name: used[name] for name in _COUNTED if used.get(name)})
            told = message.response_metadata
            self.told.reason = str(told.get("finish_reason") or told.get("stop_reason") or "")

    async def _on_loop(self, telling: Awaitable[None]) -> None:
        """Tell it on the turn's loop: a node that is a plain function asks its model in a thread of its own."""
        if asyncio.get_running_loop() is self._loop:
            await telling
        else:
            future = asyncio.run_coroutine_threadsafe(_awaited(telling), self._loop)
            await asyncio.wrap_future(future)


_listening: ContextVar[Voice | None] = ContextVar("zhin_host_langgraph_voice", default=None)
register_configure_hook(_listening, inheritable=True)


def messages_in(value: Any) -> Iterable[BaseMessage]:
    """The messages at the top of a state, an update, a Command or a list of such."""
    match value:
        case BaseMessage():
            yield value
        case Command():
            yield from messages_in(value.update)
        case list() | tuple():
            for item in value:
                yield from messages_in(item)
        case dict() | BaseModel():
            for _, item in value.items() if isinstance(value, dict) else value:
                if isinstance(item, BaseMessage | list | tuple):
                    yield from messages_in(item)
        case _:
            pass


def _messages_of(response: LLMResult) -> Iterable[BaseMessage]:
    for row in response.generations:
        yield from (generation.message for generation in row if isinstance(generation, ChatGeneration))


async def _awaited(telling: Awaitable[None]) -> None:
    await telling
