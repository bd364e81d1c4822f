"""Memory: what a turn leaves to the next one: the run's messages, as far as they fit, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, TypeGuard

from pydantic_ai import AgentRunResult, ModelMessagesTypeAdapter
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_core import to_json


class Ended(TypedDict):
    """The state that a turn saves when its run has ended.

    turnId tells a turn whose host died behind its checkpoint that it has nothing left to do: the record before a
    checkpoint is closed, so to run again would do everything a second time.
    """

    turnId: str
    finishReason: str
    usage: dict[str, Any]
    messages: list[Any]


def has_ended(state: Any, turn_id: str) -> TypeGuard[Ended]:
    """Whether the state is that of this turn, whose run has ended."""
    return state is not None and state["turnId"] == turn_id


def ended_run(turn_id: str, run: AgentRunResult[Any], messages_bytes_max: int) -> Ended:
    """What is saved of a run that has ended."""
    kept = fitting(run.all_messages(), messages_bytes_max)
    return {
        "turnId": turn_id,
        "finishReason": finish_reason_of(run.all_messages()),
        "usage": usage_of(run),
        "messages": ModelMessagesTypeAdapter.dump_python(kept, mode="json"),
    }


def messages_of(state: Mapping[str, Any] | None) -> list[ModelMessage]:
    """The messages of the turns before; none before the first turn that completed."""
    return [] if state is None else ModelMessagesTypeAdapter.validate_json(to_json(state["messages"]))


def finish_reason_of(messages: Sequence[ModelMessage]) -> str:
    """How the model's last answer ended: "stop", "length" or another word of the library's."""
    answers = [row for row in messages if isinstance(row, ModelResponse)]
    return (answers[-1].finish_reason if answers else None) or "stop"


def usage_of(run: AgentRunResult[Any]) -> dict[str, Any]:
    """What the whole run used: calls of models and tools, and tokens; what is zero is left out."""
    used = run.usage
    counts = {
        "modelCalls": used.requests,
        "toolCalls": used.tool_calls,
        "inputTokens": used.input_tokens,
        "outputTokens": used.output_tokens,
        "cacheReadTokens": used.cache_read_tokens,
        "cacheWriteTokens": used.cache_write_tokens,
    }
    return {name: count for name, count in counts.items() if count}


def fitting(messages: Sequence[ModelMessage], bytes_max: int) -> list[ModelMessage]:
    """The newest whole exchanges that fit: from a message of the user to the last answer before the next one.

    What the system prompt said in the first request stays at the head. Where even the last exchange does not fit,
    nothing is left.
    """
    sizes = [len(ModelMessagesTypeAdapter.dump_json([row])) for row in messages]
    left = sum(sizes)
    if left <= bytes_max:
        return list(messages)
    system = [part for part in messages[0].parts if isinstance(part, SystemPromptPart)]
    for at, message in enumerate(messages):
        if at and left <= bytes_max and _begins_exchange(message):
            return [replace(message, parts=[*system, *message.parts]), *messages[at + 1 :]]
        left -= sizes[at]
    return []


def _begins_exchange(message: ModelMessage) -> TypeGuard[ModelRequest]:
    """Whether the user speaks here; what comes beside the result of a tool belongs to the exchange before."""
    return (
        isinstance(message, ModelRequest)
        and any(isinstance(part, UserPromptPart) for part in message.parts)
        and not any(isinstance(part, ToolReturnPart) for part in message.parts)
    )
