"""What a run left behind, reduced to the figures of a benchmark; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

STEP_SECONDS = 0.1
"""Rates change by whole seconds, so this keeps the error of the backlog's integral far below a record."""


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """One finished batch: when it began, how long it took, and the records read in all once it had begun."""

    start: float
    seconds: float
    records: int
    records_read: int

    @property
    def end(self) -> float:
        """When it was committed."""
        return self.start + self.seconds


@dataclass(frozen=True, slots=True)
class SlotsSeen:
    """How many slots were held at a moment; they hold until the next sample."""

    at: float
    slots: int


def slot_seconds(samples: Sequence[SlotsSeen], start: float, end: float) -> float:
    """Slots held, integrated over start … end."""
    closed = [*samples, SlotsSeen(max(end, samples[-1].at), samples[-1].slots)]
    return sum(
        before.slots * max(0.0, min(after.at, end) - max(before.at, start))
        for before, after in pairwise(closed)
    )


def backlog_record_seconds(
    batches: Sequence[BatchSeen], offered: Callable[[float], float], start: float, end: float
) -> float:
    """Records offered and not yet read, integrated over start … end.

    A batch reads its records when it begins, so what waits meanwhile grows until the next one begins.
    """
    times = np.arange(start, end, STEP_SECONDS) + STEP_SECONDS / 2
    begun = np.array([batch.start for batch in batches])
    read = np.array([0, *(batch.records_read for batch in batches)])
    seen = read[np.searchsorted(begun, times, side="right")]
    waiting = np.array([offered(time) for time in times]) - seen
    return float(np.maximum(waiting, 0.0).sum() * STEP_SECONDS)


def size_changes(samples: Sequence[SlotsSeen], together_seconds: float) -> list[SlotsSeen]:
    """The sizes that were reached; changes that follow each other so quickly count as one."""
    changes: list[SlotsSeen] = []
    last_change = float("-inf")
    for before, after in pairwise(samples):
        if after.slots == before.slots:
            continue
        if after.at - last_change <= together_seconds:
            changes[-1] = after
        else:
            changes.append(after)
        last_change = after.at
    return changes


def slots_at(samples: Sequence[SlotsSeen], moment: float) -> int:
    """What was held at the moment."""
    return [sample.slots for sample in samples if sample.at <= moment][-1]


def settled_batch_seconds(
    batches: Sequence[BatchSeen], after: float, until: float, records: float, tolerance: float = 0.15
) -> float | None:
    """The median time of batches of the ordinary size that ran wholly in the span; None if there was none.

    Batches that work off a backlog are larger, and say nothing about the steady state.
    """
    ordinary = [
        batch.seconds
        for batch in batches
        if batch.start >= after and batch.end <= until and abs(batch.records - records) <= tolerance * records
    ]
    return median(ordinary) if ordinary else None
