"""What was seen of one query since the last observation, and the window it becomes (pure, bounded)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from penstock.dataflow.batches import BatchExecution
from penstock.dataflow.critical import CriticalWindow
from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import InstanceMetrics, MetricWindow
from penstock.dataflow.window import QueryWindow, SourceRate
from penstock.observe.cache_misses import cache_advice
from penstock.observe.latency import Latency, MeasuredBy, measured, over_batches
from penstock.observe.matching import OfferedToSource, rates_of_leaves
from penstock.observe.progress import BatchProgress
from penstock.observe.stages import OperatorOutline, TaskTable
from penstock.observe.tracking import SourceTrack, Waiting

_BATCHES_KEPT = 64
_CRITICAL_SHOWN = 4
_BATCHES_FOR_LOAD = 5


@dataclass(frozen=True, slots=True)
class ObservedBatch:
    """One finished batch with its stages' tasks; `tables` is empty where they were not fetched."""

    progress: BatchProgress
    tables: tuple[TaskTable, ...]
    slots: int
    settled: bool = True
    critical: CriticalWindow | None = None
    latency: Latency | None = None


@dataclass(frozen=True, slots=True)
class StateTasks:
    """The tasks of one stage with state: where each ran last, and its usual seconds."""

    executors: tuple[str, ...]
    seconds: tuple[float, ...]


class QueryCollector:
    """Collects one run of one query; memory does not grow with the length of the run."""

    def __init__(
        self, query_id: str, name: str, run_id: str, period_seconds: float | None, unscalable: frozenset[str]
    ) -> None:
        self.query_id = query_id
        self.name = name
        self.run_id = run_id
        self.period_seconds = period_seconds
        self.newest: BatchProgress | None = None
        self.warnings: list[str] = []
        self._unscalable = unscalable
        self._layout: tuple[OperatorOutline, ...] = ()
        self._tracks: list[SourceTrack] = []
        self._batches: deque[ObservedBatch] = deque(maxlen=_BATCHES_KEPT)
        self._last_observed = math.nan

    def add(
        self, batch: ObservedBatch, layout: Sequence[OperatorOutline], waiting: Mapping[int, Waiting]
    ) -> None:
        """Take in one progress report; `waiting` tells of the sources whose offsets do not."""
        if self.newest is not None and batch.progress.start <= self.newest.start:
            self.warnings.append(
                f"a report of batch {batch.progress.batch_id} came twice or out of order and was dropped"
            )
            return
        self._track_sources(batch.progress, waiting)
        self.newest = batch.progress
        if batch.progress.executed:
            arrivals = [track.arrivals for track in self._tracks if track.arrivals is not None]
            self._batches.append(replace(batch, latency=measured(batch.progress, arrivals)))
        if layout and batch.tables:
            self._layout = tuple(layout)

    def _track_sources(self, progress: BatchProgress, waiting: Mapping[int, Waiting]) -> None:
        while len(self._tracks) < len(progress.sources):
            self._tracks.append(SourceTrack())
        for number, (track, source) in enumerate(zip(self._tracks, progress.sources, strict=False)):
            if self.newest is None:
                track.begin(progress.batch_id)
            elif progress.batch_id > self.newest.batch_id + 1:
                track.missed_reports()
            warning = track.add(source, progress.start, waiting.get(number))
            if warning is not None and warning not in self.warnings:
                self.warnings.append(warning)

    def advice(self) -> list[str]:
        """What the reports recommend that no policy does by itself."""
        found = cache_advice(self.name, [batch.progress for batch in self._batches])
        return [found] if found is not None else []

    def window(self, start: float, now: float) -> QueryWindow | None:
        """The window [start, now), or None until the first batch has shown the operators."""
        if not self._layout:
            return None
        graph = self._graph()
        batches = [batch for batch in self._batches if start < batch.progress.end <= now]
        detailed = [batch for batch in batches if self._has_layout(batch)]
        latency = self._latency(batches)
        return QueryWindow(
            query_id=self.query_id,
            name=self.name,
            graph=graph,
            metrics=MetricWindow.of(graph, start, now, _instances(detailed)),
            sources=self._source_rates(batches, start, now),
            batches=tuple(_execution(batch) for batch in detailed),
            period_seconds=self.period_seconds,
            latency_seconds=None if latency is None else latency.mean,
            oldest_latency_seconds=None if latency is None else latency.oldest,
            latency_by="" if latency is None else latency.by.value,
            timeline_seconds=self._timeline(),
            critical=self._critical(),
        )

    def _critical(self) -> tuple[CriticalWindow, ...]:
        found = [batch.critical for batch in self._batches if batch.critical is not None]
        return tuple(found[-_CRITICAL_SHOWN:])

    def working_before(self, progress: BatchProgress) -> float:
        """When the last earlier batch with records began; infinity if this one is the first."""
        earlier = (
            batch.progress for batch in reversed(self._batches) if batch.progress.start < progress.start
        )
        return next((one.start for one in earlier if one.input_records > 0), float("inf"))

    def executors_of_state(self) -> dict[str, int]:
        """Executor → state bins that its tasks worked on in the newest batch with known tasks."""
        counts: dict[str, int] = {}
        newest = next((batch for batch in reversed(self._batches) if self._has_layout(batch)), None)
        if newest is None:
            return counts
        stateful = {operator.name for operator in self._layout if operator.stateful}
        for table in newest.tables:
            for executor in table.executor if table.execution.operator in stateful else ():
                counts[executor] = counts.get(executor, 0) + 1
        return counts

    def state_tasks(self) -> tuple[StateTasks, ...]:
        """One entry for each stage with state, in the order in which they run."""
        known = [batch for batch in self._batches if self._has_layout(batch)][-_BATCHES_FOR_LOAD:]
        stateful = {operator.name for operator in self._layout if operator.stateful}
        found = []
        for table in known[-1].tables if known else ():
            if table.execution.operator in stateful:
                seconds = _usual_seconds(table.execution.operator, known, len(table.executor))
                found.append(StateTasks(table.executor, seconds))
        return tuple(found)

    def _has_layout(self, batch: ObservedBatch) -> bool:
        names = {table.execution.operator for table in batch.tables}
        return bool(names) and names == {operator.name for operator in self._layout}

    def _graph(self) -> LogicalGraph:
        return LogicalGraph(
            [Operator(o.name, scalable=o.name not in self._unscalable) for o in self._layout],
            [(origin, operator.name) for operator in self._layout for origin in operator.fed_by],
        )

    def _source_rates(
        self, batches: Sequence[ObservedBatch], start: float, now: float
    ) -> Mapping[str, SourceRate]:
        self._last_observed = _observed_rate(batches, self.period_seconds, self._last_observed)
        known = [batch for batch in self._batches if self._has_layout(batch)]
        if not known:
            return {}
        # a batch that read nothing (one that only moves a watermark on) cannot tell who reads what
        telling = next((batch for batch in reversed(known) if batch.progress.input_records), known[-1])
        period = self.period_seconds or self._batches[-1].progress.timeline.total
        sources = [
            OfferedToSource(
                source.input_records,
                *track.offered(start, now, period),
                told_by_reading=track.told_by_reading,
            )
            for track, source in zip(self._tracks, telling.progress.sources, strict=False)
        ]
        return rates_of_leaves(self._read_by_leaf(telling), sources, self._last_observed)

    def _read_by_leaf(self, batch: ObservedBatch) -> dict[str, float]:
        leaves = {operator.name for operator in self._layout if not operator.fed_by}
        return {
            table.execution.operator: float(table.execution.records_in.sum())
            for table in batch.tables
            if table.execution.operator in leaves
        }

    def _timeline(self) -> Mapping[str, float]:
        if not self._batches:
            return {}
        newest = self._batches[-1].progress.timeline
        return newest.phases(self.period_seconds or newest.total)

    def _latency(self, batches: Sequence[ObservedBatch]) -> Latency | None:
        """As measured; where nothing tells when records came, half a trigger's wait and the newest batch."""
        if not batches:
            return None
        told = [batch.latency for batch in batches if batch.latency is not None]
        latency = over_batches(told)
        if latency is not None:
            return latency
        span = _spans([batch.progress for batch in batches], self.period_seconds)[-1]
        newest = batches[-1].progress
        seconds = newest.timeline.total
        return Latency(span / 2 + seconds, span + seconds, newest.input_records, MeasuredBy.ESTIMATE)


def _usual_seconds(operator: str, batches: Sequence[ObservedBatch], tasks: int) -> tuple[float, ...]:
    """The median of each task over some batches: one slow task is no load."""
    columns = [
        table.execution.useful_seconds
        for batch in batches
        for table in batch.tables
        if table.execution.operator == operator and len(table.executor) == tasks
    ]
    return tuple(float(seconds) for seconds in np.median(np.array(columns), axis=0))


def _spans(progresses: Sequence[BatchProgress], period: float | None) -> list[float]:
    """Seconds from each batch's trigger to the next one's; the newest lasts its period or its work."""
    starts = [progress.start for progress in progresses]
    newest = max(period or 0.0, progresses[-1].timeline.total)
    return [*(later - earlier for earlier, later in pairwise(starts)), newest]


def _observed_rate(batches: Sequence[ObservedBatch], period: float | None, otherwise: float) -> float:
    """Records read per second, from trigger to trigger, so that a window's edges do not cut a batch."""
    if not batches:
        return otherwise
    seconds = sum(_spans([batch.progress for batch in batches], period))
    return sum(batch.progress.input_records for batch in batches) / seconds if seconds > 0 else otherwise


def _execution(batch: ObservedBatch) -> BatchExecution:
    return BatchExecution(
        batch_id=batch.progress.batch_id,
        start=batch.progress.start,
        seconds=batch.progress.timeline.total,
        slots=batch.slots,
        input_records=batch.progress.input_records,
        stages=tuple(table.execution for table in batch.tables),
        settled=batch.settled,
    )


def _instances(batches: Sequence[ObservedBatch]) -> list[InstanceMetrics]:
    """One row for each operator and slot: a slot's tasks in the window, added up."""
    sums: dict[tuple[str, str], list[float]] = {}
    for batch in batches:
        for table in batch.tables:
            stage = table.execution
            columns = zip(
                stage.records_in, stage.records_out, stage.useful_seconds, stage.waiting_seconds, strict=True
            )
            for executor, slot, values in zip(table.executor, table.slot, columns, strict=True):
                row = sums.setdefault((stage.operator, f"{executor}/{slot}"), [0.0] * 4)
                for number, value in enumerate(values):
                    row[number] += float(value)
    return [InstanceMetrics(operator, instance, *row) for (operator, instance), row in sums.items()]
