"""Operators whose instances slow each other down: curves that nobody fitted to a published answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.simulate.experiment import Experiment
from penstock.simulate.loading import parse
from penstock.simulate.measures import least_instances
from penstock.simulate.run import simulate

CURVES = ((0.01, 0.0), (0.02, 0.0), (0.03, 0.0), (0.05, 0.0), (0.02, 0.0001), (0.03, 0.0002))
"""Alpha and beta of universal scalability laws."""
LARGEST = 48
"""Instances that the largest rate of a sub-linear curve needs."""
HOLD_SECONDS = 1200
# the settings of table 4 of the DS2 paper, as in the scenarios table4-*
_CURVE = """
duration: {duration}
sources: {{events: {{rate: "steps:{steps}", keeps_backlog: false}}}}
operators:
  main:
    inputs: [events]
    service_time: 1ms
    instances: 8
    queue: 50000
    curve: {{kind: usl, alpha: {alpha}, beta: {beta}}}
scaling: {{kind: restart, pause: 30s}}
noise: {noise}
settings:
  policy_interval: 30s
  warm_up_intervals: 1
  activation_intervals: 1
  target_rate_ratio: 1.0
  utilisation: 1.0
  utilisation_low: 0.99
  scale_down_delay: 0s
  largest_step_down: 1.0
  rollback: false
  max_executors: 96
"""


@dataclass(frozen=True, slots=True)
class CurveCase:
    """A universal scalability law, how many changes of rate it sees, and the noise of measurements."""

    alpha: float
    beta: float
    changes: int
    noise: float


def count_steps(case: CurveCase, policy: str) -> list[int]:
    """Count the actions that followed each change of the offered rate, on one sub-linear curve."""
    run = simulate(make_curve(case), policy)
    steps = [0] * case.changes
    for action in run.actions:
        steps[min(case.changes - 1, int(action.intended_at) // HOLD_SECONDS)] += 1
    return steps


def count_needed_changes(case: CurveCase) -> int:
    """Count the changes of rate after which the least size is another one."""
    experiment = make_curve(case)
    sizes = np.vstack([experiment.initial, least_instances(experiment)[::HOLD_SECONDS]])
    return int(np.diff(sizes, axis=0).any(axis=1).sum())


def make_curve(case: CurveCase) -> Experiment:
    """Make steps of the rate, between a sixth and all of what 48 instances take, on one curve."""
    random = np.random.default_rng(int(1e6 * case.alpha + 1e8 * case.beta))
    others = LARGEST - 1
    top = 1000 * LARGEST / (1 + case.alpha * others + case.beta * LARGEST * others)
    rates = top * random.uniform(1 / 6, 1, case.changes)
    steps = ",".join(f"{number * HOLD_SECONDS}={rate:.0f}" for number, rate in enumerate(rates.tolist()))
    text = _CURVE.format(
        duration=case.changes * HOLD_SECONDS, steps=steps, alpha=case.alpha, beta=case.beta, noise=case.noise
    )
    return parse(text, Path("curve.yaml"))
