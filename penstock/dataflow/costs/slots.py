"""The costs on any number of slots, and the least slots that keep a batch short enough."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from penstock.dataflow.costs.model import (
    QueryCosts,
    StageCost,
    batch_seconds,
    stage_seconds,
    stretch_stage,
)
from penstock.dataflow.costs.tasks import spread_shares
from penstock.dataflow.metrics import Floats

MOST_EXTRAPOLATION = 2.0
"""Beyond the slot counts seen, a cost is at most doubled or halved: a line is a guess out there."""

NEAR_SLOTS_RATIO = 0.2
"""Slot counts within a fifth of each other say little about a trend: noise would make its slope."""

LEAST_GAIN = 0.05
"""Where no size is enough, an executor that shortens the batch by a smaller share is not worth having."""

MOST_ROUNDS = 20
"""Rounds in which the length of a batch that holds all that came during the last one is sought."""

SLACK = 1e-9
"""Relative: a batch that fits exactly must not fail on the last bit of a sum."""


class CostsBySlots:
    """Costs for any slot count: as fitted where it was seen, on a line between and beyond those."""

    def __init__(self, fits: Mapping[int, QueryCosts]) -> None:
        """Take `fits` in the order in which they were seen, the newest last."""
        self.fits = tuple(fits.values())
        self._newest = self.fits[-1]
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
        self.sizes = tuple(counts)
        """The slot counts at which costs were seen, rising."""
        self.most_seen = counts[-1]
        """The largest slot count at which costs were seen."""
        self._changes = len(fits) > 1
        self._built: dict[int, QueryCosts] = {}

    @property
    def newest(self) -> QueryCosts:
        """The costs on the slot count that ran last."""
        return self._newest

    def costs_for(self, slots: int) -> QueryCosts:
        """Return the costs expected on so many slots; tasks, shares and selectivity are the newest seen."""
        if not self._changes:
            return self._newest
        if slots not in self._built:
            self._built[slots] = self._build(slots)
        return self._built[slots]

    def _build(self, slots: int) -> QueryCosts:
        stages = tuple(self._stage_on(stage, slots) for stage in self._stages.values())
        serial, stretch = self._serial.at(slots), self._stretch.at(slots)
        return QueryCosts(serial, stages, slots, self._newest.error_ratio, stretch, self._newest.listing)

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
        self._trend = _fit_trend(self._slots, self._values) if has_trend else 0.0

    def at(self, slots: int) -> float:
        """Return the cost on so many slots."""
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


def _fit_trend(slots: Sequence[float], values: Sequence[float]) -> float:
    """Fit the growth of a cost per slot; more slots never make a task cheaper, so it is at least zero."""
    if len(slots) < 2:
        return 0.0
    x, y = np.array(slots), np.array(values)
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    span, near = float(x[-1] - x[0]), NEAR_SLOTS_RATIO * float(x.mean())
    return max(0.0, slope) * span * span / (span * span + near * near)


@dataclass(frozen=True, slots=True)
class SlotNeed:
    """The least slots that suffice or, where none do, those beyond which another executor gains little.

    `batch_seconds` is the batch on these slots; where it outlasts its period, the length that it settles at.
    `limiting` is the longest stage if more slots would not shorten it, since all its tasks run at once.
    """

    slots: int
    batch_seconds: float
    limiting: str | None
    feasible: bool


def least_slots(
    costs_for: Callable[[int], QueryCosts],
    input_rates: Mapping[str, float],
    period_seconds: float,
    utilisation: float,
    max_slots: int,
    slots_per_executor: int = 1,
) -> SlotNeed:
    """Search upwards for the least slots that fit a batch at the rates / utilisation into the period.

    The headroom is for more records: costs of a batch and of its tasks do not grow with them. Interference
    can make a batch longer with more slots, so bisection would not do. A cheap lower bound spares most of
    the exact evaluations.
    """
    search = _Search(costs_for, input_rates, period_seconds, max_slots)
    ample = {operator: rate / utilisation for operator, rate in input_rates.items()}
    raised = _Search(costs_for, ample, period_seconds, max_slots)
    limit = period_seconds * (1 + SLACK)
    found = raised.first(lambda slots: raised.is_within(slots, limit) and search.carries(slots))
    if found is not None:
        return SlotNeed(found, search.exact(found), search.limiting(found), feasible=True)
    best = search.find_knee(max(1, slots_per_executor))
    return SlotNeed(best, search.settle(best)[1], search.limiting(search.most), feasible=False)


def settled_batch_seconds(
    costs: QueryCosts, input_rates: Mapping[str, float], period_seconds: float, slots: int
) -> float:
    """Predict the length at which batches settle that hold what came during the one before.

    A batch that outlasts its trigger interval is followed at once by one with more records. Lengths settle
    at P = h + k · Σᵢ makespan(rᵢ · P), if the slots carry the rate at all; otherwise batches grow for ever.
    """
    seconds = batch_seconds(costs, input_rates, period_seconds, slots)
    if seconds <= period_seconds:
        return seconds
    fixed = batch_seconds(costs, dict.fromkeys(input_rates, 0.0), period_seconds, slots)
    length = seconds
    for _ in range(MOST_ROUNDS):
        slope = (batch_seconds(costs, input_rates, length, slots) - fixed) / length
        if slope >= 1:
            return math.inf
        settled, length = length, max(period_seconds, fixed / (1 - slope))
        if math.isclose(settled, length, rel_tol=1e-3):
            break
    return length


def predict_batch(
    costs: QueryCosts, input_rates: Mapping[str, float], period_seconds: float, slots: int
) -> tuple[bool, float]:
    """Return whether batches grow for ever, and at which seconds they settle, or those of the next one."""
    settled = settled_batch_seconds(costs, input_rates, period_seconds, slots)
    if math.isfinite(settled):
        return False, settled
    return True, batch_seconds(costs, input_rates, period_seconds, slots)


def is_shorter(then: tuple[bool, float], now: tuple[bool, float], factor: float) -> bool:
    """Tell whether batches no longer grow for ever, or last less than so many times what they do now.

    Both are predictions by `predict_batch`: one batch of an endless row is not compared with the length at
    which others settle.
    """
    (endless, seconds), (still_endless, later) = now, then
    return later < seconds * factor if endless == still_endless else endless


class _Search:
    """One search over slot counts 1 … most, for fixed rates and period."""

    def __init__(
        self,
        costs_for: Callable[[int], QueryCosts],
        input_rates: Mapping[str, float],
        period_seconds: float,
        max_slots: int,
    ) -> None:
        self._costs_for = costs_for
        self._rates = input_rates
        self._period = period_seconds
        self._extremes: dict[tuple[int, int], tuple[Floats, float, float]] = {}
        self.most = self._most_useful(max_slots)

    def exact(self, slots: int) -> float:
        """Predict the seconds of the batch."""
        return batch_seconds(self._costs_for(slots), self._rates, self._period, slots)

    def settle(self, slots: int) -> tuple[bool, float]:
        """Predict whether batches grow for ever, and their seconds: of two sizes the lesser is the better."""
        return predict_batch(self._costs_for(slots), self._rates, self._period, slots)

    def first(self, suits: Callable[[int], bool]) -> int | None:
        """Return the least slots that suit."""
        return next((slots for slots in range(1, self.most + 1) if suits(slots)), None)

    def is_within(self, slots: int, limit: float) -> bool:
        """Return whether the batch takes no longer than the limit."""
        return self._at_least(slots) <= limit and self.exact(slots) <= limit

    def carries(self, slots: int) -> bool:
        """Return whether the slots can do the work per record at all: S ≥ Σ bᵢ·rᵢ."""
        work = sum(s.per_record_seconds * self._rates[s.operator] for s in self._costs_for(slots).stages)
        return work <= slots * (1 + SLACK)

    def find_knee(self, step: int) -> int:
        """Return the least slots beyond which no executor brings the least gain any more.

        Gains are compounded, so that a size is passed over for a larger one only if every executor between
        the two brings its part, whatever waves of tasks do on the way.
        """
        ranks = {size: self.settle(size) for size in _list_sizes(step, self.most)}
        for size, now in ranks.items():
            larger = ((then - size) / step for then in ranks if then > size)
            seconds = (rank for then, rank in ranks.items() if then > size)
            if not any(map(partial(_is_worth, now), seconds, larger)):
                return size
        return self.most

    def limiting(self, slots: int) -> str | None:
        """Return the longest stage, if more slots would not shorten it."""
        stages = self._costs_for(slots).stages
        longest = max(
            stages, key=lambda stage: stage_seconds(stage, self._records(stage), slots), default=None
        )
        if longest is None:
            return None
        tasks = longest.tasks_for(self._records(longest), slots + 1)
        return None if min(tasks, longest.usable_slots(slots + 1)) > slots else longest.operator

    def _most_useful(self, max_slots: int) -> int:
        """Bound the slots by the task count of the largest stage: more would have nothing to do."""
        stages = self._costs_for(1).stages
        tasks = [stage.tasks_for(self._records(stage), max_slots) for stage in stages]
        return max(1, min(max_slots, max(tasks, default=1)))

    def _records(self, stage: StageCost) -> float:
        return self._rates[stage.operator] * self._period

    def _at_least(self, slots: int) -> float:
        """Bound the batch's seconds from below, without scheduling any task."""
        costs = self._costs_for(slots)
        in_stages = sum(self._stage_at_least(stage, slots, costs.stretch) for stage in costs.stages)
        return (costs.per_batch_seconds + in_stages) * (1 - SLACK)

    def _stage_at_least(self, stage: StageCost, slots: int, stretch: float) -> float:
        """Take the most of: work spread evenly, the longest task, and the waves times the shortest task."""
        records, usable = self._records(stage), stage.usable_slots(slots)
        tasks = stage.tasks_for(records, slots)
        smallest, largest = self._extreme_shares(stage, tasks)
        per_record = stage.per_record_seconds * records
        waves = math.ceil(tasks / usable)
        longest = stage.per_task_seconds + per_record * largest
        alone = max(
            (tasks * stage.per_task_seconds + per_record) / usable,
            longest,
            waves * (stage.per_task_seconds + per_record * smallest),
        )
        return stretch_stage(alone, longest, stretch)

    def _extreme_shares(self, stage: StageCost, tasks: int) -> tuple[float, float]:
        # the array is kept beside its extremes, so that its identity cannot pass to another one
        key = id(stage.shares), tasks
        if key not in self._extremes:
            shares = spread_shares(stage.shares, tasks)
            self._extremes[key] = stage.shares, float(shares.min()), float(shares.max())
        return self._extremes[key][1:]


def _list_sizes(step: int, most: int) -> list[int]:
    """List whole executors, each of the first and then ever fewer: a batch of a thousand tasks is long."""
    sizes, executors = [], 1
    while executors * step < most:
        sizes.append(executors * step)
        executors += max(1, executors // 16)
    return [*sizes, most]


def _is_worth(now: tuple[bool, float], then: tuple[bool, float], executors: float) -> bool:
    """Tell whether so many executors more each shorten the batch by the least gain, or stop its growth."""
    return is_shorter(then, now, (1 - LEAST_GAIN) ** executors)
