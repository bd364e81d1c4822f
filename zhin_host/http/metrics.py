"""Metrics: a host's meters and gauges as Prometheus reads them; the only module that knows its library.

It is imported by the first scrape, and runs in a thread: what a process knows of itself lies in files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from zhin_host.gauges import Gauges
from zhin_host.meters import Histogram, Meters

PREFIX: Final = "zhin_host_"


class HostCollector(Collector):
    """Makes the metrics of one host at one moment: nothing is kept, and nothing is counted here."""

    def __init__(self, meters: Meters, now: Gauges) -> None:
        self._meters = meters
        self._now = now

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry would else collect once just to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The metrics, in the order of the documentation."""
        yield from self._counters(self._meters)
        yield from self._moment(self._now)

    def _counters(self, meters: Meters) -> Iterator[Metric]:
        turns = _counter("turns", "Turns whose end is in the log.", "agent", "end")
        for (agent, end), count in meters.turns.items():
            turns.add_metric((agent, end), count)
        yield turns
        yield _histogram("append_seconds", "Writes of a batch to a session's log.", meters.appends)
        yield _histogram(
            "sync_seconds",
            "Waits until a session's log survives a power cut; syncs are shared.",
            meters.syncs,
        )
        for name, help_text, label, counts in (
            (
                "storage_errors",
                "Writes and syncs that failed, once for each that waited.",
                "call",
                meters.storage_errors,
            ),
            (
                "recoveries",
                "Sessions left in the middle of a turn, by what became of it.",
                "outcome",
                meters.recoveries,
            ),
            ("refusals", "Requests that were refused, by the code of the error.", "code", meters.refusals),
        ):
            counter = _counter(name, help_text, label)
            for value, count in counts.items():
                counter.add_metric((value,), count)
            yield counter

    def _moment(self, now: Gauges) -> Iterator[Metric]:
        for name, help_text, value in (
            ("sessions", "Sessions there are, on disk or in memory.", now.sessions_known),
            ("sessions_in_memory", "Sessions in memory.", now.sessions_in_memory),
            (
                "sessions_recovering",
                "Interrupted sessions still to be recovered; ready at 0.",
                now.sessions_recovering,
            ),
            ("turns_running", "Open turns that wait for no person.", now.turns_running),
            ("turns_parked", "Open turns that wait for a person, in memory or not.", now.turns_parked),
            (
                "parked_oldest_seconds",
                "Since the last event of the parked session that has waited longest; 0 when none is.",
                now.parked_oldest_s,
            ),
            ("readers", "Open streams.", now.readers),
            ("readers_behind", "Streams with events that were not handed to them yet.", now.readers_behind),
            (
                "reader_lag_events_max",
                "Events that the stream furthest behind was not handed yet.",
                now.lag_events_max,
            ),
        ):
            yield GaugeMetricFamily(PREFIX + name, help_text, value)
        yield CounterMetricFamily(
            PREFIX + "readers_dropped",
            "Readers that took nothing for the write timeout.",
            now.readers_dropped,
        )


def exposition(meters: Meters, now: Gauges, accept: str) -> tuple[bytes, bytes]:
    """A host's metrics, and this process's.

    Args:
        meters: What was counted; nobody counts in it meanwhile.
        now: What there is.
        accept: The Accept header; one that the library cannot read counts as none.

    Returns:
        The text, and its content type.
    """
    registry = CollectorRegistry()
    registry.register(HostCollector(meters, now))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):
        encode, content_type = choose_encoder("")
    return encode(registry), content_type.encode("ascii")


def _counter(name: str, help_text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, help_text, labels=labels)


def _histogram(name: str, help_text: str, histogram: Histogram) -> HistogramMetricFamily:
    bounds = (*map(str, histogram.bounds_s), "+Inf")
    buckets = list(zip(bounds, map(float, histogram.cumulated), strict=True))
    return HistogramMetricFamily(PREFIX + name, help_text, buckets=buckets, sum_value=histogram.total_s)
