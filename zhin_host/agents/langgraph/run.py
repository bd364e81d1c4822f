"""Run: one turn's run of a hosted graph: its nodes and tools as actions, and what they said and used in all."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphInterrupt, ParentCommand
from langgraph.types import Interrupt, interrupt

from zhin_host import ActionFailed, AttemptEnded, RequestExpired, ToolDenied, Turn
from zhin_host.agents.langgraph.forms import json_of, value_of
from zhin_host.agents.langgraph.hosted import Execute, RecordedNode
from zhin_host.agents.langgraph.rules import ToolRules, hosted_tool
from zhin_host.agents.langgraph.voice import Told, Voice, messages_in

_NAME_CHARACTERS: Final = 128  # of an action
_REFUSED: Final = "The user refused this call of {name}; it did not run."
_EXPIRED: Final = "Nobody allowed this call of {name} in time; it did not run."


class ToolError(Exception):
    """What a tool gave is an error for the model."""


@dataclass(slots=True)
class _Call:
    """One call of a tool that the model asked for, over the passes of the node it is in.

    Attributes:
        task: Runs it, or has.
        asked: How many of its interrupts were answered before this pass.
        like: What it is of: its tool and arguments.
    """

    task: asyncio.Task[Any]
    asked: int
    like: str


class GraphRun:
    """What a hosted graph asks while it works on one turn.

    Args:
        turn: The turn.
        rules: What is said of the tools, by name.
        speakers: Nodes whose models speak to the user; None: all.

    Attributes:
        told: What was said and used so far, in every attempt.
        ended: Set once the attempt is over; LangGraph makes a failure of the node out of it.
    """

    def __init__(self, turn: Turn, rules: Mapping[str, ToolRules], speakers: Collection[str] | None) -> None:
        self.told = Told()
        self.ended: asyncio.CancelledError | None = None
        self._turn = turn
        self._rules = rules
        self._speakers = speakers
        self._reviewed: dict[str, set[str]] = {}  # interrupt's id -> ids of the calls that it reviews
        self._to_ask: set[str] = set()  # ids of reviewed calls, of each of which a person is asked
        self._calls: dict[str, list[_Call]] = defaultdict(list)  # a call (see _key) -> its runs, in order
        self._seen: Counter[str] = Counter()  # a call -> its runs in this pass

    def begin_pass(self) -> None:
        """The graph is about to run, or to go on behind an interrupt: what was interrupted runs again from its top."""
        self._seen.clear()

    async def close(self) -> None:
        """Cancel the calls that nobody waits for any more, and wait for their end."""
        tasks = {call.task for calls in self._calls.values() for call in calls if not call.task.done()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for calls in self._calls.values():
            for call in calls:
                if not call.task.cancelled():
                    call.task.exception()  # seen here, so that nobody is told of one that was never looked at

    # -- reviews ---------------------------------------------------------------------------------------------------

    def reviews(self, interrupts: tuple[Interrupt, ...], calls: Sequence[Mapping[str, Any]]) -> None:
        for row in interrupts:
            ids = _ids_of(row.value, calls)
            if ids is not None:
                self._reviewed[row.id] = ids

    def asks_where_they_run(self, row: Interrupt) -> bool:
        """Have a person asked of each call that the interrupt reviews where a ToolNode runs it; whether it is a review.

        Such a call is known by its id: whatever changes its arguments meanwhile, nobody but a person allows it.
        """
        self._to_ask |= self._reviewed.get(row.id, set())
        return row.id in self._reviewed

    # -- nodes -----------------------------------------------------------------------------------------------------

    async def node(self, node: RecordedNode, given: Any, config: RunnableConfig) -> Any:
        raised: list[GraphInterrupt] = []

        async def work(step: int, messages: int | None = None, send: int | None = None) -> dict[str, Any]:
            raised.clear()
            voice = self._voice(is_heard=self._speakers is None or node.node_name in self._speakers)
            try:
                with voice.listening():
                    returned = await node.bound.ainvoke(given, config)
            except GraphInterrupt as error:
                raised.append(error)
                return {"interrupts": _form_of(error), **voice.told.form()}
            except ParentCommand as error:
                return {"parent": json_of(error.args[0]), **voice.told.form()}
            await voice.say_what_is_new(given, returned)
            return {"returned": json_of(returned), **voice.told.form()}

        name = node.path[-_NAME_CHARACTERS:]
        shown = _shown(given, config)
        done = await self._watched(self._turn.run(name, work, retry=node.retry, **shown))
        self.told.add(done)
        if "interrupts" in done:
            raise raised[0] if raised else _again(done["interrupts"])
        if "parent" in done:
            raise ParentCommand(value_of(done["parent"]))
        return value_of(done["returned"])

    # -- tools -----------------------------------------------------------------------------------------------------

    async def tool(self, request: Any, execute: Execute) -> Any:
        """What the call gives.

        A ToolNode that is interrupted runs all its calls again: one that has ended, or still runs, is not begun anew.
        """
        if request.tool is None:  # a name that the model made up: the ToolNode tells it so
            return await execute(request)
        call = _key(request)
        nth, calls = self._seen[call], self._calls[call]
        self._seen[call] += 1
        if nth == len(calls):
            calls.append(self._begun(request, execute, None))
        elif _is_interrupted(calls[nth]):
            calls[nth] = self._begun(request, execute, calls[nth])
        else:
            _take_answers(calls[nth].asked)
        return await self._outcome(calls[nth].task)

    def _begun(self, request: Any, execute: Execute, before: _Call | None) -> _Call:
        """The call, run; behind an interrupt of its own it has passed its gate `before`, with these arguments."""
        call, asked = request.tool_call, 0 if before is None else before.asked + 1
        like = f"{call['name']} {json.dumps(json_of(call['args']), sort_keys=True)}"
        rules = self._rules_of(call, is_allowed=before is not None and before.like == like)
        called = self._called(request, execute, rules, asked)
        task = asyncio.get_running_loop().create_task(called, name=f"tool {call['name']}")
        return _Call(task, asked, like)

    async def _outcome(self, task: asyncio.Task[Any]) -> Any:
        """What it gives; cancelled when whoever waits is cancelled, and not when a call beside it is interrupted."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def _called(self, request: Any, execute: Execute, rules: ToolRules, asked: int) -> Any:
        call, raised, has_run = request.tool_call, list[GraphInterrupt](), False

        async def work(**args: Any) -> Any:
            nonlocal has_run
            has_run = True
            voice = self._voice(is_heard=False)
            try:
                with voice.listening():
                    given = await execute(request.override(tool_call={**call, "args": args}))
            except GraphInterrupt as error:
                raised.append(error)
                return {"interrupts": _form_of(error), **voice.told.form()}
            if isinstance(given, ToolMessage) and given.status == "error":
                raise ToolError(str(given.text))
            return _result_form(given, call, voice.told)

        try:
            tool = hosted_tool(request.tool, rules, work)
            done = await self._watched(self._turn.call_tool(tool, **call["args"]))
        except (ToolDenied, RequestExpired) as error:
            told = _REFUSED if isinstance(error, ToolDenied) else _EXPIRED
            return _error_message(call, told.format(name=call["name"]))
        except ActionFailed as error:
            if error.error.get("type") != ToolError.__qualname__:
                raise
            return _error_message(call, str(error.error["message"]))
        if isinstance(done, dict):
            self.told.add(done)
        if isinstance(done, dict) and "interrupts" in done:
            raise raised[0] if raised else _again(done["interrupts"])
        if not has_run:
            _take_answers(asked)
        return _result_of(done, call)

    def _rules_of(self, call: Mapping[str, Any], *, is_allowed: bool) -> ToolRules:
        rules = cast("ToolRules", dict(self._rules.get(call["name"], {})))
        if is_allowed:
            rules["approval"] = "never"
        elif str(call["id"]) in self._to_ask:
            rules["approval"] = "always"
        return rules

    # -- inside ----------------------------------------------------------------------------------------------------

    def _voice(self, *, is_heard: bool) -> Voice:
        return Voice(self._turn, is_heard=is_heard, is_first=not self.told.has_spoken)

    async def _watched(self, acting: Awaitable[Any]) -> Any:
        try:
            return await acting
        except AttemptEnded as error:
            self.ended = error
            raise
        except asyncio.CancelledError as error:
            if not cast("asyncio.Task[Any]", asyncio.current_task()).cancelling():
                self.ended = error  # what it waited for was let go: the attempt is over
            raise


def _shown(given: Any, config: RunnableConfig) -> dict[str, int]:
    """What the log shows of a node's input, the same in every attempt: no ids, and not the history again."""
    metadata = config.get("metadata", {})
    shown = {"step": int(metadata["langgraph_step"])}
    if isinstance(given, dict) and isinstance(given.get("messages"), list):
        shown["messages"] = sum(1 for _ in messages_in(given["messages"]))
    path = metadata.get("langgraph_path", ())
    if len(path) > 1 and isinstance(path[1], int):  # one of several that were sent to the same node
        shown["send"] = path[1]
    return shown


def _form_of(error: GraphInterrupt) -> list[dict[str, Any]]:
    """What was asked for, without ids, which are others in every attempt."""
    forms = []
    for row in error.args[0]:
        schema = getattr(row, "response_schema", None)
        forms.append({"value": json_of(row.value), **({} if schema is None else {"schema": json_of(schema)})})
    return forms


def _again(forms: list[dict[str, Any]]) -> GraphInterrupt:
    """What the record says was raised, with the ids that it has now; the answers before it are taken as they were."""
    first, *others = forms
    more = {"response_schema": value_of(first["schema"])} if "schema" in first else {}
    one: Interrupt | None = None
    while one is None:
        try:
            interrupt(value_of(first["value"]), **more)
        except GraphInterrupt as raised:
            one = raised.args[0][0]
    rest = [
        Interrupt(value_of(form["value"]), id=uuid5(NAMESPACE_OID, f"{one.id} {number}").hex)
        for number, form in enumerate(others)
    ]
    return GraphInterrupt((one, *rest))


def _take_answers(count: int) -> None:
    """Take the answers that a call would take if it ran again: LangGraph hands them out by their order in a node."""
    for _ in range(count):
        interrupt(None)


def _key(request: Any) -> str:
    """Names a call in its node's run, the same in each pass: models may use an id again in another round."""
    task = request.runtime.config["configurable"]["checkpoint_ns"]
    return f"{task} {request.tool_call['id']}"


def _is_interrupted(call: _Call) -> bool:
    task = call.task
    return task.done() and not task.cancelled() and isinstance(task.exception(), GraphInterrupt)


def _ids_of(value: Any, calls: Sequence[Mapping[str, Any]]) -> set[str] | None:
    """The ids of the calls that a review is about, in the forms that LangChain has; None: it is none of these calls."""
    match value:
        case {"type": "tool_approval", "tool_call_id": reviewed}:
            ids = {str(call["id"]) for call in calls if call["id"] == reviewed}
            return ids or None
        case {"action_requests": [*requests]}:
            rest = iter(calls)  # the requests are in the order of the calls
            found = [
                next((str(call["id"]) for call in rest if _is_of(request, call)), None)
                for request in requests
            ]
            return None if None in found else {one for one in found if one is not None}
        case _:
            return None


def _is_of(request: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    return bool(request["name"] == call["name"] and request["args"] == call["args"])


def _result_form(given: Any, call: Mapping[str, Any], told: Told) -> Any:
    """What a call gave, as the log has it: the text alone, where that is all there is."""
    beside = told.form()
    if isinstance(given, ToolMessage) and given == _message(call, given.content):
        return json_of(given.content) if not beside else {"content": json_of(given.content), **beside}
    return {"returned": json_of(given), **beside}


def _result_of(form: Any, call: Mapping[str, Any]) -> Any:
    match form:
        case {"returned": returned}:
            return value_of(returned)
        case {"content": content}:
            return _message(call, value_of(content))
        case _:
            return _message(call, value_of(form))


def _message(call: Mapping[str, Any], content: Any) -> ToolMessage:
    return ToolMessage(content=content, name=call["name"], tool_call_id=call["id"])


def _error_message(call: Mapping[str, Any], content: str) -> ToolMessage:
    return ToolMessage(content=content, name=call["name"], tool_call_id=call["id"], status="error")
