"""A turn of the chat agent that is cut down behind any event goes on: nothing is paid for, or done, twice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.agents.endpoint import Endpoint, Reply, calls, says
from tests.conftest import check_directory
from tests.redrive.drive import counted_text, events_of, leave_as_killed, until_rest
from zhin_host import create_agent_session_host, tool
from zhin_host.agents.chat import ChatAgent

RAN: list[str] = []


@tool(approval="always")
async def publish(page: str) -> str:
    """Publish a page."""
    RAN.append(f"publish {page}")
    return f"published {page}"


@tool
async def look_up(topic: str) -> str:
    """Look something up."""
    RAN.append(f"look_up {topic}")
    return f"all about {topic}"


def _script(body: Mapping[str, Any]) -> Reply:
    """First a look and two publications side by side, then one more, then the last word."""
    results = [row["content"] for row in body["messages"] if row["role"] == "tool"]
    match len(results):
        case 0:
            asked = [
                ("look_up", '{"topic":"cats"}'),
                ("publish", '{"page":"a"}'),
                ("publish", '{"page":"b"}'),
            ]
            return calls(*asked, text="Looking. ")
        case 3:
            return calls(("publish", '{"page":"c"}'))
        case _:
            return says("All ", "done: ", results[-1], thinks="Good.")


def _done(events: list[dict[str, Any]]) -> list[str]:
    """The actions that have a result."""
    return [event["data"]["toolName"] for event in events if event["type"] == "action.result"]


@pytest.mark.timeout(240)  # some forty hosts
async def test_a_turn_cut_down_behind_any_event_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    with Endpoint(_script) as endpoint:
        agent = ChatAgent("stub", base_url=endpoint.url, api_key="key", tools=[look_up, publish])
        async with create_agent_session_host(agent, data_dir=whole, fsync="never") as host:
            session_id = (await host.run("go")).session_id
            await until_rest(host, session_id)
        events = events_of(whole, session_id)
        assert counted_text(events) == "Looking. All done: published c"
        asked, ran = len(endpoint.requests), len(RAN)
        assert (asked, ran) == (3, 4)
        lines = (whole / f"{session_id}.ndjson").read_bytes().splitlines(keepends=True)
        for cut in range(4, len(events) + 1):  # the first of them behind message.received
            directory = tmp_path / f"cut-{cut}"
            leave_as_killed(directory, session_id, b"".join(lines[:cut]))
            endpoint.requests.clear()
            RAN.clear()
            async with create_agent_session_host(agent, data_dir=directory, fsync="never") as host:
                await until_rest(host, session_id)
            where = f"cut behind event {cut - 1}, {events[cut - 1]['type']}"
            after, done = events_of(directory, session_id), _done(events[:cut])
            assert after[-1]["data"]["reason"] == "idle", where
            assert counted_text(after) == "Looking. All done: published c", where
            completed = [event["data"] for event in after if event["type"] == "message.completed"]
            assert completed[-1]["usage"]["modelCalls"] == asked, where
            is_over = any(event["type"] == "checkpoint.saved" for event in events[:cut])
            assert len(endpoint.requests) == (0 if is_over else asked - done.count("model")), where
            assert len(RAN) == ran - len([name for name in done if name != "model"]), where
            assert len(_done(after)) == asked + ran, where
            check_directory(directory, is_refereed=cut % 4 == 0)
    check_directory(whole)
