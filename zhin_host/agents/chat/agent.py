"""ChatAgent: a model that is asked, calls tools, and is asked again until it has answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from zhin_host import Retry, Tool, Turn
from zhin_host.agents.chat.calling import Toolbox, ToolSource, check_names, described
from zhin_host.agents.chat.memory import Message, cut, newest
from zhin_host.agents.chat.model import Answer, Model, ModelUnavailable

RETRY: Final = Retry(attempts=5, delay_s=1.0, factor=3.0, delay_max_s=60.0, on=(ModelUnavailable,))


class ChatAgent:
    """Talks through a model and calls tools for it.

    Each answer of the model and each call of a tool is a recorded action; calls that one answer asks for run side by
    side, and a tool asks a person first where its policy says so. What was said in the session is kept as the state of
    its last turn, within `history_tokens`: the oldest whole exchanges go first.

    Args:
        model: The model's name, as the endpoint has it.
        base_url: The endpoint; None: OPENAI_BASE_URL, else OpenAI's own.
        api_key: Its key; None: OPENAI_API_KEY.
        tools: Tools, and sources of tools.
        instructions: What the model is told before everything else.
        history_tokens: How much of the session the model is reminded of, tokens (estimated at three bytes each).
        answers_max: How often the model is asked in one turn at the most.
        silence_s: The longest wait for the next piece of an answer, seconds.
        characters_max: Where an answer that does not end is cut off, characters.
        retry: When the model is asked again after it could not answer.
        parameters: What else goes into each request to the model: temperature, max_completion_tokens, …
        name: What sessions record.

    Raises:
        ValueError: A tool's name is one that endpoints refuse, or two have the same.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        tools: Iterable[Tool | ToolSource] = (),
        instructions: str = "",
        history_tokens: int = 32_000,
        answers_max: int = 50,
        silence_s: float = 60.0,
        characters_max: int = 200_000,
        retry: Retry = RETRY,
        parameters: Mapping[str, Any] | None = None,
        name: str = "chat",
    ) -> None:
        given = tuple(tools)
        self.name = name
        self.tools = tuple(tool for tool in given if isinstance(tool, Tool))
        check_names(self.tools)
        self._sources = tuple(source for source in given if not isinstance(source, Tool))
        self._model = Model(
            model,
            base_url=base_url,
            api_key=api_key,
            silence_s=silence_s,
            characters_max=characters_max,
            parameters=parameters or {},
        )
        self._instructions = instructions
        self._history_tokens = history_tokens
        self._answers_max = answers_max
        self._retry = retry

    async def __call__(self, turn: Turn) -> None:
        """Answer one message."""
        saved = turn.state or {}
        if saved.get("turnId") == turn.turn_id:  # the host died between the checkpoint and the turn's end
            await turn.finish(saved["finishReason"], saved["usage"])
            return
        tools = Toolbox([*self.tools, *await self._found()], self._sources)
        earlier = newest(saved.get("messages", []), self._history_tokens)
        said: list[Message] = [{"role": "user", "content": turn.message}]
        usage: Counter[str] = Counter()
        for _ in range(self._answers_max):
            answer = await self._ask(turn, [*earlier, *said], tools)
            usage.update(answer.usage)
            usage["modelCalls"] += 1
            said.append(_message_of(answer))
            if not answer.tool_calls:
                break
            results = await asyncio.gather(*(tools.result_of(turn, call) for call in answer.tool_calls))
            for call, result in zip(answer.tool_calls, results, strict=True):
                content = cut(result, self._history_tokens)
                said.append({"role": "tool", "tool_call_id": call.id, "content": content})
        else:
            raise RuntimeError(
                f"The model was asked {self._answers_max} times in this turn and still calls tools."
            )
        await turn.finish(answer.finish_reason, dict(usage))
        told = {"turnId": turn.turn_id, "finishReason": answer.finish_reason, "usage": dict(usage)}
        await turn.checkpoint({**told, "messages": newest([*earlier, *said], self._history_tokens)})

    async def aclose(self) -> None:
        """Close the connections to the model and to the sources of tools."""
        await self._model.aclose()
        for source in self._sources:
            await source.aclose()

    async def _found(self) -> list[Tool]:
        """The tools of the sources; those with names of their own that nobody else has."""
        found = [
            tool for tools in await asyncio.gather(*(row.tools() for row in self._sources)) for tool in tools
        ]
        check_names((*self.tools, *found))
        return found

    async def _ask(self, turn: Turn, messages: Sequence[Message], tools: Toolbox) -> Answer:
        """One answer of the model, or the recorded one."""
        before = [{"role": "system", "content": self._instructions}] if self._instructions else []
        shown = [described(tool) for tool in tools]

        async def ask() -> dict[str, Any]:
            return (await self._model.answer([*before, *messages], shown, turn)).to_json()

        # Without arguments: another model, or more room for history, is no other path for a turn that is under way.
        return Answer.from_json(await turn.run("model", ask, retry=self._retry))


def _message_of(answer: Answer) -> Message:
    """The answer as the endpoint wants to be reminded of it."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.tool_calls
        ]
    elif not answer.text:
        message["content"] = ""
    return message
