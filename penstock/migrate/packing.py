"""The choice of a worker for each bin, as a mixed-integer program that HiGHS solves.

Unknowns are x[b, w], whether bin b is at worker w, and z[o], the load per slot of operator o's fullest one:

    each bin at one worker     Σ_w x[b, w] = 1
    z is the fullest worker    Σ_b∈o load[b]·x[b, w] ≤ slots[w]·z[o]

and, where an even spread is asked for,

    even waves                 Σ_b∈o x[b, w] ≤ slots[w]·⌈bins[o] / slots⌉
    hot bins apart             Σ_b∈hot(o) x[b, w] ≤ max(slots[w], ⌈hot[o]·slots[w] / slots⌉)

Loads are counted in whole units, a couple of thousand to the load of a slot: with whole numbers all through,
a solution holds exactly. With fractions HiGHS had to repair some, and said so on standard output, which
belongs to the user.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.dataflow.moves import Bin
from penstock.migrate.bins import Worker

Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

NODES = 100
"""Branches looked at: least cost was proven at the first in nearly all cases of 256 bins on 8 workers."""
NEAR_ENOUGH = 0.005
"""The relative gap at which the search for the least imbalance stops; the last per mille took seconds."""
UNITS = 2000
"""Of load per slot; what rounding adds to an imbalance is below half a per cent."""
SLACK_UNITS = 2


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Bins to be placed on workers; `costs` is what it costs to have a bin at a worker."""

    bins: tuple[Bin, ...]
    workers: tuple[Worker, ...]
    loads: Floats
    costs: Floats
    allowed: Flags
    hot: Flags

    def size(self) -> int:
        """Return the number of pairs of bin and worker."""
        return len(self.bins) * len(self.workers)

    def operators(self) -> tuple[int, ...]:
        """Return the operators of the bins, each once."""
        return tuple(sorted({bin_.operator for bin_ in self.bins}))

    def slots(self) -> Floats:
        """Return the slots of each worker."""
        return np.array([max(1, worker.slots) for worker in self.workers], dtype=np.float64)

    def most_bins(self, of_operator: Flags) -> Floats:
        """Return how many of these bins each worker may take without more waves than an even spread."""
        slots = self.slots()
        even: Floats = slots * math.ceil(of_operator.sum() / slots.sum())
        return even

    def most_hot(self, of_operator: Flags) -> Floats:
        """Return how many hot bins each worker may take, so that none waits while a slot is free."""
        slots = self.slots()
        most: Floats = np.maximum(slots, np.ceil((of_operator & self.hot).sum() * slots / slots.sum()))
        return most

    def of(self, operator: int) -> Flags:
        """Tell which bins belong to this operator."""
        return np.array([bin_.operator == operator for bin_ in self.bins], dtype=np.bool_)

    def is_spread(self, placement: Mapping[Bin, str]) -> bool:
        """Tell whether a placement has even waves and spread hot bins."""
        at = np.array(
            [[placement.get(bin_) == worker.worker for worker in self.workers] for bin_ in self.bins],
            dtype=np.bool_,
        ).reshape(len(self.bins), len(self.workers))
        for operator in self.operators():
            mine = self.of(operator)
            if (at[mine].sum(axis=0) > self.most_bins(mine)).any():
                return False
            if (at[mine & self.hot].sum(axis=0) > self.most_hot(mine)).any():
                return False
        return True


def find_least_cost(packing: Packing, imbalance: float, spread: bool) -> dict[Bin, str] | None:
    """Find the cheapest placement with at most this imbalance; None where there is none."""
    fullest = np.zeros(len(packing.operators()))
    objective = np.concatenate([packing.costs.ravel(), fullest])
    even = _units(packing).sum() / packing.slots().sum()
    return _solve(packing, objective, (1 + imbalance) * even + SLACK_UNITS, spread, 0.0)


def find_least_imbalance(packing: Packing, spread: bool) -> dict[Bin, str] | None:
    """Find a placement within half a per cent of the least imbalance, whatever it costs."""
    fullest = np.ones(len(packing.operators()))
    objective = np.concatenate([np.zeros(packing.size()), fullest])
    return _solve(packing, objective, math.inf, spread, NEAR_ENOUGH)


def _solve(
    packing: Packing, objective: Floats, most_fullest: float, spread: bool, gap: float
) -> dict[Bin, str] | None:
    # a quarter of a second to import: only those who plan need it
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    pairs, variables = packing.size(), len(objective)
    rows, columns, values, low, high = _constraints(packing, most_fullest, spread)
    matrix = csr_array((values, (rows, columns)), shape=(len(low), variables))
    lower = np.concatenate([np.zeros(pairs), _least_fullest(packing)])
    upper = np.concatenate([packing.allowed.ravel().astype(np.float64), np.full(variables - pairs, np.inf)])
    result = milp(
        objective,
        integrality=np.ones(variables),
        bounds=Bounds(lower, upper),
        constraints=LinearConstraint(matrix, low, high),
        options={"node_limit": NODES, "mip_rel_gap": gap},
    )
    if result.x is None:
        return None
    chosen = np.asarray(result.x[:pairs]).reshape(len(packing.bins), -1).argmax(axis=1)
    return {bin_: packing.workers[at].worker for bin_, at in zip(packing.bins, chosen, strict=True)}


def _units(packing: Packing) -> Floats:
    """Return the loads in whole units."""
    units: Floats = np.rint(packing.loads * (UNITS * packing.slots().sum() / packing.loads.sum()))
    return np.maximum(units, 1.0)


def _least_fullest(packing: Packing) -> Floats:
    """Return the least that each operator's fullest worker has: without it the search goes on for nothing.

    Somebody has the heaviest bin, and somebody has as many bins as an even spread, if only the lightest.
    """
    loads, slots = _units(packing), packing.slots()
    least = []
    for operator in packing.operators():
        mine = np.sort(loads[packing.of(operator)])
        crowd = math.ceil(len(mine) / len(slots))
        least.append(max(mine[-1], mine[:crowd].sum(), mine.sum() * slots.max() / slots.sum()) / slots.max())
    return np.floor(np.array(least, dtype=np.float64))


def _constraints(packing: Packing, most_fullest: float, spread: bool) -> tuple[list[Any], ...]:
    """Return all rows as coordinates: row, column, value, and the low and high end of each row."""
    found = list(_rows(packing, most_fullest, spread))
    cells = [
        (row, column, value) for row, (terms, _, _) in enumerate(found) for column, value in terms.items()
    ]
    low, high = [least for _, least, _ in found], [most for _, _, most in found]
    return (*map(list, zip(*cells, strict=True)), low, high)


def _rows(
    packing: Packing, most_fullest: float, spread: bool
) -> Iterator[tuple[dict[int, float], float, float]]:
    width, pairs, slots = len(packing.workers), packing.size(), packing.slots()
    operators = packing.operators()
    for number in range(len(packing.bins)):
        yield {number * width + at: 1.0 for at in range(width)}, 1.0, 1.0
    yield {pairs + number: 1.0 for number in range(len(operators))}, -math.inf, most_fullest
    units = _units(packing)
    for number, operator in enumerate(operators):
        mine = packing.of(operator)
        for at in range(width):
            held = {int(one) * width + at: float(units[one]) for one in np.flatnonzero(mine)}
            yield {**held, pairs + number: -float(slots[at])}, -math.inf, 0.0
        if spread:
            yield from _at_most(mine, packing.most_bins(mine), width)
            yield from _at_most(mine & packing.hot, packing.most_hot(mine), width)


def _at_most(which: Flags, most: Floats, width: int) -> Iterator[tuple[dict[int, float], float, float]]:
    for at in range(width):
        yield {int(one) * width + at: 1.0 for one in np.flatnonzero(which)}, -math.inf, float(most[at])
