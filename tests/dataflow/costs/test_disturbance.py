"""A busy machine slows every stage and computes no more; anything else is the job's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.dataflow.costs.disturbance import keep_undisturbed
from penstock.dataflow.costs.memory import CostMemory
from penstock.dataflow.costs.slots import CostsBySlots
from penstock.dataflow.metrics import BatchExecution, StageExecution


def stage(name: str, useful: float, computed: float | None, tasks: int = 4) -> StageExecution:
    def column(total: float) -> np.ndarray:
        return np.full(tasks, total / tasks)

    cpu = np.zeros(0) if computed is None else column(computed)
    return StageExecution(name, column(400.0), column(400.0), column(useful), column(0.0), useful, cpu)


def batch(number: int, slower: float = 1.0, service: float = 1.0, known: bool = True) -> BatchExecution:
    """A scan of 2 s and a lookup of 4 s, half of each computed; a busy machine makes both `slower`."""
    stages = (
        stage("scan", 2 * slower, 1.0 if known else None),
        stage("lookup", 4 * slower * service, 2.0 if known else None),
    )
    return BatchExecution(number, 10.0 * number, 7.0 * slower, 4, 400.0, stages)


def kept(batches: list[BatchExecution]) -> list[int]:
    return [one.batch_id for one in keep_undisturbed(tuple(batches))]


def test_batches_of_a_busy_machine_are_left_out():
    assert kept([batch(0), batch(1), batch(2, slower=2), batch(3), batch(4, slower=1.5)]) == [0, 1, 3]


def test_a_slower_service_is_the_jobs_own():
    assert kept([batch(0), batch(1), batch(2), batch(3, service=3), batch(4, service=3)]) == [0, 1, 2, 3, 4]


def test_work_that_computes_more_is_the_jobs_own():
    dearer = replace(batch(3), stages=(stage("scan", 4, 2.0), stage("lookup", 8, 4.0)))
    assert kept([batch(0), batch(1), batch(2), dearer]) == [0, 1, 2, 3]


def test_where_most_batches_are_slow_that_is_how_it_is():
    assert kept([batch(0), batch(1, 2), batch(2, 2), batch(3, 2), batch(4, 2)]) == [0, 1, 2, 3, 4]


def test_without_processor_times_nothing_is_left_out():
    batches = [batch(number, slower=1.0 + number % 2, known=False) for number in range(6)]
    assert kept(batches) == list(range(6))


def test_one_bad_window_moves_no_cost():
    calm, shaken = CostMemory(), CostMemory()
    calm.remember([batch(number) for number in range(8)])
    shaken.remember([*(batch(number) for number in range(6)), batch(6, 3), batch(7, 3)])
    found = [memory.costs() for memory in (calm, shaken)]
    assert all(isinstance(costs, CostsBySlots) for costs in found)
    one, other = (sum(s.slot_seconds_at(400.0, 4) for s in costs.newest.stages) for costs in found)
    assert other == pytest.approx(one, rel=0.05)
