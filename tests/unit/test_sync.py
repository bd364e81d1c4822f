"""sync: agents that are plain functions, in threads of their own."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosting import NOBODY, Hosting, hosting, one, types
from zhin_host import AttemptEnded, SyncTurn, ToolDenied, Turn, current_action, tool
from zhin_host.storage.memory import MemorySessionPersistence

DEADLINE_S = 20.0


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@tool(approval="always")
def publish(page: str) -> str:
    """Publish a page."""
    return f"/{page}"


class Thread:
    """An agent that does what `work` says, and what became of its thread.

    Attributes:
        raised: What it raised, None when nothing.
        ended: Set when it has ended.
        has_begun: Set by `begun`.
        may_go: What `held` waits for.
    """

    def __init__(self, work: Callable[[Thread, SyncTurn], Any]) -> None:
        self.work = work
        self.raised: BaseException | None = None
        self.ended = threading.Event()
        self.has_begun = threading.Event()
        self.may_go = threading.Event()
        self.turn: SyncTurn | None = None

    def __call__(self, turn: SyncTurn) -> Any:
        self.turn = turn
        try:
            return self.work(self, turn)
        except BaseException as error:
            self.raised = error
            raise
        finally:
            self.ended.set()

    def held(self) -> None:
        """Block the thread, in what knows nothing of the turn."""
        self.has_begun.set()
        assert self.may_go.wait(DEADLINE_S)

    async def is_held(self) -> None:
        assert await asyncio.to_thread(self.has_begun.wait, DEADLINE_S)

    async def has_ended(self) -> None:
        assert await asyncio.to_thread(self.ended.wait, DEADLINE_S)


def approving(_: Thread, turn: SyncTurn) -> str:
    return f"{turn.approve('Sure?')}"


def stubborn(thread: Thread, turn: SyncTurn) -> None:
    thread.held()
    turn.say("too late")


async def until_rest(host: Hosting, agent: Any = None, message: str = "Hello") -> list[Any]:
    accepted = await host.start(message)
    return await host.idle(accepted.session_id)


# -- what an agent returns and yields ------------------------------------------------------------------------------


async def returns_text(turn: Turn) -> str:
    await turn.say("one, ")
    return "two"


def plain_text(turn: SyncTurn) -> str:
    turn.say("one, ")
    return "two"


def plain_words(turn: SyncTurn) -> Iterator[str]:
    yield "one, "
    yield "two"


async def partial_text(last: str, turn: Turn) -> str:
    return f"one, {last}"


def expression(turn: SyncTurn) -> Any:
    return (word for word in ("one, ", "two"))


async def words(turn: Turn) -> Any:
    yield "one, "
    yield "two"


class Called:
    def __call__(self, turn: SyncTurn) -> str:
        return "one, two"


class Bound:
    def agent(self, turn: SyncTurn) -> str:
        return "one, two"


@pytest.mark.parametrize(
    "agent",
    [
        returns_text,
        plain_text,
        plain_words,
        expression,
        words,
        Called(),
        Bound().agent,
        lambda turn: "one, two",
        functools.partial(partial_text, "two"),
    ],
)
async def test_what_an_agent_yields_or_returns_as_text_is_said_whatever_its_form(agent: Any) -> None:
    async with hosting({"agent": agent}) as host:
        assert one(await until_rest(host), "message.completed")["message"] == "one, two"


async def returns_dict(turn: Turn) -> dict[str, str]:
    return {"text": "lost"}


def returns_coroutine(turn: SyncTurn) -> Any:
    async def never() -> None: ...

    return never()


def returns_list(turn: SyncTurn) -> list[str]:
    return ["lost"]


@pytest.mark.parametrize(("agent", "kind"), [(returns_dict, "dict"), (returns_list, "list")])
async def test_what_an_agent_returns_beside_text_fails_its_turn_instead_of_being_lost(
    agent: Any, kind: str
) -> None:
    async with hosting(agent) as host:
        failed = one(await until_rest(host), "turn.failed")
    assert failed["code"] == "AGENT_FAILED"
    assert f"the agent returned a {kind}; a string is said" in failed["message"]


async def test_an_async_agent_inside_a_plain_wrapper_fails_its_turn_with_what_to_do() -> None:
    async with hosting(returns_coroutine) as host:
        failed = one(await until_rest(host), "turn.failed")
    assert failed["message"].endswith("returned a coroutine; make it async")


async def test_an_agent_for_which_the_system_has_no_thread_fails_its_turn_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("agent in turn"):
            raise RuntimeError("can't start new thread")
        start(thread)

    async with hosting(plain_text) as host:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            events = await until_rest(host)
        assert one(events, "turn.failed")["code"] == "AGENT_FAILED"
        session_id = events[0].data["sessionId"]
        await host.store.resume(NOBODY, session_id, None)
        assert one(await host.idle(session_id), "message.completed")["message"] == "one, two"


async def test_an_agent_that_returns_nothing_or_no_words_says_nothing_more() -> None:
    async with hosting(lambda turn: "") as host:
        events = await until_rest(host)
    assert "message.appended" not in types(events)
    assert one(events, "message.completed")["message"] == ""


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3), StopIteration(4)])
async def test_what_a_plain_agent_raises_ends_its_turn_and_no_more(error: BaseException) -> None:
    def fails(turn: SyncTurn) -> None:
        if turn.message == "fail":
            raise error

    async with hosting(fails) as host:
        events = await until_rest(host, message="fail")
        assert one(events, "turn.failed")["code"] == "AGENT_FAILED"
        await host.follow_up(events[0].data["sessionId"], "go on")
        events = await host.idle(events[0].data["sessionId"])
        assert types(events).count("turn.completed") == 1


# -- what its turn is ----------------------------------------------------------------------------------------------


async def test_a_plain_agent_sees_of_its_turn_what_another_one_sees() -> None:
    def agent(turn: SyncTurn) -> str:
        assert turn.session_id.startswith("ses_")
        assert turn.turn_id.startswith("turn_")
        turn.checkpoint((turn.state or 0) + 1)
        return f"{turn.message} {turn.parts} {dict(turn.metadata)} {turn.attempt} {turn.state}"

    async with hosting(agent) as host:
        accepted = await host.start("Hello", colour="red")
        await host.idle(accepted.session_id)
        await host.follow_up(accepted.session_id, "Again")
        events = await host.idle(accepted.session_id)
    assert one(events, "message.completed")["message"] == (
        "Hello [{'type': 'text', 'text': 'Hello'}] {'colour': 'red'} 1 1"
    )
    assert one(events, "message.completed", 1)["message"].endswith(" 1 2")


async def test_a_plain_agent_may_end_its_session() -> None:
    async with hosting(lambda turn: turn.end_session()) as host:
        assert types(await host.run())[-1] == "session.completed"


async def test_a_refusal_reaches_a_plain_agent_as_it_reaches_others() -> None:
    def agent(turn: SyncTurn) -> str:
        try:
            return str(turn.call_tool(publish, page="front"))
        except ToolDenied:
            return "refused"

    async with hosting(agent) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        await host.approve(accepted.session_id, request.request_id, approved=False)
        assert one(await host.idle(accepted.session_id), "message.completed")["message"] == "refused"


async def test_actions_of_a_plain_agent_know_themselves_and_may_be_of_either_kind() -> None:
    def key() -> str:
        return current_action().idempotency_key

    async def async_key() -> str:
        return key()

    def agent(turn: SyncTurn) -> str:
        return f"{turn.run('a', key) != turn.run('b', async_key)}"

    async with hosting(agent) as host:
        assert one(await until_rest(host), "message.completed")["message"] == "True"


async def test_more_plain_agents_than_worker_threads_run_at_once_and_each_gets_its_actions_done() -> None:
    """They would wait for one another for ever if agents and their actions shared the same places."""
    gate = threading.Barrier(4)

    def agent(turn: SyncTurn) -> str:
        gate.wait(DEADLINE_S)
        return str(turn.run("length", len, turn.message))

    async with hosting(agent, worker_threads_max=1) as host:
        sessions = [await host.start("Hello") for _ in range(4)]
        for accepted in sessions:
            assert one(await host.idle(accepted.session_id), "message.completed")["message"] == "5"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_two_threads_of_an_agent_may_ask_side_by_side_and_be_answered_in_either_order(
    order: tuple[int, int],
) -> None:
    def agent(turn: SyncTurn) -> str:
        said: dict[str, str] = {}
        pages = ("one", "two")
        asking = [
            threading.Thread(target=lambda page=page: said.update({page: turn.call_tool(publish, page=page)}))
            for page in pages
        ]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        return " ".join(said[page] for page in pages)

    async with hosting(agent) as host:
        accepted = await host.start()
        requests = await host.asked(accepted.session_id, 2)
        for at in order:
            await host.approve(accepted.session_id, requests[at].request_id)
        assert one(await host.idle(accepted.session_id), "message.completed")["message"] == "/one /two"


async def test_a_function_in_the_event_loop_that_uses_the_plain_turn_is_told_so_and_stops_nothing() -> None:
    def agent(turn: SyncTurn) -> None:
        async def inside() -> None:
            turn.say("deadlock")

        turn.run("inside", inside)

    async with hosting(agent) as host:
        failed = one(await until_rest(host), "turn.failed")
    assert failed["code"] == "ACTION_FAILED"
    assert "belongs to a plain function's thread" in failed["message"]


async def test_an_action_that_cancels_itself_fails_the_turn_of_a_plain_agent_too() -> None:
    async def gives_up() -> None:
        raise asyncio.CancelledError

    async with hosting(lambda turn: turn.run("gives up", gives_up)) as host:
        events = await until_rest(host)
    assert one(events, "action.result")["status"] == "cancelled"
    assert one(events, "turn.failed")["code"] == "AGENT_FAILED"


# -- cancel, stop, leaving memory ------------------------------------------------------------------------------------


def asking(_: Thread, turn: SyncTurn) -> None:
    turn.ask("Which?")


def acting(thread: Thread, turn: SyncTurn) -> None:
    async def forever() -> None:
        thread.has_begun.set()
        await asyncio.Event().wait()

    turn.run("forever", forever)


def yielding(_: Thread, turn: SyncTurn) -> Iterator[str]:
    yield "Wait. "
    turn.approve("Sure?")


@pytest.mark.parametrize("work", [approving, asking, yielding])
async def test_a_cancel_ends_what_the_thread_waits_for_and_the_thread_sees_that_its_attempt_is_over(
    work: Callable[[Thread, SyncTurn], Any],
) -> None:
    agent = Thread(lambda thread, turn: list(made) if (made := work(thread, turn)) is not None else None)
    async with hosting(agent) as host:
        accepted = await host.start()
        await host.asked(accepted.session_id)
        assert await host.cancel(accepted.session_id) == "accepted"
        events = await host.idle(accepted.session_id)
        await agent.has_ended()
    assert types(events)[-3:] == ["turn.cancelled", "step.interrupted", "session.waiting"]
    assert isinstance(agent.raised, AttemptEnded)


async def test_a_cancel_stops_the_action_that_the_thread_waits_for() -> None:
    agent = Thread(acting)
    async with hosting(agent) as host:
        accepted = await host.start()
        await agent.is_held()
        await host.cancel(accepted.session_id)
        events = await host.idle(accepted.session_id)
    assert one(events, "action.result")["status"] == "cancelled"
    assert isinstance(agent.raised, AttemptEnded)


async def test_a_cancelled_generator_is_closed_so_that_it_cleans_up() -> None:
    thread = Thread(stubborn)
    closed: list[str] = []

    def agent(turn: SyncTurn) -> Iterator[str]:
        try:
            thread.held()
            yield "never said"
        finally:
            closed.append("closed")

    async with hosting(agent) as host:
        accepted = await host.start()
        await thread.is_held()
        await host.cancel(accepted.session_id)
        thread.may_go.set()
        events = await host.idle(accepted.session_id)
    assert closed == ["closed"]
    assert "message.appended" not in types(events)
    assert types(events)[-3] == "turn.cancelled"


async def test_a_cancelled_async_generator_is_closed_too() -> None:
    has_begun, closed = asyncio.Event(), asyncio.Event()

    async def agent(turn: Turn) -> Any:
        try:
            yield "Wait. "
            has_begun.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with hosting(agent) as host:
        accepted = await host.start()
        await has_begun.wait()
        await host.cancel(accepted.session_id)
        await host.idle(accepted.session_id)
        assert closed.is_set()


async def test_a_thread_that_does_not_listen_is_waited_for_and_then_left_behind_and_writes_nothing() -> None:
    agent = Thread(stubborn)
    async with hosting(agent, cancel_grace_s=0.05) as host:
        accepted = await host.start()
        await agent.is_held()
        await host.cancel(accepted.session_id)
        events = await host.idle(accepted.session_id)
        assert types(events)[-3] == "turn.cancelled"
        assert not agent.ended.is_set()
        agent.may_go.set()
        await agent.has_ended()
        assert isinstance(agent.raised, AttemptEnded)
        assert len(await host.events(accepted.session_id, until="tail")) == len(events)


async def test_a_cancelled_turn_is_busy_until_its_thread_has_ended() -> None:
    agent = Thread(stubborn)
    async with hosting(agent) as host:
        accepted = await host.start()
        await agent.is_held()
        await host.cancel(accepted.session_id)
        assert host.live(accepted.session_id).state.turn is not None
        agent.may_go.set()
        await host.idle(accepted.session_id)
        assert agent.ended.is_set()


async def test_a_stop_is_not_held_by_a_thread_and_the_next_host_drives_its_turn_again(data_dir: Path) -> None:
    agent = Thread(stubborn)
    async with hosting(agent, data_dir=data_dir, stop_grace_s=0.1, leaves_tasks=True) as host:
        accepted = await host.start()
        await agent.is_held()
    assert not agent.ended.is_set()
    async with hosting(Thread(lambda *_: "again"), data_dir=data_dir) as host:
        events = await host.idle(accepted.session_id)
    assert one(events, "message.completed")["message"] == "again"
    agent.may_go.set()
    await agent.has_ended()
    assert isinstance(agent.raised, AttemptEnded)


async def test_a_stop_tells_a_thread_that_waits_for_a_person_and_its_request_stays_open() -> None:
    agent = Thread(approving)
    persistence = MemorySessionPersistence()
    async with hosting(agent, persistence=persistence) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
    await agent.has_ended()
    assert isinstance(agent.raised, AttemptEnded)
    async with hosting(Thread(approving), persistence=persistence) as host:
        await host.approve(accepted.session_id, request.request_id)
        assert one(await host.idle(accepted.session_id), "message.completed")["message"] == "True"


async def test_a_parked_turn_that_leaves_memory_gives_its_thread_back() -> None:
    agent = Thread(approving)
    async with hosting(agent, parked_s=60.0, heartbeat_s=0.05) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        host.clock.advance(120)
        await agent.has_ended()
        assert isinstance(agent.raised, AttemptEnded)
        await host.approve(accepted.session_id, request.request_id)
        events = await host.events(accepted.session_id)
        while types(events)[-1] != "session.waiting" or events[-1].data["parked"]:
            events += await host.events(accepted.session_id, events[-1].index + 1)
    assert one(events, "message.completed")["message"] == "True"


def test_a_thread_that_outlives_its_loop_is_told_that_its_host_is_gone() -> None:
    agent = Thread(stubborn)

    async def leave() -> None:
        async with hosting(agent, stop_grace_s=0.1, leaves_tasks=True) as host:
            await host.start()
            await agent.is_held()

    asyncio.run(leave())
    agent.may_go.set()
    assert agent.ended.wait(DEADLINE_S)
    assert isinstance(agent.raised, AttemptEnded)
    assert str(agent.raised) == "the host has stopped"


async def test_a_task_cancelled_by_others_than_the_host_does_not_wait_for_the_thread() -> None:
    """As a loop that ends without a clean stop does it: a thread that never ends would hold it for ever."""
    agent = Thread(stubborn)
    async with hosting(agent) as host:
        accepted = await host.start()
        await agent.is_held()
        task = host.runner(accepted.session_id)._task
        assert task is not None
        task.cancel()
        failed = one(await host.idle(accepted.session_id), "turn.failed")
        assert failed["code"] == "AGENT_FAILED"
        assert not agent.ended.is_set()
        agent.may_go.set()
        await agent.has_ended()
    assert isinstance(agent.raised, AttemptEnded)
