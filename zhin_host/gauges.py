"""Gauges: what a host holds at this moment, read off what is in memory; O(sessions and readers there)."""

from __future__ import annotations

from dataclasses import dataclass

from zhin_host.clock import Clock
from zhin_host.sessions import LiveSessions
from zhin_host.subscriptions import Subscriptions


@dataclass(frozen=True, slots=True)
class Gauges:
    """A moment of a host.

    Attributes:
        sessions_known: Sessions there are, on disk or in memory.
        sessions_in_memory: Those in memory.
        sessions_recovering: Interrupted ones that recovery has still to look at; ready when 0.
        turns_running: Open turns that wait for no person; one whose agent is not hosted is among them, one whose log is
            broken is not: it will never go on.
        turns_parked: Open turns that wait for a person, in memory or not.
        parked_oldest_s: How long ago the last event came of the one that has waited longest; 0 when there is none.
        readers: Open streams.
        readers_behind: Those with events that they were not handed yet.
        lag_events_max: How many that are for the one furthest behind.
        readers_dropped: Readers so far that took nothing for the write timeout.
    """

    sessions_known: int
    sessions_in_memory: int
    sessions_recovering: int
    turns_running: int
    turns_parked: int
    parked_oldest_s: float
    readers: int
    readers_behind: int
    lag_events_max: int
    readers_dropped: int


def read_gauges(sessions: LiveSessions, hub: Subscriptions, clock: Clock) -> Gauges:
    """The gauges now. Runs on the loop, without an await."""
    states = [live.state for live in sessions.live if live.fault is None]
    parked_ms = [state.updated_at_ms for state in states if state.pending]
    away_ms = sessions.parked_away.values()
    since_ms = min((at_ms for at_ms in (*parked_ms, *away_ms) if at_ms), default=None)
    lags = hub.lags()
    return Gauges(
        sessions_known=len(sessions.index),
        sessions_in_memory=len(sessions.live),
        sessions_recovering=sessions.unsorted,
        turns_running=sum(state.turn is not None and not state.pending for state in states),
        turns_parked=len(parked_ms) + len(away_ms),
        parked_oldest_s=0.0 if since_ms is None else max(0.0, (clock.now_ms() - since_ms) / 1000),
        readers=len(lags),
        readers_behind=sum(lag > 0 for lag in lags),
        lag_events_max=max(lags, default=0),
        readers_dropped=hub.dropped,
    )
