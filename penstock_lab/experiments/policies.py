"""All policies side by side: shipped scenarios, a profile like a recorded one, sub-linear curves, noise."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.decide.registry import POLICIES
from penstock.simulate.experiment import Experiment
from penstock.simulate.loading import list_shipped, load, parse
from penstock.simulate.measures import measure
from penstock.simulate.run import simulate
from penstock.simulate.virtual import LATENCY
from penstock_lab.experiments.curves import (
    CURVES,
    HOLD_SECONDS,
    CurveCase,
    count_needed_changes,
    count_steps,
)
from penstock_lab.experiments.measurement import (
    Extent,
    Measurement,
    Progress,
    Row,
    tell_settings,
)
from penstock_lab.experiments.simulated import LATENCY_SCENARIOS as TABLES

PLAIN, LEARNED, AHEAD = "ds2", "ds2-learned", "forecast:ds2-learned"
NOISES = (0.0, 0.02)
DRS = ("drs", "drs-observed")
TRAFFIC = "traffic"
"""The case that is not a shipped scenario: hours of a rate profile like those recorded on roads."""
NOISY_DAY_INTERVAL = 300
SEED = 2027
"""Of the judged profile: the aim of 98 % was chosen on that of 2026."""
HOURS = 6
QUIET = 20_000.0
RUSH_HOURS = ((28_000.0, 0.31, 0.045), (36_000.0, 0.74, 0.075))
"""Records per second on top of the base load, with middle and width as shares of the day."""
SWING = 0.03
SWING_SECONDS = 300.0
JITTER = 0.001
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
_NOISY_DAY = """
duration: 24h
sources: {{events: {{rate: "constant:1"}}}}
operators:
  main: {{inputs: [events], service_time: 1ms, curve: {{kind: usl, alpha: {alpha}}}}}
noise: 0.1
settings: {{policy_interval: {interval}s}}
"""


@dataclass(frozen=True, slots=True)
class PolicyRuns:
    """The scenarios, policies, changes of rate and noisy days that are run."""

    scenarios: tuple[str, ...]
    policies: tuple[str, ...]
    traffic_hours: float
    changes: int
    days: int
    days_of_ds2: int
    days_at_once: int


@dataclass(frozen=True, slots=True)
class Compared:
    """The results of all runs."""

    rows: list[Row]
    steps: dict[tuple[float, str], list[int]]
    """Noise and policy → actions for each change of rate, over all curves."""
    days: dict[str, list[tuple[int, int]]]
    """Policy → flips and steps of each noisy day."""
    needed: int
    """Changes of rate, over all curves, after which the least size is another one."""


def run(extent: Extent, progress: Progress) -> Measurement:
    """Run everything on all cores."""
    size = _choose_runs(extent.quick)
    found = _run_all(size, progress)
    rows = [*found.rows, *_list_curve_rows(found)]
    return Measurement(rows, summarise(found), _describe_method(size), found=found, quick=extent.quick)


def _choose_runs(quick: bool) -> PolicyRuns:
    if quick:
        few = ("flink-two-phases", "table4-q1", "table4-q5", "image-pipeline", *TABLES)
        policies = (PLAIN, LEARNED, AHEAD, "threshold", "queueing", "autrascale", *DRS)
        return PolicyRuns(few, policies, 2.5, 12, 8, 2, 2)
    return PolicyRuns(tuple(list_shipped()), (*POLICIES, AHEAD), 6.0, 120, 1000, 40, 10)


def _run_all(size: PolicyRuns, progress: Progress) -> Compared:
    # a child that is forked from a program with threads may hang, so each begins afresh
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        days = {
            policy: [
                pool.submit(count_flips, policy, range(first, min(first + size.days_at_once, count)))
                for first in range(0, count, size.days_at_once)
            ]
            for policy, count in ((LEARNED, size.days), (PLAIN, size.days_of_ds2))
        }
        curves = {
            (noise, policy): [
                pool.submit(count_steps, CurveCase(*curve, size.changes, noise), policy) for curve in CURVES
            ]
            for noise in NOISES
            for policy in (PLAIN, LEARNED)
        }
        rows = [
            pool.submit(run_scenario, case, policy, size.traffic_hours)
            for case in (*size.scenarios, TRAFFIC)
            for policy in size.policies
        ]
        needed = [pool.submit(count_needed_changes, CurveCase(*curve, size.changes, 0.0)) for curve in CURVES]
        progress(f"{sum(map(len, days.values()))} batches of noisy days")
        flips = {policy: _join_results(futures) for policy, futures in days.items()}
        progress(f"{len(CURVES)} curves with {size.changes} changes of rate, each {len(curves)} times")
        steps = {key: _join_results(futures) for key, futures in curves.items()}
        progress(f"{len(rows)} runs of policies on scenarios")
        least = sum(future.result() for future in needed)
        return Compared([future.result() for future in rows], steps, flips, least)


def _join_results(futures: Sequence[Future[list[Any]]]) -> list[Any]:
    return [one for future in futures for one in future.result()]


def summarise(found: Compared) -> dict[str, float]:
    """Take the figures of all runs together."""
    learned = [count for noise in NOISES for count in found.steps[noise, LEARNED]]
    plain = [count for noise in NOISES for count in found.steps[noise, PLAIN]]
    return {
        "learned_median_steps": float(np.median(learned)),
        "learned_p99_steps": float(np.percentile(learned, 99, method="inverted_cdf")),
        "learned_changes_over_ds2": sum(learned) / max(1, sum(plain)),
        "learned_changes_over_ds2_without_noise": compare_changes(found, 0.0),
        "needed_changes_over_ds2_without_noise": found.needed / max(1, sum(found.steps[0.0, PLAIN])),
        "ds2_median_steps": float(np.median(plain)),
        "rate_changes": float(len(learned)),
        "noisy_days": float(len(found.days[LEARNED])),
        "noisy_day_flips": float(sum(flips for flips, _ in found.days[LEARNED])),
        "noisy_day_steps": float(sum(steps for _, steps in found.days[LEARNED])),
        "noisy_day_flips_of_ds2_a_day": float(np.mean([flips for flips, _ in found.days[PLAIN]])),
        **_count_tables(found),
    }


def _count_tables(found: Compared) -> dict[str, float]:
    """Count the cases of tables II and III in which AuTraScale meets the target, and with fewer than DRS."""
    met = fewer = fewer_than_meeting = 0
    for case in TABLES:
        own, *others = (find_row(found, case, system) for system in ("autrascale", *DRS))
        if own["final_latency_s"] <= own["target_s"]:
            meeting = [row for row in others if row["final_latency_s"] <= row["target_s"]]
            met += 1
            fewer += all(own["final_slots"] < row["final_slots"] for row in others)
            fewer_than_meeting += bool(meeting) and all(
                own["final_slots"] < row["final_slots"] for row in meeting
            )
    return {
        "autrascale_cases_met": float(met),
        "autrascale_cases_fewer_than_each_drs": float(fewer),
        "autrascale_cases_fewer_than_drs_that_meets_it": float(fewer_than_meeting),
    }


def compare_changes(found: Compared, noise: float) -> float:
    """Return the changes that ds2-learned makes for each change of plain DS2."""
    return sum(found.steps[noise, LEARNED]) / max(1, sum(found.steps[noise, PLAIN]))


def find_row(found: Compared, case: str, system: str) -> Row:
    """Return the row of a case and a policy."""
    return next(row for row in found.rows if (row["case"], row["system"]) == (case, system))


def _list_curve_rows(found: Compared) -> list[Row]:
    return [
        {
            "case": f"sub-linear curves, noise of {noise:.0%}" if noise else "sub-linear curves",
            "system": policy,
            "steps": sum(steps),
            "median_steps": float(np.median(steps)),
            "p99_steps": float(np.percentile(steps, 99, method="inverted_cdf")),
            "most_steps": max(steps),
        }
        for (noise, policy), steps in found.steps.items()
    ]


def _describe_method(size: PolicyRuns) -> list[str]:
    return [
        f"sub-linear curves: {len(CURVES)} universal scalability laws, {size.changes} changes of rate of "
        f"{HOLD_SECONDS} s on each, with the settings of table 4 of the DS2 paper (no headroom, no band)",
        "needed_changes_over_ds2_without_noise: what a policy would need that always makes one change to the "
        "least size, and so the least that changes over plain ds2's can be without noise",
        f"noisy days: constant load, 1 to 40 instances, default settings, a decision every "
        f"{NOISY_DAY_INTERVAL} s",
        f"traffic: {size.traffic_hours:g} hours of a seeded profile like those recorded on roads, aimed at "
        "98 % of the capacity",
        "dynamic-allocation and trigger-interval decide by batches, and hold where operators are simulated",
        "tables II and III: slots and latency of the last tenth of twelve hours; a drs that misses the "
        "target may hold fewer",
    ]


def make_traffic_experiment(hours: float) -> Experiment:
    """Run the first hours of the profile on one operator, sized with little headroom."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        write_csv(Path(folder) / "traffic.csv", make_traffic())
        return parse(_TRAFFIC.format(hours=hours), Path(folder) / f"{TRAFFIC}.yaml")


def make_traffic(seed: int = SEED) -> Floats:
    """Make the records of every second; the same seed gives the same hours."""
    random = np.random.default_rng(seed)
    day = np.arange(HOURS * 3600) / (HOURS * 3600)
    rates = QUIET + sum(
        height * np.exp(-0.5 * ((day - middle) / width) ** 2) for height, middle, width in RUSH_HOURS
    )
    rates = rates * (1 + _make_swings(random, len(day)))
    jittered: Floats = rates * (1 + JITTER * random.standard_normal(len(day)))
    return jittered


def write_csv(path: Path, rates: Floats) -> None:
    """Write one row a second, as `rate: {csv: ...}` of a scenario reads it."""
    rows = "\n".join(f"{second},{rate:.1f}" for second, rate in enumerate(rates.tolist()))
    path.write_text(f"second,rate\n{rows}\n", encoding="utf-8")


def _make_swings(random: np.random.Generator, count: int) -> Floats:
    """Make noise that remembers some minutes: white noise through an exponential mean, twice."""
    keep = np.exp(-1 / SWING_SECONDS)
    swings: Floats = np.empty(count)
    level, slope = 0.0, 0.0
    for second, shock in enumerate(random.standard_normal(count).tolist()):
        slope = keep * slope + (1 - keep) * shock
        level = keep * level + (1 - keep) * slope
        swings[second] = level
    swings *= SWING / swings.std()
    return swings


def run_scenario(case: str, policy: str, hours: float) -> Row:
    """Run one policy on one scenario, against the oracle; final figures are of the last tenth."""
    experiment = make_traffic_experiment(hours) if case == TRAFFIC else load(case)
    run = simulate(experiment, policy)
    seen, seconds, scaled = measure(run), experiment.seconds, experiment.scaled
    late, last = seen.over_latency_target_seconds, max(1, experiment.seconds // 10)
    return {
        "case": case,
        "system": policy,
        "steps": seen.steps,
        "flips": seen.flips,
        "over_slot_seconds_ratio": seen.over_slot_seconds / seen.oracle_slot_seconds,
        "under_seconds_ratio": seen.under_seconds / seconds,
        "target_violation_seconds_ratio": None if late is None else late / seconds,
        "p99_latency_s": seen.p99_latency_seconds,
        "final_slots": float((run.held[-last:, scaled] @ experiment.slots[scaled]).mean()),
        "final_latency_s": float(run.seen[-last:, LATENCY].mean()),
        "target_s": experiment.settings.goals.latency_target,
        "settings": tell_settings(experiment.settings),
    }


def count_flips(policy: str, seeds: range) -> list[tuple[int, int]]:
    """Count flips and steps of each day of constant load with noise of 10 %, begun with the right size."""
    days = [measure(simulate(make_noisy_day(seed), policy, seed)) for seed in seeds]
    return [(seen.flips, seen.steps) for seen in days]


def make_noisy_day(seed: int) -> Experiment:
    """Make a day whose rate and curve follow from the seed; the settings are the defaults."""
    random = np.random.default_rng(seed)
    alpha, instances = float(random.choice([0.0, 0.01, 0.03])), int(random.integers(1, 41))
    rate = 1000 * instances / (1 + alpha * (instances - 1)) * 0.8 * random.uniform(0.9, 1.0)
    day = _read_day(alpha)
    sources = day.graph.is_source
    return replace(
        day,
        offered=np.where(sources, rate, np.zeros(day.offered.shape)),
        initial=np.where(sources, 1, np.full(len(sources), instances)),
    )


@lru_cache(maxsize=8)
def _read_day(alpha: float) -> Experiment:
    """Read a day of one curve once: days differ in rate and size only, and reading takes long."""
    return parse(_NOISY_DAY.format(alpha=alpha, interval=NOISY_DAY_INTERVAL), Path("noisy-day.yaml"))
