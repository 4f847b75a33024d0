"""The cost of a record by the number of instances, and how well it is known."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from penstock.dataflow.metrics import Floats

MEMORY = 0.995
"""The share of its weight that a reading keeps when another one comes: some 200 count."""
USUAL_SLOPE = 0.02
"""How much dearer each further instance may make a record, relative, before anything was seen: deviation."""
PRIOR = np.diag([1e-6, 1 / USUAL_SLOPE**2])
LEAST_COST = 1e-9
FIRST_NOISE = 0.05
LEAST_NOISE = 1e-3
NOISE_MEMORY = 0.97


@dataclass(slots=True)
class CostLine:
    """The seconds of one instance for a record as a line in the number of instances (Amdahl's law).

    A Bayesian regression whose prior says that the slope is about nothing; it is never taken below.
    """

    precision: Floats = field(default_factory=lambda: np.zeros((2, 2)))
    moment: Floats = field(default_factory=lambda: np.zeros(2))
    scale: float = 0.0
    """The first cost seen; all is kept relative to it."""
    noise: float = FIRST_NOISE
    """Standard deviation of a reading, relative."""
    readings: int = 0
    _squared: float = FIRST_NOISE**2

    def take(self, instances: int, seconds: float) -> None:
        """Learn what a record cost while so many worked."""
        if not (math.isfinite(seconds) and seconds > 0 and instances >= 1):
            return
        if not self.readings:
            self.scale = seconds
        else:
            missed = min(abs(seconds / self.predict(instances)[0] - 1), 3 * self.noise)
            self._squared = NOISE_MEMORY * self._squared + (1 - NOISE_MEMORY) * missed**2
            self.noise = max(LEAST_NOISE, math.sqrt(self._squared))
        features, weight = np.array([1.0, instances - 1.0]), 1 / self.noise**2
        self.precision = MEMORY * self.precision + weight * np.outer(features, features)
        self.moment = MEMORY * self.moment + weight * features * seconds / self.scale
        self.readings += 1

    def predict(self, instances: int) -> tuple[float, float]:
        """Return the cost beside so many, and its relative standard deviation."""
        base, slope, covariance = self._fit()
        features = np.array([1.0, instances - 1.0])
        cost = max(LEAST_COST, base + slope * (instances - 1))
        deviation = math.sqrt(max(0.0, float(features @ covariance @ features)))
        return cost * self.scale, deviation / cost

    def _fit(self) -> tuple[float, float, Floats]:
        """Return the cost of one alone, what each further one adds, and how uncertain both are; relative."""
        covariance: Floats = np.linalg.inv(self.precision + PRIOR).astype(np.float64)
        base, slope = map(float, covariance @ self.moment)
        if slope < 0:
            # more instances do not make records cheaper: the mean is all that is seen
            base, slope = float(self.moment[0] / self.precision[0, 0]), 0.0
        return base, slope, covariance

    def least_instances(self, rate: float, most: int) -> int:
        """Return the fewest instances that take so many records a second; the best there is if none do."""
        if not self.readings:
            return 1
        base, slope, _ = self._fit()
        counts = np.arange(1, most + 1)
        capacity = counts / (np.maximum(LEAST_COST, base + slope * (counts - 1)) * self.scale)
        enough = np.flatnonzero(capacity >= rate)
        return int(counts[enough[0] if len(enough) else np.argmax(capacity)])
