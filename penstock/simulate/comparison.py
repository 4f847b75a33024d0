"""Policies side by side on one experiment, once or under many seeds, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from penstock.dataflow.metrics import Integers
from penstock.simulate.bound import NAME, Bound, find_bound
from penstock.simulate.experiment import Experiment
from penstock.simulate.measures import Measures, least_instances, measure
from penstock.simulate.run import Run, simulate


@dataclass(frozen=True, eq=False)
class Comparison:
    """The runs of several policies, on the same load and with the same noise."""

    experiment: Experiment
    seed: int
    oracle: Integers
    runs: tuple[tuple[Run, Measures], ...]
    bound: Bound | None = None
    """A run that no controller could beat by much, however it decides."""

    def to_json(self) -> dict[str, Any]:
        """Return one JSON-ready object."""
        return {
            "scenario": self.experiment.name,
            "seed": self.seed,
            "seconds": self.experiment.seconds,
            "oracle": {
                unit: {"least": int(column.min()), "most": int(column.max())}
                for unit, column in zip(self.experiment.units, self.oracle.T, strict=True)
            },
            "bound": None
            if self.bound is None
            else {**self.bound.measures.to_json(), "predictor": self.bound.predictor},
            "policies": [_write_run(run, measures) for run, measures in self.runs],
        }


def compare(
    experiment: Experiment, policies: Iterable[str], seed: int, progress: Callable[[str], None]
) -> Comparison:
    """Run each policy on the experiment."""
    oracle = least_instances(experiment)
    runs: list[tuple[Run, Measures]] = []
    for policy in policies:
        progress(f"{experiment.name}: {policy}")
        run = simulate(experiment, policy, seed)
        runs.append((run, measure(run, oracle)))
    progress(f"{experiment.name}: {NAME}")
    return Comparison(experiment, seed, oracle, tuple(runs), find_bound(experiment, seed))


def _write_run(run: Run, measures: Measures) -> dict[str, Any]:
    return {
        "policy": run.policy,
        **measures.to_json(),
        "final_parallelism": dict(zip(run.experiment.units, run.held[-1].tolist(), strict=True)),
        "actions": [
            {
                "at": action.intended_at,
                "ended_at": action.ended_at,
                "status": action.status.value if action.status else None,
                "from": dict(action.before),
                "to": dict(action.planned),
                "reason": action.reason,
                "notes": list(action.notes),
                "measured": dict(action.measured) if action.measured else None,
            }
            for action in run.actions
        ],
        "decisions": [
            {"at": one.first_at, "kind": one.verdict.kind, "reason": one.verdict.reason, "count": one.count}
            for one in run.decisions
        ],
        "errors": dict(run.errors),
    }


Figures = dict[str, Any]
Seeded = tuple[str, int]
"""A policy and a seed."""

SHOWN = {
    "steps": "steps",
    "flips": "flips",
    "over_slot_seconds_ratio": "over",
    "under_seconds": "short, s",
    "over_latency_target_seconds": "late, s",
    "p99_latency_seconds": "p99, s",
}
"""The figures whose spread is told → their headings."""


@dataclass(frozen=True, slots=True)
class ManySeeds:
    """The figures of all runs; those of one policy stand in the order of the seeds."""

    scenario: str
    seeds: tuple[int, ...]
    runs: dict[str, tuple[Figures, ...]]

    def to_json(self) -> dict[str, Any]:
        """Return one JSON-ready object."""
        return {
            "scenario": self.scenario,
            "seeds": {"first": self.seeds[0], "count": len(self.seeds)},
            "policies": [
                {"policy": policy, "spread": self.spread(policy), "runs": list(runs)}
                for policy, runs in self.runs.items()
            ],
        }

    def spread(self, policy: str) -> dict[str, dict[str, float]]:
        """Return median, 95th percentile and largest of each figure; none where no run has it."""
        found = {}
        for name in SHOWN:
            values = [run[name] for run in self.runs[policy] if run[name] is not None]
            if values:
                median, high, most = np.percentile(values, [50, 95, 100]).tolist()
                found[name] = {"median": median, "p95": high, "largest": most}
        return found


def run_seeds(
    experiment: Experiment,
    policies: Sequence[str],
    seeds: Sequence[int],
    on: Callable[[Experiment, Sequence[Seeded]], Iterable[Figures]],
) -> ManySeeds:
    """Run each policy under each seed; `on` says where: here, or on Spark."""
    found = iter(on(experiment, [(policy, seed) for policy in policies for seed in seeds]))
    runs = {policy: tuple(islice(found, len(seeds))) for policy in policies}
    return ManySeeds(experiment.name, tuple(seeds), runs)


def here(experiment: Experiment, pairs: Sequence[Seeded]) -> Iterable[Figures]:
    """Yield one run after the other, in this process."""
    oracle = least_instances(experiment)
    for policy, seed in pairs:
        run = simulate(experiment, policy, seed)
        yield {"seed": seed, **measure(run, oracle).to_json(), "errors": dict(run.errors)}
