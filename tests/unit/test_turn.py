"""turn: what an agent holds: what it says, thinks, emits, saves and remembers."""

from __future__ import annotations

import asyncio
import errno
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import LogBuilder
from tests.fakes import FakeClock, FaultyFileSystem
from tests.hosting import NOBODY, hosting, one, types
from zhin_host import AttemptEnded, Turn, tool
from zhin_host import events as ev
from zhin_host.attempt import Attempt
from zhin_host.errors import EventTooLarge, Unserializable
from zhin_host.history import read_history
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.memory import MemoryLog, MemorySessionPersistence
from zhin_host.text import SaidText

Work = Callable[[Turn], Awaitable[None]]


async def ran(work: Work, message: Any = "Hello", **settings: Any) -> list[ev.Event]:
    """The events of a session whose agent is `work`."""

    async def agent(turn: Turn) -> None:
        await work(turn)

    async with hosting(agent, **settings) as host:
        return await host.run(message)


# -- what a turn is given --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "message", "parts"),
    [
        ("Hello", "Hello", [{"type": "text", "text": "Hello"}]),
        (
            [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            "a\nb",
            [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        ),
    ],
)
async def test_a_turn_has_its_message_as_text_and_in_parts(sent: Any, message: str, parts: Any) -> None:
    seen: list[Any] = []

    async def work(turn: Turn) -> None:
        seen.append((turn.message, turn.parts, turn.attempt, turn.state, turn.metadata))

    events = await ran(work, sent)
    assert seen == [(message, parts, 1, None, {})]
    assert one(events, "message.received")["message"] == sent


async def test_a_turn_knows_its_names_and_the_sessions_metadata() -> None:
    seen: list[Any] = []

    async def agent(turn: Turn) -> None:
        seen.append((turn.session_id, turn.turn_id, turn.metadata))

    async with hosting(agent) as host:
        events = await host.run("Hello", ticket=7)
    started = one(events, "session.started")
    assert seen == [(started["sessionId"], one(events, "turn.started")["turnId"], {"ticket": 7})]


async def test_an_agent_may_be_a_generator_of_what_it_says() -> None:
    async def agent(turn: Turn) -> AsyncIterator[str]:
        yield "Good "
        yield ""
        yield turn.message

    async with hosting(agent) as host:
        events = await host.run("day")
    assert [event.data["messageDelta"] for event in events if event.type == "message.appended"] == [
        "Good ",
        "day",
    ]
    assert one(events, "message.completed")["message"] == "Good day"


# -- saying ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "kind"), [("say", b"message.appended"), ("think", b"reasoning.appended")])
async def test_a_full_batch_is_in_the_log_before_its_writer_goes_on(method: str, kind: bytes) -> None:
    seen: list[bool] = []

    async def work(turn: Turn) -> None:
        await getattr(turn, method)("word ")
        seen.append(kind in host.log(turn.session_id))

    async with hosting(work, batch_events_max=1) as host:
        await host.run()
    assert seen == [True]


async def test_what_is_said_goes_out_as_deltas_and_is_completed_as_their_sum() -> None:
    async def work(turn: Turn) -> None:
        for word in ("one ", "", "two ", "\ud800\u2028"):
            await turn.say(word)

    events = await ran(work)
    deltas = [event.data["messageDelta"] for event in events if event.type == "message.appended"]
    assert deltas == ["one ", "two ", "\ufffd\u2028"]
    assert one(events, "message.completed") == {"message": "one two \ufffd\u2028", "finishReason": "stop"}


async def test_an_agent_that_says_nothing_completes_with_an_empty_message() -> None:
    async def work(turn: Turn) -> None: ...

    assert one(await ran(work), "message.completed") == {"message": "", "finishReason": "stop"}


async def test_a_short_turn_is_few_writes() -> None:
    async def agent(turn: Turn) -> None:
        for _ in range(20):
            await turn.say("word ")

    async with hosting(agent) as host:
        accepted = await host.start()
        live = host.live(accepted.session_id)
        batches: list[bytes] = []
        append: Any = live.log.append

        def note(lines: bytes, *, expected_bytes: int) -> None:
            batches.append(lines)
            append(lines, expected_bytes=expected_bytes)

        vars(live.log)["append"] = note
        await host.events(accepted.session_id)
    assert len(batches) <= 2


@pytest.mark.parametrize("method", ["say", "think"])
async def test_a_text_that_no_line_can_hold_is_refused_where_it_is_said(method: str) -> None:
    async def work(turn: Turn) -> None:
        with pytest.raises(EventTooLarge):
            await getattr(turn, method)("x" * 8192)
        await turn.say("still here")

    events = await ran(work, line_bytes_max=8192)
    assert one(events, "message.completed")["message"] == "still here"


async def test_what_is_no_text_and_what_is_no_tool_is_named_in_the_error() -> None:
    async def helper() -> None: ...

    async def work(turn: Turn) -> None:
        unfit: Any = 3
        for method in (turn.say, turn.think):
            with pytest.raises(TypeError, match="a str, not int"):
                await method(unfit)
        unfit = helper
        with pytest.raises(TypeError, match="helper is no tool; put @tool above its function"):
            await turn.call_tool(unfit)

    await ran(work)


@pytest.mark.parametrize("text", ["x" * 3700, "\x00" * 630, "é" * 1850])
async def test_a_text_that_just_fits_a_line_is_said(text: str) -> None:
    async def work(turn: Turn) -> None:
        await turn.say(text)

    events = await ran(work, line_bytes_max=8192)
    assert one(events, "message.appended")["messageDelta"] == text


async def test_an_answer_over_the_line_limit_is_completed_with_its_start_its_size_and_its_hash() -> None:
    async def work(turn: Turn) -> None:
        for number in range(100):
            await turn.say(f"{number:02} é\ud800" + "x" * 100)

    events = await ran(work, line_bytes_max=8192)
    whole = "".join(f"{number:02} é\ufffd" + "x" * 100 for number in range(100))
    assert one(events, "message.completed") == {
        "message": whole[:1000],
        "truncated": True,
        "messageBytes": len(whole.encode()),
        "messageSha256": hashlib.sha256(whole.encode()).hexdigest(),
        "finishReason": "stop",
    }


@pytest.mark.parametrize("beside", [0, 3000])
async def test_what_stands_beside_an_answer_counts_for_the_limit_too(beside: int) -> None:
    async def work(turn: Turn) -> None:
        await turn.say("x" * 6000)
        await turn.finish("length", {"note": "y" * beside})

    events = await ran(work, line_bytes_max=12_000)
    completed = one(events, "message.completed")
    assert completed.get("truncated", False) is (beside == 3000 and len("x" * 6000) + beside > 11_488)
    assert completed["usage"] == {"note": "y" * beside}


async def test_how_an_answer_ended_and_what_it_used_is_told_when_the_turn_completes() -> None:
    async def work(turn: Turn) -> None:
        await turn.finish("length", {"tokens": 7})

    events = await ran(work)
    assert one(events, "message.completed") == {
        "message": "",
        "finishReason": "length",
        "usage": {"tokens": 7},
    }
    assert one(events, "turn.completed")["usage"] == {"tokens": 7}


async def test_an_answer_may_end_for_a_reason_without_having_used_anything() -> None:
    async def work(turn: Turn) -> None:
        await turn.finish("length\ud800")

    events = await ran(work)
    assert one(events, "message.completed") == {"message": "", "finishReason": "length\ufffd"}
    assert "usage" not in one(events, "turn.completed")


@pytest.mark.parametrize(
    ("usage", "error"),
    [({"a": object()}, Unserializable), ({"a": "x" * 8192}, EventTooLarge)],
    ids=["no form", "too large"],
)
async def test_a_usage_that_cannot_be_told_is_refused_where_it_is_given(
    usage: dict[str, Any], error: type[Exception]
) -> None:
    async def work(turn: Turn) -> None:
        with pytest.raises(error):
            await turn.finish("stop", usage)

    events = await ran(work, line_bytes_max=8192)
    assert "usage" not in one(events, "turn.completed")


# -- the text of a turn ----------------------------------------------------------------------------------------


@given(
    deltas=st.lists(st.text(min_size=1, max_size=12), max_size=40),
    limit=st.integers(min_value=600, max_value=1200),
    beside=st.integers(min_value=0, max_value=80),
)
def test_a_said_text_is_whole_where_a_line_holds_it_and_else_named_by_size_and_hash(
    deltas: list[str], limit: int, beside: int
) -> None:
    said = SaidText("message", limit)
    for delta in deltas:
        said.add(delta)
    whole = "".join(deltas)
    fields = said.fields(beside_bytes=beside)
    assert bool(said) is bool(deltas)
    if "truncated" not in fields:
        assert fields == {"message": whole}
        assert len(ev.json_bytes(whole)) + beside <= limit - 512
    else:
        assert len(ev.json_bytes(whole)) + beside > limit - 512
        assert fields["message"] == whole[:1000]
        assert fields["messageBytes"] == len(whole.encode())
        assert fields["messageSha256"] == hashlib.sha256(whole.encode()).hexdigest()


def test_a_said_text_far_over_the_limit_keeps_only_its_start() -> None:
    said = SaidText("reasoning", 2000)
    for _ in range(10_000):
        said.add("word ")
    assert sum(len(part) for part in said._parts) < 300 * 5
    fields = said.fields()
    assert fields["reasoning"] == ("word " * 200)[:1000]
    assert fields["reasoningBytes"] == 50_000
    assert said.fields() == fields


# -- thinking --------------------------------------------------------------------------------------------------


async def think_and(turn: Turn, then: str) -> None:
    await turn.think("let me ")
    await turn.think("")
    await turn.think("see")
    match then:
        case "say":
            await turn.say("so")
        case "run":
            await turn.run("fetch", lambda: 1)
        case "emit":
            await turn.emit("x.progress", {})
        case "checkpoint":
            await turn.checkpoint(1)
        case _:
            pass


@pytest.mark.parametrize(
    ("then", "following"),
    [
        ("say", "message.appended"),
        ("run", "actions.requested"),
        ("emit", "x.progress"),
        ("checkpoint", "checkpoint.saved"),
        ("nothing", "message.completed"),
    ],
)
async def test_reasoning_is_completed_when_anything_but_reasoning_comes_next(
    then: str, following: str
) -> None:
    async def work(turn: Turn) -> None:
        await think_and(turn, then)

    events = await ran(work)
    assert types(events)[4:8] == [
        "reasoning.appended",
        "reasoning.appended",
        "reasoning.completed",
        following,
    ]
    assert one(events, "reasoning.completed") == {"reasoning": "let me see"}


async def test_reasoning_that_a_request_interrupts_is_completed_before_it() -> None:
    async def agent(turn: Turn) -> None:
        await turn.think("hm")
        await turn.ask("?")

    async with hosting(agent) as host:
        accepted = await host.start()
        await host.asked(accepted.session_id)
        events = await host.events(accepted.session_id)
        assert types(events)[4:7] == ["reasoning.appended", "reasoning.completed", "input.requested"]
        await host.cancel(accepted.session_id)
        await host.idle(accepted.session_id)


@pytest.mark.parametrize("error", [None, ValueError("no")], ids=["cancelled", "failed"])
async def test_reasoning_that_the_turns_end_interrupts_is_completed_before_it(
    error: Exception | None,
) -> None:
    async def agent(turn: Turn) -> None:
        await turn.think("hm")
        if error is not None:
            raise error
        await asyncio.Event().wait()

    async with hosting(agent) as host:
        accepted = await host.start()
        if error is None:
            await host.seen(accepted.session_id, "reasoning.appended")
            await host.cancel(accepted.session_id)
        events = await host.idle(accepted.session_id)
    assert types(events).count("reasoning.completed") == 1
    end = "turn.cancelled" if error is None else "turn.failed"
    assert types(events).index("reasoning.completed") == types(events).index(end) - 1


async def test_reasoning_over_the_line_limit_is_truncated_alike() -> None:
    async def work(turn: Turn) -> None:
        for _ in range(50):
            await turn.think("é" * 100)

    whole = "é" * 5000
    events = await ran(work, line_bytes_max=8192)
    assert one(events, "reasoning.completed") == {
        "reasoning": whole[:1000],
        "truncated": True,
        "reasoningBytes": 10_000,
        "reasoningSha256": hashlib.sha256(whole.encode()).hexdigest(),
    }


# -- emitting and saving ---------------------------------------------------------------------------------------


async def test_an_agents_own_event_is_in_the_log_when_emit_returns() -> None:
    async def agent(turn: Turn) -> None:
        await turn.emit("x.progress.A-1_2", {"done": {3, 1}})
        seen.append(types(await host.events(turn.session_id, until="tail"))[-1])

    seen: list[str] = []
    async with hosting(agent) as host:
        events = await host.run()
    assert seen == ["x.progress.A-1_2"]
    assert one(events, "x.progress.A-1_2") == {"done": [1, 3]}


@pytest.mark.parametrize(
    "kind", ["progress", "x.", "x.a b", "x." + "a" * 65, "X.a", "turn.completed", "x.\n"]
)
async def test_an_event_type_that_is_not_the_agents_own_is_refused(kind: str) -> None:
    async def work(turn: Turn) -> None:
        with pytest.raises(ValueError, match="an own event type is x"):
            await turn.emit(kind, {})

    assert types(await ran(work))[4:] == [
        "message.completed",
        "turn.completed",
        "step.completed",
        "session.waiting",
    ]


@pytest.mark.parametrize("value", [object(), "x" * 9000], ids=["no form", "too large"])
@pytest.mark.parametrize("method", ["emit", "checkpoint"])
async def test_data_that_no_line_can_hold_is_refused_where_it_is_given(method: str, value: object) -> None:
    async def work(turn: Turn) -> None:
        with pytest.raises((Unserializable, EventTooLarge)):
            await (turn.emit("x.a", {"a": value}) if method == "emit" else turn.checkpoint({"a": value}))
        assert turn.state is None

    assert "turn.completed" in types(await ran(work, line_bytes_max=8192))


@pytest.mark.parametrize("size_bytes", range(7696, 8192, 31))
async def test_data_near_the_limit_is_written_or_refused_and_never_breaks_the_log(size_bytes: int) -> None:
    async def work(turn: Turn) -> None:
        for make in (turn.say, turn.think, turn.checkpoint, lambda text: turn.emit("x.a", {"a": text})):
            try:
                await make("x" * size_bytes)
            except EventTooLarge:
                continue

    assert "turn.completed" in types(await ran(work, line_bytes_max=8192))


async def test_the_state_of_the_last_completed_turn_is_the_next_ones_to_begin_with() -> None:
    seen: list[Any] = []

    async def agent(turn: Turn) -> None:
        seen.append(turn.state)
        match turn.message:
            case "save":
                await turn.checkpoint({"turns": len(seen), "tags": {"b", "a"}})
                seen.append(turn.state)
            case "save and fail":
                await turn.checkpoint("lost")
                raise ValueError("no")
            case "save and wait":
                await turn.checkpoint("lost too")
                await turn.ask("?")
            case _:
                pass

    async with hosting(agent) as host:
        accepted = await host.start("save")
        await host.events(accepted.session_id)
        for message in ("save and fail", "look", "save and wait"):
            follow_up = await host.follow_up(accepted.session_id, message)
            await host.events(accepted.session_id, follow_up.start_index)
        await host.cancel(accepted.session_id)
        await host.idle(accepted.session_id)
        await host.follow_up(accepted.session_id, "look")
        await host.idle(accepted.session_id)
    saved = {"turns": 1, "tags": ["a", "b"]}
    assert seen == [None, saved, saved, saved, saved, saved]


# -- remembering -----------------------------------------------------------------------------------------------


async def test_a_first_turn_has_no_history() -> None:
    seen: list[Any] = []

    async def work(turn: Turn) -> None:
        seen.append(await turn.history())

    await ran(work)
    assert seen == [[]]


async def test_a_history_that_cannot_be_read_now_is_waited_for(data_dir: Path) -> None:
    fs, seen = FaultyFileSystem(), list[list[dict[str, str]]]()

    async def agent(turn: Turn) -> None:
        fs.fail_next(errno.EIO, "pread", count=2)
        seen.append(await turn.history())

    async with hosting(agent, persistence=FileHttpSessionPersistence(data_dir, fs=fs)) as host:
        session_id = (await host.start("first")).session_id
        await host.settled(session_id)  # a reader would meet the error itself
        await host.follow_up(session_id, "second")
        await host.settled(session_id)
        events = await host.events(session_id)
    assert [event.data.get("code") for event in events if event.type == ev.TURN_FAILED] == []
    assert [len(history) for history in seen] == [0, 2]


async def test_the_shortest_line_that_may_be_set_holds_the_end_of_every_answer() -> None:
    async def work(turn: Turn) -> None:
        for _ in range(12):
            await turn.say("\x00" * 500)  # the heaviest: six bytes each in JSON

    events = await ran(work, line_bytes_max=8192)
    completed = one(events, "message.completed")
    assert (completed["truncated"], len(completed["message"])) == (True, 1_000)
    assert "turn.completed" in types(events)


async def test_the_history_is_every_message_with_its_answer_if_it_was_completed() -> None:
    histories: list[list[dict[str, str]]] = []

    async def agent(turn: Turn) -> None:
        histories.append(await turn.history())
        await turn.say(f"You said {turn.message!r}. ")
        match turn.message:
            case "fail":
                raise ValueError("no")
            case "wait":
                await turn.ask("?")
            case "long":
                for _ in range(120):
                    await turn.say("x" * 100)
            case _:
                pass

    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    async with hosting(agent, line_bytes_max=8192) as host:
        accepted = await host.start("first")
        await host.idle(accepted.session_id)
        for message in ("fail", "long", "wait", parts, "last"):
            await host.follow_up(accepted.session_id, message)
            if message == "wait":
                await host.asked(accepted.session_id)
                await host.cancel(accepted.session_id)
            await host.idle(accepted.session_id)
        events = await host.events(accepted.session_id)
    assert one(events, "message.completed", 1)["truncated"]
    assert histories[0] == []
    assert histories[-1] == [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "You said 'first'. "},
        {"role": "user", "content": "fail"},
        {"role": "user", "content": "long"},
        {"role": "assistant", "content": "You said 'long'. " + "x" * 12_000},
        {"role": "user", "content": "wait"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "You said 'a\\nb'. "},
    ]


async def test_a_history_longer_than_a_block_is_read_whole() -> None:
    seen: list[list[dict[str, str]]] = []

    async def agent(turn: Turn) -> None:
        if turn.message == "go":
            for _ in range(30):
                await turn.say("x" * 100_000)
        else:
            seen.append(await turn.history())

    async with hosting(agent) as host:
        accepted = await host.start("go")
        await host.idle(accepted.session_id)
        await host.follow_up(accepted.session_id)
        await host.idle(accepted.session_id)
    assert [len(row["content"]) for row in seen[0]] == [2, 3_000_000]


async def test_a_log_that_is_shorter_than_it_should_be_gives_the_history_that_is_there() -> None:
    builder = LogBuilder().start("first").finish("").follow_up()
    log = MemoryLog(builder.session_id, bytearray(builder.content))
    assert len(read_history(log, builder.state.next_index)) == 3
    assert read_history(log, 8) == [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": ""},
    ]

    class Shrunken(MemoryLog):
        def read(self, offset: int, limit_bytes: int) -> bytes:
            return b"" if offset else super().read(0, 100)

    shrunken = Shrunken(builder.session_id, bytearray(builder.content))
    assert read_history(shrunken, builder.state.next_index) == []


# -- a further attempt -----------------------------------------------------------------------------------------


async def test_what_came_before_the_record_is_used_up_is_neither_thought_nor_said_nor_emitted_again() -> None:
    persistence = MemorySessionPersistence()

    async def agent(turn: Turn) -> None:
        await turn.think("hm")
        await turn.emit("x.first", {})
        await turn.say("once ")
        await turn.run("fetch", lambda: 1)
        await turn.think("aha")
        await turn.emit("x.second", {})
        await turn.say(str(await turn.ask("?")))

    async with hosting(agent, persistence=persistence) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
    async with hosting(agent, persistence=persistence) as host:
        await host.respond(accepted.session_id, request.request_id, "tea")
        events = await host.idle(accepted.session_id)
    kinds = types(events)
    assert [kinds.count(kind) for kind in ("x.first", "x.second", "actions.requested")] == [1, 1, 1]
    assert [event.data["reasoning"] for event in events if event.type == "reasoning.completed"] == [
        "hm",
        "aha",
    ]
    assert one(events, "message.completed")["message"] == "once tea"


# -- the end of an attempt -------------------------------------------------------------------------------------


@tool
async def ping() -> None: ...


CALLS: dict[str, Callable[[Turn], Awaitable[Any]]] = {
    "say": lambda turn: turn.say("late"),
    "say nothing": lambda turn: turn.say(""),
    "think": lambda turn: turn.think("late"),
    "finish": lambda turn: turn.finish(),
    "end_session": lambda turn: turn.end_session(),
    "emit": lambda turn: turn.emit("x.late", {}),
    "checkpoint": lambda turn: turn.checkpoint("late"),
    "history": lambda turn: turn.history(),
    "run": lambda turn: turn.run("late", lambda: pytest.fail("it ran")),
    "run what cannot be recorded": lambda turn: turn.run("late", print, object()),
    "call_tool": lambda turn: turn.call_tool(ping),
    "call_tool with what does not fit": lambda turn: turn.call_tool(ping, more=1),
    "approve": lambda turn: turn.approve("?"),
    "ask": lambda turn: turn.ask("?"),
    "authorize": lambda turn: turn.authorize("mail"),
}


async def test_every_call_of_a_turn_that_is_over_says_so_and_writes_nothing() -> None:
    kept: list[Turn] = []

    async def agent(turn: Turn) -> None:
        kept.append(turn)

    async with hosting(agent) as host:
        events = await host.run()
        session_id = one(events, "session.started")["sessionId"]
        await host.settled(session_id)
        for name, call in CALLS.items():
            with pytest.raises(AttemptEnded):
                await call(kept[0])
            assert kept[0].state is None, name
        await asyncio.sleep(0)
        assert await host.events(session_id) == events


async def test_every_call_of_a_cancelled_turn_says_so_and_no_except_exception_takes_it_for_a_failure() -> (
    None
):
    said: list[str] = []

    async def agent(turn: Turn) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for name, call in CALLS.items():
                try:
                    await call(turn)
                except Exception:  # noqa: BLE001 - what an agent might write
                    raise AssertionError(name) from None
                except AttemptEnded:
                    said.append(name)

    async with hosting(agent) as host:
        accepted = await host.start()
        await host.seen(accepted.session_id, "message.received")
        await asyncio.sleep(0)
        await host.cancel(accepted.session_id)
        events = await host.idle(accepted.session_id)
    assert said == list(CALLS)
    assert types(events)[4:] == ["turn.cancelling", "turn.cancelled", "step.interrupted", "session.waiting"]


async def test_an_attempt_of_no_open_turn_is_the_first() -> None:
    """What a runner never makes; the attempt does not fail of it."""

    async def agent(turn: Turn) -> None: ...

    async with hosting(agent, clock=FakeClock()) as host:
        accepted = await host.start()
        await host.idle(accepted.session_id)
        live = host.live(accepted.session_id)
        services = host.store._intake._services
        attempt = Attempt(live.session_id, "turn_x", live.journal, services)
        assert attempt.number == 1
        assert not attempt.is_open("call_x")
        assert (await host.store.view(NOBODY, accepted.session_id))["status"] == "waiting"
