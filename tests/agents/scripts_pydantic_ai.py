"""Script: what the library's FunctionModel answers in a test, request by request, and how often it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_core import to_json


@dataclass(frozen=True)
class Thought:
    """A piece of reasoning."""

    text: str


@dataclass(frozen=True)
class Use:
    """A call of a tool; its id is made of its name and the arguments."""

    name: str
    arguments: dict[str, Any]
    call_id: str = ""


Piece = str | Thought | Use | BaseException


class Script:
    """Answers the n-th request of each run with the n-th row, piece by piece; an exception among them is raised.

    Attributes:
        asked: The messages of each request so far.
    """

    def __init__(self, *rows: Sequence[Piece]) -> None:
        self.rows = rows
        self.asked: list[list[ModelMessage]] = []

    def model(self) -> FunctionModel:
        return FunctionModel(stream_function=self._stream, model_name="scripted")

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        self.asked.append(messages)
        for at, piece in enumerate(self.rows[answers_given(messages)]):
            match piece:
                case str():
                    yield piece
                case Thought():
                    yield {at: DeltaThinkingPart(content=piece.text)}
                case Use():
                    arguments = to_json(piece.arguments).decode()
                    call_id = piece.call_id or f"{piece.name} {arguments}"
                    yield {at: DeltaToolCall(piece.name, arguments, tool_call_id=call_id)}
                case BaseException():
                    raise piece


def answers_given(messages: Sequence[ModelMessage]) -> int:
    """How many answers the run has had."""
    run_id = messages[-1].run_id
    return sum(isinstance(message, ModelResponse) and message.run_id == run_id for message in messages)


def told(message: ModelMessage) -> list[tuple[str, Any]]:
    """The kind and the content of each part of a message."""
    return [(part.part_kind, getattr(part, "content", None)) for part in message.parts]
