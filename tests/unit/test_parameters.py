"""Parameters: what a row of the table reads is what its schema takes."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zhin_host.errors import BadRequest
from zhin_host.http import parameters
from zhin_host.http.parameters import (
    BEFORE,
    LAST_EVENT_ID,
    LIMIT,
    START_INDEX,
    STATUS,
    Choice,
    Parameter,
    Shaped,
    WholeNumber,
)

ROWS: list[Parameter] = [
    row for row in vars(parameters).values() if isinstance(row, WholeNumber | Choice | Shaped)
]


def takes(row: Parameter, text: str) -> bool:
    try:
        row.read(text)
    except BadRequest:
        return False
    return True


def value_of(row: Parameter, text: str) -> Any:
    """What a client means by the text: numbers are told by their digits, in whatever number of them."""
    digits = text.removeprefix("-")
    is_number = isinstance(row, WholeNumber) and digits.isascii() and digits.isdigit() and len(digits) <= 15
    return int(text) if is_number else text


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines are shared
@given(data=st.data())
def test_a_text_is_taken_when_the_schema_takes_it(row: Parameter, data: st.DataObject) -> None:
    schema = row.schema()
    near = st.from_regex(schema["pattern"]) if "pattern" in schema else st.nothing()
    texts = st.one_of(
        st.text(max_size=20), st.integers().map(str), st.sampled_from(schema.get("enum", [""])), near
    )
    text = data.draw(texts)
    assert takes(row, text) == jsonschema_rs.is_valid(schema, value_of(row, text))


def test_a_query_is_read_by_the_name_and_without_it_the_default_counts() -> None:
    assert (START_INDEX.of({"startIndex": "-7"}), LIMIT.of({"limit": "7"})) == (-7, 7)
    assert (STATUS.of({"status": "running"}), BEFORE.of({"before": "ses_" + "0" * 26})) == (
        "running",
        "ses_" + "0" * 26,
    )
    assert (START_INDEX.of({"limit": "7"}), LIMIT.of({}), LAST_EVENT_ID.of({})) == (0, 50, None)
    assert (STATUS.of({}), BEFORE.of({})) == (None, None)
    for row in (START_INDEX, STATUS, BEFORE):
        with pytest.raises(BadRequest, match=row.name):
            row.of({row.name: ""})


def test_a_default_is_a_value() -> None:
    for row in ROWS:
        schema = row.schema()
        if "default" in schema:
            assert takes(row, str(schema["default"]))
