"""An agent that was changed between two attempts, and what an attempt that is over has given up or may have begun."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.hosting import Hosting, crashing, decoded, hosting, one, stored
from zhin_host import Turn, tool
from zhin_host import events as ev
from zhin_host.storage.memory import MemorySessionPersistence


class Paying:
    """An agent of some version whose tool is not repeatable; that of version 1 never ends."""

    def __init__(self, version: str, paid: list[str]) -> None:
        self.version = version
        self.begun = asyncio.Event()

        @tool(approval="always", repeatable=False)
        async def pay(amount: int) -> str:
            paid.append(version)
            self.begun.set()
            if version == "1":
                await asyncio.Event().wait()
            return f"paid {amount}"

        self.tools = (pay,)

    async def __call__(self, turn: Turn) -> None:
        await turn.say(await turn.call_tool(self.tools[0], amount=3))


async def _begun_by_one(persistence: MemorySessionPersistence, paid: list[str]) -> str:
    """A session whose tool was approved and had begun when the host was killed."""
    paying = Paying("1", paid)
    async with crashing({"agent": paying}, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        (request,) = await host.asked(session_id)
        await host.approve(session_id, request.request_id)
        await paying.begun.wait()
    return session_id


async def _asked(host: Hosting, session_id: str, count: int) -> tuple[str, str]:
    """Kind and id of the n-th request."""
    data = (await host.seen(session_id, ev.INPUT_REQUESTED, count)).data
    return data["kind"], data["requestId"]


async def _allows_and_is_paid(host: Hosting, session_id: str, paid: list[str]) -> None:
    """The third request is about the second try, and only its yes has the tool run."""
    kind, retry = await _asked(host, session_id, 3)
    assert (kind, paid) == ("retry", ["1"])
    await host.approve(session_id, retry)
    done = await host.seen(session_id, ev.MESSAGE_COMPLETED)
    assert (done.data["message"], paid) == ("paid 3", ["1", "2"])
    await host.settled(session_id)


async def test_what_a_changed_agent_has_approved_again_is_asked_about_when_it_may_have_begun_before() -> None:
    persistence, paid = MemorySessionPersistence(), list[str]()
    session_id = await _begun_by_one(persistence, paid)
    async with hosting({"agent": Paying("2", paid)}, persistence=persistence) as host:
        kind, approval = await _asked(host, session_id, 2)
        assert kind == "approval"
        await host.approve(session_id, approval)
        await _allows_and_is_paid(host, session_id, paid)


async def test_an_approval_given_to_a_changed_agent_that_is_away_does_not_hide_what_may_have_begun() -> None:
    persistence, paid = MemorySessionPersistence(), list[str]()
    session_id = await _begun_by_one(persistence, paid)
    async with crashing({"agent": Paying("2", paid)}, persistence=persistence) as host:
        kind, approval = await _asked(host, session_id, 2)
        assert kind == "approval"
    async with hosting({"agent": Paying("2", paid)}, persistence=persistence) as host:
        await host.approve(session_id, approval)
        await _allows_and_is_paid(host, session_id, paid)


async def test_a_changed_agent_is_not_driven_again_after_a_crash_where_that_is_the_policy() -> None:
    persistence, paid = MemorySessionPersistence(), list[str]()
    session_id = await _begun_by_one(persistence, paid)
    changed = {"agent": Paying("2", paid)}
    async with hosting(changed, persistence=persistence, on_agent_change="fail") as host:
        failed = (await host.seen(session_id, ev.TURN_FAILED)).data
        assert (failed["code"], failed["recoverable"]) == ("TURN_DIVERGED", False)
        assert "changed" in failed["message"]
    events = decoded(session_id, stored(persistence, session_id))
    assert [row.data["attempt"] for row in events if row.type == ev.STEP_RESUMED] == [1]
    assert paid == ["1"]


async def test_a_tool_that_the_agent_itself_gave_up_while_it_waited_is_asked_about_again_after_a_crash() -> (
    None
):
    persistence, begun, ran = MemorySessionPersistence(), asyncio.Event(), list[str]()

    @tool(approval="always")
    async def publish(page: str) -> str:
        ran.append(page)
        return page

    async def agent(turn: Turn) -> Any:
        call = asyncio.ensure_future(turn.call_tool(publish, page="a"))
        if turn.attempt > 1:
            return await turn.say(await call)
        await asyncio.sleep(0)
        while not host.live(turn.session_id).state.pending:  # noqa: ASYNC110 - the gate asks in its own task
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        begun.set()
        return await asyncio.Event().wait()

    async with crashing(agent, persistence=persistence) as host:
        session_id = (await host.start()).session_id
        await begun.wait()
        await host.live(session_id).journal.flush()
    events = decoded(session_id, stored(persistence, session_id))
    assert one(events, ev.INPUT_COMPLETED)["outcome"] == "cancelled"
    async with hosting(agent, persistence=persistence) as host:
        kind, approval = await _asked(host, session_id, 2)
        assert (kind, ran) == ("approval", [])
        await host.approve(session_id, approval)
        assert (await host.seen(session_id, ev.MESSAGE_COMPLETED)).data["message"] == "a"
        await host.settled(session_id)
