"""Policies: what is decided about a remote tool by patterns of its name, and what where no pattern fits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeVar

import mcp.types as protocol

from zhin_host import Tool

Approval = Literal["never", "once", "always", "on-risk"] | Callable[..., bool | Awaitable[bool]]

_DEFAULT: Final[Approval] = "always"

_Value = TypeVar("_Value")


class Policies:
    """Patterns of `server.tool`, as of file names: `*` stands for any characters, dots too. The first that fits counts.

    Args:
        approval: Pattern -> approval policy, as for `@tool`.
        repeatable: Pattern -> whether a call that a crash cut off may run again without asking.

    Raises:
        TypeError: A policy is none.
    """

    def __init__(self, approval: Mapping[str, Approval], repeatable: Mapping[str, bool]) -> None:
        for policy in approval.values():
            Tool.from_schema("policy", "", {}, _nothing, approval=policy)
        self._approval = dict(approval)
        self._repeatable = dict(repeatable)

    def approval(self, server: str, tool: str) -> Approval:
        """When a person is asked: "always" where no pattern fits, whatever the server says of its tool."""
        policy = _first(self._approval, server, tool)
        return _DEFAULT if policy is None else policy

    def is_repeatable(self, server: str, tool: str, hints: protocol.ToolAnnotations | None) -> bool:
        """Whether it may run again after a crash: where no pattern fits, when the server says that it does no harm.

        Here a hint may decide: a server that lies in it only has its own tool run twice.
        """
        value = _first(self._repeatable, server, tool)
        if value is not None:
            return value
        return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)


def _first(patterns: Mapping[str, _Value], server: str, tool: str) -> _Value | None:
    name = f"{server}.{tool}"
    return next((value for pattern, value in patterns.items() if fnmatchcase(name, pattern)), None)


def _nothing(**arguments: Any) -> None:
    """Stands for a tool's function where only a policy is checked."""
