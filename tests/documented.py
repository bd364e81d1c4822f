"""Documented: what a host answers is looked up in its OpenAPI document, and must stand there (ADR 0010 D4)."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, Final

import httpx
import jsonschema_rs
import orjson

from zhin_host.config import Config
from zhin_host.http.app import BASE, ROOT_ROUTES
from zhin_host.http.openapi import document

DOCUMENT: Final = document(Config(), is_authenticated=True)
_PATHS: Final = {  # the document's, each with the pattern of a request's whole path
    path: re.compile(("" if path in ROOT_ROUTES else BASE) + re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))
    for path in DOCUMENT["paths"]
}
_WHERE_THERE_IS_NO_OPERATION: Final = ("NOT_FOUND", "METHOD_NOT_ALLOWED", "FORBIDDEN", "INTERNAL")


@functools.cache
def validator(name: str) -> jsonschema_rs.Draft202012Validator:
    """The schema of this name among the document's."""
    return _validator({"$ref": f"#/components/schemas/{name}"})


def _validator(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({**schema, "components": DOCUMENT["components"]})


@functools.cache
def _of_answer(path: str, method: str, status: str, media_type: str) -> jsonschema_rs.Draft202012Validator:
    return _validator(DOCUMENT["paths"][path][method]["responses"][status]["content"][media_type]["schema"])


def check_event(event: Mapping[str, Any]) -> None:
    """Fail unless the event is as the document has its type."""
    name = "x.own" if event["type"].startswith("x.") else event["type"]
    validator(name).validate(event)


def operation_at(method: str, path: str) -> tuple[str, str] | None:
    """The document's path and method for a request; None where it has none."""
    method = "get" if method == "HEAD" else method.lower()
    for template, pattern in _PATHS.items():
        if pattern.fullmatch(path) and method in DOCUMENT["paths"][template]:
            return template, method
    return None


def check_answer(method: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Fail unless the document has this answer: its status, its media type, its headers and the form of its body.

    Args:
        method: Of the request.
        path: Of the request, from the root and still percent-encoded.
        status: Of the answer.
        headers: Of the answer, their names in lower case.
        body: Of the answer; that of a stream is not looked at, it may be empty.
    """
    where = f"{method} {path}: {status}"
    found = operation_at(method, path)
    if found is None:
        error = orjson.loads(body).get("error") if body else "METHOD_NOT_ALLOWED"
        assert status >= 400, f"{where} where the document has no operation"
        assert error in _WHERE_THERE_IS_NO_OPERATION, f"{where} {error} where the document has no operation"
        return
    template, name = found
    answers = DOCUMENT["paths"][template][name]["responses"]
    assert str(status) in answers, f"{where} is not in the document: {body!r:.200}"
    answer = answers[str(status)]
    for header, row in answer.get("headers", {}).items():
        assert header in headers or not row.get("required"), f"{where}: the header {header} is missing"
    if "content" not in answer:
        assert body == b"", where
        return
    media_type = headers["content-type"].partition(";")[0]
    assert media_type in answer["content"], f"{where} as {media_type} is not in the document"
    if media_type == "application/json" and method != "HEAD":
        _of_answer(template, name, str(status), media_type).validate(orjson.loads(body))


async def check_response(response: httpx.Response) -> None:
    """An event hook of httpx clients: `check_answer` of each response that a host gives."""
    path = response.request.url.raw_path.decode("ascii").partition("?")[0]
    if response.request.method in {"OPTIONS", "CONNECT"}:
        return
    is_json = response.headers.get("content-type") == "application/json"
    body = await response.aread() if is_json else b""
    check_answer(response.request.method, path, response.status_code, response.headers, body)
