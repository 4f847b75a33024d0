"""The task graph of an application: jobs, their stages and tasks, and when slots came and went."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from penstock.diagnose.log.application import KILLED, SUCCEEDED, ApplicationLog, Column, SparkJob, StageKey
from penstock.diagnose.trace.events import Floats
from penstock.diagnose.whatif.capacity import Capacity, measure_capacity

# Spark gives a stage up after four attempts in a row, by default.
MOST_ATTEMPTS = 16


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
    """A stage attempt of a job: what it waits for, the driver's delay before it, and its tasks in seconds.

    A task is a partition: attempts that failed and were repeated are part of its time.
    """

    key: StageKey
    parents: frozenset[StageKey]
    delay: float
    tasks: Floats
    rows: Column
    needs: TaskNeeds | None = None

    def with_tasks(self, tasks: Floats) -> StagePlan:
        """Return the stage with other lengths of its tasks."""
        needs = self.needs.scale(tasks / np.maximum(self.tasks, 1e-9)) if self.needs else None
        return replace(self, tasks=tasks, needs=needs)

    def split_tasks(self, pieces: int) -> StagePlan:
        """Return the stage with every task cut into equal pieces."""
        needs, part = self.needs, np.full(len(self.tasks) * pieces, 1 / pieces)
        if needs:
            cut = (np.repeat(times, pieces) for times in (needs.before, needs.wait, needs.after))
            needs = TaskNeeds(*cut).scale(part)
        tasks = np.repeat(self.tasks, pieces) * part
        return replace(self, tasks=tasks, rows=np.repeat(self.rows, pieces), needs=needs)


@dataclass(frozen=True, slots=True)
class Anchor:
    """A moment so many seconds after the start or the end of a job, or after the start of the application."""

    job: int | None
    at_end: bool
    delay: float


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job: when it starts, its stages, and the driver's time behind the last of them."""

    job: int
    anchor: Anchor
    tail: float
    stages: tuple[StagePlan, ...]
    measured_seconds: float


@dataclass(frozen=True, slots=True)
class SlotChange:
    """Slots that come or go."""

    anchor: Anchor
    slots: int


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """All jobs of an application, the slots over time, the most at once, and the cores that slots share."""

    jobs: tuple[JobPlan, ...]
    slots: int
    tail: float
    measured_seconds: float
    cores: float | None = None
    changes: tuple[SlotChange, ...] = ()

    def map_stages(self, change: Callable[[StagePlan], StagePlan]) -> TaskGraph:
        """Return the graph with every stage changed."""
        jobs = (replace(job, stages=tuple(change(stage) for stage in job.stages)) for job in self.jobs)
        return replace(self, jobs=tuple(jobs))

    def with_changes(self, changes: tuple[SlotChange, ...]) -> TaskGraph:
        """Return the graph with other changes of its slots, never more than it has at most."""
        total, there, kept = 0, 0, []
        for change in changes:
            total += change.slots
            now = min(total, self.slots)
            kept.append(SlotChange(change.anchor, now - there))
            there = now
        return replace(self, changes=tuple(kept))

    def scale_slots(self, slots: int) -> TaskGraph:
        """Return the graph with this many slots at most, and at any time as many in proportion."""
        factor, total, before, changes = slots / max(1, self.slots), 0, 0, []
        for change in self.changes:
            total += change.slots
            now = round(total * factor) if total <= 0 else max(1, round(total * factor))
            changes.append(SlotChange(change.anchor, now - before))
            before = now
        return replace(self, slots=slots, changes=tuple(changes))


@dataclass(frozen=True, slots=True)
class Replayed:
    """The time that the application and each of its jobs take in the replay."""

    seconds: float
    job_seconds: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class _RanStage:
    """A stage attempt that ran: a row and the seconds of each partition, first launch and last finish."""

    rows: Column
    seconds: Floats
    launch: int
    finish: int


_RanStages = Mapping[StageKey, _RanStage]


def build_task_graph(log: ApplicationLog) -> TaskGraph:
    """Return the jobs and tasks of a log without killed and unfinished tasks."""
    ended = sorted((job for job in log.jobs.values() if job.ended >= 0), key=lambda job: job.started)
    ran = _find_ran_stages(log)
    order = _JobOrder(ended)
    capacity = measure_capacity(log)
    plans = tuple(_plan_job(log, job, order, ran, capacity) for job in ended)
    last = max((job.ended for job in ended), default=log.start)
    return TaskGraph(
        jobs=plans,
        slots=max(1, capacity.find_most(last)),
        tail=(log.end - last) / 1000,
        measured_seconds=(log.end - log.start) / 1000,
        changes=_anchor_changes(log, capacity, order),
    )


def keep_executors(log: ApplicationLog, names: Collection[str]) -> Callable[[TaskGraph], TaskGraph]:
    """Return the change in which these executors are not removed."""
    executors = {
        name: replace(one, removed=-1) if name in names else one for name, one in log.executors.items()
    }
    kept = replace(log, executors=executors)
    order = _JobOrder([job for job in log.jobs.values() if job.ended >= 0])
    changes = _anchor_changes(kept, measure_capacity(kept), order)
    return lambda graph: graph.with_changes(changes)


def _anchor_changes(log: ApplicationLog, capacity: Capacity, order: _JobOrder) -> tuple[SlotChange, ...]:
    return tuple(
        SlotChange(order.anchor(max(at, log.start), log.start), slots) for at, slots in capacity.changes
    )


def _find_ran_stages(log: ApplicationLog) -> dict[StageKey, _RanStage]:
    """Return the stage attempts that have finished tasks."""
    tasks = log.tasks
    usable = (tasks["finish"] >= 0) & (tasks["outcome"] != KILLED)
    order = np.nonzero(usable)[0]
    order = order[np.lexsort((tasks["launch"][order], tasks["attempt"][order], tasks["stage"][order]))]
    if not len(order):
        return {}
    stage, attempt = tasks["stage"][order], tasks["attempt"][order]
    first = np.nonzero((np.diff(stage) != 0) | (np.diff(attempt) != 0))[0] + 1
    waited = _find_waits_for_copies(log)
    return {
        (int(tasks["stage"][rows[0]]), int(tasks["attempt"][rows[0]])): _join_attempts(log, rows, waited)
        for rows in np.split(order, first)
    }


def _find_waits_for_copies(log: ApplicationLog) -> dict[int, float]:
    """Return for each speculative copy that won the seconds between the first launch and its own."""
    tasks = log.tasks
    won = np.nonzero((tasks["speculative"] == 1) & (tasks["outcome"] == SUCCEEDED))[0]
    found = {}
    for row in won.tolist():
        same = (tasks["stage"] == tasks["stage"][row]) & (tasks["attempt"] == tasks["attempt"][row])
        same &= tasks["partition"] == tasks["partition"][row]
        found[row] = float(tasks["launch"][row] - tasks["launch"][same].min()) / 1000
    return found


def _join_attempts(log: ApplicationLog, rows: Column, waited: Mapping[int, float]) -> _RanStage:
    """Join the attempts of each partition, which follow one another; rows are in the order of launches."""
    tasks = log.tasks
    seconds = (tasks["finish"][rows] - tasks["launch"][rows]) / 1000
    if waited:
        seconds += np.array([waited.get(row, 0.0) for row in rows.tolist()])
    launch, finish = int(tasks["launch"][rows[0]]), int(tasks["finish"][rows].max())
    partition = tasks["partition"][rows]
    distinct, first, code = np.unique(partition, return_index=True, return_inverse=True)
    if len(distinct) == len(rows) or (partition < 0).any():
        return _RanStage(rows, seconds, launch, finish)
    last = np.zeros(len(distinct), dtype=np.int64)
    last[code] = rows
    place = np.argsort(first, kind="stable")
    joined = np.bincount(code, seconds).astype(np.float64)
    return _RanStage(last[place], joined[place], launch, finish)


def _plan_job(
    log: ApplicationLog, job: SparkJob, order: _JobOrder, ran: _RanStages, capacity: Capacity
) -> JobPlan:
    wanted = set(job.stages)
    # a job skips the stages of earlier ones
    mine = {
        key: one
        for stage in sorted(wanted)
        for key, one in _list_attempts(ran, stage)
        if job.started <= one.launch <= job.ended
    }
    stages = tuple(_plan_stage(log, job, key, mine, capacity) for key in mine)
    tail = max(0, job.ended - max((one.finish for one in mine.values()), default=job.started)) / 1000
    seconds = (job.ended - job.started) / 1000
    return JobPlan(job.job, order.anchor(job.started, log.start, job.job), tail, stages, seconds)


def _list_attempts(ran: _RanStages, stage: int) -> list[tuple[StageKey, _RanStage]]:
    keys = ((stage, attempt) for attempt in range(MOST_ATTEMPTS))
    return [(key, ran[key]) for key in keys if key in ran]


class _JobOrder:
    """Starts and ends of jobs, to find the one just before a moment."""

    def __init__(self, jobs: list[SparkJob]) -> None:
        self._starts = sorted((job.started, job.job) for job in jobs)
        self._ends = sorted((job.ended, job.job) for job in jobs)

    def anchor(self, time: int, start: int, job: int | None = None) -> Anchor:
        """Return this moment as so many seconds after the last start or end before it, of other jobs."""
        number = 1 << 60 if job is None else job
        place = bisect.bisect_right(self._ends, (time, number - 1)) - 1
        ended_at, before = self._ends[place] if place >= 0 else (-1, None)
        place = bisect.bisect_left(self._starts, (time, number)) - 1
        started_at, beside = self._starts[place] if place >= 0 else (-1, None)
        if beside is not None and (before is None or started_at > ended_at):
            return Anchor(beside, False, (time - started_at) / 1000)
        return Anchor(before, True, (time - (start if before is None else ended_at)) / 1000)


def _plan_stage(
    log: ApplicationLog, job: SparkJob, key: StageKey, ran: _RanStages, capacity: Capacity
) -> StagePlan:
    mine = ran[key]
    known = log.stages.get(key) or log.stages.get((key[0], 0))
    parents = {
        found
        for stage in (known.parents if known else ())
        if (found := _find_parent(ran, stage, mine.launch))
    }
    before = (key[0], key[1] - 1)
    if before in ran and ran[before].finish <= mine.launch:
        parents.add(before)
    anchor = max((ran[parent].finish for parent in parents), default=job.started)
    # while no executor is there, the stage waits for slots and not for the driver
    anchor = min(capacity.find_first_slots(anchor), mine.launch)
    queued = not parents and _may_have_queued(log, mine)
    delay = 0 if queued else max(0, mine.launch - anchor)
    return StagePlan(key, frozenset(parents), delay / 1000, mine.seconds, mine.rows)


def _find_parent(ran: _RanStages, stage: int, launch: int) -> StageKey | None:
    """Return the attempt of a parent stage whose output a stage launched at this time used."""
    attempts = [(key, one) for key, one in _list_attempts(ran, stage) if one.launch <= launch]
    done = [key for key, one in attempts if one.finish <= launch]
    return max(done, default=max((key for key, _ in attempts), default=None))


def _may_have_queued(log: ApplicationLog, mine: _RanStage) -> bool:
    """Return whether another stage held slots when this one's first task was launched."""
    tasks, stage = log.tasks, log.tasks["stage"][mine.rows[0]]
    others = (tasks["launch"] < mine.launch) & (tasks["finish"] > mine.launch) & (tasks["stage"] != stage)
    return bool(others.any())
