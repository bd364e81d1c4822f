"""actions: recorded pieces of work: how they are named, how they run, what their results say."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import decimal
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes import FakeClock
from tests.hosting import hosting, one, types
from zhin_host import ActionFailed, ToolDenied, Turn, current_action, tool
from zhin_host import events as ev
from zhin_host.actions import Retry, error_form, named_arguments
from zhin_host.identity import Identities, like_of
from zhin_host.redaction import redactor_of

NOTHING = redactor_of(("off",))

Work = Callable[[Turn], Any]


async def ran(work: Work, **settings: Any) -> list[ev.Event]:
    """The events of a session whose agent is `work`."""

    async def agent(turn: Turn) -> None:
        await work(turn)

    async with hosting(agent, **settings) as host:
        return await host.run()


# -- names -----------------------------------------------------------------------------------------------------


def test_the_same_call_has_the_same_id_in_every_attempt_and_no_other_call_has_it() -> None:
    def names() -> list[str]:
        identities = Identities("turn_1")
        calls = [("fetch", b"{}"), ("fetch", b"{}"), ("fetch", b'{"a":1}'), ("save", b"{}")]
        return [identities.call_id(like_of(name, arguments)) for name, arguments in calls]

    assert names() == names()
    assert len({*names(), Identities("turn_2").call_id(like_of("fetch", b"{}"))}) == 5
    assert all(len(name) == len("call_") + 26 for name in names())


def test_a_name_with_half_a_character_names_a_call_too() -> None:
    assert Identities("turn_1").call_id(like_of("\ud800", b"{}")).startswith("call_")


def test_arguments_are_recorded_by_name_and_where_there_is_none_by_place() -> None:
    def plain(first: int, *more: int, flag: bool = False, **rest: int) -> None: ...

    assert named_arguments(plain, (1, 2, 3), {"flag": True, "x": 4}) == {
        "first": 1,
        "more": (2, 3),
        "flag": True,
        "rest": {"x": 4},
    }
    assert named_arguments(plain, (), {}) == {}  # they do not fit: the call will say so
    assert named_arguments(dict.update, ({}, 1), {"x": 2}) == {"args": [{}, 1], "x": 2}


def test_an_error_is_told_with_its_code_its_type_and_its_message() -> None:
    assert error_form("ACTION_FAILED", ValueError("no"), NOTHING) == {
        "code": "ACTION_FAILED",
        "type": "ValueError",
        "message": "no",
    }
    assert error_form("X", KeyError(), NOTHING)["message"] == "KeyError"
    assert error_form("TOOL_DENIED", ToolDenied("a person refused"), NOTHING) == {
        "code": "TOOL_DENIED",
        "message": "a person refused",
    }
    assert error_form("X", ValueError("\ud800" + "x" * 5000), NOTHING)["message"] == "\ufffd" + "x" * 1999
    assert error_form("X", ValueError("\x00" * 5000), NOTHING)["message"] == "\x00" * 400


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot be said")


def test_an_error_that_cannot_be_printed_is_told_all_the_same() -> None:
    assert error_form("X", Unprintable(), NOTHING) == {
        "code": "X",
        "type": "Unprintable",
        "message": "Unprintable",
    }


async def test_outside_an_action_there_is_no_current_one() -> None:
    with pytest.raises(LookupError):
        current_action()


# -- running ---------------------------------------------------------------------------------------------------


async def fetch(url: str) -> dict[str, str]:
    await asyncio.sleep(0)
    return {"page": url}


def fetch_plainly(url: str) -> dict[str, str]:
    return {"page": url}


class Fetcher:
    async def __call__(self, url: str) -> dict[str, str]:
        return {"page": url}


class PlainFetcher:
    def __call__(self, url: str) -> dict[str, str]:
        return {"page": url}


async def fetch_with(_extra: int, url: str) -> dict[str, str]:
    return {"page": url}


def fetch_later(url: str) -> Any:
    return fetch(url)


FETCHERS: dict[str, Any] = {
    "async": fetch,
    "plain": fetch_plainly,
    "async object": Fetcher(),
    "plain object": PlainFetcher(),
    "partial": functools.partial(fetch_with, 1),
    "plain that gives a coroutine": fetch_later,
}


@pytest.mark.parametrize("function", FETCHERS.values(), ids=FETCHERS)
async def test_an_action_is_asked_for_run_and_recorded(function: Any) -> None:
    values: list[Any] = []

    async def work(turn: Turn) -> None:
        values.append(await turn.run("fetch", function, url="here"))

    events = await ran(work)
    assert values == [{"page": "here"}]
    assert types(events)[4:6] == ["actions.requested", "action.result"]
    asked, result = one(events, "actions.requested"), one(events, "action.result")
    assert (asked["toolName"], asked["callId"]) == ("fetch", result["callId"])
    assert asked["input"]["url"] == "here"
    assert result == {
        "callId": asked["callId"],
        "toolName": "fetch",
        "status": "completed",
        "output": {"page": "here"},
        "durationMs": 0,
    }


async def test_how_long_an_action_took_is_recorded() -> None:
    clock = FakeClock()

    async def work(turn: Turn) -> None:
        await turn.run("slow", clock.advance, 1.5)

    assert one(await ran(work, clock=clock), "action.result")["durationMs"] == 1500


@dataclasses.dataclass
class Invoice:
    total: decimal.Decimal
    due: dt.date
    lines: tuple[str, ...]


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (Invoice(decimal.Decimal("1.10"), dt.date(2026, 1, 2), ("a", "b")),
         {"total": "1.10", "due": "2026-01-02", "lines": ["a", "b"]}),
        (b"\x00\xff", "AP8="),
        ({3, 1}, [1, 3]),
        (2**70, str(2**70)),
        (float("nan"), None),
        ("\ud800", "\ufffd"),
        ({1: "a"}, {"1": "a"}),
        (None, None),
    ],
)  # fmt: skip
async def test_a_value_comes_back_as_it_is_recorded_in_the_first_attempt_too(value: Any, form: Any) -> None:
    values: list[Any] = []

    async def work(turn: Turn) -> None:
        values.append(await turn.run("make", lambda: value))

    events = await ran(work)
    assert values == [form]
    assert one(events, "action.result")["output"] == form


async def test_a_plain_function_runs_in_a_daemon_thread_and_knows_its_action() -> None:
    seen: list[Any] = []

    def look() -> None:
        seen.append((threading.current_thread().daemon, threading.current_thread().name, current_action()))

    async def work(turn: Turn) -> None:
        await turn.run("look", look)

    events = await ran(work)
    ((is_daemon, name, action),) = seen
    assert is_daemon
    assert name == "action look"
    assert action.call_id == one(events, "action.result")["callId"]
    assert action.idempotency_key == f"{one(events, 'session.started')['sessionId']}:{action.call_id}"
    assert action.attempt == 1


async def test_each_action_sees_itself_beside_the_others_and_none_is_left_behind() -> None:
    seen: dict[str, str] = {}
    gate = asyncio.Event()

    async def look(name: str) -> None:
        if len(seen) == 1:
            gate.set()
        seen[name] = current_action().call_id
        await gate.wait()
        assert seen[name] == current_action().call_id

    async def work(turn: Turn) -> None:
        await asyncio.gather(turn.run("look", look, "a"), turn.run("look", look, "b"))
        with pytest.raises(LookupError):
            current_action()

    events = await ran(work)
    results = [event.data["callId"] for event in events if event.type == "action.result"]
    assert set(results) == set(seen.values())
    assert len(seen) == 2


async def test_only_so_many_plain_functions_run_at_once() -> None:
    running, most = 0, 0
    lock = threading.Lock()
    both = threading.Barrier(2, timeout=20)

    def count() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait()
        with lock:
            running -= 1

    async def work(turn: Turn) -> None:
        await asyncio.gather(*(turn.run("count", count) for _ in range(6)))

    events = await ran(work, worker_threads_max=2)
    assert types(events).count("action.result") == 6
    assert most == 2


# -- failing ---------------------------------------------------------------------------------------------------


class Odd(BaseException): ...


def raising(error: BaseException, *, is_async: bool) -> Callable[..., Any]:
    async def fail() -> None:
        raise error

    def fail_plainly() -> None:
        raise error

    return fail if is_async else fail_plainly


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no"), "no"),
        (SystemExit(3), "3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (Odd("odd"), "odd"),
        (Unprintable(), "Unprintable"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_whatever_a_function_raises_is_a_failure_with_its_cause(
    error: BaseException,
    message: str,
    is_async: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    caught: list[ActionFailed] = []

    async def work(turn: Turn) -> None:
        try:
            await turn.run("fail", raising(error, is_async=is_async))
        except ActionFailed as failure:
            caught.append(failure)

    events = await ran(work)
    (failure,) = caught
    assert failure.__cause__ is error
    assert failure.call_id == one(events, "action.result")["callId"]
    assert one(events, "action.result")["status"] == "failed"
    form = {"code": "ACTION_FAILED", "type": type(error).__qualname__, "message": message}
    assert one(events, "action.result")["error"] == failure.error == form
    assert "turn.completed" in types(events)


async def test_a_plain_function_that_stops_an_iteration_fails_like_any_other() -> None:
    async def work(turn: Turn) -> None:
        with pytest.raises(ActionFailed, match="StopIteration"):
            await turn.run("next", lambda: next(iter(())))

    assert one(await ran(work), "action.result")["error"]["code"] == "ACTION_FAILED"


async def test_arguments_that_do_not_fit_the_function_are_a_failure() -> None:
    async def work(turn: Turn) -> None:
        with pytest.raises(ActionFailed):
            await turn.run("fetch", fetch, "a", "b")

    events = await ran(work)
    assert one(events, "actions.requested")["input"] == {"args": ["a", "b"]}
    assert one(events, "action.result")["error"]["type"] == "TypeError"


@pytest.mark.parametrize(
    ("argument", "code"),
    [(object(), "UNSERIALIZABLE"), ("x" * 9000, "ARGUMENTS_TOO_LARGE")],
    ids=["no form", "too large"],
)
async def test_arguments_that_cannot_be_recorded_fail_the_action_before_it_runs(
    argument: object, code: str
) -> None:
    async def work(turn: Turn) -> None:
        with pytest.raises(ActionFailed) as caught:
            await turn.run("keep", lambda value: pytest.fail("it ran"), argument)
        assert caught.value.error["code"] == code
        assert caught.value.__cause__ is not None

    events = await ran(work, line_bytes_max=8192)
    assert types(events)[4:6] == ["actions.requested", "action.result"]
    assert one(events, "actions.requested")["input"] == {}
    assert one(events, "action.result")["status"] == "failed"
    assert one(events, "action.result")["error"]["code"] == code


@pytest.mark.parametrize(
    ("value", "code"),
    [(object(), "UNSERIALIZABLE"), ("x" * 9000, "RESULT_TOO_LARGE")],
    ids=["no form", "too large"],
)
async def test_a_value_that_cannot_be_recorded_fails_the_action_which_is_not_run_again(
    value: object, code: str
) -> None:
    runs: list[int] = []

    def make() -> object:
        runs.append(1)
        return value

    async def work(turn: Turn) -> None:
        with pytest.raises(ActionFailed) as caught:
            await turn.run("make", make)
        assert caught.value.error["code"] == code

    events = await ran(work, line_bytes_max=8192)
    assert one(events, "action.result")["status"] == "failed"
    assert "output" not in one(events, "action.result")
    assert runs == [1]


@pytest.mark.parametrize("size_bytes", range(8192 - 1024 - 256 - 8, 8192, 111))
async def test_a_value_near_the_limit_is_recorded_or_refused_and_never_breaks_the_log(
    size_bytes: int,
) -> None:
    async def work(turn: Turn) -> None:
        try:
            await turn.run("make", lambda: "x" * size_bytes)
        except ActionFailed as failure:
            assert failure.error["code"] == "RESULT_TOO_LARGE"  # noqa: PT017 - either is right

    events = await ran(work, line_bytes_max=8192)
    assert one(events, "action.result")["status"] in {"completed", "failed"}
    assert "turn.completed" in types(events)


@pytest.mark.parametrize("name", ["", "n" * 129, "two\nlines", "\ud800", "\x00"])
async def test_a_name_that_no_reader_could_bear_is_refused_and_leaves_no_trace(name: str) -> None:
    async def work(turn: Turn) -> None:
        with pytest.raises(ValueError, match="an action's name is 1 to 128 printable characters"):
            await turn.run(name, fetch_plainly, "here")
        await turn.run("n" * 128, fetch_plainly, "here")

    events = await ran(work, line_bytes_max=8192)
    assert types(events).count("actions.requested") == 1
    assert one(events, "action.result")["toolName"] == "n" * 128


async def test_a_tool_is_not_run_past_its_gate() -> None:
    @tool(approval="always")
    def publish() -> None: ...

    async def work(turn: Turn) -> None:
        with pytest.raises(TypeError, match="publish is a tool; call_tool runs it"):
            await turn.run("publish", publish)

    assert "actions.requested" not in types(await ran(work))


async def test_an_error_too_long_for_a_line_is_told_in_part() -> None:
    async def work(turn: Turn) -> None:
        with pytest.raises(ActionFailed):
            await turn.run("fail", raising(ValueError("\x00" * 10_000), is_async=True))

    events = await ran(work, line_bytes_max=8192)
    assert one(events, "action.result")["status"] == "failed"
    assert "turn.completed" in types(events)


async def test_a_failing_action_is_tried_again_as_often_as_it_says_and_each_failure_is_in_the_log() -> None:
    tries: list[int] = []

    async def flaky() -> str:
        tries.append(len(tries))
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return "at last"

    async def work(turn: Turn) -> None:
        await turn.say(await turn.run("flaky", flaky, retry=Retry(attempts=3, delay_s=0)))

    events = await ran(work)
    told = [event.data for event in events if event.type == ev.ACTION_RETRYING]
    assert [(row["attempt"], row["error"]["type"], row["delayMs"]) for row in told] == [
        (1, "ConnectionError", 0),
        (2, "ConnectionError", 0),
    ]
    assert [event.data["output"] for event in events if event.type == ev.ACTION_RESULT] == ["at last"]


@pytest.mark.parametrize(("error", "tried"), [(ConnectionError, 2), (ValueError, 1)])
async def test_only_the_errors_named_are_tried_again_and_the_last_failure_is_the_result(
    error: type[Exception], tried: int
) -> None:
    tries: list[int] = []

    def fails() -> None:
        tries.append(1)
        raise error("no")

    async def work(turn: Turn) -> None:
        with pytest.raises(ActionFailed, match="no"):
            await turn.run("fails", fails, retry=Retry(attempts=2, delay_s=0, on=(ConnectionError,)))

    events = await ran(work)
    assert len(tries) == tried
    assert [event.data["status"] for event in events if event.type == ev.ACTION_RESULT] == ["failed"]


def test_pauses_grow_up_to_the_longest() -> None:
    retry = Retry(delay_s=1, factor=3, delay_max_s=5)
    assert [retry.delay_after(failures) for failures in (1, 2, 3)] == [1, 3, 5]


@pytest.mark.parametrize(("asked_s", "pause_s"), [(None, 1), (0, 1), (2.5, 2.5), (60, 5)])
def test_an_error_may_ask_for_a_longer_pause_but_for_none_beyond_the_longest(
    asked_s: float | None, pause_s: float
) -> None:
    error = ConnectionError("busy")
    error.retry_after_s = asked_s  # type: ignore[attr-defined]
    assert Retry(delay_s=1, delay_max_s=5).delay_after(1, error) == pause_s


async def test_a_plain_function_that_cannot_have_a_thread_fails_and_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start
    refused: list[threading.Thread] = []

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name.startswith("action") and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)

    async def work(turn: Turn) -> None:
        with pytest.raises(ActionFailed, match="can't start new thread"):
            await turn.run("fetch", fetch_plainly, "here")
        await turn.run("fetch", fetch_plainly, "here")

    events = await ran(work, worker_threads_max=1)
    assert one(events, "action.result", 1)["status"] == "completed"
