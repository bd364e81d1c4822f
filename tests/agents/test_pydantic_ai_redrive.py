"""A turn of a Pydantic AI agent that is cut down anywhere goes on from its record: nothing is asked or done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    BinaryContent,
    CallDeferred,
    ModelRetry,
    RunContext,
    Tool,
    ToolReturn,
)
from pydantic_ai.exceptions import ModelHTTPError

from tests.agents.scripts_pydantic_ai import Script, Thought, Use, told
from tests.agents.test_pydantic_ai import Town, said
from tests.agents.test_pydantic_ai_approvals import WAYS, agents
from tests.hosting import hosting, one
from tests.redrive.drive import (
    NOBODY,
    counted_text,
    events_of,
    faults_below,
    leave_as_killed,
    results_of,
    until_rest,
)
from zhin_host import AgentSessionHost, Retry, create_agent_session_host, current_action
from zhin_host.agents.pydantic_ai import ModelUnavailable, PydanticAIAgent
from zhin_host.errors import SessionNotFound

LEDGER: Counter[str] = Counter()  # callId -> how often its function ran to its end


def _ran() -> None:
    LEDGER[current_action().call_id] += 1


def talkative() -> tuple[Script, Agent[None, Any]]:
    """Everything at once: reasoning, tools side by side, a condition, a question, a retry, files, an object."""
    script = Script(
        [Thought("Let me see."), "First ", "I look. ", Use("look", {"at": "a"}), Use("pay", {"amount": 20})],
        [Use("pay", {"amount": 5}), Use("choose", {}), Use("pay", {"amount": 30}), Use("again", {"n": 1})],
        ["Then ", "I draw.", Use("again", {"n": 2}), Use("draw", {}), Use("show", {})],
        [Use("final_result", {"name": "Ulm", "people": 3})],
    )
    agent: Agent[None, Any] = Agent(script.model(), output_type=[str, Town])

    @agent.tool_plain(requires_approval=True)
    def look(at: str) -> str:
        _ran()
        return f"/{at}"

    @agent.tool
    async def pay(context: RunContext[None], amount: int) -> dict[str, int]:
        if amount > 10 and not context.tool_call_approved:
            raise ApprovalRequired
        _ran()
        return {"paid": amount}

    @agent.tool_plain
    def choose() -> str:
        raise CallDeferred(metadata={"prompt": "Which?"})

    @agent.tool_plain(retries=3)
    def again(n: int) -> str:
        if n == 1:
            raise ModelRetry("2 it is")
        return "ok"

    @agent.tool_plain
    def draw() -> ToolReturn:
        _ran()
        return ToolReturn("drawn", content=["see ", BinaryContent(b"\xff\x00", media_type="image/png")])

    @agent.tool_plain
    def show() -> list[BinaryContent]:
        _ran()
        return [BinaryContent(b"\xfe\x01", media_type="image/png")]

    return script, agent


def of_way(way: str) -> Callable[[], tuple[Script, Agent[None, Any]]]:
    def make() -> tuple[Script, Agent[None, Any]]:
        script = Script(["Now ", Use("pay", {"amount": 20}), Use("pay", {"amount": 30})], ["done", "."])
        return script, agents(script)[way]

    return make


AGENTS = {"talkative": talkative, **{way: of_way(way) for way in WAYS}}


def host_of(agent: Agent[None, Any], directory: Path) -> AgentSessionHost:
    return create_agent_session_host(PydanticAIAgent(agent), data_dir=directory, fsync="never")


def _outputs(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What each call came to, without the times that the library puts into a model's answer."""
    return {
        call: (row["status"], row.get("output", row.get("error")) if row["toolName"] != "model" else None)
        for call, row in results_of(events).items()
    }


def _cut(whole: Path, directory: Path, session_id: str, lines: int) -> None:
    """A directory as a killed host leaves it: the first lines of the log, and the mark of an open turn."""
    content = (whole / f"{session_id}.ndjson").read_bytes().splitlines(keepends=True)
    leave_as_killed(directory, session_id, b"".join(content[:lines]))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", AGENTS)
async def test_a_turn_cut_down_after_any_event_ends_as_an_undisturbed_one(name: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    script, agent = AGENTS[name]()
    async with host_of(agent, whole) as host:
        session_id = (await host.store.start(NOBODY, "go")).session_id
        await until_rest(host, session_id)
    events = events_of(whole, session_id)
    assert "turn.completed" in [event["type"] for event in events]
    requests = len(script.asked)
    for cut in range(1, len(events) + 1):
        directory = tmp_path / f"cut-{cut}"
        _cut(whole, directory, session_id, cut)
        LEDGER.clear()
        script, agent = AGENTS[name]()
        async with host_of(agent, directory) as host:
            try:
                await until_rest(host, session_id)
            except SessionNotFound:
                assert cut <= 1
                continue
        after = events_of(directory, session_id)
        where = f"cut behind event {cut - 1}, {events[cut - 1]['type']}"
        if not any(event["type"] == "message.received" for event in events[:cut]):
            assert after[-1]["data"]["reason"] == "interrupted", where
            continue
        ends = [event["type"] for event in after if event["type"] in ("turn.completed", "turn.failed")]
        assert ends == ["turn.completed"], where
        done = results_of(events[:cut])
        assert [call for call in done if LEDGER[call]] == [], f"{where}: ran again"
        asked = requests - sum(row["toolName"] == "model" for row in done.values())
        assert len(script.asked) == (0 if _is_saved(events[:cut]) else asked), f"{where}: paid again"
        assert _outputs(after) == _outputs(events), where
        assert counted_text(after) == counted_text(events), where
    assert faults_below(tmp_path) == []


def _is_saved(events: list[dict[str, Any]]) -> bool:
    return any(event["type"] == "checkpoint.saved" for event in events)


async def test_the_model_is_told_of_files_by_the_record_as_by_the_tools(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    script, agent = talkative()
    async with host_of(agent, whole) as host:
        session_id = (await host.store.start(NOBODY, "go")).session_id
        await until_rest(host, session_id)
    events = events_of(whole, session_id)
    *_, asked, _ = [event["index"] for event in events if event["data"].get("toolName") == "model"]
    _cut(whole, tmp_path / "cut", session_id, asked)
    again, agent = talkative()
    async with host_of(agent, tmp_path / "cut") as host:
        await until_rest(host, session_id)
    assert told(script.asked[-1][-1]) == told(again.asked[-1][-1])
    files = [getattr(item, "data", None) for _, content in told(again.asked[-1][-1]) for item in content]
    assert b"\xff\x00" in files
    assert b"\xfe\x01" in files


@pytest.mark.parametrize("way", WAYS)
async def test_a_turn_that_waits_leaves_memory_and_goes_on_when_it_is_answered(way: str) -> None:
    script = Script([Use("pay", {"amount": 20}), Use("pay", {"amount": 30})], ["done"])
    async with hosting(PydanticAIAgent(agents(script)[way]), parked_s=0.0) as host:
        accepted = await host.start("go")
        requests = await host.asked(accepted.session_id, 2)
        host.clock.advance(1)
        await host.host._sessions.drop_idle()
        assert not host.is_in_memory(accepted.session_id)
        for request in requests:
            await host.approve(accepted.session_id, request.request_id)
        events = await host.idle(accepted.session_id)
    assert said(events) == "done"
    assert len(script.asked) == 2


async def test_a_turn_goes_on_with_the_answers_it_has_when_its_model_was_changed(data_dir: Path) -> None:
    before, after = Script([Use("pay", {"amount": 20})]), Script(["never asked for"], ["done by another"])
    async with host_of(agents(before)["requires_approval"], data_dir) as host:
        handle = await host.run("go")
        async for _ in host.stream(handle.session_id):
            pass
    async with host_of(Agent(after.model(), tools=[payer()]), data_dir) as host:
        handle = await host.resume(handle.session_id)
        await handle.answer(True)
        assert (await handle.result()).text == "done by another"
    assert (len(before.asked), len(after.asked)) == (1, 1)


def payer() -> Tool[None]:
    """The tool of the agent before."""

    def pay(amount: int) -> str:
        return f"paid {amount}"

    return Tool(pay, requires_approval=True)


async def test_an_answer_whose_stream_breaks_off_is_asked_for_again_and_counts_once() -> None:
    script = Script(["half ", ModelHTTPError(503, "busy")], ["never"])
    agent = Agent(script.model())
    hosted = PydanticAIAgent(agent, retry=Retry(attempts=3, delay_s=0, on=(ModelUnavailable,)))
    async with hosting(hosted) as host:
        accepted = await host.start("go")
        await host.seen(accepted.session_id, "action.retrying")
        script.rows = (["a whole ", "answer"],)
        events = await host.idle(accepted.session_id)
    assert said(events) == "a whole answer"
    assert "discardFrom" in one(events, "step.resumed")
    assert one(events, "action.retrying")["error"]["type"] == "ModelUnavailable"
    assert len(script.asked) == 2
