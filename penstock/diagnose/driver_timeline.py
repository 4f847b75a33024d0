"""What the driver did, from the marks that the event log has of it.

Every span between two marks is named by the mark that ends it, because that is what the driver was busy with:
before a result arrives it waits, before a launch it schedules, after the last result of a stage it passes a
barrier. Without an active job it runs the program, plans, or goes through the phases of a micro-batch.

Spark gives a slot on as soon as it hears that its task is over, and notes the end of that task some
milliseconds later. So the result of a task that is over lies before the launch that takes its slot: what the
driver waited for would be called scheduling otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.diagnose.application_log import ApplicationLog, Batch, Column, StageKey
from penstock.diagnose.trace import Activity, Work

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
# The phases of a micro-batch before and after its jobs, in the order in which Spark goes through them.
BEFORE_JOBS = (
    ("latestOffset", (Activity.IO, Work(DRIVER, "offsets"))),
    ("walCommit", (Activity.IO, Work(DRIVER, "offset log"))),
    ("getBatch", (Activity.IO, Work(DRIVER, "offsets"))),
    ("queryPlanning", PLANNING),
)
AFTER_JOBS = (
    ("commitBatch", (Activity.IO, Work(DRIVER, "commit log"))),
    ("commitOffsets", (Activity.IO, Work(DRIVER, "commit log"))),
)
# A message needs time to travel, and the log counts in milliseconds: no task is shorter than this.
SHORTEST_TASK_US = 10
_NEVER = 1 << 62

Label = tuple[Activity, Work]


class Mark(NamedTuple):
    """A point on the driver's timeline; `subject` is a task, `label` names the span before a phase's end."""

    time_ms: int
    line: int
    kind: str
    subject: int = -1
    label: Label | None = None


@dataclass(frozen=True, slots=True)
class Doing:
    """One activity of the driver."""

    start_us: int
    end_us: int
    label: Label


@dataclass(frozen=True, slots=True)
class DriverTimeline:
    """The driver's activities without gaps, and when it launched each task and got its result (-1: never)."""

    activities: tuple[Doing, ...]
    launch_us: Column
    finish_us: Column
    end_us: int


def driver_timeline(log: ApplicationLog, operators: dict[StageKey, str]) -> DriverTimeline:
    """The driver's timeline, whose marks are all at different microseconds."""
    sweep = _Sweep(log, operators)
    for mark in sorted(_marks(log)):
        sweep.take(mark)
    return sweep.timeline()


def _marks(log: ApplicationLog) -> Iterator[Mark]:
    tasks = log.tasks
    for task in range(len(tasks)):
        yield Mark(int(tasks["launch"][task]), int(tasks["started"][task]), "launch", task)
        if tasks["finish"][task] >= 0:
            yield Mark(int(tasks["finish"][task]), int(tasks["ended"][task]), "result", task)
    for job in log.jobs.values():
        yield Mark(job.started, job.line, "job start", int(bool(job.query)))
        if job.ended >= 0:
            yield Mark(job.ended, job.ended_at_line, "job end")
    for stage in log.stages.values():
        if stage.submitted >= 0:
            yield Mark(stage.submitted, stage.submitted_at_line, "stage submitted")
        if stage.completed >= 0:
            yield Mark(stage.completed, stage.completed_at_line, "stage completed")
    for execution in log.executions:
        yield Mark(execution.started, execution.line, "execution start")
        if execution.ended >= 0:
            yield Mark(execution.ended, execution.ended_at_line, "execution end")
    for executor in log.executors.values():
        if executor.added >= 0:
            yield Mark(executor.added, executor.line, "executor added")
    seen: set[str] = set()
    for batch in log.batches:
        yield from _batch_marks(batch, PROGRAM if batch.run not in seen else TRIGGER_WAIT)
        seen.add(batch.run)
    yield Mark(log.end, log.lines + 1, "end")


def _batch_marks(batch: Batch, before: Label) -> Iterator[Mark]:
    at = float(batch.start)
    yield Mark(batch.start, batch.line, "phase", 0, before)
    for name, label in BEFORE_JOBS:
        at += batch.phases.get(name, 0.0)
        if batch.phases.get(name):
            yield Mark(int(at), batch.line, "phase", 1, label)
    end = batch.start + batch.phases.get("triggerExecution", 0.0)
    tail = [(batch.phases.get(name, 0.0), label) for name, label in AFTER_JOBS]
    begins = end - sum(length for length, _ in tail)
    if begins > at:
        yield Mark(int(begins), batch.line, "phase", 2, RESULTS)
    for length, label in tail:
        begins += length
        if length:
            yield Mark(int(begins), batch.line, "phase", 3, label)


class _Sweep:
    """Goes over the marks in order and names the span before each."""

    def __init__(self, log: ApplicationLog, operators: dict[StageKey, str]) -> None:
        tasks = log.tasks
        names = [operators.get(key, f"stage {key[0]}") for key in _keys(log)]
        self._launching = [(Activity.SCHEDULING, Work(name, "task launch")) for name in names]
        self._noted: list[int] = tasks["finish"].tolist()
        # no task is over before what was measured of it has passed; nothing is known of one without measures
        busy = tasks["deserialise"] + tasks["run"] + tasks["result_serialise"]
        # a result that the driver fetches is there only when that is done, whoever has the slot
        ends = (busy > 0) & (tasks["finish"] >= 0) & (tasks["getting_result"] <= 0)
        self._over: list[int] = np.where(ends, tasks["launch"] + busy, _NEVER).tolist()
        self._executor: list[int] = tasks["executor"].tolist()
        known = (log.executors.get(name) for name in tasks.executors)
        self._room = [executor.cores if executor and executor.cores else _NEVER for executor in known]
        self._there: list[set[int]] = [set() for _ in tasks.executors]
        self._launch = np.full(len(tasks), -1, dtype=np.int64)
        self._finish = np.full(len(tasks), -1, dtype=np.int64)
        self._clock = self._begun = log.start * 1000
        self._jobs = self._executions = 0
        self._done: list[Doing] = []

    def take(self, mark: Mark) -> None:
        if mark.kind == "launch":
            self._make_room(mark)
        elif mark.kind == "result" and self._finish[mark.subject] >= 0:
            return  # its slot was given on before
        at = max(mark.time_ms * 1000, self._clock + 1)
        if mark.kind == "result":
            at = max(at, int(self._launch[mark.subject]) + SHORTEST_TASK_US)
            self._finish[mark.subject] = at
            self._there[self._executor[mark.subject]].discard(mark.subject)
        elif mark.kind == "launch":
            self._launch[mark.subject] = at
            self._there[self._executor[mark.subject]].add(mark.subject)
        self._clock = at
        label = self._label(mark)
        if label:
            self._name(at, label)
        self._jobs += (mark.kind == "job start") - (mark.kind == "job end")
        self._executions += (mark.kind == "execution start") - (mark.kind == "execution end")

    def _make_room(self, launch: Mark) -> None:
        """Takes the result of the task whose slot this launch is given, where its end was noted later."""
        executor = self._executor[launch.subject]
        there = self._there[executor]
        if len(there) < self._room[executor]:
            return
        over = [task for task in there if self._over[task] <= launch.time_ms <= self._noted[task]]
        if over:
            first = min(over, key=lambda task: self._noted[task])
            self.take(Mark(launch.time_ms, launch.line, "result", first))

    def _label(self, mark: Mark) -> Label | None:
        """What the driver did before this mark; nothing when the mark does not end what it did."""
        if mark.kind == "launch":
            return self._launching[mark.subject]
        if mark.kind == "end":
            return PROGRAM if self._jobs <= 0 else WAITING
        return self._inside_job(mark) if self._jobs > 0 else self._between_jobs(mark)

    def _inside_job(self, mark: Mark) -> Label | None:
        return {
            "result": WAITING,
            "stage submitted": SUBMISSION,
            "stage completed": BARRIER,
            "job end": BARRIER,
            "job start": PLANNING,
            "executor added": EXECUTOR_START,
        }.get(mark.kind)

    def _between_jobs(self, mark: Mark) -> Label | None:
        if mark.kind == "phase":
            return mark.label
        if mark.kind == "job start":
            return PLANNING if self._executions > 0 or mark.subject else PROGRAM
        if mark.kind == "executor added" and not self._done:
            return START_UP
        return {"execution start": PROGRAM, "execution end": RESULTS}.get(mark.kind)

    def _name(self, at: int, label: Label) -> None:
        if self._done and self._done[-1].label == label:
            self._done[-1] = Doing(self._done[-1].start_us, at, label)
        else:
            self._done.append(Doing(self._begun, at, label))
        self._begun = at

    def timeline(self) -> DriverTimeline:
        return DriverTimeline(tuple(self._done), self._launch, self._finish, self._clock)


def _keys(log: ApplicationLog) -> list[StageKey]:
    stages, attempts = log.tasks["stage"].tolist(), log.tasks["attempt"].tolist()
    return list(zip(stages, attempts, strict=True))
