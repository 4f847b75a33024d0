"""Days in the simulator: Penstock's policies, rivals by their published rules, and the causal bound."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.decide.ahead.policy import AheadPolicy
from penstock.decide.baselines.flink_autoscaler import DOCUMENTED_EXAMPLE
from penstock.decide.registry import make_policy
from penstock.settings.model import Settings
from penstock.simulate.bound import NAME as BOUND
from penstock.simulate.bound import Bound, find_bound
from penstock.simulate.experiment import Experiment
from penstock.simulate.measures import Measures, least_instances, measure
from penstock.simulate.run import Run, follow_sizes, run_policy
from penstock.simulate.virtual import LATENCY
from penstock_lab.experiments.days.cases import (
    BATCHES,
    DELAY,
    NOISE,
    PEAK_SIZE,
    RUN_SEED,
    DayCase,
    list_cases,
    make_experiment,
)
from penstock_lab.experiments.days.profiles import NIGHT_SPIKE
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
PLANNER = AheadPolicy.name
RIVALS = ("reactive-cpu", "keda-rate", "keda-lag", "flink-defaults", "flink-example")
SHORT, LATE = 0.002, 0.002
"""Only days on which the bound keeps to these count. It is sought for half as much, by a rougher count."""
ROOM = 0.5
"""Days on which the bound holds more of the peak cannot be held with three fifths of it."""


def run(extent: Extent, progress: Progress) -> Measurement:
    """Run every case on all cores."""
    cases = list_cases(extent.quick)
    # a child that is forked from a program with threads may hang, so each begins afresh
    context = multiprocessing.get_context("spawn")
    found: dict[DayCase, list[Row]] = {}
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


def run_case(case: DayCase, given: Experiment | None = None) -> list[Row]:
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


def _make_row(case: DayCase, system: str, run: Run, figures: Measures, bound: Bound) -> Row:
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


def summarise_days(rows: Sequence[Row], default: str) -> dict[str, float]:
    """Summarise the default policy, and the one that plans where it is not the default."""
    names = {"default": default, "planner": PLANNER}
    return {
        f"{role}_{key}": value
        for role, policy in names.items()
        for key, value in _summarise_policy(rows, policy).items()
    }


def _summarise_policy(rows: Sequence[Row], policy: str) -> dict[str, float]:
    usual = [row for row in rows if row["noise"] == NOISE and row["delay_s"] == DELAY and not row["dies"]]
    own = [row for row in usual if row["system"] == policy]
    can = [row for row in own if row["bound_short_ratio"] <= SHORT and row["bound_late_ratio"] <= LATE]
    dying = [row for row in rows if row["dies"] and row["system"] == policy]
    roomy = [row for row in dying if _find(rows, row, "causal-bound")["peak_share"] <= ROOM]
    figures = {
        "worst_short_ratio": _worst(can, lambda row: row["short_ratio"]),
        "worst_late_ratio": _worst(can, lambda row: row["late_ratio"]),
        "worst_over_beyond_bound": _worst([row for row in can if row["capacity"] != BATCHES], _beyond),
        "worst_over_beyond_bound_batches": _worst(
            [row for row in can if row["capacity"] == BATCHES], _beyond
        ),
        "second_spike_late_s": _worst(
            [row for row in own if "second_spike_late_s" in row], lambda row: row["second_spike_late_s"]
        ),
        "rivals_not_beaten": float(sum(_count_unbeaten(usual, row) for row in own)) if own else None,
        "worst_steps_over_ds2": _worst(
            own, lambda row: row["steps"] / max(1, _find(usual, row, "ds2")["steps"])
        ),
        "dying_worst_late_ratio": _worst(roomy, lambda row: row["late_ratio"]),
        "dying_worst_peak_share": _worst(roomy, lambda row: row["peak_share"]),
        "mean_over_ratio": sum(row["over_ratio"] for row in own) / len(own) if own else None,
    }
    return {key: value for key, value in figures.items() if value is not None}


def _worst(rows: Sequence[Row], figure: Callable[[Row], float]) -> float | None:
    return max((float(figure(row)) for row in rows), default=None)


def _beyond(row: Row) -> float:
    return float(row["over_ratio"] - row["bound_over_ratio"])


def _find(rows: Sequence[Row], like: Row, system: str) -> Row:
    """Return the row of another system on the same case."""
    return next(row for row in rows if row["case"] == like["case"] and row["system"] == system)


def _count_unbeaten(rows: Sequence[Row], own: Row) -> int:
    """Count the rivals that hold no more on this case, or are late for fewer seconds."""
    others = [_find(rows, own, rival) for rival in RIVALS]
    return sum(
        other["held_ratio"] <= own["held_ratio"] or other["late_ratio"] < own["late_ratio"]
        for other in others
    )


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
