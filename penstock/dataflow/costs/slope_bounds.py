"""The most that a record can cost, by what recent large batches took in all."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.dataflow.metrics import BatchExecution, StageExecution


@dataclass(frozen=True, slots=True)
class _Seen:
    start: float
    seconds_per_record: float


_Key = tuple[int, str, int]
"""Slots, operator, and the power of two below the records of a task."""


class SlopeBounds:
    """Upper bounds of the seconds per record, slot count by slot count.

    A record costs at most what its task took, divided by the records of the task. Large batches bound it
    closely; small ones, whose tasks cost much beside their records, hardly at all. So a large batch is worth
    keeping in mind after a backlog is read: code that warms up meanwhile makes tasks cheaper as batches get
    smaller, which looks like costly records. The newest batch of each size counts, so a bound that no longer
    holds is lifted by the next batch of that size.
    """

    def __init__(self, forget_after_seconds: float) -> None:
        self._forget_after_seconds = forget_after_seconds
        self._seen: dict[_Key, _Seen] = {}

    def remember(self, batches: Iterable[BatchExecution]) -> None:
        """Take in finished batches in any order; an older one never replaces a newer one."""
        for batch in batches:
            for stage in batch.stages:
                self._take(batch, stage)

    def keep(self, slot_counts: Iterable[int], now: float) -> None:
        """Forget other slot counts, and what is too old."""
        kept, oldest = frozenset(slot_counts), now - self._forget_after_seconds
        self._seen = {
            key: seen for key, seen in self._seen.items() if key[0] in kept and seen.start >= oldest
        }

    def forget(self, slots: int) -> None:
        """Forget what was seen on so many slots: the work has changed."""
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] != slots}

    def find(self, slots: int) -> dict[str, float]:
        """Return the least bound of each operator on so many slots."""
        bounds: dict[str, float] = {}
        for (count, operator, _), seen in self._seen.items():
            if count == slots:
                bounds[operator] = min(bounds.get(operator, math.inf), seen.seconds_per_record)
        return bounds

    def _take(self, batch: BatchExecution, stage: StageExecution) -> None:
        records = float(stage.records_in.sum())
        if not stage.tasks or records < stage.tasks:
            return
        key = batch.slots, stage.operator, math.frexp(records / stage.tasks)[1]
        known = self._seen.get(key)
        if known is None or known.start <= batch.start:
            self._seen[key] = _Seen(batch.start, float(stage.useful_seconds.sum()) / records)
