"""The figures over all days that targets are set for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.decide.ahead.policy import AheadPolicy
from penstock_lab.experiments.days.cases import BATCHES, DELAY, NOISE
from penstock_lab.experiments.measurement import Row

PLANNER = AheadPolicy.name
RIVALS = ("reactive-cpu", "keda-rate", "keda-lag", "flink-defaults", "flink-example")
SHORT, LATE = 0.002, 0.002
"""What the bound must reach for the target to count: it is sought for half as much, by a rougher count."""
ROOM = 0.5
"""Days on which the bound holds more of the peak cannot be held with three fifths of it."""


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
