"""One experiment under many seeds: what each run showed, and how far the figures spread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from penstock.simulate.experiment import Experiment
from penstock.simulate.measures import measure
from penstock.simulate.oracle import least_instances
from penstock.simulate.run import simulate

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
        """One JSON-ready object."""
        return {
            "scenario": self.scenario,
            "seeds": {"first": self.seeds[0], "count": len(self.seeds)},
            "policies": [
                {"policy": policy, "spread": self.spread(policy), "runs": list(runs)}
                for policy, runs in self.runs.items()
            ],
        }

    def spread(self, policy: str) -> dict[str, dict[str, float]]:
        """Median, 95th percentile and largest of each figure; none where no run has it."""
        found = {}
        for name in SHOWN:
            values = [run[name] for run in self.runs[policy] if run[name] is not None]
            if values:
                median, high, most = np.percentile(values, [50, 95, 100]).tolist()
                found[name] = {"median": median, "p95": high, "largest": most}
        return found

    def shown(self) -> Table:
        """A row for each policy: median, 95th percentile and largest of its runs."""
        table = Table(title=f"{self.scenario}, {len(self.seeds)} seeds: median / p95 / largest", box=None)
        table.add_column("policy")
        for heading in SHOWN.values():
            table.add_column(heading, justify="right")
        for policy in self.runs:
            spread = self.spread(policy)
            cells = [_cell(spread[name]) if name in spread else "–" for name in SHOWN]
            table.add_row(policy, *cells)
        return table


def run_seeds(
    experiment: Experiment,
    policies: Sequence[str],
    seeds: Sequence[int],
    on: Callable[[Experiment, Sequence[Seeded]], Iterable[Figures]],
) -> ManySeeds:
    """Run each policy under each seed; `on` says where: here, or on Spark."""
    pairs = [(policy, seed) for policy in policies for seed in seeds]
    found: dict[str, list[Figures]] = {policy: [] for policy in policies}
    for (policy, _), figures in zip(pairs, on(experiment, pairs), strict=True):
        found[policy].append(figures)
    runs = {policy: tuple(figures) for policy, figures in found.items()}
    return ManySeeds(experiment.name, tuple(seeds), runs)


def here(experiment: Experiment, pairs: Sequence[Seeded]) -> Iterable[Figures]:
    """One run after the other, in this process."""
    oracle = least_instances(experiment)
    for policy, seed in pairs:
        run = simulate(experiment, policy, seed)
        yield {"seed": seed, **measure(run, oracle).to_json(), "errors": dict(run.errors)}


def _cell(spread: dict[str, float]) -> str:
    return " / ".join(f"{value:,.3g}" for value in spread.values())
