"""Turn an application's log into a trace: driver, slots and shuffle servers as workers, with messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.diagnose.log.application import ApplicationLog, Column, SparkJob, Stage, StageKey
from penstock.diagnose.log.plans import expand_chain
from penstock.diagnose.trace.driver_timeline import (
    DRIVER,
    DriverActivity,
    DriverTimeline,
    build_driver_timeline,
)
from penstock.diagnose.trace.events import Activity, Kind, Trace, Work
from penstock.diagnose.trace.slot_timeline import FETCH, PHASES, SlotTimelines, build_slot_timelines

# A reduce task fetches from at most this many executors in the trace, those that hold most of its input.
SERVERS_PER_FETCH = 4
# A task has two control messages and, when it fetches, a request and an answer for each server.
MESSAGES_PER_TASK = 2 + 2 * SERVERS_PER_FETCH
_TYPES: dict[str, Any] = {
    "worker": np.int32, "kind": np.uint8, "activity": np.uint8, "remote": np.int32, "work": np.int32,
}  # fmt: skip


class _Events:
    """A collection of events as columns; `order` puts those of one instant in causal order."""

    def __init__(self) -> None:
        self.parts: dict[str, list[npt.NDArray[np.int64]]] = defaultdict(list)
        self.works: dict[Work, int] = {Work(): 0}

    def add_work(self, work: Work) -> int:
        return self.works.setdefault(work, len(self.works))

    def add(self, time: Column, worker: npt.ArrayLike, kind: Kind, activity: npt.ArrayLike, order: int,
            work: npt.ArrayLike = 0, remote: npt.ArrayLike = -1,
            correlation: npt.ArrayLike = 0) -> None:  # fmt: skip
        given = {
            "time_us": time, "worker": worker, "kind": kind, "activity": activity, "order": order,
            "work": work, "remote": remote, "correlation": correlation,
        }  # fmt: skip
        for name, values in given.items():
            self.parts[name].append(np.broadcast_to(np.asarray(values, dtype=np.int64), time.shape))

    def to_trace(self, workers: tuple[str, ...]) -> Trace:
        columns = {name: np.concatenate(parts) for name, parts in self.parts.items()}
        place = np.lexsort((columns["order"], columns["time_us"]))
        ordered = {n: c[place].astype(_TYPES.get(n, np.int64)) for n, c in columns.items() if n != "order"}
        return Trace(**ordered, workers=workers, works=tuple(self.works))


@dataclass(frozen=True, slots=True)
class LogTimelines:
    """The timelines of driver and slots, from which the trace of any part of an application is made."""

    log: ApplicationLog
    names: tuple[str, ...]
    driver: DriverTimeline
    slots: SlotTimelines
    holders: Mapping[StageKey, list[int]]

    @property
    def warnings(self) -> dict[str, int]:
        """Counts of what had to be repaired or could not be read."""
        return dict(self.log.warnings) | self.slots.warnings

    def build_trace(self, rows: Column | None = None, doing: slice = slice(None)) -> Trace:
        """Return the trace of these tasks and activities of the driver, by default of all."""
        rows = np.arange(len(self.log.tasks)) if rows is None else rows
        events = _Events()
        _add_driver_events(events, self.driver.activities[doing])
        _add_control_messages(events, self, rows)
        _add_phases(events, self, rows)
        _add_data_messages(events, self, rows)
        servers = tuple(f"executor {name} shuffle" for name in self.log.tasks.executors)
        return events.to_trace((DRIVER, *self.slots.slots, *servers))


def build_timelines(log: ApplicationLog, names: Mapping[StageKey, str] | None = None) -> LogTimelines:
    """Return the timelines of an application; `names` replaces the operator names of its stages."""
    operators = name_operators(log) if names is None else names
    keys = zip(log.tasks["stage"].tolist(), log.tasks["attempt"].tolist(), strict=True)
    task_names = tuple(operators.get(key, f"stage {key[0]}") for key in keys)
    driver = build_driver_timeline(log, task_names)
    return LogTimelines(log, task_names, driver, build_slot_timelines(log, driver), _find_holders(log))


def _add_driver_events(events: _Events, activities: Sequence[DriverActivity]) -> None:
    works = np.array([events.add_work(doing.label[1]) for doing in activities], dtype=np.int64)
    types = np.array([doing.label[0] for doing in activities], dtype=np.int64)
    starts = np.array([doing.start_us for doing in activities], dtype=np.int64)
    ends = np.array([doing.end_us for doing in activities], dtype=np.int64)
    events.add(starts, 0, Kind.START, types, 30, works)
    events.add(ends, 0, Kind.END, types, 10, works)


def _add_control_messages(events: _Events, lines: LogTimelines, rows: Column) -> None:
    """Add the launch of each task from the driver to its slot, and the result back."""
    driver, slots, control = lines.driver, lines.slots, Activity.CONTROL_MESSAGE
    launch = events.add_work(Work("", "task launch"))
    worker, number = slots.slot[rows] + 1, rows * MESSAGES_PER_TASK
    events.add(driver.launch_us[rows], 0, Kind.SEND, control, 20, launch, worker, number)
    events.add(slots.begin_us[rows], worker, Kind.RECEIVE, control, 0, launch, 0, number)
    ended = rows[driver.finish_us[rows] >= 0]
    # the driver fetches a result that is too large for the message: then data travels
    kind = np.where(lines.log.tasks["getting_result"][ended] > 0, Activity.DATA_MESSAGE, control)
    result, worker, number = (
        events.add_work(Work("", "task result")),
        slots.slot[ended] + 1,
        ended * MESSAGES_PER_TASK + 1,
    )
    events.add(slots.done_us[ended], worker, Kind.SEND, kind, 1000, result, 0, number)
    events.add(driver.finish_us[ended], 0, Kind.RECEIVE, kind, 20, result, worker, number)


def _add_phases(events: _Events, lines: LogTimelines, rows: Column) -> None:
    slots = lines.slots
    distinct, codes = np.unique(
        np.array([lines.names[row] for row in rows.tolist()], dtype=str), return_inverse=True
    )
    for place, (phase, activity) in enumerate(PHASES):
        works = np.array([events.add_work(Work(str(name), phase)) for name in distinct], dtype=np.int64)
        begins, ends = slots.bounds[rows, place], slots.bounds[rows, place + 1]
        some = np.nonzero(ends > begins)[0]
        if len(some):
            for time, kind, order in ((begins, Kind.START, 15), (ends, Kind.END, 18)):
                worker = slots.slot[rows[some]] + 1
                events.add(time[some], worker, kind, activity, 10 * place + order, works[codes[some]])


def _add_data_messages(events: _Events, lines: LogTimelines, rows: Column) -> None:
    """Add requests and answers between a reduce task that waits for its input and the executors with it."""
    slots = lines.slots
    begins, ends = slots.bounds[:, FETCH], slots.bounds[:, FETCH + 1]
    fetching = rows[ends[rows] > begins[rows] + 3]
    numbers = {name: events.add_work(Work(name, "shuffle fetch")) for name in _name_tasks(lines, fetching)}
    asked_of = [
        (task, server, place, numbers[lines.names[task]])
        for task, servers in zip(fetching.tolist(), _choose_servers(lines, fetching), strict=True)
        for place, server in enumerate(servers)
    ]
    if not asked_of:
        return
    tasks, asking, places, works = (
        np.array(column, dtype=np.int64) for column in zip(*asked_of, strict=True)
    )
    slot, server = slots.slot[tasks] + 1, asking + 1 + len(slots.slots)
    question = tasks * MESSAGES_PER_TASK + 2 + 2 * places
    asked, got = begins[tasks], ends[tasks]
    control, data, order = Activity.CONTROL_MESSAGE, Activity.DATA_MESSAGE, 10 * FETCH
    events.add(asked, slot, Kind.SEND, control, order + 12, works, server, question)
    events.add(asked + 1, server, Kind.RECEIVE, control, 0, works, slot, question)
    events.add(asked + 2, server, Kind.SEND, data, 1, works, slot, question + 1)
    events.add(got, slot, Kind.RECEIVE, data, order + 19, works, server, question + 1)


def _name_tasks(lines: LogTimelines, rows: Column) -> dict[str, None]:
    """Return the operators of these tasks, each once, in order."""
    return dict.fromkeys(lines.names[row] for row in rows.tolist())


def _choose_servers(lines: LogTimelines, rows: Column) -> Iterator[list[int]]:
    """Yield the executors that each task fetches from, those that hold most of its input."""
    tasks, chosen = lines.log.tasks, dict[tuple[int, int, int, bool], list[int]]()
    names = ("stage", "attempt", "executor", "remote_bytes")
    for stage, attempt, own, remote in zip(*(tasks[name][rows].tolist() for name in names), strict=True):
        key = (stage, attempt, own, bool(remote))
        if key not in chosen:
            held = lines.holders.get((stage, attempt), [])
            fitting = [server for server in held if (server != own) == bool(remote)]
            chosen[key] = fitting[:SERVERS_PER_FETCH] or [own]
        yield chosen[key]


def _find_holders(log: ApplicationLog) -> dict[StageKey, list[int]]:
    """Return for each stage the executors that hold output of its parents, most bytes first."""
    written: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    tasks = log.tasks
    for stage, executor, size in zip(
        tasks["stage"].tolist(),
        tasks["executor"].tolist(),
        tasks["shuffle_written_bytes"].tolist(),
        strict=True,
    ):
        if size:
            written[stage][executor] += size
    that_ran = {stage.rdd: stage.stage for stage in log.stages.values() if stage.stage in written}
    found = {}
    for key, stage in log.stages.items():
        sizes: dict[int, int] = defaultdict(int)
        for parent in stage.parents:
            known = log.stages.get((parent, 0))
            # a skipped stage reuses the output of an earlier one that computed the same
            ran = that_ran.get(known.rdd, parent) if known and parent not in written else parent
            for executor, size in written.get(ran, {}).items():
                sizes[executor] += size
        found[key] = sorted(sizes, key=lambda executor: -sizes[executor])
    return found


def name_operators(log: ApplicationLog) -> dict[StageKey, str]:
    """Return the operator of every stage attempt: the same from batch to batch, another for each stage."""
    owners: dict[int, SparkJob] = {}
    for job in log.jobs.values():
        for stage in job.stages:
            owners.setdefault(stage, job)
    scopes = {one.execution: one.scopes for one in log.executions}
    named = {}
    for key, one in log.stages.items():
        owner = owners.get(key[0])
        named[key] = _name_stage(log, one, owner, scopes.get(owner.execution, {}) if owner else {})
    return named


def _name_stage(log: ApplicationLog, stage: Stage, job: SparkJob | None, scopes: Mapping[str, str]) -> str:
    what = expand_chain(stage.chain, scopes) or stage.name or "stage"
    if job is None or not job.query:
        return f"stage {stage.stage}: {what}"
    # stage ids rise from batch to batch; the place among the stages of a job does not
    place = sorted(job.stages).index(stage.stage) + 1
    return f"{log.query_names.get(job.query, job.query[:8])} {place}: {what}"
