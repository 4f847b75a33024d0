"""Rows of days as the bench has them, made by hand."""

from __future__ import annotations

from typing import Any

from penstock_lab.experiments.days.cases import DayCase
from penstock_lab.experiments.days.trials import RIVALS
from penstock_lab.experiments.measurement import Row

SYSTEMS = ("causal-bound", "ahead", "ds2", *RIVALS)


def a_case_of_rows(
    day: str,
    capacity: str,
    dies: bool = False,
    bound_short_ratio: float = 0.0,
    **changes: dict[str, Any],
) -> list[Row]:
    """Make a row for each system: the bound holds 1.05 of the oracle's, ahead and ds2 1.1, rivals 1.5."""
    case = DayCase(day, capacity, dies=dies)
    rows = []
    for system in SYSTEMS:
        held = 1.5 if system in RIVALS else 1.05 if system == "causal-bound" else 1.1
        row: Row = {
            "case": case.name,
            "system": system,
            "day": day,
            "capacity": capacity,
            "noise": case.noise,
            "delay_s": case.delay,
            "dies": dies,
            "over_ratio": held - 1,
            "short_ratio": 0.0,
            "late_ratio": 0.0,
            "steps": 20 if system == "ahead" else 10,
            "flips": 0,
            "p99_latency_s": 0.1,
            "bound_over_ratio": 0.05,
            "bound_short_ratio": bound_short_ratio,
            "bound_late_ratio": 0.0,
            "held_ratio": held,
            "peak_share": 0.4,
            "errors": 0,
        }
        if day == "nights":
            row["second_spike_late_s"] = 0
        rows.append({**row, **changes.get(system, {})})
    return rows
