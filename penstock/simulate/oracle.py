"""The oracle: the least parallelism of every second, from the true capacities and the rates offered then."""

from __future__ import annotations

import numpy as np

from penstock.dataflow.metrics import Floats, Integers
from penstock.dataflow.propagation import ROUNDING_TOLERANCE
from penstock.simulate.experiment import Experiment
from penstock.simulate.scenario import OperatorSpec


def least_instances(experiment: Experiment) -> Integers:
    """For each second and operator the fewest instances whose capacity reaches what is offered to it.

    It knows no backlog and keeps no headroom. Sources, and operators that are not to be scaled, have what
    they began with; where no number is enough, it is the one with the largest capacity.
    """
    demand = true_demand(experiment)
    shares = experiment.capacity_shares()
    least = np.tile(experiment.initial, (experiment.seconds, 1))
    for number in np.flatnonzero(experiment.graph.is_scalable):
        needed = demand[:, number] / shares[:, number]
        least[:, number] = _fewest(experiment.capacities[number], needed)
    return least


def true_demand(experiment: Experiment) -> Floats:
    """Records offered to each operator in each second if all keep up (equation 8, true selectivities)."""
    demand = experiment.offered.copy()
    for number, feeds in enumerate(experiment.graph.upstream):
        for origin in feeds:
            spec = experiment.specs[origin]
            ratio = spec.selectivity if isinstance(spec, OperatorSpec) else 1.0
            demand[:, number] += demand[:, origin] * ratio
    return demand


def _fewest(capacities: Floats, needed: Floats) -> Integers:
    # more instances may bring less (retrograde scaling); the best so far is what a number can reach
    reached = np.maximum.accumulate(capacities)
    found = np.searchsorted(reached, needed * (1 - ROUNDING_TOLERANCE), side="left")
    return np.clip(found, 1, int(np.argmax(capacities)))
