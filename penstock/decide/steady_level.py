"""The level of a noisy figure: a mean over as many readings as agree with each other."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

MOST_READINGS = 16
"""Readings that one level is the mean of: noise of 10 % becomes 2.5 %, and a slow drift is followed."""
MOST_DIFFERENCES = 64
LEAST_DIFFERENCES = 3
"""Differences between readings before noise is known at all; until then the newest reading stands alone."""
MEDIAN_TO_DEVIATION = (1.0484, 0.6053)
"""A normal variable's standard deviation over the median size of differences of its values, and of the
differences of these: 1 / (0.6745 · √2) and 1 / (0.6745 · √6)."""
NEWEST_ALONE = 5.0
SEVERAL = 4.0
"""Standard errors by which the newest reading, or the newest few, must differ to begin a new level."""
MOST_LUCK = 2.0
"""How many times the noise that successive differences show the true one may be."""
DUST = 1e-9
"""Relative: what differs by less differs by rounding alone."""


class SteadyLevel:
    """Takes readings one by one; whatever shows that the figure has moved drops the readings before it.

    A figure that `drifts`, as load does, differs from reading to reading without noise; then noise is told by
    how these differences differ.
    Early readings that differ may be noise or a move; with a `presumed_noise` they count as noise if it can
    explain them, until enough have come to tell.
    """

    def __init__(self, drifts: bool = False, presumed_noise: float | None = None) -> None:
        self._drifts = drifts
        self._presumed = presumed_noise
        self._last: tuple[float, ...] = ()
        self._readings: deque[float] = deque(maxlen=MOST_READINGS)
        self._differences: deque[float] = deque(maxlen=MOST_DIFFERENCES)
        self._mean = 0.0
        self._noise: float | None = None

    @property
    def mean(self) -> float:
        """The present level."""
        return self._mean

    @property
    def count(self) -> int:
        """Readings that it is the mean of."""
        return len(self._readings)

    @property
    def noise(self) -> float | None:
        """Standard deviation of one reading as a share of the level; None while that is unknown."""
        return self._noise

    @property
    def error(self) -> float:
        """Standard error of the level as a share of it; nothing is claimed while noise is unknown."""
        noise = self.noise or 0.0
        return noise / math.sqrt(max(1, self.count)) if noise > DUST else 0.0

    @property
    def settled(self) -> bool:
        """Whether more readings would hardly make the level more certain."""
        return self.error == 0 or self.count >= MOST_READINGS

    def add(self, reading: float) -> None:
        """Take a reading into the level, or begin a new one with it."""
        self._note_difference(reading)
        if self._presumed is not None and self._is_surprising(reading):
            self.expect(self._presumed)
            self._presumed = None
        self._readings.append(reading)
        if not math.isfinite(sum(self._readings)):
            # readings beyond all measure, whose sum is no number: the newest is as good as any
            self._forget(len(self._readings) - 1)
        self._forget(self._moved_at(self.noise))
        self._mean = sum(self._readings) / len(self._readings)

    def restart(self) -> None:
        """Something else is measured from now on, with the same noise."""
        self._readings.clear()
        self._last = ()

    def expect(self, noise: float) -> None:
        """Begin with a noise that is known from before."""
        self._learn_noise([noise / MEDIAN_TO_DEVIATION[self._drifts]] * LEAST_DIFFERENCES)

    def _note_difference(self, reading: float) -> None:
        seen = (*self._last, reading)
        if self._mean > 0 and len(seen) > 1 + self._drifts:
            difference = seen[-1] - seen[-2] - (seen[-2] - seen[-3] if self._drifts else 0.0)
            self._learn_noise([abs(difference) / self._mean])
        self._last = seen[-2:]

    def _learn_noise(self, differences: Sequence[float]) -> None:
        """Take in differences; the noise that they show is asked for many times, and so found once."""
        self._differences.extend(differences)
        if len(self._differences) >= LEAST_DIFFERENCES:
            # of two middle differences the smaller: a step of the load makes two large ones
            median = sorted(self._differences)[(len(self._differences) - 1) // 2]
            self._noise = max(DUST, MEDIAN_TO_DEVIATION[self._drifts] * median)

    def _is_surprising(self, reading: float) -> bool:
        """Whether a reading differs from the one before while noise is unknown."""
        unknown = len(self._differences) < LEAST_DIFFERENCES
        return unknown and bool(self._readings) and abs(reading - self._mean) > DUST * abs(self._mean)

    def _forget(self, oldest: int) -> None:
        for _ in range(oldest):
            self._readings.popleft()

    def _moved_at(self, noise: float | None) -> int:
        """How many of the oldest readings belong to an earlier level."""
        total = len(self._readings)
        if noise is None:
            return total - 1
        level = sum(self._readings) / total
        deviations = [reading - level for reading in reversed(self._readings)]
        newest, squares = 0.0, sum(deviation * deviation for deviation in deviations)
        for count, deviation in enumerate(deviations[:-1], start=1):
            newest, rest = newest + deviation, total - count
            # deviations from the mean sum to zero, so the others' sum is what the newest have too much
            parts = 1 / count + 1 / rest
            distance, root = abs(newest) * parts, math.sqrt(parts)
            sure = NEWEST_ALONE if count == 1 else SEVERAL
            if distance <= sure * (noise * level) * root:
                continue
            within = squares - newest * newest * parts
            if distance > sure * _scale(noise * level, within, total - 2) * root:
                return rest
        return 0


def _scale(noise: float, squares: float, freedom: int) -> float:
    """The noise by which two parts of a level are told apart.

    Few differences may make noise look small by luck. Then the readings of the parts scatter more around
    their own means, and that counts, up to a bound: what drifts scatters without noise.
    """
    scatter = math.sqrt(max(0.0, squares) / freedom) if freedom > 0 else 0.0
    return max(noise, min(scatter, MOST_LUCK * noise))
