"""Replay the tasks of an application on other slots, by list scheduling.

Kept as measured: the time that each task held its slot, and the driver's time before a stage, before a job
and after it. Changed: the number of slots, or the lengths of tasks. If the graph knows the cores that slots
share, tasks that need a core at the same time slow each other down. Not modelled: locality.
"""

from __future__ import annotations

import bisect
import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from penstock.diagnose.log.application import KILLED, ApplicationLog, Column, SparkJob
from penstock.diagnose.trace.events import Floats

Item = TypeVar("Item")
Action = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class TaskNeeds:
    """Seconds of each task of a stage: on a core before its work, waiting, and on a core after it."""

    before: Floats
    wait: Floats
    after: Floats

    def scale(self, factor: Floats) -> TaskNeeds:
        """Return the needs of tasks that are longer or shorter by this factor."""
        return TaskNeeds(self.before * factor, self.wait * factor, self.after * factor)


@dataclass(frozen=True, slots=True)
class StagePlan:
    """A stage of a job: the stages it waits for, the driver's delay before it, and its tasks in seconds."""

    stage: int
    parents: frozenset[int]
    delay: float
    tasks: Floats
    rows: Column
    needs: TaskNeeds | None = None


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job that starts `delay` seconds after the start or the end of another, or of the application."""

    job: int
    after: int | None
    after_end: bool
    delay: float
    tail: float
    stages: tuple[StagePlan, ...]
    measured_seconds: float


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """All jobs of an application, the slots they were measured on, and the cores that slots share."""

    jobs: tuple[JobPlan, ...]
    slots: int
    tail: float
    measured_seconds: float
    cores: float | None = None

    def map_stages(self, change: Callable[[StagePlan], StagePlan]) -> TaskGraph:
        """Return the graph with every stage changed."""
        jobs = (replace(job, stages=tuple(change(stage) for stage in job.stages)) for job in self.jobs)
        return replace(self, jobs=tuple(jobs))


@dataclass(frozen=True, slots=True)
class Replayed:
    """The time that the application and each of its jobs take in the replay."""

    seconds: float
    job_seconds: Mapping[int, float]


def build_task_graph(log: ApplicationLog) -> TaskGraph:
    """Return the jobs and tasks of a log without killed and unfinished tasks."""
    ended = [job for job in log.jobs.values() if job.ended >= 0]
    rows = _group_rows(log)
    order = _JobOrder(ended)
    plans = tuple(_plan_job(log, job, order, rows) for job in sorted(ended, key=lambda job: job.started))
    last = max((job.ended for job in ended), default=log.start)
    cores = sum(max(executor.cores, 0) for executor in log.executors.values() if executor.removed < 0)
    known = cores or sum(max(executor.cores, 0) for executor in log.executors.values())
    return TaskGraph(plans, max(1, known), (log.end - last) / 1000, (log.end - log.start) / 1000)


def _group_rows(log: ApplicationLog) -> dict[int, Column]:
    tasks = log.tasks
    usable = (tasks["finish"] >= 0) & (tasks["outcome"] != KILLED)
    order = np.nonzero(usable)[0]
    order = order[np.lexsort((tasks["launch"][order], tasks["stage"][order]))]
    if not len(order):
        return {}
    stages, first = np.unique(tasks["stage"][order], return_index=True)
    return dict(zip(stages.tolist(), np.split(order, first[1:]), strict=True))


def _plan_job(log: ApplicationLog, job: SparkJob, order: _JobOrder, rows: Mapping[int, Column]) -> JobPlan:
    stages = tuple(
        _plan_stage(log, job, stage, rows)
        for stage in sorted(set(job.stages))
        if _ran_stage(log, job, stage, rows)
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


class _JobOrder:
    """Starts and ends of jobs, to find the one just before a job."""

    def __init__(self, jobs: list[SparkJob]) -> None:
        self._starts = sorted((job.started, job.job) for job in jobs)
        self._ends = sorted((job.ended, job.job) for job in jobs)

    def last_end(self, job: SparkJob) -> tuple[int, int | None]:
        place = bisect.bisect_right(self._ends, (job.started, job.job - 1)) - 1
        return self._ends[place] if place >= 0 else (-1, None)

    def last_start(self, job: SparkJob) -> tuple[int, int | None]:
        place = bisect.bisect_left(self._starts, (job.started, job.job)) - 1
        return self._starts[place] if place >= 0 else (-1, None)


def _ran_stage(log: ApplicationLog, job: SparkJob, stage: int, rows: Mapping[int, Column]) -> bool:
    """Return whether the stage ran in this job; a job skips the stages of earlier ones."""
    return stage in rows and job.started <= int(log.tasks["launch"][rows[stage][0]]) <= job.ended


def _plan_stage(log: ApplicationLog, job: SparkJob, stage: int, rows: Mapping[int, Column]) -> StagePlan:
    mine, tasks = rows[stage], log.tasks
    attempts = [value for key, value in log.stages.items() if key[0] == stage]
    parents = frozenset(
        p for value in attempts for p in value.parents if p in rows and _ran_stage(log, job, p, rows)
    )
    anchor = max((int(tasks["finish"][rows[parent]].max()) for parent in parents), default=job.started)
    delay = (
        max(0, int(tasks["launch"][mine[0]]) - anchor) if parents or not _may_have_queued(log, mine) else 0
    )
    lengths = (tasks["finish"][mine] - tasks["launch"][mine]) / 1000
    return StagePlan(stage, parents, delay / 1000, lengths, mine)


def _may_have_queued(log: ApplicationLog, mine: Column) -> bool:
    """Return whether another stage held slots when this one's first task was launched."""
    at, tasks = log.tasks["launch"][mine[0]], log.tasks
    others = (tasks["launch"] < at) & (tasks["finish"] > at) & (tasks["stage"] != tasks["stage"][mine[0]])
    return bool(others.any())


class SharedCores(Generic[Item]):
    """Cores that items share equally: an item ends when the virtual clock has passed its demand.

    The virtual clock runs as fast as the real one while there is a core for each item, and slower by the
    ratio of cores to items otherwise. So a change in their number moves no item in the queue.
    """

    def __init__(self, cores: float) -> None:
        self._cores = cores
        self._virtual = self._now = 0.0
        self._queue: list[tuple[float, int, Item]] = []
        self._number = 0

    def enter(self, now: float, demand: float, item: Item) -> None:
        """Let an item use a core for so many seconds from now on."""
        self._advance(now)
        self._number += 1
        heapq.heappush(self._queue, (self._virtual + demand, self._number, item))

    def next_end(self) -> float:
        """Return when the first item ends if none enters before; infinity without an item."""
        if not self._queue:
            return float("inf")
        return self._now + max(0.0, self._queue[0][0] - self._virtual) / self._rate()

    def leave(self, now: float) -> Item:
        """Return the first item to end, at the time that `next_end` returned."""
        self._advance(now)
        demand, _, item = heapq.heappop(self._queue)
        self._virtual = max(self._virtual, demand)
        return item

    def _rate(self) -> float:
        return min(1.0, self._cores / len(self._queue)) if self._queue else 1.0

    def _advance(self, now: float) -> None:
        self._virtual += (now - self._now) * self._rate()
        self._now = now


class _Replay:
    """A replay of actions in time order: a job starts or ends, a stage is ready, a task goes on or ends."""

    def __init__(self, graph: TaskGraph, slots: int) -> None:
        self._free = slots
        self._tail = graph.tail
        self._agenda: list[tuple[float, int, Action]] = []
        self._number = 0
        self._cores: SharedCores[Action] = SharedCores(graph.cores or 1.0)
        self._waiting: deque[tuple[JobPlan, StagePlan, int]] = deque()
        self._left: dict[tuple[int, int], int] = {}
        self._done: dict[int, set[int]] = {}
        self._started: dict[int, float] = {}
        self._ended: dict[int, float] = {}
        self._followers: dict[tuple[int, bool], list[JobPlan]] = defaultdict(list)
        for job in graph.jobs:
            if job.after is None:
                self._plan(job.delay, partial(self._start_job, job))
            else:
                self._followers[job.after, job.after_end].append(job)

    def _plan(self, time: float, action: Action) -> None:
        self._number += 1
        heapq.heappush(self._agenda, (time, self._number, action))

    def run(self) -> Replayed:
        while self._agenda or self._cores.next_end() < float("inf"):
            now = self._cores.next_end()
            if self._agenda and self._agenda[0][0] <= now:
                now, _, action = heapq.heappop(self._agenda)
            else:
                action = self._cores.leave(now)
            action(now)
            self._launch_tasks(now)
        seconds = {job: end - self._started[job] for job, end in self._ended.items()}
        return Replayed(max(self._ended.values(), default=0.0) + self._tail, seconds)

    def _start_job(self, job: JobPlan, now: float) -> None:
        self._started[job.job], self._done[job.job] = now, set()
        self._start_followers(job, now, after_end=False)
        self._release_stages(job, now, None)
        if not job.stages:
            self._plan(now + job.tail, partial(self._end_job, job))

    def _end_job(self, job: JobPlan, now: float) -> None:
        self._ended[job.job] = now
        self._start_followers(job, now, after_end=True)

    def _start_followers(self, job: JobPlan, now: float, after_end: bool) -> None:
        for other in self._followers[job.job, after_end]:
            self._plan(now + other.delay, partial(self._start_job, other))

    def _release_stages(self, job: JobPlan, now: float, finished: int | None) -> None:
        for stage in job.stages:
            is_new = not stage.parents if finished is None else finished in stage.parents
            if is_new and stage.parents <= self._done[job.job]:
                self._left[job.job, stage.stage] = len(stage.tasks)
                self._plan(now + stage.delay, partial(self._queue_tasks, job, stage))

    def _queue_tasks(self, job: JobPlan, stage: StagePlan, _: float) -> None:
        self._waiting.extend((job, stage, task) for task in range(len(stage.tasks)))

    def _launch_tasks(self, now: float) -> None:
        while self._free and self._waiting:
            job, stage, task = self._waiting.popleft()
            self._free -= 1
            end = partial(self._end_task, job, stage)
            if stage.needs is None:
                self._plan(now + float(stage.tasks[task]), end)
            else:
                wait = partial(self._wait, stage.needs, task, end)
                self._cores.enter(now, float(stage.needs.before[task]), wait)

    def _wait(self, needs: TaskNeeds, task: int, end: Action, now: float) -> None:
        """Leave the core for the time that the task waits, then need one again until its end."""

        def go_on(now: float) -> None:
            self._cores.enter(now, float(needs.after[task]), end)

        self._plan(now + float(needs.wait[task]), go_on)

    def _end_task(self, job: JobPlan, stage: StagePlan, now: float) -> None:
        self._free += 1
        self._left[job.job, stage.stage] -= 1
        if self._left[job.job, stage.stage]:
            return
        self._done[job.job].add(stage.stage)
        self._release_stages(job, now, stage.stage)
        if len(self._done[job.job]) == len(job.stages):
            self._plan(now + job.tail, partial(self._end_job, job))


def replay(graph: TaskGraph, slots: int | None = None) -> Replayed:
    """Run the task graph on this many slots, by default on as many as it was measured on."""
    return _Replay(graph, slots or graph.slots).run()
