"""Approvals: the SDK's interruptions as requests of the host, and the calls that wait behind them.

The SDK stops a run before a tool that needs approval and goes on from a RunState. The host asks and runs a tool in one
action. So the action is begun when the SDK stops, and its function waits until the SDK, gone on, calls the tool.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Final

from agents import RunState, ToolApprovalItem

from zhin_host import ActionFailed, RequestExpired, Tool, ToolDenied, Turn

EXPIRED: Final = "Nobody answered in time, so the tool was not run."
_NAME_CHARACTERS: Final = 64
_CALLED: Final = frozenset({"function_call", "custom_tool_call"})  # what comes through `Approvals.granted`

Key = tuple[str, str | None, str | None]
Function = Callable[[dict[str, Any]], Awaitable[Any]]


class Approvals:
    """The approvals of one turn, by the call that each is for."""

    def __init__(self, turn: Turn, unrepeatable: Collection[str]) -> None:
        self._turn = turn
        self._unrepeatable = unrepeatable
        self._open: dict[Key, Approval] = {}
        self._decided: dict[Key, Approval] = {}

    async def decide(self, state: RunState[Any], interruptions: Iterable[ToolApprovalItem]) -> None:
        """Ask for what was not asked for yet; on return at least one is approved or rejected in the state.

        Raises:
            asyncio.CancelledError: The attempt is over.
        """
        items = [(_key_of(item), item) for item in interruptions]
        for key, item in items:
            if key not in self._open:
                self._open[key] = Approval(self._turn, item, is_repeatable=key[0] not in self._unrepeatable)
        waiting = {self._open[key].decided for key, _ in items}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for key, item in items:
            if self._open[key].decided.done():
                approval = self._open.pop(key)
                if await approval.tell(state, item):
                    self._decided[key] = approval

    def granted(self, name: str, call_id: str | None, arguments: str) -> Approval | None:
        """The approval of this very call, which is used up with that; None when nobody was asked."""
        return self._decided.pop((name, call_id, arguments), None)

    async def close_unused(self) -> None:
        """The SDK has gone on: what it did not call although it was allowed did not run, and the log says so."""
        unused = list(self._decided.values())
        self._decided.clear()
        for approval in unused:
            await approval.leave()

    async def close(self) -> None:
        """Give up what still waits."""
        left = [*self._open.values(), *self._decided.values()]
        self._open.clear()
        self._decided.clear()
        for approval in left:
            approval.task.cancel()
        if left:
            await asyncio.wait({approval.task for approval in left})


class Approval:
    """One call that a person must allow first.

    Attributes:
        task: The action: it asks, waits for the SDK to call, runs the function and has its output.
        decided: Done when a person has decided, or the record has.
    """

    def __init__(self, turn: Turn, item: ToolApprovalItem, *, is_repeatable: bool) -> None:
        name, _, arguments = _key_of(item)
        tool = Tool.from_schema(
            name, "", {"type": "object"}, self._work, approval="always", repeatable=is_repeatable
        )
        self.decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._function: asyncio.Future[Function] = asyncio.get_running_loop().create_future()
        if _type_of(item.raw_item) not in _CALLED:  # what runs elsewhere: to allow it is all there is
            self._function.set_result(_allowed)
        self.task = asyncio.create_task(
            turn.call_tool(tool, **arguments_of(arguments)), name=f"approval of {name}"
        )
        self.task.add_done_callback(lambda _: self._decide())

    async def tell(self, state: RunState[Any], item: ToolApprovalItem) -> bool:
        """Approve or reject it in the state; whether it is approved.

        Raises:
            asyncio.CancelledError: The attempt is over, and nobody has decided.
        """
        try:
            if self.task.done():
                await self.task
        except ToolDenied:
            state.reject(item)
            return False
        except RequestExpired:
            state.reject(item, rejection_message=EXPIRED)
            return False
        except ActionFailed:
            pass  # what it raised, perhaps in an earlier attempt, comes when the SDK calls it
        state.approve(item)
        return True

    async def run(self, function: Function) -> Any:
        """Have the action run this function with the arguments that were shown, and give its output."""
        if not self._function.done():
            self._function.set_result(function)
        return await self.task

    async def leave(self) -> None:
        """Nobody calls it: it fails as not run, so that it need not be allowed again."""
        if not self._function.done() and not self.task.done():
            self._function.set_exception(
                NotRunError("it was allowed, and then not run: a guardrail refused it")
            )
        await asyncio.wait({self.task})
        if not self.task.cancelled():
            self.task.exception()  # the log has it

    async def _work(self, **shown: Any) -> Any:
        self._decide()
        return await (await self._function)(shown)

    def _decide(self) -> None:
        if not self.decided.done():
            self.decided.set_result(None)


class NotRunError(Exception):
    """A call that a person has allowed was not made."""


def arguments_of(text: str | None) -> dict[str, Any]:
    """The arguments that a model wrote, by name; what is no JSON object stands as the one argument `input`."""
    try:
        arguments = json.loads(text) if text else {}
    except ValueError:
        arguments = None
    return arguments if isinstance(arguments, dict) else {"input": text}


def shown_name(name: str | None) -> str:
    """A tool's name as the log has it."""
    printable = "".join(character for character in name or "" if character.isprintable())
    return printable[:_NAME_CHARACTERS] or "tool"


def _key_of(item: ToolApprovalItem) -> Key:
    return shown_name(item.qualified_name), item.call_id, item.arguments


def _type_of(item: Any) -> Any:
    return item.get("type") if isinstance(item, dict) else getattr(item, "type", None)


async def _allowed(_: dict[str, Any]) -> None:
    """What is allowed runs elsewhere."""
