"""Voice: what of a model's answers readers hear while they stream, and what is said of the run's output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Union, get_args, get_origin

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.output import TextOutput
from pydantic_core import to_json

from zhin_host import Turn

_BETWEEN: Final = "\n\n"
_PIECE_CHARACTERS: Final = 16_384  # fits a line whatever the characters are


def answers_in_text(agent: Agent[Any, Any]) -> bool:
    """Whether the text of a model's answer, as it is, may be the run's output.

    Where a function or a validator stands between the two, or the output is structured, the text may be refused or
    become something else: it is not heard before that is known.
    """
    kinds = list(_kinds(agent.output_type))
    validators = getattr(agent, "_output_validators", ())  # nothing public tells of them
    return str in kinds and not validators and not any(isinstance(kind, TextOutput) for kind in kinds)


def _kinds(output_type: Any) -> Iterator[Any]:
    """The output types one by one: lists and unions are taken apart."""
    if isinstance(output_type, list | tuple):
        for kind in output_type:
            yield from _kinds(kind)
    elif get_origin(output_type) is Union or isinstance(output_type, _UNION):
        for kind in get_args(output_type):
            yield from _kinds(kind)
    else:
        yield output_type


_UNION: Final = type(int | str)


class Voice:
    """Says the answers of one turn's models, and what its run came to.

    Args:
        turn: Who says and thinks.
        is_heard: Whether text is said while it streams; reasoning always is.
    """

    def __init__(self, turn: Turn, *, is_heard: bool) -> None:
        self._turn = turn
        self._is_heard = is_heard
        self._has_spoken = False  # in an answer before this one
        self._is_speaking = False  # in this one
        self._last = ""  # the text of the last answer

    def begin(self) -> None:
        """An answer begins; what a try before it said, if anything, does not count."""
        self._is_speaking = False

    async def hear(self, event: Any) -> None:
        """Say or think what an event of the answer's stream adds."""
        match event:
            case (
                PartStartEvent(part=TextPart(content=text))
                | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
            ):
                await self._text(text)
            case (
                PartStartEvent(part=ThinkingPart(content=text))
                | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text)))
            ):
                await self._think(text)
            case _:
                pass

    async def tell(self, response: ModelResponse) -> None:
        """Say and think an answer that did not stream."""
        for part in response.parts:
            if isinstance(part, TextPart):
                await self._text(part.content)
            elif isinstance(part, ThinkingPart):
                await self._think(part.content)

    def remember(self, response: ModelResponse) -> None:
        """The answer is whole, heard just now or in an attempt before."""
        self._last = "".join(part.content for part in response.parts if isinstance(part, TextPart))
        self._has_spoken = self._has_spoken or (self._is_heard and bool(self._last))
        self._is_speaking = False

    async def conclude(self, output: Any) -> None:
        """Say the run's output, unless it is the text that was heard: a text as it is, anything else as JSON."""
        if self._is_heard and isinstance(output, str) and output.strip() == self._last.strip():
            return
        text = output if isinstance(output, str) else to_json(output, fallback=str).decode()
        await self._say(text)

    async def _text(self, text: str) -> None:
        if self._is_heard and text:
            await self._say(text)

    async def _say(self, text: str) -> None:
        if self._has_spoken and not self._is_speaking:
            await self._turn.say(_BETWEEN)
        self._is_speaking = True
        for piece in _pieces(text):
            await self._turn.say(piece)

    async def _think(self, text: str) -> None:
        for piece in _pieces(text):
            await self._turn.think(piece)


def _pieces(text: str) -> Iterator[str]:
    for at in range(0, len(text), _PIECE_CHARACTERS):
        yield text[at : at + _PIECE_CHARACTERS]
