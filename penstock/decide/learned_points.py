"""What is remembered of one operator: its capacity at every parallelism that it had."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.decide.steady_level import DUST, SteadyLevel

MOST_SIZES = 64
"""Sizes kept for one operator; the one that was held longest ago goes first."""
MOST_WEIGHT = 64.0
"""Readings that a remembered capacity counts for at most, so that it follows what changes slowly."""
WEIGHT_AFTER_SHIFT = 4.0
SURE = 4.0
SURE_OF_ONE = 5.0
"""Standard errors beyond which two capacities are not the same; more where one is a single reading."""
LEAST_SHIFT = 0.02
"""A change of capacity below this share is not worth calling one."""


@dataclass(frozen=True, slots=True)
class Point:
    """The capacity of `size` instances together, in records per second, as the mean of `weight` readings."""

    size: int
    capacity: float
    weight: float

    def taking(self, reading: float) -> Point:
        """The point with one reading more."""
        weight = min(self.weight + 1, MOST_WEIGHT)
        return Point(self.size, self.capacity + (reading - self.capacity) / weight, weight)


class CapacityMemory:
    """Keeps the (parallelism, capacity) pairs of one operator, and notices when they are no longer true."""

    def __init__(self) -> None:
        self._points: dict[int, Point] = {}
        self._level = SteadyLevel()
        self._held = 0

    def observe(self, held: int, capacity: float) -> None:
        """Take one window's capacity with `held` instances."""
        if held != self._held:
            self._held = held
            self._level.restart()
        self._level.add(capacity)
        known = self._points.pop(held, None)
        if known is None:
            self._move_others(self._misfit(held, capacity))
            known = Point(held, capacity, 0.0)
        elif self._has_shifted(known):
            self._move_others(self._level.mean / known.capacity)
            known = Point(held, self._level.mean, self._level.count - 1.0)
        # put at the end: the order of the points is that in which they were last held
        self._points[held] = known.taking(capacity)
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
        """Capacity of what is held now: what is remembered of it, unless the last windows say otherwise."""
        point = self._points[self._held]
        return self._level.mean if self._has_shifted(point) else point.capacity

    def points(self) -> tuple[Point, ...]:
        """All sizes in order, at the present level: a slower service makes every size slower."""
        factor = self.present() / self._points[self._held].capacity
        return tuple(
            replace(self._points[size], capacity=self._points[size].capacity * factor)
            for size in sorted(self._points)
        )

    def to_plain(self) -> dict[str, Any]:
        """All that a restart should not forget."""
        return {
            "noise": self.noise,
            "points": [[point.size, point.capacity, point.weight] for point in self._points.values()],
        }

    @staticmethod
    def from_plain(body: Mapping[str, Any]) -> CapacityMemory:
        """Take up what was kept; what cannot be right is left out, since it can be learned again."""
        memory = CapacityMemory()
        for entry in body.get("points", [])[-MOST_SIZES:]:
            size, capacity, weight = int(entry[0]), float(entry[1]), float(entry[2])
            if size >= 1 and 0 < capacity < math.inf and weight > 0:
                memory._points[size] = Point(size, capacity, min(weight, MOST_WEIGHT))
        noise = body.get("noise")
        if noise is not None and 0 <= float(noise) < 1:
            memory._level.expect(float(noise))
        return memory

    def _has_shifted(self, known: Point) -> bool:
        level, noise = self._level, self._level.noise
        if noise is None:
            return False
        error = noise * math.sqrt(1 / level.count + 1 / known.weight)
        sure = SURE if level.count > 1 else SURE_OF_ONE
        return abs(level.mean / known.capacity - 1) > max(sure * error, LEAST_SHIFT)

    def _misfit(self, size: int, capacity: float) -> float:
        """How many times what the other sizes allow at all a size has that was never held before."""
        less = [point for point in self._points.values() if point.size < size]
        more = [point for point in self._points.values() if point.size > size]
        low = [point.capacity for point in less] + [point.capacity * size / point.size for point in more]
        high = [point.capacity * size / point.size for point in less] + [point.capacity for point in more]
        allowed = min(max(capacity, max(low, default=capacity)), min(high, default=capacity))
        misfit, error = capacity / allowed, self.noise or 0.0
        return misfit if abs(misfit - 1) > max(SURE_OF_ONE * error, LEAST_SHIFT) else 1.0

    def _move_others(self, factor: float) -> None:
        """The whole curve moves, as when a service slows down; it counts for less, as it may have bent."""
        if factor == 1:
            return
        for size, point in self._points.items():
            weight = min(point.weight, WEIGHT_AFTER_SHIFT)
            self._points[size] = Point(size, point.capacity * factor, weight)

    def _drop_contradictions(self) -> None:
        """More instances do no less together and no more each; what says otherwise of now is out of date."""
        noise = self.noise or DUST
        now = self._points[self._held]
        for point in list(self._points.values()):
            allowed = SURE * noise * math.sqrt(1 / point.weight + 1 / now.weight) + DUST
            less, more = (point, now) if point.size < now.size else (now, point)
            falls = more.capacity < less.capacity * (1 - allowed)
            overgrows = more.capacity / more.size > less.capacity / less.size * (1 + allowed)
            if falls or overgrows:
                del self._points[point.size]
