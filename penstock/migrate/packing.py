"""One operator's bins on its workers: what a placement brings and costs, and which ones are worth keeping.

A placement is judged by three figures: the load per slot of the fullest worker, the time until the slowest
worker is done, which knows that a bin is not divided between slots, and the cost of the moves.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.intp]
"""The number of the worker of each bin."""

HAIR = 1e-9
"""Loads are sums of floats: differences below this part of the whole load are none."""


@dataclass(frozen=True, slots=True, eq=False)
class JudgedPlacement:
    """A placement of one operator's bins with its three figures; smaller ones are better."""

    places: Places
    fullest: float
    longest: float
    cost: float

    def beats(self, other: JudgedPlacement) -> bool:
        """Tell whether no figure is worse than another placement's."""
        return self.fullest <= other.fullest and self.longest <= other.longest and self.cost <= other.cost


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """One operator's bins and the workers for them.

    `costs[b, w]` is the cost to have bin b at worker w, infinite where it must not be.
    """

    loads: Floats
    slots: Floats
    costs: Floats

    def even(self) -> float:
        """Return the load per slot if bins could be divided."""
        return float(self.loads.sum() / self.slots.sum())

    def hair(self) -> float:
        """Return a load too small to matter."""
        return HAIR * float(self.loads.sum())

    def rest(self) -> Places:
        """Return the cheapest placement: every bin where it is, if it may stay there."""
        return np.asarray(self.costs.argmin(axis=1), dtype=np.intp)

    def is_bound(self) -> npt.NDArray[np.bool_]:
        """Tell which bins have only one worker that may have them."""
        bound: npt.NDArray[np.bool_] = np.isfinite(self.costs).sum(axis=1) == 1
        return bound

    def held(self, places: Places) -> Floats:
        """Return the load of each worker."""
        return np.bincount(places, self.loads, len(self.slots)).astype(np.float64)

    def cost(self, places: Places) -> float:
        """Return what a placement costs."""
        return float(self.costs[np.arange(len(places)), places].sum())

    def fullest(self, places: Places) -> float:
        """Return the load per slot of the fullest worker."""
        return float((self.held(places) / self.slots).max())

    def judge(self, places: Places) -> JudgedPlacement:
        """Return a placement with its three figures."""
        longest = max(self.finish(places, worker) for worker in range(len(self.slots)))
        return JudgedPlacement(places, self.fullest(places), longest, self.cost(places))

    def finish(self, places: Places, worker: int) -> float:
        """Return when a worker is done with its bins."""
        return measure_finish(self.loads[places == worker], int(self.slots[worker]))

    def least_fullest(self) -> float:
        """Return a load per slot that the fullest worker has in any placement.

        Somebody has the heaviest bin, and somebody has all the bins that cannot go elsewhere.
        """
        bound = self.is_bound()
        stuck = np.bincount(self.rest()[bound], self.loads[bound], len(self.slots)) / self.slots
        return max(self.even(), float(self.loads.max() / self.slots.max()), float(stuck.max()))

    def least_longest(self) -> float:
        """Return a time that the slowest worker takes in any placement.

        Of the heaviest k·S + 1 bins, some k + 1 share one of the S slots.
        """
        heaviest, slots = np.sort(self.loads)[::-1], int(self.slots.sum())
        shared = [
            float(heaviest[k * slots - k : k * slots + 1].sum())
            for k in range(1, (len(heaviest) - 1) // slots + 1)
        ]
        return max([self.least_fullest(), float(heaviest[0]), *shared])

    def count_placements(self) -> float:
        """Return how many placements there are, as far as a float can tell."""
        return math.prod(float(count) for count in np.isfinite(self.costs).sum(axis=1))

    def all_placements(self) -> Iterator[Places]:
        """Yield every placement."""
        for places in product(*(np.flatnonzero(row) for row in np.isfinite(self.costs))):
            yield np.array(places, dtype=np.intp)


def measure_finish(loads: Floats, slots: int) -> float:
    """Return when the last of these bins is done if each free slot takes the heaviest that is left."""
    if len(loads) <= slots:
        return float(loads.max(initial=0.0))
    if slots == 1:
        return float(loads.sum())
    busy = [0.0] * slots
    for load in np.sort(loads)[::-1].tolist():
        heapq.heapreplace(busy, busy[0] + load)
    return max(busy)


def keep_best(choices: Iterable[JudgedPlacement]) -> list[JudgedPlacement]:
    """Keep the choices that no other one beats in all three figures, the cheapest first."""
    kept: list[JudgedPlacement] = []
    for choice in sorted(choices, key=lambda one: (one.cost, one.fullest, one.longest)):
        if not any(other.beats(choice) for other in kept):
            kept.append(choice)
    return kept
