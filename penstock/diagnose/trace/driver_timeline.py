"""The driver's timeline, from the marks that it leaves in the event log.

The mark that ends a span tells what the driver did in it: before a result it waited, before a launch it
scheduled, between the last result of a stage and its completion it passed a barrier. Without an active job it
ran the program, planned, or went through the phases of a micro-batch.

Spark reuses a slot as soon as it hears that its task is over, and logs the end of that task some milliseconds
later. The result of such a task is therefore put before the launch that takes its slot; otherwise the time
that the driver waited for it would count as scheduling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.diagnose.log.application import ApplicationLog, Batch, Column
from penstock.diagnose.trace.events import Activity, Work

DRIVER = "driver"
START_UP = (Activity.PROCESSING, Work(DRIVER, "start-up"))
PROGRAM = (Activity.PROCESSING, Work(DRIVER, "program"))
PLANNING = (Activity.SCHEDULING, Work(DRIVER, "query planning"))
SUBMISSION = (Activity.SCHEDULING, Work(DRIVER, "stage submission"))
BARRIER = (Activity.BARRIER, Work(DRIVER, "stage barrier"))
RESULTS = (Activity.PROCESSING, Work(DRIVER, "result handling"))
EXECUTOR_START = (Activity.IO, Work(DRIVER, "executor start"))
TRIGGER_WAIT = (Activity.IO, Work(DRIVER, "trigger wait"))
WAITING = (Activity.WAITING, Work(DRIVER, "waiting for tasks"))
COLD_BATCH = (Activity.PROCESSING, Work(DRIVER, "first batch"))
# The log has no task where there must have been one.
LOST = (Activity.UNKNOWN, Work(DRIVER, "lost"))
# What the driver did before a mark while a job is active.
INSIDE_JOB = {
    "result": WAITING,
    "stage submitted": SUBMISSION,
    "stage completed": BARRIER,
    "job end": BARRIER,
    "job start": PLANNING,
    "executor added": EXECUTOR_START,
}
# The phases of a micro-batch before and after its jobs, in Spark's order.
# Before Spark 3 asking the source for its newest offsets had other names.
_SOURCE = (Activity.IO, Work(DRIVER, "source offsets"))
BEFORE_JOBS = (
    *((name, _SOURCE) for name in ("setOffsetRange", "getEndOffset", "getOffset", "latestOffset")),
    ("walCommit", (Activity.IO, Work(DRIVER, "offset log"))),
    ("getBatch", (Activity.IO, Work(DRIVER, "offsets"))),
    ("queryPlanning", PLANNING),
)
AFTER_JOBS = (
    ("commitBatch", (Activity.IO, Work(DRIVER, "commit log"))),
    ("commitOffsets", (Activity.IO, Work(DRIVER, "commit log"))),
)
# A phase of a run's first batch is a cold start if it takes this many times the median of the later ones.
COLD_RATIO, COLD_LEAST_MS, COLD_LEAST_BATCHES = 3.0, 500.0, 2
# No task is shorter: a message needs time to travel, and the log counts in milliseconds.
SHORTEST_TASK_US = 10
_NEVER = 1 << 62

Label = tuple[Activity, Work]


class Mark(NamedTuple):
    """A point on the driver's timeline; `subject` is a task, `label` names the span that a phase ends."""

    time_ms: int
    line: int
    kind: str
    subject: int = -1
    label: Label | None = None


@dataclass(frozen=True, slots=True)
class DriverActivity:
    """An activity of the driver."""

    start_us: int
    end_us: int
    label: Label


@dataclass(frozen=True, slots=True)
class DriverTimeline:
    """The driver's activities without gaps, and when it launched each task and got the result (-1: never)."""

    activities: tuple[DriverActivity, ...]
    launch_us: Column
    finish_us: Column
    end_us: int


def build_driver_timeline(log: ApplicationLog, operators: Sequence[str]) -> DriverTimeline:
    """Return the driver's timeline, no two marks at the same microsecond; `operators` has each task's."""
    sweep = _Sweep(log, operators)
    for mark in sorted(_collect_marks(log)):
        sweep.take(mark)
    return sweep.to_timeline()


def _collect_marks(log: ApplicationLog) -> Iterator[Mark]:
    tasks = log.tasks
    times = (tasks[name].tolist() for name in ("launch", "started", "finish", "ended"))
    for task, (launch, started, finish, ended) in enumerate(zip(*times, strict=True)):
        yield Mark(launch, started, "launch", task)
        if finish >= 0:
            yield Mark(finish, ended, "result", task)
    for job in log.jobs.values():
        yield Mark(job.started, job.line, "job start", int(bool(job.query)))
        if job.ended >= 0:
            yield Mark(job.ended, job.ended_at_line, "job end")
    with_tasks = set(np.unique(tasks["stage"]).tolist())
    for stage in log.stages.values():
        if stage.submitted >= 0:
            yield Mark(stage.submitted, stage.submitted_at_line, "stage submitted")
        if stage.completed >= 0:
            known = int(stage.stage in with_tasks)
            yield Mark(stage.completed, stage.completed_at_line, "stage completed", known)
    for execution in log.executions:
        yield Mark(execution.started, execution.line, "execution start")
        if execution.ended >= 0:
            yield Mark(execution.ended, execution.ended_at_line, "execution end")
    for executor in log.executors.values():
        if executor.added >= 0:
            yield Mark(executor.added, executor.line, "executor added")
    yield from _mark_batches(log.batches)
    yield Mark(log.end, log.lines + 1, "end")


def _mark_batches(batches: Sequence[Batch]) -> Iterator[Mark]:
    cold = {batch.line: phases for batch, phases in find_cold_phases(batches)}
    seen: set[str] = set()
    for batch in batches:
        before = PROGRAM if batch.run not in seen else TRIGGER_WAIT
        yield from _mark_batch(batch, before, cold.get(batch.line, frozenset()))
        seen.add(batch.run)


def find_cold_phases(batches: Sequence[Batch]) -> Iterator[tuple[Batch, frozenset[str]]]:
    """Yield the first batch of each run with the phases that took far longer than in its later batches."""
    runs: dict[str, list[Batch]] = {}
    for batch in batches:
        runs.setdefault(batch.run, []).append(batch)
    for first, *others in runs.values():
        # a trigger that found nothing to do tells nothing about the cost of a batch
        later = [batch for batch in others if "addBatch" in batch.phases] or others
        if len(later) < COLD_LEAST_BATCHES:
            continue
        usual = {
            name: float(np.median([one.phases.get(name, 0.0) for one in later])) for name in first.phases
        }
        yield (
            first,
            frozenset(
                name
                for name, length in first.phases.items()
                if length > COLD_RATIO * usual[name] and length - usual[name] >= COLD_LEAST_MS
            ),
        )


def _mark_batch(batch: Batch, before: Label, cold: frozenset[str]) -> Iterator[Mark]:
    at = float(batch.start)
    yield Mark(batch.start, batch.line, "phase", 0, before)
    for name, label in BEFORE_JOBS:
        at += batch.phases.get(name, 0.0)
        if batch.phases.get(name):
            yield Mark(int(at), batch.line, "phase", 1, COLD_BATCH if name in cold else label)
    tail = [
        (batch.phases.get(name, 0.0), COLD_BATCH if name in cold else label) for name, label in AFTER_JOBS
    ]
    begins = batch.start + batch.milliseconds - sum(length for length, _ in tail)
    if begins > at:
        yield Mark(int(begins), batch.line, "phase", 2, RESULTS)
    for length, label in tail:
        begins += length
        if length:
            yield Mark(int(begins), batch.line, "phase", 3, label)


class _Sweep:
    """A pass over the marks in order that names the span before each."""

    def __init__(self, log: ApplicationLog, operators: Sequence[str]) -> None:
        tasks = log.tasks
        labels = {name: (Activity.SCHEDULING, Work(name, "task launch")) for name in set(operators)}
        self._launching = [labels[name] for name in operators]
        self._noted: list[int] = tasks["finish"].tolist()
        # a task is over once its measured time has passed at the earliest; without metrics that is unknown
        busy = tasks["deserialise"] + tasks["run"] + tasks["result_serialise"]
        # a result that the driver fetches arrives when the fetch is done, even if the slot is taken by then
        ends = (busy > 0) & (tasks["finish"] >= 0) & (tasks["getting_result"] <= 0)
        self._over: list[int] = np.where(ends, tasks["launch"] + busy, _NEVER).tolist()
        self._executor: list[int] = tasks["executor"].tolist()
        known = (log.executors.get(name) for name in tasks.executors)
        self._room = [executor.cores if executor and executor.cores else _NEVER for executor in known]
        self._has_executors = any(one.removed < 0 for one in log.executors.values())
        self._there: list[set[int]] = [set() for _ in tasks.executors]
        # lists: numpy takes longer to store one value
        self._launch, self._finish = [-1] * len(tasks), [-1] * len(tasks)
        self._clock = self._begun = log.start * 1000
        self._jobs = self._executions = 0
        self._done: list[DriverActivity] = []

    def take(self, mark: Mark) -> None:
        if mark.kind == "launch":
            self._make_room(mark)
        elif mark.kind == "result" and self._finish[mark.subject] >= 0:
            return  # taken before the launch that reused its slot
        at = max(mark.time_ms * 1000, self._clock + 1)
        if mark.kind == "result":
            at = max(at, self._launch[mark.subject] + SHORTEST_TASK_US)
            self._finish[mark.subject] = at
            self._there[self._executor[mark.subject]].discard(mark.subject)
        elif mark.kind == "launch":
            self._launch[mark.subject] = at
            self._there[self._executor[mark.subject]].add(mark.subject)
        self._clock = at
        label = self._label(mark)
        if label:
            self._end_span(at, label)
        self._jobs += (mark.kind == "job start") - (mark.kind == "job end")
        self._executions += (mark.kind == "execution start") - (mark.kind == "execution end")

    def _make_room(self, launch: Mark) -> None:
        """Take the result of the task whose slot this launch reuses, where its end was logged later."""
        executor = self._executor[launch.subject]
        there = self._there[executor]
        if len(there) < self._room[executor]:
            return
        over = [task for task in there if self._over[task] <= launch.time_ms <= self._noted[task]]
        if over:
            first = min(over, key=lambda task: self._noted[task])
            self.take(Mark(launch.time_ms, launch.line, "result", first))

    def _label(self, mark: Mark) -> Label | None:
        """Return what the driver did before this mark, or None if the mark does not end it."""
        if mark.kind == "launch":
            return self._launching[mark.subject]
        if mark.kind == "end":
            return PROGRAM if self._jobs <= 0 else self._label_unfinished_job()
        if mark.kind == "stage completed" and not mark.subject and self._jobs > 0:
            return LOST
        return INSIDE_JOB.get(mark.kind) if self._jobs > 0 else self._label_between_jobs(mark)

    def _label_unfinished_job(self) -> Label:
        """Return what the driver does at the end of a log that ends within a job."""
        if any(self._there):
            return WAITING
        # nobody works for the driver to wait for: without a task the job waits for an executor
        return LOST if self._has_executors else EXECUTOR_START

    def _label_between_jobs(self, mark: Mark) -> Label | None:
        if mark.kind == "phase":
            return mark.label
        if mark.kind == "job start":
            return PLANNING if self._executions > 0 or mark.subject else PROGRAM
        if mark.kind == "executor added" and not self._done:
            return START_UP
        return {"execution start": PROGRAM, "execution end": RESULTS}.get(mark.kind)

    def _end_span(self, at: int, label: Label) -> None:
        if self._done and self._done[-1].label == label:
            self._done[-1] = DriverActivity(self._done[-1].start_us, at, label)
        else:
            self._done.append(DriverActivity(self._begun, at, label))
        self._begun = at

    def to_timeline(self) -> DriverTimeline:
        launch, finish = (np.array(times, dtype=np.int64) for times in (self._launch, self._finish))
        return DriverTimeline(tuple(self._done), launch, finish, self._clock)
