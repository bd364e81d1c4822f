"""A chat model that streams what a script says: text by words, reasoning, calls of tools, and what it used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import Runnable

Script = Callable[[Sequence[BaseMessage]], AIMessage]
Pause = Callable[[str], Any]


class ScriptedModel(GenericFakeChatModel):
    """LangChain's model for tests with a script in place of a list: a new process goes on as the old one would.

    Attributes:
        script: The answer to a conversation.
        asked: Where each request leaves a line; None: nowhere.
        before: Awaited before each word, given the word; None: nothing is.
    """

    messages: Any = None
    script: Script
    asked: Path | None = None
    before: Pause | None = None

    def bind_tools(self, tools: Any, **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        return self

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        if self.asked is not None:
            with self.asked.open("a") as lines:
                lines.write("asked\n")
        answer = self.script(messages)
        for block in answer.content_blocks:
            if block["type"] == "reasoning":
                yield _chunk([{"type": "reasoning", "reasoning": block["reasoning"]}])
        for word in str(answer.text).split(" "):
            if self.before is not None:
                await self.before(word)
            yield _chunk(word + " " if word else "")
        calls = [
            tool_call_chunk(name=call["name"], args=_json(call["args"]), id=call["id"], index=index)
            for index, call in enumerate(answer.tool_calls)
        ]
        yield _chunk("", calls, answer)


def _chunk(
    content: str | list[Any], calls: Sequence[ToolCallChunk] = (), answer: AIMessage | None = None
) -> ChatGenerationChunk:
    ended: dict[str, Any] = {}
    if answer is not None:
        ended = {
            "usage_metadata": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
            "response_metadata": {"finish_reason": "tool_calls" if calls else "stop"},
            "chunk_position": "last",
        }
    return ChatGenerationChunk(message=AIMessageChunk(content=content, tool_call_chunks=list(calls), **ended))


def _json(value: Any) -> str:
    import json

    return json.dumps(value)


def calling(*calls: tuple[str, dict[str, Any]], text: str = "", round_: int = 0) -> AIMessage:
    """An answer that asks for tools."""
    return AIMessage(
        text,
        tool_calls=[
            {"name": name, "args": args, "id": f"id-{round_}-{place}"}
            for place, (name, args) in enumerate(calls)
        ],
    )


def scripted(*answers: AIMessage | Callable[[Sequence[BaseMessage]], AIMessage]) -> Script:
    """The n-th answer to the n-th request since the last message of a person."""

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        asked = 0
        for message in messages:
            asked = 0 if isinstance(message, HumanMessage) else asked + isinstance(message, AIMessage)
        answer = answers[asked]
        return answer if isinstance(answer, AIMessage) else answer(messages)

    return script


def echo_results(messages: Sequence[BaseMessage]) -> AIMessage:
    """Say what the tools have given since the last message of a person."""
    texts: list[str] = []
    for message in messages:
        if isinstance(message, HumanMessage):
            texts.clear()
        elif isinstance(message, ToolMessage):
            texts.append(str(message.text))
    return AIMessage(" | ".join(texts))
