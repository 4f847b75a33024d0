"""Where a rate may be some seconds ahead, and the rate that is exceeded with a stated risk only.

Local linear trends of different haste are weighed by how they did. Each is a Kalman filter of a level and its
slope (Harvey, Forecasting, Structural Time Series Models and the Kalman Filter, 1989, section 2.3.2; Holt's
exponential smoothing is its steady state). One believes that levels hardly move, another that they jump. All
are asked, and each counts by how likely it found the last readings; none is ever dropped. A load turns from
calm to hasty and back, and then a filter goes on from where the others are (interacting multiple models, Blom
and Bar-Shalom 1988).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.decide.ahead.season import Season
from penstock.decide.ds2.slot_sizing import MOST_RECORDS
from penstock.decide.forecast.rates import Break, RecentWindows

LEVELS = {3e-4: 1.0, 1e-3: 1.0, 3e-3: 0.3, 1e-2: 0.1, 3e-2: 0.03, 1e-1: 0.01}
SLOPES = {0.0: 1.0, 3e-6: 1.0, 3e-5: 0.3, 3e-4: 0.1, 3e-3: 0.03}
"""How far a level strays in a second, and its slope, relative to it (deviations) → how likely beforehand:
loads that jump are rarer than calm ones. There is a filter for each pair of them; at 0 there is no slope."""
HASTES = np.array(list(product(LEVELS, SLOPES)))
_SLOPED = HASTES[:, 1] > 0
_PRIOR = np.outer(list(LEVELS.values()), list(SLOPES.values())).ravel()
_PRIOR /= _PRIOR.sum()
FILTERS = len(HASTES)
LONGEST_LIFE = 3600.0
LIVES = np.minimum(LONGEST_LIFE, np.min([HASTES[:, 0] ** -2, (HASTES[:, 1] + 1e-9) ** (-2 / 3)], axis=0))
"""Seconds after which a load is expected to have become another one: by then it would be twice as large, and
calm ones change, too."""
HABIT = 360.0
"""Readings that what is usual of all loads counts for, against what this one has been."""
FARTHEST = 3.0
"""Nothing is expected to be more than so many times the level: a trend does not go on for ever."""
LEAST_WEIGHT = 1e-30
LEAST_NOISE = 1e-3
FIRST_NOISE = 0.05
NOISE_MEMORY = 0.98
FIRST_SLOPE = 1e-3
"""By how much a rate may grow in a second, relative, before a second reading: deviation."""
LEAST_RATE = 1e-9
HALVINGS = 40
ALIKE = 1.2
"""Rates that scatter by so many times the noise of other readings are taken to be measured no better."""
ABSURD = Break("the reading cannot be right", usable=False, ends=False)
LONGEST_GAP = 30.0
"""Windows without a reading after which a trend begins anew: it would be drawn through nothing."""
RECENT = 64


@dataclass(slots=True)
class RateTrend:
    """The rate of one source, by readings of whole windows."""

    states: Floats = field(default_factory=lambda: np.zeros((FILTERS, 2)))
    """Of each filter the level and the slope."""
    spread: Floats = field(default_factory=lambda: np.zeros((FILTERS, 3)))
    """Of each filter the variances of level and slope, and between them their covariance."""
    weights: Floats = field(default_factory=_PRIOR.copy)
    """How likely each filter is."""
    usual: Floats = field(default_factory=_PRIOR.copy)
    """How likely each is while nothing is known of the moment: by what this load has been so far."""
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
            self.states[:] = rate, 0.0
            self.spread[:] = np.array([(self.noise * rate) ** 2, 0.0, (FIRST_SLOPE * rate) ** 2])
        else:
            self._correct(max(1e-3, middle - self._middle), rate)
        self._measure_noise(rate)
        self._middle, self.readings = middle, self.readings + 1

    def _correct(self, seconds: float, rate: float) -> None:
        self._turn(seconds)
        self.states[~_SLOPED, 1] = self.spread[~_SLOPED, 1] = self.spread[~_SLOPED, 2] = 0.0
        self._pass_time(seconds)
        levels = self.states[:, 0]
        expected = self.spread[:, 0] + (self.noise * np.maximum(levels, LEAST_RATE)) ** 2
        missed = rate - levels
        likely = np.log(self.weights) - 0.5 * (np.log(expected) + missed**2 / expected)
        weights = np.maximum(np.exp(likely - likely.max()), LEAST_WEIGHT)
        self.weights = weights / weights.sum()
        self.usual += (self.weights - self.usual) / (HABIT + self.readings)
        own, both, slope = self.spread.T
        gain, turn = own / expected, both / expected
        self.states += np.column_stack([gain, turn]) * missed[:, np.newaxis]
        self.states[:, 0] = np.maximum(LEAST_RATE, self.states[:, 0])
        self.spread = np.column_stack([(1 - gain) * own, (1 - gain) * both, slope - turn * both])

    def _turn(self, seconds: float) -> None:
        """Let the load become another one with some likelihood: each filter may go on from where the rest is.

        So a calm filter is soon right again after a jump, which it could not have followed.
        """
        stays = np.exp(-seconds / LIVES)
        weights, turned = self._foresee(seconds), (1 - stays) * self.weights
        own, turned = (stays * self.weights / weights)[:, np.newaxis], turned / turned.sum()
        mean = turned @ self.states
        apart = self.states - mean
        products = np.column_stack([apart[:, 0] ** 2, apart[:, 0] * apart[:, 1], apart[:, 1] ** 2])
        pooled = turned @ (self.spread + products)
        self.states = own * self.states + (1 - own) * mean
        self.spread = own * self.spread + (1 - own) * (pooled + own * products)
        self.weights = weights

    def _foresee(self, seconds: float) -> Floats:
        """Return how likely each filter is so many seconds later."""
        stay = np.exp(-seconds / LIVES) * self.weights
        later: Floats = stay + (1 - stay.sum()) * self.usual
        return later

    def _pass_time(self, seconds: float) -> None:
        later = self._grow(np.full(1, seconds))
        self.states[:, 0] = np.maximum(LEAST_RATE, self.states[:, 0] + self.states[:, 1] * seconds)
        self.spread = np.column_stack(later)

    def _grow(self, seconds: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the variance of the level so many seconds later, its covariance, and that of the slope."""
        own, both, slope = self.spread.T
        strays, turns = (HASTES * self.states[:, :1]).T ** 2
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
    def level(self) -> float:
        """The present rate, by all filters together."""
        return float(self.weights @ self.states[:, 0])

    @property
    def slope(self) -> float:
        """By how much the rate grows in a second, by all filters together."""
        return float(self.weights @ self.states[:, 1])

    def expect(self, moments: Floats) -> tuple[Floats, Floats, Floats]:
        """Return weights, and for each moment the mean rate by each filter and its standard deviation."""
        seconds = np.maximum(0.0, moments - self._middle)[:, np.newaxis]
        levels, slopes = self.states.T
        far = np.clip(levels + slopes * seconds, levels / FARTHEST, levels * FARTHEST)
        return self._foresee(float(seconds.max())), far, np.sqrt(self._grow(seconds)[0])


@dataclass(slots=True)
class SourceDemand:
    """One source: its trend, its season, and what both make of the time ahead."""

    season: Season | None
    trend: RateTrend = field(default_factory=RateTrend)
    _recent: RecentWindows = field(default_factory=lambda: RecentWindows(RECENT, LONGEST_GAP))

    def take(self, start: float, end: float, rate: float, horizon: float) -> Break | None:
        """Learn from a window; say why, where it is of no use or the trend begins anew."""
        if not (0 <= rate < MOST_RECORDS and end > start):
            return ABSURD
        broken = self._recent.find_break(start, end)
        if broken is not None and broken.ends:
            self.trend = RateTrend()
            self._recent.clear()
        if broken is not None and not broken.usable:
            return broken
        if not self._recent and self.season is not None:
            self.season.forget_future(end)
        self.trend.take(start, end, rate)
        self._recent.add(start, end, rate)
        if self.season is not None:
            points = reversed(self._recent.points)
            before = next((old for at, old in points if at <= end - horizon), rate)
            self.season.take(end, rate, before)
        return broken

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
