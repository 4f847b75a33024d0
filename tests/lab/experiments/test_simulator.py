"""The simulator's benchmark says what it measured, of a day that really is one."""

from dataclasses import replace

import pytest

from penstock.simulate.run import simulate
from penstock_lab.experiments.batches import BatchSeen, SlotsSeen
from penstock_lab.experiments.simulator import (
    DAY_SECONDS,
    OPERATORS,
    compare_figures,
    list_cluster_figures,
    list_simulated_figures,
    make_day,
    make_scenario,
    measure_change,
    measure_fixed_cost,
)
from penstock_lab.experiments.word_count.query import ClusterRun


def test_the_day_has_its_seconds_and_operators_and_the_policy_acts():
    experiment = make_day(interval=600)
    assert experiment.seconds == DAY_SECONDS and experiment.graph.is_scalable.sum() == OPERATORS
    assert len(simulate(experiment, "ds2").actions) > 2


def test_a_cluster_that_does_as_the_simulator_says_is_not_off():
    run = simulate(make_scenario(0.8, 6.2), "ds2")
    assert run.errors == {} and run.actions
    # the load steps up 40 s after the origin, and three small batches come before
    warm = [BatchSeen(1010.0 + 6 * number, 0.8, 1, number + 1) for number in range(3)]
    batches = [
        BatchSeen(1040 + batch.start, batch.seconds, round(batch.input_records), 120 + round(read))
        for batch, read in zip(run.batches, _running(run.batches), strict=True)
    ]
    slots = [SlotsSeen(1000.0, 3)]
    slots += [SlotsSeen(1040.0 + second, 3 * held) for second, held in enumerate(run.held[:, 0].tolist())]
    moved = [_later(action, 1040.0) for action in run.actions]
    ended = 1040.0 + run.experiment.seconds
    cluster = ClusterRun(1000.0, ended, (*warm, *batches), tuple(slots), tuple(moved))
    real, found = list_cluster_figures(cluster), list_simulated_figures(run)
    assert real["steps"] == found["steps"] and real["final_slots"] == found["final_slots"]
    off = compare_figures(real, found)
    assert off["reality_first_change_s_off_ratio"] == pytest.approx(0)
    assert off["reality_slot_s_off_ratio"] < 0.02 and off["reality_batch_s_off_ratio"] < 0.02
    # a batch takes its records at its first moment, the simulator shows what waits at the end of a second
    assert off["reality_backlog_record_s_off_ratio"] < 0.2
    assert measure_fixed_cost(cluster) == pytest.approx(0.8, abs=0.2)
    assert measure_change(cluster) == 6.0


def _running(batches):
    total = 0.0
    for batch in batches:
        total += batch.input_records
        yield total


def _later(action, seconds):
    moved = {"intended_at": action.intended_at + seconds, "ended_at": action.ended_at + seconds}
    return replace(action, **moved)
