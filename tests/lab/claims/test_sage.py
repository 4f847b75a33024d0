"""Claims on sizes, from made-up rows of applications that were sized."""

import math

from penstock_lab.claims.claim import Verdict
from penstock_lab.claims.sage import judge_sizing


def sized_row(**changes):
    row = {"case": "heap", "start": "over", "actions": 2, "pause_seconds": 12.4, "final_over_optimal": 1.05,
           "sizing_seconds": 90.0, "settled": 1,
           "course": "P6 memory 2g → 1g"}  # fmt: skip
    return {**row, **changes}


def test_the_worst_over_size_counts_and_every_case_tells_what_it_took():
    over, minutes, took = judge_sizing([sized_row()])
    assert (over.measured, over.verdict) == (0.05, Verdict.BETTER) and minutes.measured == 1.5
    assert took.measured == "2 restarts, 12 s without batches in all: P6 memory 2g → 1g"
    over, _, *courses = judge_sizing([sized_row(), sized_row(final_over_optimal=1.5, settled=0)])
    assert over.verdict is Verdict.WORSE
    assert "still being sized" in courses[1].why


def test_without_an_optimum_no_size_is_called_too_large():
    assert judge_sizing([sized_row(final_over_optimal=math.nan)])[0].verdict is Verdict.NOT_COMPARABLE


def test_an_application_that_is_still_being_sized_does_not_show_a_good_size():
    late = sized_row(start="under", final_over_optimal=0.6, settled=0)
    found = judge_sizing([sized_row(), late])[0]
    assert (found.measured, found.verdict) == (0.05, Verdict.NOT_COMPARABLE)
    assert found.why == "still being sized when the run ended: heap (under)"
