"""A live Spark application as a Source: windows of metrics, with no change to the user's code."""

from __future__ import annotations

from time import monotonic
from typing import Any

from pyspark.sql import SparkSession

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, CriticalWindow, ExecutorState, NoBatchYet, SlotWindow
from penstock.errors import BadMetrics, SparkUnavailable
from penstock.observe.analysis import BatchAnalysis
from penstock.observe.collector import QueryCollector, StateTasks
from penstock.observe.executors.history import ExecutorHistory
from penstock.observe.executors.losses import RecentLosses
from penstock.observe.observed_batch import ObservedBatch
from penstock.observe.progress import BatchProgress, parse_progress
from penstock.observe.real_time import RealTimeQueries
from penstock.observe.running import ObservedRun
from penstock.observe.settings import ObserveSettings
from penstock.observe.sources.spark_files import SparkFiles
from penstock.observe.spark_batches import SparkBatches
from penstock.observe.spark_session import application_id, check_supported
from penstock.observe.spark_status import RunningQuery, SparkStatus, executor_state
from penstock.observe.stages import OperatorOutline, TaskTable

_REPORTS_PER_WINDOW = 100
_LONG_ON_DRIVER = 30.0
"""Seconds without a task from which a first batch is said to be held up by the driver."""
_DETAILED_BATCHES_PER_WINDOW = 2
"""Tasks are fetched for this many batches a window: policies remember earlier ones, so this suffices."""


class SparkSource:
    """Observes every active streaming query of the application."""

    def __init__(
        self,
        spark: SparkSession,
        settings: ObserveSettings | None = None,
        unscalable: frozenset[str] = frozenset(),
        analyse_batches: bool = True,
    ) -> None:
        """`unscalable` are operators that do not gain from more instances."""
        check_supported(spark)
        self._application = application_id(spark)
        self._unscalable = unscalable
        self._status = SparkStatus(spark)
        self._executors = ExecutorHistory()
        self._files = SparkFiles(spark, self._status)
        most_tasks = (settings or ObserveSettings()).max_tasks_per_stage
        analysis = BatchAnalysis() if analyse_batches else None
        self._batches = SparkBatches(self._status, self._executors, most_tasks, analysis)
        self._collectors: dict[str, QueryCollector] = {}
        self._real_time = RealTimeQueries()
        self._window_start: float | None = None
        self._losses = RecentLosses()

    def observe(self, now: float) -> SlotWindow | NotReady:
        """Return the window since the last observation; NotReady until a query has finished a batch."""
        if self._status.stopped():
            raise SparkUnavailable("the Spark application has ended")
        begun = monotonic()
        start, self._window_start = self._window_start, now
        executors = self._status.executors()
        self._executors.note(executors, now)
        if self._losses.should_ask([str(executor["id"]) for executor in executors], now):
            self._losses.add(self._status.lost_executors(), now)
        queries = self._status.queries()
        warnings = self._forget_ended(queries)
        if start is not None and start > now:
            # times before and after the jump cannot be compared
            self._collectors.clear()
        if start is None or start >= now:
            return NotReady("the first window has just begun", "one policy interval")
        self._note_real_time([query for query in queries if query.continuous])
        for query in queries:
            if not query.continuous:
                warnings += self._collect_if_there(query, start, now, begun)
        return self._window(start, now, executors, warnings)

    def _note_real_time(self, queries: list[RunningQuery]) -> None:
        if queries:
            self._batches.collect_jobs()
        for query in queries:
            jobs = self._batches.running_jobs(query.run_id)
            self._real_time.note(query.run_id, query.name, query.mode, jobs)

    def _window(
        self, start: float, now: float, executors: list[dict[str, Any]], warnings: list[str]
    ) -> SlotWindow | NotReady:
        if not self._collectors:
            held = sum(state.cores for state in self._executor_states(executors))
            reason = self._real_time.describe(held) or "no streaming query is active"
            return NotReady(
                reason, "a query in micro-batches" if self._real_time.names else "a query to start"
            )
        if not executors:
            return NotReady("no executor is registered", "an executor")
        windows = [collector.window(start, now) for collector in self._collectors.values()]
        states = self._executor_states(executors)
        slots = sum(state.cores for state in states)
        window = SlotWindow(
            application=self._application,
            start=start,
            end=now,
            parallelism={EXECUTORS: len(states)},
            queries=tuple(one for one in windows if one is not None),
            reserved_slots=self._real_time.slots,
            reserved_for=self._real_time.names,
            executors=states,
            slots_per_executor=max(1, round(slots / len(states))),
            warnings=(*warnings, *self._real_time.warn(slots)),
            memory_losses=self._losses.list_recent(now),
        )
        if any(collector.knows_operators for collector in self._collectors.values()):
            return window
        unseen = "no batch with data has been seen to its end yet"
        asleep = max(collector.outside_seconds(now) for collector in self._collectors.values())
        if asleep >= _LONG_ON_DRIVER:
            unseen += f"; for {asleep:.0f} s the driver alone has worked on it, without a task"
        told = "; ".join([unseen, *dict.fromkeys(warnings)])
        idle = min(collector.idle_seconds for collector in self._collectors.values())
        return NoBatchYet(told, "the first batch", window=window, idle_seconds=idle)

    def _executor_states(self, executors: list[dict[str, Any]]) -> tuple[ExecutorState, ...]:
        bins = self.state_bins()
        return tuple(executor_state(executor, bins) for executor in executors)

    def state_bins(self) -> dict[str, int]:
        """Return executor → state bins of all queries that it hosts, as last observed."""
        bins: dict[str, int] = {}
        for collector in list(self._collectors.values()):
            for executor, count in collector.executors_of_state().items():
                bins[executor] = bins.get(executor, 0) + count
        return bins

    def state_tasks(self, query_id: str) -> tuple[StateTasks, ...]:
        """Return the tasks of each stage with state of this query, as last observed."""
        collector = self._collectors.get(query_id)
        return collector.state_tasks() if collector is not None else ()

    def _forget_ended(self, queries: list[RunningQuery]) -> list[str]:
        running = {query.query_id: query.run_id for query in queries}
        ended = [c for c in self._collectors.values() if running.get(c.query_id) != c.run_id]
        for collector in ended:
            del self._collectors[collector.query_id]
            self._batches.forget(collector.run_id)
            self._files.forget(collector.run_id)
        self._real_time.keep(set(running.values()))
        return [f"query {collector.name} ended or was restarted" for collector in ended]

    def _collect_if_there(self, query: RunningQuery, start: float, now: float, begun: float) -> list[str]:
        """Collect a query; one that ends meanwhile costs a warning, not the whole window."""
        try:
            return self._collect(query, start, now, begun)
        except SparkUnavailable as error:
            if self._status.stopped():
                raise
            return [f"query {query.name} could not be observed: {error}"]

    def _collect(self, query: RunningQuery, start: float, now: float, begun: float) -> list[str]:
        collector = self._collectors.setdefault(
            query.query_id,
            QueryCollector(
                query.query_id,
                query.name,
                query.run_id,
                query.period_seconds,
                self._unscalable,
                query.single_run,
            ),
        )
        after = collector.newest.start if collector.newest else 0.0
        reports = self._status.progress(query, after, now, _REPORTS_PER_WINDOW)
        # after the reports: the jobs of a batch that was reported have ended, and its files are in the log
        self._batches.collect_jobs()
        self._look_at_files(query, collector, now + monotonic() - begun)
        self._add_reports(query, collector, reports, now)
        # a batch may work in the driver alone, as in `foreachBatch`
        has_jobs = bool(self._batches.running_jobs(query.run_id))
        is_working = self._status.is_working(query)
        collector.note_work(is_working, has_jobs, self._batches.last_job_end(query.run_id), now)
        collector.running = self._running(query, collector, start, now)
        warnings, collector.warnings = [*collector.warnings, *collector.advice()], []
        return warnings

    def _look_at_files(self, query: RunningQuery, collector: QueryCollector, at: float) -> None:
        descriptions = collector.descriptions or self._files.descriptions(query)
        collector.look(descriptions, self._files.look_at_all(query, descriptions, at))

    def _add_reports(
        self, query: RunningQuery, collector: QueryCollector, reports: list[dict[str, Any]], now: float
    ) -> None:
        executed = [
            number for number, report in enumerate(reports) if "addBatch" in (report.get("durationMs") or {})
        ]
        detailed = set(executed[-_DETAILED_BATCHES_PER_WINDOW:])
        for number, report in enumerate(reports):
            try:
                analysed_at = now if number in executed[-1:] else None
                self._add(query, collector, parse_progress(report), number in detailed, analysed_at)
            except BadMetrics as error:
                collector.warnings.append(f"query {query.name}: {error}")

    def _add(
        self,
        query: RunningQuery,
        collector: QueryCollector,
        progress: BatchProgress,
        detailed: bool,
        analysed_at: float | None = None,
    ) -> None:
        operators: tuple[OperatorOutline, ...] = ()
        tables: tuple[TaskTable, ...] = ()
        critical: CriticalWindow | None = None
        left_out = ""
        if detailed:
            try:
                operators, tables, stages = self._batches.stages(query, progress)
                if analysed_at is not None:
                    critical = self._batches.critical(analysed_at, progress, operators, stages)
            except BadMetrics as error:
                left_out = str(error)
                collector.warnings.append(f"query {query.name}: {error}")
        worked_before = collector.working_before(progress.start)
        settled = self._executors.is_settled(progress.start, progress.end, worked_before)
        batch = ObservedBatch(
            progress,
            tables,
            self._executors.slots_at(progress.end),
            settled,
            critical,
            jobs=max(1, self._batches.count_jobs(progress)),
            listing_seconds=self._batches.listing_seconds(progress),
            left_out=left_out if not tables else "",
        )
        collector.add(batch, operators)

    def _running(
        self, query: RunningQuery, collector: QueryCollector, start: float, now: float
    ) -> ObservedRun | None:
        """Look at the running batch if it is longer than a window, or is all that there is to see."""
        begun_before = start if collector.knows_operators else now
        collector.running_problem = ""
        try:
            worked_before = collector.working_before(now)
            run = self._batches.running(query, collector.newest, worked_before, begun_before, now)
        except (BadMetrics, SparkUnavailable) as error:
            collector.running_problem = str(error)
            collector.warnings.append(f"query {query.name}: its running batch cannot be read: {error}")
            return None
        if run is not None:
            self._note_begun(query, collector, run.batch.batch_id)
        return run

    def _note_begun(self, query: RunningQuery, collector: QueryCollector, running: int) -> None:
        """Note what the sources said as the running batch began: its report may be minutes away."""
        try:
            begun = self._status.begun_batch(query)
        except SparkUnavailable as error:
            collector.warnings.append(f"query {query.name}: its offsets are known only as it ends: {error}")
            return
        # one that is only being planned has its offsets already, but not yet its time
        if begun.batch_id == running:
            collector.note_begun(begun)
