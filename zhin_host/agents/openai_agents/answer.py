"""Answer: what a model answered, as the log has it and as the SDK takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from agents import ModelResponse, Usage
from openai.types.responses import Response
from pydantic import BaseModel, TypeAdapter

_USAGE: Final = TypeAdapter(Usage)


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's whole answer.

    Attributes:
        output: Its items, in order.
        usage: What it used, None where the model says nothing of it.
        response_id: The service's id of it.
    """

    output: list[Any]
    usage: Any
    response_id: str | None


def answer_of(response: Response, items: list[Any]) -> Answer:
    """The answer at the end of a stream; some services leave the items out there, having told them before."""
    return Answer(list(response.output) or items, response.usage, response.id)


def form_of(answer: Answer) -> dict[str, Any]:
    """The answer as JSON."""
    return {
        "output": [_dumped(item) for item in answer.output],
        "usage": None if answer.usage is None else _dumped(answer.usage),
        "responseId": answer.response_id,
    }


def response_of(form: dict[str, Any]) -> ModelResponse:
    """The answer as the SDK takes it, from its JSON: the same in the attempt that asked and in those that read it."""
    # As lenient as openai itself with what comes over the wire: unknown fields stay, missing ones are no error.
    return ModelResponse(
        output=Response.construct(output=form["output"]).output,
        usage=_usage_of(form["usage"]),
        response_id=form["responseId"],
    )


def text_of(output: list[Any]) -> str:
    """The words of its messages."""
    parts = [part for item in output if item.type == "message" for part in item.content]
    return "".join(getattr(part, "text", None) or getattr(part, "refusal", None) or "" for part in parts)


def _usage_of(form: dict[str, Any] | None) -> Usage:
    """One request's usage."""
    given = form or {}
    tokens = {name: given.get(name) or 0 for name in ("input_tokens", "output_tokens", "total_tokens")}
    details = {
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}
        | _of(given, "input_tokens_details"),
        "output_tokens_details": {"reasoning_tokens": 0} | _of(given, "output_tokens_details"),
    }
    return _USAGE.validate_python({"requests": 1, **tokens, **details})


def _of(form: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in (form.get(name) or {}).items() if value is not None}


def _dumped(item: Any) -> Any:
    return (
        item.model_dump(mode="json", exclude_unset=True, warnings=False)
        if isinstance(item, BaseModel)
        else item
    )
