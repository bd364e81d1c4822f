"""McpTools: the tools of MCP servers as tools of an agent, each call an action behind its approval."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import mcp.types as protocol

from zhin_host import Tool, current_action
from zhin_host.agents.mcp.errors import McpServerUnreachable
from zhin_host.agents.mcp.names import name_of, prefixes_of, split_name
from zhin_host.agents.mcp.policies import Approval, Policies
from zhin_host.agents.mcp.remote import Remote
from zhin_host.agents.mcp.results import value_of
from zhin_host.agents.mcp.servers import read_file, servers_of

_log = logging.getLogger("zhin_host.agents.mcp")

CALL_TIMEOUT_S: Final = 120.0
OPEN_TIMEOUT_S: Final = 30.0  # package runners fetch a server when it is first started


class McpTools:
    """The tools of some servers. Sessions are opened when first needed and shared by all turns of one event loop.

    A tool is called `server__tool` by the model and in the log. A server that goes is opened again by the next call;
    when the loop ends, or with `aclose`, all are closed, and no process of them outlives this one by more than seconds.

    Args:
        servers: Name -> `{"command": …, "args": […], "env": {…}, "cwd": …}` or `{"url": …, "headers": {…}}`.
        approval: Pattern of `server.tool` -> when a person is asked, as for `@tool`. The first that fits counts; where
            none does, always.
        repeatable: Pattern -> whether a call that a crash cut off runs again without asking. Where none fits, as the
            server says of the tool.
        call_timeout_s: How long a call may take.
        open_timeout_s: How long a server may take to start and to list its tools.

    Raises:
        TypeError: A policy is none.
        ValueError: A server is none, or two would be called alike.
    """

    def __init__(
        self,
        servers: Mapping[str, Mapping[str, Any]],
        *,
        approval: Mapping[str, Approval] | None = None,
        repeatable: Mapping[str, bool] | None = None,
        call_timeout_s: float = CALL_TIMEOUT_S,
        open_timeout_s: float = OPEN_TIMEOUT_S,
    ) -> None:
        found = servers_of(servers)
        self._policies = Policies(approval or {}, repeatable or {})
        self._remotes = {
            prefix: Remote(name, found[name], open_timeout_s, call_timeout_s)
            for prefix, name in prefixes_of(found).items()
        }

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """From a JSON file `{"mcpServers": {…}}`, as other programs have it, with ours beside it.

        The object `zhin` of the file may have `approval`, `repeatable`, `callTimeoutS` and `openTimeoutS`. Texts of
        the servers may hold `${NAME}` or `${NAME:-default}`, variables of the environment.

        Raises:
            OSError, TypeError, ValueError: The file cannot be read, or says what cannot be.
        """
        servers, ours = read_file(path)
        names = {
            "approval": "approval",
            "repeatable": "repeatable",
            "callTimeoutS": "call_timeout_s",
            "openTimeoutS": "open_timeout_s",
        }
        if unknown := ours.keys() - names.keys():
            raise ValueError(f'{path}: "zhin" has no {", ".join(sorted(unknown))}')
        return cls(servers, **{names[key]: value for key, value in ours.items()})

    async def tools(self) -> list[Tool]:
        """The tools of all servers as they are now.

        Of a server that cannot be reached they are the ones that it last listed in this process, if it did: a call says
        then that it cannot be reached. The host's log has a warning for each such server.
        """
        listed = await asyncio.gather(*(self._list(remote) for remote in self._remotes.values()))
        found: dict[str, Tool] = {}
        for remote, rows in zip(self._remotes.values(), listed, strict=True):
            for row in rows.values():
                tool = self._tool_of(remote, row)
                if found.setdefault(tool.name, tool) is not tool:
                    _log.warning("two tools of the MCP server %s are called %s", remote.name, tool.name)
        return list(found.values())

    def tool(self, name: str) -> Tool:
        """The tool of this name, `server__tool`, whether its server is there or not: nothing is asked.

        An agent that names its tools, or is driven again from its record, takes the same path with it whatever the
        servers offer then. Before its server has listed it, it has no description and no schema.

        Raises:
            KeyError: No server here has tools of such a name.
        """
        prefix, rest = split_name(name)
        remote = self._remotes.get(prefix)
        if remote is None:
            raise KeyError(name)
        row = next(
            (row for row in (remote.known or {}).values() if name_of(remote.name, row.name) == name), None
        )
        if row is None:
            row = protocol.Tool(name=rest, input_schema={"type": "object"})
        return self._tool_of(remote, row, name)

    async def aclose(self) -> None:
        """Close every session and end every process; the next use opens them again."""
        await asyncio.gather(*(remote.aclose() for remote in self._remotes.values()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _list(self, remote: Remote) -> Mapping[str, protocol.Tool]:
        try:
            return await remote.list_tools()
        except McpServerUnreachable as error:
            known = remote.known or {}
            _log.warning("%s; %s of its tools are offered as they were", error, len(known) or "none")
            return known

    def _tool_of(self, remote: Remote, row: protocol.Tool, name: str | None = None) -> Tool:
        """One tool, from what its server says of it; `name` is what it is called here, where that is known."""
        return Tool.from_schema(
            name or name_of(remote.name, row.name),
            row.description or row.title or "",
            row.input_schema,
            _function_of(remote, row.name),
            approval=self._policies.approval(remote.name, row.name),
            repeatable=self._policies.is_repeatable(remote.name, row.name, row.annotations),
        )


def _function_of(remote: Remote, there: str) -> Callable[..., Any]:
    async def call(**arguments: Any) -> Any:
        return value_of(await remote.call(there, arguments, current_action().idempotency_key))

    return call
