"""Openapi: the document is valid, whole and true."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx
import jsonschema_rs
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from tests.docs.tables import request_errors
from tests.documented import DOCUMENT, check_answer, validator
from tests.hosting import hosting
from zhin_host import Turn, __version__
from zhin_host.config import Config
from zhin_host.errors import BadRequest, RequestError
from zhin_host.events import VOCABULARY
from zhin_host.http import BearerTokens, schema
from zhin_host.http.app import BASE, ROOT_ROUTES, ROUTES
from zhin_host.http.openapi import document, example_of
from zhin_host.http.operations import EVERYWHERE, EXTRAS, OPERATIONS
from zhin_host.http.routes import Routes
from zhin_host.http.wire import BODIES, EVENT_FIELDS, FIELDS, OBJECTS

CONFIG: Final = Config()
ALL: Final = {**ROUTES, **ROOT_ROUTES}


async def silent(turn: Turn) -> None:
    """Say nothing."""


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            if method not in {"parameters", "servers"}:
                yield path, method.upper(), operation


def test_it_is_openapi_3_1() -> None:
    assert list(OpenAPIV31SpecValidator(DOCUMENT).iter_errors()) == []
    assert DOCUMENT["info"]["version"] == __version__


def test_it_has_every_route_under_its_handler_s_name_and_no_other() -> None:
    routes = {(path, method): row.name for path, methods in ALL.items() for method, row in methods.items()}
    assert {(path, method): row["operationId"] for path, method, row in operations()} == routes
    assert OPERATIONS.keys() == set(routes.values())
    assert len(set(routes.values())) == len(routes)
    for name in routes.values():
        assert hasattr(Routes, name)


def test_each_operation_asks_for_the_scope_of_its_route() -> None:
    for path, method, operation in operations():
        row = ALL[path][method]
        asked = [] if row.is_open else [{"bearer": [] if row.right is None else [row.right]}]
        assert operation["security"] == asked
        assert ("401" in operation["responses"]) != row.is_open


def test_a_host_that_tells_nobody_apart_asks_for_no_token() -> None:
    made = document(CONFIG, is_authenticated=False)
    assert made["components"]["securitySchemes"] == {}
    for item in made["paths"].values():
        for method, operation in item.items():
            if method not in {"parameters", "servers"}:
                assert operation["security"] == []
                assert "401" not in operation["responses"]
    assert list(OpenAPIV31SpecValidator(made).iter_errors()) == []


def test_every_error_has_its_schema_and_somewhere_it_is_answered() -> None:
    codes = {kind.code for kind in request_errors()}
    assert codes <= DOCUMENT["components"]["schemas"].keys()
    answered = {kind.code for row in OPERATIONS.values() for kind in (*EVERYWHERE, *row.errors)}
    assert codes - answered == {"UNAUTHORIZED", "METHOD_NOT_ALLOWED"}  # authentication's; no operation's


def test_an_error_s_extra_fields_are_in_its_schema() -> None:
    for kind in request_errors():
        assert (kind in EXTRAS) == (kind.extra is not RequestError.extra), kind
    validator("SESSION_BUSY").validate(
        {"ok": False, "error": "SESSION_BUSY", "message": ".", "pendingRequestIds": []}
    )


def test_every_event_has_its_schema_and_every_row_is_used() -> None:
    assert VOCABULARY.keys() <= DOCUMENT["components"]["schemas"].keys()
    for kind, others in EVENT_FIELDS.items():
        assert others.keys() <= {name.rstrip("?") for name in VOCABULARY[kind].split()}, kind
    words = [word.rstrip("?") for fields in (*OBJECTS.values(), *BODIES.values()) for word in fields.split()]
    used = {word.rpartition(":")[2] for word in words}
    for kind, fields in VOCABULARY.items():
        names = {name.rstrip("?") for name in fields.split()}
        used |= {EVENT_FIELDS.get(kind, {}).get(name, name) for name in names}
    assert used == FIELDS.keys()


def test_every_object_is_answered_or_a_part_of_one() -> None:
    text = orjson.dumps(DOCUMENT).decode()
    for name in DOCUMENT["components"]["schemas"].keys() - {"METHOD_NOT_ALLOWED"}:
        assert f'"#/components/schemas/{name}"' in text, name


def test_each_example_of_a_body_is_one_that_is_parsed() -> None:
    found = {}
    for _, _, operation in operations():
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]["application/json"]
            name = content["schema"]["$ref"].rpartition("/")[2]
            validator(name).validate(content["example"])
            PARSERS[name](content["example"])
            found[name] = content["example"]
    assert found.keys() == BODIES.keys() == PARSERS.keys()


def test_each_example_of_a_field_is_a_value_of_it() -> None:
    count = 0
    for name, field in FIELDS.items():
        for example in field.get("examples", []):
            assert jsonschema_rs.is_valid(dict(field), example), name
            count += 1
    assert count > 10


def test_it_tells_the_limits_of_its_host() -> None:
    told = orjson.dumps(
        document(Config(body_bytes_max=7777, metadata_bytes_max=8888), is_authenticated=False)
    )
    assert b"at most 7777 bytes" in told
    assert b"at most 8888 bytes" in told
    assert b"{limit" not in told


async def test_it_is_open_where_tokens_are_asked_for_and_made_once() -> None:
    tokens = BearerTokens({"ada": "ada-0123456789abcdef"})
    async with hosting(silent, authenticator=tokens) as host, host.client() as client:
        assert (await client.get("/info")).status_code == 401
        answers = [await client.get("/openapi.json") for _ in range(2)]
        assert [answer.json() for answer in answers] == [DOCUMENT, DOCUMENT]
        assert (await client.head("/openapi.json")).status_code == 200


async def test_it_asks_for_no_token_where_there_is_none() -> None:
    async with hosting(silent) as host, host.client() as client:
        made = (await client.get("/openapi.json")).json()
    assert made == orjson.loads(orjson.dumps(document(CONFIG, is_authenticated=False)))


async def test_its_server_is_where_the_routes_are_also_in_an_app_that_mounts_the_host() -> None:
    async with hosting(silent) as host:
        mounting = Starlette(routes=[Mount("/apps/zhin", host.host.app)])
        apps: list[tuple[ASGIApp, str]] = [(host.host.app, ""), (mounting, "/apps/zhin"), (host.host.app, "")]
        for app, prefix in apps:
            client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
            async with client:
                made = (await client.get(f"{prefix}{BASE}/openapi.json")).json()
                url = made["servers"][0]["url"]
                assert url == prefix + BASE
                assert (await client.get(f"{url}/health")).status_code == 200


def test_no_start_of_a_host_reads_its_tables() -> None:
    program = (
        "import sys, zhin_host; from zhin_host.agents.demo import agent; zhin_host.create_agent_session_host(agent); "
        "print(sorted(name for name in sys.modules if name.startswith('zhin_host.http.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "zhin_host.http.routes" in done.stdout
    for name in ("openapi", "operations", "wire", "metrics"):
        assert f"zhin_host.http.{name}'" not in done.stdout


def test_an_answer_that_is_not_in_the_document_is_seen() -> None:
    json = {"content-type": "application/json"}
    good = b'{"ok":true,"service":"zhin-agent-session"}'
    check_answer("GET", BASE + "/health", 200, json, good)
    for status, headers, body in [
        (202, json, good),
        (200, {"content-type": "text/plain"}, good),
        (200, json, b'{"ok":true}'),
        (403, json, b'{"ok":false,"error":"SESSION_BUSY","message":"."}'),
    ]:
        with pytest.raises((AssertionError, jsonschema_rs.ValidationError)):
            check_answer("GET", BASE + "/health", status, headers, body)
    body = b'{"ok":false,"error":"SHUTTING_DOWN","message":"."}'
    with pytest.raises(AssertionError, match="retry-after"):
        check_answer("GET", BASE + "/ready", 503, json, body)
    with pytest.raises(AssertionError, match="no operation"):
        check_answer(
            "GET", BASE + "/nowhere", 404, json, b'{"ok":false,"error":"SESSION_NOT_FOUND","message":"."}'
        )
    with pytest.raises(AssertionError, match="202"):
        check_answer("GET", "/metrics", 202, {"content-type": "text/plain"}, b"")
    with pytest.raises(AssertionError, match="no operation"):
        check_answer("GET", "/health", 200, json, good)


# -- bodies --------------------------------------------------------------------------------------------------------

PARSERS: Final[dict[str, Callable[[dict[str, Any]], object]]] = {
    "Start": lambda body: schema.start_of(body, CONFIG),
    "FollowUp": schema.follow_up_of,
    "Answer": schema.answer_of,
    "RelayedAnswer": schema.relayed_of,
    "Authorization": schema.authorization_of,
    "Cancel": lambda body: schema.text_of(body, "turnId"),
    "Resume": lambda body: schema.text_of(body, "continuationToken"),
    "End": schema.end_of,
}

PART: Final = {"type": "text", "text": "x"}
VALUES: Final[list[Any]] = [
    *("", " ", "\x1c", "\x85", "\u2003", "\x00", "x", "reject", "queue", "Queue", "completed", "text"),
    *(None, True, False, 0, 1, 1.5, {}, {"a": 1}, [], [PART], [PART, {**PART, "text": ""}]),
    *([{}], ["x"], [{"text": "x"}], [{"type": "text"}], [{"type": "image", "text": "x"}]),
    *([{**PART, "text": " "}], [{**PART, "text": 1}], [PART, None], [{**PART, "more": 1}]),
]


def assert_alike(name: str, body: dict[str, Any]) -> None:
    try:
        PARSERS[name](body)
        is_parsed = True
    except BadRequest:
        is_parsed = False
    assert is_parsed == validator(name).is_valid(body), body


def fields_of(name: str) -> list[str]:
    return [*(word.partition("?")[0].partition(":")[0] for word in BODIES[name].split()), "other"]


@pytest.mark.parametrize("name", BODIES)
def test_a_body_with_one_field_changed_parses_exactly_when_its_schema_takes_it(name: str) -> None:
    good = example_of(BODIES[name])
    PARSERS[name](good)
    for field in fields_of(name):
        assert_alike(name, {other: value for other, value in good.items() if other != field})
        for value in VALUES:
            assert_alike(name, {**good, field: value})


@pytest.mark.parametrize("name", BODIES)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines are shared
@given(data=st.data())
def test_any_body_parses_exactly_when_its_schema_takes_it(name: str, data: st.DataObject) -> None:
    values = st.one_of(st.sampled_from(VALUES), st.text(max_size=4))
    fields = fields_of(name)
    assert_alike(name, data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(fields, values))))
