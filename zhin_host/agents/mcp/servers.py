"""Servers of tools as they are configured: a command that speaks over its standard streams, or a URL."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, HttpUrl, TypeAdapter, ValidationError

_URL: Final = TypeAdapter(HttpUrl)
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_HTTP: Final = {"http", "streamable-http", "streamableHttp", "streamable_http"}


class Command(BaseModel):
    """A server that is started here and ends with its standard input.

    Attributes:
        command: A program, looked up in PATH unless it has a slash.
        args: Its arguments.
        env: Variables beside HOME, LOGNAME, PATH, SHELL, TERM and USER: it gets no others of the host's.
        cwd: Where it runs; None: where the host does.
    """

    # Keys of other programs stand in the same file; values may be secrets, so no error repeats them.
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    command: str = Field(min_length=1)
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: Path | None = None


class Endpoint(BaseModel):
    """A server that runs elsewhere and speaks streamable HTTP.

    Attributes:
        url: Where, http or https.
        headers: Sent with every request.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    url: str
    headers: dict[str, str] = {}


Server = Command | Endpoint


def servers_of(given: Mapping[str, Mapping[str, Any]]) -> dict[str, Server]:
    """The servers by name; those with `"disabled": true` are left out.

    Raises:
        ValueError: One is no server; the message names it and what is wrong.
    """
    return {name: _server_of(name, row) for name, row in given.items() if not _is_disabled(name, row)}


def read_file(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The `mcpServers` and the `zhin` of a JSON file; `${NAME}` and `${NAME:-default}` in the servers' texts filled in.

    Raises:
        ValueError: It is no such file, or names a variable of the environment that is not set and has no default.
        OSError: It cannot be read.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    servers = content.get("mcpServers") if isinstance(content, dict) else None
    ours = content.get("zhin", {}) if isinstance(content, dict) else None
    if not isinstance(servers, dict) or not isinstance(ours, dict):
        raise ValueError(f'{path} has no object "mcpServers", or a "zhin" that is none')  # noqa: TRY004 - a file's
    return {name: _filled(f"{path}: {name}", row) for name, row in servers.items()}, ours


def _is_disabled(name: str, row: Mapping[str, Any]) -> bool:
    if not isinstance(row, Mapping):
        raise ValueError(f"the MCP server {name!r:.80} is an object with a command or a url")  # noqa: TRY004 - a file's
    return row.get("disabled") is True


def _server_of(name: str, row: Mapping[str, Any]) -> Server:
    if ("command" in row) == ("url" in row):
        raise ValueError(f"the MCP server {name!r:.80} has either a command or a url")
    if "url" in row and row.get("type", "http") not in _HTTP:
        raise ValueError(
            f"the MCP server {name!r:.80} is of type {row['type']!r:.40}; with a url only streamable HTTP is spoken"
        )
    try:
        if "command" in row:
            return Command.model_validate(dict(row))
        _URL.validate_python(row["url"])
        return Endpoint.model_validate(dict(row))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "url"
        raise ValueError(f"the MCP server {name!r:.80}: {where}: {first['msg']}") from None


def _filled(where: str, value: Any) -> Any:
    """The value with the environment's variables in its texts."""
    if isinstance(value, dict):
        return {key: _filled(where, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(where, inner) for inner in value]
    if not isinstance(value, str):
        return value

    def of_environment(match: re.Match[str]) -> str:
        text = os.environ.get(match[1], match[2])
        if text is None:
            raise ValueError(f"{where} needs the variable {match[1]} in the environment")
        return text

    return _VARIABLE.sub(of_environment, value)
