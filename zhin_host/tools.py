"""Tools: `@tool` makes a function callable by an agent, with a schema from its signature and an approval policy."""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, overload

import pydantic
from pydantic import BaseModel, ConfigDict, create_model

from zhin_host.errors import ZhinError
from zhin_host.events import json_bytes, json_form

_log = logging.getLogger("zhin_host.tools")

Policy = Literal["never", "once", "always", "on-risk"]
Approval = Policy | Callable[..., bool | Awaitable[bool]]
Scope = Literal["call", "session"]

_NAME_CHARACTERS = 64  # what those who serve models take at most
_POLICIES = ("never", "once", "always", "on-risk")


class BadArguments(ZhinError):
    """The arguments do not fit the tool's signature; the message names the argument."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function an agent may call through `turn.call_tool`; calling it directly runs it without gate or record.

    Attributes:
        name: What events and the model call it.
        description: The first paragraph of its docstring.
        approval: When a person is asked first: "never"; "once" per session; "always" (also spelled "on-risk"); or a
            function of the arguments that says whether to ask. A policy that raises, asks.
        is_repeatable: Whether it may run again when a crash cut it off; if not, a person is asked first.
        expires_s: When its approval request expires, seconds; None: as the host says; 0: never.
    """

    name: str
    description: str
    function: Callable[..., Any]
    approval: Approval
    is_repeatable: bool
    expires_s: float | None
    _model: type[BaseModel] = field(repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments, an object."""
        return self._model.model_json_schema()

    @property
    def policy_name(self) -> str:
        """What GET /info says of the policy: its name, "function" for one's own."""
        return self.approval if isinstance(self.approval, str) else "function"

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments checked against the signature, defaults filled in, in their JSON forms.

        Raises:
            BadArguments: One is missing, unknown or of a wrong type.
            Unserializable: One has no JSON form.
        """
        try:
            form = json_form(_values(self._model.model_validate(arguments)))
            self.values(json_bytes(form))  # NaN has a JSON form, null, which is no float
        except pydantic.ValidationError as error:
            raise BadArguments(_first_error(self.name, error)) from None
        return cast("dict[str, Any]", form)

    def values(self, shown: bytes) -> dict[str, Any]:
        """The Python values of arguments in their JSON form: what the function gets is what was shown."""
        return _values(self._model.model_validate_json(shown))

    async def scope_to_ask(self, shown: bytes, grants: Iterable[str]) -> Scope | None:
        """Whether a person must be asked before a call with these arguments, and for how much; None: go on.

        Args:
            shown: The bound arguments, as JSON bytes.
            grants: Tools allowed for the rest of the session.
        """
        if self.approval == "never":
            return None
        if self.approval == "once":
            return None if self.name in grants else "session"
        if isinstance(self.approval, str):
            return "call"
        try:
            verdict = self.approval(**self.values(shown))
            if inspect.isawaitable(verdict):
                verdict = await verdict
        except Exception:  # noqa: BLE001 - whatever a policy raises, a person is asked
            _log.exception("the approval policy of tool %s raised; a person is asked", self.name)
            return "call"
        return "call" if verdict else None


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    approval: Approval = "never",
    repeatable: bool = True,
    expires_s: float | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    approval: Approval = "never",
    repeatable: bool = True,
    expires_s: float | None = None,
    name: str | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, async or plain (run in a thread). All its arguments are given by name.

    Raises:
        TypeError: The policy is unknown, or a parameter cannot be given by name or has a type without a JSON form.
        ValueError: The name is not 1 to 64 printable characters.
    """
    if not callable(approval) and approval not in _POLICIES:
        raise TypeError(f"approval is one of {', '.join(_POLICIES)} or a function, not {approval!r}")

    def make(wrapped: Callable[..., Any]) -> Tool:
        tool_name = wrapped.__name__ if name is None else name
        if not (0 < len(tool_name) <= _NAME_CHARACTERS and tool_name.isprintable()):
            raise ValueError(f"a tool's name is 1 to 64 printable characters, not {tool_name!r:.80}")
        return Tool(
            name=tool_name,
            description=(inspect.getdoc(wrapped) or "").split("\n\n")[0],
            function=wrapped,
            approval=approval,
            is_repeatable=repeatable,
            expires_s=expires_s,
            _model=_arguments_model(tool_name, wrapped),
        )

    return make if function is None else make(function)


def tools_digest(tools: Iterable[Tool]) -> str:
    """`sha256:` and a hex digest of the tools' names, schemas and policies: it changes when what was approved may."""
    rows = sorted((row.name, row.schema, row.policy_name) for row in tools)
    return "sha256:" + hashlib.sha256(json_bytes(rows)).hexdigest()


def _arguments_model(tool_name: str, function: Callable[..., Any]) -> type[BaseModel]:
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
