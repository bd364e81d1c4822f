"""Request: what a RunAgentInput asks for: the thread and run it names, what its person says, and the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ag_ui.core import ResumeEntry, RunAgentInput
from pydantic import ValidationError

from zhin_host.errors import BadRequest
from zhin_host.http.schema import Body
from zhin_host.intake import Message as Said
from zhin_host.protocols.ag_ui.transcript import Row, held_text_of, is_told


@dataclass(frozen=True, slots=True)
class Request:
    """What is used of a RunAgentInput.

    Attributes:
        held: The messages that the client holds, as it wrote them.
        resume: Its answers.
    """

    thread_id: str
    run_id: str
    held: Sequence[Row]
    resume: Sequence[ResumeEntry]


def request_of(body: Body) -> Request:
    """The body as the protocol has it; what it has not, and what is not used, is ignored.

    Of the messages only the last ones are held against the protocol: a client may hold very many.

    Raises:
        BadRequest: It is none; the first fault is named.
    """
    held = body.get("messages")
    if not isinstance(held, list) or not all(map(_is_message, held)):
        raise BadRequest("messages is a list of objects with id and role; send a RunAgentInput.")
    used = {name: body[name] for name in ("threadId", "runId", "resume") if name in body}
    try:
        request = RunAgentInput.model_validate({**used, "messages": held[_asked_at(held) :]})
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"])) or "the body"
        raise BadRequest(f"{place:.120}: {fault['msg']:.200}; send a RunAgentInput.") from None
    if not request.thread_id or not request.run_id:
        raise BadRequest("threadId and runId name the conversation and the run; neither may be empty.")
    return Request(request.thread_id, request.run_id, held, request.resume or ())


def asked_of(held: Sequence[Row]) -> Row | None:
    """The message that the request is about: the person's last one. None when it is known to be in the log.

    What the host has told of its turn may stand behind it: a run that was cut off is asked for again.

    Raises:
        BadRequest: A person says nothing in it, or something stands behind it that the host has not told.
    """
    at = _asked_at(held)
    if at == len(held) or not all(map(is_told, held[at + 1 :])):
        raise BadRequest(
            "The last of messages is not a user's: there is nothing to answer. Tools run on the host, so a tool's "
            "result is not taken; an open interrupt is answered in resume."
        )
    asked = held[at]
    if is_told(asked):
        return None
    if not held_text_of(asked).strip():
        raise BadRequest(
            "The last message has no text; say something. Images, audio and files are not taken."
        )
    return asked


def said_of(message: Row) -> Said:
    """What the message says, as an agent gets it. Parts that are no text are left out."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return [{"type": "text", "text": part["text"]} for part in content if part["type"] == "text"]


def _is_message(row: object) -> bool:
    return isinstance(row, dict) and isinstance(row.get("id"), str) and isinstance(row.get("role"), str)


def _asked_at(held: Sequence[Row]) -> int:
    """Where the person's last message stands; behind all where there is none."""
    return next((at for at in reversed(range(len(held))) if held[at]["role"] == "user"), len(held))


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
