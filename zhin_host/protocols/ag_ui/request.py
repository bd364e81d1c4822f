"""Request: what a RunAgentInput asks for: the thread and run it names, what its person says, and the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ag_ui.core import Message, ResumeEntry, RunAgentInput, TextPart, UserMessage
from pydantic import ValidationError

from zhin_host.errors import BadRequest
from zhin_host.http.schema import Body
from zhin_host.intake import Message as Said
from zhin_host.protocols.ag_ui.transcript import held_text_of, is_told


def request_of(body: Body) -> RunAgentInput:
    """The body as the protocol has it; what it has not is ignored.

    Raises:
        BadRequest: It is none; the first fault is named.
    """
    try:
        request = RunAgentInput.model_validate(body)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"])) or "the body"
        raise BadRequest(f"{place:.120}: {fault['msg']:.200}; send a RunAgentInput.") from None
    if not request.thread_id or not request.run_id:
        raise BadRequest("threadId and runId name the conversation and the run; neither may be empty.")
    return request


def asked_of(messages: Sequence[Message]) -> UserMessage | None:
    """The message that the request is about: the person's last one. None when it is known to be in the log.

    What the host has told of its turn may stand behind it: a run that was cut off is asked for again.

    Raises:
        BadRequest: A person says nothing in it, or something stands behind it that the host has not told.
    """
    at = next((at for at in reversed(range(len(messages))) if messages[at].role == "user"), None)
    last = None if at is None else messages[at]
    if at is None or not isinstance(last, UserMessage) or not all(map(is_told, messages[at + 1 :])):
        raise BadRequest(
            "The last of messages is not a user's: there is nothing to answer. Tools run on the host, so a tool's "
            "result is not taken; an open interrupt is answered in resume."
        )
    if is_told(last):
        return None
    if not held_text_of(last).strip():
        raise BadRequest(
            "The last message has no text; say something. Images, audio and files are not taken."
        )
    return last


def said_of(message: UserMessage) -> Said:
    """What the message says, as an agent gets it. Parts that are no text are left out."""
    if isinstance(message.content, str):
        return message.content
    return [{"type": "text", "text": part.text} for part in message.content if isinstance(part, TextPart)]


def answer_of(place: str, entry: ResumeEntry) -> tuple[bool, str | None]:
    """Whether a resume entry allows what was asked, and the person's comment.

    Args:
        place: Where it stands in the request, for the refusal.
        entry: Its payload is true, false or {"approved": bool, "comment"?: str}; a cancelled one refuses.

    Raises:
        BadRequest: The payload is another one.
    """
    if entry.status == "cancelled":
        return False, None
    payload = entry.payload
    if isinstance(payload, bool):
        return payload, None
    if not isinstance(payload, Mapping) or not isinstance(payload.get("approved"), bool):
        raise BadRequest(
            f'{place}.payload: this is answered with {{"approved": true}} or {{"approved": false}}.'
        )
    if "editedArgs" in payload:
        raise BadRequest(
            f"{place}.payload.editedArgs: an approval is of the arguments shown; refuse it and say what to change."
        )
    return payload["approved"], _text_of(f"{place}.payload.comment", payload.get("comment"))


def success_of(place: str, entry: ResumeEntry) -> tuple[bool, str | None]:
    """Whether an authorization succeeded, and what went wrong; a cancelled entry says that it did not.

    Raises:
        BadRequest: The payload is neither true, false nor {"success": bool, "error"?: str}.
    """
    if entry.status == "cancelled":
        return False, "The person gave it up."
    payload = entry.payload
    if isinstance(payload, bool):
        return payload, None
    if not isinstance(payload, Mapping) or not isinstance(payload.get("success"), bool):
        raise BadRequest(
            f'{place}.payload: this is answered with {{"success": true}} or {{"success": false}}.'
        )
    return payload["success"], _text_of(f"{place}.payload.error", payload.get("error"))


def _text_of(place: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"{place} is a string, or absent.")
    return value
