"""Tools about pages, for a model."""

from __future__ import annotations

import os
from pathlib import Path

from zhin_host import tool


@tool
async def look_up(topic: str) -> str:
    """Find the page about a topic."""
    return f"<h1>{topic}</h1>"


@tool(approval="always")
async def publish(page: str) -> str:
    """Publish a page; each time it does, a line is added to the file that the environment names."""
    with Path(os.environ["PUBLISHED"]).open("a") as published:  # noqa: ASYNC230 - a line, for the test
        published.write(f"{page}\n")
    return f"published {page}"
