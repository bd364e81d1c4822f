"""The page about turns that outlive the process: its Python blocks run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from zhin_host import create_agent_session_host

PAGE = Path(__file__).parents[2] / "docs" / "turns.md"


def blocks() -> list[dict[str, Any]]:
    """What each Python block of the page defines."""
    found = []
    for source in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        names: dict[str, Any] = {"__name__": "docs"}
        exec(compile(source, str(PAGE), "exec"), names)  # noqa: S102 - the page's own code
        found.append(names)
    return found


async def test_the_agent_that_tries_again_looks_up_asks_and_pays() -> None:
    agent = blocks()[0]
    async with create_agent_session_host(agent["agent"], tools=[agent["pay"]]) as host:
        handle = await host.run("tea")
        assert [event async for event in host.stream(handle.session_id)][-1]["data"]["parked"] is True
        await handle.answer(True)
        result = await handle.result()
    assert result.text.startswith(f"all about tea. paid 3 under {handle.session_id}:call_")


async def test_the_stepped_agent_counts_asks_and_ends() -> None:
    counting = blocks()[1]["Counting"]
    async with create_agent_session_host({"counting": counting()}) as host:
        handle = await host.run("go")
        assert [event async for event in host.stream(handle.session_id)][-1]["data"]["parked"] is True
        await handle.answer(True)
        assert (await handle.result()).text == "1. 3. That is all."


async def test_the_program_without_http_says_what_it_was_told() -> None:
    assert await blocks()[2]["main"]() == "hello"
