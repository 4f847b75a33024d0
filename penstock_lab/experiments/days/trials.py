"""Days in the simulator: Penstock's policies, rivals by their published rules, and the causal bound."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.decide.baselines.flink_autoscaler import DOCUMENTED_EXAMPLE
from penstock.decide.registry import make_policy
from penstock.settings.model import Settings
from penstock.simulate.bound import NAME as BOUND
from penstock.simulate.bound import Bound, find_bound
from penstock.simulate.experiment import Experiment
from penstock.simulate.measures import Measures, least_instances, measure
from penstock.simulate.run import Run, follow_sizes, run_policy
from penstock.simulate.virtual import LATENCY
from penstock_lab.experiments.days.cases import PEAK_SIZE, RUN_SEED, Case, list_cases, make_experiment
from penstock_lab.experiments.days.profiles import NIGHT_SPIKE
from penstock_lab.experiments.days.summary import summarise_days
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row

FIXED = "fixed peak"
UNGUARDED: dict[str, Any] = {
    "warm_up_intervals": 0,
    "activation_intervals": 1,
    "scale_down_delay": 0.0,
    "largest_step_up": 1000.0,
    "largest_step_down": 1.0,
    "rollback": False,
    "small_gain_limit": 1000,
}
"""Rivals are run by their own rules: those of our manager, as far as settings can, are taken away."""
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "ahead": ("ahead", {}),
    "ds2": ("ds2", {}),
    "reactive-cpu": ("reactive-cpu", {}),
    "keda-rate": ("reactive-rate", UNGUARDED),
    "keda-lag": ("reactive-lag", UNGUARDED),
    "flink-defaults": ("flink-autoscaler", UNGUARDED),
    "flink-example": ("flink-autoscaler", {**UNGUARDED, **DOCUMENTED_EXAMPLE}),
}
"""System → its policy, and the settings that are not the defaults."""
SPIKE_SECONDS = 2400


def run(extent: Extent, progress: Progress) -> Measurement:
    """Run every case on all cores."""
    cases = list_cases(extent.quick)
    # a child that is forked from a program with threads may hang, so each begins afresh
    context = multiprocessing.get_context("spawn")
    found: dict[Case, list[Row]] = {}
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        futures = {pool.submit(run_case, case): case for case in cases}
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            progress(f"{len(found)} of {len(cases)}: {futures[future].name}")
    rows = [row for case in cases for row in found[case]]
    return Measurement(rows, summarise_days(rows, default_policy()), list(NOTES), quick=extent.quick)


def default_policy() -> str:
    """Return the name of the policy that is used where none is named."""
    return Settings().run.policy


def run_case(case: Case, given: Experiment | None = None) -> list[Row]:
    """Run all systems on one case, or on a part of it."""
    experiment = make_experiment(case) if given is None else given
    oracle = least_instances(experiment)
    bound = find_bound(experiment, RUN_SEED)
    peak = np.broadcast_to(oracle.max(axis=0), oracle.shape).copy()
    runs: list[tuple[str, Run, Measures]] = [(BOUND, bound.run, bound.measures)]
    fixed = follow_sizes(experiment, peak, FIXED, RUN_SEED)
    runs.append((FIXED, fixed, measure(fixed, oracle)))
    for system, (policy, own_settings) in SYSTEMS.items():
        own = replace(experiment, settings=_choose_settings(experiment, own_settings))
        done = run_policy(own, make_policy(policy, own.settings), RUN_SEED)
        runs.append((system, done, measure(done, oracle)))
    return [_make_row(case, system, done, figures, bound) for system, done, figures in runs]


def _choose_settings(experiment: Experiment, given: dict[str, Any]) -> Settings:
    """Add what KEDA's user has to know: four fifths of what an instance takes at the peak."""
    unit = int(np.flatnonzero(experiment.scaled)[-1])
    each = 0.8 * float(experiment.capacities[unit][PEAK_SIZE]) / PEAK_SIZE
    return experiment.settings.change(**given, reactive_rate_per_instance=each)


def _make_row(case: Case, system: str, run: Run, figures: Measures, bound: Bound) -> Row:
    seconds, late = run.experiment.seconds, figures.over_latency_target_seconds or 0
    least = bound.measures
    row: Row = {
        "case": case.name,
        "system": system,
        "day": case.day,
        "capacity": case.capacity,
        "noise": case.noise,
        "delay_s": case.delay,
        "dies": case.dies,
        "over_ratio": figures.over_slot_seconds / figures.oracle_slot_seconds,
        "short_ratio": figures.under_seconds / seconds,
        "late_ratio": late / seconds,
        "steps": figures.steps,
        "flips": figures.flips,
        "p99_latency_s": figures.p99_latency_seconds,
        "bound_over_ratio": least.over_slot_seconds / least.oracle_slot_seconds,
        "bound_short_ratio": least.under_seconds / seconds,
        "bound_late_ratio": (least.over_latency_target_seconds or 0) / seconds,
        "held_ratio": figures.slot_seconds / figures.oracle_slot_seconds,
        "peak_share": figures.slot_seconds / _count_peak(run, seconds),
        "errors": sum(run.errors.values()),
    }
    if case.day == "nights":
        spike = run.seen[NIGHT_SPIKE - 60 : NIGHT_SPIKE + SPIKE_SECONDS, LATENCY]
        row["second_spike_late_s"] = int((spike > (figures.latency_target_seconds or 0.0)).sum())
    return row


def _count_peak(run: Run, seconds: int) -> float:
    """Return the slot-seconds of the oracle's size at the peak, held all day."""
    slots = run.experiment.slots[run.experiment.scaled]
    return float(PEAK_SIZE * slots.sum() * seconds)


NOTES = (
    f"every day is scaled so that the oracle holds {PEAK_SIZE} at its peak; at most 64 are allowed",
    "a change is there after delay_s; what is new has half its speed for 10 s; metrics are known 5 s late",
    "noise is relative, on rates and on times, and the same for all instances of an operator",
    "late: over a latency of 10 s, of 30 s where batches are triggered every 10 s",
    f"{BOUND}: exact capacities, the same delay and noise, the best of a family of predictors in hindsight "
    "that is short in at most 0.1 % of the seconds; it may change its size also during a change",
    "flink and keda run without the manager's guardrails; keda-rate knows what an instance takes at the peak",
    "a week is told in fourteen hours, recorded days of numenta/NAB in six",
)
