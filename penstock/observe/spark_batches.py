"""The jobs, stages and tasks of batches, finished and running, as Spark's status store has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.dataflow.metrics import RunningBatch, RunningStage
from penstock.dataflow.window import CriticalWindow
from penstock.errors import BadMetrics, SparkUnavailable
from penstock.observe.analysis import BatchAnalysis
from penstock.observe.executors.history import ExecutorHistory
from penstock.observe.progress import BatchProgress
from penstock.observe.running import (
    ObservedRun,
    batch_of_job,
    choose_stages,
    explain_trouble,
    find_running_jobs,
    read_running_stage,
)
from penstock.observe.spark_status import RunningQuery, SparkStatus
from penstock.observe.stages import OperatorOutline, StageOutline, TaskTable, layout, read_tasks

_LISTING = "Listing leaf files and directories"
_JOBS_KEPT = 1000
_CHAINS_KEPT = 64
_STAGES_KEPT = 256

_Fields = dict[str, Any]
_Shape = tuple[tuple[int, bool], ...]
ReadStages = tuple[tuple[OperatorOutline, ...], tuple[TaskTable, ...], dict[int, list[_Fields]]]


class SparkBatches:
    """Reads the batches of all queries of one application."""

    def __init__(
        self, status: SparkStatus, executors: ExecutorHistory, most_tasks: int, analysis: BatchAnalysis | None
    ) -> None:
        self._status, self._executors = status, executors
        self._most_tasks, self._analysis = most_tasks, analysis
        self._jobs: dict[int, _Fields] = {}
        self._chains: dict[tuple[str, _Shape], tuple[OperatorOutline, ...]] = {}
        self._stages_over: dict[int, tuple[_Fields, list[_Fields]]] = {}
        self._outlines: dict[int, StageOutline] = {}

    def collect_jobs(self) -> None:
        """Take in new jobs, and again those that were still running when last seen.

        A job of a real-time query runs for ever, so jobs since the oldest running one would soon be all.
        """
        for number in [number for number, job in self._jobs.items() if job["status"] == "RUNNING"]:
            try:
                self._jobs[number] = self._status.job(number)
            except SparkUnavailable:
                # the status store has forgotten it
                del self._jobs[number]
        for job in self._status.jobs_after(max(self._jobs, default=-1)):
            self._jobs[job["jobId"]] = job
        for number in sorted(self._jobs)[:-_JOBS_KEPT]:
            if self._jobs[number]["status"] != "RUNNING":
                del self._jobs[number]

    def forget(self, run_id: str) -> None:
        """Forget a run that has ended."""
        self._chains = {key: value for key, value in self._chains.items() if key[0] != run_id}

    def running_jobs(self, run_id: str) -> list[_Fields]:
        """Return the jobs of a run that are being worked on."""
        return [
            job for job in self._jobs.values() if job.get("jobGroup") == run_id and job["status"] == "RUNNING"
        ]

    def last_job_end(self, run_id: str) -> float:
        """Return when the last job of a run ended; 0 before the first."""
        ends = (
            job.get("completionTime") or 0 for job in self._jobs.values() if job.get("jobGroup") == run_id
        )
        return max(ends, default=0) / 1000

    def count_jobs(self, progress: BatchProgress) -> int:
        """Return how many jobs a batch had."""
        return len(self._jobs_of(progress))

    def listing_seconds(self, progress: BatchProgress) -> float:
        """Return how long Spark listed the files of a batch in jobs of their own."""
        jobs = [job for job in self._jobs.values() if is_listing(job) and _belongs(job, progress)]
        return sum(_measure_job(job) for job in jobs)

    def _jobs_of(self, progress: BatchProgress) -> list[_Fields]:
        return [job for job in self._query_jobs() if _belongs(job, progress)]

    def _query_jobs(self) -> list[_Fields]:
        """Return the jobs that work for queries, without those that list files: few files need none."""
        return [job for job in self._jobs.values() if not is_listing(job)]

    def stages(self, query: RunningQuery, progress: BatchProgress) -> ReadStages:
        """Return the batch's stages as operators; BadMetrics where Spark forgot them or had to retry."""
        jobs = self._jobs_of(progress)
        if not jobs:
            return (), (), {}
        trouble = explain_trouble(progress.batch_id, jobs)
        if trouble is not None:
            raise BadMetrics(trouble)
        ids = sorted({stage for job in jobs for stage in job["stageIds"]})
        listed = {stage: self._tasks(stage) for stage in ids}
        ran = {stage: tasks for stage, tasks in listed.items() if tasks}
        if not ran:
            return (), (), {}
        operators = self._layout(query, ran, jobs)
        tables = (
            read_tasks(operator.name, tasks) for operator, tasks in zip(operators, ran.values(), strict=True)
        )
        return operators, tuple(tables), ran

    def _tasks(self, stage: int) -> list[_Fields]:
        """Return all tasks of a stage: a part of them would make the stage look cheaper than it is."""
        tasks = self._status.tasks(stage, self._most_tasks + 1)
        if len(tasks) > self._most_tasks:
            raise BadMetrics(
                f"a stage has more than {self._most_tasks} tasks (max_tasks_per_stage): its cost is unknown"
            )
        return tasks

    def _layout(
        self, query: RunningQuery, stages: Mapping[int, Sequence[_Fields]], jobs: Sequence[_Fields]
    ) -> tuple[OperatorOutline, ...]:
        """Operators of the batch; a chain whose stages have the same shape as before has the same ones.

        The stages of a join come in no fixed order, so they are looked at anew in every batch.
        """
        shape = tuple((len(tasks), _reads_shuffle(tasks)) for tasks in stages.values())
        known = self._chains.get((query.run_id, shape))
        if known is not None:
            return known
        outlines = [self._status.outline(stage) for stage in stages]
        operators = layout(outlines, self._status.plan(query), _rank_jobs(stages, jobs))
        if sum(not operator.fed_by for operator in operators) == 1:
            self._chains[query.run_id, shape] = operators
            if len(self._chains) > _CHAINS_KEPT:
                del self._chains[next(iter(self._chains))]
        return operators

    def critical(
        self,
        now: float,
        progress: BatchProgress,
        operators: tuple[OperatorOutline, ...],
        stages: Mapping[int, Sequence[_Fields]],
    ) -> CriticalWindow | None:
        """Return what was on the critical path of a batch; None where that is not asked for."""
        if self._analysis is None or not operators:
            return None
        tasks = [
            (number, operator, stages[number]) for number, operator in zip(stages, operators, strict=True)
        ]
        slots = self._executors.slots_at(progress.end)
        return self._analysis.critical(
            now, progress, self._jobs_of(progress), tasks, self._executors.cores, slots
        )

    def running(
        self,
        query: RunningQuery,
        reported: BatchProgress | None,
        worked_before: float,
        begun_before: float,
        now: float,
    ) -> ObservedRun | None:
        """Return the batch that runs, if its first job began before that moment; None if nothing is known.

        Executors that came after `worked_before`, when the last reported batch began, are new to it.
        """
        batch_id, jobs = find_running_jobs(self._query_jobs(), query.run_id, reported)
        start = min((job["submissionTime"] or 0) / 1000 for job in jobs) if jobs else now
        if not jobs or not 0 < start <= begun_before:
            return None
        trouble = explain_trouble(batch_id, jobs, is_over=False)
        if trouble is not None:
            raise BadMetrics(trouble)
        if not any(job["status"] == "RUNNING" for job in jobs) and not self._status.is_working(query):
            return None
        operators, stages = self._running_stages(query, jobs)
        slots, new = self._executors.slots_at(now), self._executors.new_slots_at(now, worked_before)
        batch = RunningBatch(batch_id, start, now - start, slots, stages, new)
        return ObservedRun(batch, operators, len(jobs))

    def _running_stages(
        self, query: RunningQuery, jobs: Sequence[_Fields]
    ) -> tuple[tuple[OperatorOutline, ...], tuple[RunningStage, ...]]:
        listed: dict[int, _Fields] = {}
        for number in sorted({stage for job in jobs for stage in job["stageIds"]}):
            over = self._stages_over.get(number)
            listed[number] = over[0] if over else self._status.stage(number)
            if number not in self._outlines:
                self._outlines[number] = self._status.outline(number)
        chosen = choose_stages(listed, self._outlines)
        outlines = [self._outlines[number] for number in chosen]
        operators = layout(outlines, self._status.plan(query), _rank_jobs(chosen, jobs))
        stages = tuple(
            self._running_stage(operator.name, number, listed[number])
            for number, operator in zip(chosen, operators, strict=True)
        )
        self._forget_stages()
        return operators, stages

    def _running_stage(self, operator: str, number: int, stage: _Fields) -> RunningStage:
        """Read a stage of a running batch; one that is over is read once."""
        known = self._stages_over.get(number)
        tasks = known[1] if known else self._tasks(number) if stage["status"] != "PENDING" else []
        if stage["status"] == "COMPLETE":
            self._stages_over[number] = (stage, tasks)
        return read_running_stage(operator, stage, tasks)

    def _forget_stages(self) -> None:
        for number in sorted(self._stages_over)[:-_STAGES_KEPT]:
            del self._stages_over[number]
        for number in sorted(self._outlines)[:-_STAGES_KEPT]:
            del self._outlines[number]


def _rank_jobs(stages: Sequence[int] | Mapping[int, Any], jobs: Sequence[_Fields]) -> list[int]:
    """Return, for each stage, the rank of the first job that has it among the jobs of its batch."""
    ordered = sorted(jobs, key=lambda job: int(job["jobId"]))
    ranks: dict[int, int] = {}
    for rank, job in enumerate(ordered):
        for stage in job["stageIds"]:
            ranks.setdefault(stage, rank)
    return [ranks[stage] for stage in stages]


def is_listing(job: Mapping[str, Any]) -> bool:
    """Tell a job in which Spark lists many files from one that works for a query."""
    return str(job.get("description") or "").startswith(_LISTING)


def _measure_job(job: _Fields) -> float:
    begun, ended = job.get("submissionTime"), job.get("completionTime")
    return max(0.0, (ended - begun) / 1000) if begun and ended else 0.0


def _belongs(job: _Fields, progress: BatchProgress) -> bool:
    """By Spark's own description; where user code set another one, by run and time."""
    if job.get("jobGroup") != progress.run_id:
        return False
    named = batch_of_job(job)
    if named is not None:
        return named == progress.batch_id
    return progress.start <= (job.get("submissionTime") or 0) / 1000 <= progress.end


def _reads_shuffle(tasks: Sequence[_Fields]) -> bool:
    return any(
        (task.get("taskMetrics") or {}).get("shuffleReadMetrics", {}).get("recordsRead") for task in tasks
    )
