"""Values: arguments and results of tools as JSON, and back to what the library takes them for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic_ai.messages import BinaryContent, FileUrl, ToolReturn
from pydantic_core import to_json, to_jsonable_python

DEFERRED: Final = "deferred"
"""The `kind` of a recorded result that is none: the call waits for somebody."""

_TOOL_RETURN: Final[TypeAdapter[ToolReturn[Any]]] = TypeAdapter(ToolReturn)
_KINDS: Final = (
    "tool-return",
    DEFERRED,
)  # a tool's own value of one of these kinds is carried inside another


def arguments_form(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Validated arguments as JSON, the same in every process: what people are shown and calls are told apart by."""
    return {name: _form(value) for name, value in arguments.items()}


def _form(value: Any) -> Any:
    match value:
        case BaseModel():
            return _form(value.model_dump(by_alias=True))
        case Mapping():
            return {key: _form(item) for key, item in value.items()}
        case list() | tuple():
            return [_form(item) for item in value]
        case set() | frozenset():  # their order is another in each process
            return sorted((_form(item) for item in value), key=to_json)
        case _:
            return to_jsonable_python(value, by_alias=True)


def result_form(value: Any) -> Any:
    """What a tool returned, as JSON: as it is, or, where that would lose something, as a ToolReturn around it."""
    if isinstance(value, ToolReturn):
        return _TOOL_RETURN.dump_python(value, mode="json")
    if _holds_files(value) or (isinstance(value, Mapping) and value.get("kind") in _KINDS):
        return _TOOL_RETURN.dump_python(ToolReturn(value), mode="json")
    return to_jsonable_python(value)


def _holds_files(value: Any) -> bool:
    match value:
        case BinaryContent() | FileUrl():
            return True
        case Mapping():
            return any(map(_holds_files, value.values()))
        case list() | tuple():
            return any(map(_holds_files, value))
        case _:
            return False


def result_of(recorded: Any) -> Any:
    """What the library gets of a recorded result."""
    if isinstance(recorded, dict) and recorded.get("kind") == "tool-return":
        return _TOOL_RETURN.validate_json(to_json(recorded))
    return recorded


def deferred_form(waits_for: str, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """The recorded result of a call that waits: for "approval", or for an answer ("question" or "external")."""
    return {
        "kind": DEFERRED,
        "waitsFor": waits_for,
        **({} if metadata is None else {"metadata": to_jsonable_python(metadata)}),
    }


def waits_for(recorded: Any) -> str | None:
    """What a recorded result says that its call waits for; None for a result."""
    is_deferred = isinstance(recorded, dict) and recorded.get("kind") == DEFERRED
    return str(recorded["waitsFor"]) if is_deferred else None


def metadata_of(recorded: Mapping[str, Any]) -> dict[str, Any] | None:
    """What stood beside the wish to wait."""
    found: dict[str, Any] | None = recorded.get("metadata")
    return found
