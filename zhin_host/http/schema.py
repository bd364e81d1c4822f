"""Schema: what a request's body may be, and the plain values made of it.

A body is read within bounds, parsed once, and each field is checked by hand: a refusal names the field and
says what it must be. Fields that no route knows are ignored; an optional field that is null counts as absent.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, get_args

import orjson
from starlette.types import Receive

from zhin_host.clock import ULID_PATTERN
from zhin_host.config import Config
from zhin_host.errors import BadRequest, BodyTimeout, BodyTooLarge, UnsupportedMediaType
from zhin_host.http.parameters import IDEMPOTENCY_KEY
from zhin_host.intake import Message, OnBusy

Headers = Mapping[bytes, bytes]
Body = dict[str, Any]

_INTEGER_MIN: Final = -(2**63)
_INTEGER_MAX: Final = 2**64 - 1
_LONG_NUMBER = re.compile(rb"[0-9]{19}")  # the shortest integer beyond 64 bits has 19 digits
_REQUEST_ID = re.compile(f"req_{ULID_PATTERN}_{ULID_PATTERN}")


def is_request_id(text: str) -> bool:
    """Whether the text has the shape of a requestId (contract section 1)."""
    return _REQUEST_ID.fullmatch(text) is not None


async def read_object(headers: Headers, receive: Receive, config: Config) -> Body:
    """The request's JSON object; {} when there is no body. Raises as `read_bytes` and `parse_object` do."""
    body = await read_bytes(headers, receive, config)
    return parse_object(body, config.body_depth_max) if body else {}


async def read_bytes(headers: Headers, receive: Receive, config: Config) -> bytes:
    """The request's body, which says that it is JSON; b"" when there is none.

    Raises:
        UnsupportedMediaType: It is encoded, or not application/json.
        BodyTooLarge: It is over the limit; what follows was not read.
        BodyTimeout: It did not arrive in time.
        BadRequest: The connection was closed before it was whole.
    """
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() != b"identity":
        raise UnsupportedMediaType("The body is encoded; send it without Content-Encoding.")
    body = await _read(headers, receive, config.body_bytes_max, config.body_timeout_s)
    media_type = headers.get(b"content-type", b"").partition(b";")[0]
    if body and media_type.strip().lower() != b"application/json":
        raise UnsupportedMediaType("The body's Content-Type is not application/json; send JSON and say so.")
    return body


async def _read(headers: Headers, receive: Receive, size_max: int, timeout_s: float) -> bytes:
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and (len(declared) > 15 or int(declared) > size_max):  # noqa: PLR2004 - int() is slow on more
        _refuse_size(size_max)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise BadRequest("The connection was closed before the body was whole; send it again.")
                part = message.get("body", b"")
                size += len(part)
                if size > size_max:
                    _refuse_size(size_max)
                parts.append(part)
                if not message.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
    except TimeoutError:
        raise BodyTimeout(f"The body did not arrive within {timeout_s:g} s; send it again.") from None


def _refuse_size(size_max: int) -> NoReturn:
    raise BodyTooLarge(f"The body is over the limit of {size_max} bytes; send less, or a reference to it.")


def parse_object(body: bytes, depth_max: int) -> Body:
    """The JSON object that the bytes are.

    Raises:
        BadRequest: Bad JSON, NaN, a lone surrogate, an integer beyond 64 bits, too deep, or no object.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"The body is not JSON that may stand here: {error}.") from None
    if not isinstance(value, dict):
        raise BadRequest("The body is not a JSON object; send one: {…}.")
    if body.count(b"{") + body.count(b"[") > depth_max:  # else it cannot be too deep
        _check_depth(value, depth_max)
    if _LONG_NUMBER.search(body):
        json.loads(body, parse_int=_check_integer)  # orjson has made floats of them
    return value


def _check_depth(value: object, depth_max: int) -> None:
    level = [value]
    for _ in range(depth_max):
        level = [inner for outer in level for inner in _children(outer)]
    if any(isinstance(value, dict | list) for value in level):
        raise BadRequest(f"The body is nested deeper than {depth_max} levels; flatten it.")


def _children(value: object) -> list[object]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in inner if isinstance(item, dict | list)]


def _check_integer(digits: str) -> int:
    if len(digits) > 20 or not _INTEGER_MIN <= int(digits) <= _INTEGER_MAX:  # noqa: PLR2004 - int() is slow on more
        raise BadRequest(f"The body holds {digits:.24}, an integer beyond 64 bits; send it as a string.")
    return 0


@dataclass(frozen=True, slots=True)
class Start:
    """POST /session."""

    message: Message
    metadata: dict[str, Any] | None
    agent: str | None


def start_of(body: Body, config: Config) -> Start:
    """The body of POST /session."""
    return Start(message_of(body), _metadata_of(body, config.metadata_bytes_max), text_of(body, "agent"))


@dataclass(frozen=True, slots=True)
class FollowUp:
    """POST /session/{id}."""

    token: str
    message: Message
    on_busy: OnBusy


def follow_up_of(body: Body) -> FollowUp:
    """The body of POST /session/{id}."""
    token = required_text_of(body, "continuationToken")
    policy = text_of(body, "onBusy")
    policy = "reject" if policy is None else policy
    for known in get_args(OnBusy):
        if policy == known:
            return FollowUp(token, message_of(body), known)
    raise BadRequest(f"onBusy is one of {', '.join(get_args(OnBusy))}, not {policy!r:.40}.")


def key_of(headers: Headers) -> str | None:
    """The Idempotency-Key header, None when there is none.

    Raises:
        BadRequest: It is not 1 to 255 visible ASCII characters.
    """
    key = headers.get(b"idempotency-key")
    return None if key is None else IDEMPOTENCY_KEY.read(key.decode("latin-1"))


@dataclass(frozen=True, slots=True)
class Answer:
    """POST /session/{id}/input; `answer` holds approved or response, never both."""

    request_id: str
    answer: dict[str, Any]
    comment: str | None


def answer_of(body: Body) -> Answer:
    """The body of POST /session/{id}/input."""
    request_id = required_text_of(body, "requestId")
    comment = text_of(body, "comment")
    if ("approved" in body) == ("response" in body):
        raise BadRequest("The body holds exactly one of approved (true or false) and response (any JSON).")
    if "response" in body:
        return Answer(request_id, {"response": body["response"]}, comment)
    return Answer(request_id, {"approved": required_bool_of(body, "approved")}, comment)


@dataclass(frozen=True, slots=True)
class Relayed:
    """POST /resume: an answer in the words of ADR 0040's first clients."""

    session_id: str
    request_id: str
    response: Any


def relayed_of(body: Body) -> Relayed:
    """The body of POST /resume."""
    session_id = required_text_of(body, "traceId")
    request_id = required_text_of(body, "promptId")
    if "response" not in body:
        raise BadRequest(
            'response is missing; send "approve", "deny", true, false, or what the question asks for.'
        )
    return Relayed(session_id, request_id, body["response"])


@dataclass(frozen=True, slots=True)
class Authorization:
    """POST /authorization/{requestId}/complete."""

    success: bool
    error: str | None
    session_id: str | None


def authorization_of(body: Body) -> Authorization:
    """The body of POST /authorization/{requestId}/complete."""
    return Authorization(
        required_bool_of(body, "success"), text_of(body, "error"), text_of(body, "sessionId")
    )


@dataclass(frozen=True, slots=True)
class End:
    """POST /session/{id}/end."""

    outcome: str
    message: str | None


def end_of(body: Body) -> End:
    """The body of POST /session/{id}/end."""
    outcome = required_text_of(body, "outcome")
    if outcome not in {"completed", "failed"}:
        raise BadRequest(f"outcome is completed or failed, not {outcome!r:.40}.")
    return End(outcome, text_of(body, "message"))


def message_of(body: Body) -> Message:
    """The field message: text that is not blank, or text parts {"type","text"} that are not all blank."""
    message = body.get("message")
    if isinstance(message, str):
        if not message or message.isspace():
            raise BadRequest("message is blank; say something.")
        return message
    if not isinstance(message, list) or not message:
        raise BadRequest(
            'message is a string that is not blank, or a list of parts {"type":"text","text":…}.'
        )
    parts = [_part_of(part, at) for at, part in enumerate(message)]
    if not any(part["text"].strip() for part in parts):
        raise BadRequest("message holds only blank parts; say something.")
    return parts


def _part_of(part: object, at: int) -> dict[str, str]:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    raise BadRequest(f'message[{at}] is not a part {{"type":"text","text":"…"}}; only text is taken.')


def _metadata_of(body: Body, size_max: int) -> dict[str, Any] | None:
    metadata = body.get("metadata")
    if metadata is None:
        return None
    if not isinstance(metadata, dict):
        raise BadRequest("metadata is a JSON object, or absent.")
    if (size := len(orjson.dumps(metadata))) > size_max:
        raise BadRequest(f"metadata is {size} bytes of JSON, over the limit of {size_max}; keep less in it.")
    return metadata


def text_of(body: Body, name: str) -> str | None:
    """The optional field `name`, a string."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"{name} is a string, or absent.")
    return value


def required_text_of(body: Body, name: str) -> str:
    """The field `name`, a string; it may be empty."""
    value = body.get(name)
    if not isinstance(value, str):
        raise BadRequest(f"{name} is missing." if value is None else f"{name} is not a string.")
    return value


def required_bool_of(body: Body, name: str) -> bool:
    """The field `name`, true or false and nothing that looks like it."""
    value = body.get(name)
    if not isinstance(value, bool):
        raise BadRequest(f"{name} is missing." if value is None else f"{name} is not true or false.")
    return value
