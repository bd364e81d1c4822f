"""Calls: the tool calls of one run, each an action of the turn that a person may have to allow first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDefinition
from pydantic_ai.tools import ToolDenied as Denied
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
from pydantic_core import to_json

from zhin_host import ActionFailed, RequestExpired, ToolDenied, Turn
from zhin_host.agents.pydantic_ai.declared import ASKING, hosted_tool, policy_of
from zhin_host.agents.pydantic_ai.early import EarlyApproval
from zhin_host.agents.pydantic_ai.question import question_of
from zhin_host.agents.pydantic_ai.values import (
    arguments_form,
    deferred_form,
    metadata_of,
    result_form,
    result_of,
    waits_for,
)

APPROVAL: Final = "approval"

_TOO_LARGE: Final = ("ARGUMENTS_TOO_LARGE", "RESULT_TOO_LARGE")
_TOLD: Final[dict[object, type[ModelRetry | ToolFailed]]] = {
    "ModelRetry": ModelRetry,
    "ToolFailed": ToolFailed,
}


@dataclass
class RecordedToolset(WrapperToolset[Any]):
    """The run's tools, called as actions of its turn.

    Attributes:
        calls: Who calls them.
    """

    calls: Calls

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return self.calls.opened(await super().get_tools(ctx))

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        async def run(arguments: dict[str, Any], context: RunContext[Any]) -> Any:
            return await self.wrapped.call_tool(name, arguments, context, tool)

        return await self.calls.call(Call(run, tool, tool_args, ctx))


@dataclass(frozen=True, slots=True)
class Call:
    """One call that the framework has validated.

    Attributes:
        run: Runs it, with arguments and a context.
        tool: Its tool, whose validator makes arguments of JSON.
        arguments: The validated arguments.
        context: What the tool is told of the run.
    """

    run: Callable[[dict[str, Any], RunContext[Any]], Awaitable[Any]]
    tool: ToolsetTool[Any]
    arguments: dict[str, Any]
    context: RunContext[Any]

    async def perform(self, shown: Mapping[str, Any], form: Mapping[str, Any], *, is_approved: bool) -> Any:
        """Run the tool and return the JSON form of its result, or of what it waits for.

        Args:
            shown: The arguments in the log: it runs with these and nothing else.
            form: The JSON that the validated arguments stand for: where that was shown, they are used as they are.
            is_approved: Whether a person has allowed it.
        """
        try:
            arguments = self.arguments if shown == form else self._validated(shown)
            return result_form(
                await self.run(arguments, replace(self.context, tool_call_approved=is_approved))
            )
        except ApprovalRequired as error:
            return deferred_form(APPROVAL, error.metadata)
        except CallDeferred as error:
            return deferred_form(getattr(error, "kind", "external"), error.metadata)

    def _validated(self, shown: Mapping[str, Any]) -> dict[str, Any]:
        try:
            validated: dict[str, Any] = self.tool.args_validator.validate_json(
                to_json(shown), context=self.context.validation_context
            )
        except ValidationError as error:
            raise ModelRetry(str(error)) from error
        return validated


class Calls:
    """Calls tools as actions of a turn, and settles what the framework defers.

    Args:
        turn: Whose actions they are.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._definitions: dict[str, ToolDefinition] = {}
        # By the model's id of the call: until the framework runs it, and until `settle` tells the framework.
        self._early: dict[str, EarlyApproval] = {}
        self._refused: dict[str, Denied] = {}
        self._to_close: list[EarlyApproval] = []

    def opened(self, tools: Mapping[str, ToolsetTool[Any]]) -> dict[str, ToolsetTool[Any]]:
        """The tools as the framework may call them at once, those that require approval too: here the host asks."""
        self._definitions |= {tool.tool_def.name: tool.tool_def for tool in tools.values()}
        return {name: _opened(tool) for name, tool in tools.items()}

    async def call(self, call: Call) -> Any:
        """The result of a call.

        Raises:
            ModelRetry, ToolFailed: As the tool raised it, or its arguments or result do not fit the log.
            ApprovalRequired: A person refused it, which `settle` tells when it is asked next; or it still waits.
            CallDeferred: It waits for an answer, for which `settle` asks.
            ActionFailed: The tool raised anything else; left uncaught it ends the turn, which a person may resume.
        """
        model_id = call.context.tool_call_id or ""
        if refused := self._refused.pop(model_id, None):
            # A handler of the agent's own allowed it after that.
            raise ToolFailed(refused.message)
        recorded = await self._recorded(call)
        if isinstance(recorded, Denied):
            self._refused[model_id] = recorded
            raise ApprovalRequired
        match waits_for(recorded):
            case None:
                return result_of(recorded)
            case "approval":
                raise ApprovalRequired(metadata_of(recorded))
            case "question":
                raise CallDeferred(metadata_of(recorded), kind="question")
            case _:
                raise CallDeferred(metadata_of(recorded))

    async def settle(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        """Have people answer what the framework has deferred, side by side."""
        approvals, answers = requests.approvals, requests.calls
        about = requests.metadata
        settled = await _side_by_side(
            [
                *(self._approved(ctx, call) for call in approvals),
                *(self._answered(call, about.get(call.tool_call_id, {})) for call in answers),
            ]
        )
        ids = [call.tool_call_id for call in (*approvals, *answers)]
        given = dict(zip(ids, settled, strict=True))
        return DeferredToolResults(
            approvals={call.tool_call_id: given[call.tool_call_id] for call in approvals},
            calls={call.tool_call_id: given[call.tool_call_id] for call in answers},
        )

    async def close(self) -> None:
        """End what the run has left behind."""
        for early in self._to_close:
            await early.close()

    async def _recorded(self, call: Call) -> Any:
        """The recorded form of a call's result, asked about first where anybody says that it must be allowed."""
        early = self._early.pop(call.context.tool_call_id or "", None)
        if early is not None:
            form = early.arguments
            return await _told(early.run(lambda shown: call.perform(shown, form, is_approved=True)))
        definition = self._definitions[call.tool.tool_def.name]
        is_approved = call.context.tool_call_approved or policy_of(definition) in ASKING
        recorded = await self._act(call, definition, is_approved=is_approved)
        if is_approved or waits_for(recorded) != APPROVAL:
            return recorded
        # The tool itself has found that somebody must allow it.
        return await self._act(call, definition, is_approved=True, approval="always")

    async def _act(
        self, call: Call, definition: ToolDefinition, *, is_approved: bool, approval: str | None = None
    ) -> Any:
        form = arguments_form(call.arguments)

        async def perform(**shown: Any) -> Any:
            return await call.perform(shown, form, is_approved=is_approved)

        return await _told(self._turn.call_tool(hosted_tool(definition, perform, approval=approval), **form))

    async def _approved(self, ctx: RunContext[Any], call: ToolCallPart) -> ToolApproved | Denied:
        """A person's word on a call: given already, or asked for because a validator or a hook wants it allowed."""
        if refused := self._refused.pop(call.tool_call_id, None):
            return refused
        manager = ctx.tool_manager
        known = None if manager is None else manager.get_tool_def(call.tool_name)
        definition = self._definitions.get(call.tool_name) or known or ToolDefinition(name=call.tool_name)
        early = EarlyApproval(self._turn, definition, call.args_as_dict())
        self._to_close.append(early)
        verdict = await early.verdict()
        if isinstance(verdict, ToolApproved):
            self._early[call.tool_call_id] = early
        return verdict

    async def _answered(self, call: ToolCallPart, metadata: Mapping[str, Any]) -> Any:
        """What a person answers for a call whose result comes from outside."""
        try:
            return await self._turn.ask(*question_of(call, metadata))
        except RequestExpired as error:
            return ToolFailed(str(error))


async def _told(action: Awaitable[Any]) -> Any:
    """What a recorded call came to, in the framework's terms."""
    try:
        return await action
    except (ToolDenied, RequestExpired) as error:
        return Denied(str(error))
    except ActionFailed as error:
        message = str(error.error["message"])
        if error.error["code"] in _TOO_LARGE:
            raise ToolFailed(message) from error
        told = _TOLD.get(error.error.get("type"))
        if told is None:
            raise
        raise told(message) from error


async def _side_by_side(waits: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """What each gives; when one raises, the others are ended first."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _opened(tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
    if tool.tool_def.kind != "unapproved":
        return tool
    return replace(tool, tool_def=replace(tool.tool_def, kind="function"))
