"""Openapi: the document of the routes, OpenAPI 3.1, made of the tables that they are served by (ADR 0010)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, Final

from zhin_host import errors
from zhin_host.config import Config
from zhin_host.events import VOCABULARY
from zhin_host.http.app import BASE, ROOT_ROUTES, ROUTES
from zhin_host.http.door import Endpoint
from zhin_host.http.operations import EVERYWHERE, EXTRAS, OPERATIONS, Errors, Operation
from zhin_host.http.parameters import Parameter
from zhin_host.http.wire import (
    BODIES,
    EVENT_FIELDS,
    FIELDS,
    NEVER_NULL,
    OBJECTS,
    PATH_PARAMETERS,
    Schema,
    ref,
)

_ABOUT: Final = (
    "A durable host for agent sessions. HEAD is answered wherever GET is. A method that a path has not is 405 "
    "METHOD_NOT_ALLOWED with an Allow header, an unknown path 404 NOT_FOUND, both in the form of every other error. "
    "Whatever concerns a session that the caller may see carries x-zhin-session-id, an error too. Objects are open: "
    "more fields may come, and unknown ones are ignored. A request's body is at most {limit.body_bytes_max} bytes "
    "and {limit.body_depth_max} levels deep, has integers of at most 64 bits, and arrives within "
    "{limit.body_timeout_s:g} s."
)
_OWN_TYPE: Final = r"^x\.[A-Za-z0-9_.-]{1,64}$"
_STREAM_ITEMS: Final = {"application/x-ndjson": "Event", "text/event-stream": "ServerSentEvent"}
_METRICS_TYPES: Final = ("text/plain", "application/openmetrics-text")
_STREAM_HEADERS: Final = {
    "x-zhin-stream-version": {"schema": {"const": "1"}},
    "x-zhin-tail-index": {
        "description": "The last index at the opening; -1 where there is none.",
        "schema": {"type": "integer", "minimum": -1},
    },
}


def document(config: Config, *, is_authenticated: bool, prefix: str = "") -> dict[str, Any]:
    """The document.

    Args:
        config: The limits that it tells.
        is_authenticated: Whether callers must say who they are.
        prefix: The path of the app that the host is mounted in.
    """
    made = {
        "openapi": "3.1.0",
        "info": {"title": "zhin_host", "version": version("zhin-host"), "description": _ABOUT},
        "servers": [{"url": prefix + BASE}],
        "paths": {
            **{path: dict(_path_item(path, rows, is_authenticated)) for path, rows in ROUTES.items()},
            **{
                path: {"servers": [{"url": prefix or "/"}], **dict(_path_item(path, rows, is_authenticated))}
                for path, rows in ROOT_ROUTES.items()
            },
        },
        "components": {
            "schemas": {**_objects(), **_events(), **_errors()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}} if is_authenticated else {},
        },
    }
    return dict(_limited(made, config))


def _limited(value: Any, config: Config) -> Any:
    """The value with the host's settings in the places of its texts that name them."""
    match value:
        case dict():
            return {name: _limited(item, config) for name, item in value.items()}
        case list():
            return [_limited(item, config) for item in value]
        case str() if "{limit." in value:
            return value.format(limit=config)
        case _:
            return value


# -- paths ---------------------------------------------------------------------------------------------------------


def _path_item(
    path: str,
    methods: Mapping[str, Endpoint],
    is_authenticated: bool,  # noqa: FBT001 - as of `document`
) -> Iterator[tuple[str, Any]]:
    names = re.findall(r"\{(\w+)\}", path)
    if names:
        yield (
            "parameters",
            [
                {"name": name, "in": "path", "required": True, "schema": PATH_PARAMETERS[name]}
                for name in names
            ],
        )
    for method, endpoint in methods.items():
        asks = is_authenticated and not endpoint.is_open
        yield method.lower(), _operation(endpoint, OPERATIONS[endpoint.name], asks=asks)


def _operation(endpoint: Endpoint, row: Operation, *, asks: bool) -> dict[str, Any]:
    summary, _, more = row.told.partition(". ")
    made: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": summary.removesuffix("."),
        **({"description": more} if more else {}),
        "security": [{"bearer": [] if endpoint.right is None else [endpoint.right]}] if asks else [],
        "responses": {
            **_answers(endpoint.name, row),
            **_refusals(row, (*EVERYWHERE, errors.Unauthorized) if asks else EVERYWHERE),
        },
    }
    if row.parameters:
        made["parameters"] = [_parameter(parameter) for parameter in row.parameters]
    if row.body is not None:
        content = {"application/json": {"schema": ref(row.body), "example": example_of(BODIES[row.body])}}
        made["requestBody"] = {"required": not row.is_body_optional, "content": content}
    return made


def _parameter(row: Parameter) -> dict[str, Any]:
    return {"name": row.name, "in": row.place, "description": row.told, "schema": row.schema()}


def _answers(name: str, row: Operation) -> dict[str, Any]:
    """The good answers by status."""
    if row.answer == "document":
        return {
            "200": {
                "description": "OpenAPI 3.1.",
                "content": {"application/json": {"schema": {"type": "object"}}},
            }
        }
    if row.answer == "metrics":
        texts = {media_type: {"schema": {"type": "string"}} for media_type in _METRICS_TYPES}
        return {"200": {"description": "For Prometheus; OpenMetrics where it is accepted.", "content": texts}}
    if row.answer == "stream":
        content = {media_type: {"schema": ref(item)} for media_type, item in _STREAM_ITEMS.items()}
        headers = {**_session_header(), **_STREAM_HEADERS}
        return {
            "200": {
                "description": "The events from there on; each schema is that of one item: a line, an SSE event.",
                "headers": headers,
                "content": content,
            },
            "204": {"description": "Nothing is left, and nothing will come.", "headers": _session_header()},
        }
    answer: dict[str, Any] = {
        "description": f"{row.answer}.",
        "content": {"application/json": {"schema": ref(row.answer)}},
    }
    if "sessionId" in OBJECTS[row.answer].split():
        answer["headers"] = _session_header()
    if name == "start":
        answer["links"] = dict(_links())
    return {"200": answer}


def _session_header() -> dict[str, Any]:
    return {"x-zhin-session-id": {"schema": FIELDS["sessionId"]}}


def _links() -> Iterator[tuple[str, Any]]:
    """From a new session to every operation on a session."""
    for path, methods in ROUTES.items():
        if "{session_id}" in path:
            for endpoint in methods.values():
                link: dict[str, Any] = {
                    "operationId": endpoint.name,
                    "parameters": {"session_id": "$response.body#/sessionId"},
                }
                if endpoint.name == "proceed":
                    token = "$response.body#/continuationToken"  # noqa: S105 - an expression for one
                    link["requestBody"] = {"continuationToken": token, "message": "What did I say before?"}
                yield endpoint.name, link


def _refusals(row: Operation, beside: Errors) -> dict[str, Any]:
    """The answers that errors are, by status."""
    codes: dict[int, list[str]] = {}
    for kind in beside:
        codes.setdefault(kind.status, []).append(kind.code)
    for kind in row.errors:
        codes.setdefault(row.error_status or kind.status, []).append(kind.code)
    return {str(status): _refusal(status, codes[status]) for status in sorted(codes)}


def _refusal(status: int, codes: list[str]) -> dict[str, Any]:
    schema = ref(codes[0]) if len(codes) == 1 else {"anyOf": [ref(code) for code in codes]}
    headers = {
        401: {"www-authenticate": {"required": True, "schema": {"const": "Bearer"}}},
        503: {"retry-after": {"required": True, "schema": {"type": "integer", "minimum": 0}}},
    }.get(status, {})
    return {
        "description": f"{', '.join(codes)}.",
        **({"headers": headers} if headers else {}),
        "content": {"application/json": {"schema": schema}},
    }


# -- schemas -------------------------------------------------------------------------------------------------------


def _named(fields: str) -> Iterator[tuple[str, bool, str]]:
    """Name, whether it may be missing, and row of FIELDS of each field that the text names."""
    for word in fields.split():
        named, optional, _ = word.partition("?")
        name, _, row = named.partition(":")
        yield name, bool(optional), row or name


def object_schema(
    fields: str, others: Mapping[str, str] = MappingProxyType({}), *, is_sent: bool = False
) -> dict[str, Any]:
    """The schema of an object.

    Args:
        fields: As the tables write them.
        others: Fields whose values are those of another row of FIELDS.
        is_sent: Whether clients make it: what may be missing may be null then.
    """
    rows = [(name, is_optional, FIELDS[others.get(name, row)]) for name, is_optional, row in _named(fields)]
    return {
        "type": "object",
        "properties": {
            name: _nullable(schema) if is_sent and is_optional and name not in NEVER_NULL else schema
            for name, is_optional, schema in rows
        },
        "required": [name for name, is_optional, _ in rows if not is_optional],
    }


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _objects() -> dict[str, Any]:
    bodies = {name: object_schema(fields, is_sent=True) for name, fields in BODIES.items()}
    bodies["Answer"]["oneOf"] = [{"required": [name]} for name in sorted(NEVER_NULL)]
    return {**bodies, **{name: object_schema(fields) for name, fields in OBJECTS.items()}}


def _events() -> dict[str, Any]:
    kinds: dict[str, Any] = {
        kind: _event({"const": kind}, object_schema(fields, EVENT_FIELDS.get(kind, {})))
        for kind, fields in VOCABULARY.items()
    }
    framed = {"anyOf": [ref("Event"), {"const": {}}]}
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": framed}
    kinds["x.own"] = _event({"type": "string", "pattern": _OWN_TYPE}, {"type": "object"})
    return {
        "Event": {"oneOf": [ref(kind) for kind in kinds]},
        "ServerSentEvent": {
            "type": "object",
            "description": "id is the index and event the type of the Event; a ping has no id, and {} for data.",
            "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": data},
            "required": ["event", "data"],
        },
        **kinds,
    }


def _event(kind: Schema, data: Schema) -> dict[str, Any]:
    properties = {
        "index": FIELDS["index"],
        "type": kind,
        "timestamp": {"type": "integer", "description": "Milliseconds since the epoch, never falling."},
        "data": data,
        "sum": {"type": "string", "pattern": "^[A-Za-z0-9_-]{43}$"},
    }
    return {"type": "object", "properties": properties, "required": list(properties)}


def _errors() -> dict[str, Any]:
    return {
        kind.code: _error(kind) for kind in sorted(_leaves(errors.RequestError), key=lambda kind: kind.code)
    }


def _error(kind: type[errors.RequestError]) -> dict[str, Any]:
    schema = object_schema("message " + EXTRAS.get(kind, ""))
    schema["properties"] = {"ok": {"const": False}, "error": {"const": kind.code}, **schema["properties"]}
    schema["required"] = ["ok", "error", *schema["required"]]
    return schema


def _leaves(kind: type[errors.RequestError]) -> Iterable[type[errors.RequestError]]:
    """The errors below this one that are answered; only the kinds of Conflict are."""
    for below in kind.__subclasses__():
        if below is not errors.Conflict:
            yield below
        yield from _leaves(below)


# -- examples ------------------------------------------------------------------------------------------------------


def example_of(fields: str) -> dict[str, Any]:
    """An object of the fields that it must have, and of approved where that stands for a choice."""
    return {
        name: _example(FIELDS[row])
        for name, is_optional, row in _named(fields)
        if not is_optional or name == "approved"
    }


def _example(schema: Schema) -> Any:
    if "examples" in schema:
        return schema["examples"][0]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return _example(schema["anyOf"][0])
    return True if schema.get("type") == "boolean" else "yes"
