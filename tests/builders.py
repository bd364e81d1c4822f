"""Builders: legal logs, made through the fold and the projector as the journal makes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from zhin_host import events as ev
from zhin_host.clock import SessionId, base32
from zhin_host.fold import apply
from zhin_host.moves import check
from zhin_host.projector import HttpStepProjector
from zhin_host.snapshot import encode_snapshot
from zhin_host.state import new_state

LINE_BYTES_MAX = 1 << 20
START_MS = 1_764_428_400_000


def session_id_of(number: int) -> SessionId:
    """A session's id; a higher number sorts behind."""
    return SessionId("ses_" + base32(START_MS, 10) + base32(number, 16))


def token_of(number: int) -> str:
    """A continuation token."""
    return "zhin:" + base32(number, 26)


class LogBuilder:
    """A session's log, line by line. Each `put` is one batch: its events and what follows of them.

    Attributes:
        batches: The bytes of each batch.
        state: The fold of them.
    """

    def __init__(self, session_id: SessionId | None = None) -> None:
        self.session_id = session_id if session_id is not None else session_id_of(1)
        self.state = new_state(self.session_id)
        self.batches: list[bytes] = []
        self._tokens = 0
        self._turns = 0
        self._project = HttpStepProjector()

    @property
    def content(self) -> bytes:
        """The whole log."""
        return b"".join(self.batches)

    @property
    def lines(self) -> list[bytes]:
        """Its lines, each with its newline."""
        return self.content.splitlines(keepends=True)

    @property
    def snapshot(self) -> bytes:
        """The snapshot of the state as it is now."""
        return encode_snapshot(self.state)

    @property
    def turn_id(self) -> str:
        """The open turn, or the last one."""
        return f"turn_{base32(self._turns, 26)}"

    def put(self, *drafts: tuple[str, dict[str, Any]], is_live: bool = True) -> Self:
        """Add one batch."""
        lines: list[bytes] = []
        self._pay(lines, [kind for kind, _ in drafts], is_live=is_live)
        for at, (kind, data) in enumerate(drafts):
            self._line(lines, kind, data)
            self._pay(lines, [later for later, _ in drafts[at + 1 :]], is_live=is_live)
        self.batches.append(b"".join(lines))
        return self

    @classmethod
    def of(cls, session_id: SessionId, content: bytes) -> Self:
        """A builder that goes on after the whole lines of a log, which is its one batch."""
        builder = cls(session_id)
        builder.batches = [content]
        for line in builder.lines:
            event = ev.decode_line(line[:-1], builder.state.sum)
            apply(builder.state, event.type, event.data, event.timestamp_ms)
            builder.state.offset += len(line)
            builder.state.sum = event.sum
            builder._turns += event.type == ev.TURN_STARTED
            builder._tokens = builder._turns
        return builder

    # -- what sessions are made of ---------------------------------------------------------------------------

    def start(self, message: str = "Hello", *, agent: str = "demo") -> Self:
        """Begin the session and its first turn."""
        token = self._next_token()
        self._turns += 1
        return self.put(
            (
                ev.SESSION_STARTED,
                {
                    "sessionId": self.session_id,
                    "agent": agent,
                    "logVersion": ev.LOG_VERSION,
                    "continuationToken": token,
                },
            ),
            (ev.TURN_STARTED, {"turnId": self.turn_id, "continuationToken": token}),
            (ev.MESSAGE_RECEIVED, {"turnId": self.turn_id, "message": message}),
        )

    def follow_up(self, message: str = "And then?") -> Self:
        """Begin another turn."""
        self._turns += 1
        return self.put(
            (ev.TURN_STARTED, {"turnId": self.turn_id, "continuationToken": self._next_token()}),
            (ev.MESSAGE_RECEIVED, {"turnId": self.turn_id, "message": message}),
        )

    def say(self, *deltas: str) -> Self:
        """Text of the open turn."""
        return self.put(*((ev.MESSAGE_APPENDED, {"messageDelta": delta}) for delta in deltas))

    def finish(self, text: str) -> Self:
        """End the open turn well; `text` is all that was said and counts."""
        return self.put(
            (ev.MESSAGE_COMPLETED, {"message": text, "finishReason": "stop"}),
            (ev.TURN_COMPLETED, {"turnId": self.turn_id}),
        )

    def call(self, call_id: str, tool_name: str = "fetch", **arguments: Any) -> Self:
        """Ask for an action."""
        return self.put((ev.ACTIONS_REQUESTED, _call(call_id, tool_name, arguments)))

    def result(self, call_id: str, status: str = "completed", tool_name: str = "fetch") -> Self:
        """End an action."""
        data = {"callId": call_id, "toolName": tool_name, "status": status, "durationMs": 1}
        if status == "completed":
            data["output"] = "done"
        else:
            data["error"] = {"code": "ACTION_FAILED", "message": "it broke"}
        return self.put((ev.ACTION_RESULT, data))

    def ask_approval(self, call_id: str, tool_name: str = "publish", **arguments: Any) -> Self:
        """Ask for an action that waits for a person; its request is `request_of(call_id)`."""
        return self.put(
            (ev.ACTIONS_REQUESTED, _call(call_id, tool_name, arguments)),
            (
                ev.INPUT_REQUESTED,
                {
                    "requestId": self.request_of(call_id),
                    "kind": "approval",
                    "callId": call_id,
                    "prompt": f"Run {tool_name}?",
                    "toolName": tool_name,
                    "args": arguments,
                    "argsDigest": ev.digest(ev.json_bytes(arguments)),
                },
            ),
        )

    def answer(self, call_id: str, outcome: str = "approved", *, is_live: bool = True) -> Self:
        """Answer the request of a call."""
        data = {
            "requestId": self.request_of(call_id),
            "kind": "approval",
            "outcome": outcome,
            "approved": outcome == "approved",
        }
        return self.put((ev.INPUT_COMPLETED, data), is_live=is_live)

    def request_of(self, call_id: str) -> str:
        """The id of the request that a call makes."""
        return f"req_{self.session_id[4:]}_{call_id}"

    # -- inside ----------------------------------------------------------------------------------------------

    def _next_token(self) -> str:
        self._tokens += 1
        return token_of(self._tokens)

    def _pay(self, lines: list[bytes], coming: Iterable[str], *, is_live: bool) -> None:
        after = tuple(coming)
        while (owed := self._project(self.state, after, is_live=is_live)) is not None:
            self._line(lines, owed.type, owed.data)

    def _line(self, lines: list[bytes], kind: str, data: Any) -> None:
        state = self.state
        check(state, kind, data)
        timestamp_ms = START_MS + state.next_index
        line, link = ev.encode_line(state.next_index, kind, timestamp_ms, data, state.sum, LINE_BYTES_MAX)
        apply(state, kind, data, timestamp_ms)
        state.offset += len(line)
        state.sum = link
        lines.append(line)


def _call(call_id: str, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"callId": call_id, "toolName": tool_name, "input": arguments}


def chained(session_id: SessionId, events: Iterable[tuple[str, dict[str, Any]]]) -> list[bytes]:
    """Lines with a whole chain and any events, legal or not."""
    lines: list[bytes] = []
    link = ev.chain_start(session_id)
    for index, (kind, data) in enumerate(events):
        line, link = ev.encode_line(index, kind, START_MS + index, data, link, LINE_BYTES_MAX)
        lines.append(line)
    return lines


def rechained(session_id: SessionId, lines: Iterable[bytes]) -> bytes:
    """The same events (type, timestamp, data and the index they say) with a chain that holds: a careful forger's."""
    out: list[bytes] = []
    link = ev.chain_start(session_id)
    for line in lines:
        payload = line.rpartition(b',"sum":')[0]
        link = ev.chain(link, payload)
        out.append(b'%b,"sum":"%b"}\n' % (payload, link))
    return b"".join(out)
