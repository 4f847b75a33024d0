"""Claims about ordinary jobs: what Penstock with all defaults makes of them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock_lab.claims.claim import Chart, Claim, Judged
from penstock_lab.experiments.measurement import Measurement, Row

IDLE_RELEASE = 80.0
"""Seconds: the default scale_down_delay of 60 s and two policy intervals of 10 s."""

TARGETS = (
    ("share of rows that end at the oracle or one executor above", ">= 0.95", "within_one_share"),
    ("rows that end below the oracle", "== 0", "below_oracle"),
    (
        "share of rows that ask for at most 1.5 times the oracle and one more",
        "== 1",
        "bounded_requests_share",
    ),
    ("share of rows with at most two steps", ">= 0.95", "two_steps_share"),
    ("seconds to the first decision, at most", "<= 60", "longest_first_decision"),
    ("median error of the predicted batch", "<= 0.15", "median_prediction_error"),
    ("90th percentile of that error", "<= 0.25", "p90_prediction_error"),
    ("share of rows whose output equals the batch query's", "== 1", "output_equal_share"),
)
WHOLE_TARGETS = (
    ("seconds until idle executors are released, at most", f"<= {IDLE_RELEASE:g}", "longest_idle_release"),
    (
        "executor-seconds on the day, over those of the size for its peak",
        "<= 0.6",
        "day_penstock_executor_seconds_share",
    ),
    (
        "share of the day's seconds over the 99th percentile of latency at that size",
        "<= 0.005",
        "day_penstock_late_share",
    ),
)
"""Targets of what a quick run leaves out: a time without input, and the day."""


def judge_field(measured: Measurement) -> Judged:
    """Judge the summary over Penstock's rows; a run without such rows meets nothing."""
    targets = TARGETS if measured.quick else (*TARGETS, *WHOLE_TARGETS)
    claims = Claim.judge_summary(measured.summary, *targets)
    left = "A time without input, the day and the search for the oracle are left to the whole run."
    return Judged(claims, [_draw_sizes(measured.rows)], [left] if measured.quick else [])


def _draw_sizes(rows: Sequence[Row]) -> Chart:
    """Draw the size at the end of each row beside the oracle's."""
    ours = [row for row in rows if not row["system"].startswith("fixed")]
    names = [f"{row['job']}, {row['load']}, {row['start']}, {row['system']}" for row in ours]
    series = [
        ("at the end", names, [row["final_executors"] for row in ours]),
        ("least that keeps up", names, [row["oracle_executors"] for row in ours]),
    ]
    return Chart("Executors at the end of each trial", "trial", "executors", series, bars=True)
