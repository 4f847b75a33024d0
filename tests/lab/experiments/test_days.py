"""Days in the simulator: their loads, their cases, and the figures that targets are set for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.simulate.measures import least_instances
from penstock_lab.experiments.days.cases import CAPACITIES, PEAK_SIZE, DayCase, list_cases, make_experiment
from penstock_lab.experiments.days.profiles import MADE, NIGHT_SPIKE, list_recorded, make_day
from penstock_lab.experiments.days.trials import SYSTEMS, run_case, summarise_days
from tests.lab.claims.made_days import a_case_of_rows

DAYS = (*MADE, *list_recorded())


@pytest.mark.parametrize("day", DAYS)
def test_a_day_is_the_same_for_the_same_seed_and_peaks_at_one(day):
    load = make_day(day, 1)
    assert load.max() == 1 and load.min() > 0 and np.isfinite(load).all() and len(load) >= 4 * 3600
    assert np.array_equal(load, make_day(day, 1))
    assert np.array_equal(load, make_day(day, 2)) is (day in list_recorded())


def test_the_days_have_the_shapes_that_are_asked_for():
    flash, nights = make_day("flash", 5), make_day("nights", 5)
    assert flash.max() / np.median(flash) == pytest.approx(10)
    rise = np.flatnonzero(flash > 0.99)[0]
    assert flash[rise - 31] == pytest.approx(0.1)
    day = 24 * 3600
    first, second = (nights[start : start + 1800] for start in (NIGHT_SPIKE - day, NIGHT_SPIKE))
    assert first == pytest.approx(second) and second.max() > 3 * nights[NIGHT_SPIKE - 1]


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_the_oracle_holds_as_much_at_every_peak(capacity):
    experiment = make_experiment(DayCase("cars", capacity, dies=True))
    least = least_instances(experiment)[:, -1]
    assert (least.max(), least[0]) == (PEAK_SIZE, experiment.initial[-1])
    assert experiment.scenario.failures and experiment.scenario.scaling.warm_up == 10


def test_the_whole_has_every_condition_and_quick_is_a_part_of_the_days():
    whole, quick = list_cases(quick=False), list_cases(quick=True)
    assert len(set(whole)) == len(whole) == len(DAYS) * len(CAPACITIES) * 6
    assert {case.delay for case in whole} == {15, 45, 90} and {case.noise for case in whole} == {0, 0.05, 0.1}
    assert set(quick) <= set(whole) and any(case.day == "nights" for case in quick)


def test_a_case_has_a_row_for_every_system_with_the_bound_beside_it():
    case = DayCase("cars", "linear")
    whole = make_experiment(case)
    rows = run_case(case, replace(whole, offered=whole.offered[:1200]))
    assert [row["system"] for row in rows] == ["causal-bound", "fixed peak", *SYSTEMS]
    named = (
        "day",
        "capacity",
        "noise",
        "delay_s",
        "over_ratio",
        "short_ratio",
        "late_ratio",
        "steps",
        "flips",
    )
    assert all(name in row for row in rows for name in (*named, "p99_latency_s", "bound_over_ratio"))
    assert {row["bound_over_ratio"] for row in rows} == {rows[0]["over_ratio"]}
    assert rows[1]["short_ratio"] == 0 and {row["errors"] for row in rows} == {0}


def test_the_summary_takes_the_worst_of_a_policy_where_the_bound_can():
    good = a_case_of_rows("ramp", "linear")
    bad = a_case_of_rows("week", "linear", ahead={"over_ratio": 0.5, "short_ratio": 0.1})
    beyond = a_case_of_rows("flash", "linear", ahead={"short_ratio": 0.9}, bound_short_ratio=0.01)
    figures = summarise_days([*good, *bad, *beyond], "ds2")
    assert figures["planner_worst_short_ratio"] == 0.1
    assert figures["planner_worst_over_beyond_bound"] == pytest.approx(0.45)
    assert figures["default_worst_steps_over_ds2"] == 1
    assert figures["planner_worst_steps_over_ds2"] == 2
    assert "planner_second_spike_late_s" not in figures


def test_a_rival_is_beaten_only_by_less_that_is_late_for_no_longer():
    def count(**rival):
        rows = a_case_of_rows("ramp", "linear", **{"keda-rate": rival})
        return summarise_days(rows, "ds2")["planner_rivals_not_beaten"]

    assert (count(), count(held_ratio=1.0), count(late_ratio=-0.1)) == (0, 1, 1)
