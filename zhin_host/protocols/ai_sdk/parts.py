"""Parts: chunks put together to the UI message that `ai` makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from zhin_host.protocols.ai_sdk.translation import Chunk

Part = dict[str, Any]


def user_message(message_id: str, message: Any) -> dict[str, Any]:
    """What was said to the agent, text or a list of text parts."""
    parts = [{"type": "text", "text": message}] if isinstance(message, str) else message
    return {"id": message_id, "role": "user", "parts": parts}


def assistant_message(chunks: Iterable[Chunk]) -> dict[str, Any]:
    """The message of one turn, whose chunks begin with its start."""
    message = _Message()
    for chunk in chunks:
        message.take(chunk)
    return {"id": message.id, "role": "assistant", "metadata": message.metadata, "parts": message.parts}


class _Message:
    def __init__(self) -> None:
        self.id = ""
        self.metadata: dict[str, Any] = {}
        self.parts: list[Part] = []
        self._open: dict[str, Part] = {}  # by the id of the text or reasoning
        self._named: dict[str, Part] = {}  # by toolCallId, approvalId, or type and id of data

    def take(self, chunk: Chunk) -> None:
        kind = chunk["type"]
        self.metadata.update(chunk.get("messageMetadata", {}))
        if kind in self._TAKE:
            self._TAKE[kind](self, chunk)
        elif kind.startswith("data-") and not chunk.get("transient"):
            self._data(chunk)

    def _start(self, chunk: Chunk) -> None:
        self.id = chunk["messageId"]

    def _step(self, chunk: Chunk) -> None:  # noqa: ARG002 - one signature for all
        self.parts.append({"type": "step-start"})

    def _text(self, chunk: Chunk) -> None:
        self._open[chunk["id"]] = part = {"type": "text", "text": "", "state": "streaming"}
        self.parts.append(part)

    def _reasoning(self, chunk: Chunk) -> None:
        part = {"type": "reasoning", "id": chunk["id"], "text": "", "state": "streaming"}
        self._open[chunk["id"]] = part
        self.parts.append(part)

    def _delta(self, chunk: Chunk) -> None:
        self._open[chunk["id"]]["text"] += chunk["delta"]

    def _close(self, chunk: Chunk) -> None:
        self._open.pop(chunk["id"])["state"] = "done"

    def _data(self, chunk: Chunk) -> None:
        name = f"{chunk['type']} {chunk['id']}"
        if name in self._named:
            self._named[name]["data"] = chunk["data"]
        else:
            self._named[name] = part = dict(chunk)
            self.parts.append(part)

    def _tool(self, chunk: Chunk) -> None:
        part = {
            "type": f"tool-{chunk['toolName']}",
            "toolCallId": chunk["toolCallId"],
            "state": "input-available",
        }
        part |= {name: chunk[name] for name in ("input", "providerExecuted") if name in chunk}
        self._named[chunk["toolCallId"]] = part
        self.parts.append(part)

    def _approval_request(self, chunk: Chunk) -> None:
        part = self._named[chunk["approvalId"]] = self._named[chunk["toolCallId"]]
        part["state"] = "approval-requested"
        part["approval"] = {
            "id": chunk["approvalId"],
            "descriptor": chunk["approvalDescriptor"],
            "requestReason": chunk["reason"],
        }

    def _approval_response(self, chunk: Chunk) -> None:
        part = self._named[chunk["approvalId"]]
        part["state"] = "approval-responded"
        part["approval"] |= {name: chunk[name] for name in ("approved", "reason") if name in chunk}

    def _output(self, chunk: Chunk) -> None:
        self._named[chunk["toolCallId"]] |= {"state": "output-available", "output": chunk["output"]}

    def _error(self, chunk: Chunk) -> None:
        self._named[chunk["toolCallId"]] |= {"state": "output-error", "errorText": chunk["errorText"]}

    def _denied(self, chunk: Chunk) -> None:
        self._named[chunk["toolCallId"]]["state"] = "output-denied"

    _TAKE: ClassVar[Mapping[str, Callable[[_Message, Chunk], None]]] = {
        "start": _start,
        "start-step": _step,
        "text-start": _text,
        "text-delta": _delta,
        "text-end": _close,
        "reasoning-start": _reasoning,
        "reasoning-delta": _delta,
        "reasoning-end": _close,
        "tool-input-available": _tool,
        "tool-approval-request": _approval_request,
        "tool-approval-response": _approval_response,
        "tool-output-available": _output,
        "tool-output-error": _error,
        "tool-output-denied": _denied,
    }
