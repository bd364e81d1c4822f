"""snapshot: a state as bytes and back; damage of any kind is noticed and grants nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import LogBuilder, session_id_of
from tests.stories import STORIES, answer, ask
from zhin_host import events as ev
from zhin_host.fold import apply
from zhin_host.snapshot import SnapshotError, cursor_of, decode_snapshot, encode_snapshot, public_view
from zhin_host.state import SessionState, new_state

SESSION = session_id_of(1)


def states(builder: LogBuilder) -> Iterator[SessionState]:
    """The state after each event; the same object every time."""
    state = new_state(builder.session_id)
    for line in builder.lines:
        event = ev.decode_line(line[:-1], state.sum)
        apply(state, event.type, event.data, event.timestamp_ms)
        state.offset += len(line)
        state.sum = event.sum
        yield state


def rich() -> LogBuilder:
    """A state in which every part of a snapshot is filled."""
    builder = STORIES["a_grant"]()
    builder.put((ev.CHECKPOINT_SAVED, {"turnId": builder.turn_id, "state": {"n": 1}})).finish("").follow_up()
    builder.put((ev.CHECKPOINT_SAVED, {"turnId": builder.turn_id, "state": {"n": 2}}))
    queued = {"turnId": "turn_q", "message": "next", "continuationToken": "zhin:" + "q" * 26}
    builder.call("call_9").put(ask("r8"), ask("r9")).put(answer("r8")).put((ev.MESSAGE_QUEUED, queued))
    return builder.put((ev.TURN_CANCELLING, {"turnId": builder.turn_id, "reason": "requested", "by": "ann"}))


def redigested(document: dict[str, Any]) -> bytes:
    """What a careful forger would write."""
    body = orjson.dumps({name: value for name, value in document.items() if name != "digest"})[:-1]
    return b'%b,"digest":"%b"}' % (body, hashlib.sha256(body).hexdigest().encode())


@pytest.mark.parametrize("story", [*STORIES, "rich"])
def test_a_snapshot_after_any_event_holds_the_fold_of_the_log_up_to_there(story: str) -> None:
    builder = rich() if story == "rich" else STORIES[story]()
    for state in states(builder):
        assert decode_snapshot(encode_snapshot(state), builder.session_id) == state
    assert decode_snapshot(builder.snapshot, builder.session_id) == builder.state


def test_the_same_state_gives_the_same_bytes() -> None:
    state = rich().state
    raw = encode_snapshot(state)
    assert encode_snapshot(decode_snapshot(raw, SESSION)) == raw


def test_a_snapshot_has_the_members_of_the_contract() -> None:
    state = rich().state
    document = orjson.loads(encode_snapshot(state))
    assert document["snapshotVersion"] == 1
    assert document["sessionId"] == SESSION
    assert document["agent"] == "demo"
    assert document["continuationToken"] == state.token
    assert document["status"] == "waiting"
    assert document["parked"] is True
    assert document["pendingRequestIds"] == ["r9"]
    assert [row["requestId"] for row in document["pendingRequests"]] == ["r9"]
    assert document["steps"] == list(state.steps)
    assert document["agentState"] == {"n": 1}
    assert document["metadata"] is None
    assert document["createdAt"] == state.created_at_ms
    assert document["updatedAt"] == state.updated_at_ms
    assert document["log"] == {
        "nextIndex": state.next_index,
        "offset": state.offset,
        "sum": state.sum.decode(),
    }


def test_what_the_public_sees_leaves_out_the_agents_state_and_the_log() -> None:
    view = public_view(rich().state)
    assert not {"agentState", "log", "fold", "digest", "owner"} & set(view)
    assert view["grants"] == ["publish"]


def test_an_open_request_is_shown_with_its_kind_its_arguments_and_its_place() -> None:
    state = LogBuilder().start().ask_approval("call_1", page="home").state
    request = LogBuilder().request_of("call_1")
    (shown,) = public_view(state)["pendingRequests"]
    assert shown == {
        "kind": "approval",
        "requestId": request,
        "callId": "call_1",
        "prompt": "Run publish?",
        "toolName": "publish",
        "args": {"page": "home"},
        "argsDigest": ev.digest(b'{"page":"home"}'),
        "index": 5,
    }


def test_an_owner_is_shown_and_kept() -> None:
    state = rich().state
    state.owner = "ann"
    assert public_view(state)["owner"] == "ann"
    assert decode_snapshot(encode_snapshot(state), SESSION).owner == "ann"


def test_every_change_of_a_single_byte_is_noticed() -> None:
    raw = rich().snapshot
    for at in range(len(raw)):
        for changed in (raw[at] ^ 1, raw[at] ^ 0x20):
            with pytest.raises(SnapshotError):
                decode_snapshot(raw[:at] + bytes([changed]) + raw[at + 1 :], SESSION)


def test_every_missing_or_doubled_byte_and_every_cut_is_noticed() -> None:
    raw = rich().snapshot
    for at in range(len(raw)):
        for damaged in (raw[:at], raw[:at] + raw[at + 1 :], raw[: at + 1] + raw[at:], raw[at + 1 :]):
            with pytest.raises(SnapshotError):
                decode_snapshot(damaged, SESSION)


@pytest.mark.parametrize("more", [b"\n", b" ", b"\0", b"}"])
def test_bytes_behind_the_snapshot_are_noticed(more: bytes) -> None:
    with pytest.raises(SnapshotError):
        decode_snapshot(rich().snapshot + more, SESSION)


@given(
    at=st.integers(min_value=0),
    size=st.integers(min_value=0, max_value=40),
    put=st.binary(max_size=40) | st.sampled_from([b'"grants":["publish"]', b'"approved":true', b'"always"']),
)
def test_no_damage_of_a_snapshot_ever_grants_anything(at: int, size: int, put: bytes) -> None:
    """Scenario B9: what cannot be read is no approval; the log is folded instead."""
    raw = LogBuilder().start().ask_approval("call_1", page="home").snapshot
    at %= len(raw)
    damaged = raw[:at] + put + raw[at + size :]
    if damaged == raw:
        return
    with pytest.raises(SnapshotError):
        decode_snapshot(damaged, SESSION)


@given(st.binary(max_size=300))
def test_any_bytes_that_are_no_snapshot_are_refused_as_such(raw: bytes) -> None:
    with pytest.raises(SnapshotError):
        decode_snapshot(raw, SESSION)


def test_a_snapshot_of_another_session_is_refused() -> None:
    with pytest.raises(SnapshotError, match="another session"):
        decode_snapshot(rich().snapshot, session_id_of(2))


def test_a_snapshot_of_another_version_is_refused() -> None:
    document = orjson.loads(rich().snapshot)
    document["snapshotVersion"] = 2
    with pytest.raises(SnapshotError, match="version 2"):
        decode_snapshot(redigested(document), SESSION)


def test_a_snapshot_whose_chain_link_is_no_sum_is_refused() -> None:
    document = orjson.loads(rich().snapshot)
    document["log"]["sum"] = "short"
    with pytest.raises(SnapshotError, match="no sum"):
        decode_snapshot(redigested(document), SESSION)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document."""
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in rows:
        yield (*path, name)
        yield from paths(inner, (*path, name))


@pytest.mark.parametrize("put", [None, [], {}, "", 7, "missing"], ids=repr)
def test_a_document_with_any_one_value_exchanged_is_read_or_refused_and_never_worse(put: object) -> None:
    """A digest that fits makes no snapshot: the parts must be of their kinds too."""
    for path in paths(orjson.loads(rich().snapshot)):
        document = orjson.loads(rich().snapshot)
        *way, last = path
        inner: Any = document
        for name in way:
            inner = inner[name]
        if put == "missing":
            del inner[last]
        else:
            inner[last] = put
        try:
            state = decode_snapshot(redigested(document), SESSION)
        except SnapshotError:
            continue
        assert isinstance(state, SessionState)


def test_the_cursor_can_be_read_of_a_damaged_snapshot_too() -> None:
    raw = rich().snapshot
    state = rich().state
    assert cursor_of(raw.replace(b'"agent":"demo"', b'"agent":"omed"')) == {
        "nextIndex": state.next_index,
        "offset": state.offset,
        "sum": state.sum.decode(),
    }


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"nonsense",
        b"[]",
        b"7",
        b"{}",
        b'{"log":null}',
        b'{"log":{"nextIndex":1,"offset":2}}',
        b'{"log":{"nextIndex":"1","offset":2,"sum":"a"}}',
        b'{"log":{"nextIndex":1,"offset":null,"sum":"a"}}',
        b'{"log":{"nextIndex":1,"offset":2,"sum":3}}',
    ],
)
def test_where_there_is_no_cursor_none_is_read(raw: bytes) -> None:
    assert cursor_of(raw) is None
