"""Collects what is seen of one query between observations, and makes a window of it (pure, bounded)."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import RunningBatch
from penstock.dataflow.window import CriticalWindow, LaggingExecutor, SlotQuery, SourceRate
from penstock.observe.executors.lagging import BATCHES_POOLED, find_lagging_lately
from penstock.observe.latency import Latency, MeasuredBy, measure_latency, over_batches
from penstock.observe.observed_batch import (
    ObservedBatch,
    describe_execution,
    list_spans,
    measure_read_rate,
    usual_seconds,
)
from penstock.observe.progress import BatchProgress, cache_advice
from penstock.observe.running import BegunBatch, ObservedRun
from penstock.observe.sources.files import FilesSeen, FileTrack
from penstock.observe.sources.tracking import (
    OfferedToSource,
    OffsetTrack,
    Track,
    begin_track,
    rates_of_leaves,
    rates_of_running,
)
from penstock.observe.stages import OperatorOutline

_BATCHES_KEPT = 64
_CRITICAL_SHOWN = 4
_BATCHES_FOR_LOAD = 5
_BATCHES_FOR_LAYOUT = 3
"""A batch with next to no records may run other stages than all others: most of the newest decide."""


@dataclass(frozen=True, slots=True)
class StateTasks:
    """The tasks of one stage with state: where each ran last, and its usual seconds."""

    executors: tuple[str, ...]
    seconds: tuple[float, ...]


class QueryCollector:
    """Collects one run of one query; memory does not grow with the length of the run."""

    def __init__(
        self,
        query_id: str,
        name: str,
        run_id: str,
        period_seconds: float | None,
        unscalable: frozenset[str],
        single_run: bool = False,
    ) -> None:
        self.query_id = query_id
        self.name = name
        self.run_id = run_id
        self.period_seconds = period_seconds
        self.newest: BatchProgress | None = None
        self.warnings: list[str] = []
        self.is_working = True
        """Whether a batch is under way now, so that the query is not idle, whatever was reported."""
        self.running: ObservedRun | None = None
        self.running_problem = ""
        """Why the tasks of the running batch tell nothing; empty where they do, or none runs."""
        self._outside: tuple[tuple[float, float], float] | None = None
        self._unscalable, self._single_run = unscalable, single_run
        self._layout: tuple[OperatorOutline, ...] = ()
        self._layouts: deque[tuple[OperatorOutline, ...]] = deque(maxlen=_BATCHES_FOR_LAYOUT)
        self._tracks: list[Track] = []
        self._descriptions: tuple[str, ...] = ()
        self._batches: deque[ObservedBatch] = deque(maxlen=_BATCHES_KEPT)
        self._last_observed = math.nan

    @property
    def descriptions(self) -> tuple[str, ...]:
        """The sources, as reports name them; none before they are known."""
        return self._descriptions

    @property
    def knows_operators(self) -> bool:
        """Whether a finished batch has shown the operators."""
        return bool(self._layout)

    def look(self, descriptions: Sequence[str], files: Mapping[int, FilesSeen]) -> None:
        """Take in what lies in the directories of file sources; call it before you add new reports."""
        self._follow(descriptions)
        for number, seen in files.items():
            track = self._tracks[number]
            if isinstance(track, FileTrack):
                self._warn(track.look(seen), f"query {self.name}: ")

    def add(self, batch: ObservedBatch, layout: Sequence[OperatorOutline]) -> None:
        """Take in one progress report."""
        if self.newest is not None and batch.progress.start <= self.newest.start:
            self.warnings.append(
                f"a report of batch {batch.progress.batch_id} came twice or out of order and was dropped"
            )
            return
        self._track_sources(batch.progress)
        self.newest = batch.progress
        if batch.progress.executed:
            arrivals = [track.arrivals for track in self._tracks if track.arrivals is not None]
            latency = measure_latency(batch.progress, arrivals)
            lagging = self._find_lagging(batch) if batch.settled else ()
            settled = batch.settled and not lagging
            kept = replace(batch, latency=latency, files=self._files_of_batch())
            self._batches.append(replace(kept, settled=settled, lagging=lagging))
        if layout and batch.tables:
            self._layouts.append(tuple(layout))
            counts = Counter(self._layouts)
            self._layout = max(reversed(self._layouts), key=lambda one: counts[one])

    def note_begun(self, begun: BegunBatch) -> None:
        """Take in what the sources said as a batch began, unless that batch has been reported."""
        reported = self.newest
        if reported is None or begun.batch_id <= reported.batch_id - (not reported.executed):
            return
        for track, source in zip(self._tracks, begun.sources, strict=False):
            if isinstance(track, OffsetTrack):
                self._warn(track.begin(source, begun.at))

    def _find_lagging(self, batch: ObservedBatch) -> tuple[LaggingExecutor, ...]:
        before = [one.tables for one in self._batches if one.tables and (one.settled or one.lagging)]
        return find_lagging_lately([*before[1 - BATCHES_POOLED :], batch.tables])

    def note_work(self, is_working: bool, has_jobs: bool, last_job_end: float, now: float) -> None:
        """Note whether a batch is under way, and since when the driver alone has worked on it."""
        self.is_working = is_working or has_jobs
        reported = self.newest.end if self.newest is not None else 0.0
        same_batch = reported, last_job_end
        if not is_working or has_jobs:
            self._outside = None
        elif self._outside is None or self._outside[0] != same_batch:
            # a query may have waited for its trigger until just now
            self._outside = same_batch, last_job_end if last_job_end > reported else now

    def _follow(self, descriptions: Sequence[str]) -> None:
        added = descriptions[len(self._tracks) :]
        self._tracks += [begin_track(text) for text in added]
        self._descriptions += tuple(added)

    def _track_sources(self, progress: BatchProgress) -> None:
        self._follow([source.description for source in progress.sources])
        for track, source in zip(self._tracks, progress.sources, strict=False):
            if self.newest is not None and progress.batch_id > self.newest.batch_id + 1:
                track.missed_reports()
            self._warn(track.add(source, progress.start))

    def _warn(self, warning: str | None, prefix: str = "") -> None:
        if warning is not None and prefix + warning not in self.warnings:
            self.warnings.append(prefix + warning)

    def _files_of_batch(self) -> int | None:
        """Return how many files the batch just tracked took; None where they are not all known."""
        taken = [track.files for track in self._tracks if isinstance(track, FileTrack)]
        known = [files for files in taken if files is not None]
        return sum(known) if known and len(known) == len(taken) else None

    def advice(self) -> list[str]:
        """Return what the reports recommend that no policy does by itself."""
        found = cache_advice(self.name, [batch.progress for batch in self._batches])
        return [found] if found is not None else []

    def window(self, start: float, now: float) -> SlotQuery | None:
        """Return the window [start, now); None until a batch has shown the operators, or shows them now."""
        if not self._layout:
            return self._window_of_first_batch(start, now)
        batches = [batch for batch in self._batches if start < batch.progress.end <= now]
        detailed = [batch for batch in batches if self._has_layout(batch)]
        latency = self._latency(batches)
        return SlotQuery(
            query_id=self.query_id,
            name=self.name,
            graph=self._graph(self._layout),
            sources=self._source_rates(batches, start, now),
            batches=tuple(describe_execution(batch) for batch in detailed),
            period_seconds=self.period_seconds,
            latency_seconds=None if latency is None else latency.mean,
            oldest_latency_seconds=None if latency is None else latency.oldest,
            latency_by="" if latency is None else latency.by.value,
            timeline_seconds=self._timeline(),
            critical=self._critical(),
            running=self._running(),
            outside_seconds=self.outside_seconds(now),
            lagging=self._batches[-1].lagging if self._batches else (),
            left_out=batches[-1].left_out if batches else self.running_problem,
            idle_seconds=self.idle_seconds,
            single_run=self._single_run,
            jobs_per_batch=next((b.jobs for b in reversed(self._batches) if self._has_layout(b)), 1),
        )

    def _window_of_first_batch(self, start: float, now: float) -> SlotQuery | None:
        """Return what the first batch shows while it runs."""
        if self.running is None:
            return None
        run = self.running
        read = run.read_by_leaf
        for track in self._tracks:
            if isinstance(track, FileTrack) and len(self._tracks) == len(read) == 1:
                # no batch has told the records of its files yet, but this one's tasks have read a part
                track.expect(sum(read.values()))
        period = self.period_seconds or run.batch.seconds
        offers = [track.measure_offered(start, now, period, at_rest=False) for track in self._tracks]
        return SlotQuery(
            query_id=self.query_id,
            name=self.name,
            graph=self._graph(run.operators),
            sources=rates_of_running(run, offers),
            period_seconds=self.period_seconds,
            running=run.batch,
            outside_seconds=self.outside_seconds(now),
            left_out=self.running_problem,
            single_run=self._single_run,
            jobs_per_batch=run.jobs,
        )

    def outside_seconds(self, now: float) -> float:
        """Return for how long the driver alone has worked on the batch that is under way; 0 if it has not."""
        return 0.0 if self._outside is None else max(0.0, now - self._outside[1])

    def _running(self) -> RunningBatch | None:
        """Return the running batch, as far as its operators are the known ones."""
        if self.running is None:
            return None
        names = {operator.name for operator in self._layout}
        stages = tuple(stage for stage in self.running.batch.stages if stage.operator in names)
        return replace(self.running.batch, stages=stages) if stages else None

    @property
    def idle_seconds(self) -> float:
        """For how long all sources have been seen to offer nothing while nothing waited."""
        if self.is_working or not self._tracks:
            return 0.0
        return min(track.idle_seconds for track in self._tracks)

    def _critical(self) -> tuple[CriticalWindow, ...]:
        found = [batch.critical for batch in self._batches if batch.critical is not None]
        return tuple(found[-_CRITICAL_SHOWN:])

    def working_before(self, start: float) -> float:
        """Return when the last batch with records before this moment began; infinity if there was none."""
        earlier = (batch.progress for batch in reversed(self._batches) if batch.progress.start < start)
        return next((one.start for one in earlier if one.input_records > 0), float("inf"))

    def executors_of_state(self) -> dict[str, int]:
        """Return executor → state bins that its tasks worked on in the newest batch with known tasks."""
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
        """Return one entry for each stage with state, in the order in which they run."""
        known = [batch for batch in self._batches if self._has_layout(batch)][-_BATCHES_FOR_LOAD:]
        stateful = {operator.name for operator in self._layout if operator.stateful}
        found = []
        for table in known[-1].tables if known else ():
            if table.execution.operator in stateful:
                seconds = usual_seconds(table.execution.operator, known, len(table.executor))
                found.append(StateTasks(table.executor, seconds))
        return tuple(found)

    def _has_layout(self, batch: ObservedBatch) -> bool:
        names = {table.execution.operator for table in batch.tables}
        return bool(names) and names == {operator.name for operator in self._layout}

    def _graph(self, layout: Sequence[OperatorOutline]) -> LogicalGraph:
        return LogicalGraph(
            [Operator(o.name, scalable=o.name not in self._unscalable) for o in layout],
            [(origin, operator.name) for operator in layout for origin in operator.fed_by],
        )

    def _source_rates(
        self, batches: Sequence[ObservedBatch], start: float, now: float
    ) -> Mapping[str, SourceRate]:
        otherwise = 0.0 if self.idle_seconds > now - start else self._last_observed
        self._last_observed = measure_read_rate(batches, self.period_seconds, otherwise)
        known = [batch for batch in self._batches if self._has_layout(batch)]
        if not known:
            return {}
        # a batch that read nothing (one that only moves a watermark on) cannot tell who reads what
        telling = next((batch for batch in reversed(known) if batch.progress.input_records), known[-1])
        period = self.period_seconds or self._batches[-1].progress.timeline.total
        sources = [
            OfferedToSource(
                source.input_records,
                *track.measure_offered(start, now, period, at_rest=not self.is_working),
                told_by_reading=track.told_by_reading,
                problem=track.problem,
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
        span = list_spans([batch.progress for batch in batches], self.period_seconds)[-1]
        newest = batches[-1].progress
        seconds = newest.timeline.total
        return Latency(span / 2 + seconds, span + seconds, newest.input_records, MeasuredBy.ESTIMATE)
