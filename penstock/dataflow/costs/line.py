"""A robust, non-negative line through records and seconds, with the doubt about its slope (pure)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.metrics import Floats, Integers

HUBER_ROUNDS, BISQUARE_ROUNDS = 4, 8
"""Huber first, because it has one minimum; bisquare then forgets far outliers altogether."""

HUBER_BEND, BISQUARE_END = 1.345, 4.685
"""In robust standard deviations: 95 % efficient on clean normal noise, the usual choice for both."""

SMALLEST_SPREAD = 0.01
"""Relative; Spark counts milliseconds, so equal samples must not make every other one an outlier."""

BATCH_NOISE = 0.1
"""Relative error that all tasks of one batch share. Batch times wander by a third on busy cores, so a
few batches of nearly one size say little about the slope, however many tasks they have."""

VANISHING = 1e-12
"""Fewer records or seconds than any counter can show are none: dividing by them would overflow."""

LONGEST = 1e9
"""In medians; a task beyond it is an outlier by any measure, and its square must stay finite."""

TRUSTED_DOUBT, USELESS_DOUBT = 0.1, 0.5
"""Between the two the fitted slope is blended with the assumed one, so that no threshold can flap."""


@dataclass(frozen=True, slots=True)
class Line:
    """A fitted line through its point of gravity, and the doubt about its slope.

    `doubt` is the standard error of slope · mean_records as a share of mean_seconds.
    """

    slope: float
    mean_records: float
    mean_seconds: float
    doubt: float

    @property
    def identified(self) -> bool:
        """Whether fixed and per-record cost could be told apart."""
        return self.doubt <= TRUSTED_DOUBT

    def split(self, known_slope: float | None = None, bound: float = math.inf) -> tuple[float, float]:
        """Split into fixed and per-record seconds, both non-negative and exact at the point of gravity.

        As far as the samples do not tell the two apart, the slope known from elsewhere is taken. Without
        one all cost counts as per record, as in plain DS2, so that a higher rate is never underestimated.
        No slope passes `bound`.
        """
        if self.mean_records <= 0:
            return self.mean_seconds, 0.0
        most = min(self.mean_seconds / self.mean_records, bound)
        assumed = most if known_slope is None else min(known_slope, most)
        trust = _trust(self.doubt)
        slope = min(most, trust * self.slope + (1 - trust) * assumed)
        return max(0.0, self.mean_seconds - slope * self.mean_records), slope


def _trust(doubt: float) -> float:
    return min(1.0, max(0.0, (USELESS_DOUBT - doubt) / (USELESS_DOUBT - TRUSTED_DOUBT)))


def fit_line(records: Floats, seconds: Floats, weight: Floats, group: Integers) -> Line:
    """Fit by iteratively re-weighted least squares over relative errors; `group` is the batch of a sample."""
    seconds_unit = _median(seconds)
    if seconds_unit < VANISHING:
        seconds_unit = float(seconds.mean())
    records_unit = float(records.mean())
    if records_unit < VANISHING:
        return Line(0.0, 0.0, seconds_unit, 0.0)
    if seconds_unit < VANISHING:
        return Line(0.0, records_unit, 0.0, math.inf)
    # in units of their own size, so that neither records nor seconds can overflow or vanish
    x, y = records / records_unit, np.minimum(seconds / seconds_unit, LONGEST)
    intercept, slope, final_weight, spread = _fit_reweighted(x, y, weight)
    mean = float(final_weight @ x / final_weight.sum())
    height = intercept + slope * mean
    if mean < VANISHING or height < VANISHING:
        return Line(0.0, 0.0, height * seconds_unit, 0.0)
    return Line(
        slope=slope * seconds_unit / records_unit,
        mean_records=mean * records_unit,
        mean_seconds=height * seconds_unit,
        doubt=_estimate_doubt(x - mean, intercept + slope * x, final_weight, spread, group) * mean / height,
    )


def _fit_reweighted(x: Floats, y: Floats, weight: Floats) -> tuple[float, float, Floats, float]:
    expected, robust = y, np.ones_like(y)
    spread = SMALLEST_SPREAD
    for number in range(HUBER_ROUNDS + BISQUARE_ROUNDS):
        # noise grows with a task's length, hence relative errors; the unit keeps short tasks in bounds
        scale = expected + 1.0
        current = weight * robust / (scale * scale)
        intercept, slope = _fit_non_negative(x, y, current)
        expected = intercept + slope * x
        error = np.abs(y - expected) / (expected + 1.0)
        spread = max(SMALLEST_SPREAD, 1.4826 * _median(error))
        robust = _huber(error / spread) if number < HUBER_ROUNDS else _bisquare(error / spread)
    return intercept, slope, current, spread


def _median(values: Floats) -> float:
    """Return the median in a fraction of numpy.median's time: a fit asks for a dozen."""
    middle = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, middle)[middle])
    ordered = np.partition(values, (middle - 1, middle))
    return float((ordered[middle - 1] + ordered[middle]) / 2)


def _huber(error: Floats) -> Floats:
    return HUBER_BEND / np.maximum(error, HUBER_BEND)


def _bisquare(error: Floats) -> Floats:
    inside = np.maximum(0.0, 1.0 - np.square(error / BISQUARE_END))
    return inside * inside


def _fit_non_negative(x: Floats, y: Floats, weight: Floats) -> tuple[float, float]:
    """Fit intercept and slope ≥ 0 by weighted least squares, which has a closed form for two unknowns."""
    weighted = weight * x
    total, sum_x, sum_y = float(weight.sum()), float(weighted.sum()), float(weight @ y)
    sum_xx, sum_xy = float(weighted @ x), float(weighted @ y)
    if sum_xx <= 0:
        return sum_y / total, 0.0
    determinant = total * sum_xx - sum_x * sum_x
    if determinant <= 1e-12 * total * sum_xx:
        return 0.0, sum_xy / sum_xx
    slope = (total * sum_xy - sum_x * sum_y) / determinant
    intercept = (sum_y - slope * sum_x) / total
    if intercept >= 0 and slope >= 0:
        return intercept, slope
    # the best of the quarter plane lies on one of its two edges: take the one that explains more
    if sum_xy * sum_xy * total >= sum_y * sum_y * sum_xx:
        return 0.0, sum_xy / sum_xx
    return sum_y / total, 0.0


def _estimate_doubt(
    centred: Floats, expected: Floats, weight: Floats, spread: float, group: Integers
) -> float:
    """Estimate the slope's standard error, from noise of single tasks and noise that a batch shares."""
    pull = weight * centred
    information = float(pull @ centred)
    if information <= 1e-12 * float(weight.sum()):
        return math.inf
    alone = pull * spread * (expected + 1.0)
    shared = np.bincount(group, weights=pull * BATCH_NOISE * expected)
    return math.sqrt(float(alone @ alone) + float(shared @ shared)) / information
