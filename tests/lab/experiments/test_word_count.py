"""How a run of the word count becomes a row, and rows become targets; no Spark runs here."""

from dataclasses import replace

import pytest

from penstock.dataflow.window import EXECUTORS
from penstock_lab.claims.ds2.word_count import PUBLISHED
from penstock_lab.claims.ds2.word_count import judge_targets as targets
from penstock_lab.experiments.batches import BatchSeen, SlotsSeen
from penstock_lab.experiments.word_count.query import (
    DS2,
    DYNAMIC_ALLOCATION,
    HIGH_RATE,
    LOAD_AFTER_SECONDS,
    LOW_RATE,
    TRIGGER_SECONDS,
    TWO_PHASE,
    UNDER,
    ClusterRun,
    find_least,
    make_row,
)
from tests.lab.made_up import an_action

ORIGIN = 1000.0
LOADED = ORIGIN + LOAD_AFTER_SECONDS
OPTIMUM = {HIGH_RATE: 9, LOW_RATE: 6}


def action(at, executors, predicted):
    return an_action(at, {EXECUTORS: executors}, predicted=predicted)


def steady_batches(start, end, rate, seconds):
    count = int((end - start) / TRIGGER_SECONDS)
    size = round(rate * TRIGGER_SECONDS)
    return [BatchSeen(start + number * TRIGGER_SECONDS, seconds, size, 10**6) for number in range(count)]


def under_run(predicted=4.0, measured=4.0):
    end = LOADED + UNDER.seconds
    return ClusterRun(
        origin=ORIGIN,
        ended=end,
        batches=tuple(steady_batches(LOADED + 40, end, HIGH_RATE, measured)),
        slots=(SlotsSeen(ORIGIN - 1, 3), SlotsSeen(LOADED + 34, 9)),
        actions=(action(LOADED + 24, 3, predicted),),
    )


def test_one_step_to_the_optimum():
    row = make_row(UNDER, DS2, under_run(), OPTIMUM)
    assert (row["steps"], row["final_slots"], row["optimal_slots"]) == (1, 9, 9)
    assert row["seconds_to_converge"] == 34.0
    assert row["slot_seconds"] == 3 * 34 + 9 * (UNDER.seconds - 34)
    assert row["prediction_error"] == pytest.approx(0.0)
    assert all(target.met for target in targets([row]))


def test_a_wrong_prediction_misses_its_target():
    row = make_row(UNDER, DS2, under_run(predicted=5.0), OPTIMUM)
    assert row["prediction_error"] == pytest.approx(0.25)
    missed = [target.name for target in targets([row]) if not target.met]
    assert missed == ["error of the predicted batch time"]


def test_a_step_in_the_moment_in_which_the_load_ends_spoils_no_row():
    run = under_run()
    late = replace(run, actions=(*run.actions, action(LOADED + UNDER.seconds + 0.1, 2, 9.0)))
    row = make_row(UNDER, DS2, late, OPTIMUM)
    assert (row["steps_by_phase"], row["final_slots"]) == ([1], 9)
    assert row["prediction_error"] == pytest.approx(0.0)


def test_two_phases_are_judged_each_for_itself():
    change = LOADED + TWO_PHASE.phases[1][0]
    end = LOADED + TWO_PHASE.seconds
    seen = ClusterRun(
        origin=ORIGIN,
        ended=end,
        batches=(),
        slots=(SlotsSeen(ORIGIN - 1, 3), SlotsSeen(LOADED + 34, 12), SlotsSeen(change + 40, 3)),
        actions=(action(LOADED + 24, 4, 4.0), action(change + 30, 1, 4.0)),
    )
    row = make_row(TWO_PHASE, DS2, seen, OPTIMUM)
    assert row["steps_by_phase"] == [1, 1]
    assert row["slots_by_phase"] == [12, 3]
    assert row["seconds_to_converge"] == 40.0
    measured = {target.name: target.measured for target in targets([row])}
    assert measured["executors above the optimum"] == 1
    assert measured["slots short of what the load needs"] == 3
    assert measured["error of the predicted batch time"] is None


def test_dynamic_allocation_is_counted_by_what_was_seen():
    slots = tuple(SlotsSeen(ORIGIN + at, count) for at, count in ((-1, 3), (5, 6), (8, 15), (60, 15)))
    seen = ClusterRun(ORIGIN, LOADED + UNDER.seconds, (), slots)
    row = make_row(UNDER, DYNAMIC_ALLOCATION, seen, OPTIMUM)
    assert (row["steps"], row["final_slots"], row["seconds_to_converge"]) == (1, 15, 0.0)
    assert row["prediction_error"] is None


def test_the_optimum_is_the_least_that_keeps_up():
    assert find_least({15: 3.0, 9: 4.0, 6: TRIGGER_SECONDS + 0.1}) == 9
    assert find_least({6: 8.0}) is None


def test_an_optimum_that_was_not_found_meets_nothing():
    row = make_row(UNDER, DS2, under_run(), {HIGH_RATE: None})
    unmet = [target.name for target in targets([row]) if not target.met]
    assert unmet == ["executors above the optimum", "slots short of what the load needs"]


def test_every_named_field_is_in_a_row():
    fields = "case system steps final_slots optimal_slots slots_per_executor seconds_to_converge"
    row = make_row(UNDER, DS2, under_run(), OPTIMUM)
    assert {*fields.split(), "backlog_record_seconds", "slot_seconds"} <= set(row)
    assert PUBLISHED["dhalion_steps"] == 6
