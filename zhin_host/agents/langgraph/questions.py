"""Questions: what a graph interrupts for, as requests to a person, and what the person said, as LangGraph wants it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from langgraph.types import Command, Interrupt

from zhin_host import RequestExpired, Turn
from zhin_host.agents.langgraph.forms import json_of
from zhin_host.agents.langgraph.run import GraphRun

_APPROVE: Final = {"type": "approve"}
_REJECT: Final = {"type": "reject"}
_PROMPTS: Final = ("question", "prompt", "query", "message", "description")


async def resumed(turn: Turn, run: GraphRun, interrupts: Sequence[Interrupt]) -> Command[Any]:
    """Ask for everything that the graph waits for, side by side, and give what it goes on with.

    Raises:
        RequestExpired: Nobody answered a question in time.
    """
    answers = await _side_by_side([_answer(turn, run, row) for row in interrupts])
    if len(answers) == 1 and answers[0] not in (None, {}):  # which LangGraph takes for no answer
        return Command(resume=answers[0])  # whatever graph inside a node asked
    return Command(resume={row.id: answer for row, answer in zip(interrupts, answers, strict=True)})


async def _answer(turn: Turn, run: GraphRun, row: Interrupt) -> Any:
    match row.value:
        case {"type": "tool_approval", "name": str(name), "args": args} if _may_approve(row):
            return (await _decided(turn, run, row, [row.value]))[0]
        case {"action_requests": [*requests], "review_configs": [*configs]} if _all_may_approve(configs):
            return {"decisions": await _decided(turn, run, row, requests)}
        case {"tool": str(name), "args": dict(args)} | {"action": str(name), "args": dict(args)}:
            return await _approved(turn, row.value, name, args)
        case _:
            return await turn.ask(*_question(row))


async def _decided(
    turn: Turn, run: GraphRun, row: Interrupt, requests: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """A decision on each call: asked here; or where the tool runs, if it is certain that it runs in a ToolNode.

    There the request shows the very arguments that the tool is then given.
    """
    if run.asks_where_they_run(row):
        return [dict(_APPROVE) for _ in requests]
    asked = [_approved(turn, request, request["name"], request["args"]) for request in requests]
    return [dict(_APPROVE if is_allowed else _REJECT) for is_allowed in await _side_by_side(asked)]


async def _side_by_side(asked: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """The answers, in order; when one of them fails, nobody waits for the others any more."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one, name=f"question {number}") for number, one in enumerate(asked)]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def _approved(turn: Turn, request: Mapping[str, Any], name: str, args: Any) -> bool:
    """Whether a person allows it; nobody in time is a no."""
    told = request.get("description") or request.get("message")
    prompt = told if isinstance(told, str) and told else f"Allow {name}?"
    try:
        return await turn.approve(prompt, tool=name, args=json_of(args))
    except RequestExpired:
        return False


def _question(row: Interrupt) -> tuple[str, list[Any] | None]:
    """The prompt and the options of a question: all that the graph shows is in one of them."""
    value, schema = row.value, getattr(row, "response_schema", None)
    rest = dict(value) if isinstance(value, dict) else {}
    options = rest.pop("options", None)
    if not isinstance(options, list):
        options, rest = None, dict(value) if isinstance(value, dict) else {}
    name = next((name for name in _PROMPTS if isinstance(rest.get(name), str)), None)
    if isinstance(value, str):
        lines = [value]
    elif name is not None:
        lines = [rest.pop(name), *([_json(rest)] if rest else [])]
    else:
        lines = [_json(value)]
    if schema is not None:
        lines.append(f"The answer is JSON of this schema: {_json(schema)}")
    return "\n".join(lines), None if options is None else json_of(options)


def _json(value: Any) -> str:
    return json.dumps(json_of(value), ensure_ascii=False)


def _all_may_approve(configs: Sequence[Any]) -> bool:
    return all("approve" in config.get("allowed_decisions", ()) for config in configs)


def _may_approve(row: Interrupt) -> bool:
    schema = getattr(row, "response_schema", None)
    return schema is None or '"approve"' in json.dumps(schema)
