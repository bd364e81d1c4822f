"""Events: the vocabulary, the line codec and the tamper-evident chain (contract.md section 1)."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime as dt
import decimal
import enum
import hashlib
import pathlib
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from zhin_host.errors import EventTooLarge, Unserializable

LOG_VERSION: Final = 1

SESSION_STARTED: Final = "session.started"
SESSION_WAITING: Final = "session.waiting"
SESSION_COMPLETED: Final = "session.completed"
SESSION_FAILED: Final = "session.failed"
TURN_STARTED: Final = "turn.started"
TURN_COMPLETED: Final = "turn.completed"
TURN_FAILED: Final = "turn.failed"
TURN_CANCELLING: Final = "turn.cancelling"
TURN_CANCELLED: Final = "turn.cancelled"
STEP_STARTED: Final = "step.started"
STEP_COMPLETED: Final = "step.completed"
STEP_INTERRUPTED: Final = "step.interrupted"
STEP_RESUMED: Final = "step.resumed"
MESSAGE_QUEUED: Final = "message.queued"
MESSAGE_RECEIVED: Final = "message.received"
MESSAGE_APPENDED: Final = "message.appended"
MESSAGE_COMPLETED: Final = "message.completed"
REASONING_APPENDED: Final = "reasoning.appended"
REASONING_COMPLETED: Final = "reasoning.completed"
ACTIONS_REQUESTED: Final = "actions.requested"
ACTION_RETRYING: Final = "action.retrying"
ACTION_RESULT: Final = "action.result"
INPUT_REQUESTED: Final = "input.requested"
INPUT_COMPLETED: Final = "input.completed"
AUTHORIZATION_REQUIRED: Final = "authorization.required"
AUTHORIZATION_COMPLETED: Final = "authorization.completed"
CHECKPOINT_SAVED: Final = "checkpoint.saved"

VOCABULARY: Final[dict[str, str]] = {  # type -> its fields; `?` optional
    SESSION_STARTED: "sessionId agent logVersion continuationToken owner? metadata?",
    SESSION_WAITING: "sessionId continuationToken parked reason pendingRequestIds steps queued?",
    SESSION_COMPLETED: "sessionId droppedTurnIds?",
    SESSION_FAILED: "sessionId droppedTurnIds? code message",
    TURN_STARTED: (
        "turnId continuationToken agentVersion? toolsDigest? idempotencyKey? requestDigest? resumes? discardFrom? "
        "by?"
    ),
    TURN_COMPLETED: "turnId usage?",
    TURN_FAILED: "turnId code message recoverable callId?",
    TURN_CANCELLING: "turnId reason by?",
    TURN_CANCELLED: "turnId reason by?",
    STEP_STARTED: "stepId turnId status",
    STEP_COMPLETED: "stepId turnId status",
    STEP_INTERRUPTED: "stepId turnId status interruptKind requestId?",
    STEP_RESUMED: "stepId turnId attempt discardFrom? crashes?",
    MESSAGE_QUEUED: "turnId message continuationToken idempotencyKey? requestDigest? by?",
    MESSAGE_RECEIVED: "turnId message",
    MESSAGE_APPENDED: "messageDelta",
    MESSAGE_COMPLETED: "message finishReason usage? truncated? messageBytes? messageSha256?",
    REASONING_APPENDED: "reasoningDelta",
    REASONING_COMPLETED: "reasoning truncated? reasoningBytes? reasoningSha256?",
    ACTIONS_REQUESTED: "callId toolName input",
    ACTION_RETRYING: "callId toolName attempt error delayMs",
    ACTION_RESULT: "callId toolName status output? error? durationMs",
    INPUT_REQUESTED: (
        "requestId kind callId prompt toolName? args? argsDigest? scope? options? expiresAt? "
        "agentVersion? toolsDigest?"
    ),
    INPUT_COMPLETED: "requestId kind outcome approved? response? comment? by? attempt?",
    AUTHORIZATION_REQUIRED: "requestId callId connection authUrl? scope?",
    AUTHORIZATION_COMPLETED: "requestId connection success error? by? attempt?",
    CHECKPOINT_SAVED: "turnId state",
}
REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    kind: tuple(name for name in fields.split() if not name.endswith("?"))
    for kind, fields in VOCABULARY.items()
}
TURN_ENDS: Final = frozenset({TURN_COMPLETED, TURN_FAILED, TURN_CANCELLED})
SESSION_ENDS: Final = frozenset({SESSION_COMPLETED, SESSION_FAILED})
REQUESTS: Final = frozenset({INPUT_REQUESTED, AUTHORIZATION_REQUIRED})
ANSWERS: Final = frozenset({INPUT_COMPLETED, AUTHORIZATION_COMPLETED})

_OWN_TYPE = re.compile(r"x\.[A-Za-z0-9_.-]{1,64}\Z")
_LINE = re.compile(
    rb'\{"index":(0|[1-9]\d{0,14}),"type":"([A-Za-z0-9_.-]{1,66})","timestamp":([1-9]\d{0,14}),'
    rb'"data":(\{.*\}),"sum":"([A-Za-z0-9_-]{43})"\}\Z',
    re.DOTALL,
)
SUM_BYTES: Final = 43
_TAIL_OF_LINE: Final = len(b',"sum":"') + SUM_BYTES + len(b'"}')
# Contract section 1: many line readers split on these. No UTF-8 sequence holds another, so bytes may be replaced.
_SEPARATORS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_base64 = binascii.b2a_base64  # looked up once: every event passes here
_new_sha256 = hashlib.sha256().copy  # OpenSSL looks its algorithm up for each new hash, and not for a copy
_DEPTH_MAX: Final = 200  # orjson gives up at 254 levels; a line adds a few of its own
_INTEGER_MIN: Final = -(1 << 63)
_INTEGER_MAX: Final = (1 << 64) - 1


class Draft(NamedTuple):
    """An event before it has an index and a time; `data` holds JSON forms only and is never changed afterwards."""

    type: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parts:
    """One line taken apart and not judged: `data` is its bytes as they stand in the line."""

    index: int
    type: str
    timestamp_ms: int
    data: bytes
    sum: bytes


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a log, read back.

    Attributes:
        index: 0, 1, 2, … its absolute position and the cursor.
        timestamp_ms: Milliseconds since the epoch, never lower than the event before.
        sum: Its link of the chain, 43 ASCII characters.
    """

    index: int
    type: str
    timestamp_ms: int
    data: dict[str, Any]
    sum: bytes


def is_own_type(kind: str) -> bool:
    """Whether an agent may emit events of this type: `x.` and 1 to 64 of A-Z a-z 0-9 _ . and the hyphen."""
    return _OWN_TYPE.match(kind) is not None


def chain_start(session_id: str) -> bytes:
    """sum(-1): the sessionId as ASCII."""
    return session_id.encode("ascii")


def chain(previous: bytes, payload: bytes) -> bytes:
    """sum(n) of sum(n-1) and the line's bytes before its `,"sum":`."""
    sha256 = _new_sha256()
    sha256.update(previous + payload)
    return _base64(sha256.digest(), newline=False)[:SUM_BYTES].translate(_URL_SAFE)


def encode_line(  # noqa: PLR0917 - the parts of a line, its link and its bound
    index: int, kind: str, timestamp_ms: int, data: Mapping[str, Any], previous: bytes, line_bytes_max: int
) -> tuple[bytes, bytes]:
    """The event's line, newline included, and its sum.

    Raises:
        EventTooLarge: The line would be over the limit.
        Unserializable: A value of `data` has no JSON form.
    """
    (line,), link = encode_run(index, kind, timestamp_ms, [data], previous, line_bytes_max)
    return line, link


def encode_run(  # noqa: PLR0917 - as encode_line
    index: int,
    kind: str,
    timestamp_ms: int,
    run: Iterable[Mapping[str, Any]],
    previous: bytes,
    line_bytes_max: int,
) -> tuple[list[bytes], bytes]:
    """The lines of several events of one type and time, from `index` on, and the last one's sum.

    The host's hottest loop: `json_bytes` is called only for what orjson does not take as it is.

    Raises:
        EventTooLarge: A line would be over the limit.
        Unserializable: A value has no JSON form.
    """
    head = f',"type":"{kind}","timestamp":{timestamp_ms},"data":'
    lines: list[bytes] = []
    link = previous
    for at, data in enumerate(run, index):
        try:
            raw = orjson.dumps(data)
        except TypeError:
            raw = json_bytes(data)
        if not raw.isascii():
            raw = _escaped(raw)
        payload = f'{{"index":{at}{head}'.encode() + raw
        sha256 = _new_sha256()
        sha256.update(link)
        sha256.update(payload)
        link = _base64(sha256.digest(), newline=False)[:SUM_BYTES].translate(_URL_SAFE)
        line = b'%b,"sum":"%b"}\n' % (payload, link)
        if len(line) > line_bytes_max:
            raise EventTooLarge(kind, len(line), line_bytes_max)
        lines.append(line)
    return lines, link


def decode_line(line: bytes, previous: bytes) -> Event:
    """The event of a whole line (without its newline), its chain checked against the sum before it.

    Raises:
        ValueError: It is not such a line; the message says why.
    """
    parts = split_line(line)
    if parts is None:
        raise ValueError("not a whole event line")
    if chain(previous, payload_of(line)) != parts.sum:
        raise ValueError("the chain is broken here: sum does not match")
    try:
        data = orjson.loads(parts.data)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"data is not JSON: {error}") from None
    return Event(parts.index, parts.type, parts.timestamp_ms, data, parts.sum)


def split_line(line: bytes) -> Parts | None:
    """A whole line (without its newline) taken apart; None where it has not the shape of one."""
    match = _LINE.match(line)
    if match is None:
        return None
    return Parts(int(match[1]), match[2].decode("ascii"), int(match[3]), match[4], match[5])


def payload_of(line: bytes) -> bytes:
    """What the line's sum is of, beside the sum before: its bytes before `,"sum":`."""
    return line[:-_TAIL_OF_LINE]


def digest(raw: bytes) -> str:
    """`sha256:` and the hex SHA-256 of the bytes, as argsDigest and requestDigest are written."""
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def json_bytes(value: object) -> bytes:
    """The value's JSON as it stands in a line: UTF-8, U+2028, U+2029 and U+0085 escaped.

    Raises:
        Unserializable: A value has no JSON form; the message says which and where.
    """
    try:
        raw = orjson.dumps(value, default=_form, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:  # a lone surrogate, an integer over 64 bits, a key that is no string, or no form at all
        raw = orjson.dumps(_plain(value, "value", 0))
    return raw if raw.isascii() else _escaped(raw)


def _escaped(raw: bytes) -> bytes:
    for separator, escape in _SEPARATORS:
        raw = raw.replace(separator, escape)
    return raw


def json_form(value: Any) -> Any:
    """The value as it will be read back from a log: what an agent gets in every attempt.

    dataclass (and any object with `model_dump`) -> object of its fields; Decimal, UUID, Path -> string;
    datetime, date, time -> ISO 8601 string; Enum -> its value; set -> list sorted by its JSON; tuple -> list;
    bytes -> base64 string; an integer outside -2^63 … 2^64-1 -> decimal string; NaN and infinities -> null;
    a lone surrogate -> U+FFFD; keys that are not strings -> their string form.

    Raises:
        Unserializable: A value has no JSON form; the message says which and where.
    """
    if value is None or value is True or value is False:
        return value
    return orjson.loads(json_bytes(value))


def text_form(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD (a high one followed by a low one is their character)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _form(value: object) -> object:
    """The JSON form of one value that orjson does not know, one level deep."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {row.name: getattr(value, row.name) for row in dataclasses.fields(value)}
    if isinstance(value, decimal.Decimal | pathlib.PurePath):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted((json_form(item) for item in value), key=json_bytes)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    dump = getattr(value, "model_dump", None)  # Pydantic's models, without importing Pydantic
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    raise Unserializable(f"a value of type {type(value).__qualname__} has no JSON form")


def _plain(value: Any, where: str, depth: int) -> Any:  # noqa: C901 - one case a form
    """The slow way: the value as nested str, int, float, bool, None, list and dict that orjson surely takes."""
    if depth > _DEPTH_MAX:
        raise Unserializable(f"{where:.200} is nested deeper than {_DEPTH_MAX} levels")
    if isinstance(value, enum.Enum):
        value = value.value
    match value:
        case None | bool() | float():
            return value
        case str():
            return text_form(str(value))
        case int():
            return int(value) if _INTEGER_MIN <= value <= _INTEGER_MAX else str(int(value))
        case list() | tuple():
            return [_plain(item, f"{where}[{at}]", depth + 1) for at, item in enumerate(value)]
        case dict():
            return _plain_object(value, where, depth)
        case dt.datetime() | dt.date() | dt.time() | uuid.UUID():
            return orjson.loads(orjson.dumps(value))
        case set() | frozenset():
            items: Iterable[Any] = (_plain(item, where, depth + 1) for item in value)
            return sorted(items, key=orjson.dumps)
        case _:
            try:
                return _plain(_form(value), where, depth + 1)
            except Unserializable as error:
                raise Unserializable(f"{where:.200}: {error}") from None


def _plain_object(value: dict[Any, Any], where: str, depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in value.items():
        name = _plain(key, f"a key of {where}", depth + 1)
        if isinstance(name, list | dict):
            raise Unserializable(f"a key of {where:.200} has no string form")
        if not isinstance(name, str):
            name = orjson.dumps(name).decode()
        if name in plain:
            raise Unserializable(f"two keys of {where:.200} are both written {name!r:.80}")
        plain[name] = _plain(item, f"{where}.{name:.40}", depth + 1)
    return plain
