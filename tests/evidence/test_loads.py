"""Figures 5.18 and 5.19, latency over the offered load and memory over time, from made-up batches."""

from dataclasses import replace

import pytest

from penstock.bench.migration_rows import Phase
from penstock.bench.traces import BatchSeen
from penstock.evidence import moving
from penstock.evidence.findings import PartOutcome, PartResult, Status, Verdict
from penstock.evidence.loads import STILL, load_chart, load_findings, slowest
from penstock.evidence.page import page

USUAL, TRIGGER = 10_000, 3.0


def batches(*seconds, start=0.0):
    return tuple(BatchSeen(start + 3 * number, taken, 100, 0) for number, taken in enumerate(seconds))


def phase(system, longest, usual=1.0, **more):
    steady, moving_batches = batches(usual, 1.1 * usual, usual), batches(usual, longest, start=50.0)
    return Phase(1_500, 16, system, 50.0, 60.0, steady, moving_batches, 10, **more)


def both(fluid, at_once, usual=1.0):
    return [phase("all-at-once", at_once, usual), phase("fluid", fluid, usual)]


def findings(loads):
    return {found.result: found for found in load_findings(loads, USUAL, TRIGGER, "here")}


def line(system, loads):
    return findings(loads)[f"{system}: latency over the offered load (figure 5.18)"]


def test_each_line_is_judged_by_how_it_grows_with_the_load():
    loads = {40_000: both(1.4, 8.0), 2_500: both(1.2, 3.0), USUAL: both(1.3, 3.3)}
    fluid = line("fluid", loads)
    assert fluid.verdict is Verdict.REPRODUCED and line(STILL, loads).verdict is Verdict.REPRODUCED
    assert fluid.ours == "slowest batch 1.20 s at 2,500/s, 1.30 s at 10,000/s, 1.40 s at 40,000/s"
    assert "1.17 times that of the least load" in fluid.why and "batches every 3 s" in fluid.conditions
    assert fluid.baseline == "not moving: 1.10 s, 1.10 s, 1.10 s" and line(STILL, loads).baseline is None
    assert line("all-at-once", loads).verdict is Verdict.WORSE


def at(longest, usual=1.0):
    return [replace(phase("fluid", longest, usual), batches=batches(longest, longest, start=50.0))]


def test_a_line_below_what_batches_do_by_themselves_does_not_grow():
    """At the least load the migration happened to meet quick batches."""
    loads = {2_500: at(0.6), USUAL: at(1.05), 40_000: at(1.0)}
    fluid = line("fluid", loads)
    assert (fluid.verdict, fluid.why) == (Verdict.REPRODUCED, "nowhere slower than batches while not moving")
    assert line("fluid", {**loads, 40_000: at(1.2)}).verdict is Verdict.WORSE
    assert line("fluid", {**loads, 40_000: at(1.7, usual=1.8)}).verdict is Verdict.WORSE


def test_a_load_that_batches_cannot_keep_up_with_is_shown_and_not_judged():
    loads = {2_500: both(1.2, 3.0), USUAL: both(1.3, 3.3), 40_000: both(9.0, 12.0, usual=4.0)}
    fluid = line("fluid", loads)
    assert fluid.verdict is Verdict.REPRODUCED and "9.00 s at 40,000/s (saturated)" in fluid.ours
    del loads[2_500]
    assert line("fluid", loads).verdict is Verdict.NOT_COMPARABLE


def test_a_migration_that_left_bins_behind_is_not_compared():
    loads = {2_500: [phase("fluid", 1.2, note="3 of 4 moved: lost; ")], USUAL: [phase("fluid", 1.2)]}
    fluid = line("fluid", loads)
    assert (fluid.verdict, fluid.why) == (Verdict.NOT_COMPARABLE, "at 2,500/s 3 of 4 moved: lost")
    assert line(STILL, loads).verdict is Verdict.REPRODUCED


def test_loads_but_the_usual_one_tell_what_moving_bin_by_bin_gains():
    found = findings({2_500: both(1.2, 30.0), USUAL: both(1.3, 3.3), 40_000: both(1.4, 5.0)})
    assert len(found) == 5
    assert found["1,500 keys, 16 bins, 2,500 records/s"].verdict is Verdict.REPRODUCED
    assert found["1,500 keys, 16 bins, 40,000 records/s"].verdict is Verdict.WORSE


def test_nothing_measured_has_neither_line_nor_chart():
    assert load_findings({}, USUAL, TRIGGER, "") == []
    assert load_chart({USUAL: both(1.0, 2.0)}) == []


def test_the_chart_has_a_line_for_each_way_by_rising_load():
    loads = {40_000: both(1.4, 8.0), 2_500: both(1.2, 3.0)}
    assert slowest(loads, STILL) == {2_500: 1.1, 40_000: 1.1}
    (chart,) = load_chart(loads)
    assert chart.series == [
        ("all-at-once", [2_500.0, 40_000.0], [3.0, 8.0]),
        ("fluid", [2_500.0, 40_000.0], [1.2, 1.4]),
        (STILL, [2_500.0, 40_000.0], [1.1, 1.1]),
    ]
    assert chart.logarithmic == "xy"


def test_memory_is_drawn_around_the_migrations_of_the_first_case():
    phases = [phase("fluid", 1.0, memory=((40.0, 2**30), (55.0, 2**31))), phase("spark-added", 1.0)]
    (chart,) = moving.memory_over_time(phases)
    assert chart.series == [("fluid", [-10.0, 5.0], [1.0, 2.0])] and "5.19" in chart.title
    assert moving.memory_over_time([]) == [] == moving.memory_over_time(phases[1:])


@pytest.mark.parametrize("rates", [(), (2_500, 40_000)])
def test_both_charts_can_be_drawn_and_kept(rates):
    charts = [*load_chart(dict.fromkeys(rates, both(1.2, 3.0))), *moving.memory_over_time([])]
    outcome = PartOutcome("one", "One", "figures", Status.DONE, 1.0, False, result=PartResult([], charts))
    assert PartOutcome.from_json(outcome.to_json()).to_json() == outcome.to_json()
    text = page([outcome], "a machine", "a day")
    assert text.count("Plotly.newPlot") == len(charts)
    # few loads far apart are named as they are
    assert ('"ticktext":["2,500","40,000"]' in text) == bool(rates)


def test_the_sweep_measures_the_same_case_at_other_rates_and_outlives_one_that_fails():
    half = replace(moving._cases(quick=False)[1], keys=1_500)
    tried = []

    def measured(cases, _progress):
        tried.extend(cases)
        if cases[0].records_per_second > USUAL:
            raise RuntimeError("the driver is gone")
        return both(1.2, 3.0), ["one system was not tried"]

    others = [replace(one, keys=3_000) for one in both(50.0, 90.0)]
    found, failures = moving.over_loads(half, [*both(1.3, 3.3), *others], measured, lambda _: None)
    assert [case.records_per_second for case in tried] == [2_500, 40_000]
    assert {replace(case, records_per_second=USUAL, steady_batches=8, after_batches=3) for case in tried} == {
        half
    }
    assert failures == [
        "at 2,500 records/s: one system was not tried",
        "at 40,000 records/s: RuntimeError: the driver is gone",
    ]
    assert found.charts[0].series[1] == ("fluid", [2_500.0, 10_000.0], [1.2, 1.3])


def test_the_sweep_over_loads_keeps_the_state_of_the_case_it_varies():
    whole, half, more = moving._cases(quick=False)
    assert (half.systems, half.back) == (("all-at-once", "fluid"), False)
    assert (whole.keys, whole.bins) == (2 * half.keys, half.bins) == (more.keys, more.bins // 2)
    assert [case.keys for case in moving._cases(quick=True)] == [200_000]
