"""How many bins may move in one batch: begin with one, measure what it cost, grow or shrink."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.migrate.migration_settings import MigrationSettings
from penstock.migrate.plan import Strategy

GROWTH = 2
"""At most twice as many bins as were just measured: a cost seen at one bin says little of sixteen."""


@dataclass(frozen=True, slots=True)
class Pace:
    """So many bins may move in the next batch; `cost_seconds` is what one bin was seen to add."""

    bins: int
    most: int
    budget_ratio: float
    cost_seconds: float | None = None

    def budget(self, steady_seconds: float) -> float:
        """How long a batch may take."""
        return self.budget_ratio * steady_seconds


def first_pace(strategy: Strategy, settings: MigrationSettings, moves: int) -> Pace:
    """Fluid feels its way from one bin; the others move what they planned as long as it is bearable."""
    if strategy is Strategy.FLUID:
        return Pace(1, settings.most_bins_per_batch, settings.latency_budget_ratio)
    most = settings.most_bins_per_batch if strategy is Strategy.BATCHED else max(1, moves)
    return Pace(most, most, settings.latency_budget_ratio)


def adapted(pace: Pace, moved: int, seconds: float, steady_seconds: float) -> Pace:
    """The pace after a batch in which so many bins moved.

    Over the budget it falls to half of what was tried, or to what the measured cost allows if that is less.
    Within the budget it rises to what the cost allows, at most twofold.
    """
    if moved <= 0 or steady_seconds <= 0:
        return pace
    cost = max(0.0, seconds - steady_seconds) / moved
    # the mean of old and new: one batch that happened to be quick must not double the pace by itself
    smoothed = cost if pace.cost_seconds is None else (cost + pace.cost_seconds) / 2
    room = pace.budget(steady_seconds) - steady_seconds
    fitting = int(room / smoothed) if smoothed > 0 else pace.most
    if seconds > pace.budget(steady_seconds):
        bins = min(moved // 2, fitting)
    else:
        bins = min(max(fitting, moved), moved * GROWTH)
    return replace(pace, bins=max(1, min(bins, pace.most)), cost_seconds=smoothed)
