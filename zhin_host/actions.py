"""Actions: recorded pieces of work inside a turn: what names one, how its function runs, what its result says."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from zhin_host import events as ev
from zhin_host.attempt import Attempt
from zhin_host.clock import base32
from zhin_host.errors import ActionFailed, AttemptEnded, EventTooLarge, Unserializable, ZhinError

_ERROR_CHARACTERS: Final = 2_000
_ERROR_BYTES: Final = 2_400  # with it an action.result fits the shortest line that may be set
_TYPE_CHARACTERS: Final = 100
_RESULT_MARGIN_BYTES: Final = 1_024  # callId, toolName, status and duration beside the output


@dataclass(frozen=True, slots=True)
class CurrentAction:
    """What a running action may know of itself.

    Attributes:
        call_id: The action's id in the log, the same in every attempt.
        idempotency_key: The same in every attempt of this action and in no other's: give it to what you call.
        attempt: The turn's attempt that runs it, from 1.
    """

    call_id: str
    idempotency_key: str
    attempt: int


_current: contextvars.ContextVar[CurrentAction] = contextvars.ContextVar("zhin_host_action")


def current_action() -> CurrentAction:
    """The action that runs here, in a tool or a function given to `turn.run`, thread or task alike.

    Raises:
        LookupError: No action runs here.
    """
    return _current.get()


class Identities:
    """Names the actions and requests of one turn: the same call gets the same id in every attempt.

    An identity is the name, the digest of the arguments, and how many like it came before in the turn.
    """

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._seen: Counter[tuple[str, str]] = Counter()

    def call_id(self, name: str, arguments: bytes) -> str:
        """`call_` and 26 characters."""
        like = (name, hashlib.sha256(arguments).hexdigest())
        count = self._seen[like]
        self._seen[like] += 1
        named = hashlib.sha256(
            f"{self._turn_id}\n{like[0]}\n{like[1]}\n{count}".encode("utf-8", "replace")
        ).digest()
        return "call_" + base32(int.from_bytes(named, "big"), 26)


class Actions:
    """Runs the actions of one attempt and records how each ended."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._identities = Identities(attempt.turn_id)

    def call_id(self, name: str, arguments: bytes) -> str:
        """The id of the next call of this name with these arguments (as JSON bytes)."""
        return self._identities.call_id(name, arguments)

    async def request(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> None:
        """Tell the log that the action is asked for, before it runs."""
        self._attempt.check()
        await self._attempt.append(
            ev.Draft(ev.ACTIONS_REQUESTED, {"callId": call_id, "toolName": name, "input": arguments})
        )

    async def refuse(
        self, name: str, arguments: Mapping[str, Any], code: str, error: Exception
    ) -> ActionFailed:
        """Record an action that fails before it runs; the error to raise, with its cause.

        Args:
            name: What the log calls it.
            arguments: What can be shown of its input.
            code: UNSERIALIZABLE, EVENT_TOO_LARGE or BAD_ARGUMENTS.
            error: Why.
        """
        call_id = self.call_id(name, ev.json_bytes(arguments))
        await self.request(call_id, name, arguments)
        form = error_form(code, error)
        await self.record(call_id, name, "failed", 0, error=form)
        failure = ActionFailed(f"{name} failed: {form['message']}", call_id, form)
        failure.__cause__ = error
        return failure

    async def perform(
        self,
        call_id: str,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Run the function and record its result; its value in the JSON form.

        Raises:
            ActionFailed: It raised, or its value cannot be recorded.
            AttemptEnded: The attempt ended meanwhile; a value that was returned is recorded all the same.
        """
        attempt = self._attempt
        attempt.check()
        clock = attempt.services.clock
        action = CurrentAction(call_id, f"{attempt.session_id}:{call_id}", attempt.number)
        started_s = clock.monotonic_s()
        attempt.running += 1
        failure: BaseException | None = None
        try:
            value = await self._invoke(action, function, args, kwargs)
            result = self._result_of(value)
        except asyncio.CancelledError:
            if not attempt.is_over:  # the agent's own doing: a time limit, a failing task group
                await self.record(call_id, name, "cancelled", _since(clock.monotonic_s(), started_s))
            raise
        except (EventTooLarge, Unserializable) as error:
            code = "RESULT_TOO_LARGE" if isinstance(error, EventTooLarge) else "UNSERIALIZABLE"
            result, failure = {"error": error_form(code, error)}, error
        except BaseException as error:  # SystemExit and the like from a tool are failures too
            if (
                attempt.is_over
            ):  # perhaps the cancelling was what it failed of: no result, so it may run again
                raise AttemptEnded("this attempt of the turn is over") from error
            result, failure = {"error": error_form("ACTION_FAILED", error)}, error
        finally:
            attempt.running -= 1
        status = "failed" if "error" in result else "completed"
        await self.record(call_id, name, status, _since(clock.monotonic_s(), started_s), **result)
        if status == "completed":
            return result["output"]
        raise ActionFailed(
            f"{name} failed: {result['error']['message']}", call_id, result["error"]
        ) from failure

    async def record(self, call_id: str, name: str, status: str, duration_ms: int, **more: Any) -> None:
        """Put an action's result into the log, durable on return.

        Raises:
            AttemptEnded: The attempt is over; the result is in the log all the same if the turn still waits for it.
        """
        attempt = self._attempt
        data = {"callId": call_id, "toolName": name, "status": status, **more, "durationMs": duration_ms}
        if attempt.is_over:
            if attempt.is_open(call_id):
                attempt.hand_over(ev.Draft(ev.ACTION_RESULT, data))
            attempt.check()
        await attempt.commit(ev.Draft(ev.ACTION_RESULT, data))

    async def _invoke(
        self,
        action: CurrentAction,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        workers = self._attempt.services.workers
        token = _current.set(action)
        try:
            if is_async(function):
                return await function(*args, **kwargs)
            value = await workers.run(lambda: not self._attempt.is_over, function, *args, **kwargs)
            return await value if inspect.isawaitable(value) else value
        finally:
            _current.reset(token)

    def _result_of(self, value: Any) -> dict[str, Any]:
        """The output as recorded; too large or without a form it raises, and the tool is not run again."""
        output = ev.json_form(value)
        self._attempt.check_size(ev.ACTION_RESULT, output, margin_bytes=_RESULT_MARGIN_BYTES)
        return {"output": output}


def is_async(function: object) -> bool:
    """Whether calling it gives a coroutine: a coroutine function, or an object whose type is called like one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004 - which kind of callable
    )


def _since(now_s: float, started_s: float) -> int:
    return round((now_s - started_s) * 1000)


def named_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments by parameter name, as an auditor wants to read them; by position where there is no signature."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {"args": list(args), **kwargs} if args else dict(kwargs)
    return dict(bound.arguments)


def error_form(code: str, error: BaseException) -> dict[str, Any]:
    """An error as events carry it: code, message and, for what zhin_host did not raise itself, its type."""
    message = ev.text_form(_said(error))[:_ERROR_CHARACTERS]
    if len(ev.json_bytes(message)) > _ERROR_BYTES:
        message = message[: _ERROR_BYTES // 6]  # a control character is six bytes in JSON
    if isinstance(error, ZhinError):
        return {"code": code, "message": message}
    kind = type(error).__qualname__[-_TYPE_CHARACTERS:]
    return {"code": code, "type": kind, "message": message or kind}


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - __str__ is foreign code too, and the failure must be recorded all the same
        return ""
