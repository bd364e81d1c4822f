"""Stories: logs of sessions that met everything the order of events knows, for tests of what is read off a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.builders import LogBuilder
from zhin_host import events as ev

Story = Callable[[], LogBuilder]


def ask(name: str, kind: str = "question", **more: Any) -> tuple[str, dict[str, Any]]:
    """A request that belongs to no tool; `name` is its id."""
    return ev.INPUT_REQUESTED, {
        "requestId": name,
        "kind": kind,
        "callId": f"call_{name}",
        "prompt": "?",
        **more,
    }


def answer(
    name: str, outcome: str = "answered", kind: str = "question", **more: Any
) -> tuple[str, dict[str, Any]]:
    """The end of such a request."""
    told = {"response": {"n": 1}} if outcome == "answered" else {}
    return ev.INPUT_COMPLETED, {"requestId": name, "kind": kind, "outcome": outcome, **told, **more}


def need(name: str) -> tuple[str, dict[str, Any]]:
    """A request for an authorization."""
    return ev.AUTHORIZATION_REQUIRED, {"requestId": name, "callId": f"call_{name}", "connection": "mail"}


def authorized(name: str, *, success: bool = True, **more: Any) -> tuple[str, dict[str, Any]]:
    """The end of one."""
    return ev.AUTHORIZATION_COMPLETED, {
        "requestId": name,
        "connection": "mail",
        "success": success,
        **more,
    }


def fail(builder: LogBuilder, code: str = "AGENT_FAILED") -> tuple[str, dict[str, Any]]:
    """The open turn fails."""
    data = {
        "turnId": builder.turn_id,
        "code": code,
        "message": "it broke",
        "recoverable": code != "HOST_RESTARTED",
    }
    return ev.TURN_FAILED, data


def cancelling(builder: LogBuilder) -> tuple[str, dict[str, Any]]:
    """Somebody cancels the open turn."""
    return ev.TURN_CANCELLING, {"turnId": builder.turn_id, "reason": "requested", "by": "ann"}


def cancelled(builder: LogBuilder) -> tuple[str, dict[str, Any]]:
    """It ends so."""
    return ev.TURN_CANCELLED, {"turnId": builder.turn_id, "reason": "requested", "by": "ann"}


def cancelled_result(call_id: str) -> tuple[str, dict[str, Any]]:
    """An action that was given up."""
    data = {"callId": call_id, "toolName": "fetch", "status": "cancelled", "durationMs": 0}
    return ev.ACTION_RESULT, data


def completed(builder: LogBuilder, text: str = "") -> list[tuple[str, dict[str, Any]]]:
    """The open turn ends well, having said `text`."""
    return [
        (ev.MESSAGE_COMPLETED, {"message": text, "finishReason": "stop"}),
        (ev.TURN_COMPLETED, {"turnId": builder.turn_id}),
    ]


def a_plain_turn() -> LogBuilder:
    return LogBuilder().start().say("Good ", "day").finish("Good day")


def follow_ups() -> LogBuilder:
    return a_plain_turn().follow_up().finish("").follow_up("parts")


def thoughts_and_own_events() -> LogBuilder:
    builder = LogBuilder().start()
    builder.put(
        (ev.REASONING_APPENDED, {"reasoningDelta": "hm"}), (ev.REASONING_COMPLETED, {"reasoning": "hm"})
    )
    builder.put(("x.progress", {"done": 0.5}))
    return builder.say("so").finish("so")


def actions() -> LogBuilder:
    builder = LogBuilder().start().call("call_1", url="a").call("call_2", url="b").result("call_2")
    retrying = {"callId": "call_1", "toolName": "fetch", "attempt": 2, "error": "busy", "delayMs": 10}
    builder.put((ev.ACTION_RETRYING, retrying))
    return builder.result("call_1", "failed").finish("")


def an_approval() -> LogBuilder:
    builder = LogBuilder().start().ask_approval("call_1", page="home").answer("call_1").result("call_1")
    return builder.finish("")


def a_refusal() -> LogBuilder:
    builder = LogBuilder().start().ask_approval("call_1").answer("call_1", "denied")
    return builder.result("call_1", "denied").put(fail(builder, "TOOL_DENIED"))


def an_expiry() -> LogBuilder:
    builder = LogBuilder().start().put(ask("r1", expiresAt=1_764_428_400_001))
    return builder.put(answer("r1", "expired")).put(fail(builder, "REQUEST_EXPIRED"))


def requests_side_by_side() -> LogBuilder:
    builder = LogBuilder().start().put(ask("r1"), ask("r2", "approval")).put(need("r3"))
    builder.put(answer("r2", "approved", "approval", approved=True)).say("one down").put(answer("r1"))
    return builder.put(authorized("r3", by="ann")).finish("one down")


def a_grant() -> LogBuilder:
    builder = LogBuilder().start().call("call_1", "publish", page="home")
    asked = {"toolName": "publish", "args": {"page": "home"}, "scope": "session"}
    digest = ev.digest(ev.json_bytes({"page": "home"}))
    data = {
        "requestId": "r1",
        "kind": "approval",
        "callId": "call_1",
        "prompt": "?",
        **asked,
        "argsDigest": digest,
    }
    builder.put((ev.INPUT_REQUESTED, data)).put(answer("r1", "approved", "approval", approved=True))
    return builder.result("call_1", tool_name="publish").finish("").follow_up()


def checkpoints() -> LogBuilder:
    builder = LogBuilder().start()
    builder.put((ev.CHECKPOINT_SAVED, {"turnId": builder.turn_id, "state": {"step": 1}})).finish("")
    builder.follow_up().put((ev.CHECKPOINT_SAVED, {"turnId": builder.turn_id, "state": [2]}))
    return builder.put(fail(builder)).follow_up()


def a_failure_with_work_open() -> LogBuilder:
    builder = LogBuilder().start().call("call_1").put(ask("r1"))
    return builder.put(answer("r1", "cancelled"), fail(builder))


def a_request_given_up() -> LogBuilder:
    builder = LogBuilder().start().put(ask("r1"), need("r2"))
    builder.put(answer("r1", "cancelled"))
    return builder.put(authorized("r2", success=False, error="cancelled")).say("go on").finish("go on")


def given_up_at_the_end() -> LogBuilder:
    builder = LogBuilder().start().call("call_1").put(ask("r1"))
    return builder.put(answer("r1", "cancelled"), cancelled_result("call_1"), *completed(builder))


def a_cancelled_turn() -> LogBuilder:
    builder = LogBuilder().start().say("half").call("call_1")
    builder.put(cancelling(builder))
    return builder.put(cancelled_result("call_1"), cancelled(builder))


def cancelled_while_parked() -> LogBuilder:
    builder = LogBuilder().start().put(ask("r1"), ask("r2"))
    builder.put(cancelling(builder))
    return builder.put(answer("r1", "cancelled"), answer("r2", "cancelled"), cancelled(builder))


def a_session_that_ends_itself() -> LogBuilder:
    builder = LogBuilder().start().say("bye")
    return builder.put(*completed(builder, "bye"), (ev.SESSION_COMPLETED, {"sessionId": builder.session_id}))


def a_session_failed_at_rest() -> LogBuilder:
    builder = a_plain_turn()
    data = {"sessionId": builder.session_id, "code": "ENDED", "message": "enough"}
    return builder.put((ev.SESSION_FAILED, data))


def a_restart() -> LogBuilder:
    builder = LogBuilder().start().say("half")
    return builder.put(fail(builder, "HOST_RESTARTED")).follow_up().finish("")


def answered_after_a_restart() -> LogBuilder:
    builder = (
        LogBuilder().start().say("Well, ").ask_approval("call_1").say("lost").answer("call_1", is_live=False)
    )
    return builder.result("call_1").say("done").finish("Well, lostdone")


def queued_messages() -> LogBuilder:
    builder = LogBuilder().start()
    later = f"turn_{'later':0>26}"
    token = "zhin:" + "q" * 26
    builder.put((ev.MESSAGE_QUEUED, {"turnId": later, "message": "next", "continuationToken": token}))
    builder.finish("").put(
        (ev.TURN_STARTED, {"turnId": later, "continuationToken": token}),
        (ev.MESSAGE_RECEIVED, {"turnId": later, "message": "next"}),
    )
    return builder.put(
        (ev.TURN_FAILED, {"turnId": later, "code": "AGENT_FAILED", "message": "", "recoverable": True})
    )


def dropped_messages() -> LogBuilder:
    builder = LogBuilder().start()
    later = f"turn_{'later':0>26}"
    token = "zhin:" + "q" * 26
    builder.put((ev.MESSAGE_QUEUED, {"turnId": later, "message": "next", "continuationToken": token}))
    ended = {"sessionId": builder.session_id, "droppedTurnIds": [later]}
    return builder.put(*completed(builder), (ev.SESSION_COMPLETED, ended))


STORIES: Final[dict[str, Story]] = {
    story.__name__: story
    for story in (
        a_plain_turn,
        follow_ups,
        thoughts_and_own_events,
        actions,
        an_approval,
        a_refusal,
        an_expiry,
        requests_side_by_side,
        a_grant,
        checkpoints,
        a_failure_with_work_open,
        a_request_given_up,
        given_up_at_the_end,
        a_cancelled_turn,
        cancelled_while_parked,
        a_session_that_ends_itself,
        a_session_failed_at_rest,
        a_restart,
        answered_after_a_restart,
        queued_messages,
        dropped_messages,
    )
}
