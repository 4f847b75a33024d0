"""Monitors every function, batch by batch, and makes the window that policies see.

Topics between functions are counted by what was written to them and read from them; topics from outside by
readings of the source itself, since what was read says nothing about what is offered.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.dataflow.metrics import InstanceMetrics, MetricWindow
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import OperatorBatches, OperatorQuery, OperatorWindow, SourceRate, TopicRate
from penstock.decide.queueing.queues import Variation
from penstock.pipeline.batches import BatchDone, describe_batches, measure_latency, measure_response
from penstock.pipeline.topics import Layout

BATCHES_KEPT = 256


@dataclass(frozen=True, slots=True)
class TopicReading:
    """Rate and backlog that a topic from outside offers to one of its readers."""

    offered_per_second: float
    backlog_records: float


Readings = Mapping[str, Mapping[str, TopicReading]]
"""Function → topic from outside → its reading; functions that read none are left out."""


@dataclass(frozen=True, slots=True)
class FunctionFigures:
    """One function over a window; squared coefficients of variation, seconds and records."""

    arrival_per_second: float
    arrival_variation: float
    service_seconds: float
    service_variation: float
    completion_seconds: float
    """Between two records completed."""
    backlog_records: float
    true_rate_per_second: float
    """Of one instance."""
    busy_ratio: float
    observed_per_second: float
    written_per_second: float
    batch_seconds: float
    latency_seconds: float
    """From the pipeline's entrance until it was served here, of the mean record."""
    response_seconds: float
    """From its arrival in the topic that is read."""


@dataclass(slots=True)
class _Memory:
    """One function since the start: its newest batches and its totals."""

    batches: deque[BatchDone] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    variation: Variation = field(default_factory=Variation)
    count: int = 0
    read: float = 0.0
    written: float = 0.0
    dead: float = 0.0
    correction: float = 0.0
    """Records of the input from before the monitor began; seen when more was read than written."""


@dataclass(frozen=True, slots=True)
class _Span:
    """The span of one window, and what was seen in it by function."""

    start: float
    end: float
    held: Mapping[str, int]
    batches: Mapping[str, list[BatchDone]]
    readings: Readings
    backlogs: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Monitor:
    """Takes in batches from any thread; memory does not grow with the length of the run."""

    def __init__(
        self, application: str, layout: Layout, trigger_seconds: Mapping[str, float] | None = None
    ) -> None:
        """`trigger_seconds` says how often a function looks for records, where that is known."""
        self._application, self._layout = application, layout
        self._triggers = trigger_seconds or {}
        self._lock = threading.Lock()
        self._functions = {name: _Memory() for name in layout.functions}
        self._figures: dict[str, FunctionFigures] = {}
        self._start: float | None = None

    def take_in(self, batch: BatchDone) -> None:
        """Take in one batch."""
        with self._lock:
            memory = self._functions[batch.function]
            memory.batches.append(batch)
            memory.count += 1
            memory.read += batch.records
            memory.written += batch.written
            memory.dead += sum(one.dead for one in batch.work)

    def count_totals(self, function: str) -> dict[str, float]:
        """Count since the start: batches, records read, written and dead."""
        with self._lock:
            known = self._functions[function]
            totals = {"records_read": known.read, "records_written": known.written}
            return {"batches": known.count, **totals, "dead_letters": known.dead}

    def measure_newest(self, function: str) -> dict[str, float]:
        """Measure rates over the newest batches alone, for the time before there is a first window."""
        batches = self.batches(function)
        seconds = batches[-1].end - batches[0].start if batches else 0.0
        if seconds <= 0:
            return {}
        return {
            "observed_per_second": sum(batch.records for batch in batches) / seconds,
            "written_per_second": sum(batch.written for batch in batches) / seconds,
        }

    def batches(self, function: str) -> tuple[BatchDone, ...]:
        """Return the newest batches of a function, oldest first."""
        with self._lock:
            return tuple(self._functions[function].batches)

    def figures(self) -> Mapping[str, FunctionFigures]:
        """Return each function over the last window."""
        with self._lock:
            return dict(self._figures)

    def observe(self, now: float, held: Mapping[str, int], readings: Readings) -> OperatorWindow | NotReady:
        """Return the window since the last one.

        While records wait for a function of which no batch has ended the window goes on, so that batches
        longer than the policy interval are seen whole.
        """
        functions = self._layout.functions
        with self._lock:
            if self._start is None or self._start >= now:
                self._start = now
                self._forget_the_future(now)
                return NotReady("the first window has just begun", "one policy interval")
            missing = list(self._find_unread(readings))
            if missing:
                return NotReady(f"the offered rate of topic {missing[0]!r} is unknown", "a reading of it")
            batches = {name: self._list_batches(name, now, held[name]) for name in functions}
            backlogs = {name: self._measure_backlog(name, readings) for name in functions}
            for name in functions:
                if not batches[name] and backlogs[name] > 0:
                    reason = f"no batch of {name!r} at {held[name]} instances has ended in this window"
                    return NotReady(reason, "a batch")
            span = _Span(self._start, now, held, batches, readings, backlogs)
            self._start = now
            return self._make_window(span)

    def _forget_the_future(self, now: float) -> None:
        """Drop what ended later than now: the clock went back, and it would be met a second time."""
        for memory in self._functions.values():
            past = [batch for batch in memory.batches if batch.end <= now]
            memory.batches = deque(past, maxlen=BATCHES_KEPT)

    def _find_unread(self, readings: Readings) -> Iterable[str]:
        for topic in self._layout.sources:
            for reader in self._layout.readers(topic):
                reading = readings.get(reader, {}).get(topic)
                if reading is None or not math.isfinite(reading.offered_per_second):
                    yield topic

    def _list_batches(self, name: str, now: float, held: int) -> list[BatchDone]:
        """List batches that ended in the window; one at another parallelism says nothing of this one."""
        assert self._start is not None
        known = self._functions[name].batches
        return [one for one in known if self._start < one.end <= now and one.parallelism == held]

    def _list_writers(self, name: str) -> list[str]:
        """List the functions that write what a function reads, once for each topic."""
        return [writer for topic in self._layout.reads[name] for writer in self._layout.writers(topic)]

    def _measure_backlog(self, name: str, readings: Readings) -> float:
        writers = self._list_writers(name)
        if name in readings or not writers:
            # of a function that also reads from outside, what it read cannot be told apart
            return max(0.0, sum(one.backlog_records for one in readings.get(name, {}).values()))
        written, memory = sum(self._functions[one].written for one in writers), self._functions[name]
        memory.correction = max(memory.correction, memory.read - written)
        return max(0.0, written + memory.correction - memory.read)

    def _make_window(self, span: _Span) -> OperatorWindow:
        topics: dict[str, TopicRate] = {}
        for name in self._layout.functions:
            figures = self._figures[name] = self._measure_function(name, span)
            rates = figures.arrival_per_second, figures.observed_per_second
            topics[name] = TopicRate(*rates, span.backlogs[name], _find_overdue(name, span))
        sources = {topic: self._measure_topic(topic, topics, span.readings) for topic in self._layout.sources}
        query = OperatorQuery(
            query_id=self._application,
            name=self._application,
            graph=self._layout.graph,
            metrics=self._list_metrics(span, sources),
            sources=sources,
            latency_seconds=self._find_latency(),
            topics=topics,
            batches=self._describe_batches(span),
        )
        return OperatorWindow(self._application, span.start, span.end, dict(span.held), (query,))

    def _measure_topic(
        self, topic: str, functions: Mapping[str, SourceRate], readings: Readings
    ) -> SourceRate:
        """Measure a topic, which is as far behind as its slowest reader and has its share of that one."""
        told = {reader: readings[reader][topic] for reader in self._layout.readers(topic)}
        return SourceRate(
            offered_per_second=max(one.offered_per_second for one in told.values()),
            observed_per_second=min(
                _share(one.offered_per_second, functions[reader]) for reader, one in told.items()
            ),
            backlog_records=max(one.backlog_records for one in told.values()),
        )

    def _measure_function(self, name: str, span: _Span) -> FunctionFigures:
        batches, seconds = span.batches[name], span.seconds
        records = sum(one.records for one in batches)
        work = [work for one in batches for work in one.work]
        useful = sum(one.useful_seconds for one in work)
        # what came in: as offered from outside, and as the functions before it wrote it
        outside = sum(one.offered_per_second for one in span.readings.get(name, {}).values())
        written = sum(one.written for writer in self._list_writers(name) for one in span.batches[writer])
        arrival = outside + written / seconds
        variation = self._functions[name].variation
        variation.remember(arrival, seconds, [(one.records_in, one.useful_seconds) for one in work])
        return FunctionFigures(
            arrival_per_second=arrival,
            arrival_variation=variation.of_arrivals,
            service_seconds=useful / records if records else math.nan,
            service_variation=variation.of_services,
            completion_seconds=seconds / records if records else math.nan,
            backlog_records=span.backlogs[name],
            true_rate_per_second=records / useful if useful else math.nan,
            busy_ratio=useful / (span.held[name] * seconds),
            observed_per_second=records / seconds,
            written_per_second=sum(one.written for one in batches) / seconds,
            batch_seconds=sum(b.seconds for b in batches) / len(batches) if batches else math.nan,
            latency_seconds=measure_latency(batches),
            response_seconds=measure_response(batches),
        )

    def _list_metrics(self, span: _Span, sources: Mapping[str, SourceRate]) -> MetricWindow:
        rows = []
        for topic in self._layout.sources:
            records = sources[topic].observed_per_second * span.seconds
            # a topic does no work of its own; its time only has to be there for its records to count
            rows.append(InstanceMetrics(topic, "topic", records, records, span.seconds))
        for name, batches in span.batches.items():
            rows += _list_instances(name, span.held[name], batches, span.seconds)
        return MetricWindow.of(self._layout.graph, span.start, span.end, rows)

    def _describe_batches(self, span: _Span) -> dict[str, OperatorBatches]:
        described = {
            name: describe_batches(batches, self._triggers.get(name))
            for name, batches in span.batches.items()
        }
        return {name: one for name, one in described.items() if one is not None}

    def _find_latency(self) -> float | None:
        """Return the latency at the function that records reach latest; None where none is known."""
        seen = [self._figures[name].latency_seconds for name in self._layout.functions]
        return max((seconds for seconds in seen if not math.isnan(seconds)), default=None)


def _find_overdue(name: str, span: _Span) -> float:
    """Return what is to be caught up with: one batch under way and one that waits are no backlog.

    Readings of topics from outside have left these out already (decision 0005).
    """
    if span.readings.get(name):
        return span.backlogs[name]
    return max(0.0, span.backlogs[name] - 2 * max((one.records for one in span.batches[name]), default=0.0))


def _share(offered: float, function: SourceRate) -> float:
    """Return what a function reads of one of its topics: its batches tell only what it reads of all."""
    arrived = function.offered_per_second
    return function.observed_per_second * (offered / arrived if arrived > 0 else 1.0)


def _list_instances(name: str, held: int, batches: list[BatchDone], seconds: float) -> list[InstanceMetrics]:
    """List one row an instance, also for those that had nothing to do."""
    totals = [[0.0, 0.0, 0.0] for _ in range(held)]
    for batch in batches:
        for work in batch.work:
            row = totals[work.instance % held]
            row[0] += work.records_in
            row[1] += work.records_out
            row[2] += work.useful_seconds
    return [
        InstanceMetrics(name, str(number), read, written, useful, max(0.0, seconds - useful))
        for number, (read, written, useful) in enumerate(totals)
    ]
