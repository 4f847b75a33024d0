"""A live Spark application as a Source: windows of metrics, with no change to the user's code."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import SparkSession

from penstock.dataflow.critical import CriticalWindow
from penstock.dataflow.first_batch import NoBatchYet
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, Execution, ExecutorState
from penstock.errors import BadMetrics, SparkUnavailable
from penstock.observe.analysis import BatchAnalysis
from penstock.observe.collector import ObservedBatch, QueryCollector, StateTasks
from penstock.observe.progress import BatchProgress, parse_progress
from penstock.observe.sources import reader_for
from penstock.observe.spark_session import application_id, check_supported
from penstock.observe.spark_status import RunningQuery, SparkStatus, executor_state
from penstock.observe.stages import OperatorOutline, TaskTable, layout, read_tasks
from penstock.observe.tracking import Waiting
from penstock.settings import Settings

_BATCH_OF_JOB = re.compile(r"^batch = (\d+)$", re.MULTILINE)
_JOBS_KEPT = 1000
_CHAINS_KEPT = 64
_REPORTS_PER_WINDOW = 100
_DETAILED_BATCHES_PER_WINDOW = 2
"""Tasks are fetched for this many batches a window: policies remember earlier ones, so this suffices."""

_Shape = tuple[tuple[int, bool], ...]


class SparkSource:
    """Observes every active streaming query of the application."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        check_supported(spark)
        self._application = application_id(spark)
        self._settings = settings
        self._status = SparkStatus(spark)
        self._collectors: dict[str, QueryCollector] = {}
        self._chains: dict[tuple[str, _Shape], tuple[OperatorOutline, ...]] = {}
        self._jobs: dict[int, dict[str, Any]] = {}
        self._executor_history: dict[str, tuple[float, float, int]] = {}
        self._window_start: float | None = None
        self._analysis = None if settings.critical_path == "off" else BatchAnalysis()

    def observe(self, now: float) -> ApplicationWindow | NotReady:
        """The window since the last observation; NotReady until a query has finished a batch."""
        if self._status.stopped():
            raise SparkUnavailable("the Spark application has ended")
        start, self._window_start = self._window_start, now
        executors = self._observe_executors(now)
        queries = self._status.queries()
        warnings = self._forget_ended(queries)
        if start is not None and start > now:
            # times before and after the jump cannot be compared
            self._collectors.clear()
        if start is None or start >= now:
            return NotReady("the first window has just begun", "one policy interval")
        for query in queries:
            warnings += self._collect_if_there(query, now)
        return self._window(start, now, executors, warnings)

    def _window(
        self, start: float, now: float, executors: list[dict[str, Any]], warnings: list[str]
    ) -> ApplicationWindow | NotReady:
        if not self._collectors:
            return NotReady("no streaming query is active", "a query to start")
        if not executors:
            return NotReady("no executor is registered", "an executor")
        windows = [collector.window(start, now) for collector in self._collectors.values()]
        states = self._executor_states(executors)
        window = ApplicationWindow(
            application=self._application,
            start=start,
            end=now,
            execution=Execution.SHARED_SLOTS,
            parallelism={EXECUTORS: len(states)},
            queries=tuple(one for one in windows if one is not None),
            executors=states,
            slots_per_executor=max(1, round(sum(state.cores for state in states) / len(states))),
            warnings=tuple(warnings),
        )
        if window.queries:
            return window
        unseen = "no batch with data has been seen to its end yet"
        told = "; ".join([unseen, *dict.fromkeys(warnings)])
        return NoBatchYet(told, "the first batch", window=window)

    def _observe_executors(self, now: float) -> list[dict[str, Any]]:
        """List the executors and remember from when to when each was there, for the slots of a batch."""
        executors = self._status.executors()
        active = {str(executor["id"]) for executor in executors}
        for name, (added, removed, slots) in list(self._executor_history.items()):
            if name not in active and removed == float("inf"):
                self._executor_history[name] = (added, now, slots)
            elif removed < now - 3600:
                del self._executor_history[name]
        for executor in executors:
            added = executor["addTime"] / 1000
            self._executor_history.setdefault(
                str(executor["id"]), (added, float("inf"), int(executor["maxTasks"]))
            )
        return executors

    def _slots_at(self, moment: float) -> int:
        return sum(
            slots for added, removed, slots in self._executor_history.values() if added <= moment < removed
        )

    def _settled(self, progress: BatchProgress, worked_before: float) -> bool:
        """Whether the batch had the same executors throughout, all of which had worked on one before.

        A new executor's first tasks start Python workers and compile code: seen to take seconds each.
        """
        return worked_before < progress.start and not any(
            worked_before < added <= progress.end or progress.start < removed <= progress.end
            for added, removed, _ in self._executor_history.values()
        )

    def _executor_states(self, executors: list[dict[str, Any]]) -> tuple[ExecutorState, ...]:
        bins = self.state_bins()
        return tuple(executor_state(executor, bins) for executor in executors)

    def state_bins(self) -> dict[str, int]:
        """Executor → state bins of all queries that it hosts, as last observed."""
        bins: dict[str, int] = {}
        for collector in list(self._collectors.values()):
            for executor, count in collector.executors_of_state().items():
                bins[executor] = bins.get(executor, 0) + count
        return bins

    def state_tasks(self, query_id: str) -> tuple[StateTasks, ...]:
        """The tasks of each stage with state of this query, as last observed."""
        collector = self._collectors.get(query_id)
        return collector.state_tasks() if collector is not None else ()

    def _forget_ended(self, queries: list[RunningQuery]) -> list[str]:
        running = {query.query_id: query.run_id for query in queries}
        ended = [c for c in self._collectors.values() if running.get(c.query_id) != c.run_id]
        for collector in ended:
            del self._collectors[collector.query_id]
            self._chains = {key: value for key, value in self._chains.items() if key[0] != collector.run_id}
        return [f"query {collector.name} ended or was restarted" for collector in ended]

    def _collect_jobs(self) -> None:
        """Take in new jobs, and again those that were still running when last seen."""
        running = [number for number, job in self._jobs.items() if job["status"] == "RUNNING"]
        settled = min(running) - 1 if running else max(self._jobs, default=-1)
        for job in self._status.jobs_after(settled):
            self._jobs[job["jobId"]] = job
        for number in sorted(self._jobs)[:-_JOBS_KEPT]:
            del self._jobs[number]

    def _collect_if_there(self, query: RunningQuery, now: float) -> list[str]:
        """A query that ends while it is looked at costs a warning, not the whole window."""
        try:
            return self._collect(query, now)
        except SparkUnavailable as error:
            if self._status.stopped():
                raise
            return [f"query {query.name} could not be observed: {error}"]

    def _collect(self, query: RunningQuery, now: float) -> list[str]:
        if query.continuous:
            return [f"query {query.name} runs without micro-batches, which cannot be observed"]
        collector = self._collectors.setdefault(
            query.query_id,
            QueryCollector(
                query.query_id,
                query.name,
                query.run_id,
                query.period_seconds,
                frozenset(self._settings.unscalable_operators),
            ),
        )
        after = collector.newest.start if collector.newest else 0.0
        reports = self._status.progress(query, after, now, _REPORTS_PER_WINDOW)
        # after the reports: the jobs of a batch that was reported have ended
        self._collect_jobs()
        executed = [
            number for number, report in enumerate(reports) if "addBatch" in (report.get("durationMs") or {})
        ]
        detailed = set(executed[-_DETAILED_BATCHES_PER_WINDOW:])
        for number, report in enumerate(reports):
            try:
                progress = parse_progress(report)
                newest = number == len(reports) - 1
                waiting = self._waiting(query, progress, now) if newest else {}
                analysed_at = now if number in executed[-1:] else None
                self._add(query, collector, progress, number in detailed, waiting, analysed_at)
            except BadMetrics as error:
                collector.warnings.append(f"query {query.name}: {error}")
        warnings, collector.warnings = [*collector.warnings, *collector.advice()], []
        return warnings

    def _add(
        self,
        query: RunningQuery,
        collector: QueryCollector,
        progress: BatchProgress,
        detailed: bool,
        waiting: dict[int, Waiting],
        analysed_at: float | None = None,
    ) -> None:
        operators: tuple[OperatorOutline, ...] = ()
        tables: tuple[TaskTable, ...] = ()
        critical: CriticalWindow | None = None
        if detailed:
            try:
                operators, tables, stages = self._stages(query, progress)
                critical = self._critical(analysed_at, progress, operators, stages)
            except BadMetrics as error:
                collector.warnings.append(f"query {query.name}: {error}")
        settled = self._settled(progress, collector.working_before(progress))
        collector.add(
            ObservedBatch(progress, tables, self._slots_at(progress.end), settled, critical),
            operators,
            waiting,
        )

    def _critical(
        self,
        now: float | None,
        progress: BatchProgress,
        operators: tuple[OperatorOutline, ...],
        stages: dict[int, list[dict[str, Any]]],
    ) -> CriticalWindow | None:
        """What was on the critical path of the newest batch of a window."""
        if self._analysis is None or now is None or not operators:
            return None
        jobs = [job for job in self._jobs.values() if _belongs(job, progress)]
        tasks = [
            (number, operator, stages[number]) for number, operator in zip(stages, operators, strict=True)
        ]
        cores = {name: slots for name, (_, _, slots) in self._executor_history.items()}
        return self._analysis.critical(now, progress, jobs, tasks, cores, self._slots_at(progress.end))

    def _stages(
        self, query: RunningQuery, progress: BatchProgress
    ) -> tuple[tuple[OperatorOutline, ...], tuple[TaskTable, ...], dict[int, list[dict[str, Any]]]]:
        """The batch's stages as operators; empty where Spark no longer knows them or had to retry."""
        jobs = [job for job in self._jobs.values() if _belongs(job, progress)]
        if not jobs or any(job["status"] != "SUCCEEDED" or job["numFailedStages"] for job in jobs):
            return (), (), {}
        ids = sorted({stage for job in jobs for stage in job["stageIds"]})
        listed = {stage: self._tasks(stage) for stage in ids}
        ran = {stage: tasks for stage, tasks in listed.items() if tasks}
        if not ran:
            return (), (), {}
        operators = self._layout(query, ran)
        tables = (
            read_tasks(operator.name, tasks) for operator, tasks in zip(operators, ran.values(), strict=True)
        )
        return operators, tuple(tables), ran

    def _tasks(self, stage: int) -> list[dict[str, Any]]:
        """All tasks of a stage: a part of them would make the stage look cheaper than it is."""
        most = self._settings.max_tasks_per_stage
        tasks = self._status.tasks(stage, most + 1)
        if len(tasks) > most:
            raise BadMetrics(f"a stage has more than {most} tasks (max_tasks_per_stage): its cost is unknown")
        return tasks

    def _layout(
        self, query: RunningQuery, stages: dict[int, list[dict[str, Any]]]
    ) -> tuple[OperatorOutline, ...]:
        """Operators of the batch; a chain whose stages have the same shape as before has the same ones.

        The stages of a join come in no fixed order, so they are looked at anew in every batch.
        """
        shape = tuple((len(tasks), _reads_shuffle(tasks)) for tasks in stages.values())
        known = self._chains.get((query.run_id, shape))
        if known is not None:
            return known
        operators = layout([self._status.outline(stage) for stage in stages], self._status.plan(query))
        if sum(not operator.fed_by for operator in operators) == 1:
            self._chains[query.run_id, shape] = operators
            if len(self._chains) > _CHAINS_KEPT:
                del self._chains[next(iter(self._chains))]
        return operators

    def _waiting(self, query: RunningQuery, progress: BatchProgress, now: float) -> dict[int, Waiting]:
        """List the directories of file sources; once a window, since a listing may be long."""
        found: dict[int, Waiting] = {}
        for number, source in enumerate(progress.sources):
            if reader_for(source.description).listed:
                running = self._status.is_working(query)
                unread, read = self._status.unread_files(query, source.description)
                found[number] = Waiting(now, unread, read, running)
        return found


def _belongs(job: dict[str, Any], progress: BatchProgress) -> bool:
    """By Spark's own description; where user code set another one, by run and time."""
    if job.get("jobGroup") != progress.run_id:
        return False
    named = _BATCH_OF_JOB.search(job.get("description") or "")
    if named:
        return int(named.group(1)) == progress.batch_id
    return progress.start <= (job.get("submissionTime") or 0) / 1000 <= progress.end


def _reads_shuffle(tasks: list[dict[str, Any]]) -> bool:
    return any(
        (task.get("taskMetrics") or {}).get("shuffleReadMetrics", {}).get("recordsRead") for task in tasks
    )
