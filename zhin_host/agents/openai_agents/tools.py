"""Tools of the SDK whose calls are actions of the turn."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from agents import FunctionTool, ToolOutputFileContent, ToolOutputImage, ToolOutputText

from zhin_host import Tool
from zhin_host.agents.openai_agents.approvals import Function, arguments_of, shown_name
from zhin_host.agents.openai_agents.run import HostedRun, current_run, detached

Invoke = Callable[[Any, str], Awaitable[Any]]

_STRUCTURED: Final = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)


def described(tool: FunctionTool) -> Tool:
    """What GET /info tells of it."""

    async def function(**_: Any) -> None:
        """Only the SDK runs it."""

    needs: Any = tool.needs_approval
    approval: Any = needs if callable(needs) else "always" if needs else "never"
    return Tool.from_schema(
        shown_name(tool.qualified_name),
        tool.description,
        tool.params_json_schema,
        function,
        approval=approval,
    )


def recorded(tool: FunctionTool, invoke: Invoke) -> Invoke:
    """The function that runs a tool, each call an action when a turn runs.

    An agent as a tool is no action: the requests and tools of its own run are, and each of them is done once.
    """
    name = shown_name(tool.qualified_name)
    is_agent = bool(getattr(tool, "_is_agent_tool", False))

    @functools.wraps(invoke)
    async def call(context: Any, text: str) -> Any:
        run = current_run()
        if run is None:
            return await invoke(context, text)
        call_id = getattr(context, "tool_call_id", None)
        approval = run.approvals.granted(name, call_id, text)
        if is_agent:
            if approval is not None:
                await run.finish(approval.run(_nothing))
            with run.inside(f"{name} {call_id}"):
                return await invoke(context, text)

        async def function(shown: dict[str, Any]) -> Any:
            return plain(await invoke(context, _text_of(shown, text)))

        if approval is not None:
            return await run.finish(approval.run(detached(function)))
        return await run.act(_hosted(run, tool, name, detached(function)), arguments_of(text))

    call.__zhin_host__ = True  # type: ignore[attr-defined]
    return call


def is_recorded(invoke: Any) -> bool:
    """Whether its calls are actions already, or are to be none."""
    return bool(getattr(invoke, "__zhin_host__", False))


def not_recorded(tool: FunctionTool) -> None:
    """Mark a tool whose calls are no actions, since all it does is asking the turn."""
    tool.on_invoke_tool._invoke_tool_impl.__zhin_host__ = True  # type: ignore[attr-defined]  # noqa: SLF001


def plain(output: Any) -> Any:
    """A tool's output as JSON, from which the SDK makes what it would have made of the output itself."""
    if isinstance(output, _STRUCTURED):
        return output.model_dump(mode="json", exclude_none=True)
    if isinstance(output, list | tuple) and any(isinstance(part, _STRUCTURED) for part in output):
        return [plain(part) for part in output]
    try:
        return output if json.loads(json.dumps(output)) == output else str(output)
    except (TypeError, ValueError, RecursionError):
        return str(output)  # as the SDK gives a model whatever else a tool returns


def _hosted(run: HostedRun, tool: FunctionTool, name: str, function: Function) -> Tool:
    async def work(**shown: Any) -> Any:
        return await function(shown)

    return Tool.from_schema(
        name, tool.description, tool.params_json_schema, work, repeatable=run.is_repeatable(name)
    )


def _text_of(shown: dict[str, Any], text: str) -> str:
    """The arguments as a tool takes them: as the model wrote them, unless the log shows something else."""
    if shown == arguments_of(text):
        return text
    return json.dumps(shown)


async def _nothing(_: dict[str, Any]) -> None:
    """An agent as a tool was allowed; what it then does is in actions of its own."""
