"""What a run is judged by: steps, slot-seconds against the oracle, latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.dataflow.metrics import Integers
from penstock.journal.records import ActionRecord
from penstock.simulate.oracle import least_instances
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
    """Seconds in which some operator had fewer instances than the oracle."""
    down_seconds: int
    latency_target_seconds: float | None
    over_latency_target_seconds: int | None
    p50_latency_seconds: float
    p95_latency_seconds: float
    p99_latency_seconds: float
    largest_backlog_records: float

    def to_json(self) -> dict[str, Any]:
        """The figures, and the first of them against the oracle's."""
        return {**asdict(self), "over_slot_seconds_ratio": self.over_slot_seconds / self.oracle_slot_seconds}


def measure(run: Run, oracle: Integers | None = None) -> Measures:
    """Compare a run with the oracle, second by second."""
    experiment = run.experiment
    least = least_instances(experiment) if oracle is None else oracle
    scaled = experiment.scaled
    surplus = (run.held - least)[:, scaled]
    slots = experiment.slots[scaled]
    latency = run.seen[:, LATENCY]
    target = experiment.settings.latency_target
    p50, p95, p99 = run.record_latencies or np.percentile(latency, [50, 95, 99]).tolist()
    return Measures(
        steps=len(run.actions),
        flips=flips(run.actions, dict(zip(experiment.units, experiment.slots.tolist(), strict=True))),
        slot_seconds=_slot_seconds(run.held[:, scaled], slots),
        oracle_slot_seconds=_slot_seconds(least[:, scaled], slots),
        over_slot_seconds=_slot_seconds(np.maximum(surplus, 0), slots),
        under_slot_seconds=_slot_seconds(np.maximum(-surplus, 0), slots),
        under_seconds=int((surplus < 0).any(axis=1).sum()),
        down_seconds=int(run.down.sum()),
        latency_target_seconds=target,
        over_latency_target_seconds=None if target is None else int((latency > target).sum()),
        p50_latency_seconds=p50,
        p95_latency_seconds=p95,
        p99_latency_seconds=p99,
        largest_backlog_records=float(run.seen[:, BACKLOG].max()),
    )


def _slot_seconds(instances: Integers, slots: Integers) -> float:
    return float(instances.sum(axis=0) @ slots)


def flips(actions: Sequence[ActionRecord], slots: dict[str, int]) -> int:
    """How often a change in slots was followed by one in the other direction."""
    changes = [
        sum((count - action.before.get(name, 0)) * slots[name] for name, count in action.planned.items())
        for action in actions
    ]
    directions = [change > 0 for change in changes if change != 0]
    return sum(one != other for one, other in pairwise(directions))
