"""ask_person: a tool with which a model asks a person, and waits for the answer as long as it takes."""

from __future__ import annotations

import json
from typing import Final

from agents import function_tool

from zhin_host import RequestExpired
from zhin_host.agents.openai_agents.run import current_run
from zhin_host.agents.openai_agents.tools import not_recorded

_EXPIRED: Final = "Nobody answered in time."


@function_tool(failure_error_function=None)
async def ask_person(question: str, options: list[str] | None = None) -> str:
    """Ask the person you work for a question and wait for the answer.

    Args:
        question: The question, complete in itself.
        options: The answers to choose from; null for any answer.
    """
    run = current_run()
    if run is None:
        raise LookupError("ask_person asks through a turn of a host, and none runs here")
    try:
        answer = await run.turn.ask(question, options)
    except RequestExpired:
        return _EXPIRED
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


not_recorded(ask_person)  # the question is in the record itself
