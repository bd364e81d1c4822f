"""Forms: what nodes and tools return, and a graph's checkpoint, as JSON that an auditor can read.

JSON stands for itself. A message is `{"$message": …}`, a Command `{"$command": …}`, a Send `{"$send": …}`; a dict that
has a key that begins so or is no text `{"$dict": [[key, value], …]}`, a tuple `{"$tuple": […]}`, an integer beyond 64
bits `{"$int": …}`. Anything else is `{"$langgraph": [kind, base64]}`, in the form that LangGraph's own checkpointers
have of it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from langchain_core.messages import BaseMessage, messages_from_dict
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command, Send

_SERIALIZER: Final = JsonPlusSerializer()
_INTEGER_MAX: Final = 2**63
_MARK: Final = "$"


def json_of(value: Any) -> Any:
    """The value in its JSON form.

    Raises:
        TypeError: It has none: LangGraph's checkpointers could not save it either.
    """
    match value:
        case None | bool():
            return value
        case _ if type(value) is str or _is_plain_number(value):
            return value
        case _ if type(value) is int:
            return {"$int": str(value)}
        case _ if type(value) is list:
            return [json_of(item) for item in value]
        case _ if type(value) is tuple:
            return {"$tuple": [json_of(item) for item in value]}
        case _ if type(value) is dict:
            return _json_of_dict(value)
        case BaseMessage():
            return {"$message": {"type": value.type, "data": json_of(_told_of(value))}}
        case Command():
            told = {row.name: getattr(value, row.name) for row in fields(value)}
            return {"$command": {name: json_of(item) for name, item in told.items() if item}}
        case Send() if getattr(value, "timeout", None) is None:
            return {"$send": {"node": value.node, "arg": json_of(value.arg)}}
        case _:
            kind, raw = _SERIALIZER.dumps_typed(value)
            return {"$langgraph": [kind, base64.b64encode(raw).decode()]}


def value_of(form: Any) -> Any:
    """The value that has this form."""
    match form:
        case list():
            return [value_of(item) for item in form]
        case {"$message": {"type": kind, "data": data}}:
            return messages_from_dict([{"type": kind, "data": value_of(data)}])[0]
        case {"$command": told}:
            return Command(**{name: value_of(item) for name, item in told.items()})
        case {"$send": {"node": node, "arg": arg}}:
            return Send(node, value_of(arg))
        case {"$int": digits}:
            return int(digits)
        case {"$tuple": items}:
            return tuple(value_of(item) for item in items)
        case {"$dict": rows}:
            return {value_of(key): value_of(item) for key, item in rows}
        case {"$langgraph": [kind, raw]}:
            return _SERIALIZER.loads_typed((kind, base64.b64decode(raw)))
        case dict():
            return {key: value_of(item) for key, item in form.items()}
        case _:
            return form


def _is_plain_number(value: Any) -> bool:
    if type(value) is int:
        return -_INTEGER_MAX <= value < _INTEGER_MAX
    return type(value) is float and math.isfinite(value)


def _told_of(message: BaseMessage) -> dict[str, Any]:
    """What is said of a message beside the defaults of its class; `model_dump` would make dicts of what is in it."""
    rows = type(message).model_fields
    return {
        name: value
        for name, value in message
        if name not in rows or value != rows[name].get_default(call_default_factory=True)
    }


def _json_of_dict(value: Mapping[Any, Any]) -> dict[str, Any]:
    if all(type(key) is str and not key.startswith(_MARK) for key in value):
        return {key: json_of(item) for key, item in value.items()}
    return {"$dict": [[json_of(key), json_of(item)] for key, item in value.items()]}
