"""EarlyApproval: a call that a person is asked about before the framework comes to run it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic_ai.tools import ToolApproved, ToolDefinition
from pydantic_ai.tools import ToolDenied as Denied

from zhin_host import ActionFailed, RequestExpired, ToolDenied, Turn
from zhin_host.agents.pydantic_ai.declared import hosted_tool

Perform = Callable[[dict[str, Any]], Awaitable[Any]]
"""Runs the call with the arguments that were shown, and gives the JSON form of its result."""


class EarlyApproval:
    """One action: asked about now, run when the framework, told that the call is approved, comes to it.

    A validator or a hook that raises ApprovalRequired does so before the tool's turn comes.

    Args:
        turn: Whose action it is.
        definition: The tool's.
        arguments: Those that the model gave.
    """

    def __init__(self, turn: Turn, definition: ToolDefinition, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self._is_allowed = asyncio.Event()
        self._work: asyncio.Future[Perform] = asyncio.get_running_loop().create_future()
        tool = hosted_tool(definition, self._perform, approval="always")
        self._action = asyncio.create_task(turn.call_tool(tool, **arguments), name=f"approval {tool.name}")

    async def verdict(self) -> ToolApproved | Denied:
        """Wait for the person; what the framework is told."""
        allowed = asyncio.create_task(self._is_allowed.wait())
        try:
            await asyncio.wait({self._action, allowed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            allowed.cancel()
        if self._action.done():  # refused, or in the record with its result
            try:
                self._action.result()
            except (ToolDenied, RequestExpired) as error:
                return Denied(str(error))
            except ActionFailed:
                pass  # `run` raises it
        return ToolApproved()

    async def run(self, perform: Perform) -> Any:
        """Run the call as the action that was allowed, and return its recorded result."""
        self._work.set_result(perform)
        return await self._action

    async def close(self) -> None:
        """End the action if the framework never came to it."""
        self._action.cancel()
        await asyncio.gather(self._action, return_exceptions=True)

    async def _perform(self, **shown: Any) -> Any:
        self._is_allowed.set()
        perform = await self._work
        return await perform(shown)
