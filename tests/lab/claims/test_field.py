"""Every verdict on ordinary jobs can fail, and what was not measured meets nothing."""

from __future__ import annotations

import pytest

from penstock_lab.claims.field import judge_field
from penstock_lab.experiments.field.rows import (
    DoneTrial,
    add_lateness,
    complete_row,
    measure_trial,
    summarise_field,
)
from penstock_lab.experiments.measurement import Measurement, Row
from tests.lab.experiments.field.made_runs import a_run, a_trial

SIZE = "executor-seconds on the day, over those of the size for its peak"
LATE = "share of the day's seconds over the 99th percentile of latency at that size"


def a_row(**changes: object) -> Row:
    row = complete_row(measure_trial(a_run()), 3, "searched")
    told = {"most_requested": 3, "seconds_to_first_decision": 40.0, "prediction_error": 0.1}
    return {**row, **told, **changes}


def a_day(system: str, executor_seconds: float, late: float) -> Row:
    told = {"final_executors": 1, "steps": 9, "prediction_error": None}
    return a_row(system=system, load="day", executor_seconds=executor_seconds, late_share=late, **told)


def day_rows(share: float = 0.55, late: float = 0.004) -> list[Row]:
    sides = (
        ("fixed-peak", 1000.0, 0.01),
        ("dynamic-allocation", 900.0, 0.2),
        ("penstock", 1000 * share, late),
    )
    return [a_day(*side) for side in sides]


def judge(*rows: Row, quick: bool = False) -> dict[str, bool]:
    claims = judge_field(Measurement(list(rows), summarise_field(rows), quick=quick)).claims
    return {claim.name: claim.met for claim in claims}


def test_right_trials_meet_every_target():
    assert all(judge(a_row(), *day_rows()).values())


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"final_executors": 5}, "share of rows that end at the oracle or one executor above"),
        ({"final_executors": 2}, "rows that end below the oracle"),
        ({"most_requested": 134}, "share of rows that ask for at most 1.5 times the oracle and one more"),
        ({"steps": 3}, "share of rows with at most two steps"),
        ({"seconds_to_first_decision": 130.0}, "seconds to the first decision, at most"),
        ({"seconds_to_first_decision": None}, "seconds to the first decision, at most"),
        ({"prediction_error": 0.6}, "median error of the predicted batch"),
        ({"prediction_error": 0.6}, "90th percentile of that error"),
        ({"prediction_error": None}, "median error of the predicted batch"),
        ({"seconds_to_release_when_idle": 81.0}, "seconds until idle executors are released, at most"),
        ({"seconds_to_release_when_idle": None}, "seconds until idle executors are released, at most"),
        ({"output_equal": False}, "share of rows whose output equals the batch query's"),
        ({"output_equal": None}, "share of rows whose output equals the batch query's"),
    ],
)
def test_every_verdict_can_fail(change, missed):
    assert not judge(a_row(**change), *day_rows())[missed]


@pytest.mark.parametrize(
    ("day", "missed"),
    [
        (day_rows(share=0.61), {SIZE}),
        (day_rows(late=0.0051), {LATE}),
        (day_rows()[:2], {SIZE, LATE}),
        (day_rows()[1:], {SIZE, LATE}),
        ([{**row, "failure": "it died"} for row in day_rows()], {SIZE, LATE}),
        ([], {SIZE, LATE}),
    ],
)
def test_verdicts_on_the_day_can_fail(day, missed):
    assert {name for name, met in judge(a_row(), *day).items() if not met} == missed


def test_a_day_counts_for_no_size_but_for_its_output():
    rows = [a_row(), *day_rows()]
    assert summarise_field(rows)["rows"] == 1
    rows[-1]["output_equal"] = False
    assert summarise_field(rows)["output_equal_share"] == 0.5
    assert summarise_field(rows)["day_dynamic_allocation_executor_seconds_share"] == pytest.approx(0.9)


def test_lateness_by_hand():
    done = measure_trial(a_run(a_trial(load="day")))
    # after half a minute: 1 … 200 s old at the peak size, so the 99th percentile is 198 s
    peak = DoneTrial(done.row, {}, [999.0] * 30 + [float(age) for age in range(1, 201)], None)
    ours = DoneTrial(done.row, {}, [999.0] * 30 + [198.0] * 195 + [198.5] * 5, None)
    assert add_lateness(done.row, ours, peak)["late_share"] == pytest.approx(5 / 200)
    assert add_lateness(done.row, peak, peak)["late_share"] == pytest.approx(2 / 200)
    never = DoneTrial(done.row, {}, [], None)
    assert add_lateness(done.row, never, peak)["late_share"] is None
    assert add_lateness(done.row, ours, never)["late_share"] is None


def test_a_quick_run_is_not_judged_by_what_it_leaves_out():
    names = judge(a_row(idle_seconds=0.0), quick=True)
    assert all(names.values()) and SIZE not in names
    (note,) = judge_field(Measurement([a_row()], {}, quick=True)).notes
    assert "the day" in note and "oracle" in note


def test_without_rows_nothing_is_met():
    assert not any(judge().values())
