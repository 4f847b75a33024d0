"""Parts that run on a cluster, from made-up outcomes of their benchmarks."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from penstock.bench.bottlenecks import Case, Snapshot
from penstock.bench.convergence import Convergence
from penstock.bench.migration_rows import Phase
from penstock.bench.nexmark_migration import Moved
from penstock.bench.skew_rows import Skewed, targets
from penstock.bench.traces import BatchSeen, SlotsSeen
from penstock.bench.wordcount import HIGH_RATE, LOAD_AFTER_SECONDS, RUNNERS, TRIGGER_SECONDS, UNDER
from penstock.errors import ActionFailed
from penstock.evidence import converging, diagnosed, moving, stalls, word_counts
from penstock.evidence.findings import Chart, PartOutcome, PartResult, Status, Verdict, unmeasured
from penstock.evidence.measured import sizing_findings
from penstock.evidence.page import page

USUAL = HIGH_RATE * TRIGGER_SECONDS


def batches(*seconds, start=0.0, records=USUAL):
    return tuple(
        BatchSeen(start + 10.0 * number, taken, round(records), round(records) * (number + 1))
        for number, taken in enumerate(seconds)
    )


def a_run(*seconds, slots=((0.0, 3), (20.0, 9)), ended=100.0):
    samples = tuple(SlotsSeen(at, count) for at, count in slots)
    return SimpleNamespace(origin=0.0, ended=ended, batches=batches(*seconds), slots=samples)


def a_row(**changes):
    row = {"case": "under", "steps": 1, "steps_by_phase": [1], "final_slots": 9, "optimal_slots": 9}
    row |= {"slots_by_phase": [9], "optimal_by_phase": [9]}
    spent = {"slot_seconds": 1200, "backlog_record_seconds": 34_000}
    return {**row, **spent, "slots_per_executor": 3, **changes}


def test_steps_and_size_of_ds2_are_held_beside_those_of_dynamic_allocation():
    steps, size = word_counts.case_findings(a_row(), a_row(steps=6, final_slots=15))
    assert (steps.verdict, size.verdict) == (Verdict.REPRODUCED, Verdict.REPRODUCED)
    assert (steps.baseline, size.baseline) == ("dynamic allocation: 6", "dynamic allocation: 15 slots")
    assert word_counts.case_findings(a_row(final_slots=15), a_row())[1].verdict is Verdict.WORSE


@pytest.mark.parametrize(
    ("steps", "held", "expected"),
    [
        ([1, 1], [9, 3], Verdict.BETTER),
        ([2, 1], [9, 6], Verdict.REPRODUCED),
        ([1, 0], [9, 9], Verdict.WORSE),
        ([1, 0], [9, 6], Verdict.BETTER),
        ([0, 0], [3, 3], Verdict.WORSE),
    ],
)
def test_a_phase_without_the_step_that_it_needed_is_not_better(steps, held, expected):
    row = a_row(case="two-phase", steps_by_phase=steps, slots_by_phase=held, optimal_by_phase=[9, 3])
    assert word_counts.case_findings(row, None)[0].verdict is expected
    unknown = {**row, "optimal_by_phase": [None, None], "optimal_slots": None}
    assert (word_counts.case_findings(unknown, None)[0].verdict is Verdict.WORSE) == (not any(steps))


def test_what_either_spent_on_the_same_load_is_shown():
    (found,) = word_counts.costs_beside(a_row(), a_row(slot_seconds=3000))
    assert found.ours == "1,200 slot-seconds held, 34,000 record-seconds waited"
    assert found.baseline.startswith("dynamic allocation: 3,000 slot-seconds")
    assert word_counts.costs_beside(a_row(), None) == []


def test_a_baseline_that_failed_is_none_and_its_line_is_left_out():
    steps, size = word_counts.case_findings(a_row(), None)
    assert (steps.baseline, size.baseline) == (None, None)
    slots, rates = word_counts.timelines(UNDER, {("under", "ds2"): a_run(3, 3, 3)})
    assert [name for name, _, _ in slots.series] == ["ds2"]
    assert [name for name, _, _ in rates.series] == ["ds2", "offered"]
    assert word_counts.timelines(UNDER, {}) == []


def test_without_a_search_no_size_is_called_the_least():
    assert len(word_counts.case_findings(a_row(optimal_slots=None), a_row())) == 1


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ((9, 9, 9, 5, 5, 5), Verdict.REPRODUCED),
        ((5, 5, 5, 9, 9, 9), Verdict.WORSE),
        ((9, 9, 9), Verdict.NOT_COMPARABLE),
    ],
)
def test_the_size_chosen_is_judged_by_batches_after_the_last_step(seconds, expected):
    (finding,) = word_counts.kept_up(UNDER, a_run(*seconds))
    assert finding.verdict is expected


@pytest.mark.parametrize(("records", "expected"), [(900, Verdict.REPRODUCED), (500, Verdict.WORSE)])
def test_a_size_that_still_catches_up_is_judged_by_how_much_it_reads(records, expected):
    run = a_run()
    run.batches = batches(9, 9, start=30.0, records=records)
    (finding,) = word_counts.kept_up(UNDER, run)
    assert finding.verdict is expected and "60 are offered, while it catches up" in finding.ours


def test_a_size_is_right_if_one_executor_fewer_falls_behind():
    by_slots = {6: 8.0, 9: 5.0, 12: 4.5, 15: 4.4}
    (finding,) = word_counts.size_findings(by_slots, a_row())
    assert finding.verdict is Verdict.REPRODUCED and "6: 8.0 s, 9: 5.0 s, 12: 4.5 s" in finding.ours
    assert word_counts.size_findings(by_slots, a_row(final_slots=12))[0].verdict is Verdict.WORSE
    assert word_counts.size_findings({}, a_row()) == []
    (too_small,) = word_counts.size_findings({6: 8.0, 9: 5.0}, a_row(final_slots=3))
    assert too_small.verdict is Verdict.WORSE and too_small.ours == "6: 8.0 s"


def test_sizes_are_drawn_by_what_they_read_and_how_their_batches_are_distributed():
    tried = {HIGH_RATE: {9: (4.0, 5.0), 6: (2 * TRIGGER_SECONDS,)}}
    read, times = word_counts.size_charts(tried)
    assert read.series == [("60 a second are offered", ["6", "9"], [HIGH_RATE / 2, HIGH_RATE])]
    assert times.series[1] == ("9 slots", [4.0, 4.0, 5.0], [0.0, 0.5, 1.0])
    assert word_counts.size_charts({}) == []


@pytest.mark.parametrize(
    ("ratio", "interval", "expected"),
    [
        (1.01, (0.94, 1.10), Verdict.BETTER),
        (1.01, (0.90, 1.20), Verdict.NOT_COMPARABLE),
        (1.30, (1.10, 1.50), Verdict.NOT_COMPARABLE),
        (1.30, (1.20, 1.40), Verdict.WORSE),
        (1.14, (1.00, 1.30), Verdict.REPRODUCED),
        (None, (math.nan, math.nan), Verdict.NOT_COMPARABLE),
    ],
)
def test_what_watching_costs_is_judged_with_its_interval(ratio, interval, expected):
    assert word_counts.latency_attached(ratio, *interval).verdict is expected


def test_timelines_have_a_line_for_each_system_and_one_for_what_was_offered():
    runs = {("under", system): a_run(3, 3, 3) for system in RUNNERS}
    slots, rates = word_counts.timelines(UNDER, runs)
    assert [name for name, _, _ in slots.series] == list(RUNNERS)
    assert slots.series[0][1] == [-LOAD_AFTER_SECONDS, 20.0 - LOAD_AFTER_SECONDS]
    assert rates.series[0][2] == [pytest.approx(USUAL / 10)] * 3
    assert rates.series[-1][1] == [0, 100.0 - LOAD_AFTER_SECONDS]
    assert rates.series[-1][0] == "offered" and set(rates.series[-1][2]) == {HIGH_RATE}


def moved(query, system, slowest):
    return Moved(query, system, 50.0, 60.0, batches(1, 1, 1), batches(1, slowest, start=50.0), 2, 1000)


def gain(query, at_once, fluid, doubts=None):
    rows = [moved(query, "all-at-once", at_once).row(), moved(query, "fluid", fluid).row()]
    (finding,) = stalls.gain_findings(rows, stalls.QUERIES, "here", doubts or {})
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
    assert found.verdict is expected and found.published == stalls.QUERIES[f"q{query}"].said
    assert f"fluid {fluid:.2f}, all at once {at_once:.2f}" in found.ours


def test_bins_that_did_not_move_tell_nothing_and_one_strategy_alone_neither():
    found = gain(3, 30.0, 1.5, {("q3", "fluid"): "0 of 2 moved"})
    assert (found.verdict, found.why) == (Verdict.NOT_COMPARABLE, "0 of 2 moved")
    assert stalls.gain_findings([moved(3, "fluid", 1.5).row()], stalls.QUERIES, "here", {}) == []


def test_a_timeline_has_second_0_at_the_start_of_its_migration():
    chart = moving.timeline("query 3", [moved(3, "all-at-once", 30.0), moved(3, "fluid", 1.5)])
    assert chart.series[0][1] == [-50.0, -40.0, -30.0, 0.0, 10.0]
    assert chart.series[1][2] == [1, 1, 1, 1, 1.5]


def phase(keys, bins, slowest, peak=1.0):
    steady = batches(1, 1, 1)
    return Phase(
        keys, bins, "fluid", 50.0, 60.0, steady, batches(1, slowest, start=50.0), 10, 100.0, 100.0 * peak
    )


def test_fluid_is_to_need_hardly_any_memory():
    rows = [phase(100, 8, 2.0, peak=1.05).row(), phase(200, 8, 2.0, peak=1.5).row()]
    found = stalls.memory_findings(rows, "", {})
    assert [one.verdict for one in found] == [Verdict.REPRODUCED, Verdict.WORSE]
    doubts = {(rows[0]["case"], "fluid"): "1 of 2 moved"}
    assert stalls.memory_findings(rows, "", doubts)[0].verdict is Verdict.NOT_COMPARABLE


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
    (found,) = stalls.size_findings([phase(*few), phase(*many)], "")
    assert found.verdict is expected
    assert stalls.size_findings([phase(100, 8, 4.0), phase(100, 8, 4.0), phase(900, 16, 4.0)], "") == []


def test_bins_that_stayed_where_they_were_do_not_show_that_more_bins_help():
    partly = replace(phase(100, 16, 2.0), note="1 of 4 moved")
    (found,) = stalls.size_findings([phase(100, 8, 4.0), partly], "")
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
    (found,) = stalls.size_findings(moves, "here")
    assert (found.verdict, found.conditions) == (expected, "here") and "5.16" in found.result
    assert f"100 keys: {few:.1f} s, all in 5 s; 200 keys: {many:.1f} s" in found.ours


@pytest.mark.parametrize("quick", [True, False])
def test_cases_that_are_compared_move_their_bins_alike(quick):
    """Durations of one that comes back, too, would be longer by that alone."""
    assert len({(case.back, case.after_batches) for case in moving._cases(quick)}) == 1


def test_a_case_that_failed_is_a_finding_and_a_part_without_any_case_has_failed():
    (finding,) = unmeasured(["q5 could not be measured: it ended"], 1, "here")
    assert (finding.verdict, finding.why) == (Verdict.NOT_COMPARABLE, "q5 could not be measured: it ended")
    assert finding.conditions == "here"
    assert unmeasured([], 0, "here") == []
    with pytest.raises(ActionFailed, match="q5 could not be measured"):
        unmeasured(["q5 could not be measured: it ended"], 0, "here")


def test_sweeps_need_more_than_one_case():
    rows = [moved(3, "fluid", 1.5).row()]
    assert moving.sweeps(rows) == []
    (chart,) = moving.sweeps([*rows, moved(4, "fluid", 3.0).row()])
    assert chart.series == [("fluid", [10.0, 10.0], [1.5, 3.0])] and chart.logarithmic == "xy"


def hot(**changes):
    values = {
        "share": 0.5,
        "executors": 4,
        "even": batches(1.5),
        "skewed": batches(3, 3, 3),
        "settled": batches(2.4, 2.4, start=60.0),
        "bins_moved": 3,
        "imbalance": (1.5, 1.1),
        "straggler_found": True,
        "times_median": 9.0,
        "participation": {"executor 1 slot 0": 0.7, "executor 2 slot 0": 0.1},
        "answer": "one task",
        "ds2": "busy",
        "ds2_executors": 7,
        "veto": "waits for one task",
        "hot_seconds": 2.1,
    }
    return Skewed(**{**values, **changes})


def test_a_straggler_that_is_not_named_is_worse():
    assert diagnosed.straggler(hot()).verdict is Verdict.REPRODUCED
    assert diagnosed.straggler(hot(straggler_found=False)).verdict is Verdict.WORSE


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Verdict.REPRODUCED),
        ({"veto": ""}, Verdict.WORSE),
        ({"veto": "", "ds2_executors": None}, Verdict.REPRODUCED),
        ({"veto": "", "ds2_executors": 4}, Verdict.REPRODUCED),
    ],
)
def test_ds2_stays_where_growth_would_not_help(changes, expected):
    assert diagnosed.what_ds2_does(hot(**changes)).verdict is expected


def test_only_growth_is_said_to_be_vetoed():
    assert "asks for 7 executors; growth is vetoed" in diagnosed.what_ds2_does(hot()).ours
    assert diagnosed.what_ds2_does(hot(ds2_executors=3)).ours == "asks for 3 executors"
    silent = diagnosed.what_ds2_does(hot(ds2_executors=None, ds2="no batch finished", ds2_answered=False))
    assert (silent.verdict, silent.ours) == (Verdict.NOT_COMPARABLE, "no answer: no batch finished")


def test_moving_is_told_with_what_it_brings_and_what_it_cannot_bring():
    finding = diagnosed.what_moving_brings(hot())
    assert finding.ours == "batches of 2.40 s after 3 bins moved, 20% less"
    assert finding.baseline == "left alone: 3.00 s" and "2.10 s" in finding.why
    nothing = diagnosed.what_moving_brings(hot(settled=(), bins_moved=0))
    assert nothing.ours == "nothing was worth a move"


def test_skew_targets_count_stragglers_missed_and_batches_that_got_longer():
    met = [target.met for target in targets([hot().row(), hot(straggler_found=False).row()])]
    assert met == [False, True, True]
    worse = hot(settled=batches(4.0, start=60.0), imbalance=(1.0, 1.2)).row()
    assert [target.met for target in targets([worse])] == [True, False, False]


def a_case(name, found, driver_share=0.8, driver_profile=0.3):
    operators = {"flat-map 1: MapInArrow": 0.6, "flat-map 2: MapInArrow": 0.1}
    course = [Snapshot(at, driver_share, driver_profile) for at in (0.0, 0.25)]
    return Case(name, 3.0, found, "an answer", operators, driver_share, driver_profile, {}, operators, course)


def test_the_operator_and_the_driver_are_judged_by_what_was_made_slow():
    assert diagnosed.operator_to_scale(a_case("flat-map", "flat-map")).verdict is Verdict.REPRODUCED
    assert diagnosed.operator_to_scale(a_case("flat-map", "count")).verdict is Verdict.WORSE
    baseline = diagnosed.operator_to_scale(a_case("flat-map", "flat-map")).baseline
    assert baseline == "a conventional profile: source and FlatMap 60%, Count 10%"
    assert diagnosed.driver(a_case("driver", "driver")).verdict is Verdict.REPRODUCED
    assert diagnosed.driver(a_case("driver", "driver", 0.2, 0.3)).verdict is Verdict.WORSE


def test_the_driver_is_drawn_snapshot_by_snapshot():
    chart = diagnosed.driver_course(a_case("driver", "driver"))
    assert chart.series == [
        ("critical participation", [0.0, 0.25], [0.8, 0.8]),
        ("conventional profile", [0.0, 0.25], [0.3, 0.3]),
    ]
    assert chart in diagnosed.bottleneck_charts([a_case("driver", "driver")])


@pytest.mark.parametrize(
    ("decided", "final", "expected"),
    [
        ((2,), 2, Verdict.REPRODUCED),
        ((3, 2, 3), 3, Verdict.REPRODUCED),
        ((2, 3, 2, 3), 3, Verdict.WORSE),
        ((), 5, Verdict.WORSE),
    ],
)
def test_queries_converge_to_one_size_in_few_steps(decided, final, expected):
    runs = [Convergence(1, 1, (2, 3), 3), Convergence(1, 5, decided, final)]
    found = converging.finding(1, runs)
    assert found.verdict is expected
    assert "from 1: 2 → 3; from 5: " in found.ours
    assert converging.steps_chart(runs).series[0] == ("Q1 from 1", [0, 1, 2], [1, 2, 3])


def test_to_end_at_one_size_that_cannot_serve_the_load_is_no_convergence():
    found = converging.finding(1, [Convergence(1, 1, (), 1), Convergence(1, 5, (1,), 1)])
    assert found.verdict is Verdict.WORSE and "3 slots are busy" in found.why


def test_one_start_alone_does_not_show_that_all_lead_to_one_size():
    found = converging.finding(1, [Convergence(1, 1, (3,), 3)])
    assert found.verdict is Verdict.NOT_COMPARABLE and "from 1: 3" in found.ours


def sized_row(**changes):
    row = {"case": "heap", "start": "over", "actions": 2, "pause_seconds": 12.4, "final_over_optimal": 1.05,
           "heap_downs": 1, "memory_downs": 1, "undone": 0, "sizing_seconds": 90.0, "settled": 1,
           "course": "P6 memory 2g → 1g"}  # fmt: skip
    return {**row, **changes}


def test_the_worst_over_size_counts_and_every_case_tells_what_it_took():
    over, downs, swings, minutes, took = sizing_findings([sized_row()])
    assert (over.ours, over.verdict) == (0.05, Verdict.BETTER)
    assert {downs.verdict, swings.verdict} == {Verdict.REPRODUCED} and minutes.ours == 1.5
    assert took.ours == "2 restarts, 12 s without batches in all: P6 memory 2g → 1g"
    bad = sized_row(final_over_optimal=1.5, heap_downs=2, undone=1, settled=0)
    over, downs, swings, _, *courses = sizing_findings([sized_row(), bad])
    assert {one.verdict for one in (over, downs, swings)} == {Verdict.WORSE}
    assert "still being sized" in courses[1].why


def test_without_an_optimum_no_size_is_called_too_large():
    assert sizing_findings([sized_row(final_over_optimal=math.nan)])[0].verdict is Verdict.NOT_COMPARABLE


def test_an_application_that_is_still_being_sized_does_not_show_a_good_size():
    late = sized_row(start="under", final_over_optimal=0.6, settled=0)
    found = sizing_findings([sized_row(), late])[0]
    assert (found.ours, found.verdict) == (0.05, Verdict.NOT_COMPARABLE)
    assert found.why == "still being sized when the run ended: heap (under)"


def test_every_kind_of_chart_can_be_drawn_and_kept():
    both = [moved(3, "all-at-once", 30.0), moved(3, "fluid", 1.5)]
    charts = [
        moving.timeline("query 3", both),
        diagnosed.participations([hot()]),
        *diagnosed.hot_timelines([hot(), hot(settled=())]),
        *diagnosed.bottleneck_charts([a_case("flat-map", "flat-map")]),
        *word_counts.timelines(UNDER, {("under", system): a_run(3, 3) for system in RUNNERS}),
        Chart("spread", "", "seconds", [("one", [1.0, 2.0], [3.0, 4.0])], boxes=True),
    ]
    outcome = PartOutcome("one", "One", "figures", Status.DONE, 1.0, True, result=PartResult([], charts))
    assert PartOutcome.from_json(outcome.to_json()).to_json() == outcome.to_json()
    text = page([outcome], "a machine", "a day")
    assert text.count("Plotly.newPlot") == len(charts)
    assert all(
        f'"{key}":"{kind}"' in text for key, kind in (("shape", "hv"), ("type", "log"), ("type", "box"))
    )


def test_the_tables_of_diagnosis_leave_out_windows_that_were_not_published():
    rows = [{"window_s": seconds, "latency_s": 0.01, "events_per_s": 4e6} for seconds in (1, 2, 1666)]
    found = diagnosed.tables(rows, [])
    assert len(found.findings) == 4
    assert {finding.verdict for finding in found.findings} == {Verdict.BETTER}
    assert [chart.title for chart in found.charts] == ["table 3.3", "table 3.4"]
    assert found.charts[1].series[1] == ("ours", [1.0, 2.0], [4.0, 4.0])
