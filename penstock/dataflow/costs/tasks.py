"""How many tasks a stage has for a batch of another size or on other slots, and how records spread over them.

Most stages have as many tasks as there are partitions, whatever a batch holds. A scan of files has one task
for each file, packed together until there are no more tasks than slots; partitions that adapt to the data
follow the number of records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.metrics import Floats

MOST_TASKS = 2000
"""A stage with more tasks is not kept: each task's share of the records is a number."""

NEAR_SLOTS = 0.1
"""Relative: Spark packs files by size, so the tasks of a scan come to the number of slots only nearly."""

PACKED = 1.25
"""Times as many files as tasks that show that files were packed together."""

GOLDEN = (math.sqrt(5) - 1) / 2
"""Steps of this fraction visit sorted values in an order without a trend, the same in every run."""


@dataclass(frozen=True, slots=True)
class TaskGrowth:
    """The law by which the tasks of a stage follow its input: one for so many records.

    Tasks that are `bounded_by_slots` are packed together until each slot has one.
    """

    records_per_task: float
    bounded_by_slots: bool = False

    def tasks_for(self, records: float, slots: int) -> int:
        """Return the tasks of a batch with so many records on so many slots; at least one."""
        wanted = max(1, math.ceil(min(records / self.records_per_task, MOST_TASKS) - 1e-9))
        # Spark's default parallelism is two at the least
        return min(wanted, max(2, slots)) if self.bounded_by_slots else wanted


@dataclass(frozen=True, slots=True)
class SeenTasks:
    """The tasks of a stage in one batch, beside what they may follow; `files` is None without any."""

    tasks: int
    records: float
    slots: int
    files: int | None = None

    @property
    def is_at_slots(self) -> bool:
        """Whether there were about as many tasks as slots."""
        return abs(self.tasks - self.slots) <= max(1.0, NEAR_SLOTS * self.slots)


def fit_growth(seen: Sequence[SeenTasks]) -> TaskGrowth | None:
    """Fit how tasks follow the input; None where their number does not change with it."""
    telling = [one for one in seen if one.records > 0 and one.tasks > 0]
    if not telling:
        return None
    packed = [one for one in telling if one.files is not None and one.files >= PACKED * one.tasks]
    if len({one.tasks for one in telling}) == 1 and not any(one.is_at_slots for one in packed):
        return None
    bounded = any(one.is_at_slots for one in packed)
    free = [one for one in telling if not (bounded and one.is_at_slots)] or telling
    if bounded and all(one.files is not None for one in telling):
        units = [one.records / max(1, one.files or 1) for one in telling]
    else:
        units = [one.records / one.tasks for one in free]
    return TaskGrowth(float(np.median(units)), bounded)


def spread_shares(shares: Floats, tasks: int) -> Floats:
    """Spread records over another number of tasks as unevenly as over those seen."""
    if len(shares) == tasks:
        return shares
    sizes = np.sort(shares)
    at = (np.arange(tasks) * GOLDEN + 0.5) % 1.0
    picked: Floats = np.interp(at, (np.arange(len(sizes)) + 0.5) / len(sizes), sizes)
    whole = float(picked.sum())
    return picked / whole if whole > 0 else np.full(tasks, 1.0 / tasks)
