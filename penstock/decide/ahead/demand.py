"""The rate that is exceeded with a stated risk only, over the seconds ahead."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr, ndtri

from penstock.dataflow.metrics import Floats
from penstock.decide.ahead.season import Season
from penstock.decide.ahead.trend import FARTHEST, RateTrend
from penstock.decide.ds2.slot_sizing import MOST_RECORDS

HALVINGS = 40
ALIKE = 1.2
"""Rates that scatter by so many times the noise of other readings are taken to be measured no better."""
ABSURD, OLD = "the reading cannot be right", "the window is no newer than the last"
"""Why a reading was not taken."""
LONGEST_GAP = 30.0
"""Windows without a reading after which a trend begins anew: it would be drawn through nothing."""


@dataclass(slots=True)
class SourceDemand:
    """One source: its trend, its season, and what both make of the time ahead."""

    season: Season | None
    trend: RateTrend = field(default_factory=RateTrend)
    _recent: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=64))

    def take(self, start: float, end: float, rate: float, horizon: float) -> str:
        """Learn from a window; say why, where it is of no use."""
        if not (0 <= rate < MOST_RECORDS and end > start):
            return ABSURD
        if self._recent and end <= self._recent[-1][0]:
            return OLD
        aside = ""
        if self._recent and start - self._recent[-1][0] > LONGEST_GAP * (end - start):
            self.trend, aside = RateTrend(), "readings were missing, so the trend begins anew"
        self.trend.take(start, end, rate)
        self._recent.append((end, rate))
        if self.season is not None:
            before = next((old for at, old in reversed(self._recent) if at <= end - horizon), rate)
            self.season.take(end, rate, before)
        return aside

    def quantile(
        self, now: float, moments: Sequence[float], risk: float, others: float, measured: float
    ) -> float:
        """Return the rate that is exceeded in this share of the moments only, by all that may come.

        `others` is the relative deviation of what else is uncertain, such as costs; `measured` is that of a
        reading for which the measurement is to blame: what scatters beyond it is the load itself.
        """
        weights, means, deviations = self.trend.expect(np.array(moments))
        jagged = max(0.0, self.trend.noise**2 - (ALIKE * measured) ** 2)
        spread = np.sqrt(deviations**2 + means**2 * (jagged + others**2))
        level = self.trend.level
        found = min(find_quantile(weights / len(moments), means, spread, risk), FARTHEST * level)
        belief = self.season.belief if self.season is not None else 0.0
        said = [self.season.expect(now, moment, level) for moment in moments] if self.season else []
        expected = max((rate for rate in said if rate is not None), default=0.0)
        if self.season is None or not belief or expected <= level:
            return found
        # a season that comes with so large a chance is exceeded with the rest of the risk
        deviation = expected * math.hypot(self.season.error, others)
        beyond = float(ndtri(1 - min(0.5, risk / belief)))
        return max(found, expected + beyond * deviation if belief > risk else 0.0)


def find_quantile(weights: Floats, means: Floats, deviations: Floats, risk: float) -> float:
    """Return what a mixture of normal distributions exceeds so often; every row has the same weights."""
    deviations = np.maximum(deviations, 1e-12)
    low, high = 0.0, float((means + 8 * deviations).max())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = float((ndtr((means - middle) / deviations) @ weights).sum())
        low, high = (middle, high) if above > risk else (low, middle)
    return high
