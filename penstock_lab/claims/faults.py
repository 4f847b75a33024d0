"""Claims of the fault matrix: every cell is tried or cannot occur, and none is wrong."""

from __future__ import annotations

from penstock_lab.claims.claim import Claim, Judged
from penstock_lab.experiments.faults.rows import is_wrong
from penstock_lab.experiments.measurement import Measurement

TARGETS = (
    ("cells that were neither tried nor are impossible", "== 0", "cells_left"),
    ("cells whose output differs from that of an undisturbed run", "== 0", "cells_with_other_output"),
    ("actions done twice", "== 0", "actions_doubled"),
    ("actions lost", "== 0", "actions_lost"),
    ("cells in which the job died", "== 0", "cells_with_a_dead_job"),
    ("cells not back at the right size within their time", "== 0", "cells_too_late"),
)
QUICK_NOTE = "A quick run tries the cells that need no Spark; the proving ground is left to the whole run."


def judge_faults(measured: Measurement) -> Judged:
    """Judge the summary over the rows; a run without rows meets nothing."""
    claims = Claim.judge_summary(measured.summary, *TARGETS)
    wrong = [f"{row['fault']}, {row['part']}" for row in measured.rows if is_wrong(row)]
    notes = [QUICK_NOTE] if measured.quick else []
    return Judged(claims, notes=[*notes, *(f"wrong: {name}" for name in wrong)])
