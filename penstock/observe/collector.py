"""What was seen of one query since the last observation, and the window it becomes (pure, bounded)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.dataflow.batches import BatchExecution
from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import InstanceMetrics, MetricWindow
from penstock.dataflow.window import QueryWindow, SourceRate
from penstock.observe.progress import BatchProgress, SourceProgress
from penstock.observe.sources import OfferedSample, offered_rate, reader_for, sampled_at, unread_records
from penstock.observe.stages import OperatorOutline, TaskTable

_SAMPLES_KEPT = 64
_BATCHES_KEPT = 64


@dataclass(frozen=True, slots=True)
class ObservedBatch:
    """One finished batch with its stages' tasks; `tables` is empty where they were not fetched."""

    progress: BatchProgress
    tables: tuple[TaskTable, ...]
    slots: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a listing of a file source's directory showed."""

    at: float
    files_unread: int
    files_read: int


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
        self._samples: dict[int, deque[OfferedSample]] = {}
        self._read: dict[int, float] = {}
        self._batches: deque[ObservedBatch] = deque(maxlen=_BATCHES_KEPT)
        self._records_per_unit: dict[int, float] = {}
        """A file source's samples count files: this turns them into records."""
        self._files_first: dict[int, tuple[int, float]] = {}
        self._last_observed = math.nan
        self._last_offered: dict[int, float] = {}

    def add(
        self, batch: ObservedBatch, layout: Sequence[OperatorOutline], waiting: Mapping[int, Waiting]
    ) -> None:
        """Take in one progress report; `waiting` tells of the sources whose offsets do not."""
        if self.newest is not None and batch.progress.start < self.newest.start:
            self.warnings.append(
                f"a report of batch {batch.progress.batch_id} came out of order and was dropped"
            )
            return
        self.newest = batch.progress
        for number, source in enumerate(batch.progress.sources):
            self._add_sample(number, source, batch.progress.start, waiting.get(number))
        if batch.progress.executed:
            self._batches.append(batch)
        if layout and batch.tables:
            self._layout = tuple(layout)

    def _add_sample(self, number: int, source: SourceProgress, at: float, waiting: Waiting | None) -> None:
        self._read[number] = self._read.get(number, 0.0) + source.input_records
        samples = self._samples.setdefault(number, deque(maxlen=_SAMPLES_KEPT))
        reader = reader_for(source.description)
        read = reader.cumulative(source.end_offset, source.description)
        offered = reader.cumulative(source.latest_offset or source.end_offset, source.description)
        if read is not None and offered is not None:
            samples.append(OfferedSample(sampled_at(source.latest_offset, at), offered, read))
        elif waiting is not None:
            self._files_first.setdefault(number, (waiting.files_read, self._read[number]))
            self._records_per_unit[number] = self._records_per_file(number, waiting.files_read)
            present = float(waiting.files_read + waiting.files_unread)
            samples.append(OfferedSample(waiting.at, present, float(waiting.files_read)))
        elif not reader.listed:
            self._warn_unknown(source.description)
            samples.append(OfferedSample(at, self._read[number], self._read[number]))

    def _records_per_file(self, number: int, files_read: int) -> float:
        first_files, first_records = self._files_first[number]
        if files_read > first_files:
            return (self._read[number] - first_records) / (files_read - first_files)
        return first_records / max(1, first_files)

    def _warn_unknown(self, description: str) -> None:
        warning = f"what is offered to {description} is unknown: what was read is taken instead"
        if warning not in self.warnings:
            self.warnings.append(warning)

    def window(self, start: float, now: float) -> QueryWindow | None:
        """The window [start, now), or None until the first batch has shown the operators."""
        if not self._layout:
            return None
        graph = self._graph()
        batches = [batch for batch in self._batches if start < batch.progress.end <= now]
        detailed = [batch for batch in batches if self._has_layout(batch)]
        return QueryWindow(
            query_id=self.query_id,
            name=self.name,
            graph=graph,
            metrics=MetricWindow.of(graph, start, now, _instances(detailed)),
            sources=self._source_rates(batches, start, now),
            batches=tuple(_execution(batch) for batch in detailed),
            period_seconds=self.period_seconds,
            latency_seconds=self._latency(batches),
        )

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
        newest_total = sum(source.input_records for source in self.newest.sources) if self.newest else 0.0
        rates: dict[str, SourceRate] = {}
        for number, operator in self._source_operators().items():
            seen = rates.get(operator, SourceRate(0.0, 0.0, 0.0))
            offered, backlog = self._offered(number, start, now)
            rates[operator] = SourceRate(
                seen.offered_per_second + offered,
                seen.observed_per_second + self._last_observed * self._share_read(number, newest_total),
                seen.backlog_records + backlog,
            )
        return rates

    def _offered(self, number: int, start: float, now: float) -> tuple[float, float]:
        """Records offered per second to one source, and its backlog in records."""
        samples = list(self._samples.get(number, ()))
        rate = offered_rate(samples, start)
        if math.isnan(rate):
            rate = self._last_offered.get(number, math.nan)
        self._last_offered[number] = rate
        if math.isnan(rate):
            return math.nan, 0.0
        unit = self._records_per_unit.get(number, 1.0)
        period = self.period_seconds or self._last_batch_seconds()
        return rate * unit, unit * unread_records(rate, period, samples[-1], now)

    def _share_read(self, number: int, newest_total: float) -> float:
        sources = self.newest.sources if self.newest else ()
        if newest_total > 0:
            return sources[number].input_records / newest_total
        return 1.0 / max(1, len(sources))

    def _source_operators(self) -> dict[int, str]:
        """Source number → the operator that reads it, matched by how many records each read."""
        leaves = [operator.name for operator in self._layout if not operator.fed_by]
        sources = self.newest.sources if self.newest else ()
        newest = next((batch for batch in reversed(self._batches) if self._has_layout(batch)), None)
        if len(leaves) == 1 or newest is None:
            return dict.fromkeys(range(len(sources)), leaves[0])
        read = {
            table.execution.operator: float(table.execution.records_in.sum())
            for table in newest.tables
            if table.execution.operator in leaves
        }
        matched: dict[int, str] = {}
        for number, source in enumerate(newest.progress.sources):
            open_leaves = [leaf for leaf in leaves if leaf not in matched.values()] or leaves
            matched[number] = min(open_leaves, key=lambda leaf: abs(read[leaf] - source.input_records))
        return matched

    def _latency(self, batches: Sequence[ObservedBatch]) -> float | None:
        """Mean wait for the trigger plus processing, of the newest batch."""
        if not batches:
            return None
        spans = _spans([batch.progress for batch in batches], self.period_seconds)
        return spans[-1] / 2 + batches[-1].progress.timeline.total

    def _last_batch_seconds(self) -> float:
        return self._batches[-1].progress.timeline.total if self._batches else 0.0


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
