"""The timelines of executor slots: every task on a slot, in its phases.

The log has lengths of a task's phases, but not when they began on the executor. The rules: half of the
scheduler delay lies before the task (shipping) and half after it (result); phases follow in the order of
`PHASES`; lengths that exceed the task are shortened in proportion. Tasks that overlap on an executor take
different slots, the most recently used free slot first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.diagnose.log.application import FAILED, KILLED, RUNNING, ApplicationLog, Column
from penstock.diagnose.trace.driver_timeline import DriverTimeline
from penstock.diagnose.trace.events import Activity

PHASES: tuple[tuple[str, Activity], ...] = (
    ("deserialise", Activity.SERIALIZATION),
    ("fetch wait", Activity.WAITING),
    ("state load", Activity.IO),
    ("run", Activity.PROCESSING),
    ("gc", Activity.BUFFER),
    ("state commit", Activity.IO),
    ("shuffle write", Activity.BUFFER),
    ("result serialise", Activity.SERIALIZATION),
    ("lost", Activity.UNKNOWN),
)
FETCH, RUN, LOST = 1, 3, 8
# The columns of phases that Spark measures, and the phases that it includes in the run time.
_MEASURED = {
    place: name.replace(" ", "_") for place, (name, _) in enumerate(PHASES) if place not in {RUN, LOST}
}
_INSIDE_RUN = [1, 2, 4, 5, 6]


@dataclass(frozen=True, slots=True)
class SlotTimelines:
    """For each task its slot and the bounds of its phases (one more than there are phases)."""

    slot: Column
    bounds: npt.NDArray[np.int64]
    slots: tuple[str, ...]
    warnings: dict[str, int]

    @property
    def begin_us(self) -> Column:
        """The time at which each task arrived at its slot."""
        return self.bounds[:, 0]

    @property
    def done_us(self) -> Column:
        """The time at which each task sent its result."""
        return self.bounds[:, -1]


def build_slot_timelines(log: ApplicationLog, driver: DriverTimeline) -> SlotTimelines:
    """Place every task on a slot of its executor, in phases."""
    warnings: Counter[str] = Counter()
    finish = np.where(driver.finish_us >= 0, driver.finish_us, driver.end_us + 1)
    lengths = _measure_phases(log, finish - driver.launch_us, warnings)
    begin, done = _place_in_time(log, driver.launch_us, finish, lengths.sum(axis=1))
    slot, names = _assign_slots(log, begin, done, warnings)
    share = np.cumsum(lengths, axis=1) / np.maximum(lengths.sum(axis=1, keepdims=True), 1)
    inner = begin[:, None] + np.rint(share * (done - begin)[:, None]).astype(np.int64)
    return SlotTimelines(slot, np.hstack([begin[:, None], inner]), names, dict(+warnings))


def _measure_phases(log: ApplicationLog, total: Column, warnings: Counter[str]) -> npt.NDArray[np.int64]:
    """Return the microseconds of every phase of every task, none longer than the task."""
    tasks = log.tasks
    lengths = np.zeros((len(tasks), len(PHASES)), dtype=np.int64)
    for place, name in _MEASURED.items():
        lengths[:, place] = np.maximum(tasks[name], 0) * 1000
    run = np.maximum(tasks["run"], 0) * 1000
    inside = lengths[:, _INSIDE_RUN].sum(axis=1)
    beyond = inside > run
    warnings["tasks whose phases are longer than their run"] += int(beyond.sum())
    factor = np.where(beyond, run / np.maximum(inside, 1), 1.0)
    for place in _INSIDE_RUN:
        lengths[:, place] = (lengths[:, place] * factor).astype(np.int64)
    lengths[:, RUN] = np.maximum(run - lengths[:, _INSIDE_RUN].sum(axis=1), 0)
    lost = (lengths.sum(axis=1) == 0) & np.isin(tasks["outcome"], (FAILED, KILLED))
    lengths[lost, LOST] = 1
    lengths[(lengths.sum(axis=1) == 0) | (tasks["outcome"] == RUNNING), RUN] = 1
    too_long = lengths.sum(axis=1) > total + 1000
    warnings["tasks with phases that are longer than the task"] += int(too_long.sum())
    for outcome, reason in (
        (RUNNING, "tasks whose end is not in the log"),
        (FAILED, "tasks that failed"),
        (KILLED, "tasks that were killed"),
    ):
        warnings[reason] += int((tasks["outcome"] == outcome).sum())
    return lengths


def _place_in_time(
    log: ApplicationLog, launch: Column, finish: Column, busy: Column
) -> tuple[Column, Column]:
    """Return when each task began and ended on its slot: time not busy is split into shipping and result."""
    tasks = log.tasks
    fetching = (tasks["getting_result"] > 0) & (tasks["finish"] >= 0)
    getting = np.where(fetching, np.maximum(tasks["finish"] - tasks["getting_result"], 0) * 1000, 0)
    no_metrics = busy <= 1
    delay = np.where(no_metrics, 2, np.maximum(finish - launch - busy - getting, 2))
    begin = launch + np.maximum(delay // 2, 1)
    done = np.maximum(finish - getting - np.maximum(delay - delay // 2, 1), begin + 1)
    done = np.minimum(done, finish - 1)
    return np.minimum(begin, done - 1), done


def _assign_slots(
    log: ApplicationLog, begin: Column, done: Column, warnings: Counter[str]
) -> tuple[Column, tuple[str, ...]]:
    """Give every task a slot; move `begin` where two tasks of a full executor overlap."""
    slot = np.zeros(len(begin), dtype=np.int64)
    names: list[str] = []
    executor = log.tasks["executor"]
    for place, name in enumerate(log.tasks.executors):
        known = log.executors.get(name)
        mine = np.nonzero(executor == place)[0]
        pool = _Pool(known.cores if known else 0)
        for task in mine[np.argsort(begin[mine], kind="stable")].tolist():
            slot[task], begin[task] = pool.take(int(begin[task]), int(done[task]))
        slot[mine] += len(names)
        names.extend(f"executor {name} slot {number}" for number in range(len(pool.free)))
        warnings["overlapping tasks on one slot"] += pool.shifted
        warnings["slots beyond the cores"] += pool.extra
    return slot, tuple(names)


class _Pool:
    """The slots of one executor, and the time at which each is free again."""

    def __init__(self, cores: int) -> None:
        self.free: list[int] = []
        self.shifted = self.extra = 0
        self._cores = cores

    def take(self, begin: int, done: int) -> tuple[int, int]:
        """Return the slot for a task and when it can begin there."""
        usable = [slot for slot, free in enumerate(self.free) if free < begin]
        if usable:
            slot = max(usable, key=lambda number: self.free[number])
        elif self._cores and len(self.free) >= self._cores and min(self.free) < done - 2:
            # the driver reuses a slot before it logs the end of the task before
            slot = min(range(len(self.free)), key=lambda number: self.free[number])
            begin = self.free[slot] + 1
            self.shifted += 1
        else:
            self.extra += bool(self._cores) and len(self.free) >= self._cores
            slot = len(self.free)
            self.free.append(0)
        self.free[slot] = done
        return slot, begin
