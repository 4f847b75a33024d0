"""The simulator's benchmark says what it measured, of a day that really is one."""

from dataclasses import replace

import pytest

from penstock.bench.reality import (
    CASE,
    change_seconds,
    cluster_figures,
    differences,
    fixed_seconds,
    simulated_figures,
    simulated_scenario,
)
from penstock.bench.simulator import DAY_SECONDS, OPERATORS, day
from penstock.bench.spark_experiment import Run
from penstock.bench.traces import BatchSeen, SlotsSeen
from penstock.simulate.run import simulate


def test_the_day_has_its_seconds_and_operators_and_the_policy_acts():
    experiment = day(interval=600)
    assert experiment.seconds == DAY_SECONDS and experiment.graph.is_scalable.sum() == OPERATORS
    assert len(simulate(experiment, "ds2").actions) > 2


def test_a_cluster_that_does_as_the_simulator_says_is_not_off():
    planned = CASE.experiment()
    run = simulate(simulated_scenario(planned, 0.8, 6.2), "ds2")
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
    moved.append(replace(moved[0], planned={"bins": 2}, seconds=44.0))
    ended = 1040.0 + run.experiment.seconds
    cluster = Run(1000.0, ended, (*warm, *batches), tuple(slots), tuple(moved))
    real, found = cluster_figures(cluster, planned), simulated_figures(run)
    assert real["steps"] == found["steps"] and real["final_slots"] == found["final_slots"]
    off = differences(real, found)
    assert off["reality_first_change_s_off_ratio"] == pytest.approx(0)
    assert off["reality_slot_s_off_ratio"] < 0.02 and off["reality_batch_s_off_ratio"] < 0.02
    # a batch takes its records at its first moment, the simulator shows what waits at the end of a second
    assert off["reality_backlog_record_s_off_ratio"] < 0.2
    assert fixed_seconds(cluster, planned) == pytest.approx(0.8, abs=0.2)
    assert change_seconds(cluster) == 6.0


def _running(batches):
    total = 0.0
    for batch in batches:
        total += batch.input_records
        yield total


def _later(action, seconds):
    moved = {"intended_at": action.intended_at + seconds, "ended_at": action.ended_at + seconds}
    return replace(action, **moved)
