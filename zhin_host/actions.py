"""Actions: recorded pieces of work inside a turn: what names one, how its function runs, what its result says."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from zhin_host import events as ev
from zhin_host.attempt import Attempt, Trial, trial_here
from zhin_host.errors import (
    ActionFailed,
    AttemptEnded,
    EventTooLarge,
    RequestExpired,
    ToolDenied,
    Unserializable,
    ZhinError,
)
from zhin_host.identity import like_of_call
from zhin_host.redaction import Redactor

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When a failing action is tried again, within one attempt of the turn and over restarts.

    A try that has said something before it failed is not tried again in its place: the turn is driven again from its
    record, so that what was said is marked as not counting. (An agent that is not resumable says it twice.) An error
    that has a number `retry_after_s` asks for a pause of at least that, which `delay_max_s` bounds too.

    Attributes:
        attempts: How often it is tried in all, the first time counted.
        delay_s: The pause after the first failure, seconds.
        factor: What each further pause is longer by.
        delay_max_s: The longest pause, seconds.
        on: The errors that are worth another try.
    """

    attempts: int = 3
    delay_s: float = 1.0
    factor: float = 2.0
    delay_max_s: float = 60.0
    on: tuple[type[BaseException], ...] = (Exception,)

    def delay_after(self, failures: int, error: BaseException | None = None) -> float:
        """Seconds to wait after so many failures, the last of them this one."""
        asked_s = getattr(error, "retry_after_s", None) or 0.0
        return min(self.delay_max_s, max(asked_s, self.delay_s * self.factor ** (failures - 1)))


@dataclass(frozen=True, slots=True)
class Work:
    """An action about to run: its id, what the log calls it, and the call itself."""

    call_id: str
    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    retry: Retry | None = None


class Actions:
    """Runs the actions of one attempt and records how each ended."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def recorded(self, call_id: str) -> Mapping[str, Any] | None:
        """The result that an earlier attempt recorded, None when there is none.

        Raises:
            ActionFailed, ToolDenied, RequestExpired: What it raised then.
        """
        result = self._attempt.replay.result(call_id)
        if result is None or result["status"] == "completed":
            return result
        error = result["error"]
        if result["status"] == "denied":
            kind = RequestExpired if error["code"] == "REQUEST_EXPIRED" else ToolDenied
            raise kind(error["message"], call_id)
        raise ActionFailed(f"{result['toolName']} failed: {error['message']}", call_id, error)

    async def request(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> None:
        """Tell the log that the action is asked for, before it runs; what still counts is not said again."""
        self._attempt.check()
        if not self._attempt.is_open(call_id):
            data = {"callId": call_id, "toolName": name, "input": arguments}
            await self._attempt.append(ev.Draft(ev.ACTIONS_REQUESTED, data))

    async def refuse(
        self, name: str, arguments: Mapping[str, Any], code: str, error: Exception
    ) -> ActionFailed:
        """Record an action that fails before it runs; the error to raise, with its cause.

        Args:
            name: What the log calls it.
            arguments: What can be shown of its input.
            code: UNSERIALIZABLE, ARGUMENTS_TOO_LARGE or BAD_ARGUMENTS.
            error: Why.
        """
        call_id = self._attempt.call_id(like_of_call(name, arguments))
        self.recorded(call_id)
        await self.request(call_id, name, arguments)
        form = error_form(code, error, self._attempt.redactor)
        await self.record(call_id, name, "failed", 0, error=form)
        failure = ActionFailed(f"{name} failed: {form['message']}", call_id, form)
        failure.__cause__ = error
        return failure

    async def perform(self, work: Work) -> Any:
        """Run the function and record its result; its value in the JSON form.

        Raises:
            ActionFailed: It raised, or its value cannot be recorded.
            AttemptEnded: The attempt ended meanwhile; a value that was returned is recorded all the same.
        """
        attempt = self._attempt
        attempt.check()
        clock = attempt.services.clock
        started_s = clock.monotonic_s()
        attempt.begin_work()
        failure: BaseException | None = None
        try:
            result = self._result_of(await self._try(work))
        except asyncio.CancelledError:
            if not attempt.is_over:  # the agent's own doing: a time limit, a failing task group
                await self.record(
                    work.call_id, work.name, "cancelled", _since(clock.monotonic_s(), started_s)
                )
            raise
        except (EventTooLarge, Unserializable) as error:
            code = "RESULT_TOO_LARGE" if isinstance(error, EventTooLarge) else "UNSERIALIZABLE"
            result, failure = {"error": error_form(code, error, attempt.redactor)}, error
        except BaseException as error:  # SystemExit and the like from a tool are failures too
            if (
                attempt.is_over
            ):  # perhaps the cancelling was what it failed of: no result, so it may run again
                raise AttemptEnded("this attempt of the turn is over") from error
            result, failure = {"error": error_form("ACTION_FAILED", error, attempt.redactor)}, error
        finally:
            attempt.end_work()
        status = "failed" if "error" in result else "completed"
        await self.record(work.call_id, work.name, status, _since(clock.monotonic_s(), started_s), **result)
        if status == "completed":
            return result["output"]
        error_data = result["error"]
        raise ActionFailed(
            f"{work.name} failed: {error_data['message']}", work.call_id, error_data
        ) from failure

    async def _try(self, work: Work) -> Any:
        """The function's value, tried as often as `retry` says; each failure that is tried again is in the log.

        Raises:
            AttemptEnded: What a failed try has said must be discarded, so the turn is driven again.
        """
        attempt, retry = self._attempt, work.retry
        if retry is None:
            return await self._invoke(work)
        failures = attempt.replay.record.retries.get(work.call_id, 0)
        while True:
            trial = Trial()
            token = trial_here.set(trial)
            try:
                return await self._invoke(work)
            except (asyncio.CancelledError, EventTooLarge, Unserializable):
                raise
            except BaseException as error:
                failures += 1
                if failures >= retry.attempts or not isinstance(error, retry.on):
                    raise
                attempt.check()
                pause_s = retry.delay_after(failures, error)
                told = {"attempt": failures, "error": error_form("ACTION_FAILED", error, attempt.redactor)}
                data = {
                    "callId": work.call_id,
                    "toolName": work.name,
                    **told,
                    "delayMs": round(pause_s * 1000),
                }
                await attempt.append(ev.Draft(ev.ACTION_RETRYING, data))
            finally:
                trial_here.reset(token)
            await asyncio.sleep(pause_s)
            attempt.check()
            if trial.was_heard and attempt.is_resumable:
                raise attempt.end_for_another()

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

    async def _invoke(self, work: Work) -> Any:
        attempt = self._attempt
        action = CurrentAction(work.call_id, f"{attempt.session_id}:{work.call_id}", attempt.number)
        token = _current.set(action)
        try:
            if is_async(work.function):
                return await work.function(*work.args, **work.kwargs)
            gives_up = lambda: not attempt.is_over  # noqa: E731 - who cancelled decides whether the thread is waited for
            value = await attempt.services.workers.run(gives_up, work.function, *work.args, **work.kwargs)
            return await value if inspect.isawaitable(value) else value
        finally:
            _current.reset(token)

    def _result_of(self, value: Any) -> dict[str, Any]:
        """The output as recorded; too large or without a form it raises, and the tool is not run again."""
        output = self._attempt.recorded(ev.json_form(value))
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


def error_form(code: str, error: BaseException, redactor: Redactor) -> dict[str, Any]:
    """An error as events carry it: code, message and, for what zhin_host did not raise itself, its type.

    Redacted before it is cut, so that no key is cut too short to be known.
    """
    message = redactor.text(ev.text_form(_said(error)))[:_ERROR_CHARACTERS]
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
