"""Between which bounds an operator's capacity lies at sizes that it never had, and the size that is needed.

Two things are taken for granted, as DS2 takes the first: more instances do no less together and no more each,
and each further one brings no more than the one before. From these alone every pair of points bounds the rest
of the curve. Laws that fit the points narrow the bounds; where several fit, all that they say is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.dataflow.propagation import ROUNDING_TOLERANCE
from penstock.decide.learned_families import EXACT, Evidence, fitting
from penstock.decide.learned_points import Point

FARTHEST = 4
"""How many times the largest size seen a law is followed."""
CAUTIOUS = 2.0
"""Standard errors that a bound drawn through single points keeps from them."""
NEARLY_ALL = 0.98
"""Where no size reaches what is needed: the share of the most that can be reached which is enough."""


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """The least and the most capacity that so many instances can have."""

    instances: Floats
    low: Floats
    high: Floats


class CapacityCurve:
    """The capacities that one operator may have, judging by what was seen of it."""

    def __init__(self, points: Sequence[Point], noise: float) -> None:
        ordered = sorted(points, key=lambda point: point.size)
        self.sizes = np.array([point.size for point in ordered], dtype=np.float64)
        self.capacity = np.array([point.capacity for point in ordered])
        weight = np.array([point.weight for point in ordered])
        self.error = np.maximum(noise / np.sqrt(weight), EXACT)
        self._noisy = noise > EXACT

    def bounds(self, least: int, most: int) -> Bounds:
        """What is possible with `least` to `most` instances."""
        instances = np.arange(least, most + 1, dtype=np.float64)
        low, high = self._by_shape(instances)
        fits = fitting(Evidence(self.sizes, self.capacity, self.error), instances)
        if fits:
            surely = np.min([fit.low for fit in fits], axis=0)
            # Beyond what was seen a law may hope, not promise: one that is flat at large sizes, as capacity
            # may be there, would say that one instance alone does as much.
            known = (instances >= self.sizes[0]) & (instances <= self.sizes[-1])
            surely = np.where(known, surely, 0.0)
            # noise lets no edge keep its promise, and the hopeful one mostly asks for a second step
            perhaps = np.max([fit.capacity if self._noisy else fit.high for fit in fits], axis=0)
            low, high = np.clip(surely, low, high), np.clip(perhaps, low, high)
        return Bounds(instances, low, high)

    def size_to_grow_to(self, needed: float, linear: int, most: int) -> int:
        """The least size that can have the capacity needed; `linear` is what DS2 asks for, and no overshoot.

        With exact measurements no smaller size is enough, so it is no overshoot either.
        """
        farthest = max(linear, min(most, int(self.sizes[-1]) * FARTHEST))
        high = self.bounds(linear, farthest).high
        enough = np.flatnonzero(high >= min(needed * (1 - ROUNDING_TOLERANCE), NEARLY_ALL * high.max()))
        return linear + int(enough[0])

    def size_to_shrink_to(self, needed: float, linear: int) -> int:
        """The least size that surely has the capacity needed; never more than DS2 asks for."""
        low = self.bounds(1, linear).low
        # ten times what the lower edge keeps from a capacity that was measured exactly
        enough = np.flatnonzero(low >= needed * (1 - 10 * EXACT))
        return 1 + int(enough[0]) if len(enough) else linear

    def _by_shape(self, instances: Floats) -> tuple[Floats, Floats]:
        """Bounds by the two assumptions alone."""
        column = instances[:, None]
        above, below = column >= self.sizes, column <= self.sizes
        share = column / self.sizes
        most, least = self.capacity * (1 + CAUTIOUS * self.error), self.capacity / (1 + CAUTIOUS * self.error)
        high = np.where(above, most * share, np.inf).min(axis=1)
        high = np.minimum(high, np.where(below, most, np.inf).min(axis=1))
        low = np.where(above, least, 0.0).max(axis=1)
        low = np.maximum(low, np.where(below, least * share, 0.0).max(axis=1))
        return self._by_chords(column, low, high)

    def _by_chords(self, column: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """A chord between neighbours is below the curve inside, and above it outside."""
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
