"""Asked: what the body of a POST asks for: a message, answers to open requests, or another try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from zhin_host.errors import BadRequest
from zhin_host.http.schema import Body, is_request_id, text_of
from zhin_host.intake import Message, OnBusy

_ID_CHARACTERS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the user's.

    Attributes:
        message_id: What the client calls it.
    """

    message_id: str
    message: Message
    on_busy: OnBusy


@dataclass(frozen=True, slots=True)
class Again:
    """The last turn, whose message is the client's `message_id`, is to be tried again."""

    message_id: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person answered; `answer` holds approved or response, as the body of POST /session/{id}/input."""

    request_id: str
    answer: dict[str, Any]
    comment: str | None


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers within a message of the agent's.

    Attributes:
        turn_id: The turn whose message it is, as the client has it.
        cursor: What the client has of it; None where its metadata does not say so.
    """

    turn_id: str
    cursor: int | None
    answers: tuple[Answer, ...]


def asked_of(body: Body) -> tuple[str, Said | Again | Answers]:
    """The chat's id, and what is asked for; of `messages` the last one counts.

    Raises:
        BadRequest: What is missing or cannot be taken, and where.
    """
    chat_id = checked_id(body.get("id"), "id")
    message, place = _last_message(body)
    if message.get("role") == "assistant":
        return chat_id, _answers_of(message, place)
    if message.get("role") != "user":
        raise BadRequest(f"{place}.role is user or assistant, not {message.get('role')!r:.40}.")
    message_id = checked_id(message.get("id"), f"{place}.id")
    trigger = body.get("trigger", "submit-message")
    if trigger == "regenerate-message":
        return chat_id, Again(message_id)
    if trigger != "submit-message":
        raise BadRequest(f"trigger is submit-message or regenerate-message, not {trigger!r:.40}.")
    if body.get("messageId") is not None:
        raise BadRequest("What was said stays said: a message cannot be edited. Send another one.")
    return chat_id, Said(message_id, _text_of(message, place), _on_busy_of(body))


def checked_id(value: object, name: str) -> str:
    """An id of the client's.

    Raises:
        BadRequest: It is none.
    """
    if not isinstance(value, str) or not 0 < len(value) <= _ID_CHARACTERS:
        raise BadRequest(f"{name} is a string of 1 to {_ID_CHARACTERS} characters.")
    return value


def _last_message(body: Body) -> tuple[Mapping[str, Any], str]:
    messages, place = body.get("messages"), "messages[-1]"
    if messages is None and "message" in body:
        messages, place = [body["message"]], "message"
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages is a list of UI messages; the last one counts.")
    message = messages[-1]
    if not isinstance(message, dict) or not isinstance(message.get("parts"), list):
        raise BadRequest(f'{place} is not a UI message {{"id","role","parts":[…]}}.')
    return message, place


def _text_of(message: Mapping[str, Any], place: str) -> Message:
    parts = []
    for at, part in enumerate(message["parts"]):
        if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            raise BadRequest(f'{place}.parts[{at}] is not {{"type":"text","text":"…"}}; only text is taken.')
        parts.append({"type": "text", "text": part["text"]})
    if not any(part["text"].strip() for part in parts):
        raise BadRequest(f"{place} is blank; say something.")
    return parts[0]["text"] if len(parts) == 1 else parts


def _on_busy_of(body: Body) -> OnBusy:
    policy = text_of(body, "onBusy") or "reject"
    for known in get_args(OnBusy):
        if policy == known:
            return known  # type: ignore[no-any-return]  # get_args tells no types
    raise BadRequest(f"onBusy is one of {', '.join(get_args(OnBusy))}, not {policy!r:.40}.")


def _answers_of(message: Mapping[str, Any], place: str) -> Answers:
    answers = tuple(
        answer for part in message["parts"] if isinstance(part, dict) for answer in _answer_of(part)
    )
    if not answers:
        raise BadRequest(
            f"{place} is the agent's and answers no request; send a message of the user's, or an answer."
        )
    metadata = message.get("metadata")
    cursor = metadata.get("cursor") if isinstance(metadata, dict) else None
    is_cursor = isinstance(cursor, int) and not isinstance(cursor, bool) and cursor >= 0
    return Answers(str(message.get("id")), cursor if is_cursor else None, answers)


def _answer_of(part: Mapping[str, Any]) -> list[Answer]:
    """The answer that a tool part holds, if it does; one that the host has told itself looks like one, too."""
    state, approval, call_id = part.get("state"), part.get("approval"), part.get("toolCallId")
    if state == "approval-responded" and isinstance(approval, dict):
        request_id, approved, reason = (approval.get(name) for name in ("id", "approved", "reason"))
        if isinstance(request_id, str) and isinstance(approved, bool):
            comment = reason if isinstance(reason, str) else None
            return [Answer(request_id, {"approved": approved}, comment)]
    elif (
        state == "output-available"
        and approval is None
        and isinstance(call_id, str)
        and is_request_id(call_id)
    ):
        return [Answer(call_id, {"response": part.get("output")}, None)]
    return []
