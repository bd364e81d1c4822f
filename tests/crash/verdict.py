"""Verdict: whether a client that outlived its hosts was told nothing but the truth, and nothing was done twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.crash import ledger
from tests.crash.log import whole_events
from tests.crash.player import Player, Told
from tests.crash.scripts import Script
from zhin_host.audit import audit_directory

_ENDS: Final = {"turn.completed": "completed", "turn.failed": "failed", "turn.cancelled": "cancelled"}


@dataclass
class Chain:
    """One message and the turns that worked on it: a turn, and those that resumed it.

    Attributes:
        text: (index, delta) of what counts.
        results: callId -> (tool, status, output) of the results that count.
        state: The last checkpoint's.
    """

    message: Any = None
    end: str = "open"
    text: list[tuple[int, str]] = field(default_factory=list)
    results: dict[str, tuple[str, str, Any]] = field(default_factory=dict)
    state: Any = None
    turns: int = 0

    def discard(self, at: int | None) -> None:
        """What was said from the event `at` on does not count."""
        if at is not None:
            self.text = [row for row in self.text if row[0] < at]

    def outcome(self, *, with_text: bool) -> tuple[Any, ...]:
        """What must be the same whatever happened on the way."""
        if self.end == "cancelled":  # how far it came is a matter of moments
            return (self.message, self.end)
        text = "".join(delta for _, delta in self.text) if with_text else None
        results = sorted(map(repr, self.results.values()))
        return (self.message, self.end, text, results, repr(self.state))


def chains(events: list[dict[str, Any]]) -> list[Chain]:
    """The messages of a log, oldest first."""
    found: list[Chain] = []
    for event in events:
        data = event["data"]
        match event["type"]:
            case "turn.started":
                if "resumes" in data:
                    found[-1].discard(data.get("discardFrom"))
                else:
                    found.append(Chain())
                found[-1].turns += 1
            case "message.received":
                found[-1].message = data["message"]
            case "message.appended":
                found[-1].text.append((event["index"], data["messageDelta"]))
            case "step.resumed":
                found[-1].discard(data.get("discardFrom"))
            case "action.result" if data["status"] != "cancelled":
                row = (data["toolName"], data["status"], data.get("output"))
                found[-1].results[data["callId"]] = row
            case "checkpoint.saved":
                found[-1].state = data["state"]
            case "turn.completed" | "turn.failed" | "turn.cancelled":
                found[-1].end = _ENDS[event["type"]] + data.get("code", "")
            case _:
                pass
    return found


def outcome_of(log: Path, script: Script) -> list[tuple[Any, ...]]:
    """What the session came to; turns that ended with their host, and were sent again, do not count."""
    return [
        chain.outcome(with_text=not script.is_told_beside)
        for chain in chains(whole_events(log))
        if chain.end != "failedHOST_RESTARTED"
    ]


def judge(player: Player, script: Script, expected: list[tuple[Any, ...]], *, is_exact: bool = True) -> None:
    """Put everything that is wrong with a session whose script is over among the house's faults.

    Args:
        player: Whose session.
        script: What was played.
        expected: What an undisturbed run came to.
        is_exact: Whether every byte that a reader saw must be there still.
    """
    found = outcome_of(player.log, script)
    if not _is_as(found, expected):
        player.fault(f"it came to {found} and not {expected}")
    if is_exact:
        _judge_streams(player)
    events = whole_events(player.log)
    _judge_told(player, events)
    _judge_work(player, events)
    _judge_requests(player, events)


def _is_as(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    """Whether it is as undisturbed; a turn that three crashes in a row have ended may stay so before a queued one."""
    if len(found) != len(expected):
        return False
    return (
        all(
            row == wanted or row[1] == "failedRECOVERY_EXHAUSTED"
            for row, wanted in zip(found[:-1], expected[:-1], strict=True)
        )
        and found[-1:] == expected[-1:]
    )


def _judge_streams(player: Player) -> None:
    lines = player.log.read_bytes().splitlines(keepends=True)
    for start, got in player.memory.streams:
        seen = b"".join(line for line in bytes(got).splitlines(keepends=True) if line != b"\n")
        if not b"".join(lines[start:]).startswith(seen):
            player.fault(f"{len(seen)} bytes that a reader saw from {start} on are not in the file")


def _judge_told(player: Player, events: list[dict[str, Any]]) -> None:
    for told in player.memory.told:
        if not any(_is_it(event, told) for event in events):
            player.fault(f"{told} was acknowledged and is not in the log")


def _is_it(event: dict[str, Any], told: Told) -> bool:
    if event["type"] != told.kind or event["index"] < told.index:
        return False
    return all(event["data"].get(name) == value for name, value in told.fields.items())


def _judge_work(player: Player, events: list[dict[str, Any]]) -> None:
    """Every result was worked for, what has a result was not done again, each call has one idempotency key."""
    entries = ledger.read(player.ledger)
    tried_again = {event["data"].get("callId") for event in events if event["type"] == "turn.failed"}
    retried = {event["data"]["callId"] for event in events if event["type"] == "action.retrying"}
    keys: defaultdict[str, set[str]] = defaultdict(set)
    begun: Counter[tuple[str, int]] = Counter()
    raised: Counter[tuple[str, int]] = Counter()
    for entry in entries:
        keys[entry.call_id].add(entry.key)
        if entry.what == "begun":
            begun[entry.call_id, entry.life] += 1
            recorded_at = player.memory.recorded.get(entry.call_id)
            if recorded_at is not None and entry.at >= recorded_at and entry.call_id not in tried_again:
                player.fault(f"{entry.call_id} ran again although a host had died with its result in the log")
        raised[entry.call_id, entry.life] += entry.what == "raised"
    player.house.faults += [
        f"{player.name}: {call_id} was given {len(given)} idempotency keys"
        for call_id, given in keys.items()
        if len(given) > 1
    ]
    for (call_id, life), count in begun.items():
        is_retry = call_id in tried_again | retried or (
            player.may_be_lost
            and raised[call_id, life] >= count - 1  # its action.retrying went with the power
        )
        if count > 1 and not is_retry:
            player.fault(f"{call_id} began {count} times in one process ({life})")
    finished = {entry.call_id for entry in entries if entry.what == "finished"}
    for event in events:
        data = event["data"]
        if (
            event["type"] == "action.result"
            and data["status"] == "completed"
            and data["callId"] not in finished
        ):
            player.fault(f"{data['callId']} has a result and never ran to its end")
    _judge_payments(player, events, entries)


def _judge_payments(player: Player, events: list[dict[str, Any]], entries: list[ledger.Entry]) -> None:
    """What is not repeatable begins once, and once more for each time that a person said so."""
    calls: dict[str, str] = {}
    allowed: Counter[str] = Counter()
    for event in events:
        data = event["data"]
        if event["type"] == "actions.requested" and data["toolName"] in ("pay", "wire"):
            allowed.setdefault(data["callId"], 1)
        elif event["type"] == "input.requested" and data["kind"] == "retry":
            calls[data["requestId"]] = data["callId"]
        elif event["type"] == "input.completed" and data.get("approved") and data["requestId"] in calls:
            allowed[calls[data["requestId"]]] += 1
    begun = Counter(entry.call_id for entry in entries if entry.what == "begun")
    for call_id, most in allowed.items():
        if begun[call_id] > most:
            player.fault(f"{call_id} is not repeatable and began {begun[call_id]} times, {most} were allowed")


def _judge_requests(player: Player, events: list[dict[str, Any]]) -> None:
    """A person who has answered is not asked the same again."""
    asked: dict[str, tuple[str, str]] = {}
    answered: Counter[tuple[str, str]] = Counter()
    for event in events:
        data = event["data"]
        if event["type"] in ("input.requested", "authorization.required"):
            asked[data["requestId"]] = (data["callId"], data.get("kind", "authorization"))
        elif event["type"] in ("input.completed", "authorization.completed") and not _is_given_up(data):
            answered[asked[data["requestId"]]] += 1
    for (call_id, kind), count in answered.items():
        if count > 1 and kind != "retry":
            player.fault(f"the {kind} of {call_id} was asked for and given {count} times")


def _is_given_up(data: dict[str, Any]) -> bool:
    """Whether no person has answered."""
    return data.get("outcome") in ("cancelled", "expired") or data.get("error") == "cancelled"


def faults_of(directory: Path) -> list[str]:
    """What the audit finds wrong in a data directory that a clean stop left."""
    return [
        f"audit of {verdict.session_id}: event {fault.index}: {fault.message}"
        for verdict in audit_directory(directory)
        for fault in verdict.faults
    ]


def referee_of(below: Path) -> list[str]:
    """What the independent check that ZHIN_REFEREE names finds wrong below this folder."""
    program = os.environ.get("ZHIN_REFEREE")
    if program is None:
        return []
    done = subprocess.run(
        [sys.executable, program, str(below)], capture_output=True, text=True, check=False, timeout=300
    )
    lines = done.stdout.splitlines()[:-1]
    return lines if lines or done.returncode == 0 else [done.stdout + done.stderr]
