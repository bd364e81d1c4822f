"""What nodes and tools return as JSON, and back."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.types import Command, Send

from zhin_host.agents.langgraph.forms import json_of, value_of


@dataclass
class Point:
    x: int
    y: int


CALL: Any = {"name": "look", "args": {"topic": "cats"}, "id": "1", "type": "tool_call"}


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "text",
        2**62,
        2**70,
        0.5,
        [1, [2]],
        {"a": {"b": []}},
        {"$message": "mine", "$": 1},
        {1: "one", ("a", 2): "two"},
        (1, 2),
        {1, 2},
        b"bytes",
        dt.datetime(2026, 11, 30, tzinfo=dt.UTC),
        Point(1, 2),
        HumanMessage("hello", id="turn_1"),
        SystemMessage("be nice"),
        AIMessage(
            "", tool_calls=[CALL], usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
        ),
        AIMessageChunk(content=[{"type": "text", "text": "hi"}]),
        ToolMessage("gave", tool_call_id="1", artifact=Point(3, 4), status="error"),
        RemoveMessage(id="1"),
        {"messages": [HumanMessage("a"), {"role": "user", "content": "b"}]},
        Command(update={"messages": [AIMessage("a")]}, goto=["next", Send("work", {"n": 1})]),
        [Command(goto="end", graph=Command.PARENT)],
    ],
    ids=repr,
)
def test_a_value_comes_back_from_its_form_as_it_was(value: Any) -> None:
    form = json_of(value)
    back = value_of(orjson.loads(orjson.dumps(form)))
    assert back == value
    assert type(back) is type(value)


def test_a_message_can_be_read_in_the_log() -> None:
    assert json_of(AIMessage("hello", id="m1")) == {
        "$message": {"type": "ai", "data": {"content": "hello", "id": "m1"}}
    }


def test_a_number_that_is_none_comes_back() -> None:
    assert str(value_of(orjson.loads(orjson.dumps(json_of(float("nan")))))) == "nan"


def test_what_no_checkpointer_could_save_is_refused() -> None:
    with pytest.raises(TypeError):
        json_of(lambda: None)


def test_every_kind_of_message_that_a_model_gives_keeps_its_class() -> None:
    messages: list[BaseMessage] = [HumanMessage("a"), AIMessage("b"), AIMessageChunk(content="c")]
    assert [type(row) for row in value_of(json_of(messages))] == [type(row) for row in messages]
