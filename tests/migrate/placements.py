"""Placements judged by what the planner is for, with nothing of the planner in it.

What is wanted, in this order: that the load per slot of the fullest worker is within the target, or nearly
the least that whole bins allow; that no worker takes much longer than it must because bins wait for each
other; that few bytes move. The stages of a batch run one after the other, so operators are summed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from penstock.dataflow.moves import Bin
from penstock.migrate.bins import BinState, StateView, Worker

TOLERANCE = 0.02
"""What the documentation calls two per cent."""


class Judged(NamedTuple):
    """The three aims; less is better."""

    imbalance: float
    longest: float
    bytes: int


def judge(view: StateView, placement: Mapping[Bin, str]) -> Judged:
    """Judge a placement by definition."""
    fullest = longest = 0.0
    for operator in {state.bin.operator for state in view.bins}:
        mine = [state for state in view.bins if state.bin.operator == operator]
        held = [
            ([one.load_seconds for one in mine if placement[one.bin] == worker.worker], worker.slots)
            for worker in view.workers
        ]
        fullest += max(sum(loads) / slots for loads, slots in held)
        longest += max(deal_heaviest_first(loads, slots) for loads, slots in held)
    even = sum(state.load_seconds for state in view.bins) / sum(worker.slots for worker in view.workers)
    size = sum(state.bytes for state in view.bins if placement[state.bin] != state.worker)
    return Judged(fullest / even - 1, longest, size)


def deal_heaviest_first(loads: list[float], slots: int) -> float:
    """Return when slots have done all of these, if whichever is free takes the heaviest left."""
    busy = [0.0] * slots
    for load in sorted(loads, reverse=True):
        busy[busy.index(min(busy))] += load
    return max(busy)


def deal_best(loads: list[float], slots: int) -> float:
    """Return the shortest time in which so many slots can do all of these, over all ways to deal them out."""
    return min(
        max(sum(load for load, at in zip(loads, deal, strict=True) if at == slot) for slot in range(slots))
        for deal in product(range(slots), repeat=len(loads))
    )


def is_least(view: StateView, target: float, ended: Judged, noise: float) -> bool:
    """Tell whether of all placements none is better: even enough, not slow, and then of fewer bytes."""
    workers, bins = [worker.worker for worker in view.workers], [state.bin for state in view.bins]
    choices = product(workers, repeat=len(bins))
    every = [judge(view, dict(zip(bins, choice, strict=True))) for choice in choices]
    before = judge(view, view.placement())
    least = min(one.imbalance for one in every)
    bound = min(before.imbalance, max(target, least + TOLERANCE))
    within = [one for one in every if one.imbalance <= bound + noise]
    longest = (1 + max(target, TOLERANCE)) * min(one.longest for one in within)
    cheapest = min(one.bytes for one in within if one.longest <= longest - noise)
    return ended.imbalance <= bound + noise and ended.longest <= longest + noise and ended.bytes <= cheapest


def a_random_view(
    seed: int, bins: int, workers: int, operators: int = 1, slots: int = 2, heavy: bool = False
) -> StateView:
    """A state that lies anyhow on all workers but one, as after a scale-out."""
    draw = random.Random(seed)
    states = tuple(
        BinState(
            Bin("q", operator, number),
            str(draw.randrange(workers - 1)),
            rows=1,
            bytes=draw.randrange(1, 1_000_000),
            load_seconds=draw.paretovariate(1.2) if heavy else draw.uniform(0.5, 1.5),
        )
        for operator in range(operators)
        for number in range(bins)
    )
    return StateView(
        "q", "counts", 10, states, tuple(Worker(str(n), f"host-{n % 3}", slots) for n in range(workers))
    )


def shift_greedily(view: StateView, target: float) -> dict[Bin, str]:
    """Move bins from the fullest worker to the emptiest, cheap for their load first, while that helps."""
    placement, slots = view.placement(), {worker.worker: worker.slots for worker in view.workers}
    for operator in {state.bin.operator for state in view.bins}:
        mine = [state for state in view.bins if state.bin.operator == operator]
        even = sum(state.load_seconds for state in mine) / sum(slots.values())
        while True:
            held = {
                worker: sum(one.load_seconds for one in mine if placement[one.bin] == worker) / slots[worker]
                for worker in slots
            }
            source, goal = max(held, key=held.__getitem__), min(held, key=held.__getitem__)
            room = (held[source] - held[goal]) * slots[goal] * (1 - 1e-9)
            fitting = [one for one in mine if placement[one.bin] == source and one.load_seconds < room]
            if held[source] <= (1 + target) * even or not fitting:
                break
            placement[min(fitting, key=lambda one: one.bytes / one.load_seconds).bin] = goal
    return placement


def solve_least_bytes(view: StateView, target: float) -> float:
    """Return the least bytes that reach the target, as HiGHS finds and proves it for one operator."""
    count, width = len(view.bins), len(view.workers)
    loads = np.array([state.load_seconds for state in view.bins])
    slots = np.array([worker.slots for worker in view.workers])
    away = np.array([[state.worker != worker.worker for worker in view.workers] for state in view.bins])
    sizes = np.array([state.bytes for state in view.bins])
    one_worker = LinearConstraint(np.kron(np.eye(count), np.ones(width)), 1, 1)
    room = (1 + target) * slots * loads.sum() / slots.sum()
    has_room = LinearConstraint(np.kron(loads, np.eye(width)), -np.inf, room)
    found = milp(
        (away * sizes[:, None]).ravel(),
        integrality=np.ones(count * width),
        bounds=Bounds(0, 1),
        constraints=[one_worker, has_room],
    )
    assert found.success
    return float(found.fun) * (1 - 1e-6)
