"""An application's log as a trace: driver, slots and shuffle servers as workers, joined by messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.diagnose.application_log import ApplicationLog, Column, StageKey
from penstock.diagnose.driver_timeline import DRIVER, DriverTimeline, driver_timeline
from penstock.diagnose.operators import operator_names
from penstock.diagnose.slot_timeline import FETCH, PHASES, SlotTimelines, slot_timelines
from penstock.diagnose.trace import Activity, Kind, Trace, Work

# A reduce task asks at most this many executors in the graph, those that hold most of its input.
SERVERS_PER_FETCH = 4
# A task has two control messages and, when it fetches, a question and an answer per server.
MESSAGES_PER_TASK = 2 + 2 * SERVERS_PER_FETCH


@dataclass(frozen=True, slots=True)
class LogTrace:
    """The trace of one application, and what had to be repaired on the way."""

    trace: Trace
    warnings: dict[str, int]


class _Events:
    """Collects columns of events; `order` puts those of one instant and worker in causal order."""

    def __init__(self) -> None:
        self.parts: dict[str, list[npt.NDArray[np.int64]]] = defaultdict(list)
        self.works: dict[Work, int] = {Work(): 0}

    def work(self, work: Work) -> int:
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

    def trace(self, workers: tuple[str, ...]) -> Trace:
        columns = {name: np.concatenate(parts) for name, parts in self.parts.items()}
        place = np.lexsort((columns["order"], columns["time_us"]))
        types = {
            "worker": np.int32,
            "kind": np.uint8,
            "activity": np.uint8,
            "remote": np.int32,
            "work": np.int32,
        }
        ordered = {n: c[place].astype(types.get(n, np.int64)) for n, c in columns.items() if n != "order"}
        return Trace(**ordered, workers=workers, works=tuple(self.works))


def trace_of_log(log: ApplicationLog, names: Mapping[StageKey, str] | None = None) -> LogTrace:
    """The trace of an application, with the rules of the timelines and every message between them.

    Operators are named by the plan nodes of their stages, unless `names` tells other names.
    """
    operators = operator_names(log) if names is None else dict(names)
    driver = driver_timeline(log, operators)
    slots = slot_timelines(log, driver)
    keys = zip(log.tasks["stage"].tolist(), log.tasks["attempt"].tolist(), strict=True)
    task_names = [operators.get(key, f"stage {key[0]}") for key in keys]
    events = _Events()
    _driver_events(events, driver)
    _control_messages(events, log, driver, slots)
    _phases(events, slots, task_names)
    servers = tuple(f"executor {name} shuffle" for name in log.tasks.executors)
    _data_messages(events, log, slots, task_names)
    trace = events.trace((DRIVER, *slots.slots, *servers))
    return LogTrace(trace, dict(log.warnings) | slots.warnings)


def _driver_events(events: _Events, driver: DriverTimeline) -> None:
    works = np.array([events.work(doing.label[1]) for doing in driver.activities], dtype=np.int64)
    types = np.array([doing.label[0] for doing in driver.activities], dtype=np.int64)
    starts = np.array([doing.start_us for doing in driver.activities], dtype=np.int64)
    ends = np.array([doing.end_us for doing in driver.activities], dtype=np.int64)
    events.add(starts, 0, Kind.START, types, 30, works)
    events.add(ends, 0, Kind.END, types, 10, works)


def _control_messages(
    events: _Events, log: ApplicationLog, driver: DriverTimeline, slots: SlotTimelines
) -> None:
    """The launch of each task from the driver to its slot, and the result back."""
    control, number = Activity.CONTROL_MESSAGE, np.arange(len(log.tasks)) * MESSAGES_PER_TASK
    worker = slots.slot + 1
    launch = events.work(Work("", "task launch"))
    events.add(driver.launch_us, 0, Kind.SEND, control, 20, launch, worker, number)
    events.add(slots.begin_us, worker, Kind.RECEIVE, control, 0, launch, 0, number)
    ended = np.nonzero(driver.finish_us >= 0)[0]
    # A result too large for the message is fetched by the driver: then data travels, not word of the end.
    kind = np.where(log.tasks["getting_result"][ended] > 0, Activity.DATA_MESSAGE, control)
    result, number = events.work(Work("", "task result")), number[ended] + 1
    events.add(slots.done_us[ended], worker[ended], Kind.SEND, kind, 1000, result, 0, number)
    events.add(driver.finish_us[ended], 0, Kind.RECEIVE, kind, 20, result, worker[ended], number)


def _phases(events: _Events, slots: SlotTimelines, names: list[str]) -> None:
    distinct, codes = np.unique(np.array(names, dtype=object).astype(str), return_inverse=True)
    for place, (phase, activity) in enumerate(PHASES):
        works = np.array([events.work(Work(str(name), phase)) for name in distinct], dtype=np.int64)
        begins, ends = slots.bounds[:, place], slots.bounds[:, place + 1]
        some = np.nonzero(ends > begins)[0]
        if len(some):
            for time, kind, order in ((begins, Kind.START, 15), (ends, Kind.END, 18)):
                events.add(
                    time[some], slots.slot[some] + 1, kind, activity, 10 * place + order, works[codes[some]]
                )


def _data_messages(events: _Events, log: ApplicationLog, slots: SlotTimelines, names: list[str]) -> None:
    """A reduce task that waits for its input asks the executors that hold it, and each answers with data."""
    begins, ends = slots.bounds[:, FETCH], slots.bounds[:, FETCH + 1]
    holders = _holders(log)
    rows: list[tuple[int, int, int, int]] = []
    for task in np.nonzero(ends > begins + 3)[0].tolist():
        held = holders.get((int(log.tasks["stage"][task]), int(log.tasks["attempt"][task])), [])
        own, is_remote = int(log.tasks["executor"][task]), bool(log.tasks["remote_bytes"][task])
        servers = [server for server in held if (server != own) == is_remote][:SERVERS_PER_FETCH] or [own]
        rows.extend((task, server, place, events.work(Work(names[task], "shuffle fetch")))
                    for place, server in enumerate(servers))  # fmt: skip
    if not rows:
        return
    tasks, asking, places, works = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    slot, server = slots.slot[tasks] + 1, asking + 1 + len(slots.slots)
    question = tasks * MESSAGES_PER_TASK + 2 + 2 * places
    asked, got = begins[tasks], ends[tasks]
    control, data, order = Activity.CONTROL_MESSAGE, Activity.DATA_MESSAGE, 10 * FETCH
    events.add(asked, slot, Kind.SEND, control, order + 12, works, server, question)
    events.add(asked + 1, server, Kind.RECEIVE, control, 0, works, slot, question)
    events.add(asked + 2, server, Kind.SEND, data, 1, works, slot, question + 1)
    events.add(got, slot, Kind.RECEIVE, data, order + 19, works, server, question + 1)


def _holders(log: ApplicationLog) -> dict[tuple[int, int], list[int]]:
    """For each stage the executors that hold output of its parents, those with most bytes first."""
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
    found = {}
    for key, stage in log.stages.items():
        sizes: dict[int, int] = defaultdict(int)
        for parent in stage.parents:
            for executor, size in written.get(parent, {}).items():
                sizes[executor] += size
        found[key] = sorted(sizes, key=lambda executor: -sizes[executor])
    return found
