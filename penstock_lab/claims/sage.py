"""Claims of Sage (auto-sizing at LinkedIn): the size its rules come to, beside the least that does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from penstock_lab.claims.claim import Claim, Judged, Verdict, add_conditions
from penstock_lab.experiments.measurement import Measurement, Row

SIZED = "real applications of known need, each from over and from under, restarted by their supervisor"
OTHER_PACE = "rules are evaluated every 1.5 s here, so that minutes of watching become seconds"
PUBLISHED = {"sage_final_over_optimal": 1.14, "sage_sizing_minutes": 40}
EVALUATION = "Sage, evaluation"
TARGETS = (
    ("final over the least that runs well, worst case", "<= 1.10", "worst_final_over_optimal"),
    ("memory scale-downs, most in a case", "<= 1", "most_memory_downs"),
    ("decreases that were undone", "<= 0", "decreases_undone"),
    ("executors lost after a decrease", "<= 0", "lost_after_decrease"),
    ("applications still being sized in the end", "<= 0", "not_settled"),
)
"""Name, target and figure of the summary; an optimum that was not found fails the first one."""


def judge(measured: Measurement) -> Judged:
    """Judge how far the final size is above the least that is enough, and how it was reached."""
    claims = [*judge_sizing(measured.rows), *Claim.judge_summary(measured.summary, *TARGETS)]
    return Judged(add_conditions(SIZED, claims), published=PUBLISHED)


def judge_sizing(rows: Sequence[Row]) -> list[Claim]:
    """Judge the worst over-size; show how long it took, and the course of each row."""
    minutes = sum(row["sizing_seconds"] for row in rows) / len(rows) / 60
    return [
        _judge_over_size(rows),
        Claim.show_beside("sizing time on average, minutes", 40, round(minutes, 1), OTHER_PACE),
        *(_show_course(row) for row in rows),
    ]


def _judge_over_size(rows: Sequence[Row]) -> Claim:
    """Judge the worst case; one that is still being sized can show a size too large, but not a good one."""
    over = [row["final_over_optimal"] for row in rows]
    worst = None if any(map(math.isnan, over)) else round(max(over) - 1, 4)
    found = Claim.judge_figure("over the least that runs well, at most", 0.14, worst, figure=EVALUATION)
    late = [f"{row['case']} ({row['start']})" for row in rows if not row["settled"]]
    if late and found.verdict is not Verdict.WORSE:
        why = f"still being sized when the run ended: {', '.join(late)}"
        return replace(found, verdict=Verdict.NOT_COMPARABLE, why=why)
    return found


def _show_course(row: Row) -> Claim:
    name = f"{row['case']}, started {row['start']}-sized"
    pause = f"{row['pause_seconds']:.0f} s without batches in all"
    ours = f"{row['actions']} restarts, {pause}: {row['course']}"
    late = "" if row["settled"] else "; it was still being sized when the run ended"
    return Claim.show_beside(name, None, ours, f"the paper's applications are not ours{late}")
