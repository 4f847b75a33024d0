"""The capacity of an operator at sizes that it never had: bounds by shape, and laws fitted to sizes seen.

Capacity is taken to be monotone and concave in the number of instances: more instances do no less together,
and each further one brings no more than the one before. From that alone every pair of points bounds the rest
of the curve. Laws that fit the points narrow the bounds; where several fit, all that they say is possible.

With n instances, capacity C(n) and t(n) = n / C(n), the time of one instance for a record: Amdahl's law makes
t a line in n, the universal scalability law a parabola, a power law makes log C a line in log n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.dataflow.propagation import ROUNDING_TOLERANCE
from penstock.decide.ds2.capacity import Point

FARTHEST = 4
"""A law is followed up to this many times the largest size seen."""
CAUTIOUS = 2.0
"""Standard errors between a bound and the single points it is drawn through."""
NEARLY_ALL = 0.98
"""Where no size has the capacity needed, this share of the largest capacity is enough."""
LEAST_SIZES = 3
EXACT = 1e-7
"""Relative error of a capacity measured without noise: rounding alone."""
CONFIDENT = 1.0
"""Standard errors between a fitted curve and its edges."""
SURPRISE = 3.0
"""Standard deviations by which the squared residuals of a law may exceed those of noise."""


@dataclass(frozen=True, slots=True, eq=False)
class CapacityBounds:
    """The least and the most capacity of each number of instances."""

    instances: Floats
    low: Floats
    high: Floats


class CapacityCurve:
    """The capacities that one operator may have, by the sizes seen of it."""

    def __init__(self, points: Sequence[Point], noise: float) -> None:
        ordered = sorted(points, key=lambda point: point.size)
        self.sizes = np.array([point.size for point in ordered], dtype=np.float64)
        self.capacity = np.array([point.capacity for point in ordered])
        weight = np.array([point.weight for point in ordered])
        self.error = np.maximum(noise / np.sqrt(weight), EXACT)
        self._noisy = noise > EXACT

    def bounds(self, least: int, most: int) -> CapacityBounds:
        """Bound the capacity of `least` to `most` instances."""
        instances = np.arange(least, most + 1, dtype=np.float64)
        low, high = self._bound_by_shape(instances)
        fits = fit_laws(Evidence(self.sizes, self.capacity, self.error), instances)
        if fits:
            surely = np.min([fit.low for fit in fits], axis=0)
            # A law gives no lower bound outside the sizes seen: one fitted where capacity is flat would say
            # that one instance alone does as much.
            known = (instances >= self.sizes[0]) & (instances <= self.sizes[-1])
            surely = np.where(known, surely, 0.0)
            # with noise the upper edge is mostly too high, and would cost a second step
            perhaps = np.max([fit.capacity if self._noisy else fit.high for fit in fits], axis=0)
            low, high = np.clip(surely, low, high), np.clip(perhaps, low, high)
        return CapacityBounds(instances, low, high)

    def size_to_grow_to(self, needed: float, linear: int, most: int) -> int:
        """Find the least size that may have the capacity needed, at least the `linear` one that DS2 asks for.

        With exact measurements no smaller size is enough, so this never overshoots.
        """
        farthest = max(linear, min(most, int(self.sizes[-1]) * FARTHEST))
        high = self.bounds(linear, farthest).high
        enough = np.flatnonzero(high >= min(needed * (1 - ROUNDING_TOLERANCE), NEARLY_ALL * high.max()))
        return linear + int(enough[0])

    def size_to_shrink_to(self, needed: float, linear: int) -> int:
        """Find the least size that surely has the capacity needed, at most the `linear` one of DS2."""
        low = self.bounds(1, linear).low
        # ten times the distance that the lower edge keeps from an exact capacity
        enough = np.flatnonzero(low >= needed * (1 - 10 * EXACT))
        return 1 + int(enough[0]) if len(enough) else linear

    def _bound_by_shape(self, instances: Floats) -> tuple[Floats, Floats]:
        """Bound capacities by monotonicity and concavity alone."""
        column = instances[:, None]
        above, below = column >= self.sizes, column <= self.sizes
        share = column / self.sizes
        most, least = self.capacity * (1 + CAUTIOUS * self.error), self.capacity / (1 + CAUTIOUS * self.error)
        high = np.where(above, most * share, np.inf).min(axis=1)
        high = np.minimum(high, np.where(below, most, np.inf).min(axis=1))
        low = np.where(above, least, 0.0).max(axis=1)
        low = np.maximum(low, np.where(below, least * share, 0.0).max(axis=1))
        return self._bound_by_chords(column, low, high)

    def _bound_by_chords(self, column: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Tighten the bounds: a chord between neighbours is below the curve inside, and above it outside."""
        if len(self.sizes) < 2:
            return low, high
        left, right = self.sizes[:-1], self.sizes[1:]
        part = (column - left) / (right - left)
        line = (1 - part) * self.capacity[:-1] + part * self.capacity[1:]
        spread = self.capacity * self.error
        doubt = CAUTIOUS * np.hypot((1 - part) * spread[:-1], part * spread[1:])
        inside = (column >= left) & (column <= right)
        low = np.maximum(low, np.where(inside, line - doubt, 0.0).max(axis=1))
        outside = np.where(inside, np.inf, line + doubt).min(axis=1)
        return low, np.maximum(low, np.minimum(high, outside))


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """The capacities of some numbers of instances by one law, and their relative standard errors."""

    capacity: Floats
    error: Floats

    @property
    def high(self) -> Floats:
        """The upper edge of each capacity."""
        return self.capacity * (1 + CONFIDENT * self.error)

    @property
    def low(self) -> Floats:
        """The lower edge of each capacity."""
        return self.capacity / (1 + CONFIDENT * self.error)


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Sizes, their capacities and relative standard errors, as columns."""

    sizes: Floats
    capacity: Floats
    error: Floats


def fit_laws(evidence: Evidence, instances: Floats) -> list[Fit]:
    """Predict these numbers of instances by each law that agrees with the evidence."""
    if len(evidence.sizes) < LEAST_SIZES:
        return []
    fits = [law(evidence, instances) for law in _LAWS]
    return [fit for fit in fits if fit is not None]


def _fit_amdahl(evidence: Evidence, instances: Floats) -> Fit | None:
    return _fit_time(evidence, instances, 2)


def _fit_universal(evidence: Evidence, instances: Floats) -> Fit | None:
    return _fit_time(evidence, instances, 3)


def _fit_time(evidence: Evidence, instances: Floats, terms: int) -> Fit | None:
    """Fit a polynomial for t(n) whose terms do not fall: more instances never make one faster."""
    time = evidence.sizes / evidence.capacity
    fitted = _solve(np.vander(evidence.sizes, terms, increasing=True), time, time * evidence.error)
    if fitted is None or fitted[0][0] <= 0 or (fitted[0][1:] < 0).any():
        return None
    reached = np.minimum(instances, _find_peak(fitted[0]))
    at = np.vander(reached, terms, increasing=True)
    predicted = at @ fitted[0]
    return Fit(reached / predicted, _deviation(at, fitted[1]) / predicted)


def _find_peak(terms: Floats) -> float:
    """Find where n / (a + bn + cn²) is largest; beyond it the curve is kept at its peak."""
    return float(np.sqrt(terms[0] / terms[2])) if len(terms) > 2 and terms[2] > 0 else np.inf


def _fit_power(evidence: Evidence, instances: Floats) -> Fit | None:
    design = np.vander(np.log(evidence.sizes), 2, increasing=True)
    fitted = _solve(design, np.log(evidence.capacity), evidence.error)
    if fitted is None or not 0 < fitted[0][1] <= 1:
        return None
    at = np.vander(np.log(instances), 2, increasing=True)
    return Fit(np.exp(at @ fitted[0]), _deviation(at, fitted[1]))


def _solve(design: Floats, seen: Floats, deviation: Floats) -> tuple[Floats, Floats] | None:
    """Solve for coefficients and covariance; None where residuals exceed what the errors explain."""
    freedom = design.shape[0] - design.shape[1]
    if freedom < 1:
        return None
    # columns get the same length: squares of sizes beside ones would cost half of the digits
    lengths = np.sqrt((design**2).sum(axis=0))
    weighted = design / lengths / deviation[:, None]
    inverse = np.linalg.pinv(weighted)
    coefficients = inverse @ (seen / deviation)
    squares = float(((seen / deviation - weighted @ coefficients) ** 2).sum())
    if squares > freedom + SURPRISE * np.sqrt(2 * freedom):
        return None
    covariance = (inverse @ inverse.T) / np.outer(lengths, lengths)
    return coefficients / lengths, covariance


def _deviation(at: Floats, covariance: Floats) -> Floats:
    variance: Floats = np.einsum("ij,jk,ik->i", at, covariance, at)
    return np.sqrt(np.maximum(variance, 0.0))


_LAWS: Sequence[Callable[[Evidence, Floats], Fit | None]] = (_fit_amdahl, _fit_universal, _fit_power)
