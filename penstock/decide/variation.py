"""How irregular arrivals and services are, estimated online from successive windows.

Elastic Pulsar Functions (Auto-DaSP 2021), section 4.2, asks for both coefficients of variation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median

UNKNOWN = 1.0
"""Squared coefficient until there is evidence: that of Poisson arrivals and of exponential service."""

MEDIAN_OF_SQUARE = 0.4549
"""Median of the square of a standard normal variable: turns a median of squares into a variance."""

FEWEST_SAMPLES = 4
"""Of fewer squares the median is mostly luck."""

MOST_VARIATION = 100.0
"""A squared coefficient beyond this comes from a change of load or speed, not from irregularity."""


@dataclass(slots=True)
class Variation:
    """Recent windows of one operator; a median makes a single step of the load say nothing.

    A window only counts arrivals, so the variation of the times between them is taken from the dispersion
    of the counts, to which it tends as windows get longer: c_a² = Var(N) / E(N). The variance comes from
    differences of neighbours, which a slow trend does not inflate. In the same way the mean service time of
    an instance over n records has the variance σ² / n, so n (mᵢ − m)² / m² estimates c_s².
    """

    windows_kept: int = 20
    _arrivals: deque[tuple[float, float]] = field(default_factory=deque)
    _services: deque[tuple[tuple[float, float], ...]] = field(default_factory=deque)

    def remember(
        self, arrival_per_second: float, seconds: float, instances: Iterable[tuple[float, float]]
    ) -> None:
        """Take in one window: its arrivals, and (records, useful seconds) of each instance."""
        self._arrivals.append((arrival_per_second, seconds))
        self._services.append(tuple((n, useful) for n, useful in instances if n > 0 and useful > 0))
        while len(self._arrivals) > self.windows_kept:
            self._arrivals.popleft()
            self._services.popleft()

    @property
    def of_arrivals(self) -> float:
        """c_a², the squared coefficient of variation of the times between arrivals."""
        squares = [(later - earlier) ** 2 / 2 for (earlier, _), (later, _) in pairwise(self._arrivals)]
        rate = fmean(rate for rate, _ in self._arrivals) if self._arrivals else 0.0
        if len(squares) < FEWEST_SAMPLES or rate <= 0:
            return UNKNOWN
        return _bounded(median(squares) * fmean(seconds for _, seconds in self._arrivals) / rate)

    @property
    def of_services(self) -> float:
        """c_s², the squared coefficient of variation of service times."""
        samples = [sample for window in self._services for sample in window]
        if len(samples) < FEWEST_SAMPLES:
            return UNKNOWN
        mean = sum(useful for _, useful in samples) / sum(records for records, _ in samples)
        return _bounded(median(records * (useful / records / mean - 1) ** 2 for records, useful in samples))


def _bounded(median_square: float) -> float:
    return min(MOST_VARIATION, median_square / MEDIAN_OF_SQUARE)
