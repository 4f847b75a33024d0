"""The few figures of a window that people read, that the journal keeps, and that effects are judged by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from penstock.dataflow.critical import plain_critical
from penstock.dataflow.window import ApplicationWindow, QueryWindow


@dataclass(frozen=True, slots=True)
class QuerySummary:
    """One query over one window; rates of all its sources together, None where nothing was measured."""

    name: str
    offered_per_second: float
    observed_per_second: float
    backlog_records: float
    batch_seconds: float | None = None
    period_seconds: float | None = None
    latency_seconds: float | None = None
    timeline_seconds: Mapping[str, float] = field(default_factory=dict)
    critical: Mapping[str, object] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)
    """What a policy was shown, as `window_record` writes it; only the journal keeps it."""


def summarise(query: QueryWindow) -> QuerySummary:
    """Reduce a query's window to its figures; the batch time is the median, so one slow batch says little."""
    settled = [batch.seconds for batch in query.batches if batch.settled]
    seconds = settled or [batch.seconds for batch in query.batches]
    return QuerySummary(
        name=query.name,
        offered_per_second=sum(source.offered_per_second for source in query.outside),
        observed_per_second=sum(source.observed_per_second for source in query.outside),
        backlog_records=sum(source.backlog_records for source in query.waiting),
        batch_seconds=median(seconds) if seconds else None,
        period_seconds=query.period_seconds,
        latency_seconds=query.latency_seconds,
        timeline_seconds=dict(query.timeline_seconds),
        critical=plain_critical(query.critical[-1]) if query.critical else {},
    )


def measured_figures(window: ApplicationWindow) -> Mapping[str, float]:
    """The application's figures under the names in which policies state what they expect.

    Rates add up; batch time and utilisation are those of the busiest query, as in the predictions.
    """
    queries = [summarise(query) for query in window.queries]
    figures = {
        "observed_per_second": sum(query.observed_per_second for query in queries),
        "offered_per_second": sum(query.offered_per_second for query in queries),
        "backlog_records": sum(query.backlog_records for query in queries),
    }
    batches = [query.batch_seconds for query in queries if query.batch_seconds is not None]
    busy = [
        (query.batch_seconds / query.period_seconds, query.batch_seconds)
        for query in queries
        if query.batch_seconds is not None and query.period_seconds
    ]
    if busy:
        figures["utilisation_ratio"], figures["batch_seconds"] = max(busy)
    elif batches:
        figures["batch_seconds"] = max(batches)
    latencies = [query.latency_seconds for query in queries if query.latency_seconds is not None]
    if latencies:
        figures["latency_seconds"] = max(latencies)
    return figures
