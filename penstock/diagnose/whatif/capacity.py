"""The slots of an application as a function of time: executors are added late, removed, or lost."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from penstock.diagnose.log.application import ApplicationLog, Column, Executor


@dataclass(frozen=True, slots=True)
class Capacity:
    """Changes of the number of slots in time order: milliseconds since the epoch, and slots more or less."""

    changes: tuple[tuple[int, int], ...]

    def slots_at(self, time_ms: int) -> int:
        """Return the slots that were there at this time."""
        return sum(slots for at, slots in self.changes if at <= time_ms)

    def find_first_slots(self, from_ms: int) -> int:
        """Return the first time from this one on at which a slot was there; this one if none comes."""
        total = self.slots_at(from_ms)
        for at, slots in self.changes:
            if total > 0:
                break
            if at > from_ms:
                total += slots
                if total > 0:
                    return at
        return from_ms

    def find_most(self, until_ms: int) -> int:
        """Return the most slots that were there at once up to this time."""
        times = sorted({at for at, _ in self.changes if at <= until_ms})
        totals: dict[int, int] = dict.fromkeys(times, 0)
        for at, slots in self.changes:
            if at in totals:
                totals[at] += slots
        return max(accumulate(totals.values()), default=0)

    def integrate(self, start_ms: int, end_ms: int) -> float:
        """Return the slot-seconds between two times."""
        inside = [max(0, end_ms - max(at, start_ms)) * slots for at, slots in self.changes]
        return sum(inside) / 1000


def measure_capacity(log: ApplicationLog) -> Capacity:
    """Return the slots of a log's executors from when each was added to when it was removed.

    Where the log has no cores of an executor, its slots are the most tasks that it ran at once; where it does
    not say when the executor was added, it is there from its first task on.
    """
    names = dict.fromkeys([*log.executors, *log.tasks.executors])
    return Capacity(tuple(sorted(change for name in names for change in measure_executor(log, name)[0])))


def measure_executor(log: ApplicationLog, name: str) -> tuple[tuple[tuple[int, int], ...], Column]:
    """Return when the slots of one executor came and went, and the rows of its tasks."""
    executor, tasks = log.executors.get(name) or Executor(name), log.tasks
    known = name in tasks.executors
    mine = (
        np.nonzero(tasks["executor"] == tasks.executors.index(name))[0] if known else np.array([], np.int64)
    )
    launch, finish = tasks["launch"][mine], tasks["finish"][mine]
    slots = executor.cores // count_task_cores(log) or count_at_once(launch, finish)
    if not slots:
        return (), mine
    begun = [int(launch.min())] if len(mine) else []
    begun += [executor.added] if executor.added >= 0 else []
    changes = [(min(begun, default=log.start), slots)]
    if executor.removed >= 0:
        # the log may tell of the removal before it tells of the last launch
        last = int(launch.max()) + 1 if len(mine) else -1
        changes.append((max(executor.removed, last), -slots))
    return tuple(changes), mine


def count_task_cores(log: ApplicationLog) -> int:
    """Return the cores that a task holds, so that an executor's cores are this many for each slot."""
    return max(1, _read_number(log.properties.get("spark.task.cpus", ""), 1))


def count_at_once(launch: Column, finish: Column) -> int:
    """Return the most tasks that ran at the same time; one that ends as another starts made room for it."""
    ended = finish >= 0
    times = np.concatenate([launch, finish[ended]])
    steps = np.concatenate([np.ones(len(launch), np.int64), -np.ones(int(ended.sum()), np.int64)])
    order = np.lexsort((steps, times))
    return int(np.cumsum(steps[order]).max(initial=0))


def _read_number(text: str, otherwise: int) -> int:
    return int(text) if text.isdecimal() and len(text) < 6 else otherwise
