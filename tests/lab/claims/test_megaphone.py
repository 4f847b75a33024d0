"""Claims on state that moves, from made-up phases."""

from dataclasses import replace

import pytest

from penstock_lab.claims import megaphone
from penstock_lab.claims.claim import Verdict
from penstock_lab.claims.megaphone import STILL, draw_loads, draw_memory, find_slowest, judge_loads
from penstock_lab.experiments.measurement import Extent, Measurement
from penstock_lab.experiments.moving.key_count import CASES, LOADED, measure_loads
from penstock_lab.experiments.moving.queries import QueryPhase
from tests.lab.made_up import a_phase, batches, draw_page


def moved(query, system, slowest):
    steady, moving = batches(1, 1, 1), batches(1, slowest, start=50.0)
    return QueryPhase(f"q{query}", system, 50.0, 60.0, steady, moving, 1000, bins=2)


def gain(query, at_once, fluid, doubts=None):
    rows = [moved(query, "all-at-once", at_once).make_row(), moved(query, "fluid", fluid).make_row()]
    (finding,) = megaphone.judge_gains(rows, megaphone.QUERIES, doubts or {})
    return finding


@pytest.mark.parametrize(
    ("query", "at_once", "fluid", "expected"),
    [
        (3, 30.0, 1.5, Verdict.REPRODUCED),
        (3, 9.0, 1.5, Verdict.WORSE),
        (3, 1.4, 1.2, Verdict.NOT_COMPARABLE),
        (3, 1.2, 4.0, Verdict.WORSE),
        (4, 15.0, 1.0, Verdict.WORSE),
        (7, 1.2, 1.3, Verdict.REPRODUCED),
        (8, 4.0, 1.3, Verdict.WORSE),
    ],
)
def test_each_query_is_held_beside_what_its_own_figure_shows(query, at_once, fluid, expected):
    found = gain(query, at_once, fluid)
    assert found.verdict is expected and found.published == megaphone.QUERIES[f"q{query}"].said
    assert f"fluid {fluid:.2f}, all at once {at_once:.2f}" in found.measured


def test_bins_that_did_not_move_tell_nothing_and_one_strategy_alone_neither():
    found = gain(3, 30.0, 1.5, {("q3", "fluid"): "0 of 2 moved"})
    assert (found.verdict, found.why) == (Verdict.NOT_COMPARABLE, "0 of 2 moved")
    assert megaphone.judge_gains([moved(3, "fluid", 1.5).make_row()], megaphone.QUERIES, {}) == []


def test_a_timeline_has_second_0_at_the_start_of_its_migration():
    chart = megaphone.draw_timeline("query 3", [moved(3, "all-at-once", 30.0), moved(3, "fluid", 1.5)])
    assert chart.series[0][1] == [-50.0, -40.0, -30.0, 0.0, 10.0]
    assert chart.series[1][2] == [1, 1, 1, 1, 1.5]


def phase(keys, bins, slowest, peak=1.0):
    return a_phase("fluid", 1, slowest, keys=keys, bins=bins, peak_rss_bytes=1000.0 * peak)


@pytest.mark.parametrize(
    ("fluid", "at_once", "expected"),
    [
        (1.05, 1.9, Verdict.REPRODUCED),
        (1.5, 1.9, Verdict.WORSE),
        # nothing spikes: that fluid does not, either, is no merit of its own
        (1.05, 1.06, Verdict.WORSE),
        (1.05, None, Verdict.NOT_COMPARABLE),
    ],
)
def test_fluid_is_to_need_hardly_any_memory_where_all_at_once_nearly_doubles_it(fluid, at_once, expected):
    phases = [phase(100, 8, 2.0, peak=fluid)]
    if at_once is not None:
        phases.append(replace(phase(100, 8, 2.0, peak=at_once), system="all-at-once"))
    rows = [one.make_row() for one in phases]
    (found,) = megaphone.judge_memory(rows, {})
    assert found.verdict is expected
    doubts = {(rows[0]["case"], "fluid"): "1 of 2 moved"}
    assert megaphone.judge_memory(rows, doubts)[0].verdict is Verdict.NOT_COMPARABLE


@pytest.mark.parametrize(
    ("few", "many", "expected"),
    [
        ((100, 8, 4.0), (100, 16, 2.0), Verdict.REPRODUCED),
        ((100, 8, 4.0), (100, 16, 5.0), Verdict.WORSE),
        ((100, 8, 4.0), (200, 16, 4.4), Verdict.REPRODUCED),
        ((100, 8, 4.0), (200, 16, 9.0), Verdict.WORSE),
        ((100, 8, 1.1), (200, 16, 1.3), Verdict.NOT_COMPARABLE),
    ],
)
def test_more_bins_are_to_shorten_stalls_and_bins_of_one_size_to_leave_them(few, many, expected):
    (found,) = megaphone.judge_sizes([phase(*few), phase(*many)])
    assert found.verdict is expected
    assert megaphone.judge_sizes([phase(100, 8, 4.0), phase(100, 8, 4.0), phase(900, 16, 4.0)]) == []


def test_bins_that_stayed_where_they_were_do_not_show_that_more_bins_help():
    partly = replace(phase(100, 16, 2.0), note="1 of 4 moved")
    (found,) = megaphone.judge_sizes([phase(100, 8, 4.0), partly])
    assert (found.verdict, found.why) == (Verdict.NOT_COMPARABLE, "1 of 4 moved")


@pytest.mark.parametrize(
    ("few", "many", "note", "expected"),
    [
        (4.0, 8.0, "", Verdict.REPRODUCED),
        (8.0, 4.0, "", Verdict.WORSE),
        (4.0, 8.0, "3 of 4 moved", Verdict.NOT_COMPARABLE),
    ],
)
def test_more_state_in_as_many_bins_is_to_take_longer_all_at_once(few, many, note, expected):
    moves = [
        replace(phase(100, 8, few), system="all-at-once", end=55.0),
        replace(phase(200, 8, many), system="all-at-once", note=note),
    ]
    (found,) = megaphone.judge_sizes(moves)
    assert found.verdict is expected and "5.16" in found.figure
    assert f"100 keys: {few:.1f} s, all in 5 s; 200 keys: {many:.1f} s" in found.measured


@pytest.mark.parametrize("quick", [True, False])
def test_cases_that_are_compared_move_their_bins_alike(quick):
    """Durations of one that comes back, too, would be longer by that alone."""
    assert len({(case.back, case.after_batches) for case in CASES[Extent(quick, report=True)]}) == 1


def test_sweeps_need_more_than_one_case():
    rows = [moved(3, "fluid", 1.5).make_row()]
    assert megaphone.draw_sweeps(rows) == []
    (chart,) = megaphone.draw_sweeps([*rows, moved(4, "fluid", 3.0).make_row()])
    assert chart.series == [("fluid", [10.0, 10.0], [1.5, 3.0])] and chart.logarithmic == "xy"


def test_bins_that_came_back_are_not_compared_with_bins_that_did_not():
    """Going there and back takes twice as long whatever the state."""
    both_ways = replace(phase(100, 16, 2.0), back=True)
    assert megaphone.judge_sizes([phase(100, 8, 4.0), both_ways]) == []


def test_the_target_of_nexmark_is_missed_by_a_stall_and_by_nothing_measured():
    def met(*phases):
        measured = Measurement([one.make_row() for one in phases], found=phases)
        return [claim.met for claim in megaphone.judge_nexmark(measured).targets]

    assert met(moved(3, "fluid", 1.4)) == [True]
    assert met(moved(3, "fluid", 1.6)) == [False] == met()


USUAL, TRIGGER = 10_000, 3.0


def load_phase(system, longest, usual=1.0, **more):
    steady = (usual, 1.1 * usual, usual)
    return a_phase(system, usual, longest, keys=LOADED.keys, bins=LOADED.bins, steady=steady, **more)


def both(fluid, at_once, usual=1.0):
    return [load_phase("all-at-once", at_once, usual), load_phase("fluid", fluid, usual)]


def findings(loads):
    return {found.name: found for found in judge_loads(loads, USUAL, TRIGGER)}


def line(system, loads):
    return findings(loads)[f"{system}: latency over the offered load"]


def test_each_line_is_judged_by_how_it_grows_with_the_load():
    loads = {40_000: both(1.4, 8.0), 2_500: both(1.2, 3.0), USUAL: both(1.3, 3.3)}
    fluid = line("fluid", loads)
    assert fluid.verdict is Verdict.REPRODUCED and line(STILL, loads).verdict is Verdict.REPRODUCED
    assert fluid.measured == "slowest batch 1.20 s at 2,500/s, 1.30 s at 10,000/s, 1.40 s at 40,000/s"
    assert "1.17 times that of the least load" in fluid.why and "batches every 3 s" in fluid.conditions
    assert fluid.baseline == "not moving: 1.10 s, 1.10 s, 1.10 s" and line(STILL, loads).baseline is None
    assert line("all-at-once", loads).verdict is Verdict.WORSE


def at(longest, usual=1.0):
    return [replace(load_phase("fluid", longest, usual), batches=batches(longest, longest, start=50.0))]


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
    assert fluid.verdict is Verdict.REPRODUCED and "9.00 s at 40,000/s (saturated)" in fluid.measured
    del loads[2_500]
    assert line("fluid", loads).verdict is Verdict.NOT_COMPARABLE


def test_a_migration_that_left_bins_behind_is_not_compared():
    loads = {2_500: [load_phase("fluid", 1.2, note="3 of 4 moved: lost")], USUAL: [load_phase("fluid", 1.2)]}
    fluid = line("fluid", loads)
    assert (fluid.verdict, fluid.why) == (Verdict.NOT_COMPARABLE, "at 2,500/s 3 of 4 moved: lost")
    assert line(STILL, loads).verdict is Verdict.REPRODUCED


def test_loads_but_the_usual_one_tell_what_moving_bin_by_bin_gains():
    found = findings({2_500: both(1.2, 30.0), USUAL: both(1.3, 3.3), 40_000: both(1.4, 5.0)})
    assert len(found) == 5
    assert found["1,500,000 keys, 16 bins, 2,500 records/s"].verdict is Verdict.REPRODUCED
    assert found["1,500,000 keys, 16 bins, 40,000 records/s"].verdict is Verdict.WORSE


def test_nothing_measured_has_neither_line_nor_chart():
    assert judge_loads({}, USUAL, TRIGGER) == []
    assert draw_loads({USUAL: both(1.0, 2.0)}) == []


def test_the_chart_has_a_line_for_each_way_by_rising_load():
    loads = {40_000: both(1.4, 8.0), 2_500: both(1.2, 3.0)}
    assert find_slowest(loads, STILL) == {2_500: 1.1, 40_000: 1.1}
    (chart,) = draw_loads(loads)
    assert chart.series == [
        ("all-at-once", [2_500.0, 40_000.0], [3.0, 8.0]),
        ("fluid", [2_500.0, 40_000.0], [1.2, 1.4]),
        (STILL, [2_500.0, 40_000.0], [1.1, 1.1]),
    ]
    assert chart.logarithmic == "xy"


def test_memory_is_drawn_around_the_migrations_of_the_first_case():
    phases = [load_phase("fluid", 1.0, memory=((40.0, 2**30), (55.0, 2**31))), load_phase("spark-added", 1.0)]
    (chart,) = draw_memory(phases)
    assert chart.series == [("fluid", [-10.0, 5.0], [1.0, 2.0])] and "5.19" in chart.title
    assert draw_memory([]) == [] == draw_memory(phases[1:])


@pytest.mark.parametrize("rates", [(), (2_500, 40_000)])
def test_both_charts_can_be_drawn_and_kept(rates):
    charts = [*draw_loads(dict.fromkeys(rates, both(1.2, 3.0))), *draw_memory([])]
    text = draw_page(charts)
    # few loads far apart are named as they are
    assert ('"ticktext":["2,500","40,000"]' in text) == bool(rates)


def test_the_sweep_measures_the_same_case_at_other_rates_and_outlives_one_that_fails():
    tried, failures = [], []

    def measure(cases, failed, _progress):
        tried.extend(cases)
        if cases[0].records_per_second > USUAL:
            failed.append("at 40,000 records/s the driver is gone")
            return []
        return both(1.2, 3.0)

    others = [replace(one, case="3,000 keys, 16 bins") for one in both(50.0, 90.0)]
    found = measure_loads([*both(1.3, 3.3), *others], failures, lambda _: None, measure)
    assert [case.records_per_second for case in tried] == [2_500, 40_000]
    assert {replace(case, records_per_second=USUAL, steady_batches=8, after_batches=3) for case in tried} == {
        LOADED
    }
    assert failures == ["at 40,000 records/s the driver is gone"]
    assert draw_loads(found)[0].series[1] == ("fluid", [2_500.0, 10_000.0], [1.2, 1.3])


def test_the_sweep_over_loads_keeps_the_state_of_the_case_it_varies():
    whole, half, more = CASES[Extent(report=True)]
    assert half is LOADED
    assert (half.systems, half.back) == (("all-at-once", "fluid"), False)
    assert (whole.keys, whole.bins) == (2 * half.keys, half.bins) == (more.keys, more.bins // 2)
    assert [case.keys for case in CASES[Extent(quick=True, report=True)]] == [200_000]
