"""The reference says what the code says: its parts are made from it, and its routes take and give what it lists."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import zhin_host
from tests.docs import python, tables
from tests.docs.made import check_part
from zhin_host.http.app import ROUTES


@pytest.mark.parametrize(
    ("document", "name", "made"),
    [
        ("docs/routes.md", "routes", tables.routes_told),
        ("docs/errors.md", "codes", tables.errors_told),
        ("docs/python.md", "names", python.groups_told),
        ("docs/python.md", "client", python.client_told),
    ],
)
def test_a_part_of_the_reference_says_what_the_code_says(
    document: str, name: str, made: Callable[[], str]
) -> None:
    check_part(document, name, made())


def test_every_public_name_is_in_the_reference() -> None:
    told = {name for names in python.GROUPS.values() for name in names if "." not in name} | {*python.PARTS}
    assert told == {*zhin_host.__all__}


def test_every_route_is_told() -> None:
    assert tables.TOLD.keys() == {row.name for methods in ROUTES.values() for row in methods.values()}
