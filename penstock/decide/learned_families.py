"""Laws by which capacity may grow, fitted to what was seen; one that does not fit is not believed.

With n instances of one operator, capacity C(n) and t(n) = n / C(n), the time of one instance for a record:
Amdahl's law makes t a line in n, the universal scalability law a parabola, a power law log C a line in log n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.metrics import Floats

LEAST_SIZES = 3
EXACT = 1e-7
"""Relative error of a capacity that was measured without noise: what arithmetic leaves."""
CONFIDENT = 1.0
"""Standard errors that the edges of a fitted curve keep from it."""
SURPRISE = 3.0
"""Standard deviations by which the squared residuals of a law may exceed what noise alone leaves."""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """Capacities of some numbers of instances by one law, and their relative standard errors."""

    capacity: Floats
    error: Floats

    @property
    def high(self) -> Floats:
        """The upper edge."""
        return self.capacity * (1 + CONFIDENT * self.error)

    @property
    def low(self) -> Floats:
        """The lower edge."""
        return self.capacity / (1 + CONFIDENT * self.error)


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Sizes, their capacities and relative standard errors, as columns."""

    sizes: Floats
    capacity: Floats
    error: Floats


def fitting(evidence: Evidence, instances: Floats) -> list[Fit]:
    """What the laws that agree with the evidence say of these numbers of instances."""
    if len(evidence.sizes) < LEAST_SIZES:
        return []
    fits = [law(evidence, instances) for law in _LAWS]
    return [fit for fit in fits if fit is not None]


def _amdahl(evidence: Evidence, instances: Floats) -> Fit | None:
    return _by_time(evidence, instances, 2)


def _universal(evidence: Evidence, instances: Floats) -> Fit | None:
    return _by_time(evidence, instances, 3)


def _by_time(evidence: Evidence, instances: Floats, terms: int) -> Fit | None:
    """A polynomial for t(n) with no falling term but the constant: more instances never make one faster."""
    time = evidence.sizes / evidence.capacity
    fitted = _least_squares(np.vander(evidence.sizes, terms, increasing=True), time, time * evidence.error)
    if fitted is None or fitted[0][0] <= 0 or (fitted[0][1:] < 0).any():
        return None
    reached = np.minimum(instances, _peak(fitted[0]))
    at = np.vander(reached, terms, increasing=True)
    predicted = at @ fitted[0]
    return Fit(reached / predicted, _deviation(at, fitted[1]) / predicted)


def _peak(terms: Floats) -> float:
    """Where n / (a + bn + cn²) is largest: the curve is monotone, so what would fall stays there."""
    return float(np.sqrt(terms[0] / terms[2])) if len(terms) > 2 and terms[2] > 0 else np.inf


def _power(evidence: Evidence, instances: Floats) -> Fit | None:
    design = np.vander(np.log(evidence.sizes), 2, increasing=True)
    fitted = _least_squares(design, np.log(evidence.capacity), evidence.error)
    if fitted is None or not 0 < fitted[0][1] <= 1:
        return None
    at = np.vander(np.log(instances), 2, increasing=True)
    return Fit(np.exp(at @ fitted[0]), _deviation(at, fitted[1]))


def _least_squares(design: Floats, seen: Floats, deviation: Floats) -> tuple[Floats, Floats] | None:
    """Coefficients and their covariance; None where the residuals are more than the errors explain."""
    freedom = design.shape[0] - design.shape[1]
    if freedom < 1:
        return None
    # columns are brought to one length: squares of sizes beside ones would cost half of the digits
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


_LAWS: Sequence[Callable[[Evidence, Floats], Fit | None]] = (_amdahl, _universal, _power)
