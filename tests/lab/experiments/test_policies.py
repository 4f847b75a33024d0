"""The cases on which policies are compared, and how their targets are judged."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from penstock.simulate.measures import least_instances
from penstock_lab.claims.penstock import judge_policies
from penstock_lab.experiments.curves import (
    HOLD_SECONDS,
    CurveCase,
    count_needed_changes,
    count_steps,
    make_curve,
)
from penstock_lab.experiments.measurement import Measurement
from penstock_lab.experiments.policies import (
    AHEAD,
    DRS,
    LEARNED,
    NOISES,
    PLAIN,
    TABLES,
    TRAFFIC,
    Compared,
    count_flips,
    make_noisy_day,
    make_traffic,
    run_scenario,
    summarise,
    write_csv,
)


def test_the_profile_is_the_same_for_the_same_seed_and_smooth():
    rates = make_traffic()
    assert (rates == make_traffic()).all()
    assert not (rates == make_traffic(seed=1)).all()
    assert len(rates) == 6 * 3600
    assert rates.min() > 10_000
    assert 45_000 < rates.max() < 70_000
    minute = np.abs(rates[60:] / rates[:-60] - 1)
    assert np.percentile(minute, 99) < 0.06


def test_the_profile_is_written_as_scenarios_read_it(tmp_path):
    write_csv(tmp_path / "t.csv", np.array([1.0, 2.5]))
    assert (tmp_path / "t.csv").read_text() == "second,rate\n0,1.0\n1,2.5\n"


def test_a_row_has_the_fields_that_the_issue_names():
    row = run_scenario("table4-q1", PLAIN, 1.0)
    assert (row["case"], row["system"], row["steps"]) == ("table4-q1", PLAIN, 2)
    named = {"flips", "over_slot_seconds_ratio", "under_seconds_ratio", "target_violation_seconds_ratio"}
    assert named | {"p99_latency_s"} <= row.keys()


def test_the_rates_of_a_curve_need_up_to_48_instances():
    least = least_instances(make_curve(CurveCase(0.02, 0.0, 40, 0.0)))[:, 1]
    assert least.max() <= 48
    assert least.max() > 40
    assert least.min() < 10


def test_changes_needed_are_those_of_the_least_size():
    case = CurveCase(0.02, 0.0, 12, 0.0)
    experiment = make_curve(case)
    sizes = [8, *least_instances(experiment)[::HOLD_SECONDS, 1].tolist()]
    assert count_needed_changes(case) == sum(one != other for one, other in pairwise(sizes))
    assert 8 <= count_needed_changes(case) <= 12


def test_on_a_curve_learning_saves_steps():
    case = CurveCase(0.05, 0.0, 12, 0.0)
    plain, learned = count_steps(case, PLAIN), count_steps(case, LEARNED)
    assert len(plain) == len(learned) == 12
    assert sum(learned) < sum(plain) / 1.5


def test_a_noisy_day_begins_with_the_size_that_is_needed():
    for seed in range(5):
        day = make_noisy_day(seed)
        load = least_instances(day)[0, 1] / day.initial[1]
        assert load <= 1


def test_noise_alone_flips_nothing():
    assert count_flips(LEARNED, range(2)) == [(0, 0), (0, 0)]


def found(**changes):
    rows = [row(case, system, 30.0, 0.1) for case in TABLES for system in ("autrascale", *DRS)]
    rows.append(
        {"case": TRAFFIC, "system": AHEAD, "over_slot_seconds_ratio": 0.04, "under_seconds_ratio": 0.0}
    )
    for one in rows:
        one.update(changes.get(f"{one['case']} {one['system']}", {}))
    counts = {PLAIN: [4, 4, 8], LEARNED: [1, 1, 2]}
    steps = {(noise, policy): some for noise in NOISES for policy, some in counts.items()}
    return Compared(rows, steps, {LEARNED: [(0, 1), (0, 0)], PLAIN: [(3, 4)]}, needed=3)


def row(case, system, slots, latency):
    held = slots - 1 if system == "autrascale" else slots
    return {"case": case, "system": system, "final_slots": held, "final_latency_s": latency, "target_s": 0.2}


def judged(one):
    claims = judge_policies(Measurement(one.rows, summarise(one), found=one)).claims
    return {claim.name: claim.met for claim in claims}


def test_targets_are_met_where_all_is_well():
    assert all(judged(found()).values())


@pytest.mark.parametrize(
    ("case", "misses"),
    [
        (f"{TABLES[0]} autrascale", {"final_slots": 31.0}),
        (f"{TABLES[0]} autrascale", {"final_latency_s": 0.3}),
    ],
)
def test_a_table_that_is_lost_is_said(case, misses):
    verdicts = judged(found(**{case: misses}))
    assert not verdicts["tables II and III: with fewer than either drs"]
    assert not verdicts["tables II and III: with fewer than any drs that meets it"]


def test_a_drs_that_misses_the_target_may_hold_fewer():
    cheap = {f"{TABLES[0]} drs": {"final_slots": 10.0, "final_latency_s": 0.3}}
    verdicts = judged(found(**cheap))
    assert not verdicts["tables II and III: with fewer than either drs"]
    assert verdicts["tables II and III: with fewer than any drs that meets it"]


def test_the_summary_counts_over_all_curves():
    summary = summarise(found())
    assert summary["learned_median_steps"] == 1
    assert summary["learned_p99_steps"] == 2
    assert summary["learned_changes_over_ds2"] == 0.25
    assert summary["needed_changes_over_ds2_without_noise"] == 3 / 16


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"over_slot_seconds_ratio": 0.06}, "over the oracle"),
        ({"under_seconds_ratio": 0.002}, "seconds too small"),
    ],
)
def test_a_forecast_that_holds_too_much_or_too_little_is_said(changes, name):
    missed = [key for key, met in judged(found(**{f"{TRAFFIC} {AHEAD}": changes})).items() if not met]
    assert missed == [f"{AHEAD} on traffic, {name}"]


def test_many_steps_and_flips_are_said():
    steps = {(noise, policy): [3, 3, 3] for noise in NOISES for policy in (PLAIN, LEARNED)}
    many = replace(found(), steps=steps, days={LEARNED: [(1, 2)], PLAIN: [(3, 4)]})
    missed = [key for key, met in judged(many).items() if not met]
    assert len(missed) == 6 and "flips under constant load with 10 % noise" in missed
