"""A graph to be killed: what it does depends on the message, and what it has done is left in the folder it runs in.

A file `go` there lets it pass the places where it would wait for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.types import interrupt

from tests.agents.langgraph_graphs import chat_graph
from tests.agents.langgraph_model import ScriptedModel, calling, echo_results, scripted
from zhin_host import current_action
from zhin_host.agents.langgraph import LangGraphAgent

ROUNDS: Final = 5


def note(file: str, line: str) -> None:
    """Leave a line in a file of the folder."""
    with Path(file).open("a") as lines:
        lines.write(line + "\n")


def may_go(file: str) -> bool:
    """Whether there is a go; if not, a file says that this place was reached."""
    if Path("go").exists():
        return True
    note(file, "reached")
    return False


async def wait_for_go(file: str) -> None:
    """Wait for ever unless there is a go."""
    if not may_go(file):
        await asyncio.Event().wait()


@tool
async def publish(page: str) -> str:
    """Publish a page."""
    note("published", page)
    return f"https://pages.example/{page}"


@tool
async def look(topic: str) -> str:
    """Look something up."""
    note("looked", topic)
    return f"all about {topic}"


@tool
async def work() -> str:
    """Work for long."""
    note("worked", current_action().idempotency_key)
    await wait_for_go("working")
    return "worked"


@tool
async def consult(question: str) -> str:
    """Ask the user."""
    return f"{question} {interrupt(question)}"


async def before(word: str) -> None:
    """Words may stop in the middle."""
    if word == "stop":
        await wait_for_go("stopped")


def rounds(messages: Sequence[BaseMessage]) -> AIMessage:
    """Look something up, round after round, then tell all."""
    begins = max(place for place, row in enumerate(messages) if isinstance(row, HumanMessage))
    done = sum(1 for row in messages[begins:] if isinstance(row, AIMessage))
    if done == ROUNDS:
        return echo_results(messages)
    return calling(("look", {"topic": f"{done}"}), text=f"Round {done}", round_=done)


SCRIPTS: Final[dict[str, Any]] = {
    "publish": scripted(
        calling(("look", {"topic": "cats"}), ("publish", {"page": "a"}), text="Hm."), echo_results
    ),
    "say": scripted(AIMessage("one two stop three four")),
    "work": scripted(calling(("look", {"topic": "cats"}), ("work", {})), echo_results),
    "ask": scripted(calling(("look", {"topic": "cats"}), ("consult", {"question": "Sure?"})), echo_results),
    "rounds": rounds,
}


def script(messages: Sequence[BaseMessage]) -> AIMessage:
    """What the last message of a person asks for."""
    last = [str(row.text) for row in messages if isinstance(row, HumanMessage)][-1]
    answer: AIMessage = SCRIPTS[last](messages)
    return answer


agent = LangGraphAgent(
    chat_graph(
        ScriptedModel(script=script, asked=Path("asked"), before=before), [look, publish, work, consult]
    ),
    rules={"publish": {"approval": "always", "repeatable": False}},
)
