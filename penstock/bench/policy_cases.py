"""The cases of `penstock bench policies`, each small enough for one process to do alone."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from penstock.bench.report import Row
from penstock.bench.traffic_profile import traffic, write_csv
from penstock.simulate.experiment import Experiment
from penstock.simulate.loading import load, parse
from penstock.simulate.measures import measure
from penstock.simulate.oracle import least_instances
from penstock.simulate.run import Run, simulate
from penstock.simulate.virtual import LATENCY

TRAFFIC = "traffic"
"""The case that is not a shipped scenario: hours of a rate profile like a recorded one."""
LARGEST = 48
"""Instances that the largest rate of a sub-linear curve needs."""
HOLD_SECONDS = 1200
NOISY_DAY_INTERVAL = 300


@dataclass(frozen=True, slots=True)
class CurveCase:
    """A universal scalability law, how many changes of rate it sees, and the noise of measurements."""

    alpha: float
    beta: float
    changes: int
    noise: float


def traffic_experiment(hours: float) -> Experiment:
    """The first hours of the profile on one operator, sized with little headroom."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        write_csv(Path(folder) / "traffic.csv", traffic())
        return parse(_TRAFFIC.format(hours=hours), Path(folder) / f"{TRAFFIC}.yaml")


def scenario_row(case: str, policy: str, hours: float) -> Row:
    """One policy on one scenario, against the oracle."""
    experiment = traffic_experiment(hours) if case == TRAFFIC else load(case)
    run = simulate(experiment, policy)
    seen, seconds = measure(run), experiment.seconds
    late = seen.over_latency_target_seconds
    return {
        "case": case,
        "system": policy,
        "steps": seen.steps,
        "flips": seen.flips,
        "over_slot_seconds_ratio": seen.over_slot_seconds / seen.oracle_slot_seconds,
        "under_seconds_ratio": seen.under_seconds / seconds,
        "target_violation_seconds_ratio": None if late is None else late / seconds,
        "p99_latency_s": seen.p99_latency_seconds,
        **_in_the_end(run),
    }


def _in_the_end(run: Run) -> Row:
    """What a run came to: slots and latency over its last tenth."""
    experiment, last = run.experiment, max(1, run.experiment.seconds // 10)
    scaled = experiment.scaled
    slots = float((run.held[-last:, scaled] @ experiment.slots[scaled]).mean())
    return {
        "final_slots": slots,
        "final_latency_s": float(run.seen[-last:, LATENCY].mean()),
        "target_s": experiment.settings.latency_target,
    }


def steps_for_each_change(case: CurveCase, policy: str) -> list[int]:
    """The actions that followed each change of the offered rate, on one sub-linear curve."""
    run = simulate(curve_experiment(case), policy)
    steps = [0] * case.changes
    for action in run.actions:
        steps[min(case.changes - 1, int(action.intended_at) // HOLD_SECONDS)] += 1
    return steps


def changes_needed(case: CurveCase) -> int:
    """Changes of rate after which the least size is another one: to follow it takes no fewer changes."""
    experiment = curve_experiment(case)
    sizes = np.vstack([experiment.initial, least_instances(experiment)[::HOLD_SECONDS]])
    return int(np.diff(sizes, axis=0).any(axis=1).sum())


def curve_experiment(case: CurveCase) -> Experiment:
    """Steps of the rate, between a sixth and all of what 48 instances take, on one curve."""
    random = np.random.default_rng(int(1e6 * case.alpha + 1e8 * case.beta))
    others = LARGEST - 1
    top = 1000 * LARGEST / (1 + case.alpha * others + case.beta * LARGEST * others)
    rates = top * random.uniform(1 / 6, 1, case.changes)
    steps = ",".join(f"{number * HOLD_SECONDS}={rate:.0f}" for number, rate in enumerate(rates.tolist()))
    text = _CURVE.format(
        duration=case.changes * HOLD_SECONDS, steps=steps, alpha=case.alpha, beta=case.beta, noise=case.noise
    )
    return parse(text, Path("curve.yaml"))


def flips_of_noisy_days(policy: str, seeds: range) -> list[tuple[int, int]]:
    """Flips and steps of each day of constant load with noise of 10 %, begun with the right size."""
    found = []
    for seed in seeds:
        seen = measure(simulate(noisy_day(seed), policy, seed))
        found.append((seen.flips, seen.steps))
    return found


def noisy_day(seed: int) -> Experiment:
    """A day whose rate and curve follow from the seed; the settings are the defaults."""
    random = np.random.default_rng(seed)
    alpha, instances = float(random.choice([0.0, 0.01, 0.03])), int(random.integers(1, 41))
    rate = 1000 * instances / (1 + alpha * (instances - 1)) * 0.8 * random.uniform(0.9, 1.0)
    day = _any_day(alpha)
    sources = day.graph.is_source
    return replace(
        day,
        offered=np.where(sources, rate, np.zeros(day.offered.shape)),
        initial=np.where(sources, 1, np.full(len(sources), instances)),
    )


@lru_cache(maxsize=8)
def _any_day(alpha: float) -> Experiment:
    """The days of one curve, which differ in nothing but rate and size: reading one takes long."""
    return parse(_NOISY_DAY.format(alpha=alpha, interval=NOISY_DAY_INTERVAL), Path("noisy-day.yaml"))


_TRAFFIC = """
duration: {hours}h
sources: {{cars: {{rate: {{csv: traffic.csv, time: second, rate: rate}}}}}}
operators:
  main: {{inputs: [cars], service_time: 1ms, instances: 21, curve: {{kind: usl, alpha: 0.002}}}}
scaling: {{kind: live, pause: 10s}}
settings:
  policy_interval: 10s
  latency_target: 1s
  max_executors: 100
  utilisation: 0.98
  utilisation_low: 0.95
  warm_up_intervals: 0
  activation_intervals: 1
  largest_step_down: 1.0
"""
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
_NOISY_DAY = """
duration: 24h
sources: {{events: {{rate: "constant:1"}}}}
operators:
  main: {{inputs: [events], service_time: 1ms, curve: {{kind: usl, alpha: {alpha}}}}}
noise: 0.1
settings: {{policy_interval: {interval}s}}
"""
