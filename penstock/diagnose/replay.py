"""Replays the task graph of an application on other slots: list scheduling of the tasks it really had.

Kept as measured: how long each task held its slot, how long the driver took before a stage, before a job and
after it. Changed: the number of slots, or the lengths. Where the graph knows the cores that slots share,
tasks that want a core at the same time slow each other down. Not modelled: locality.
"""

from __future__ import annotations

import bisect
import heapq
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.diagnose.application_log import KILLED, ApplicationLog, Column, Job
from penstock.diagnose.shared_cores import SharedCores
from penstock.diagnose.trace import Floats


@dataclass(frozen=True, slots=True)
class TaskNeeds:
    """Seconds of each task of a stage: on a core before its own work, waiting, and on a core behind it."""

    before: Floats
    wait: Floats
    after: Floats

    def scaled(self, factor: Floats) -> TaskNeeds:
        """The needs of tasks that are so much shorter."""
        return TaskNeeds(self.before * factor, self.wait * factor, self.after * factor)


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage of one job: what it waits for, the driver's delay before it, and its tasks in seconds."""

    stage: int
    parents: frozenset[int]
    delay: float
    tasks: Floats
    rows: Column
    needs: TaskNeeds | None = None


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One job: it starts `delay` seconds behind the start or the end of another (or of the application)."""

    job: int
    after: int | None
    after_end: bool
    delay: float
    tail: float
    stages: tuple[StagePlan, ...]
    measured_seconds: float


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """All jobs of an application, with the slots they were measured on, and the cores that slots share."""

    jobs: tuple[JobPlan, ...]
    slots: int
    tail: float
    measured_seconds: float
    cores: float | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """How long the application and each of its jobs take in the replay."""

    seconds: float
    job_seconds: Mapping[int, float]


def task_graph(log: ApplicationLog) -> TaskGraph:
    """The task graph of a log; killed and unfinished tasks are left out."""
    ended = [job for job in log.jobs.values() if job.ended >= 0]
    rows = _rows_by_stage(log)
    order = _Order(ended)
    plans = tuple(_job_plan(log, job, order, rows) for job in sorted(ended, key=lambda job: job.started))
    last = max((job.ended for job in ended), default=log.start)
    cores = sum(max(executor.cores, 0) for executor in log.executors.values() if executor.removed < 0)
    known = cores or sum(max(executor.cores, 0) for executor in log.executors.values())
    return TaskGraph(plans, max(1, known), (log.end - last) / 1000, (log.end - log.start) / 1000)


def _rows_by_stage(log: ApplicationLog) -> dict[int, Column]:
    tasks = log.tasks
    usable = (tasks["finish"] >= 0) & (tasks["outcome"] != KILLED)
    order = np.nonzero(usable)[0]
    order = order[np.lexsort((tasks["launch"][order], tasks["stage"][order]))]
    if not len(order):
        return {}
    stages, first = np.unique(tasks["stage"][order], return_index=True)
    return dict(zip(stages.tolist(), np.split(order, first[1:]), strict=True))


def _job_plan(log: ApplicationLog, job: Job, order: _Order, rows: Mapping[int, Column]) -> JobPlan:
    stages = tuple(
        _stage_plan(log, job, stage, rows)
        for stage in sorted(set(job.stages))
        if _owns(log, job, stage, rows)
    )
    finish = [int(log.tasks["finish"][plan.rows].max()) for plan in stages]
    tail = max(0, job.ended - max(finish, default=job.started)) / 1000
    seconds = (job.ended - job.started) / 1000
    ended_at, before = order.last_end(job)
    started_at, beside = order.last_start(job)
    if beside is not None and (before is None or started_at > ended_at):
        return JobPlan(job.job, beside, False, (job.started - started_at) / 1000, tail, stages, seconds)
    anchor = log.start if before is None else ended_at
    return JobPlan(job.job, before, True, (job.started - anchor) / 1000, tail, stages, seconds)


class _Order:
    """Starts and ends of jobs, to find what came just before a job."""

    def __init__(self, jobs: list[Job]) -> None:
        self._starts = sorted((job.started, job.job) for job in jobs)
        self._ends = sorted((job.ended, job.job) for job in jobs)

    def last_end(self, job: Job) -> tuple[int, int | None]:
        place = bisect.bisect_right(self._ends, (job.started, job.job - 1)) - 1
        return self._ends[place] if place >= 0 else (-1, None)

    def last_start(self, job: Job) -> tuple[int, int | None]:
        place = bisect.bisect_left(self._starts, (job.started, job.job)) - 1
        return self._starts[place] if place >= 0 else (-1, None)


def _owns(log: ApplicationLog, job: Job, stage: int, rows: Mapping[int, Column]) -> bool:
    """Whether the stage ran in this job: one that an earlier job ran is skipped."""
    return stage in rows and job.started <= int(log.tasks["launch"][rows[stage][0]]) <= job.ended


def _stage_plan(log: ApplicationLog, job: Job, stage: int, rows: Mapping[int, Column]) -> StagePlan:
    mine, tasks = rows[stage], log.tasks
    attempts = [value for key, value in log.stages.items() if key[0] == stage]
    parents = frozenset(
        p for value in attempts for p in value.parents if p in rows and _owns(log, job, p, rows)
    )
    anchor = max((int(tasks["finish"][rows[parent]].max()) for parent in parents), default=job.started)
    delay = max(0, int(tasks["launch"][mine[0]]) - anchor) if parents or not _busy(log, mine) else 0
    lengths = (tasks["finish"][mine] - tasks["launch"][mine]) / 1000
    return StagePlan(stage, parents, delay / 1000, lengths, mine)


def _busy(log: ApplicationLog, mine: Column) -> bool:
    """Whether another stage held slots when this one's first task was launched: it may have queued."""
    at, tasks = log.tasks["launch"][mine[0]], log.tasks
    others = (tasks["launch"] < at) & (tasks["finish"] > at) & (tasks["stage"] != tasks["stage"][mine[0]])
    return bool(others.any())


@dataclass(slots=True)
class _State:
    """What the replay knows at an instant."""

    free: int
    waiting: deque[tuple[JobPlan, StagePlan, int]] = field(default_factory=deque)
    left: dict[tuple[int, int], int] = field(default_factory=dict)
    done: dict[int, set[int]] = field(default_factory=dict)
    started: dict[int, float] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)


class _Replay:
    """Events in time order: a job starts, a stage becomes ready, a task ends, a job ends."""

    def __init__(self, graph: TaskGraph, slots: int) -> None:
        self._state = _State(free=slots)
        self._events: list[tuple[float, int, str, JobPlan, StagePlan | None, int]] = []
        self._number = 0
        self._tail = graph.tail
        self._cores: SharedCores[tuple[JobPlan, StagePlan, int, bool]] = SharedCores(graph.cores or 1.0)
        self._followers: dict[tuple[int, bool], list[JobPlan]] = defaultdict(list)
        for job in graph.jobs:
            if job.after is None:
                self._at(job.delay, "start", job)
            else:
                self._followers[job.after, job.after_end].append(job)

    def _at(
        self, time: float, what: str, job: JobPlan, stage: StagePlan | None = None, task: int = -1
    ) -> None:
        self._number += 1
        heapq.heappush(self._events, (time, self._number, what, job, stage, task))

    def run(self) -> Replayed:
        while self._events or self._cores.next_end() < float("inf"):
            now = self._cores.next_end()
            if self._events and self._events[0][0] <= now:
                now, _, what, job, stage, task = heapq.heappop(self._events)
                self._happens(now, what, job, stage, task)
            else:
                self._leaves_core(now)
            self._launch(now)
        seconds = {job: end - self._state.started[job] for job, end in self._state.ended.items()}
        return Replayed(max(self._state.ended.values(), default=0.0) + self._tail, seconds)

    def _happens(self, now: float, what: str, job: JobPlan, stage: StagePlan | None, task: int) -> None:
        if what == "start":
            self._start(now, job)
        elif what == "end":
            self._end(now, job)
        elif stage is not None and what == "ready":
            self._state.waiting.extend((job, stage, number) for number in range(len(stage.tasks)))
        elif stage is not None and what == "waited" and stage.needs is not None:
            self._cores.enter(now, float(stage.needs.after[task]), (job, stage, task, True))
        elif stage is not None:
            self._task_done(now, job, stage)

    def _leaves_core(self, now: float) -> None:
        job, stage, task, is_last = self._cores.leave(now)
        if is_last or stage.needs is None:
            self._task_done(now, job, stage)
        else:
            self._at(now + float(stage.needs.wait[task]), "waited", job, stage, task)

    def _start(self, now: float, job: JobPlan) -> None:
        self._state.started[job.job], self._state.done[job.job] = now, set()
        self._follow(now, job, after_end=False)
        self._release(now, job, set(), None)
        if not job.stages:
            self._at(now + job.tail, "end", job)

    def _end(self, now: float, job: JobPlan) -> None:
        self._state.ended[job.job] = now
        self._follow(now, job, after_end=True)

    def _follow(self, now: float, job: JobPlan, after_end: bool) -> None:
        for other in self._followers[job.job, after_end]:
            self._at(now + other.delay, "start", other)

    def _release(self, now: float, job: JobPlan, done: set[int], finished: int | None) -> None:
        for stage in job.stages:
            is_new = not stage.parents if finished is None else finished in stage.parents
            if is_new and stage.parents <= done:
                self._state.left[job.job, stage.stage] = len(stage.tasks)
                self._at(now + stage.delay, "ready", job, stage)

    def _task_done(self, now: float, job: JobPlan, stage: StagePlan) -> None:
        self._state.free += 1
        self._state.left[job.job, stage.stage] -= 1
        if self._state.left[job.job, stage.stage]:
            return
        done = self._state.done[job.job]
        done.add(stage.stage)
        self._release(now, job, done, stage.stage)
        if len(done) == len(job.stages):
            self._at(now + job.tail, "end", job)

    def _launch(self, now: float) -> None:
        while self._state.free and self._state.waiting:
            job, stage, task = self._state.waiting.popleft()
            self._state.free -= 1
            if stage.needs is None:
                self._at(now + float(stage.tasks[task]), "task", job, stage)
            else:
                self._cores.enter(now, float(stage.needs.before[task]), (job, stage, task, False))


def replay(graph: TaskGraph, slots: int | None = None) -> Replayed:
    """Runs the task graph on this many slots (by default on as many as it was measured on)."""
    return _Replay(graph, slots or graph.slots).run()
