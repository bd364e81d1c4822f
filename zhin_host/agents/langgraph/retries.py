"""Retries: a node's RetryPolicy as the host's Retry: further tries are in the log and counted over restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from langgraph.types import RetryPolicy

from zhin_host import Retry


def retry_of(policy: RetryPolicy) -> Retry:
    """The same rule, without its jitter: one host tries one node again."""
    return Retry(
        attempts=policy.max_attempts,
        delay_s=policy.initial_interval,
        factor=policy.backoff_factor,
        delay_max_s=policy.max_interval,
        on=_errors_of(policy),
    )


class _Judged(type):
    """A class of errors that a function judges."""

    judge: Callable[[Exception], bool]

    def __instancecheck__(cls, error: object) -> bool:
        return isinstance(error, Exception) and cls.judge(error)


def _errors_of(policy: RetryPolicy) -> tuple[type[BaseException], ...]:
    on = policy.retry_on
    if isinstance(on, type):
        return (on,)
    if not callable(on):
        return tuple(on)
    return (cast("type[Exception]", _Judged("ErrorsOfPolicy", (Exception,), {"judge": staticmethod(on)})),)
