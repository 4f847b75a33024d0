"""The oracle: the least parallelism of every second, from the true capacities and the rates offered then."""

from __future__ import annotations

import numpy as np

from penstock.dataflow.metrics import Floats, Integers
from penstock.dataflow.propagation import ROUNDING_TOLERANCE
from penstock.simulate.experiment import Experiment

ROUNDS = 5
"""Interference and the instances it needs settle within a few rounds, or grow to the limits."""


def least_instances(experiment: Experiment) -> Integers:
    """For each second and operator the fewest instances whose capacity reaches what is offered to it.

    It knows no backlog and keeps no headroom. Sources, and operators that are not to be scaled, have what
    they began with; where no number is enough, it is the one with the largest capacity.
    """
    if experiment.shares_slots:
        return _fewest(experiment.capacities[0], experiment.offered.sum(axis=1))[:, np.newaxis]
    demand, shares = true_demand(experiment), experiment.capacity_shares()
    least = _least(experiment, demand / shares)
    for _ in range(ROUNDS if experiment.scenario.interference else 0):
        # instances on shared cores slow each other down, and so need more of themselves
        least = _least(experiment, demand / (shares * _undisturbed(experiment, least)))
    return least


def _least(experiment: Experiment, needed: Floats) -> Integers:
    least = np.tile(experiment.initial, (experiment.seconds, 1))
    for number in np.flatnonzero(experiment.graph.is_scalable):
        least[:, number] = _fewest(experiment.capacities[number], needed[:, number])
    return least


def _undisturbed(experiment: Experiment, held: Integers) -> Floats:
    sizes, place = np.unique(held, axis=0, return_inverse=True)
    shares = np.array([experiment.undisturbed(size) for size in sizes])
    return shares[place.reshape(-1)][:, np.newaxis]


def true_demand(experiment: Experiment) -> Floats:
    """Records offered to each operator in each second if all keep up (equation 8, true selectivities)."""
    demand = experiment.offered.copy()
    for number, feeds in enumerate(experiment.graph.upstream):
        for origin in feeds:
            demand[:, number] += demand[:, origin] * experiment.selectivity[origin]
    return demand


def _fewest(capacities: Floats, needed: Floats) -> Integers:
    # more instances may bring less (retrograde scaling); the best so far is what a number can reach
    reached = np.maximum.accumulate(capacities)
    found = np.searchsorted(reached, needed * (1 - ROUNDING_TOLERANCE), side="left")
    return np.clip(found, 1, int(np.argmax(capacities)))
