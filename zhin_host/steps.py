"""SteppedAgent: an agent that is an object with `step(state) -> events`, driven until it says that it is done."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from zhin_host import events as ev
from zhin_host.actions import is_async
from zhin_host.identity import like_of_question
from zhin_host.tools import Tool, tools_digest
from zhin_host.turn import Turn


class Stepped(Protocol):
    """What a developer writes: one step of the work at a time, all memory of it in `state`."""

    def step(self, state: dict[str, Any]) -> Any:
        """Do one step, changing `state`, and return its events (or an awaitable of them).

        `{"type": "message", "text"}`, `{"type": "thought", "text"}`, an `x.` type with `data`,
        `{"type": "approval", "prompt", …}` (last: the turn parks, the answer is in the next call's
        `state["answer"]`), `{"type": "done", "text"?}` (last: the turn completes).
        """


class SteppedAgent:
    """Drives a Stepped: after each step its events and a checkpoint of its state are one batch in the log.

    A turn begins with the state of the last turn that completed and the message in `state["message"]`. A crash
    repeats at most the step it cut down, from the state before it.
    """

    def __init__(self, stepped: Stepped, name: str, tools: tuple[Tool, ...]) -> None:
        self.name = name
        self.version = str(getattr(stepped, "version", ""))
        self.is_resumable = bool(getattr(stepped, "resumable", True))
        self.tools = tools
        self.tools_digest = tools_digest(tools)
        self._stepped = stepped

    async def run(self, turn: Turn) -> None:
        state = await self._begin(turn)
        while True:
            events = await self._step(turn, state)
            state.pop("answer", None)
            answer = await _tell(turn, events, state)
            if answer is None:
                return
            state.update(answer)

    async def aclose(self) -> None:
        await close(self._stepped)

    async def _begin(self, turn: Turn) -> dict[str, Any]:
        """The state to go on from: the last step's with the answer it waited for, or a new turn's."""
        record = turn.attempt_of.replay.record
        state = copy.deepcopy(turn.state) if isinstance(turn.state, dict) else {}
        if not record.has_state:
            state.pop("answer", None)
            state["message"] = turn.message
        elif record.carried:
            call_id, request = next(reversed(record.carried.items()))
            answer = await turn.gate.ask("approval", call_id, request["prompt"], **_detail_of(request))
            state["answer"] = answer["outcome"] == "approved"
        return state

    async def _step(self, turn: Turn, state: dict[str, Any]) -> Sequence[Mapping[str, Any]]:
        """One call of the agent; a plain function runs in a thread."""
        if is_async(self._stepped.step):
            events = await self._stepped.step(state)
        else:
            events = await turn.attempt_of.services.workers.run(lambda: True, self._stepped.step, state)
        if inspect.isawaitable(events):
            events = await events
        if not isinstance(events, list | tuple) or not all(isinstance(event, dict) for event in events):
            raise TypeError(
                f"step returns a list of events, each a dict with a type, not {type(events).__name__}"
            )
        return cast("Sequence[Mapping[str, Any]]", events)


async def close(agent: object) -> None:
    """Call what a developer's agent has as `async def aclose()`."""
    aclose = getattr(agent, "aclose", None)
    if inspect.iscoroutinefunction(aclose):
        await aclose()


async def _tell(
    turn: Turn, events: Sequence[Mapping[str, Any]], state: dict[str, Any]
) -> dict[str, Any] | None:
    """Put a step's events and its checkpoint into the log as one batch.

    Returns:
        What the next step's state gets, {} or the answer; None when the agent is done: its batch is then written
        with the turn's end, so that no crash can come between.
    """
    attempt = turn.attempt_of
    attempt.check()
    *earlier, last = events or [{"type": ""}]
    ends = last.get("type") in ("approval", "done")
    for event in [*earlier, *([] if ends or not events else [last])]:
        _put(turn, event)
    form = ev.json_form(state)
    if (
        kept := attempt.recorded(form)
    ) is not form:  # the next step goes on from what a restart would go on from
        form = kept
        state.clear()
        state.update(copy.deepcopy(form))
    turn.state = form
    saved = ev.Draft(ev.CHECKPOINT_SAVED, {"turnId": turn.turn_id, "state": form})
    attempt.check_size(saved.type, saved.data)
    match last.get("type"):
        case "done":
            if last.get("text"):
                _put(turn, {"type": "message", "text": last["text"]})
            attempt.hand_over()  # the last words, which the message is made of
            attempt.hand_over(
                turn.completed_message(), saved
            )  # behind it the log says that nothing is left to do
            return None
        case "approval":
            asked = {name: value for name, value in last.items() if name not in ("type", "prompt")}
            prompt, detail = attempt.recorded(ev.json_form([last["prompt"], asked]))
            call_id = attempt.call_id(like_of_question("approve", prompt, detail))
            shown = {"args": detail} if detail else {}
            answer = await turn.gate.ask("approval", call_id, prompt, saved, **shown)
            return {"answer": answer["outcome"] == "approved"}
        case _:
            await attempt.commit(saved)
            return {}


def _put(turn: Turn, event: Mapping[str, Any]) -> None:
    """Queue one event of a step.

    Raises:
        ValueError: It is none that may stand there.
    """
    kind, attempt = event.get("type"), turn.attempt_of
    match kind:
        case "message":
            attempt.say(attempt.fitting_text(ev.MESSAGE_APPENDED, event["text"]))
        case "thought":
            attempt.think(attempt.fitting_text(ev.REASONING_APPENDED, event["text"]))
        case str() if ev.is_own_type(kind):
            form = attempt.recorded(ev.json_form(event.get("data", {})))
            attempt.check_size(kind, form)
            attempt.hand_over(ev.Draft(kind, form))
        case _:
            raise ValueError(
                f"a step's event is message, thought or x.…, at its end approval or done, not {kind!r:.80}"
            )


def _detail_of(request: Mapping[str, Any]) -> dict[str, Any]:
    return {"args": request["args"]} if "args" in request else {}
