"""SCENARIOS.md has a row for each fault from the field, and each names tests that exist, or says why there is none."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]

IDS: Final = (  # those of the list that came from the field: none may get lost
    "A1 A2 A4 A5 A6 A7 A8 A10 A11 A12 A13 A15 A17 A18 "
    "B1 B2 B3 B5 B8 B9 B10 B11 B12 B13 B14 B17 B18 B19 B21 B22 B23 B24 "
    "C1 C2 C3 C4 C7 C9 C10 C12 C14 C15 C17 D1 D2 D4 D7 D8 D9 D11 D13 D14 E1 E2 E3 E4 E7 E9 F1 F3 F4 F7 "
    "G1 G2 G3 G4 G5 G6 G7 H1 H2 H3 H6 H7 H8 H9 I1 I3 I4 I5 J3 J4 J6 J7 J8 J10 K2 K3 K4 K6 L2 L3"
)


def rows() -> dict[str, str]:
    """Id to what holds it."""
    text = (TESTS / "SCENARIOS.md").read_text()
    return dict(re.findall(r"^\| ([A-L]\d+) \| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE))


@cache
def names_in(path: Path) -> frozenset[str]:
    """The names of the test functions of a file, those of its classes too."""
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def test_every_scenario_has_its_row() -> None:
    assert sorted(rows()) == sorted(IDS.split())


def test_every_row_names_a_test_or_says_why_there_is_none() -> None:
    for scenario, held in rows().items():
        assert "::test_" in held or re.match(r"none( yet)?: \w", held), scenario


def test_every_test_that_is_named_exists() -> None:
    missing = [
        (scenario, test)
        for scenario, held in rows().items()
        for test in re.findall(r"`([^`]+::[^`]+)`", held)
        if not _exists(test)
    ]
    assert missing == []


def _exists(test: str) -> bool:
    file, _, name = test.partition("::")
    path = TESTS / file
    return path.is_file() and name in names_in(path)
