"""approval: the gate before a tool, and the waiting for people."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes import START_MS
from tests.hosting import NOBODY, Hosting, hosting, one, types
from tests.scripted_log import UnsteadyPersistence
from zhin_host import ActionFailed, RequestExpired, ToolDenied, Turn, tool
from zhin_host import events as ev
from zhin_host.errors import EventTooLarge, RequestNotFound, SessionBusy, Unserializable

Runs = list[dict[str, Any]]


def noting(approval: Any, runs: Runs, **more: Any) -> Any:
    """A tool that notes how it was called."""

    @tool(approval=approval, name="publish", **more)
    async def publish(page: str, copies: int = 1) -> str:
        runs.append({"page": page, "copies": copies})
        return f"published {page}"

    return publish


def calling(made: Any, outcomes: list[Any] | None = None, **arguments: Any) -> Callable[[Turn], Any]:
    """An agent that calls a tool once a turn and notes what came of it."""

    async def agent(turn: Turn) -> None:
        try:
            value = await turn.call_tool(made, **arguments)
        except (ToolDenied, RequestExpired, ActionFailed) as error:
            value = error
            if outcomes is None:
                raise
        if outcomes is not None:
            outcomes.append(value)

    return agent


# -- the gate --------------------------------------------------------------------------------------------------


async def test_a_tool_that_never_asks_runs_at_once() -> None:
    runs: Runs = []
    async with hosting(calling(noting("never", runs), page="home")) as host:
        events = await host.run()
    assert types(events)[4:6] == ["actions.requested", "action.result"]
    assert one(events, "actions.requested")["input"] == {"page": "home", "copies": 1}
    assert runs == [{"page": "home", "copies": 1}]


@pytest.mark.parametrize("policy", ["always", "on-risk", lambda page, copies: page == "home"])
async def test_a_tool_that_asks_runs_when_it_is_approved_with_what_was_shown(policy: Any) -> None:
    runs: Runs = []
    async with hosting(calling(noting(policy, runs), page="home")) as host:
        events = await host.run()
        assert types(events)[4:] == [
            "actions.requested",
            "input.requested",
            "step.interrupted",
            "session.waiting",
        ]
        assert runs == []
        asked = one(events, "input.requested")
        session_id = one(events, "session.started")["sessionId"]
        assert asked == {
            "requestId": asked["requestId"],
            "kind": "approval",
            "callId": one(events, "actions.requested")["callId"],
            "prompt": "Allow publish?",
            "toolName": "publish",
            "args": {"page": "home", "copies": 1},
            "argsDigest": ev.digest(b'{"page":"home","copies":1}'),
            "scope": "call",
        }
        await host.approve(session_id, asked["requestId"])
        events = await host.events(session_id)
    assert types(events)[8:11] == ["input.completed", "step.resumed", "action.result"]
    assert one(events, "action.result")["status"] == "completed"
    assert runs == [{"page": "home", "copies": 1}]


async def test_a_request_names_its_session_and_cannot_be_guessed() -> None:
    async with hosting(calling(noting("always", []), page="home")) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        other = await host.start()
        (another,) = await host.asked(other.session_id)
    ulid, _, secret = request.request_id.removeprefix("req_").partition("_")
    assert "ses_" + ulid == accepted.session_id
    assert len(secret) == 26
    assert secret != another.request_id[-26:]


async def test_a_refused_tool_does_not_run_and_says_so() -> None:
    runs: Runs = []
    outcomes: list[Any] = []
    async with hosting(calling(noting("always", runs), outcomes, page="home")) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        await host.approve(accepted.session_id, request.request_id, approved=False)
        events = await host.events(accepted.session_id)
    assert runs == []
    result = one(events, "action.result")
    assert (result["status"], result["error"]["code"]) == ("denied", "TOOL_DENIED")
    (error,) = outcomes
    assert isinstance(error, ToolDenied)
    assert error.call_id == result["callId"]
    assert "turn.completed" in types(events)


async def test_a_refusal_left_uncaught_ends_the_turn_with_its_own_code() -> None:
    async with hosting(calling(noting("always", []), page="home")) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        await host.approve(accepted.session_id, request.request_id, approved=False)
        events = await host.events(accepted.session_id)
    failed = one(events, "turn.failed")
    assert (failed["code"], failed["recoverable"]) == ("TOOL_DENIED", True)
    assert failed["callId"] == one(events, "action.result")["callId"]


async def test_a_tool_allowed_once_asks_no_more_in_its_session_and_again_in_the_next() -> None:
    runs: Runs = []
    async with hosting(calling(noting("once", runs), page="home")) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        assert request.data["scope"] == "session"
        assert request.data["prompt"] == "Allow publish for the rest of the session?"
        await host.approve(accepted.session_id, request.request_id)
        await host.events(accepted.session_id)
        follow_up = await host.follow_up(accepted.session_id)
        events = await host.events(accepted.session_id, follow_up.start_index)
        assert "input.requested" not in types(events)
        assert (await host.store.view(NOBODY, accepted.session_id))["grants"] == ["publish"]
        assert len(runs) == 2
        other = await host.start()
        assert len(await host.asked(other.session_id)) == 1
        assert len(runs) == 2


async def test_a_tool_refused_once_asks_again() -> None:
    outcomes: list[Any] = []
    async with hosting(calling(noting("once", []), outcomes, page="home")) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        await host.approve(accepted.session_id, request.request_id, approved=False)
        await host.events(accepted.session_id)
        await host.follow_up(accepted.session_id)
        (again,) = await host.asked(accepted.session_id, 2)
        assert again.request_id != request.request_id


async def test_a_policy_that_raises_asks(caplog: pytest.LogCaptureFixture) -> None:
    async with hosting(calling(noting(lambda page, copies: 1 // 0, []), page="home")) as host:
        accepted = await host.start()
        with caplog.at_level(logging.CRITICAL):
            assert len(await host.asked(accepted.session_id)) == 1


async def test_arguments_that_do_not_fit_fail_the_call_and_nobody_is_asked() -> None:
    outcomes: list[Any] = []
    async with hosting(calling(noting("always", []), outcomes, pages="home")) as host:
        events = await host.run()
    (error,) = outcomes
    assert isinstance(error, ActionFailed)
    assert error.error["code"] == "BAD_ARGUMENTS"
    assert types(events)[4:6] == ["actions.requested", "action.result"]
    assert one(events, "action.result")["error"]["code"] == "BAD_ARGUMENTS"


async def test_arguments_that_no_line_can_show_fail_the_call_and_nobody_is_asked() -> None:
    outcomes: list[Any] = []
    async with hosting(calling(noting("always", []), outcomes, page="x" * 9000), line_bytes_max=8192) as host:
        events = await host.run()
    assert outcomes[0].error["code"] == "ARGUMENTS_TOO_LARGE"
    assert "input.requested" not in types(events)


@pytest.mark.parametrize("size_bytes", range(1200, 2400, 37))
async def test_arguments_near_the_limit_are_shown_or_refused_and_never_break_the_log(size_bytes: int) -> None:
    outcomes: list[Any] = []
    made = noting("once", [])
    async with hosting(calling(made, outcomes, page="x" * size_bytes), line_bytes_max=8192) as host:
        accepted = await host.start()
        events = await host.events(accepted.session_id)
        if "input.requested" in types(events):
            await host.approve(accepted.session_id, one(events, "input.requested")["requestId"])
            events = await host.events(accepted.session_id)
        assert "turn.completed" in types(events)


async def test_arguments_that_changed_while_they_waited_are_asked_for_again_and_run_as_shown_then() -> None:
    """Scenario B12: an approval is of the arguments shown, and of no others."""
    runs: Runs = []
    async with hosting(calling(noting("always", runs), page="home"), is_audited=False) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        request.data["args"]["page"] = "secret"  # as only a bug of the host could
        await host.approve(accepted.session_id, request.request_id)
        (again,) = await host.asked(accepted.session_id, 2)
        assert runs == []
        assert again.data["args"] == {"page": "secret", "copies": 1}
        assert again.data["argsDigest"] != request.data["argsDigest"]
        await host.approve(accepted.session_id, again.request_id)
        await host.events(accepted.session_id)
        assert runs == [{"page": "secret", "copies": 1}]


async def test_several_approvals_in_a_turn_run_each_tool_once() -> None:
    """Scenario B8."""
    runs: Runs = []
    publish = noting("always", runs)

    async def agent(turn: Turn) -> None:
        for page in ("a", "b", "c"):
            await turn.call_tool(publish, page=page)

    async with hosting(agent) as host:
        accepted = await host.start()
        for count in (1, 2, 3):
            (request,) = await host.asked(accepted.session_id, count)
            await host.approve(accepted.session_id, request.request_id)
        events = await host.events(accepted.session_id)
    assert [run["page"] for run in runs] == ["a", "b", "c"]
    assert types(events).count("step.resumed") == 3


# -- side by side ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_two_tools_side_by_side_ask_at_once_and_go_on_one_by_one(order: tuple[int, int]) -> None:
    runs: Runs = []
    publish = noting("always", runs)

    async def agent(turn: Turn) -> None:
        await asyncio.gather(turn.call_tool(publish, page="a"), turn.call_tool(publish, page="b"))

    async with hosting(agent) as host:
        accepted = await host.start()
        requests = await host.asked(accepted.session_id, 2)
        first, second = (requests[at] for at in order)
        await host.approve(accepted.session_id, first.request_id)
        await host.seen(accepted.session_id, "action.result")
        assert [run["page"] for run in runs] == [first.data["args"]["page"]]
        view = await host.store.view(NOBODY, accepted.session_id)
        assert view["pendingRequestIds"] == [second.request_id]
        await host.approve(accepted.session_id, second.request_id)
        events = await host.events(accepted.session_id)
    assert types(events).count("session.waiting") == 3
    assert types(events).count("step.resumed") == 1
    resumed = types(events).index("step.resumed")
    assert [kind for kind in types(events)[:resumed] if kind == "input.completed"] == ["input.completed"] * 2
    assert len(runs) == 2


async def test_only_so_many_requests_may_be_open_at_once() -> None:
    refused: list[SessionBusy] = []

    async def agent(turn: Turn) -> None:
        results = await asyncio.gather(*(turn.ask(f"{at}?") for at in range(4)), return_exceptions=True)
        refused.extend(result for result in results if isinstance(result, SessionBusy))

    async with hosting(agent, open_requests_max=3) as host:
        accepted = await host.start()
        requests = await host.asked(accepted.session_id, 3)
        for request in requests:
            await host.respond(accepted.session_id, request.request_id, "yes")
        await host.events(accepted.session_id)
    assert len(requests) == 3
    assert len(refused) == 1


# -- questions and authorizations ------------------------------------------------------------------------------


@pytest.mark.parametrize("approved", [True, False])
async def test_a_question_for_yes_or_no_gives_what_was_answered(approved: Any) -> None:
    answers: list[bool] = []

    async def agent(turn: Turn) -> None:
        answers.append(await turn.approve("Go on?", cost=3))

    async with hosting(agent) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        assert request.data["args"] == {"cost": 3}
        assert "toolName" not in request.data
        assert "scope" not in request.data
        await host.approve(accepted.session_id, request.request_id, approved=approved)
        events = await host.events(accepted.session_id)
    assert answers == [approved]
    assert one(events, "input.completed")["outcome"] == ("approved" if approved else "denied")
    assert "actions.requested" not in types(events)


@pytest.mark.parametrize("response", ["tea", None, 0, [1, {"a": None}], ""])
async def test_a_question_gives_the_response_whatever_json_it_is(response: Any) -> None:
    answers: list[Any] = []

    async def agent(turn: Turn) -> None:
        answers.append(await turn.ask("What?", options=["tea", {1, 2}]))

    async with hosting(agent) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        assert request.kind == "question"
        assert request.data["options"] == ["tea", [1, 2]]
        await host.respond(accepted.session_id, request.request_id, response)
        events = await host.events(accepted.session_id)
    assert answers == [response]
    assert one(events, "step.interrupted")["interruptKind"] == "input"


@pytest.mark.parametrize("success", [True, False])
async def test_an_authorization_says_whether_it_succeeded(success: Any) -> None:
    answers: list[bool] = []

    async def agent(turn: Turn) -> None:
        answers.append(await turn.authorize("mail\ud800", "https://mail.example/auth", "read"))

    async with hosting(agent) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        data = {
            "requestId": request.request_id,
            "callId": request.data["callId"],
            "connection": "mail\ufffd",
            "authUrl": "https://mail.example/auth",
            "scope": "read",
        }
        assert request.data == data
        await host.store.authorize(NOBODY, request.request_id, success, "declined", None)
        events = await host.events(accepted.session_id)
    assert answers == [success]
    assert one(events, "authorization.completed") == {
        "requestId": request.request_id,
        "connection": "mail\ufffd",
        "success": success,
        "error": "declined",
        "attempt": 1,
    }


async def test_an_authorization_needs_neither_address_nor_scope() -> None:
    async def agent(turn: Turn) -> None:
        await turn.authorize("mail")

    async with hosting(agent) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        assert set(request.data) == {"requestId", "callId", "connection"}


async def test_who_says_cancelled_of_an_authorization_does_not_give_it_up() -> None:
    async def agent(turn: Turn) -> None:
        await turn.authorize("mail")

    async with hosting(agent) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        await host.store.authorize(NOBODY, request.request_id, False, "cancelled", None)
        events = await host.events(accepted.session_id)
    assert one(events, "authorization.completed")["error"] != "cancelled"
    assert "step.resumed" in types(events)


REFUSED: dict[str, tuple[Callable[[Turn], Any], type[Exception]]] = {
    "a prompt too long": (lambda turn: turn.ask("x" * 9000), EventTooLarge),
    "details too long": (lambda turn: turn.approve("?", text="x" * 9000), EventTooLarge),
    "details without a form": (lambda turn: turn.approve("?", text=object()), Unserializable),
    "options too long": (lambda turn: turn.ask("?", ["x" * 9000]), EventTooLarge),
    "options without a form": (lambda turn: turn.ask("?", [object()]), Unserializable),
    "a connection too long": (lambda turn: turn.authorize("x" * 9000), EventTooLarge),
    "an address too long": (lambda turn: turn.authorize("mail", "x" * 9000), EventTooLarge),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_request_that_no_line_can_hold_is_refused_where_it_is_made(what: str) -> None:
    make, error = REFUSED[what]

    async def agent(turn: Turn) -> None:
        with pytest.raises(error):
            await make(turn)
        await turn.say("still here")

    async with hosting(agent, line_bytes_max=8192) as host:
        events = await host.run()
    assert one(events, "message.completed")["message"] == "still here"
    assert not {"input.requested", "authorization.required"} & set(types(events))


@pytest.mark.parametrize("size_bytes", range(6396, 8192, 93))
async def test_a_prompt_near_the_limit_is_asked_or_refused_and_never_breaks_the_log(size_bytes: int) -> None:
    async def agent(turn: Turn) -> None:
        with contextlib.suppress(EventTooLarge):
            await turn.ask("x" * size_bytes)
        with contextlib.suppress(EventTooLarge):
            await turn.authorize("y" * size_bytes)

    async with hosting(agent, line_bytes_max=8192) as host:
        accepted = await host.start()
        events = await host.events(accepted.session_id)
        await host.cancel(accepted.session_id)
        assert events == (await host.idle(accepted.session_id))[: len(events)]


# -- expiry ----------------------------------------------------------------------------------------------------


async def expire(host: Hosting, seconds: float) -> None:
    host.clock.advance(seconds)
    await host.store.expire()


async def test_a_request_expires_when_its_tool_says_so_and_not_before() -> None:
    runs: Runs = []
    outcomes: list[Any] = []
    made = noting("always", runs, expires_s=60)
    async with hosting(calling(made, outcomes, page="home"), request_expires_s=5.0) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        assert request.expires_at_ms == START_MS + 60_000
        await expire(host, 59)
        assert (await host.store.view(NOBODY, accepted.session_id))["parked"]
        await expire(host, 1)
        events = await host.events(accepted.session_id)
    assert one(events, "input.completed") == {
        "requestId": request.request_id,
        "kind": "approval",
        "outcome": "expired",
        "attempt": 1,
    }
    result = one(events, "action.result")
    assert (result["status"], result["error"]["code"]) == ("denied", "REQUEST_EXPIRED")
    assert isinstance(outcomes[0], RequestExpired)
    assert outcomes[0].call_id == result["callId"]
    assert runs == []


async def test_a_request_expires_as_the_host_says_where_the_tool_says_nothing() -> None:
    async with hosting(calling(noting("always", []), page="home"), request_expires_s=5.0) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        assert request.expires_at_ms == START_MS + 5_000
        await expire(host, 5)
        events = await host.events(accepted.session_id)
    assert one(events, "turn.failed")["code"] == "REQUEST_EXPIRED"


async def test_a_tool_may_say_that_its_request_never_expires() -> None:
    made = noting("always", [], expires_s=0)
    async with hosting(calling(made, page="home"), request_expires_s=5.0) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        assert request.expires_at_ms is None


@pytest.mark.parametrize("make", [Turn.ask, Turn.approve])
async def test_a_question_that_nobody_answered_in_time_says_so(make: Callable[[Turn, str], Any]) -> None:
    raised: list[RequestExpired] = []

    async def agent(turn: Turn) -> None:
        with pytest.raises(RequestExpired) as caught:
            await make(turn, "?")
        raised.append(caught.value)

    async with hosting(agent, request_expires_s=5.0) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        await expire(host, 5)
        await host.events(accepted.session_id)
    assert raised[0].call_id == request.data["callId"]


async def test_an_answer_that_comes_too_late_finds_no_request_even_before_the_ticker_has_looked() -> None:
    outcomes: list[Any] = []
    async with hosting(calling(noting("always", [], expires_s=5), outcomes, page="home")) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        host.clock.advance(5)
        with pytest.raises(RequestNotFound):
            await host.approve(accepted.session_id, request.request_id)
        events = await host.events(accepted.session_id)
        with pytest.raises(RequestNotFound):
            await host.approve(accepted.session_id, request.request_id)
    assert one(events, "input.completed")["outcome"] == "expired"
    assert isinstance(outcomes[0], RequestExpired)


async def test_expiry_is_judged_by_the_clock_and_not_by_pinned_timestamps() -> None:
    is_back = asyncio.Event()

    async def agent(turn: Turn) -> None:
        await is_back.wait()
        await turn.ask("?")

    async with hosting(agent, request_expires_s=5.0) as host:
        host.clock.advance(1000)
        accepted = await host.start()  # by a clock that is ahead
        host.clock.advance(-1000)
        is_back.set()
        (request,) = await host.asked(accepted.session_id)
        made = await host.seen(accepted.session_id, "input.requested")
        assert made.timestamp_ms == START_MS + 1_000_000
        assert request.expires_at_ms == START_MS + 5_000
        await expire(host, 4)
        assert host.live(accepted.session_id).state.is_parked
        await expire(host, 1)
        assert not host.live(accepted.session_id).state.is_parked
        await host.events(accepted.session_id)


async def test_of_two_requests_that_expire_at_once_each_has_one_outcome() -> None:
    async def agent(turn: Turn) -> None:
        await asyncio.gather(turn.ask("a?"), turn.ask("b?"))

    async with hosting(agent, request_expires_s=5.0) as host:
        accepted = await host.start()
        await host.asked(accepted.session_id, 2)
        await expire(host, 5)
        events = await host.idle(accepted.session_id)
    outcomes = [event.data["outcome"] for event in events if event.type == "input.completed"]
    assert outcomes[0] == "expired"
    assert len(outcomes) == 2
    assert one(events, "turn.failed")["code"] == "REQUEST_EXPIRED"


async def test_a_request_that_the_agent_gives_up_while_others_expire_is_given_up() -> None:
    """The first expiry ends the group; the sync after it lets the agent go on before the second is looked at."""
    persistence = UnsteadyPersistence()

    async def agent(turn: Turn) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(turn.ask("a?"))
            group.create_task(turn.ask("b?"))

    async with hosting(agent, persistence=persistence, request_expires_s=5.0) as host:
        accepted = await host.start()
        await host.asked(accepted.session_id, 2)
        persistence.hold_syncs()
        expiring = asyncio.create_task(expire(host, 5))
        await host.seen(accepted.session_id, "turn.failed")
        persistence.let_syncs_go()
        await expiring
        events = await host.idle(accepted.session_id)
    outcomes = [event.data["outcome"] for event in events if event.type == "input.completed"]
    assert outcomes == ["expired", "cancelled"]


async def test_a_turn_that_is_being_cancelled_lets_no_request_expire() -> None:
    """Else the ticker would meet an illegal move, and end with it every heartbeat of the host."""

    async def agent(turn: Turn) -> None:
        try:
            await turn.ask("?")
        except asyncio.CancelledError:
            await asyncio.Event().wait()  # takes its time to clean up

    async with hosting(agent, request_expires_s=5.0, cancel_grace_s=3600.0, leaves_tasks=True) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        await host.cancel(accepted.session_id)
        await expire(host, 5)
        with pytest.raises(RequestNotFound):
            await host.respond(accepted.session_id, request.request_id, 1)
        runner = host.runner(accepted.session_id)
        runner._leave_behind()
        events = await host.idle(accepted.session_id)
        assert one(events, "input.completed")["outcome"] == "cancelled"
        assert one(events, "turn.cancelled")["reason"] == "requested"
        task = runner._task
        assert task is not None
        task.cancel()
        await asyncio.wait([task])


# -- given up --------------------------------------------------------------------------------------------------


async def test_a_tool_call_that_the_agent_gives_up_is_cancelled_and_the_turn_goes_on() -> None:
    runs: Runs = []
    publish = noting("always", runs)

    async def agent(turn: Turn) -> None:
        task = asyncio.ensure_future(turn.call_tool(publish, page="home"))
        await parked.wait()
        task.cancel()
        await asyncio.wait([task])
        await turn.say("without it")

    parked = asyncio.Event()
    async with hosting(agent) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        parked.set()
        events = await host.idle(accepted.session_id, request.index + 3)
        with pytest.raises(RequestNotFound):
            await host.approve(accepted.session_id, request.request_id)
    assert types(events)[:3] == ["input.completed", "step.resumed", "action.result"]
    assert events[0].data["outcome"] == "cancelled"
    assert events[2].data["status"] == "cancelled"
    assert one(events, "message.completed")["message"] == "without it"
    assert runs == []


@pytest.mark.parametrize("what", ["approve", "ask", "authorize"])
async def test_a_time_limit_around_a_request_gives_it_up_and_the_turn_goes_on(what: str) -> None:
    limit: list[asyncio.Timeout] = []

    async def agent(turn: Turn) -> None:
        make: Any = {"approve": turn.approve, "ask": turn.ask, "authorize": turn.authorize}[what]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as timeout:
                limit.append(timeout)
                await make("mail")
        await turn.say("nobody came")

    async with hosting(agent) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        limit[0].reschedule(0)
        events = await host.idle(accepted.session_id, request.index + 3)
    closed = "authorization.completed" if what == "authorize" else "input.completed"
    assert types(events)[:3] == [closed, "step.resumed", "message.appended"]
    told = events[0].data
    assert "cancelled" in (told.get("outcome"), told.get("error"))
    assert "turn.completed" in types(events)


async def test_what_was_given_up_may_be_asked_again_under_a_new_name() -> None:
    async def agent(turn: Turn) -> None:
        task = asyncio.ensure_future(turn.ask("?"))
        await first.wait()
        task.cancel()
        await asyncio.wait([task])
        await turn.ask("?")

    first = asyncio.Event()
    async with hosting(agent) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        first.set()
        (again,) = await host.asked(accepted.session_id, 2)
        assert again.request_id != request.request_id
        await host.respond(accepted.session_id, again.request_id, "yes")
        events = await host.events(accepted.session_id)
    assert "turn.completed" in types(events)


async def test_an_answer_in_the_moment_of_giving_up_stands() -> None:
    """Exactly one outcome per request: the answer was in the log first."""
    answers: list[Any] = []

    async def agent(turn: Turn) -> None:
        task = asyncio.ensure_future(turn.ask("?"))
        tasks.append(task)
        await asyncio.wait([task])
        answers.append("given up" if task.cancelled() else task.result())

    tasks: list[asyncio.Future[Any]] = []
    async with hosting(agent) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        live = host.live(accepted.session_id)
        data = {"requestId": request.request_id, "kind": "question", "outcome": "answered", "response": 7}
        live.close_request(request.request_id, ev.Draft(ev.INPUT_COMPLETED, data))
        tasks[0].cancel()  # in the same step of the loop
        events = await host.events(accepted.session_id)
    assert [event.data["outcome"] for event in events if event.type == "input.completed"] == ["answered"]
    assert answers == ["given up"]


async def test_an_answer_in_the_very_moment_of_the_request_works() -> None:
    """Scenario C12: the answer is stored, then matched."""
    answers: list[Any] = []

    async def agent(turn: Turn) -> None:
        answers.append(await turn.ask("?"))

    async with hosting(agent) as host:
        accepted = await host.start()
        live = host.live(accepted.session_id)
        write = live.journal.write

        def answer_at_once(drafts: Any, **more: Any) -> None:
            write(drafts, **more)
            for request_id in live.state.pending:
                told = {"requestId": request_id, "kind": "question", "outcome": "answered", "response": 7}
                write([ev.Draft(ev.INPUT_COMPLETED, told)])
                live.waiter.ring(request_id, told)

        vars(live.journal)["write"] = answer_at_once
        events = await host.events(accepted.session_id)
        while "turn.completed" not in types(events):
            events = await host.events(accepted.session_id)
    assert answers == [7]


async def test_a_bell_that_nobody_waits_for_rings_in_vain() -> None:
    async def agent(turn: Turn) -> None:
        await turn.ask("?")

    async with hosting(agent) as host:
        accepted = await host.start()
        (request,) = await host.asked(accepted.session_id)
        waiter = host.live(accepted.session_id).waiter
        waiter.ring("req_unknown", {})
        told = {"requestId": request.request_id, "kind": "question", "outcome": "answered", "response": 7}
        host.live(accepted.session_id).close_request(request.request_id, ev.Draft(ev.INPUT_COMPLETED, told))
        waiter.ring(request.request_id, {"response": 8})  # rung twice: the first one counts
        await host.events(accepted.session_id)
