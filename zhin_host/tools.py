"""Tools: `@tool` makes a function callable by an agent, with a schema from its signature and an approval policy."""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, overload

from zhin_host.arguments import Arguments, SchemaArguments, SignatureArguments
from zhin_host.events import json_bytes

_log = logging.getLogger("zhin_host.tools")

Policy = Literal["never", "once", "always", "on-risk"]
Approval = Policy | Callable[..., bool | Awaitable[bool]]
Scope = Literal["call", "session"]

_NAME_CHARACTERS = 64  # what those who serve models take at most
_POLICIES = ("never", "once", "always", "on-risk")


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
    _arguments: Arguments = field(repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str,
        schema: Mapping[str, Any],
        function: Callable[..., Any],
        *,
        approval: Approval = "never",
        repeatable: bool = True,
        expires_s: float | None = None,
    ) -> Tool:
        """A tool that something else describes: a framework, a server of tools. For a function, write `@tool`.

        Args:
            name: As `@tool` has it.
            description: What it does, for the model and for who approves it.
            schema: JSON Schema of its arguments, an object. Whoever gave it checks them; here they are only shown.
            function: Async or plain; it gets the arguments by name, as JSON.
            approval: As `@tool` has it.
            repeatable: As `@tool` has it.
            expires_s: As `@tool` has it.

        Raises:
            TypeError: The policy is unknown.
            ValueError: The name is not 1 to 64 printable characters.
        """
        _check_policy(approval)
        _check_name(name)
        return cls(name, description, function, approval, repeatable, expires_s, SchemaArguments(schema))

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments, an object."""
        return self._arguments.schema

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
        return self._arguments.bind(arguments)

    def values(self, shown: bytes) -> dict[str, Any]:
        """The Python values of arguments in their JSON form: what the function gets is what was shown."""
        return self._arguments.values(shown)

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
    _check_policy(approval)

    def make(wrapped: Callable[..., Any]) -> Tool:
        tool_name = wrapped.__name__ if name is None else name
        _check_name(tool_name)
        return Tool(
            name=tool_name,
            description=(inspect.getdoc(wrapped) or "").split("\n\n")[0],
            function=wrapped,
            approval=approval,
            is_repeatable=repeatable,
            expires_s=expires_s,
            _arguments=SignatureArguments(tool_name, wrapped),
        )

    return make if function is None else make(function)


def _check_policy(approval: Approval) -> None:
    if not callable(approval) and approval not in _POLICIES:
        raise TypeError(f"approval is one of {', '.join(_POLICIES)} or a function, not {approval!r}")


def _check_name(name: str) -> None:
    if not (0 < len(name) <= _NAME_CHARACTERS and name.isprintable()):
        raise ValueError(f"a tool's name is 1 to 64 printable characters, not {name!r:.80}")


def tools_digest(tools: Iterable[Tool]) -> str:
    """`sha256:` and a hex digest of the tools' names, schemas and policies: it changes when what was approved may."""
    rows = sorted((row.name, row.schema, row.policy_name) for row in tools)
    return "sha256:" + hashlib.sha256(json_bytes(rows)).hexdigest()
