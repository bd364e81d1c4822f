"""Question: what a person is asked for a call whose result comes from outside the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pydantic_ai.messages import ToolCallPart
from pydantic_core import to_json

_SHOWN_CHARACTERS: Final = 4_000  # of the arguments, in a prompt that has no words of its own


class Question(NamedTuple):
    """What `turn.ask` takes."""

    prompt: str
    options: list[Any] | None


def question_of(call: ToolCallPart, metadata: Mapping[str, Any]) -> Question:
    """The question for a deferred call.

    Args:
        call: The call as the model made it.
        metadata: Those of the CallDeferred that the tool raised: `prompt` and `options`, both optional, are the
            question's own. Without a prompt the tool and its arguments are shown.
    """
    options = metadata.get("options")
    arguments = to_json(call.args_as_dict()).decode()
    if len(arguments) > _SHOWN_CHARACTERS:
        arguments = f"{arguments[:_SHOWN_CHARACTERS]}…"
    prompt = metadata.get("prompt") or f"What is the result of {call.tool_name} with {arguments}?"
    return Question(str(prompt), None if options is None else list(options))
