"""Config: the one table of settings, from which flags, environment names, docs and the info route are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast, get_args

from zhin_host.errors import StartupError
from zhin_host.redaction import redactor_of

Fsync = Literal["boundary", "always", "never"]
AgentChange = Literal["ask", "continue", "fail"]

_CHOICES: Final = {"fsync": get_args(Fsync), "on_agent_change": get_args(AgentChange)}
_ENVIRONMENT_PREFIX = "ZHIN_"


def _setting(
    default: object, unit: str, help_text: str, least: float = 0
) -> Any:  # dataclasses.field is Any too
    return field(default=default, metadata={"unit": unit, "help": help_text, "least": least})


def _patterns(given: object) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(pattern, str) for pattern in given):
        raise StartupError("redact is a list of regular expressions, or of the word off.")
    redactor_of(tuple(given))  # where the mistake is
    return tuple(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting of a host. Each can be given as a keyword, a flag or ZHIN_<NAME> in the environment.

    Raises:
        StartupError: A value is of the wrong kind or below its least.
    """

    fsync: Fsync = _setting(
        "boundary",
        "mode",
        "boundary: sync before a POST is answered and at steps; always: before anyone reads; never.",
    )
    line_bytes_max: int = _setting(1 << 20, "bytes", "An event's line; a larger event is refused.", 8192)
    body_bytes_max: int = _setting(1 << 20, "bytes", "A request's body; a larger one is 413.", 64)
    body_depth_max: int = _setting(64, "levels", "Nesting of a request's body; a deeper one is 400.", 4)
    body_timeout_s: float = _setting(30.0, "seconds", "How long a body may take to arrive; then 408.", 0.01)
    metadata_bytes_max: int = _setting(16 * 1024, "bytes", "A session's metadata; larger is 400.")
    open_requests_max: int = _setting(64, "requests", "Requests that may be open in one session at once.", 1)
    request_expires_s: float = _setting(0.0, "seconds", "When an unanswered request expires; 0: never.")
    open_turns_max: int = _setting(10_000, "turns", "Turns open at once in the host; one more is 429.", 1)
    idle_sessions_max: int = _setting(
        256, "sessions", "Sessions at rest that stay in memory; the oldest leave first."
    )
    idle_s: float = _setting(60.0, "seconds", "How long a session at rest stays in memory.")
    streams_max: int = _setting(10_000, "streams", "Streams open at once in the host; one more is 429.", 1)
    heartbeat_s: float = _setting(
        15.0, "seconds", "Silence on a stream after which a heartbeat is sent.", 0.05
    )
    write_timeout_s: float = _setting(
        30.0, "seconds", "How long a reader may take nothing before it is dropped.", 0.05
    )
    on_agent_change: AgentChange = _setting(
        "ask",
        "policy",
        "A turn whose agent changed meanwhile. ask: unused approvals are asked again; continue; fail.",
    )
    queue_max: int = _setting(16, "messages", "Messages that may wait for their turn in one session.", 1)
    parked_s: float = _setting(
        300.0, "seconds", "How long a parked turn stays in memory; its answer takes it up again."
    )
    cancel_grace_s: float = _setting(10.0, "seconds", "How long a cancelled turn may take to settle.")
    stop_grace_s: float = _setting(10.0, "seconds", "How long running actions may take to end at a stop.")
    worker_threads_max: int = _setting(
        64, "threads", "Plain functions that run at once; more wait their turn.", 1
    )
    batch_events_max: int = _setting(256, "events", "Deltas that are gathered into one write.", 1)
    tail_bytes_max: int = _setting(
        256 * 1024, "bytes", "Recent bytes of a session kept in memory for its readers."
    )
    snapshot_bytes_min: int = _setting(
        64 * 1024, "bytes", "Log growth after which a snapshot is worth its writing."
    )
    redact: tuple[str, ...] = _setting(
        (),
        "patterns",
        "Regular expressions of what is never written, beside those of common keys; off: instead of those.",
    )

    def __post_init__(self) -> None:
        for setting in dataclasses.fields(self):
            value = getattr(self, setting.name)
            if setting.name == "redact":
                object.__setattr__(self, "redact", _patterns(value))
                continue
            choices = _CHOICES.get(setting.name)
            if choices is not None:
                if value not in choices:
                    raise StartupError(f"{setting.name} is one of {', '.join(choices)}, not {value!r}.")
                continue
            kinds = (int,) if isinstance(setting.default, int) else (int, float)
            if (
                isinstance(value, bool)
                or not isinstance(value, kinds)
                or not value >= setting.metadata["least"]
            ):
                raise StartupError(
                    f"{setting.name} is a number of {setting.metadata['unit']}, "
                    f"at least {setting.metadata['least']}, not {value!r}."
                )


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table.

    Attributes:
        name: The field of Config, snake_case.
        flag: The option of `zhin-host serve`.
        environment: The environment variable.
        unit: What the number counts.
        choices: The values it may have, where it is no number.
    """

    name: str
    default: int | float | str | tuple[str, ...]
    unit: str
    help: str
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def environment(self) -> str:
        return _ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def is_list(self) -> bool:
        """Whether it may be given several times; in the environment, one a line."""
        return isinstance(self.default, tuple)

    @property
    def default_text(self) -> str:
        """The default as help and documents show it."""
        return "keys and tokens" if self.is_list else str(self.default)

    def parse(self, text: str) -> int | float | str | tuple[str, ...]:
        """The value that `text` stands for.

        Raises:
            StartupError: It is not a number where a number is meant.
        """
        if isinstance(self.default, tuple):
            return tuple(line for line in text.splitlines() if line)
        if isinstance(self.default, str):
            return text
        try:
            return type(self.default)(text)
        except ValueError:
            raise StartupError(f"{self.environment} is a number of {self.unit}, not {text!r}.") from None


SETTINGS: tuple[Setting, ...] = tuple(
    Setting(
        row.name,
        cast("int | float | str | tuple[str, ...]", row.default),
        row.metadata["unit"],
        row.metadata["help"],
        _CHOICES.get(row.name, ()),
    )
    for row in dataclasses.fields(Config)
)


def from_environment(environment: Mapping[str, str], **given: object) -> Config:
    """A Config of the defaults, over them ZHIN_* of `environment`, over them what is `given` and not None.

    Raises:
        StartupError: A value is of the wrong kind or below its least.
    """
    values: dict[str, object] = {
        setting.name: setting.parse(environment[setting.environment])
        for setting in SETTINGS
        if setting.environment in environment
    }
    values.update((name, value) for name, value in given.items() if value is not None and value != ())
    return Config(**cast("dict[str, Any]", values))
