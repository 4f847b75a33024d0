"""Claims on the word count of a real cluster, from made-up runs and rows."""

import math
from types import SimpleNamespace

import pytest

from penstock_lab.claims.claim import Verdict
from penstock_lab.claims.ds2 import word_count
from penstock_lab.claims.ds2.word_count import judge_latency
from penstock_lab.experiments.batches import SlotsSeen
from penstock_lab.experiments.overhead import Ratio
from penstock_lab.experiments.word_count.query import (
    HIGH_RATE,
    LOAD_AFTER_SECONDS,
    RUNNERS,
    TRIGGER_SECONDS,
    UNDER,
)
from tests.lab.made_up import batches

USUAL = HIGH_RATE * TRIGGER_SECONDS


def a_run(*seconds, slots=((0.0, 3), (20.0, 9)), ended=100.0):
    samples = tuple(SlotsSeen(at, count) for at, count in slots)
    return SimpleNamespace(origin=0.0, ended=ended, batches=batches(*seconds, records=USUAL), slots=samples)


def a_row(**changes):
    row = {"case": "under", "steps": 1, "steps_by_phase": [1], "final_slots": 9, "optimal_slots": 9}
    row |= {"slots_by_phase": [9], "optimal_by_phase": [9]}
    spent = {"slot_seconds": 1200, "backlog_record_seconds": 34_000}
    return {**row, **spent, "slots_per_executor": 3, **changes}


def test_steps_and_size_of_ds2_are_held_beside_those_of_dynamic_allocation():
    steps, size = word_count.judge_case(a_row(), a_row(steps=6, final_slots=15))
    assert (steps.verdict, size.verdict) == (Verdict.REPRODUCED, Verdict.REPRODUCED)
    assert (steps.baseline, size.baseline) == ("dynamic allocation: 6", "dynamic allocation: 15 slots")
    assert word_count.judge_case(a_row(final_slots=15), a_row())[1].verdict is Verdict.WORSE


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
    assert word_count.judge_case(row, None)[0].verdict is expected
    unknown = {**row, "optimal_by_phase": [None, None], "optimal_slots": None}
    assert (word_count.judge_case(unknown, None)[0].verdict is Verdict.WORSE) == (not any(steps))


def test_what_either_spent_on_the_same_load_is_shown():
    (found,) = word_count.show_costs(a_row(), a_row(slot_seconds=3000))
    assert found.measured == "1,200 slot-seconds held, 34,000 record-seconds waited"
    assert found.baseline.startswith("dynamic allocation: 3,000 slot-seconds")
    assert word_count.show_costs(a_row(), None) == []


def test_a_baseline_that_failed_is_none_and_its_line_is_left_out():
    steps, size = word_count.judge_case(a_row(), None)
    assert (steps.baseline, size.baseline) == (None, None)
    slots, rates = word_count.draw_timelines(UNDER, {("under", "ds2"): a_run(3, 3, 3)})
    assert [name for name, _, _ in slots.series] == ["ds2"]
    assert [name for name, _, _ in rates.series] == ["ds2", "offered"]
    assert word_count.draw_timelines(UNDER, {}) == []


def test_without_a_search_no_size_is_called_the_least():
    assert len(word_count.judge_case(a_row(optimal_slots=None), a_row())) == 1


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ((9, 9, 9, 5, 5, 5), Verdict.REPRODUCED),
        ((5, 5, 5, 9, 9, 9), Verdict.WORSE),
        ((9, 9, 9), Verdict.NOT_COMPARABLE),
    ],
)
def test_the_size_chosen_is_judged_by_batches_after_the_last_step(seconds, expected):
    finding = word_count.judge_keeping_up(UNDER, a_run(*seconds))
    assert finding.verdict is expected


@pytest.mark.parametrize(("records", "expected"), [(900, Verdict.REPRODUCED), (500, Verdict.WORSE)])
def test_a_size_that_still_catches_up_is_judged_by_how_much_it_reads(records, expected):
    run = a_run()
    run.batches = batches(9, 9, start=30.0, records=records)
    finding = word_count.judge_keeping_up(UNDER, run)
    assert finding.verdict is expected and "60 are offered, while it catches up" in finding.measured


def test_a_size_is_right_if_one_executor_fewer_falls_behind():
    by_slots = {6: 8.0, 9: 5.0, 12: 4.5, 15: 4.4}
    (finding,) = word_count.judge_sizes(by_slots, a_row())
    assert finding.verdict is Verdict.REPRODUCED and "6: 8.0 s, 9: 5.0 s, 12: 4.5 s" in finding.measured
    assert word_count.judge_sizes(by_slots, a_row(final_slots=12))[0].verdict is Verdict.WORSE
    assert word_count.judge_sizes({}, a_row()) == []
    (too_small,) = word_count.judge_sizes({6: 8.0, 9: 5.0}, a_row(final_slots=3))
    assert too_small.verdict is Verdict.WORSE and too_small.measured == "chose 3 slots; 6: 8.0 s"


def test_sizes_are_drawn_by_what_they_read_and_how_their_batches_are_distributed():
    tried = {HIGH_RATE: {9: (4.0, 5.0), 6: (2 * TRIGGER_SECONDS,)}}
    read, times = word_count.draw_sizes(tried)
    assert read.series == [("60 a second are offered", ["6", "9"], [HIGH_RATE / 2, HIGH_RATE])]
    assert times.series[1] == ("9 slots", [4.0, 4.0, 5.0], [0.0, 0.5, 1.0])
    assert word_count.draw_sizes({}) == []


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
    assert judge_latency(Ratio(math.nan if ratio is None else ratio, *interval)).verdict is expected


def test_timelines_have_a_line_for_each_system_and_one_for_what_was_offered():
    runs = {("under", system): a_run(3, 3, 3) for system in RUNNERS}
    slots, rates = word_count.draw_timelines(UNDER, runs)
    assert [name for name, _, _ in slots.series] == list(RUNNERS)
    assert slots.series[0][1] == [-LOAD_AFTER_SECONDS, 20.0 - LOAD_AFTER_SECONDS]
    assert rates.series[0][2] == [pytest.approx(USUAL / 10)] * 3
    assert rates.series[-1][1] == [0, 100.0 - LOAD_AFTER_SECONDS]
    assert rates.series[-1][0] == "offered" and set(rates.series[-1][2]) == {HIGH_RATE}
