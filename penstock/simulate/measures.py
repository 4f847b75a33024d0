"""The measures of a run: steps, latency, and slot-seconds against the oracle's least parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.metrics import Floats, Integers
from penstock.dataflow.propagation import ROUNDING_TOLERANCE, propagate_rates
from penstock.journal.records import ActionRecord
from penstock.simulate.experiment import Experiment
from penstock.simulate.run import Run
from penstock.simulate.virtual import BACKLOG, LATENCY


@dataclass(frozen=True, slots=True)
class Measures:
    """Figures of one run; slot-seconds count the operators that can be scaled."""

    steps: int
    flips: int
    slot_seconds: float
    oracle_slot_seconds: float
    over_slot_seconds: float
    under_slot_seconds: float
    under_seconds: int
    """Seconds in which some operator could take less than was offered to it, and than the oracle's could."""
    down_seconds: int
    latency_target_seconds: float | None
    over_latency_target_seconds: int | None
    p50_latency_seconds: float
    p95_latency_seconds: float
    p99_latency_seconds: float
    largest_backlog_records: float

    def to_json(self) -> dict[str, Any]:
        """Return the figures, and the first of them against the oracle's."""
        return {**asdict(self), "over_slot_seconds_ratio": self.over_slot_seconds / self.oracle_slot_seconds}


def measure(run: Run, oracle: Integers | None = None) -> Measures:
    """Compare a run with the oracle, second by second."""
    experiment = run.experiment
    least = least_instances(experiment) if oracle is None else oracle
    scaled = experiment.scaled
    surplus = (run.held - least)[:, scaled]
    slots = experiment.slots[scaled]
    latency = run.seen[:, LATENCY]
    target = experiment.settings.goals.latency_target
    p50, p95, p99 = run.record_latencies or np.percentile(latency, [50, 95, 99]).tolist()
    return Measures(
        steps=len(run.actions),
        flips=flips(run.actions, dict(zip(experiment.units, experiment.slots.tolist(), strict=True))),
        slot_seconds=_slot_seconds(run.held[:, scaled], slots),
        oracle_slot_seconds=_slot_seconds(least[:, scaled], slots),
        over_slot_seconds=_slot_seconds(np.maximum(surplus, 0), slots),
        under_slot_seconds=_slot_seconds(np.maximum(-surplus, 0), slots),
        under_seconds=int(find_short(run, least).sum()),
        down_seconds=int(run.down.sum()),
        latency_target_seconds=target,
        over_latency_target_seconds=None if target is None else int((latency > target).sum()),
        p50_latency_seconds=p50,
        p95_latency_seconds=p95,
        p99_latency_seconds=p99,
        largest_backlog_records=float(run.seen[:, BACKLOG].max()),
    )


def find_short(run: Run, least: Integers) -> NDArray[np.bool_]:
    """Tell for each second whether a unit that is scaled could take less than it was offered.

    Instances that had failed, were slow or still cold count as such. Where no size is enough, the oracle's
    own capacity is what is needed.
    """
    experiment, scaled = run.experiment, run.experiment.scaled
    demand = batch_demand(experiment) if experiment.shares_slots else true_demand(experiment)
    possible = np.empty(least.shape)
    for number, table in enumerate(experiment.capacities):
        possible[:, number] = table[least[:, number]]
    if not experiment.shares_slots:
        possible = possible * experiment.capacity_shares()
        if experiment.scenario.interference:
            possible = possible * _slow_down(experiment, least)
    needed = np.minimum(demand, possible) * (1 - ROUNDING_TOLERANCE)
    short: NDArray[np.bool_] = np.any(np.less(run.capable, needed)[:, scaled], axis=1)
    return short


def _slot_seconds(instances: Integers, slots: Integers) -> float:
    return float(instances.sum(axis=0) @ slots)


def flips(actions: Sequence[ActionRecord], slots: dict[str, int]) -> int:
    """Return how often a change in slots was followed by one in the other direction."""
    changes = [
        sum((count - action.before.get(name, 0)) * slots[name] for name, count in action.planned.items())
        for action in actions
    ]
    directions = [change > 0 for change in changes if change != 0]
    return sum(one != other for one, other in pairwise(directions))


ROUNDS = 5
"""Interference and the instances it needs settle within a few rounds, or grow to the limits."""


def least_instances(experiment: Experiment) -> Integers:
    """Return for each second and operator the fewest instances whose capacity reaches what is offered to it.

    It knows no backlog and keeps no headroom. Sources, and operators that are not to be scaled, have what
    they began with; where no number is enough, it is the one with the largest capacity.
    """
    if experiment.shares_slots:
        return _fewest(experiment.capacities[0], batch_demand(experiment)[:, 0])[:, np.newaxis]
    demand, shares = true_demand(experiment), experiment.capacity_shares()
    least = _least(experiment, demand / shares)
    for _ in range(ROUNDS if experiment.scenario.interference else 0):
        # instances on shared cores slow each other down, and so need more of themselves
        least = _least(experiment, demand / (shares * _slow_down(experiment, least)))
    return least


def _least(experiment: Experiment, needed: Floats) -> Integers:
    least = np.tile(experiment.initial, (experiment.seconds, 1))
    for number in np.flatnonzero(experiment.graph.is_scalable):
        least[:, number] = _fewest(experiment.capacities[number], needed[:, number])
    return least


def _slow_down(experiment: Experiment, held: Integers) -> Floats:
    sizes, place = np.unique(held, axis=0, return_inverse=True)
    shares = np.array([experiment.slow_down(size) for size in sizes])
    return shares[place.reshape(-1)][:, np.newaxis]


def true_demand(experiment: Experiment) -> Floats:
    """Return records offered to each operator in each second if all keep up (equation 8)."""
    graph = experiment.graph
    offered = {name: experiment.offered[:, graph.index[name]] for name in graph.sources}
    return np.column_stack(propagate_rates(graph, experiment.selectivity.tolist(), offered))


def batch_demand(experiment: Experiment) -> Floats:
    """Return what is offered to the executors: in each second the mean over its trigger interval.

    A batch takes the records of a whole interval, so it does not matter how they come within it.
    """
    assert experiment.scenario.batches is not None
    trigger, offered = int(experiment.scenario.batches.trigger), experiment.offered.sum(axis=1)
    firsts = np.arange(0, len(offered), trigger)
    sums, counts = np.add.reduceat(offered, firsts), np.diff([*firsts, len(offered)])
    return np.repeat(sums / counts, counts)[:, np.newaxis]


def _fewest(capacities: Floats, needed: Floats) -> Integers:
    # more instances may bring less (retrograde scaling); the best so far is what a number can reach
    reached = np.maximum.accumulate(capacities)
    found = np.searchsorted(reached, needed * (1 - ROUNDING_TOLERANCE), side="left")
    return np.clip(found, 1, int(np.argmax(capacities)))
