"""How long a batch lasts on so many slots, and the least slots that keep it short enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.dataflow.costs import QueryCosts, StageCost
from penstock.dataflow.makespan import makespan
from penstock.dataflow.metrics import Floats

__all__ = ["SlotNeed", "batch_seconds", "least_slots", "makespan", "stage_seconds"]

NEARLY_BEST = 1.02
"""Where no size is enough, slots that shorten the batch by less than 2 % are not worth having."""

SLACK = 1e-9
"""Relative: a batch that fits exactly must not fail on the last bit of a sum."""


@dataclass(frozen=True, slots=True)
class SlotNeed:
    """The least slots that suffice, or, where none do, the least that come within 2 % of the best.

    `limiting` is the longest stage if more slots than these (than any, where none suffice) would not
    shorten it, since all its tasks run at once already.
    """

    slots: int
    batch_seconds: float
    limiting: str | None
    feasible: bool


def stage_seconds(stage: StageCost, records: float, slots: int) -> float:
    """Seconds that one stage takes for so many records."""
    return makespan(stage.task_seconds(records), stage.usable_slots(slots))


def batch_seconds(
    costs: QueryCosts, input_rates: Mapping[str, float], period_seconds: float, slots: int
) -> float:
    """Seconds of a batch that holds what arrives in one period."""
    return costs.per_batch_seconds + costs.stretch * sum(
        stage_seconds(stage, input_rates[stage.operator] * period_seconds, slots) for stage in costs.stages
    )


def least_slots(
    costs_for: Callable[[int], QueryCosts],
    input_rates: Mapping[str, float],
    period_seconds: float,
    utilisation: float,
    max_slots: int,
) -> SlotNeed:
    """Search upwards for the least slots whose batch takes at most that share of its period.

    Interference can make a batch longer with more slots, so no step can be halved; a cheap lower bound
    spares most of the exact evaluations.
    """
    search = _Search(costs_for, input_rates, period_seconds, _most_useful(costs_for(1), max_slots))
    limit = utilisation * period_seconds * (1 + SLACK)
    found = search.first(lambda slots: search.is_within(slots, limit) and search.carries(slots))
    if found is not None:
        return search.need(found, feasible=True)
    near = search.shortest() * NEARLY_BEST
    best = search.first(lambda slots: search.is_within(slots, near))
    return search.need(best or search.most, feasible=False)


def _most_useful(costs: QueryCosts, max_slots: int) -> int:
    """Beyond the task count of the largest stage a slot has nothing to do."""
    return max(1, min(max_slots, max((stage.tasks for stage in costs.stages), default=1)))


class _Search:
    """One search over slot counts 1 … most, for fixed rates and period."""

    def __init__(
        self,
        costs_for: Callable[[int], QueryCosts],
        input_rates: Mapping[str, float],
        period_seconds: float,
        most: int,
    ) -> None:
        self.most = most
        self._costs_for = costs_for
        self._rates = input_rates
        self._period = period_seconds
        self._extremes: dict[int, tuple[Floats, float, float]] = {}

    def exact(self, slots: int) -> float:
        """Predicted seconds of the batch."""
        return batch_seconds(self._costs_for(slots), self._rates, self._period, slots)

    def first(self, suits: Callable[[int], bool]) -> int | None:
        """The least slots that suit."""
        return next((slots for slots in range(1, self.most + 1) if suits(slots)), None)

    def is_within(self, slots: int, limit: float) -> bool:
        """Whether the batch takes no longer than the limit."""
        return self._at_least(slots) <= limit and self.exact(slots) <= limit

    def carries(self, slots: int) -> bool:
        """Whether the slots can do the work per record at all: S ≥ Σ bᵢ·rᵢ."""
        work = sum(s.per_record_seconds * self._rates[s.operator] for s in self._costs_for(slots).stages)
        return work <= slots * (1 + SLACK)

    def shortest(self) -> float:
        """Seconds of the shortest batch that any slot count gives."""
        best = self.exact(self.most)
        for slots in range(self.most - 1, 0, -1):
            if self._at_least(slots) < best:
                best = min(best, self.exact(slots))
        return best

    def need(self, slots: int, feasible: bool) -> SlotNeed:
        """The answer, with the stage that limits it."""
        limiting = self._limiting(slots if feasible else self.most)
        return SlotNeed(slots, self.exact(slots), limiting, feasible)

    def _limiting(self, slots: int) -> str | None:
        stages = self._costs_for(slots).stages
        longest = max(
            stages, key=lambda stage: stage_seconds(stage, self._records(stage), slots), default=None
        )
        if longest is None or min(longest.tasks, longest.usable_slots(slots + 1)) > slots:
            return None
        return longest.operator

    def _records(self, stage: StageCost) -> float:
        return self._rates[stage.operator] * self._period

    def _at_least(self, slots: int) -> float:
        """A lower bound of the batch's seconds, without scheduling any task."""
        costs = self._costs_for(slots)
        in_stages = sum(self._stage_at_least(stage, slots) for stage in costs.stages)
        return (costs.per_batch_seconds + costs.stretch * in_stages) * (1 - SLACK)

    def _stage_at_least(self, stage: StageCost, slots: int) -> float:
        """The most of: work spread evenly, the longest task, and the waves times the shortest task."""
        records, usable = self._records(stage), stage.usable_slots(slots)
        smallest, largest = self._extreme_shares(stage)
        per_record = stage.per_record_seconds * records
        waves = math.ceil(stage.tasks / usable)
        return max(
            stage.slot_seconds_at(records) / usable,
            stage.per_task_seconds + per_record * largest,
            waves * (stage.per_task_seconds + per_record * smallest),
        )

    def _extreme_shares(self, stage: StageCost) -> tuple[float, float]:
        # the array is kept beside its extremes, so that its identity cannot pass to another one
        key = id(stage.shares)
        if key not in self._extremes:
            self._extremes[key] = stage.shares, float(stage.shares.min()), float(stage.shares.max())
        return self._extremes[key][1:]
