"""Claims about days in the simulator: what the default policy holds, and for how long it is too small."""

from __future__ import annotations

from collections.abc import Sequence

from penstock_lab.claims.claim import Chart, Claim, Judged
from penstock_lab.experiments.measurement import Measurement, Row

TARGETS = (
    ("share of seconds short where the bound can, at most", "<= 0.001", "worst_short_ratio"),
    ("share of seconds late where the bound can, at most", "<= 0.002", "worst_late_ratio"),
    ("held beyond the bound, linear and sub-linear, at most", "<= 0.1", "worst_over_beyond_bound"),
    ("held beyond the bound, micro-batches, at most", "<= 0.2", "worst_over_beyond_bound_batches"),
    ("seconds late in the second night's spike, at most", "<= 10", "second_spike_late_s"),
    ("rivals on a day that are not dearer, or are late for less", "== 0", "rivals_not_beaten"),
    ("changes over those of ds2, at most", "<= 2", "worst_steps_over_ds2"),
    ("share of seconds late while instances die, at most", "<= 0.002", "dying_worst_late_ratio"),
    ("held over a fixed peak size while instances die, at most", "<= 0.6", "dying_worst_peak_share"),
)
DEFAULT, PLANNER = "default", "planner"


def judge_days(measured: Measurement) -> Judged:
    """Judge the default policy; the one that plans is shown beside it with the same figures."""
    figures = measured.summary
    claims = Claim.judge_summary(
        figures, *((name, target, f"{DEFAULT}_{key}") for name, target, key in TARGETS)
    )
    shown = [
        Claim.show_beside(
            f"ahead: {name}", None, figures.get(f"{PLANNER}_{key}"), f"not the default; {target}"
        )
        for name, target, key in TARGETS
    ]
    return Judged([*claims, *shown], [_draw_over(measured.rows)])


def _draw_over(rows: Sequence[Row]) -> Chart:
    """Draw what each system holds beyond the oracle, case by case."""
    systems = list(dict.fromkeys(row["system"] for row in rows))
    series = []
    for system in systems:
        own = [row for row in rows if row["system"] == system]
        series.append((system, [row["case"] for row in own], [100 * row["over_ratio"] for row in own]))
    return Chart("Slot-seconds beyond the oracle's", "case", "per cent", series, bars=True)
