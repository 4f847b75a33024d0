"""Every verdict on the fault matrix can fail, and a cell that was not tried meets nothing."""

from __future__ import annotations

import pytest

from penstock_lab.claims.faults import judge_faults
from penstock_lab.experiments.faults.matrix import FaultCell
from penstock_lab.experiments.faults.rows import (
    Effects,
    Shown,
    is_wrong,
    make_empty_row,
    make_row,
    summarise_matrix,
)
from penstock_lab.experiments.measurement import Measurement, Row

CELL = FaultCell("journal away", "loop")


def a_row(**changes: object) -> Row:
    calm = Shown("output", Effects((1,), (1,)))
    return {**make_row(CELL, calm, [calm, calm], 60.0, "here"), **changes}


def judge(*rows: Row, cells: int | None = None) -> dict[str, bool]:
    summary = summarise_matrix(rows, len(rows) if cells is None else cells)
    return {claim.name: claim.met for claim in judge_faults(Measurement(list(rows), summary)).claims}


def test_a_matrix_without_a_fault_in_it_meets_every_target():
    assert all(judge(a_row(), make_empty_row(FaultCell("two controllers", "loop", "there is one"))).values())


@pytest.mark.parametrize(
    ("run", "missed"),
    [
        (Shown("other"), "cells whose output differs from that of an undisturbed run"),
        (Shown("output", Effects((1,), (1, 1))), "actions done twice"),
        (Shown("output", Effects((), (1,))), "actions done twice"),
        (Shown("output", Effects((1, 2), (1,))), "actions lost"),
        (Shown("output", Effects((1,), (1,), left_open=1)), "actions lost"),
        (Shown("output", is_alive=False), "cells in which the job died"),
        (Shown("output", seconds_to_recover=60.1), "cells not back at the right size within their time"),
        (Shown("output", seconds_to_recover=None), "cells not back at the right size within their time"),
    ],
)
def test_one_wrong_run_of_many_is_seen(run: Shown, missed: str):
    row = make_row(CELL, Shown("output"), [Shown("output"), run], 60.0, "here")
    assert is_wrong(row)
    assert [name for name, met in judge(row, a_row()).items() if not met] == [missed]


@pytest.mark.parametrize("rows", [(make_empty_row(CELL, "no ground"),), (make_empty_row(CELL),)])
def test_a_cell_without_a_trial_or_a_reason_is_missed(rows: tuple[Row, ...]):
    left = "cells that were neither tried nor are impossible"
    assert [name for name, met in judge(a_row(), *rows).items() if not met] == [left]
    assert not judge(a_row(), cells=2)[left]


def test_a_trial_without_runs_shows_nothing():
    row = make_row(CELL, Shown("output"), [], 60.0, "here")
    assert not row["output_equal"] and not row["job_alive"] and row["seconds_to_recover"] is None
