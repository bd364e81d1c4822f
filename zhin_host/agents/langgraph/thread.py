"""Thread: where a graph's state is while a turn runs, and what of it the session keeps between turns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, Protocol, cast

import orjson
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    empty_checkpoint,
)
from langgraph.checkpoint.memory import InMemorySaver

from zhin_host.agents.langgraph.forms import json_of, value_of

_BEFORE_ALL: Final = -2  # the step of a thread that has none, as LangGraph counts


class Thread(Protocol):
    """One turn's thread.

    Attributes:
        saver: Its checkpointer.
        start: The config with which the turn begins.
        head: The config of the newest checkpoint.
    """

    saver: BaseCheckpointSaver[Any]
    start: RunnableConfig
    head: RunnableConfig

    async def begin(self) -> None:
        """Begin with nothing: the session has no state yet."""

    async def go_on(self, state: Any) -> None:
        """Begin with what `state` gave at the end of an earlier turn."""

    async def state(self, last: RunnableConfig) -> Any:
        """What the session keeps, JSON, given the config of the turn's last checkpoint.

        Raises:
            ValueError: It is too long, however much of the history is left out.
        """


class SessionThread:
    """The session has the state: a checkpointer in memory for the length of a turn, filled from `turn.state`.

    Args:
        session_id: Names the thread.
        size_bytes_max: How long the state may be as JSON.
    """

    def __init__(self, session_id: str, size_bytes_max: int) -> None:
        self.saver: BaseCheckpointSaver[Any] = InMemorySaver()
        self.head: RunnableConfig = {"configurable": {"thread_id": session_id}}
        self.start = self.head
        self._size_bytes_max = size_bytes_max

    async def begin(self) -> None:
        pass

    async def go_on(self, state: Any) -> None:
        for namespace, form in state["checkpoints"].items():
            checkpoint = cast("Checkpoint", value_of(form["checkpoint"]))
            metadata: CheckpointMetadata = {"source": "loop", "step": form["step"], "parents": {}}
            await self.saver.aput(
                self._config(namespace), checkpoint, metadata, checkpoint["channel_versions"]
            )

    async def state(self, last: RunnableConfig) -> Any:
        """The newest checkpoint of the graph, and of each graph inside it that has a memory of its own."""
        kept = {namespace: row async for namespace, row in self._newest()}
        while True:
            form = {
                "checkpoints": {
                    namespace: {
                        "checkpoint": json_of(dict(row.checkpoint)),
                        "step": row.metadata.get("step", _BEFORE_ALL),
                    }
                    for namespace, row in kept.items()
                }
            }
            size_bytes = len(orjson.dumps(form))
            if size_bytes <= self._size_bytes_max:
                return form
            if not any(_shorten(row.checkpoint) for row in kept.values()):
                raise ValueError(
                    f"the graph's state is {size_bytes} bytes and may be {self._size_bytes_max}; "
                    "compile the graph with a checkpointer of its own, or keep less in its state"
                )

    async def _newest(self) -> AsyncIterator[tuple[str, CheckpointTuple]]:
        seen = set()
        async for row in self.saver.alist(self.head):  # newest first in each namespace
            namespace = row.config["configurable"].get("checkpoint_ns", "")
            if ":" not in namespace and namespace not in seen:  # a task's own ends with the task
                seen.add(namespace)
                yield namespace, row

    def _config(self, namespace: str) -> RunnableConfig:
        return {"configurable": {**self.head["configurable"], "checkpoint_ns": namespace}}


class OwnThread:
    """The graph has a checkpointer of its own, which keeps the state; the session keeps where in it a turn ended.

    Each attempt of a turn begins at that checkpoint, as a branch of the thread: what an attempt that was cut off has
    left behind stays there and counts no more.

    Args:
        saver: The graph's.
        session_id: Names the thread.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any], session_id: str) -> None:
        self.saver = saver
        self.head: RunnableConfig = {"configurable": {"thread_id": session_id}}
        self.start = self.head

    async def begin(self) -> None:
        """Begin with nothing, whatever a cut off attempt has left in the thread."""
        nothing: CheckpointMetadata = {"source": "input", "step": _BEFORE_ALL, "parents": {}}
        before = {"configurable": {**self.head["configurable"], "checkpoint_ns": ""}}
        self.start = await self.saver.aput(cast("RunnableConfig", before), empty_checkpoint(), nothing, {})

    async def go_on(self, state: Any) -> None:
        at = {**self.head["configurable"], "checkpoint_id": state["checkpointId"]}
        self.start = {"configurable": at}

    async def state(self, last: RunnableConfig) -> Any:
        return {"checkpointId": last["configurable"]["checkpoint_id"]}


def _shorten(checkpoint: Checkpoint) -> bool:
    """Leave the oldest exchange out of the longest list of messages; whether there was one that may go.

    An exchange is a person's message and what came of it. The last one stays, and so do system messages at the top.
    """
    values = checkpoint["channel_values"]
    lists = [name for name, value in values.items() if _is_history(value)]
    for name in sorted(lists, key=lambda name: -len(values[name])):
        messages = values[name]
        first = next((place for place, row in enumerate(messages) if not isinstance(row, SystemMessage)), 0)
        begins = [
            place for place, row in enumerate(messages) if place > first and isinstance(row, HumanMessage)
        ]
        if begins:
            values[name] = [*messages[:first], *messages[begins[0] :]]
            return True
    return False


def _is_history(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, BaseMessage) for row in value)
