"""Turn: what an agent holds while it works on one message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from zhin_host import events as ev
from zhin_host.actions import Actions, Retry, Work, named_arguments
from zhin_host.approval import Gate, HttpApprovalWaiter
from zhin_host.arguments import BadArguments
from zhin_host.attempt import Attempt
from zhin_host.errors import EventTooLarge, Unserializable
from zhin_host.history import read_history, text_of
from zhin_host.identity import like_of_authorization, like_of_call, like_of_question
from zhin_host.ports import SessionLog
from zhin_host.text import TRUNCATED_BYTES_MAX
from zhin_host.tools import Tool

_CALL_MARGIN_BYTES = 2_048  # what stands beside the arguments in input.requested
_NAME_CHARACTERS = 128  # stands beside every result too


class Turn:
    """One turn, as its agent sees it. Every method may be called from several tasks side by side.

    Once the attempt is over (the host stops, the turn was cancelled or has ended) every method raises AttemptEnded.

    Attributes:
        session_id: The session, `ses_` and a ULID.
        turn_id: The turn, `turn_` and a ULID.
        message: The message as text; parts are joined with a newline.
        parts: The message as a list of `{"type": "text", "text": …}`.
        metadata: What the session was started with, {} when nothing.
        attempt: 1, then one more with every time the turn is driven again after a crash.
        state: The state last given to `checkpoint`, by this turn or by the last one that completed; None before.
    """

    def __init__(
        self,
        attempt: Attempt,
        waiter: HttpApprovalWaiter,
        log: SessionLog,
        message: str | list[dict[str, str]],
    ) -> None:
        state = attempt.journal.state
        self.session_id = attempt.session_id
        self.turn_id = attempt.turn_id
        self.parts = [{"type": "text", "text": message}] if isinstance(message, str) else message
        self.message = text_of(message)
        self.metadata: Mapping[str, Any] = state.metadata or {}
        self.attempt = attempt.number
        self.state: Any = state.turn_state
        self._attempt = attempt
        self._log = log
        self._actions = Actions(attempt)
        self._gate = Gate(attempt, self._actions, waiter)
        self._begins = 0 if state.turn is None else state.turn.root_index
        self._finish_reason = "stop"
        self._usage: Mapping[str, Any] | None = None
        self._ends_session = False

    # -- speaking --------------------------------------------------------------------------------------------------

    async def say(self, text: str) -> None:
        """Append text to the answer; readers get it as message.appended, deltas only.

        Raises:
            EventTooLarge: The text does not fit one event; say it in pieces.
        """
        attempt = self._attempt
        attempt.check()
        if text and attempt.say(attempt.fitting_text(ev.MESSAGE_APPENDED, text)):
            await attempt.journal.flush()

    async def think(self, text: str) -> None:
        """Append text to the reasoning (reasoning.appended); it is closed when anything but reasoning comes next.

        Raises:
            EventTooLarge: The text does not fit one event; give it in pieces.
        """
        attempt = self._attempt
        attempt.check()
        if text and attempt.think(attempt.fitting_text(ev.REASONING_APPENDED, text)):
            await attempt.journal.flush()

    async def finish(self, reason: str = "stop", usage: Mapping[str, Any] | None = None) -> None:
        """Say how the answer ended ("stop", "length", …) and what it used; told when the turn completes.

        Raises:
            EventTooLarge, Unserializable: The usage does not fit a line, or has no JSON form.
        """
        self._attempt.check()
        reason, form = self._attempt.recorded(ev.json_form([reason, None if usage is None else dict(usage)]))
        self._attempt.check_size(ev.MESSAGE_COMPLETED, [reason, form], margin_bytes=TRUNCATED_BYTES_MAX)
        self._finish_reason, self._usage = reason, form

    async def end_session(self) -> None:
        """Complete the session with this turn: it then takes no further message."""
        self._attempt.check()
        self._ends_session = True

    async def emit(self, kind: str, data: Mapping[str, Any]) -> None:
        """Put an event of one's own into the log: `x.` and 1 to 64 of A-Z a-z 0-9 _ . and the hyphen.

        Raises:
            ValueError: The type is not of that form.
            EventTooLarge, Unserializable: The data does not fit a line, or has no JSON form.
        """
        self._attempt.check()
        if not ev.is_own_type(kind):
            raise ValueError(f"an own event type is x. and 1 to 64 of A-Z a-z 0-9 _ . -, not {kind!r:.80}")
        form = self._attempt.recorded(ev.json_form(dict(data)))
        self._attempt.check_size(kind, form)
        await self._attempt.emit(kind, form)

    async def checkpoint(self, state: Any) -> None:
        """Save the agent's own JSON state: durable on return, and `turn.state` of the next turn if this one completes.

        Raises:
            EventTooLarge, Unserializable: It does not fit a line, or has no JSON form.
        """
        self._attempt.check()
        data = {"turnId": self.turn_id, "state": self._attempt.recorded(ev.json_form(state))}
        self._attempt.check_size(ev.CHECKPOINT_SAVED, data)
        self.state = data["state"]
        await self._attempt.commit(ev.Draft(ev.CHECKPOINT_SAVED, data))

    async def history(self) -> list[dict[str, str]]:
        """The earlier messages of the session, oldest first: role ("user" or "assistant") and content."""
        self._attempt.check()
        return await self._attempt.read_when_possible(partial(read_history, self._log, self._begins))

    # -- acting ----------------------------------------------------------------------------------------------------

    async def run(
        self, name: str, fn: Callable[..., Any], /, *args: Any, retry: Retry | None = None, **kwargs: Any
    ) -> Any:
        """Run a function as a recorded action and return its value in its JSON form.

        Once it has a result it is never run again: in a later attempt the recorded one is returned, or raised.

        Args:
            name: What the log calls it, 1 to 128 printable characters.
            fn: Async, or a plain function, which runs in a thread. A tool is no such function: see call_tool.
            args: Its arguments, recorded by their names.
            retry: When it is tried again after a failure; None: never.
            kwargs: Its arguments by name.

        Raises:
            ActionFailed: It raised, or its arguments or value cannot be recorded; the cause is the original.
        """
        if isinstance(fn, Tool):
            raise TypeError(
                f"{fn.name} is a tool; call_tool runs it, and asks first where its policy says so"
            )
        if not (0 < len(name) <= _NAME_CHARACTERS and name.isprintable()):
            raise ValueError(f"an action's name is 1 to 128 printable characters, not {name!r:.80}")
        attempt, actions = self._attempt, self._actions
        attempt.check()
        try:
            name = attempt.redactor.text(name)
            arguments = attempt.recorded(ev.json_form(named_arguments(fn, args, kwargs)))
            attempt.check_size(ev.ACTIONS_REQUESTED, arguments, margin_bytes=_CALL_MARGIN_BYTES)
        except (Unserializable, EventTooLarge) as error:
            raise await actions.refuse(name, {}, _code_of(error), error) from error
        call_id = attempt.call_id(like_of_call(name, arguments))
        if (result := actions.recorded(call_id)) is not None:
            return result["output"]
        await actions.request(call_id, name, arguments)
        return await actions.perform(Work(call_id, name, fn, args, kwargs, retry))

    async def call_tool(self, tool: Tool, /, **args: Any) -> Any:
        """Call a tool: ask a person first when its policy says so, then run it as a recorded action.

        Raises:
            ToolDenied: A person refused; the tool did not run.
            RequestExpired: Nobody answered in time; the tool did not run.
            ActionFailed: It raised, or its arguments or value do not fit; the cause is the original.
        """
        if not isinstance(tool, Tool):
            raise TypeError(
                f"{getattr(tool, '__name__', tool)!s:.100} is no tool; put @tool above its function"
            )
        attempt, actions = self._attempt, self._actions
        attempt.check()
        try:
            bound = tool.bind(args)
            shown = attempt.recorded(bound)
            if shown is not bound:  # it runs with what is shown and nothing else: does that still fit it?
                shown = tool.bind(shown)
            attempt.check_size(ev.INPUT_REQUESTED, shown, margin_bytes=_CALL_MARGIN_BYTES)
        except (BadArguments, Unserializable, EventTooLarge) as error:
            raise await actions.refuse(tool.name, {}, _code_of(error), error) from error
        call_id = attempt.call_id(like_of_call(tool.name, shown))
        if (result := actions.recorded(call_id)) is not None:
            return result["output"]
        await actions.request(call_id, tool.name, shown)
        raw = await self._gate.pass_tool(tool, call_id, shown)
        return await actions.perform(Work(call_id, tool.name, tool.function, (), tool.values(raw)))

    async def approve(self, prompt: str, **detail: Any) -> bool:
        """Ask a person for a yes or no; `detail` is shown with the prompt.

        Raises:
            RequestExpired: Nobody answered in time.
            EventTooLarge, Unserializable: The detail does not fit a line, or has no JSON form.
        """
        self._attempt.check()
        prompt, form = self._attempt.recorded(ev.json_form([prompt, detail]))
        call_id = self._attempt.call_id(like_of_question("approve", prompt, form))
        answer = await self._gate.ask("approval", call_id, prompt, **({"args": form} if form else {}))
        return bool(answer["outcome"] == "approved")

    async def ask(self, prompt: str, options: list[Any] | None = None) -> Any:
        """Ask a person a question and return the response, any JSON.

        Raises:
            RequestExpired: Nobody answered in time.
            EventTooLarge, Unserializable: The options do not fit a line, or have no JSON form.
        """
        self._attempt.check()
        prompt, form = self._attempt.recorded(ev.json_form([prompt, options]))
        call_id = self._attempt.call_id(like_of_question("ask", prompt, form))
        answer = await self._gate.ask(
            "question", call_id, prompt, **({} if form is None else {"options": form})
        )
        return answer["response"]

    async def authorize(self, connection: str, auth_url: str | None = None, scope: str | None = None) -> bool:
        """Wait until a connection has been authorized elsewhere; whether that succeeded."""
        self._attempt.check()
        call_id = self._attempt.call_id(like_of_authorization(connection, auth_url, scope))
        given = {"authUrl": auth_url, "scope": scope}
        more = {name: ev.text_form(value) for name, value in given.items() if value is not None}
        answer = await self._gate.authorize(call_id, ev.text_form(connection), more)
        return bool(answer["success"])

    # -- for the runner --------------------------------------------------------------------------------------------

    @property
    def attempt_of(self) -> Attempt:
        """The attempt that this is."""
        return self._attempt

    @property
    def gate(self) -> Gate:
        """Who asks people."""
        return self._gate

    @property
    def ends_session(self) -> bool:
        return self._ends_session

    @property
    def usage(self) -> Mapping[str, Any] | None:
        return self._usage

    def completed_message(self) -> ev.Draft:
        """The message.completed of what was said."""
        beside: dict[str, Any] = {"finishReason": self._finish_reason}
        if self._usage is not None:
            beside["usage"] = self._usage
        said = self._attempt.said.fields(beside_bytes=len(ev.json_bytes(beside)))
        return ev.Draft(ev.MESSAGE_COMPLETED, {**said, **beside})


def _code_of(error: Exception) -> str:
    match error:
        case EventTooLarge():
            return "ARGUMENTS_TOO_LARGE"
        case Unserializable():
            return "UNSERIALIZABLE"
        case _:
            return "BAD_ARGUMENTS"
