"""Where a rate may be some seconds ahead, and the rate that is exceeded with a stated risk only.

Local linear trends of different haste are weighed by how they did. Each is a Kalman filter of a level and its
slope (Harvey, Forecasting, Structural Time Series Models and the Kalman Filter, 1989, section 2.3.2; Holt's
exponential smoothing is its steady state). One believes that levels hardly move, another that they jump. All
are asked, and each counts by how likely it found the last readings; none is ever dropped.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.decide.ahead.season import Season
from penstock.decide.ds2.slot_sizing import MOST_RECORDS

HASTES = (
    *((1e-4, 5e-7), (3e-4, 3e-6), (1e-3, 2e-5), (3e-3, 1e-4), (3e-3, 5e-4)),
    *((2e-3, 0.0), (6e-3, 0.0), (2e-2, 0.0), (1e-1, 0.0)),
)
"""Of each filter, relative to the level: how far the level strays in a second, and the slope; deviations."""
_HASTES = np.array(HASTES)
MEMORY = 0.985
"""The share of its weight that a reading keeps when another one comes: some 60 count."""
LEAST_WEIGHT = 1e-5
"""Far below any risk that is taken: a way that was wrong is heard again as soon as it is right."""
FARTHEST = 3.0
"""Nothing is expected to be more than so many times the level: a trend does not go on for ever."""
LEAST_NOISE = 1e-3
FIRST_NOISE = 0.05
NOISE_MEMORY = 0.98
LEAST_RATE = 1e-9
HALVINGS = 40
ALIKE = 1.2
"""Rates that scatter by so many times the noise of other readings are taken to be measured no better."""
ABSURD, OLD = "the reading cannot be right", "the window is no newer than the last"
"""Why a reading was not taken."""
LONGEST_GAP = 30.0
"""Windows without a reading after which a trend begins anew: it would be drawn through nothing."""


@dataclass(slots=True)
class RateTrend:
    """The rate of one source, by readings of whole windows."""

    levels: Floats = field(default_factory=lambda: np.zeros(len(HASTES)))
    slopes: Floats = field(default_factory=lambda: np.zeros(len(HASTES)))
    spread: Floats = field(default_factory=lambda: np.zeros((len(HASTES), 3)))
    """Of each filter the variances of level and slope, and between them their covariance."""
    logs: Floats = field(default_factory=lambda: np.zeros(len(HASTES)))
    noise: float = FIRST_NOISE
    """Standard deviation of a reading, relative."""
    readings: int = 0
    _last: tuple[float, ...] = ()
    _squared: float = FIRST_NOISE**2
    _middle: float = 0.0

    def take(self, start: float, end: float, rate: float) -> None:
        """Learn from the mean rate of a window, which is that of its middle."""
        middle, rate = (start + end) / 2, max(rate, LEAST_RATE)
        if not self.readings:
            self.levels[:] = rate
            self.spread[:] = np.array([rate**2, 0.0, (1e-3 * rate) ** 2])
        else:
            self._correct(max(1e-3, middle - self._middle), rate)
        self._measure_noise(rate)
        self._middle, self.readings = middle, self.readings + 1

    def _correct(self, seconds: float, rate: float) -> None:
        self._pass_time(seconds)
        scale = np.maximum(np.abs(self.levels), LEAST_RATE)
        uncertain = (self.noise * scale) ** 2
        expected = self.spread[:, 0] + uncertain
        missed = rate - self.levels
        likely = -0.5 * (np.log(expected) + missed**2 / expected)
        self.logs = np.maximum(MEMORY * self.logs + likely - likely.max(), math.log(LEAST_WEIGHT) * 2)
        self.logs -= self.logs.max()
        gain, turn = self.spread[:, 0] / expected, self.spread[:, 1] / expected
        self.levels = np.maximum(LEAST_RATE, self.levels + gain * missed)
        self.slopes = self.slopes + turn * missed
        own, both, slope = self.spread.T
        self.spread = np.column_stack([(1 - gain) * own, (1 - gain) * both, slope - turn * both])

    def _pass_time(self, seconds: float) -> None:
        later = self._grow(np.full(1, seconds))
        self.levels = np.maximum(LEAST_RATE, self.levels + self.slopes * seconds)
        self.spread = np.column_stack(later)

    def _grow(self, seconds: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the variance of the level so many seconds later, its covariance, and that of the slope."""
        own, both, slope = self.spread.T
        strays, turns = (_HASTES * self.levels[:, np.newaxis]).T ** 2
        return (
            own + 2 * seconds * both + seconds**2 * slope + strays * seconds + turns * seconds**3 / 3,
            both + seconds * slope + turns * seconds**2 / 2,
            slope + turns * seconds,
        )

    def _measure_noise(self, rate: float) -> None:
        """Measure how far readings scatter about a line through their neighbours, jumps aside."""
        self._last = (*self._last, rate)[-3:]
        if len(self._last) < 3:
            return
        first, second, third = self._last
        bend = (first - 2 * second + third) / max(second, LEAST_RATE)
        # three independent readings bend by six times the variance of one; a jump is no noise
        squared = min(bend**2 / 6, 9 * self._squared)
        self._squared = NOISE_MEMORY * self._squared + (1 - NOISE_MEMORY) * squared
        self.noise = max(LEAST_NOISE, math.sqrt(self._squared))

    @property
    def weights(self) -> Floats:
        """How much each filter counts."""
        weights: Floats = np.maximum(np.exp(self.logs), LEAST_WEIGHT)
        weights /= weights.sum()
        return weights

    @property
    def level(self) -> float:
        """The present rate, by all filters together."""
        return float(self.weights @ self.levels)

    @property
    def slope(self) -> float:
        """By how much the rate grows in a second, by all filters together."""
        return float(self.weights @ self.slopes)

    def expect(self, moments: Floats) -> tuple[Floats, Floats, Floats]:
        """Return weights, and for each moment the mean rate by each filter and its standard deviation."""
        seconds = np.maximum(0.0, moments - self._middle)[:, np.newaxis]
        far = np.clip(self.levels + self.slopes * seconds, self.levels / FARTHEST, self.levels * FARTHEST)
        return self.weights, far, np.sqrt(self._grow(seconds)[0])


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
        from scipy.special import ndtri  # takes longer to load than all policies, and only this one needs it

        # a season that comes with so large a chance is exceeded with the rest of the risk
        deviation = expected * math.hypot(self.season.error, others)
        beyond = float(ndtri(1 - min(0.5, risk / belief)))
        return max(found, expected + beyond * deviation if belief > risk else 0.0)


def find_quantile(weights: Floats, means: Floats, deviations: Floats, risk: float) -> float:
    """Return what a mixture of normal distributions exceeds so often; every row has the same weights."""
    from scipy.special import ndtr  # takes longer to load than all policies, and only this one needs it

    deviations = np.maximum(deviations, 1e-12)
    low, high = 0.0, float((means + 8 * deviations).max())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = float((ndtr((means - middle) / deviations) @ weights).sum())
        low, high = (middle, high) if above > risk else (low, middle)
    return high
