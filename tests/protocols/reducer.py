"""Reducer: what a client makes of AG-UI events, in the few rules of the protocol; written apart from the host."""

from __future__ import annotations

from typing import Any

import orjson
from ag_ui.core import Event
from pydantic import TypeAdapter

_EVENT: TypeAdapter[Any] = TypeAdapter(Event)


def events_in(body: bytes) -> list[dict[str, Any]]:
    """The events of a stream, each as the protocol's schema has it, and nothing unknown in it."""
    events = []
    for frame in body.split(b"\n\n"):
        if frame.startswith(b"data: "):
            events.append(orjson.loads(frame[6:]))
            assert not _unknown(_EVENT.validate_json(frame[6:])), frame
    return events


def _unknown(model: Any) -> dict[str, Any]:
    return model.model_extra or {}


class Page:
    """What a page holds; `take` fails where the reference client would."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages: list[dict[str, Any]] = list(messages)
        self.state: Any = {}
        self.ending: dict[str, Any] | None = None
        self._open: set[tuple[str, str]] = set()
        self._is_running = False

    def take(self, events: list[dict[str, Any]]) -> Page:
        for event in events:
            self._take(event)
        return self

    def cut_off(self) -> Page:
        """The stream breaks off; what was told of it stays."""
        self._open, self._is_running = set(), False
        return self

    def _take(self, event: dict[str, Any]) -> None:  # noqa: C901, PLR0912 - one case for each type
        kind = event["type"]
        assert self._is_running == (kind != "RUN_STARTED"), event
        match kind:
            case "RUN_STARTED":
                self._is_running, self.ending = True, None
            case "RUN_FINISHED" | "RUN_ERROR":
                self._is_running, self.ending = False, event
                assert not self._open, (self._open, event)
            case "STATE_SNAPSHOT":
                self.state = event["snapshot"]
            case "MESSAGES_SNAPSHOT":
                self._restate(event["messages"])
            case "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START":
                role = "assistant" if kind.startswith("TEXT") else "reasoning"
                self._start(("text", event["messageId"]))
                if self._at(event["messageId"]) is None:
                    self.messages.append({"id": event["messageId"], "role": role, "content": ""})
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                assert ("text", event["messageId"]) in self._open
                message = self._at(event["messageId"])
                assert message is not None
                message["content"] += event["delta"]
            case "TEXT_MESSAGE_END" | "REASONING_MESSAGE_END":
                self._open.remove(("text", event["messageId"]))
            case "REASONING_START":
                self._start(("span", event["messageId"]))
            case "REASONING_END":
                self._open.remove(("span", event["messageId"]))
            case "TOOL_CALL_START":
                self._start(("call", event["toolCallId"]))
                function = {"name": event["toolCallName"], "arguments": ""}
                call = {"id": event["toolCallId"], "type": "function", "function": function}
                self.messages.append(
                    {"id": event["parentMessageId"], "role": "assistant", "toolCalls": [call]}
                )
            case "TOOL_CALL_ARGS":
                assert ("call", event["toolCallId"]) in self._open
                self._call(event["toolCallId"])["toolCalls"][0]["function"]["arguments"] += event["delta"]
            case "TOOL_CALL_END":
                self._open.remove(("call", event["toolCallId"]))
            case "TOOL_CALL_RESULT":
                more = {"metadata": event["metadata"]} if "metadata" in event else {}
                row = {"id": event["messageId"], "role": "tool", "content": event["content"]}
                after = self.messages.index(self._call(event["toolCallId"])) + 1
                self.messages.insert(after, {**row, "toolCallId": event["toolCallId"], **more})
            case "CUSTOM":
                pass
            case _:
                raise AssertionError(event)

    def _start(self, what: tuple[str, str]) -> None:
        assert what not in self._open, what
        self._open.add(what)

    def _at(self, message_id: str) -> dict[str, Any] | None:
        return next((row for row in self.messages if row["id"] == message_id), None)

    def _call(self, call_id: str) -> dict[str, Any]:
        [row] = [
            row for row in self.messages if any(call["id"] == call_id for call in row.get("toolCalls", ()))
        ]
        return row

    def _restate(self, messages: list[dict[str, Any]]) -> None:
        fresh = {row["id"]: row for row in messages}
        has_reasoning = any(row["role"] == "reasoning" for row in messages)
        kept = [
            fresh.get(row["id"], row)
            for row in self.messages
            if row["id"] in fresh or (row["role"] == "reasoning" and not has_reasoning)
        ]
        known = {row["id"] for row in kept}
        self.messages = kept + [row for row in messages if row["id"] not in known]
