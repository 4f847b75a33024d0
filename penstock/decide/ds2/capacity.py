"""The capacities that one operator has shown, size by size, and the level of a noisy figure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

MOST_SIZES = 64
"""Sizes kept for one operator; the one held longest ago is dropped first."""
MOST_WEIGHT = 64.0
"""The most readings that a capacity counts for, so that it follows slow changes."""
WEIGHT_AFTER_SHIFT = 4.0
SURE = 4.0
SURE_OF_ONE = 5.0
"""Standard errors beyond which two capacities are not the same; more where one is a single reading."""
LEAST_SHIFT = 0.02
"""Changes of capacity below this share are ignored."""
SUPER_LINEAR = 2
"""So many growths must have brought more than their share before a smaller size is not tried again."""
MOST_READINGS = 16
"""The most readings in one level: noise of 10 % becomes 2.5 %, and a slow drift is followed."""
FEW = 4
"""The readings that tell where a level drifts to."""
MOST_DIFFERENCES = 64
LEAST_DIFFERENCES = 3
"""The differences between readings that noise is known from; until then the newest reading counts alone."""
MEDIAN_TO_DEVIATION = (1.0484, 0.6053)
"""A normal variable's standard deviation over the median size of differences of its values, and of the
differences of these: 1 / (0.6745 · √2) and 1 / (0.6745 · √6)."""
NEWEST_ALONE = 5.0
SEVERAL = 4.0
"""Standard errors by which the newest reading, or the newest few, must differ to begin a new level."""
MOST_LUCK = 2.0
"""The true noise may be this many times the noise that successive differences show."""
DUST = 1e-9
"""Relative: smaller differences are rounding."""


@dataclass(frozen=True, slots=True)
class Point:
    """The capacity of `size` instances together in records per second, the mean of `weight` readings."""

    size: int
    capacity: float
    weight: float

    def with_reading(self, reading: float) -> Point:
        """Return the point with one more reading."""
        weight = min(self.weight + 1, MOST_WEIGHT)
        return Point(self.size, self.capacity + (reading - self.capacity) / weight, weight)


class CapacityMemory:
    """The (parallelism, capacity) pairs of one operator, as far as they still hold."""

    def __init__(self) -> None:
        self._points: dict[int, Point] = {}
        self._level = SteadyLevel()
        self._held = 0
        self._overtaken: dict[int, tuple[float, int]] = {}
        """Size → its capacity when left for a larger one that did more for each instance, and how often."""

    def observe(self, held: int, capacity: float) -> None:
        """Take in the capacity of `held` instances over one window."""
        if held != self._held:
            self._note_overtaken(held, capacity)
            self._held = held
            self._level.restart()
        self._level.add(capacity)
        known = self._points.pop(held, None)
        if known is None:
            self._move_others(self._measure_misfit(held, capacity))
            known = Point(held, capacity, 0.0)
        elif self._has_shifted(known):
            self._move_others(self._level.mean / known.capacity)
            known = Point(held, self._level.mean, self._level.count - 1.0)
        # at the end: points are in the order in which they were last held
        self._points[held] = known.with_reading(capacity)
        self._drop_contradictions()
        while len(self._points) > MOST_SIZES:
            del self._points[next(iter(self._points))]

    @property
    def noise(self) -> float | None:
        """Standard deviation of one reading as a share of it; None while that is unknown."""
        return self._level.noise

    @property
    def error(self) -> float:
        """Standard error of the present capacity as a share of it."""
        noise = self.noise or 0.0
        return noise / math.sqrt(self._points[self._held].weight) if noise > DUST else 0.0

    def present(self) -> float:
        """Return the capacity of the size held now: as remembered, unless the last windows contradict."""
        point = self._points[self._held]
        return self._level.mean if self._has_shifted(point) else point.capacity

    def points(self) -> tuple[Point, ...]:
        """Return all sizes in order, at the present level: a slower service makes every size slower."""
        factor = self.present() / self._points[self._held].capacity
        return tuple(
            replace(self._points[size], capacity=self._points[size].capacity * factor)
            for size in sorted(self._points)
        )

    def least_known_enough(self, needed: float) -> int:
        """Return the least size above those that were seen to be too small where growth is super-linear.

        Where one more instance brings more than its share, a line from the larger size says that the smaller
        one is enough, and the smaller one shows that it is not, for ever. Once is not enough to tell this
        from a service that became faster.
        """
        if sum(times for _, times in self._overtaken.values()) < SUPER_LINEAR:
            return 1
        small = [size for size, (capacity, _) in self._overtaken.items() if capacity < needed * (1 - DUST)]
        return 1 + max(small, default=0)

    def to_plain(self) -> dict[str, Any]:
        """Write all that a restart should not forget as plain data."""
        return {
            "noise": self.noise,
            "points": [[point.size, point.capacity, point.weight] for point in self._points.values()],
        }

    @staticmethod
    def from_plain(body: Mapping[str, Any]) -> CapacityMemory:
        """Read kept capacities; impossible ones are left out, since they are learned again."""
        memory = CapacityMemory()
        for entry in body.get("points", [])[-MOST_SIZES:]:
            size, capacity, weight = int(entry[0]), float(entry[1]), float(entry[2])
            if size >= 1 and 0 < capacity < math.inf and weight > 0:
                memory._points[size] = Point(size, capacity, min(weight, MOST_WEIGHT))
        noise = body.get("noise")
        if noise is not None and 0 <= float(noise) < 1:
            memory._level.expect(float(noise))
        return memory

    def _note_overtaken(self, held: int, capacity: float) -> None:
        """Remember a size that is left for a larger one which does more for each instance."""
        left, before = self._held, self._level.mean
        if not 0 < left < held or not self._level.count:
            return
        doubt = max(LEAST_SHIFT, SURE * (self.noise or 0.0))
        if capacity / held > before / left * (1 + doubt):
            _, times = self._overtaken.pop(left, (0.0, 0))
            self._overtaken[left] = (before, times + 1)
            while len(self._overtaken) > MOST_SIZES:
                del self._overtaken[next(iter(self._overtaken))]

    def _has_shifted(self, known: Point) -> bool:
        level, noise = self._level, self._level.noise
        if noise is None:
            return False
        error = noise * math.sqrt(1 / level.count + 1 / known.weight)
        sure = SURE if level.count > 1 else SURE_OF_ONE
        return abs(level.mean / known.capacity - 1) > max(sure * error, LEAST_SHIFT)

    def _measure_misfit(self, size: int, capacity: float) -> float:
        """Divide the capacity of a new size by the nearest that the others allow; 1 if it is allowed."""
        less = [point for point in self._points.values() if point.size < size]
        more = [point for point in self._points.values() if point.size > size]
        low = [point.capacity for point in less] + [point.capacity * size / point.size for point in more]
        high = [point.capacity * size / point.size for point in less] + [point.capacity for point in more]
        allowed = min(max(capacity, max(low, default=capacity)), min(high, default=capacity))
        misfit, error = capacity / allowed, self.noise or 0.0
        return misfit if abs(misfit - 1) > max(SURE_OF_ONE * error, LEAST_SHIFT) else 1.0

    def _move_others(self, factor: float) -> None:
        """Move the whole curve, as when a service slows down; it counts for less, since it may have bent."""
        if factor == 1:
            return
        for size, point in self._points.items():
            weight = min(point.weight, WEIGHT_AFTER_SHIFT)
            self._points[size] = Point(size, point.capacity * factor, weight)

    def _drop_contradictions(self) -> None:
        """Drop points that contradict the newest: capacity is monotone and concave in the instances."""
        noise = self.noise or DUST
        now = self._points[self._held]
        for point in list(self._points.values()):
            allowed = SURE * noise * math.sqrt(1 / point.weight + 1 / now.weight) + DUST
            less, more = (point, now) if point.size < now.size else (now, point)
            falls = more.capacity < less.capacity * (1 - allowed)
            overgrows = more.capacity / more.size > less.capacity / less.size * (1 + allowed)
            if falls or overgrows:
                del self._points[point.size]


class SteadyLevel:
    """The level of a noisy figure: the mean of as many of the last readings as agree with each other.

    A figure that `drifts`, as load does, changes from reading to reading without noise, so its noise is taken
    from differences of differences. Early readings that differ may be noise or a move: with a
    `presumed_noise` they count as noise if it can explain them, until there are enough to tell.
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
    def newest(self) -> float:
        """The mean of the last few readings: it lags less behind a level that drifts, and scatters more."""
        last = list(self._readings)[-FEW:]
        return sum(last) / len(last)

    @property
    def count(self) -> int:
        """The number of readings in the level."""
        return len(self._readings)

    @property
    def noise(self) -> float | None:
        """Standard deviation of one reading as a share of the level; None while that is unknown."""
        return self._noise

    @property
    def error(self) -> float:
        """Standard error of the level as a share of it; 0 while noise is unknown."""
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
            # the sum of huge readings overflows: keep the newest alone
            self._forget(len(self._readings) - 1)
        self._forget(self._count_outdated(self.noise))
        self._mean = sum(self._readings) / len(self._readings)

    def restart(self) -> None:
        """Begin a new level with the same noise: another thing is measured from now on."""
        self._readings.clear()
        self._last = ()

    def expect(self, noise: float) -> None:
        """Take a noise that is known from before."""
        self._learn_noise([noise / MEDIAN_TO_DEVIATION[self._drifts]] * LEAST_DIFFERENCES)

    def _note_difference(self, reading: float) -> None:
        seen = (*self._last, reading)
        if self._mean > 0 and len(seen) > 1 + self._drifts:
            difference = seen[-1] - seen[-2] - (seen[-2] - seen[-3] if self._drifts else 0.0)
            self._learn_noise([abs(difference) / self._mean])
        self._last = seen[-2:]

    def _learn_noise(self, differences: Sequence[float]) -> None:
        """Take in differences, and find their noise once, since it is asked for many times."""
        self._differences.extend(differences)
        if len(self._differences) >= LEAST_DIFFERENCES:
            # the smaller of two middle differences: a step of the load makes two large ones
            median = sorted(self._differences)[(len(self._differences) - 1) // 2]
            self._noise = max(DUST, MEDIAN_TO_DEVIATION[self._drifts] * median)

    def _is_surprising(self, reading: float) -> bool:
        """Return whether a reading differs from the one before while noise is unknown."""
        unknown = len(self._differences) < LEAST_DIFFERENCES
        return unknown and bool(self._readings) and abs(reading - self._mean) > DUST * abs(self._mean)

    def _forget(self, oldest: int) -> None:
        for _ in range(oldest):
            self._readings.popleft()

    def _count_outdated(self, noise: float | None) -> int:
        """Count the oldest readings that belong to an earlier level."""
        total = len(self._readings)
        if noise is None:
            return total - 1
        level = sum(self._readings) / total
        deviations = [reading - level for reading in reversed(self._readings)]
        newest, squares = 0.0, sum(deviation * deviation for deviation in deviations)
        for count, deviation in enumerate(deviations[:-1], start=1):
            newest, rest = newest + deviation, total - count
            # deviations from the mean sum to zero, so the sum of the others is that of the newest, negated
            parts = 1 / count + 1 / rest
            distance, root = abs(newest) * parts, math.sqrt(parts)
            sure = NEWEST_ALONE if count == 1 else SEVERAL
            if distance <= sure * (noise * level) * root:
                continue
            within = squares - newest * newest * parts
            if distance > sure * _estimate_scatter(noise * level, within, total - 2) * root:
                return rest
        return 0


def _estimate_scatter(noise: float, squares: float, freedom: int) -> float:
    """Estimate the noise by which two parts of a level are told apart.

    Few differences may make noise look small by luck. The scatter of the readings around the means of their
    parts then counts instead, up to a bound, since a figure that drifts scatters without noise.
    """
    scatter = math.sqrt(max(0.0, squares) / freedom) if freedom > 0 else 0.0
    return max(noise, min(scatter, MOST_LUCK * noise))
