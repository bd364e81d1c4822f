"""Arguments of a tool: by the signature of its function, or by a JSON Schema that came from elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, cast

import orjson
import pydantic
from pydantic import BaseModel, ConfigDict, create_model

from zhin_host.errors import ZhinError
from zhin_host.events import json_bytes, json_form


class BadArguments(ZhinError):
    """The arguments do not fit the tool's signature; the message names the argument."""


class Arguments(Protocol):
    """What a tool takes."""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments, an object."""

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments checked, defaults filled in, in their JSON forms.

        Raises:
            BadArguments: They do not fit.
            Unserializable: One has no JSON form.
        """

    def values(self, shown: bytes) -> dict[str, Any]:
        """What the function gets of arguments in their JSON form."""


class SignatureArguments:
    """Those of a Python function: checked against its annotations, given to it as their types.

    Raises:
        TypeError: A parameter cannot be given by name or has a type without a JSON form.
    """

    def __init__(self, tool_name: str, function: Callable[..., Any]) -> None:
        self._tool_name = tool_name
        self._model = _model_of(tool_name, function)

    @property
    def schema(self) -> dict[str, Any]:
        return self._model.model_json_schema()

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            form = json_form(_values(self._model.model_validate(arguments)))
            self.values(json_bytes(form))  # NaN has a JSON form, null, which is no float
        except pydantic.ValidationError as error:
            raise BadArguments(_first_error(self._tool_name, error)) from None
        return cast("dict[str, Any]", form)

    def values(self, shown: bytes) -> dict[str, Any]:
        return _values(self._model.model_validate_json(shown))


class SchemaArguments:
    """Those that a JSON Schema describes: given to the function as the JSON they are.

    They are not checked here: whoever wrote the schema (a framework, a server of tools) judges them by it.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = dict(schema)

    @property
    def schema(self) -> dict[str, Any]:
        return self._schema

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return cast("dict[str, Any]", json_form(dict(arguments)))

    def values(self, shown: bytes) -> dict[str, Any]:
        return cast("dict[str, Any]", orjson.loads(shown))


def _model_of(tool_name: str, function: Callable[..., Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    extra: Literal["allow", "forbid"] = "forbid"
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = "allow"
            continue
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise TypeError(f"tool {tool_name}: parameter {parameter.name} cannot be given by name")
        annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
        default = ... if parameter.default is parameter.empty else parameter.default
        # A field may not shadow BaseModel's own names nor begin with an underscore; an alias may.
        fields[f"p{len(fields)}"] = (annotation, pydantic.Field(default, alias=parameter.name))
    # Bytes are read back from the form that events.json_form gives them.
    config = ConfigDict(extra=extra, title=tool_name, val_json_bytes="base64", ser_json_bytes="base64")
    try:
        model = cast("type[BaseModel]", create_model(tool_name, __config__=config, **fields))
        model.model_json_schema()  # here, where the mistake is, and not in GET /info
    except pydantic.PydanticUserError as error:
        raise TypeError(f"tool {tool_name}: {error.message}") from error
    return model


def _values(model: BaseModel) -> dict[str, Any]:
    """Argument name -> Python value, in the order of the signature."""
    named = {row.alias or name: getattr(model, name) for name, row in type(model).model_fields.items()}
    return {**named, **(model.model_extra or {})}


def _first_error(tool_name: str, error: pydantic.ValidationError) -> str:
    row = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in row["loc"])
    return f"tool {tool_name}: argument {where}: {row['msg']}"
