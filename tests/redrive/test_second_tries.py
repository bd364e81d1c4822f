"""Answers to "run it again?" that come when the host which asked is gone: each is used up, and a no is a no."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from tests.hosting import Hosting, crashing, decoded, hosting, stored
from zhin_host import ToolDenied, Turn, tool
from zhin_host import events as ev
from zhin_host.storage.memory import MemorySessionPersistence
from zhin_host.tools import Tool

Policy = Literal["never", "always"]


class Till:
    """A tool that must not run twice and hangs at first, and an agent that does something after it."""

    def __init__(self, approval: Policy) -> None:
        self.begun = asyncio.Event()
        self.hangs = True
        self.count = 0

        @tool(approval=approval, repeatable=False)
        async def pay(amount: int) -> str:
            self.count += 1
            self.begun.set()
            if self.hangs:
                await asyncio.Event().wait()
            return f"paid {amount}"

        self.pay: Tool = pay

    async def agent(self, turn: Turn) -> None:
        try:
            await turn.say(f"{await turn.call_tool(self.pay, amount=3)}, ")
        except ToolDenied:
            await turn.say("not paid, ")
        await turn.say(await turn.run("thank", str.upper, "thanks"))


async def _until_asked_and_gone(till: Till, persistence: MemorySessionPersistence) -> tuple[str, str]:
    """Crash while the tool runs, and once more when a person has been asked; the session and the request."""
    async with crashing(till.agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        if till.pay.policy_name != "never":
            [approval] = await host.asked(session_id)
            await host.approve(session_id, approval.data["requestId"])
        await till.begun.wait()
    till.hangs = False
    requests = 1 if till.pay.policy_name == "never" else 2
    async with crashing(till.agent, persistence=persistence) as host:
        [retry] = await host.asked(session_id, requests)
        assert retry.data["kind"] == "retry"
    return session_id, retry.data["requestId"]


async def _ended(host: Hosting, session_id: str) -> str:
    await host.seen(session_id, ev.SESSION_WAITING)
    completed = await host.seen(session_id, ev.MESSAGE_COMPLETED)
    return str(completed.data["message"])


@pytest.mark.parametrize("approval", ["never", "always"])
async def test_a_yes_that_comes_after_the_host_is_gone_is_used_up_and_the_turn_goes_on(
    approval: Policy,
) -> None:
    till, persistence = Till(approval), MemorySessionPersistence()
    session_id, request_id = await _until_asked_and_gone(till, persistence)
    async with hosting(till.agent, persistence=persistence) as host:
        await host.approve(session_id, request_id)
        assert await _ended(host, session_id) == "paid 3, THANKS"
        assert till.count == 2


@pytest.mark.parametrize("approval", ["never", "always"])
async def test_a_no_that_comes_after_the_host_is_gone_is_a_no(approval: Policy) -> None:
    till, persistence = Till(approval), MemorySessionPersistence()
    session_id, request_id = await _until_asked_and_gone(till, persistence)
    async with hosting(till.agent, persistence=persistence) as host:
        await host.approve(session_id, request_id, approved=False)
        assert await _ended(host, session_id) == "not paid, THANKS"
        assert till.count == 1
        result = next(
            event
            for event in decoded(session_id, stored(persistence, session_id))
            if event.type == ev.ACTION_RESULT
        )
        assert (result.data["status"], result.data["error"]["code"]) == ("denied", "TOOL_DENIED")
