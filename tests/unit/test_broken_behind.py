"""A line that broke behind the snapshot: hydration does not see it, a reader and the audit do, and stop writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from zhin_host import Turn, create_agent_session_host
from zhin_host.errors import StorageUnavailable
from zhin_host.host import AgentSessionHost
from zhin_host.ports import Principal

NOBODY = Principal()
_BROKEN = 3


async def _agent(turn: Turn) -> None:
    await turn.say("Hello. ")


async def _with_a_broken_line(data_dir: Path) -> str:
    """A session at rest with a snapshot, one of whose earlier lines was changed afterwards."""
    async with create_agent_session_host(_agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        await handle.result()
    log = data_dir / f"{handle.session_id}.ndjson"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[_BROKEN] = lines[_BROKEN].replace(b'{"index":3,', b'{"indeX":3,')
    log.write_bytes(b"".join(lines))
    return handle.session_id


async def _refused(host: AgentSessionHost, session_id: str) -> int | None:
    token = (await host.store.view(NOBODY, session_id))["continuationToken"]
    with pytest.raises(StorageUnavailable) as refusal:
        await host.store.proceed(NOBODY, session_id, token, "and then?")
    return refusal.value.index


@pytest.mark.damaged(reason="a line is changed")
async def test_a_reader_that_meets_a_broken_line_stops_writes_to_the_session(data_dir: Path) -> None:
    session_id = await _with_a_broken_line(data_dir)
    before = (data_dir / f"{session_id}.ndjson").read_bytes()
    async with create_agent_session_host(_agent, data_dir=data_dir) as host:
        seen = [event["index"] async for event in host.stream(session_id)]
        assert seen == list(range(_BROKEN))
        assert (await host.store.view(NOBODY, session_id))["brokenAt"] == _BROKEN
        assert await _refused(host, session_id) == _BROKEN
    assert (data_dir / f"{session_id}.ndjson").read_bytes() == before


@pytest.mark.damaged(reason="a word is changed")
async def test_an_audit_that_finds_the_chain_broken_stops_writes_to_the_session(data_dir: Path) -> None:
    async with create_agent_session_host(_agent, data_dir=data_dir) as host:
        handle = await host.run("hello")
        await handle.result()
    log = data_dir / f"{handle.session_id}.ndjson"
    log.write_bytes(log.read_bytes().replace(b"hello", b"hallo", 1))
    before = log.read_bytes()
    async with create_agent_session_host(_agent, data_dir=data_dir) as host:
        verdict = await host.store.audit(NOBODY, handle.session_id)
        index = verdict["faults"][0]["index"]
        assert b"hallo" in before.splitlines()[index]
        assert (await host.store.view(NOBODY, handle.session_id))["brokenAt"] == index
        assert await _refused(host, handle.session_id) == index
        assert (
            len([event async for event in host.stream(handle.session_id)]) > index
        )  # its lines can still be read
    assert log.read_bytes() == before


@pytest.mark.damaged(reason="a line is changed")
async def test_an_audit_that_meets_a_broken_line_stops_writes_to_the_session(data_dir: Path) -> None:
    session_id = await _with_a_broken_line(data_dir)
    async with create_agent_session_host(_agent, data_dir=data_dir) as host:
        verdict = await host.store.audit(NOBODY, session_id)
        assert (verdict["ok"], verdict["events"]) == (False, _BROKEN)
        assert await _refused(host, session_id) == _BROKEN
