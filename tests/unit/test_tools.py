"""tools: what a signature makes of arguments, and when a person is asked first."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import logging
import pathlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pydantic
import pytest

from zhin_host.arguments import BadArguments
from zhin_host.errors import Unserializable
from zhin_host.events import json_bytes
from zhin_host.tools import Tool, tool, tools_digest


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float = 0.5


class Order(pydantic.BaseModel):
    item: str
    count: int = 1


@tool
def add(first: int, second: int = 2) -> int:
    """Add two numbers.

    The second may be left out.
    """
    return first + second


def shown(made: Tool, **arguments: Any) -> bytes:
    return json_bytes(made.bind(arguments))


def given(made: Tool, **arguments: Any) -> dict[str, Any]:
    """What the function gets."""
    return made.values(shown(made, **arguments))


# -- what a tool is --------------------------------------------------------------------------------------------


def test_a_tool_takes_name_description_and_schema_from_its_function() -> None:
    assert (add.name, add.description) == ("add", "Add two numbers.")
    assert add.schema["type"] == "object"
    assert set(add.schema["properties"]) == {"first", "second"}
    assert add.schema["required"] == ["first"]
    assert add.schema["additionalProperties"] is False
    assert (add.approval, add.policy_name, add.is_repeatable, add.expires_s) == ("never", "never", True, None)


def test_a_tool_called_directly_is_the_function() -> None:
    assert add(3) == 5


def test_a_tool_may_be_told_otherwise() -> None:
    @tool(approval="once", repeatable=False, expires_s=5.0, name="remove")
    def delete(path: str) -> None: ...

    assert (delete.name, delete.policy_name, delete.is_repeatable, delete.expires_s) == (
        "remove",
        "once",
        False,
        5.0,
    )
    assert delete.description == ""


def test_a_policy_that_is_none_is_refused_when_the_tool_is_made() -> None:
    with pytest.raises(TypeError, match="approval is one of never, once, always, on-risk"):
        tool(approval="sometimes")  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["", "n" * 65, "two\nlines", "\ud800"])
def test_a_name_that_no_reader_could_bear_is_refused_when_the_tool_is_made(name: str) -> None:
    with pytest.raises(ValueError, match="a tool's name is 1 to 64 printable characters"):
        tool(name=name)(add.function)


def test_a_parameter_that_cannot_be_given_by_name_is_refused_when_the_tool_is_made() -> None:
    def positional(value: int, /) -> None: ...
    def variadic(*values: int) -> None: ...

    for function in (positional, variadic):
        with pytest.raises(TypeError, match="cannot be given by name"):
            tool(function)


def test_a_parameter_of_a_type_without_a_json_form_is_refused_when_the_tool_is_made() -> None:
    """Else GET /info and the digest of the tools would fail later, far from the mistake."""

    class Handle: ...

    def use(handle: Handle) -> None: ...

    use.__annotations__["handle"] = Handle
    with pytest.raises(TypeError, match="tool use: "):
        tool(use)


# -- binding ---------------------------------------------------------------------------------------------------


def test_defaults_are_filled_in_and_values_are_made_of_their_kind() -> None:
    assert add.bind({"first": "1"}) == {"first": 1, "second": 2}
    assert given(add, first=1) == {"first": 1, "second": 2}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "first"),
        ({"first": "one"}, "first"),
        ({"first": 1, "third": 3}, "third"),
        ({"first": None}, "first"),
        ({"first": 1, "second": [2]}, "second"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_and_the_argument_is_named(
    arguments: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadArguments, match=rf"^tool add: argument {named}: "):
        add.bind(arguments)


def test_a_value_without_a_json_form_is_refused() -> None:
    @tool
    def take(anything: Any) -> None: ...

    with pytest.raises(Unserializable):
        take.bind({"anything": object()})


VALUES = [
    (bool, True),
    (str, "é\u2028\x00"),
    (bytes, b"\x00\xfb\xffabc"),
    (list[bytes], [b"", b"\xff\xff"]),
    (decimal.Decimal, decimal.Decimal("1.10")),
    (uuid.UUID, uuid.UUID(int=7)),
    (dt.datetime, dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)),
    (dt.date, dt.date(2026, 1, 2)),
    (pathlib.Path, pathlib.Path("/tmp/x")),
    (set[int], {3, 1, 2}),
    (tuple[int, str], (1, "a")),
    (dict[str, list[int]], {"a": [1]}),
    (Colour, Colour.RED),
    (Point, Point(1)),
    (Order, Order(item="tea")),
    (list[Order], [Order(item="tea", count=2)]),
    (int, 2**70),
    (float, 1.5),
    (int | str, "5"),
    (int | None, None),
    (Literal["a", "b"], "b"),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=lambda value: getattr(value, "__name__", None))
def test_the_function_gets_what_was_given_whatever_its_json_form_is(kind: Any, value: Any) -> None:
    def take(value: Any) -> None: ...

    take.__annotations__["value"] = kind
    made = tool(take)
    assert given(made, value=value) == {"value": value}
    assert type(given(made, value=value)["value"]) is type(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_know_is_refused_before_anybody_is_asked(value: float) -> None:
    @tool
    def take(value: float) -> None: ...

    with pytest.raises(BadArguments, match="argument value"):
        take.bind({"value": value})


def test_parameters_may_have_names_that_models_keep_for_themselves() -> None:
    @tool
    def odd(model_config: int, _private: int, schema: int, copy: int = 4) -> None: ...

    assert given(odd, model_config=1, _private=2, schema=3) == {
        "model_config": 1,
        "_private": 2,
        "schema": 3,
        "copy": 4,
    }


def test_a_function_that_takes_any_keyword_gets_them_all() -> None:
    @tool
    def loose(first: int, **rest: Any) -> None: ...

    assert given(loose, first=1, p0=2, other=[3]) == {"first": 1, "p0": 2, "other": [3]}
    with pytest.raises(BadArguments, match="argument first"):
        loose.bind({"p0": 1})


def test_a_parameter_without_a_type_takes_anything() -> None:
    plain = eval("lambda value, other=None: None")  # noqa: S307 - a function that says nothing of its types
    assert given(tool(plain), value=[1, {"a": 2}]) == {"value": [1, {"a": 2}], "other": None}


def test_a_mutable_default_is_nobodys_to_keep() -> None:
    @tool
    def collect(into: list[int] = []) -> None: ...  # noqa: B006 - the point of the test

    given(collect)["into"].append(1)
    assert given(collect) == {"into": []}


# -- whom to ask -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("approval", "grants", "scope"),
    [
        ("never", (), None),
        ("always", (), "call"),
        ("always", ("act",), "call"),
        ("on-risk", (), "call"),
        ("on-risk", ("act",), "call"),
        ("once", (), "session"),
        ("once", ("other",), "session"),
        ("once", ("act",), None),
    ],
)
async def test_a_policy_by_name_asks_as_it_says(
    approval: Any, grants: tuple[str, ...], scope: str | None
) -> None:
    @tool(approval=approval)
    def act(value: int) -> None: ...

    assert await act.scope_to_ask(b'{"value":1}', grants) == scope


async def yes_soon(value: int) -> bool:
    return value > 10


POLICIES: list[tuple[Callable[..., Any], int, str | None]] = [
    (lambda value: value > 10, 11, "call"),
    (lambda value: value > 10, 10, None),
    (yes_soon, 11, "call"),
    (yes_soon, 10, None),
    (lambda value: value, 0, None),
    (lambda value: 1 // value, 0, "call"),
    (lambda: False, 1, "call"),
]


@pytest.mark.parametrize(("policy", "value", "scope"), POLICIES)
async def test_a_function_of_the_arguments_says_whether_to_ask_and_one_that_raises_asks(
    policy: Callable[..., Any], value: int, scope: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(approval=policy)
    def act(value: int) -> None: ...

    with caplog.at_level(logging.CRITICAL):
        assert await act.scope_to_ask(shown(act, value=value), ()) == scope
    assert act.policy_name == "function"


async def test_an_async_policy_that_raises_asks_too() -> None:
    async def broken(value: int) -> bool:
        raise OSError(value)

    @tool(approval=broken)
    def act(value: int) -> None: ...

    assert await act.scope_to_ask(b'{"value":1}', ()) == "call"


# -- the digest ------------------------------------------------------------------------------------------------


def test_the_digest_of_tools_changes_with_what_was_approved_and_with_nothing_else() -> None:
    def make(approval: Any = "never", name: str = "act", kind: Any = int) -> Tool:
        def act(value: Any) -> None: ...

        act.__annotations__["value"] = kind
        return tool(approval=approval, name=name)(act)

    base = tools_digest([make(), add])
    assert base.startswith("sha256:")
    assert tools_digest([add, make()]) == base
    others = [make("once"), make("always"), make(name="other"), make(kind=str)]
    assert len({base, *(tools_digest([other, add]) for other in others)}) == 5


def add_as_json(**numbers: int) -> int:
    return sum(numbers.values())


SUM_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


def test_a_tool_from_a_schema_shows_that_schema_and_takes_the_arguments_as_the_json_they_are() -> None:
    made = Tool.from_schema("sum", "Add up.", SUM_SCHEMA, add_as_json, approval="always", repeatable=False)
    assert (made.name, made.description, made.policy_name, made.is_repeatable) == (
        "sum",
        "Add up.",
        "always",
        False,
    )
    assert made.schema == SUM_SCHEMA
    assert made.bind({"b": 2, "a": 1.5}) == {"b": 2, "a": 1.5}
    assert made.values(b'{"a":1,"b":2}') == {"a": 1, "b": 2}
    assert made(a=1, b=2) == 3


def test_a_tool_from_a_schema_is_named_and_approved_by_the_rules_of_any_tool() -> None:
    with pytest.raises(ValueError, match="1 to 64 printable"):
        Tool.from_schema("", "", {}, add_as_json)
    with pytest.raises(TypeError, match="approval is one of"):
        Tool.from_schema("sum", "", {}, add_as_json, approval="perhaps")  # type: ignore[arg-type]


def test_two_schemas_under_one_name_have_two_digests() -> None:
    one = Tool.from_schema("sum", "", SUM_SCHEMA, add_as_json)
    other = Tool.from_schema("sum", "", {"type": "object"}, add_as_json)
    assert tools_digest([one]) != tools_digest([other])
