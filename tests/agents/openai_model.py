"""A model of the OpenAI Agents SDK for tests: it answers by a function of what it is sent, in streamed pieces."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from agents import Model, ModelResponse, Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseTextDeltaEvent,
)
from openai.types.responses.response_reasoning_item import Summary


@dataclass(frozen=True)
class Say:
    """A message, in the pieces that it is streamed in."""

    pieces: tuple[str, ...]


@dataclass(frozen=True)
class Think:
    """A summary of reasoning, in pieces."""

    pieces: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """A call of a function tool; arguments that are a string stand as they are."""

    name: str
    arguments: Any


@dataclass(frozen=True)
class Item:
    """An item of the answer as it is."""

    item: Any


Part = Say | Think | Call | Item
Reply = Callable[[list[Any]], list[Part]]


def say(text: str) -> Say:
    """A message of one piece a word."""
    return Say(tuple(word + " " for word in text.split(" ")))


class ScriptedModel(Model):
    """Answers what `reply` makes of the input items.

    Args:
        reply: From the input items to the parts of the answer.
        between: Awaited before each piece.
        streams: Whether pieces are told, or the answer only as a whole.
        name: A part of every id that it makes.
    """

    model = "scripted"

    def __init__(
        self,
        reply: Reply,
        between: Callable[[], Awaitable[None]] | None = None,
        *,
        streams: bool = True,
        name: str = "m",
    ) -> None:
        self.reply = reply
        self.between = between
        self.streams = streams
        self.name = name
        self.asked: list[list[Any]] = []
        self.open = 0

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        [whole] = [
            event.item async for event in self.stream_response(*args, **kwargs) if hasattr(event, "item")
        ]
        return ModelResponse(output=[whole], usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        given = kwargs["input"] if "input" in kwargs else args[1]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        self.asked.append(items)
        output: list[Any] = []
        self.open += 1
        try:
            for at, part in enumerate(self.reply(items)):
                name = f"{self.name}_{len(items)}_{at}"
                item = _item(name, part)
                async for event in self._pieces(item.id, part):
                    yield event
                output.append(item)
                yield ResponseOutputItemDoneEvent(
                    item=item, output_index=at, sequence_number=0, type="response.output_item.done"
                )
            yield ResponseCompletedEvent(
                response=_response(output), sequence_number=0, type="response.completed"
            )
        finally:
            self.open -= 1

    async def _pieces(self, item_id: str, part: Part) -> AsyncIterator[Any]:
        if not self.streams or not isinstance(part, Say | Think):
            return
        for number, piece in zip(count(), part.pieces, strict=False):
            if self.between is not None:
                await self.between()
            if isinstance(part, Say):
                yield ResponseTextDeltaEvent(
                    content_index=0,
                    delta=piece,
                    item_id=item_id,
                    logprobs=[],
                    output_index=0,
                    sequence_number=number,
                    type="response.output_text.delta",
                )
            else:
                yield ResponseReasoningSummaryTextDeltaEvent(
                    delta=piece,
                    item_id=item_id,
                    output_index=0,
                    sequence_number=number,
                    summary_index=0,
                    type="response.reasoning_summary_text.delta",
                )


def outputs(items: list[Any]) -> list[Any]:
    """What tools have given since the last message of a person."""
    last = max(at for at, item in enumerate(items) if item.get("role") == "user")
    return [item["output"] for item in items[last:] if item.get("type") == "function_call_output"]


def message(items: list[Any]) -> str:
    """The last message of a person."""
    return str([item["content"] for item in items if item.get("role") == "user"][-1])


def _item(name: str, part: Part) -> Any:
    match part:
        case Say(pieces):
            text = ResponseOutputText(annotations=[], text="".join(pieces), type="output_text")
            return ResponseOutputMessage(
                id=f"msg_{name}", content=[text], role="assistant", status="completed", type="message"
            )
        case Think(pieces):
            summary = Summary(text="".join(pieces), type="summary_text")
            return ResponseReasoningItem(id=f"rs_{name}", summary=[summary], type="reasoning")
        case Call(tool, arguments):
            text_form = arguments if isinstance(arguments, str) else json.dumps(arguments)
            return ResponseFunctionToolCall(
                arguments=text_form, call_id=f"call_{name}", id=f"fc_{name}", name=tool, type="function_call"
            )
        case Item(item):
            return item


def _response(output: list[Any]) -> Response:
    return Response.model_validate(
        {
            "id": "resp_1",
            "created_at": 0,
            "model": "scripted",
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 10,
                "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
                "output_tokens": 5,
                "output_tokens_details": {"reasoning_tokens": 1},
                "total_tokens": 15,
            },
        }
    )
