"""What every function did, batch by batch, and the window that policies see of it.

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
from penstock.dataflow.window import ApplicationWindow, Execution, QueryWindow, SourceRate
from penstock.decide.variation import Variation
from penstock.pipeline.layout import Layout

BATCHES_KEPT = 256


@dataclass(frozen=True, slots=True)
class InstanceWork:
    """What one instance did in one batch; `useful_seconds` is the time it was at work."""

    instance: int
    records_in: float
    records_out: float
    dead: float
    useful_seconds: float


@dataclass(frozen=True, slots=True)
class BatchDone:
    """One batch of one function, at the parallelism that it ran with."""

    function: str
    batch_id: int
    start: float
    end: float
    parallelism: int
    work: tuple[InstanceWork, ...]

    @property
    def records(self) -> float:
        """Records read."""
        return sum(one.records_in for one in self.work)

    @property
    def written(self) -> float:
        """Records written."""
        return sum(one.records_out for one in self.work)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a topic from outside offers to one of its readers, and what of it waits for that one."""

    offered_per_second: float
    backlog_records: float


Readings = Mapping[str, Mapping[str, Reading]]
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


@dataclass(slots=True)
class _Totals:
    read: float = 0.0
    written: float = 0.0
    dead: float = 0.0
    batches: int = 0
    correction: float = 0.0
    """Records of the input from before the monitor began; seen when more was read than written."""


@dataclass(slots=True)
class _Memory:
    batches: deque[BatchDone] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    totals: _Totals = field(default_factory=_Totals)
    variation: Variation = field(default_factory=Variation)
    arrived: float = 0.0


class Monitor:
    """Takes in batches from any thread; memory does not grow with the length of the run."""

    def __init__(self, application: str, layout: Layout) -> None:
        self._application, self._layout = application, layout
        self._lock = threading.Lock()
        self._functions = {name: _Memory() for name in layout.functions}
        self._figures: dict[str, FunctionFigures] = {}
        self._start: float | None = None

    def finished(self, batch: BatchDone) -> None:
        """Take in one batch."""
        with self._lock:
            memory = self._functions[batch.function]
            memory.batches.append(batch)
            memory.totals.batches += 1
            memory.totals.read += batch.records
            memory.totals.written += batch.written
            memory.totals.dead += sum(one.dead for one in batch.work)

    def counted(self, function: str) -> dict[str, float]:
        """Totals of a function since the start: batches, records read, written and dead."""
        with self._lock:
            totals = self._functions[function].totals
            return {
                "batches": totals.batches,
                "records_read": totals.read,
                "records_written": totals.written,
                "dead_letters": totals.dead,
            }

    def served(self, function: str) -> dict[str, float]:
        """Rates over the newest batches alone: what can be told before there is a first window."""
        batches = self.batches(function)
        seconds = batches[-1].end - batches[0].start if batches else 0.0
        if seconds <= 0:
            return {}
        return {
            "observed_per_second": sum(batch.records for batch in batches) / seconds,
            "written_per_second": sum(batch.written for batch in batches) / seconds,
        }

    def batches(self, function: str) -> tuple[BatchDone, ...]:
        """The newest batches of a function, oldest first."""
        with self._lock:
            return tuple(self._functions[function].batches)

    def figures(self) -> Mapping[str, FunctionFigures]:
        """Each function over the last window."""
        with self._lock:
            return dict(self._figures)

    def observe(
        self, now: float, held: Mapping[str, int], readings: Readings
    ) -> ApplicationWindow | NotReady:
        """The window since the last one.

        While records wait for a function of which no batch has ended the window goes on, so that batches
        longer than the policy interval are seen whole.
        """
        with self._lock:
            if self._start is None or self._start >= now:
                self._start = now
                self._forget_the_future(now)
                return NotReady("the first window has just begun", "one policy interval")
            missing = list(self._unread(readings))
            if missing:
                return NotReady(f"the offered rate of topic {missing[0]!r} is unknown", "a reading of it")
            start = self._start
            seen = {name: self._batches(name, start, now, held[name]) for name in self._layout.functions}
            backlogs = {name: self._backlog(name, readings) for name in self._layout.functions}
            for name, batches in seen.items():
                if not batches and backlogs[name] > 0:
                    reason = f"no batch of {name!r} at {held[name]} instances has ended in this window"
                    return NotReady(reason, "a batch")
            self._start = now
            return self._window(start, now, held, seen, readings, backlogs)

    def _forget_the_future(self, now: float) -> None:
        """What ended later than now did so before the clock went back, and would be met a second time."""
        for memory in self._functions.values():
            past = [batch for batch in memory.batches if batch.end <= now]
            memory.batches = deque(past, maxlen=BATCHES_KEPT)

    def _unread(self, readings: Readings) -> Iterable[str]:
        for topic in self._layout.sources:
            for reader in self._layout.readers(topic):
                reading = readings.get(reader, {}).get(topic)
                if reading is None or not math.isfinite(reading.offered_per_second):
                    yield topic

    def _batches(self, name: str, start: float, now: float, held: int) -> list[BatchDone]:
        """Batches that ended in the window; one that ran at another parallelism says nothing of this one."""
        known = self._functions[name].batches
        return [one for one in known if start < one.end <= now and one.parallelism == held]

    def _backlog(self, name: str, readings: Readings) -> float:
        waiting = sum(one.backlog_records for one in readings.get(name, {}).values())
        inner = [topic for topic in self._layout.reads[name] if topic not in self._layout.sources]
        if name in readings or not inner:
            # of a function that also reads from outside, what it read cannot be told apart
            return max(0.0, waiting)
        written = sum(self._functions[w].totals.written for t in inner for w in self._layout.writers(t))
        totals = self._functions[name].totals
        totals.correction = max(totals.correction, totals.read - written)
        return max(0.0, written + totals.correction - totals.read)

    def _overdue(self, name: str, backlog: float, batches: list[BatchDone], readings: Readings) -> float:
        """What is to be caught up with: one batch under way and one that waits are no backlog.

        Readings of topics from outside have left these out already (decision 0005).
        """
        if readings.get(name):
            return backlog
        return max(0.0, backlog - 2 * max((one.records for one in batches), default=0.0))

    def _window(
        self,
        start: float,
        now: float,
        held: Mapping[str, int],
        seen: Mapping[str, list[BatchDone]],
        readings: Readings,
        backlogs: Mapping[str, float],
    ) -> ApplicationWindow:
        seconds = now - start
        sources: dict[str, SourceRate] = {}
        for name in self._layout.functions:
            arrival = self._arrival(name, seconds, readings, seen)
            figures = self._measured(name, seconds, held[name], seen[name], arrival, backlogs[name])
            self._figures[name] = figures
            sources[name] = SourceRate(arrival, figures.observed_per_second, backlogs[name])
        for topic in self._layout.sources:
            sources[topic] = self._of_topic(topic, sources, readings)
        query = QueryWindow(
            query_id=self._application,
            name=self._application,
            graph=self._layout.graph,
            metrics=self._metrics(start, now, held, seen, sources),
            sources=sources,
            latency_seconds=self._latency(),
            overdue_records={n: self._overdue(n, backlogs[n], seen[n], readings) for n in seen},
        )
        return ApplicationWindow(self._application, start, now, Execution.PER_OPERATOR, dict(held), (query,))

    def _of_topic(self, topic: str, functions: Mapping[str, SourceRate], readings: Readings) -> SourceRate:
        """A topic is as far behind as its slowest reader, and has its share of what that one reads."""
        readers = self._layout.readers(topic)
        told = {reader: readings[reader][topic] for reader in readers}
        return SourceRate(
            offered_per_second=max(one.offered_per_second for one in told.values()),
            observed_per_second=min(
                _share(told[reader].offered_per_second, functions[reader]) for reader in readers
            ),
            backlog_records=max(one.backlog_records for one in told.values()),
        )

    def _arrival(
        self,
        name: str,
        seconds: float,
        readings: Readings,
        seen: Mapping[str, list[BatchDone]],
    ) -> float:
        """What came in: as offered from outside, and as the functions before it wrote it."""
        outside = sum(one.offered_per_second for one in readings.get(name, {}).values())
        inner = [topic for topic in self._layout.reads[name] if topic not in self._layout.sources]
        writers = [writer for topic in inner for writer in self._layout.writers(topic)]
        written = sum(one.written for writer in writers for one in seen[writer])
        return outside + written / seconds

    def _measured(
        self,
        name: str,
        seconds: float,
        held: int,
        batches: list[BatchDone],
        arrival: float,
        backlog: float,
    ) -> FunctionFigures:
        records = sum(one.records for one in batches)
        useful = sum(work.useful_seconds for one in batches for work in one.work)
        variation = self._functions[name].variation
        variation.remember(arrival, seconds, _services(batches))
        return FunctionFigures(
            arrival_per_second=arrival,
            arrival_variation=variation.of_arrivals,
            service_seconds=useful / records if records else math.nan,
            service_variation=variation.of_services,
            completion_seconds=seconds / records if records else math.nan,
            backlog_records=backlog,
            true_rate_per_second=records / useful if useful else math.nan,
            busy_ratio=useful / (held * seconds),
            observed_per_second=records / seconds,
            written_per_second=sum(one.written for one in batches) / seconds,
            batch_seconds=sum(b.end - b.start for b in batches) / len(batches) if batches else math.nan,
        )

    def _metrics(
        self,
        start: float,
        now: float,
        held: Mapping[str, int],
        seen: Mapping[str, list[BatchDone]],
        sources: Mapping[str, SourceRate],
    ) -> MetricWindow:
        rows = []
        for topic in self._layout.sources:
            records = sources[topic].observed_per_second * (now - start)
            # a topic does no work of its own; its time only has to be there for its records to count
            rows.append(InstanceMetrics(topic, "topic", records, records, now - start))
        for name, batches in seen.items():
            rows += _instances(name, held[name], batches, now - start)
        return MetricWindow.of(self._layout.graph, start, now, rows)

    def _latency(self) -> float | None:
        """The slowest path: at each function half a batch of waiting, the batch itself, and the backlog."""
        total: dict[str, float] = {}
        for name in self._layout.functions:
            one = self._figures[name]
            if math.isnan(one.batch_seconds):
                return None
            waiting = one.backlog_records / one.observed_per_second if one.observed_per_second else 0.0
            before = [w for topic in self._layout.reads[name] for w in self._layout.writers(topic)]
            own = 1.5 * one.batch_seconds + waiting
            total[name] = own + max((total[writer] for writer in before), default=0.0)
        return max(total.values(), default=None)


def _share(offered: float, function: SourceRate) -> float:
    """What a function reads of one of its topics: its batches tell only what it reads of all."""
    arrived = function.offered_per_second
    return function.observed_per_second * (offered / arrived if arrived > 0 else 1.0)


def _services(batches: list[BatchDone]) -> list[tuple[float, float]]:
    return [(work.records_in, work.useful_seconds) for one in batches for work in one.work]


def _instances(name: str, held: int, batches: list[BatchDone], seconds: float) -> list[InstanceMetrics]:
    """One row an instance, also for those that had nothing to do."""
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
