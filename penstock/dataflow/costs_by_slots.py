"""Costs on any number of slots, from those on the slot counts that were seen."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from penstock.dataflow.costs import QueryCosts, StageCost

MOST_EXTRAPOLATION = 2.0
"""Beyond the slot counts seen, a cost is at most doubled or halved: a line is a guess out there."""

NEAR_SLOTS_RATIO = 0.2
"""Slot counts within a fifth of each other say little about a trend: noise would make its slope."""


class CostsBySlots:
    """Costs for any slot count, from those seen: as fitted there, on a line between and beyond them."""

    def __init__(self, fits: Mapping[int, QueryCosts]) -> None:
        """`fits` in the order in which they were seen, the newest last."""
        self._newest = list(fits.values())[-1]
        self._stages = {stage.operator: stage for fit in fits.values() for stage in fit.stages}
        counts = sorted(fits)
        self._serial = _Curve([(slots, fits[slots].per_batch_seconds) for slots in counts])
        self._stretch = _Curve([(slots, fits[slots].stretch) for slots in counts], has_trend=False)
        seen = {
            name: [(slots, stage) for slots in counts if (stage := fits[slots].stage(name)) is not None]
            for name in self._stages
        }
        self._per_task = {n: _Curve([(c, s.per_task_seconds) for c, s in at]) for n, at in seen.items()}
        self._per_record = {n: _Curve([(c, s.per_record_seconds) for c, s in at]) for n, at in seen.items()}
        self._changes = len(fits) > 1
        self._built: dict[int, QueryCosts] = {}

    @property
    def newest(self) -> QueryCosts:
        """The costs on the slot count that ran last."""
        return self._newest

    def costs_for(self, slots: int) -> QueryCosts:
        """Costs expected on so many slots; tasks, shares and selectivity are the newest seen."""
        if not self._changes:
            return self._newest
        if slots not in self._built:
            self._built[slots] = self._build(slots)
        return self._built[slots]

    def _build(self, slots: int) -> QueryCosts:
        stages = tuple(self._stage_on(stage, slots) for stage in self._stages.values())
        serial, stretch = self._serial.at(slots), self._stretch.at(slots)
        return QueryCosts(serial, stages, slots, self._newest.error_ratio, stretch)

    def _stage_on(self, stage: StageCost, slots: int) -> StageCost:
        name = stage.operator
        return replace(
            stage,
            per_task_seconds=self._per_task[name].at(slots),
            per_record_seconds=self._per_record[name].at(slots),
        )


class _Curve:
    """One cost over slot counts: linear between those seen, bounded beyond, never falling outwards."""

    def __init__(self, points: Sequence[tuple[int, float]], has_trend: bool = True) -> None:
        self._slots = [float(slots) for slots, _ in points]
        self._values = [value for _, value in points]
        self._trend = _trend(self._slots, self._values) if has_trend else 0.0

    def at(self, slots: int) -> float:
        """The cost on so many slots."""
        right = bisect_left(self._slots, slots)
        if right == len(self._slots):
            return self._beyond(-1, slots)
        if right == 0 or self._slots[right] == slots:
            return self._beyond(right, slots)
        left = right - 1
        part = (slots - self._slots[left]) / (self._slots[right] - self._slots[left])
        return (1 - part) * self._values[left] + part * self._values[right]

    def _beyond(self, end: int, slots: int) -> float:
        value = self._values[end]
        guess = value + self._trend * (slots - self._slots[end])
        return min(value * MOST_EXTRAPOLATION, max(value / MOST_EXTRAPOLATION, guess))


def _trend(slots: Sequence[float], values: Sequence[float]) -> float:
    """How a cost grows per slot; more slots never make a task cheaper, so it is at least zero."""
    if len(slots) < 2:
        return 0.0
    x, y = np.array(slots), np.array(values)
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    span, near = float(x[-1] - x[0]), NEAR_SLOTS_RATIO * float(x.mean())
    return max(0.0, slope) * span * span / (span * span + near * near)
