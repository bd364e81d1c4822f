"""Sizes: how much of everything a run of the benchmark does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The counts behind every figure. Each figure is taken `runs` times, unless its row says otherwise.

    Attributes:
        hellos: Requests of one run of the hello limit.
        disk_s: Seconds that each limit of the disk is taken for.
        files: Files that are created for their limit; a tenth of them is unlinked.
        lines: Lines of one run of the one-line-per-chunk limit.
        clients: Clients of the figures that have many, each with a connection of its own.
        turns: Short turns of one run of many clients.
        turn_chunks: What the agent says in a short turn.
        lone_turns: Short turns of one run of one client.
        stream_turns: Chunks of a long turn, and how many such turns one run has, the shortest first.
        yielding_chunks: Chunks of a turn whose agent lets the loop run after each, with one reader.
        readers: Readers of the figure that has many.
        readers_chunks: Chunks of their turn.
        replay_events: Deltas of the log that is replayed and joined near its end.
        replays: Replays of one run, after one that is not counted.
        joins: Joins near the end of one run.
        followups: Follow-up turns of one session.
        followups_edge: Of how many the mean is taken, at either end.
        followups_runs: How many sessions do so.
        stored: Sessions on disk at a start-up.
        stored_bytes: Size of each one's log, about.
        cut: Turns among them that were cut down midway, anew before every start-up.
        parked: Sessions that lie parked beside them.
        passed: Sessions that pass through the host while its memory is watched.
        subscribers: Idle subscribers.
        parked_left: Sessions that park and leave memory.
        approvals: Answers of one run whose tool says when it began.
        settle_s: Seconds that the host's housekeeping, which comes every second, gets before memory is read.
        append_events: Deltas of one run of the append path, in process.
        audited: Sessions of a directory that are audited when it has more, beside the one with the largest log.
        audited_bytes: How large their logs may be together.
    """

    runs: int
    hellos: int
    disk_s: float
    files: int
    lines: int
    clients: int
    turns: int
    turn_chunks: int
    lone_turns: int
    stream_turns: tuple[tuple[int, int], ...]
    yielding_chunks: int
    readers: int
    readers_chunks: int
    replay_events: int
    replays: int
    joins: int
    followups: int
    followups_edge: int
    followups_runs: int
    stored: int
    stored_bytes: int
    cut: int
    parked: int
    passed: int
    subscribers: int
    parked_left: int
    approvals: int
    settle_s: float
    append_events: int
    audited: int
    audited_bytes: int


FULL = Sizes(
    runs=3,
    hellos=12_000,
    disk_s=1.0,
    files=1_000,
    lines=100_000,
    clients=16,
    turns=2_000,
    turn_chunks=20,
    lone_turns=500,
    stream_turns=((2_000, 20), (20_000, 5), (200_000, 1), (1_000_000, 1)),
    yielding_chunks=20_000,
    readers=50,
    readers_chunks=5_000,
    replay_events=1_000_000,
    replays=3,
    joins=200,
    followups=10_000,
    followups_edge=200,
    followups_runs=1,
    stored=100_000,
    stored_bytes=50_000,
    cut=100,
    parked=10_000,
    passed=100_000,
    subscribers=1_000,
    parked_left=4_000,
    approvals=300,
    settle_s=3.0,
    append_events=200_000,
    audited=1_000,
    audited_bytes=40_000_000,
)
"""What the targets are stated for; under fifteen minutes on two cores."""

QUICK = Sizes(
    runs=1,
    hellos=1_500,
    disk_s=0.1,
    files=200,
    lines=20_000,
    clients=16,
    turns=240,
    turn_chunks=20,
    lone_turns=80,
    stream_turns=((2_000, 2), (8_000, 1), (16_000, 1)),
    yielding_chunks=3_000,
    readers=50,
    readers_chunks=400,
    replay_events=16_000,
    replays=2,
    joins=50,
    followups=300,
    followups_edge=100,
    followups_runs=1,
    stored=600,
    stored_bytes=50_000,
    cut=20,
    parked=100,
    passed=300,
    subscribers=150,
    parked_left=100,
    approvals=40,
    settle_s=1.1,
    append_events=30_000,
    audited=20,
    audited_bytes=500_000,
)
"""Every figure once, smaller; under a minute."""
